// Asks the sealed steps of each check, in the order of the plan, and writes evidence as hardware/evidence/record.py
// has it. A check that couldn't be asked is `not_run`; nothing passes that wasn't computed here.

const moment = () => new Date().toISOString().replace("Z", "000+00:00");
const number = (value) => (Number.isFinite(value) ? value : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf");

function runName(begun) {
  const stamp = begun.slice(0, 19).replace(/[-:]/g, "") + "Z";
  const bytes = crypto.getRandomValues(new Uint8Array(3));
  return `${stamp}-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// One step: the number that was measured. Raises where it isn't what the suite asserts.
async function asked(step, model, measured) {
  const { seal } = model;
  const { got, took, proof } = await model.run(step.pass);
  const { batch, sequence_length } = seal.passes[step.pass];
  Object.assign(measured, { latency_ms: took, batch, sequence_length });
  if (proof.incomplete) throw new CheckFailed("unknown", proof.incomplete, "run");
  Object.assign(measured.offloaded_ops, proof.host);
  if (step.what === "execution") {
    measured.native_ops = proof.native;
    measured.unseen = seal.target.unseen;
    const beyond = Object.keys(proof.host).filter((name) => !seal.target.host_allowed.includes(name));
    if (beyond.length) throw new CheckFailed("silent_offload", `ran on the host: ${beyond.sort().join(", ")}`, "run");
    if (!Object.keys(proof.native).length) throw new CheckFailed("silent_offload", "nothing ran on the target", "run");
    return;
  }
  measured.tolerance = seal.tolerance.limit;
  const found = step.what === "recorded" ? recordedError(got, step) : compare(got, wantedOf(model, step.want));
  const { rel } = found;
  measured.steps.push(number(rel));
  const before = measured.comparison;
  if (step.what !== "difference" && (!before || !(rel <= before.rel))) measured.comparison = found;
  const absolute = found.abs.toExponential(2);
  const scale = `${rel.toExponential(2)} of the output's scale (absolute ${absolute}, in ${found.worst})`;
  if ("at_most" in step && !(rel <= step.at_most)) {
    const kind = /not finite/.test(found.worst) ? "non_finite" : "numerical_mismatch";
    throw new CheckFailed(kind, `off by ${scale}; the tolerance is ${step.at_most.toExponential(0)}`, "compare");
  }
  if ("more_than" in step && !(rel > step.more_than)) {
    const wanted = step.more_than.toExponential(0);
    throw new CheckFailed("numerical_mismatch", `moves by ${scale} only; more than ${wanted} is wanted`, "compare");
  }
}

function wantedOf(model, place) {
  const wanted = model.seal.wanted[place];
  const bytes = model.files.bytes.expected;
  return { outputs: arraysAt(bytes, wanted.outputs), masks: arraysAt(bytes, wanted.masks), required: wanted.required };
}

// A session of each file, one after the other: those that are too many are released on the way.
async function builds(model) {
  for (const [number, { outputs }] of model.seal.files.entries()) {
    const { session } = await model.session(number);
    const missing = Object.keys(outputs).filter((name) => !session.outputNames.includes(name));
    if (missing.length) throw new CheckFailed("unknown", `file ${number} has no ${missing.join(", ")}`, "build");
  }
}

async function asks(check, model, measured) {
  if (check === "builds") return builds(model);
  for (const step of model.seal.steps[check]) await asked(step, model, measured);
  const { host_allowed } = model.seal.target;
  const beyond = Object.keys(measured.offloaded_ops).filter((name) => !host_allowed.includes(name));
  if (beyond.length) {
    const where = `right, and not computed on ${model.seal.check.requested_target} alone`;
    throw new CheckFailed("silent_offload", `${where}: ${beyond.sort().join(", ")} ran on the host`, "run");
  }
}

// Why a page can't ask a check at all; null where it can.
function unasked(check, seal) {
  const steps = check === "builds" || seal.steps[check];
  const reason = seal.not_captured[check] ?? (steps ? "" : "the page has no steps for it");
  return reason ? { errorType: "not_measured", message: `a page can't ask this check: ${reason}` } : null;
}

// What a line says of how its check ended.
function ending({ errorType, message, stage = null, outcome }) {
  return { outcome, error_type: errorType, error_message: message, stage };
}

// The line of one check. `why` says why it can't be asked: then it is not_run.
async function checked(check, model, why) {
  const measured = { offloaded_ops: {}, native_ops: {}, steps: [], comparison: null };
  const started = performance.now();
  const line = { check_name: check, started_at: moment(), outcome: "passed", error_type: "", error_message: "" };
  const reason = why ?? unasked(check, model.seal);
  if (reason) {
    const nowhere = { actual_target: null, actual_dtype: null, duration_s: 0 };
    return { ...line, ...nowhere, ...ending({ ...reason, outcome: "not_run" }) };
  }
  try {
    await asks(check, model, measured);
  } catch (error) {
    const { message } = error;
    const unfounded = { errorType: "reference_not_finite", message, stage: "compare", outcome: "failed" };
    Object.assign(line, ending(error instanceof ReferenceNotFinite ? unfounded : model.failure(error, "compare")));
  }
  const { comparison, ...rest } = measured;
  return {
    ...line,
    ...rest,
    ...(comparison ? { max_rel_error: number(comparison.rel), max_abs_error: number(comparison.abs) } : {}),
    duration_s: Math.round((performance.now() - started) * 1000) / 1e6,
  };
}

// The run line: what was sealed, and this device. The machine's name tells it from others and tells nobody whose it is.
async function runLine(seal, pageId, files, begun, { browser, device }) {
  const told = new TextEncoder().encode(`${browser.agent} ${browser.model} ${device.name ?? ""}`);
  return {
    ...seal.run,
    run_id: runName(begun),
    started_at: begun,
    machine: `browser-${(await sha256(told)).slice(0, 8)}`,
    versions: { ...seal.run.versions, "browser of the page": `${browser.name} ${browser.version}` },
    inventory: inventoryOf(browser, device),
    page: { id: pageId, hashes: files.hashes },
  };
}

// What all check lines have in common.
function commonOf(seal, run, { browser, device }) {
  const runtime = `onnxruntime-web ${seal.runtime.version}, ${browser.name} ${browser.version}`;
  return {
    ...seal.check,
    kind: "check",
    schema_version: 1,
    run_id: run.run_id,
    actual_target: seal.check.requested_target,
    substitution_reason: "",
    accelerator: device.reason ? null : `${device.name} through ${runtime}`,
    actual_dtype: seal.check.precision,
    conditions: { ...seal.conditions, ...device.said, page: run.page.id, runtime },
    stage: null,
    origin: "hwcompat",
  };
}

// All lines of a run in this browser. `tell` is given each check's outcome when it is there; what all lines say of the
// device is known when it has computed.
async function runAll(sealText, tell) {
  Object.assign(gpu, { info: null, lost: "" });
  const begun = moment();
  const seal = JSON.parse(sealText);
  const pageId = await sha256(new TextEncoder().encode(sealText));
  const [browser, told] = [await browserTold(), await deviceTold(seal.target)];
  const files = told.reason ? { bytes: {}, hashes: {}, changed: [] } : await opened(seal);
  const model = new Model(seal, files);
  const changed = `not what the page records: ${files.changed.join(", ")}`;
  const asked = [];
  let why = told.reason ? { errorType: "device_absent", message: told.reason } : null;
  if (files.changed.length) why = { errorType: "suite_edited", message: `the page's files are ${changed}` };
  for (const check of seal.run.plan[0].checks) {
    tell.begins(check);
    const line = await checked(check, model, why);
    if (check === "builds" && files.changed.length) {
      const { requested_target: actual_target, precision: actual_dtype } = seal.check;
      Object.assign(line, { actual_target, actual_dtype }, ending({ ...why, stage: "build", outcome: "failed" }));
    }
    if (line.outcome === "timeout") {
      why = { errorType: "not_reached", message: `${check} didn't end, and nothing can be asked behind it` };
    }
    asked.push(line);
    tell.ended(line);
  }
  const device = deviceRan(told, seal.target);
  const run = await runLine(seal, pageId, files, begun, { browser, device });
  const common = commonOf(seal, run, { browser, device });
  const lines = asked.map((line) => ({ ...common, ...line }));
  const counts = {};
  for (const { outcome } of lines) counts[outcome] = (counts[outcome] ?? 0) + 1;
  const end = { kind: "end", schema_version: 1, run_id: run.run_id, ended_at: moment(), reason: "finished", counts };
  return { seal, run, lines, end, browser, device };
}

function inventoryOf(browser, device) {
  const adapter = device.facts ?? {};
  const model = [adapter.vendor, adapter.architecture].filter(Boolean).join(" ") || device.name;
  const kind = device.software ? "software" : (adapter.kind ?? "gpu");
  return {
    host: { system: browser.platform, release: "", machine: browser.architecture },
    accelerators: device.reason ? [] : [{ vendor: adapter.vendor ?? "", model, device_type: kind }],
    browser,
    adapter: device.reason ? { reason: device.reason } : adapter,
  };
}
