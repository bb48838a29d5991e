// Run an ONNX model in this browser for the worker that drives it: `hwcompat.describe`, `open` and `run`.
// Models and arrays come as files of raw bytes; results are returned in Base64.

import { adapterHere, contextHere, namesOf } from "./adapters.mjs";
import { placed } from "./placement.mjs";
import { Sessions, begin, created, gpu, heard, numbersOf, watched } from "./session.mjs";

const COMPLAINT = /\[[EF]:onnxruntime:/;

let ort = null;
let busy = false;
const sessions = new Sessions();

// A browser under automation reports each line of its console, which costs more than the work: while the runtime
// works, only warnings and errors are shown.
heard.shows = (text) => !busy || COMPLAINT.test(text);

async function runtime(bundle, wasm) {
  if (ort === null) {
    ort = begin(await import(`/runtime/${bundle}`));
    ort.env.wasm.wasmPaths = new URL("/runtime/", location.href).href;
    ort.env.wasm.wasmBinary = await wasm.arrayBuffer();
  }
  return ort;
}

const files = () => [...document.querySelector("input").files];

function inBase64(data) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1]);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(new Blob([data]));
  });
}

// WebGPU's adapter, or the browser's WebNN contexts; `null` and `reason` if there is none.
async function describe({ api, contexts }) {
  if (api === "webgpu") {
    const { reason, facts = null } = await adapterHere();
    return { adapter: facts, reason };
  }
  if (!navigator.ml) return { contexts: {}, reason: "this browser has no WebNN" };
  const found = {};
  for (const kind of contexts) {
    const { reason, facts } = await contextHere(kind);
    found[kind] = facts ?? { reason };
  }
  return { contexts: found };
}

// Open a session of the first file, which `run` names by `key`. Return the placement of its nodes by the runtime's log,
// the adapter as its device reports it (`null` without WebGPU), and the keys of all open sessions. The second file is
// the runtime's WebAssembly.
async function open({ bundle, key, provider }) {
  const [model, wasm] = files();
  const api = await runtime(bundle, wasm);
  const bytes = new Uint8Array(await model.arrayBuffer());
  const one = await sessions.with(key, async () => {
    const { session, said } = await created(api, bytes, provider);
    return { session, placed: placed(said) };
  });
  return {
    inputs: one.session.inputNames,
    placed: one.placed,
    adapter: gpu.info && namesOf(gpu.info),
    open: [...sessions.open.keys()],
  };
}

// Run a pass over the given files, one for each input.
async function run({ key, inputs }) {
  const { session } = sessions.open.get(key);
  const buffers = await Promise.all(files().map((file) => file.arrayBuffer()));
  const tensors = inputs.map(({ type, dims }, place) => new ort.Tensor(type, numbersOf(type, buffers[place]), dims));
  const feeds = Object.fromEntries(tensors.map((tensor, place) => [session.inputNames[place], tensor]));
  const found = await session.run(feeds, { logSeverityLevel: 2 });
  const given = [];
  for (const name of session.outputNames) {
    const tensor = found[name];
    given.push({ name, type: tensor.type, dims: [...tensor.dims], data: await inBase64(await tensor.getData()) });
    tensor.dispose?.();
  }
  return given;
}

async function working(call, given) {
  busy = true;
  try {
    return await watched(call(given));
  } finally {
    busy = false;
  }
}

const calls = { describe, open: (given) => working(open, given), run: (given) => working(run, given) };

const failure = (error) => ({ name: error?.name ?? "Error", message: String(error?.message ?? error), lost: gpu.lost });

// Start a call and return at once: `hwcompat.answer` holds the answer once there is one, so that a page that hangs is
// detected from outside.
globalThis.hwcompat = {
  answer: null,
  ask(what, given) {
    this.answer = null;
    calls[what](given).then(
      (result) => (this.answer = { result }),
      (error) => (this.answer = { error: failure(error) }),
    );
  },
};
