// Facts about the browser and its adapter or context, in the terms of evidence (hardware/backends/webgpu.py, webnn.py).

const BROWSERS = [
  /(Firefox|Edg|OPR|SamsungBrowser|CriOS|FxiOS)\/([\d.]+)/,
  /(Chrome)\/([\d.]+)/,
  /Version\/([\d.]+).*(Safari)/,
];
const NO_BRAND = /not.?a.?brand|not.a|Chromium/i;

async function browserFacts() {
  const agent = navigator.userAgent;
  const found = BROWSERS.map((pattern) => pattern.exec(agent)).find(Boolean);
  const [name, version] = !found ? ["browser", "?"] : found[2] === "Safari" ? ["Safari", found[1]] : found.slice(1);
  const basic = { name, version, agent, platform: navigator.platform ?? "", model: "", architecture: "" };
  try {
    const asked = ["fullVersionList", "model", "architecture", "platformVersion"];
    const more = await navigator.userAgentData?.getHighEntropyValues(asked);
    if (!more) return basic;
    const brands = more.fullVersionList ?? [];
    const brand = brands.find((one) => !NO_BRAND.test(one.brand)) ?? brands.find((one) => one.brand === "Chromium");
    if (brand) Object.assign(basic, { name: brand.brand, version: brand.version });
    const platform = `${more.platform} ${more.platformVersion}`.trim();
    return { ...basic, platform, model: more.model ?? "", architecture: more.architecture ?? "" };
  } catch {
    return basic; // the browser refuses details
  }
}

// Like hardware/software.py, which a page can't call.
function isSoftware({ vendor, architecture, device, description, fallback }, names) {
  const number = device.toLowerCase().replace(/^0x0+/, "0x");
  const words = `${vendor} ${architecture} ${number} ${description}\n${vendor} ${number}`.toLowerCase();
  const has = (name) => new RegExp(`(^|[^a-z0-9])${name}([^a-z0-9]|$)`).test(words);
  return fallback || names.some(has);
}

function adapterFacts(facts, { software: names }) {
  const { vendor, architecture, device, description } = facts;
  const software = isSoftware(facts, names);
  const known = [vendor, architecture].filter(Boolean).join(" ") || description || device;
  const name = `${known || "an adapter without a name"}${software ? " (software)" : ""}`;
  const said = { adapter: name };
  if (software) said.stands_in = `a software adapter (${architecture || description || "fallback"}), not a GPU`;
  else if (!known) said.requested = "the browser's own choice of adapter, of which it tells no name";
  return { reason: "", facts, name, said, software };
}

async function webgpuFacts(target) {
  const { reason, facts } = await adapterHere();
  return reason ? { reason } : adapterFacts(facts, target);
}

// The device that the runtime computed on: its adapter may be another one than the first that was requested.
function deviceRan(device, target) {
  if (!gpu.info || device.reason) return device;
  const names = namesOf(gpu.info, device.facts.fallback);
  const same = Object.keys(names).every((name) => names[name] === device.facts[name]);
  return same ? device : adapterFacts(names, target);
}

async function webnnFacts({ device_type: kind }) {
  const { reason, facts } = await contextHere(kind);
  if (reason) return { reason };
  const wish = `a context of kind ${kind}; the browser doesn't tell what executed`;
  const name = `WebNN's ${kind} context${kind === "cpu" ? "" : ", as requested"}`;
  return { reason: "", facts, name, said: kind === "cpu" ? {} : { requested: wish }, software: false };
}

// `reason` says why no check can run here; `name` is the accelerator; `said` has the conditions of its evidence.
async function deviceFacts(target) {
  if (!globalThis.isSecureContext || !globalThis.crypto?.subtle) {
    return { reason: "the browser doesn't trust the address of this page (open the file itself, or localhost)" };
  }
  if (typeof DecompressionStream === "undefined") return { reason: "this browser can't decompress the page's data" };
  return target.api === "webgpu" ? webgpuFacts(target) : webnnFacts(target);
}
