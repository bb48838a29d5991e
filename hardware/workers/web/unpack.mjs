// Unpack the Chromium of npm's package @sparticuz/chromium, which has WebNN: `node unpack.mjs PACKAGE FOLDER`.

import { createReadStream, createWriteStream, mkdirSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

const [, , source, folder] = process.argv;
const { extract } = createRequire(resolve(source, "package.json"))("tar-fs");

mkdirSync(folder, { recursive: true });
await pipeline(createReadStream(join(source, "bin", "swiftshader.tar.br")), createBrotliDecompress(), extract(folder));
const half = join(folder, "chromium.part");
await pipeline(
  createReadStream(join(source, "bin", "chromium.br")),
  createBrotliDecompress(),
  createWriteStream(half, { mode: 0o755 }),
);
renameSync(half, join(folder, "chromium"));
