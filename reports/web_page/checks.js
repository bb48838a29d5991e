// Asks the sealed steps of each check, in the order of the plan, and writes evidence as hardware/evidence/record.py
// has it. A check that couldn't be asked is `not_run`; nothing passes that wasn't computed here.

const moment = () => new Date().toISOString().replace("Z", "000+00:00");
const number = (value) => (Number.isFinite(value) ? value : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf");

function runName() {
  const stamp = new Date().toISOString().replace(/[-:]|\.\d+/g, "");
  const bytes = crypto.getRandomValues(new Uint8Array(3));
  return `${stamp}-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// One step: the number that was measured. Raises where it isn't what the suite asserts.
async function asked(step, model, measured) {
  const { seal } = model;
  const { got, took, proof } = await model.run(step.pass);
  const { batch, sequence_length } = seal.passes[step.pass];
  Object.assign(measured, { latency_ms: took, batch, sequence_length });
  if (proof === null) {
    throw new CheckFailed("unknown", "the runtime's log doesn't tell where the nodes ran", "run");
  }
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
  const scale = `${rel.toExponential(2)} of the output's scale (absolute ${found.abs.toExponential(2)}, in ${found.worst})`;
  if ("at_most" in step && !(rel <= step.at_most)) {
    const kind = /not finite/.test(found.worst) ? "non_finite" : "numerical_mismatch";
    throw new CheckFailed(kind, `off by ${scale}; the tolerance is ${step.at_most.toExponential(0)}`, "compare");
  }
  if ("more_than" in step && !(rel > step.more_than)) {
    throw new CheckFailed("numerical_mismatch", `moves by ${scale} only; more than ${step.more_than.toExponential(0)} is wanted`, "compare");
  }
}

function wantedOf(model, place) {
  const wanted = model.seal.wanted[place];
  const bytes = model.files.bytes.expected;
  return { outputs: arraysAt(bytes, wanted.outputs), masks: arraysAt(bytes, wanted.masks), required: wanted.required };
}

async function asks(check, model, measured) {
  if (check === "builds") {
    const { session } = await model.session(model.seal.passes[0].file);
    const missing = Object.keys(model.seal.files[0].outputs).filter((name) => !session.outputNames.includes(name));
    if (missing.length) throw new CheckFailed("unknown", `the session has no ${missing.join(", ")}`, "build");
    return;
  }
  for (const step of model.seal.steps[check]) await asked(step, model, measured);
  const beyond = Object.keys(measured.offloaded_ops).filter((name) => !model.seal.target.host_allowed.includes(name));
  if (beyond.length) {
    const message = `right, and not computed on ${model.seal.check.requested_target} alone: ${beyond.sort().join(", ")} ran on the host`;
    throw new CheckFailed("silent_offload", message, "run");
  }
}

// The line of one check. `why` says why it can't be asked: then it is not_run.
async function checked(check, model, common, why) {
  const measured = { offloaded_ops: {}, native_ops: {}, steps: [], comparison: null };
  const started = performance.now();
  const line = { ...common, check_name: check, started_at: moment(), outcome: "passed", error_type: "", error_message: "" };
  const notCaptured = model.seal.not_captured[check] ?? (check !== "builds" && !model.seal.steps[check] ? "the page has no steps for it" : "");
  if (why || notCaptured) {
    const reason = why ?? { errorType: "not_implemented", message: `a page can't ask this check: ${notCaptured}` };
    return { ...line, outcome: "not_run", error_type: reason.errorType, error_message: reason.message, actual_target: null, actual_dtype: null, duration_s: 0 };
  }
  try {
    await asks(check, model, measured);
  } catch (error) {
    const failure = error instanceof ReferenceNotFinite
      ? { errorType: "reference_not_finite", message: error.message, stage: "compare", outcome: "failed" }
      : model.failure(error, "compare");
    Object.assign(line, { outcome: failure.outcome, error_type: failure.errorType, error_message: failure.message, stage: failure.stage });
  }
  const { comparison, ...rest } = measured;
  return {
    ...line,
    ...rest,
    ...(comparison ? { max_rel_error: number(comparison.rel), max_abs_error: number(comparison.abs) } : {}),
    duration_s: Math.round((performance.now() - started) * 1000) / 1e6,
  };
}

// All lines of a run in this browser. `tell` is given each check's line when it is there.
async function runAll(sealText, tell) {
  const seal = JSON.parse(sealText);
  const pageId = await sha256(new TextEncoder().encode(sealText));
  const [browser, device] = [await browserTold(), await deviceTold(seal.target)];
  const files = device.reason ? { bytes: {}, hashes: {}, changed: [] } : await opened(seal);
  const run_id = runName();
  const conditions = { ...seal.conditions, ...device.said, page: pageId };
  conditions.runtime = `onnxruntime-web ${seal.runtime.version}, ${browser.name} ${browser.version}`;
  const accelerator = device.reason ? null : `${device.name} through ${conditions.runtime}`;
  const machine = `browser-${(await sha256(new TextEncoder().encode(`${browser.agent} ${browser.model} ${device.name}`))).slice(0, 8)}`;
  const run = {
    ...seal.run,
    run_id,
    started_at: moment(),
    machine,
    versions: { ...seal.run.versions, "browser of the page": `${browser.name} ${browser.version}` },
    inventory: inventoryOf(browser, device),
    page: { id: pageId, hashes: files.hashes },
  };
  const common = {
    ...seal.check, kind: "check", schema_version: 1, run_id, actual_target: seal.check.requested_target, substitution_reason: "",
    accelerator, actual_dtype: seal.check.precision, conditions, stage: null, origin: "hwcompat",
  };
  const model = new Model(seal, files);
  const changed = files.changed.length ? `not what was sealed: ${files.changed.join(", ")}` : "";
  const lines = [];
  let why = device.reason ? { errorType: "device_absent", message: device.reason } : null;
  for (const check of seal.run.plan[0].checks) {
    tell.begins(check);
    if (changed && check === "builds") {
      lines.push({ ...common, check_name: check, started_at: moment(), duration_s: 0, outcome: "failed", error_type: "suite_edited", error_message: `the page's files are ${changed}`, stage: "build" });
    } else {
      lines.push(await checked(check, model, common, changed ? { errorType: "suite_edited", message: changed } : why));
    }
    const last = lines.at(-1);
    if (last.outcome === "timeout") why = { errorType: "not_reached", message: `${check} didn't end, and nothing can be asked behind it` };
    tell.ended(last);
  }
  const counts = {};
  for (const line of lines) counts[line.outcome] = (counts[line.outcome] ?? 0) + 1;
  const end = { kind: "end", schema_version: 1, run_id, ended_at: moment(), reason: "finished", counts };
  return { run, lines, end, device, browser };
}

function inventoryOf(browser, device) {
  const adapter = device.facts ?? {};
  const model = [adapter.vendor, adapter.architecture].filter(Boolean).join(" ") || device.name;
  return {
    host: { system: browser.platform, release: "", machine: browser.architecture },
    accelerators: device.reason ? [] : [{ vendor: adapter.vendor ?? "", model, device_type: device.software ? "software" : adapter.kind ?? "gpu" }],
    browser,
    adapter: device.reason ? { reason: device.reason } : adapter,
  };
}
