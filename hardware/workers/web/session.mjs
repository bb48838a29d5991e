// Sessions of ONNX Runtime Web: their inputs and outputs, their log, and calls that never return.

const VIEWS = {
  float64: Float64Array,
  float32: Float32Array,
  float16: globalThis.Float16Array ?? Uint16Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

const MOST = 4; // sessions of one model that stay open

// A buffer's numbers as the runtime accepts them; null for an unsupported dtype.
export function numbersOf(type, buffer) {
  const View = VIEWS[type];
  return View ? new View(buffer) : null;
}

// Messages of the console: kept while `keeps` is set, and shown if `shows` agrees. A verbose runtime prints every step
// and shader, and stores the console's functions when it starts: this runs first.
export const heard = { said: [], keeps: false, shows: () => true };
for (const kind of ["log", "info", "debug", "warn", "error"]) {
  const show = console[kind].bind(console);
  console[kind] = (...words) => {
    const text = words.map(String).join(" ");
    if (heard.keeps) heard.said.push(text);
    if (heard.shows(text)) show(...words);
  };
}

// WebGPU's device: `info` describes its adapter, `null` before the runtime has one; `lost` says how it was lost, and is
// empty before.
export const gpu = { info: null, lost: "" };

// An unhandled rejection or a lost device fails the waiting call: otherwise it would wait forever.
let fail = null;
globalThis.addEventListener?.("unhandledrejection", (event) => fail?.(event.reason));
export function watched(promise) {
  const failed = new Promise((_, reject) => (fail = reject));
  return Promise.race([promise, failed]).finally(() => (fail = null));
}

async function watchDevice(ort) {
  const one = await ort.env.webgpu.device;
  gpu.info = one?.adapterInfo ?? null;
  one?.lost?.then(({ reason, message }) => {
    gpu.lost = `${reason}: ${message}`;
    if (reason !== "destroyed") fail?.(new Error(`the device was lost: ${message}`));
  });
}

export function begin(ort) {
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "verbose";
  return ort;
}

// A session of a file's bytes, and the runtime's log of its creation. Nothing is optimized: the file is run as it is.
export async function created(ort, bytes, provider) {
  Object.assign(heard, { said: [], keeps: true });
  try {
    const session = await ort.InferenceSession.create(bytes, {
      executionProviders: [provider],
      graphOptimizationLevel: "disabled",
      logSeverityLevel: 0,
      logVerbosityLevel: 0,
    });
    if (provider.name === "webgpu") await watchDevice(ort);
    return { session, said: heard.said };
  } finally {
    Object.assign(heard, { said: [], keeps: false });
  }
}

// Open sessions by key; the oldest is released if there are too many.
export class Sessions {
  open = new Map();

  async with(key, create) {
    if (!this.open.has(key)) {
      while (this.open.size >= MOST) {
        const [oldest, { session }] = this.open.entries().next().value;
        this.open.delete(oldest);
        await session.release();
      }
      this.open.set(key, await create());
    }
    return this.open.get(key);
  }
}
