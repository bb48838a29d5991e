// Facts about a browser's WebGPU adapter and its WebNN contexts. `reason` says why there is none.

const LIMITS = ["maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage"];

export const saidOf = (error) => `${error?.name ?? "Error"}: ${error?.message ?? error}`;

// Identity of an adapter: as it reports it, or as the device that a runtime made of it does.
export function namesOf(info, fallback = false) {
  const { vendor = "", architecture = "", device = "", description = "" } = info ?? {};
  return { vendor, architecture, device, description, fallback: Boolean(info?.isFallbackAdapter ?? fallback) };
}

function told(adapter) {
  return {
    ...namesOf(adapter.info, adapter.isFallbackAdapter),
    features: [...adapter.features].sort(),
    limits: Object.fromEntries(LIMITS.map((name) => [name, adapter.limits?.[name] ?? null])),
  };
}

// The adapter that the runtime will get too: if there are several, it asks for the fast one.
export async function adapterHere() {
  if (!navigator.gpu) return { reason: "this browser has no WebGPU" };
  try {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    return adapter ? { reason: "", facts: told(adapter) } : { reason: "this browser has WebGPU and offers no adapter" };
  } catch (error) {
    return { reason: `this browser has WebGPU and fails to offer an adapter: ${saidOf(error)}` };
  }
}

export async function contextHere(kind) {
  if (!navigator.ml) return { reason: "this browser has no WebNN" };
  try {
    const context = await navigator.ml.createContext({ deviceType: kind });
    const limits = context.opSupportLimits?.() ?? {};
    const facts = {
      kind,
      accelerated: context.accelerated ?? null,
      operators: Object.keys(limits).filter((name) => typeof limits[name] === "object").sort(),
      preferredInputLayout: limits.preferredInputLayout ?? null,
    };
    context.destroy?.();
    return { reason: "", facts };
  } catch (error) {
    return { reason: `WebNN gives no context of kind ${kind}: ${saidOf(error)}` };
  }
}
