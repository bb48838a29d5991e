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

const SESSIONS = 4; // shapes of one model that stay open
const COMPLAINT = /\[[EF]:onnxruntime:/;

let ort = null;
let lost = "";
let busy = false;
let logged = [];
const sessions = new Map();

// While the runtime works it logs every step and shader as an error. That is kept here: a browser under automation
// tells of each line that its console shows, which costs more than the work. What it complains of is shown.
for (const kind of ["log", "info", "debug", "warn", "error"]) {
  const show = console[kind].bind(console);
  console[kind] = (...words) => {
    const text = words.map(String).join(" ");
    if (busy && !COMPLAINT.test(text)) logged.push(text);
    else show(...words);
  };
}

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

// A session, which `run` names by `key`: `took` in milliseconds, and what the runtime logged while it was made.
async function open({ bundle, key, model, provider, optimisation }) {
  const api = await runtime(bundle);
  const response = await fetch(model);
  const bytes = new Uint8Array(await response.arrayBuffer());
  while (sessions.size >= SESSIONS) {
    const [oldest, session] = sessions.entries().next().value;
    sessions.delete(oldest);
    await session.release();
  }
  logged = [];
  const started = performance.now();
  const session = await api.InferenceSession.create(bytes, {
    executionProviders: [provider],
    graphOptimizationLevel: optimisation,
    logSeverityLevel: 0,
    logVerbosityLevel: 0,
  });
  sessions.set(key, session);
  const device = provider.name === "webgpu" ? await api.env.webgpu.device : null;
  device?.lost?.then((why) => (lost = `${why.reason}: ${why.message}`));
  const log = logged.filter((line) => line.includes("placed on") || line.includes("VerifyEachNode"));
  return { took: performance.now() - started, inputs: session.inputNames, outputs: session.outputNames, log };
}

async function tensorOf({ name, type, dims, url }) {
  const bytes = await (await fetch(url)).arrayBuffer();
  return [name, new ort.Tensor(type, new VIEWS[type](bytes), dims)];
}

// One pass. Each output goes to `${results}/<place>`; what it is stands in the answer.
async function run({ key, inputs, results }) {
  const session = sessions.get(key);
  logged = [];
  const feeds = Object.fromEntries(await Promise.all(inputs.map(tensorOf)));
  const started = performance.now();
  const found = await session.run(feeds, { logSeverityLevel: 2 });
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

// What the runtime awaits nowhere fails its call all the same: else the call would wait for ever.
addEventListener("unhandledrejection", ({ reason }) => {
  if (busy) hwcompat.answer ??= { error: { name: reason?.name ?? "Error", message: String(reason?.message ?? reason), lost } };
});

async function working(call, given) {
  busy = true;
  try {
    return await call(given);
  } finally {
    busy = false;
  }
}

const calls = { describe, open: (given) => working(open, given), run: (given) => working(run, given) };

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
