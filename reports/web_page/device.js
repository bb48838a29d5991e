// What the browser tells of itself and of its adapter or context, in the words that evidence has for them
// (hardware/backends/webgpu.py, webnn.py).

async function browserTold() {
  const agent = navigator.userAgent;
  const named =
    /(Firefox|Edg|OPR|SamsungBrowser|CriOS|FxiOS)\/([\d.]+)/.exec(agent) ??
    /(Chrome)\/([\d.]+)/.exec(agent) ??
    (/Version\/([\d.]+).*Safari/.exec(agent) ? ["", "Safari", /Version\/([\d.]+)/.exec(agent)[1]] : ["", "browser", "?"]);
  const told = { name: named[1], version: named[2], agent, platform: navigator.platform ?? "", model: "", architecture: "" };
  try {
    const more = await navigator.userAgentData?.getHighEntropyValues(["fullVersionList", "model", "architecture", "platformVersion"]);
    const brand = more?.fullVersionList?.filter((one) => !/not.?a.?brand|not.a|Chromium/i.test(one.brand))[0];
    const engine = more?.fullVersionList?.find((one) => one.brand === "Chromium");
    const known = brand ?? engine;
    if (known) Object.assign(told, { name: known.brand, version: known.version });
    if (more) Object.assign(told, { platform: `${more.platform} ${more.platformVersion}`.trim(), model: more.model, architecture: more.architecture });
  } catch {
    // a browser that tells less
  }
  return told;
}

function adapterTold(adapter) {
  const { vendor = "", architecture = "", device = "", description = "" } = adapter.info ?? {};
  const fallback = Boolean(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false);
  return { vendor, architecture, device, description, fallback, features: [...adapter.features].sort() };
}

function isSoftware(adapter, names) {
  const words = [adapter.vendor, adapter.architecture, adapter.device, adapter.description].join(" ").toLowerCase();
  return adapter.fallback || names.some((name) => words.includes(name));
}

// `reason` says why nothing can run here; `name` is the accelerator; `said` what evidence has to say of the device.
async function deviceTold(target) {
  if (!globalThis.isSecureContext || !globalThis.crypto?.subtle) {
    return { reason: "the page was opened from an address that the browser doesn't trust (open the file, or localhost)" };
  }
  if (typeof DecompressionStream === "undefined") return { reason: "this browser can't unpack what is in the page" };
  if (target.api === "webgpu") {
    if (!navigator.gpu) return { reason: "this browser has no WebGPU" };
    const adapter = await navigator.gpu.requestAdapter();
    if (!adapter) return { reason: "this browser has WebGPU and offers no adapter" };
    const facts = adapterTold(adapter);
    const software = isSoftware(facts, target.software);
    const names = [facts.vendor, facts.architecture].filter(Boolean).join(" ") || "an adapter without a name";
    const name = `${names}${software ? " (software)" : ""}`;
    const said = { adapter: name };
    if (software) said.stands_in = `a software adapter (${facts.architecture || facts.description || "fallback"}), not a GPU`;
    return { reason: "", facts, name, said, software };
  }
  if (!navigator.ml) return { reason: "this browser has no WebNN" };
  try {
    const context = await navigator.ml.createContext({ deviceType: target.kind });
    const limits = context.opSupportLimits?.() ?? {};
    const operators = Object.keys(limits).filter((name) => typeof limits[name] === "object").sort();
    const facts = { kind: target.kind, accelerated: context.accelerated ?? null, operators };
    context.destroy?.();
    const wish = target.kind === "cpu" ? {} : { requested: `a context of kind ${target.kind}; the browser doesn't tell what executed` };
    return { reason: "", facts, name: `WebNN's ${target.kind} context${target.kind === "cpu" ? "" : ", as requested"}`, said: wish, software: false };
  } catch (error) {
    return { reason: `WebNN gives no context of kind ${target.kind}: ${error.name}: ${error.message}` };
  }
}
