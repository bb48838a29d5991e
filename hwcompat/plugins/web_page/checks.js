// Runs the sealed steps of each check, in the order of the plan, and writes evidence in the format of
// hardware/evidence/record.py. A check that can't run is `not_run`; only computed results pass.

const moment = () => new Date().toISOString().replace("Z", "000+00:00");
const number = (value) => (Number.isFinite(value) ? value : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf");

function runName(begun) {
  const stamp = begun.slice(0, 19).replace(/[-:]/g, "") + "Z";
  const bytes = crypto.getRandomValues(new Uint8Array(3));
  return `${stamp}-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// Runs one step and stores its number in `measured`. Raises if the suite's assertion fails.
async function runStep(step, model, measured) {
  const { seal } = model;
  if (step.what === "known") return compared(step, { ...step }, seal, measured); // no device can change it
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
  const found = step.what === "recorded" ? recordedError(got, step) : compare(got, wantedOf(model, step.want));
  compared(step, found, seal, measured);
}

// Stores the error of a step in `measured`. Raises if the suite's assertion fails.
function compared(step, found, seal, measured) {
  measured.tolerance = seal.tolerance.limit;
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
    throw new CheckFailed("numerical_mismatch", `moves by ${scale} only; expected more than ${wanted}`, "compare");
  }
}

function wantedOf(model, place) {
  const wanted = model.seal.wanted[place];
  const bytes = model.files.bytes.expected;
  const { required, scales, parts } = wanted;
  return { outputs: arraysAt(bytes, wanted.outputs), masks: arraysAt(bytes, wanted.masks), required, scales, parts };
}

// Creates a session of each file, one after the other; the oldest ones are released if there are too many.
async function builds(model) {
  for (const [number, { outputs }] of model.seal.files.entries()) {
    const { session } = await model.session(number);
    const missing = Object.keys(outputs).filter((name) => !session.outputNames.includes(name));
    if (missing.length) throw new CheckFailed("unknown", `file ${number} has no ${missing.join(", ")}`, "build");
  }
}

async function runCheck(check, model, measured) {
  if (check === "builds") return builds(model);
  for (const step of model.seal.steps[check]) await runStep(step, model, measured);
  const { host_allowed } = model.seal.target;
  const beyond = Object.keys(measured.offloaded_ops).filter((name) => !host_allowed.includes(name));
  if (beyond.length) {
    const where = `the results are right, but not computed on ${model.seal.check.requested_target} alone`;
    throw new CheckFailed("silent_offload", `${where}: ${beyond.sort().join(", ")} ran on the host`, "run");
  }
}

// Returns why a page can't run a check, or null if it can.
function unasked(check, seal) {
  const steps = check === "builds" || seal.steps[check];
  const reason = seal.not_captured[check] ?? (steps ? "" : "the page has no steps for it");
  return reason ? { errorType: "not_measured", message: `a page can't run this check: ${reason}` } : null;
}

// The fields of a line for the end of its check.
function ending({ errorType, message, stage = null, outcome }) {
  return { outcome, error_type: errorType, error_message: message, stage };
}

// Runs one check and returns its line. `why` says why it can't run: then it is not_run.
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
    await runCheck(check, model, measured);
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

// The run line: the sealed part, and this device. The machine's name distinguishes devices without identifying a user.
async function runLine(seal, pageId, files, begun, { browser, device }) {
  const identity = new TextEncoder().encode(`${browser.agent} ${browser.model} ${device.name ?? ""}`);
  return {
    ...seal.run,
    run_id: runName(begun),
    started_at: begun,
    machine: `browser-${(await sha256(identity)).slice(0, 8)}`,
    versions: { ...seal.run.versions, "browser of the page": `${browser.name} ${browser.version}` },
    inventory: inventoryOf(browser, device),
    page: { id: pageId, hashes: files.hashes },
  };
}

// The fields that all check lines share.
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

// Runs all checks and returns the lines of the run. `progress` is called for each check. The fields on the device are
// added at the end, because the runtime reports the device after it has computed.
async function runAll(sealText, progress) {
  Object.assign(gpu, { info: null, lost: "" });
  const begun = moment();
  const seal = JSON.parse(sealText);
  const pageId = await sha256(new TextEncoder().encode(sealText));
  const [browser, found] = [await browserFacts(), await deviceFacts(seal.target)];
  const files = found.reason ? { bytes: {}, hashes: {}, changed: [] } : await opened(seal);
  const model = new Model(seal, files);
  const finished = [];
  let why = found.reason ? { errorType: "device_absent", message: found.reason } : null;
  const changed = `files of the page were changed: ${files.changed.join(", ")}`;
  if (files.changed.length) why = { errorType: "suite_edited", message: changed };
  for (const check of seal.run.plan[0].checks) {
    progress.begins(check);
    const line = await checked(check, model, why);
    if (check === "builds" && files.changed.length) {
      const { requested_target: actual_target, precision: actual_dtype } = seal.check;
      Object.assign(line, { actual_target, actual_dtype }, ending({ ...why, stage: "build", outcome: "failed" }));
    }
    if (line.outcome === "timeout") {
      why = { errorType: "not_reached", message: `${check} didn't end, so no later check can run` };
    }
    finished.push(line);
    progress.ended(line);
  }
  const device = deviceRan(found, seal.target);
  const run = await runLine(seal, pageId, files, begun, { browser, device });
  const common = commonOf(seal, run, { browser, device });
  const lines = finished.map((line) => ({ ...common, ...line }));
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
