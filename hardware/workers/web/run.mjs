// Runs an ONNX model in this browser for the worker that drives it: `hwcompat.describe`, `open` and `run`.
// Arrays go as raw bytes over loopback: GET to read one, POST to give one back.

import { adapterHere, contextHere, namesOf } from "./adapters.mjs";
import { placed } from "./placement.mjs";
import { Sessions, begin, created, gpu, heard, numbersOf, watched } from "./session.mjs";

const COMPLAINT = /\[[EF]:onnxruntime:/;

let ort = null;
let busy = false;
const sessions = new Sessions();

// A browser under automation tells of each line that its console shows, which costs more than the work: while the
// runtime works, only what it complains of is shown.
heard.shows = (text) => !busy || COMPLAINT.test(text);

async function runtime(bundle) {
  if (ort === null) {
    ort = begin(await import(`/runtime/${bundle}`));
    ort.env.wasm.wasmPaths = new URL("/runtime/", location.href).href;
  }
  return ort;
}

async function fetched(url, options = {}) {
  const response = await fetch(url, options);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

// WebGPU's adapter, or the WebNN contexts that the browser gives; `null` and `reason` where there is none.
async function describe({ api, contexts }) {
  const found = { agent: navigator.userAgent, isolated: crossOriginIsolated };
  if (api === "webgpu") {
    const { reason, facts = null } = await adapterHere();
    return { ...found, adapter: facts, reason };
  }
  if (!navigator.ml) return { ...found, contexts: {}, reason: "this browser has no WebNN" };
  found.contexts = {};
  for (const kind of contexts) {
    const { reason, facts } = await contextHere(kind);
    found.contexts[kind] = facts ?? { reason };
  }
  return found;
}

// A session, which `run` names by `key`: `took` in milliseconds, where the runtime's log says that its nodes are, the
// adapter by the word of the device that it runs on (`null` without WebGPU), and the keys of all that are open now.
async function open({ bundle, key, model, provider }) {
  const api = await runtime(bundle);
  const bytes = new Uint8Array(await fetched(model));
  const started = performance.now();
  const one = await sessions.with(key, async () => {
    const { session, said } = await created(api, bytes, provider);
    return { session, placed: placed(said) };
  });
  return {
    took: performance.now() - started,
    inputs: one.session.inputNames,
    outputs: one.session.outputNames,
    placed: one.placed,
    adapter: gpu.info && namesOf(gpu.info),
    open: [...sessions.open.keys()],
  };
}

async function tensorOf({ name, type, dims, url }) {
  return [name, new ort.Tensor(type, numbersOf(type, await fetched(url)), dims)];
}

// One pass. Each output goes to `${results}/<place>`; what it is stands in the answer.
async function run({ key, inputs, results }) {
  const { session } = sessions.open.get(key);
  const feeds = Object.fromEntries(await Promise.all(inputs.map(tensorOf)));
  const started = performance.now();
  const found = await session.run(feeds, { logSeverityLevel: 2 });
  const given = [];
  for (const [place, name] of session.outputNames.entries()) {
    const tensor = found[name];
    const data = await tensor.getData();
    given.push({ name, type: tensor.type, dims: [...tensor.dims], place, where: tensor.location, data });
    tensor.dispose?.();
  }
  const took = performance.now() - started;
  for (const { data, place } of given) {
    const body = data.byteLength ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array();
    await fetched(`${results}/${place}`, { method: "POST", body });
  }
  return { took, outputs: given.map(({ data, ...one }) => one) };
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

// Starts a call and returns at once: `hwcompat.answer` holds the answer when there is one, so that a page that hangs
// is noticed from outside.
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
