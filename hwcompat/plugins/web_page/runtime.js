// Unpacks embedded data and verifies its hashes, loads ONNX Runtime Web from memory, and runs a model's passes.

class CheckFailed extends Error {
  constructor(errorType, message, stage, outcome = "failed") {
    super(message);
    Object.assign(this, { errorType, stage, outcome });
  }
}

async function unpacked(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Returns the bytes and hashes of all embedded data; `changed` has the names whose hash isn't the sealed one.
async function opened(seal) {
  const wanted = {
    script: seal.runtime.script,
    wasm: seal.runtime.wasm,
    inputs: seal.inputs,
    expected: seal.expected,
    ...Object.fromEntries(seal.files.map((file, number) => [`model-${number}`, file])),
  };
  const found = { bytes: {}, hashes: {}, changed: [] };
  for (const [name, { sha256: sealed }] of Object.entries(wanted)) {
    try {
      found.bytes[name] = await unpacked(`data-${name}`);
      found.hashes[name] = await sha256(found.bytes[name]);
    } catch (error) {
      found.hashes[name] = `unreadable: ${error.name}`;
    }
    if (found.hashes[name] !== sealed) found.changed.push(name);
  }
  return found;
}

function arrayAt(bytes, { type, dims, at, bytes: size }) {
  const data = numbersOf(type, bytes.buffer.slice(bytes.byteOffset + at, bytes.byteOffset + at + size));
  if (!data) throw new CheckFailed("unsupported_dtype", `an input is of type ${type}`, "load");
  return { type, dims, data };
}

function arraysAt(bytes, places) {
  return Object.fromEntries(Object.entries(places).map(([name, place]) => [name, arrayAt(bytes, place)]));
}

// Waits for a promise with a time limit; an unhandled rejection in the meantime also fails it.
async function within(seconds, promise, stage) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(
      () => reject(new CheckFailed("timeout", `it took longer than ${seconds} s`, stage, "timeout")),
      seconds * 1000,
    );
  });
  return Promise.race([watched(promise), late]).finally(() => clearTimeout(timer));
}

class Model {
  constructor(seal, files) {
    Object.assign(this, { seal, files, ort: null, sessions: new Sessions(), broken: new Map() });
  }

  async start() {
    const address = URL.createObjectURL(new Blob([this.files.bytes.script], { type: "text/javascript" }));
    this.ort = begin(await import(address));
    URL.revokeObjectURL(address);
    Object.assign(this.ort.env.wasm, { proxy: false, wasmBinary: this.files.bytes.wasm.buffer });
  }

  // Returns an error of the runtime as a failure with an error type of evidence, without addresses of files.
  failure(error, stage) {
    if (error instanceof CheckFailed || error instanceof ReferenceNotFinite) return error;
    const message = `${saidOf(error)}${gpu.lost && ` (device lost: ${gpu.lost})`}`;
    const text = message.replace(/\b(?:file|blob|https?|content):\S+/g, "<address>").slice(0, 900);
    const kind = this.seal.target.error_patterns.find(([pattern]) => new RegExp(pattern, "i").test(text))?.[1] ?? "unknown";
    const outcome = kind === "out_of_memory" ? kind : "failed";
    return new CheckFailed(kind, `ONNX Runtime Web doesn't run the model: ${text}`, stage, outcome);
  }

  // Returns the session of a file with the placement of its nodes; a failure is kept and raised again.
  async session(number) {
    if (this.broken.has(number)) throw this.broken.get(number);
    try {
      const opening = this.sessions.with(number, () => this.created(number));
      return await within(this.seal.target.limit_s, opening, "compile");
    } catch (error) {
      heard.keeps = false;
      this.broken.set(number, this.failure(error, "compile"));
      throw this.broken.get(number);
    }
  }

  async created(number) {
    const { target, files } = this.seal;
    if (this.ort === null) await this.start();
    const { session, said } = await created(this.ort, this.files.bytes[`model-${number}`], target.provider);
    return { session, proof: counted(placed(said), files[number].nodes, target.placement) };
  }

  // Runs one pass: returns floating-point outputs by the model's names, milliseconds, and the placement of the nodes.
  async run(number) {
    const { passes, files, target } = this.seal;
    const { session, proof } = await this.session(passes[number].file);
    try {
      const given = arraysAt(this.files.bytes.inputs, passes[number].inputs);
      const tensorOf = ({ type, data, dims }) => new this.ort.Tensor(type, data, dims);
      const feeds = Object.fromEntries(session.inputNames.map((name) => [name, tensorOf(given[name])]));
      const started = performance.now();
      const tensors = await within(target.limit_s, session.run(feeds), "run");
      const got = {};
      for (const [name, known] of Object.entries(files[passes[number].file].outputs)) {
        const tensor = tensors[name];
        if (!tensor) continue;
        got[known] = { data: await within(target.limit_s, tensor.getData(), "run"), dims: [...tensor.dims] };
      }
      return { got, took: performance.now() - started, proof };
    } catch (error) {
      throw this.failure(error, "run");
    }
  }
}
