// Runs an ONNX model in this browser for the worker that drives it: `hwcompat.describe`, `open` and `run`.
// Arrays go as raw bytes over loopback: GET to read one, POST to give one back.

const VIEWS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: globalThis.Float16Array ?? Uint16Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

let ort = null;
let session = null;
let lost = "";

async function runtime(bundle) {
  if (ort === null) {
    ort = await import(`/runtime/${bundle}`);
    ort.env.wasm.wasmPaths = new URL("/runtime/", location.href).href;
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = "verbose";
  }
  return ort;
}

function infoOf(adapter) {
  const { vendor, architecture, device, description } = adapter.info;
  return {
    vendor,
    architecture,
    device,
    description,
    fallback: adapter.info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false,
    features: [...adapter.features].sort(),
    limits: Object.fromEntries(
      ["maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage"].map((name) => [
        name,
        adapter.limits[name],
      ]),
    ),
  };
}

// WebGPU's adapter, or the WebNN contexts that the browser gives; `null` and `reason` where there is none.
async function describe({ api, contexts }) {
  const found = { agent: navigator.userAgent, isolated: crossOriginIsolated };
  if (api === "webgpu") {
    if (!navigator.gpu) return { ...found, adapter: null, reason: "this browser has no navigator.gpu" };
    const adapter = await navigator.gpu.requestAdapter();
    return adapter ? { ...found, adapter: infoOf(adapter) } : { ...found, adapter: null, reason: "it offers no adapter" };
  }
  if (!navigator.ml) return { ...found, contexts: {}, reason: "this browser has no navigator.ml" };
  found.contexts = {};
  for (const deviceType of contexts) {
    try {
      const context = await navigator.ml.createContext({ deviceType });
      const limits = context.opSupportLimits();
      found.contexts[deviceType] = {
        accelerated: context.accelerated ?? null,
        operators: Object.keys(limits).filter((name) => typeof limits[name] === "object").sort(),
        preferredInputLayout: limits.preferredInputLayout ?? null,
      };
      context.destroy?.();
    } catch (error) {
      found.contexts[deviceType] = { reason: `${error.name}: ${error.message}` };
    }
  }
  return found;
}

// One session in this page, for a browser of its own: `took` in milliseconds.
async function open({ bundle, model, provider, optimisation }) {
  const api = await runtime(bundle);
  const response = await fetch(model);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const started = performance.now();
  session = await api.InferenceSession.create(bytes, {
    executionProviders: [provider],
    graphOptimizationLevel: optimisation,
    logSeverityLevel: 0,
    logVerbosityLevel: 0,
  });
  const device = provider.name === "webgpu" ? await api.env.webgpu.device : null;
  device?.lost?.then((why) => (lost = `${why.reason}: ${why.message}`));
  return { took: performance.now() - started, inputs: session.inputNames, outputs: session.outputNames };
}

async function tensorOf({ name, type, dims, url }) {
  const bytes = await (await fetch(url)).arrayBuffer();
  return [name, new ort.Tensor(type, new VIEWS[type](bytes), dims)];
}

// One pass. Each output goes to `${results}/<place>`; what it is stands in the answer.
async function run({ inputs, results }) {
  const feeds = Object.fromEntries(await Promise.all(inputs.map(tensorOf)));
  const started = performance.now();
  const found = await session.run(feeds);
  const given = [];
  for (const [place, name] of session.outputNames.entries()) {
    const tensor = found[name];
    const data = await tensor.getData();
    given.push({ name, type: tensor.type, dims: [...tensor.dims], place, where: tensor.location });
    tensor.dispose?.();
    given.at(-1).data = data;
  }
  const took = performance.now() - started;
  for (const one of given) {
    const { data } = one;
    delete one.data;
    const body = data.byteLength ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array();
    await fetch(`${results}/${one.place}`, { method: "POST", body });
  }
  return { took, outputs: given };
}

const calls = { describe, open, run };

// Starts a call and returns at once: `hwcompat.answer` holds the answer when there is one, so that a page that hangs
// is noticed from outside.
globalThis.hwcompat = {
  answer: null,
  ask(what, given) {
    this.answer = null;
    calls[what](given).then(
      (result) => (this.answer = { result }),
      (error) => (this.answer = { error: { name: error?.name ?? "Error", message: String(error?.message ?? error), lost } }),
    );
  },
};
