// The verdict of all checks: one text, and the level that the evidence gives, as far as a page knows
// (generators/compatibility/judge.py; the seal has general limits of the level).

const SHORT = {
  high: "works",
  medium: "works under a condition",
  low: "works in part",
  unsupported: "doesn't work",
  unknown: "not shown",
};

function verdict(level, ...texts) {
  return { level, short: `${level}: ${SHORT[level]}`, text: texts.filter(Boolean).join(" ") };
}

// A notice on the kind of device that passed.
function noticeOf({ software, said, facts }) {
  if (software) return "A software adapter ran the checks: they don't count for a GPU.";
  if (said.requested) return `As requested: ${said.requested}.`;
  if (facts.kind === "cpu") return "WebNN ran on the processor: the checks don't count for a GPU or an NPU.";
  return "";
}

function passed(lines, unasked, device, seal) {
  const all = `${lines.length} checks`;
  const host = [...new Set(lines.flatMap(({ offloaded_ops }) => Object.keys(offloaded_ops ?? {})))];
  const limits = [...(seal.limited_by ?? []), ...(host.length ? [`on the processor: ${host.join(", ")}`] : [])];
  const conditions = limits.length ? `Conditions: ${limits.join("; ")}.` : "";
  const notice = noticeOf(device);
  if (unasked.length) {
    const why = [...new Set(unasked.map((name) => seal.not_captured[name]))].join("; ");
    const beyond = `Skipped: ${unasked.join(", ")} (${why}), so the level stays unknown.`;
    const short = "unknown: passes, with skipped checks";
    const text = `All ${all} that a page can run passed on ${device.name}.`;
    return { ...verdict("unknown", text, beyond, notice, conditions), short };
  }
  const { stands_in, requested } = device.said;
  const own = stands_in || requested ? "All" : "It works here: all";
  const level = conditions || stands_in || requested ? "medium" : "high";
  return verdict(level, `${own} ${all} passed on ${device.name}.`, notice, conditions, `Level: ${level}.`);
}

function verdictOf(lines, device, seal) {
  if (device.reason) return { ...verdict("unknown", `Nothing was tested: ${device.reason}.`), short: "not tested" };
  const unasked = lines.map(({ check_name }) => check_name).filter((name) => name in seal.not_captured);
  const asked = lines.filter(({ check_name }) => !unasked.includes(check_name));
  const notRun = asked.filter(({ outcome }) => outcome === "not_run").length;
  const failed = asked.filter(({ outcome }) => outcome !== "passed").length - notRun;
  const host = asked.filter(({ error_type }) => error_type === "silent_offload");
  if (failed && failed === host.length && !notRun) {
    const names = new Set(host.flatMap((line) => Object.keys(line.offloaded_ops)));
    const beyond = [...names].filter((name) => !seal.target.host_allowed.includes(name)).join(", ");
    return verdict("low", `The results are right, but not computed on ${device.name} alone: ${beyond} ran on the processor.`);
  }
  if (failed) return verdict("unsupported", `It doesn't work here: ${failed} of ${asked.length} checks failed on ${device.name}.`);
  if (notRun) return verdict("unknown", `Not proven: ${notRun} of ${asked.length} checks were not run.`);
  return passed(asked, unasked, device, seal);
}
