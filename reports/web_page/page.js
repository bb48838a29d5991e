// What a reader sees and does: starts the checks, says what came of them, hands the evidence over.

const SAID = { out_of_memory: "out of memory", not_run: "not run" };
const IN_SHORT = {
  high: "works",
  medium: "under a condition",
  low: "in part",
  none: "doesn't work",
  unknown: "not shown",
};

function element(id) {
  return document.getElementById(id);
}

function tag(node, outcome) {
  node.className = `tag ${outcome}`;
  node.textContent = SAID[outcome] ?? outcome;
}

// One sentence for all checks; `kind` is a word of the style. Only a device of its own is said to work.
function verdictOf(lines, device) {
  const all = lines.length;
  const [passed, notRun] = ["passed", "not_run"].map((one) => lines.filter(({ outcome }) => outcome === one).length);
  const failed = all - passed - notRun;
  const said = (kind, text) => ({ kind, text });
  if (device.reason) return said("unknown", `Nothing was shown: ${device.reason}.`);
  const host = lines.filter((line) => line.error_type === "silent_offload");
  if (failed && failed === host.length && !notRun) {
    const names = new Set(host.flatMap((line) => Object.keys(line.offloaded_ops)));
    const beyond = [...names].filter((name) => !device.allowed.includes(name)).join(", ");
    return said("low", `The numbers are right here, and not of ${device.name} alone: ${beyond} ran on the processor.`);
  }
  if (failed) return said("none", `It doesn't work here: ${failed} of ${all} checks failed on ${device.name}.`);
  if (notRun) return said("unknown", `Not proven: ${notRun} of ${all} checks were not run.`);
  if (device.software) {
    const what = "That is the processor playing a GPU: it says nothing of a GPU.";
    return said("medium", `All ${all} checks passed on ${device.name}. ${what}`);
  }
  const { requested } = device.said;
  if (requested) return said("medium", `All ${all} checks passed where it was requested: ${requested}.`);
  return said("high", `It works here: all ${all} checks passed on ${device.name}.`);
}

function showLine({ check_name, outcome, error_message, max_rel_error, tolerance, offloaded_ops = {} }) {
  tag(element(`outcome-${check_name}`), outcome);
  const said = [error_message];
  if (!error_message && max_rel_error !== undefined) {
    said.push(`error ${max_rel_error.toExponential(1)}, tolerance ${tolerance.toExponential(0)}`);
  }
  const host = Object.entries(offloaded_ops).map(([name, times]) => `${name} × ${times}`);
  if (check_name === "runs_natively" && host.length) said.push(`on the host: ${host.join(", ")}`);
  element(`said-${check_name}`).textContent = said.filter(Boolean).join("; ");
}

function facts(rows) {
  const list = element("facts");
  list.replaceChildren();
  for (const [name, text] of rows.filter(([, said]) => said)) {
    const [term, told] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, told.textContent] = [name, text];
    list.append(term, told);
  }
}

function showDevice(device, browser) {
  const adapter = device.facts ?? {};
  const yesNo = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : "");
  facts([
    ["Browser", `${browser.name} ${browser.version}`],
    ["System", [browser.platform, browser.model].filter(Boolean).join(", ")],
    ["Adapter's vendor", adapter.vendor],
    ["Architecture", adapter.architecture],
    ["Device", adapter.device],
    ["Description", adapter.description],
    ["Calls itself a fallback", yesNo(adapter.fallback)],
    ["Stands for a GPU", device.said?.stands_in ? `no: it is ${device.said.stands_in}` : ""],
    ["Context", adapter.kind],
    ["Says that it is accelerated", yesNo(adapter.accelerated)],
    ["As requested", device.said?.requested],
    ["Nothing runs because", device.reason],
  ]);
}

function offer(found) {
  const text = [found.run, ...found.lines, found.end].map((line) => `${JSON.stringify(line)}\n`).join("");
  const link = element("save");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
  link.download = `${found.run.run_id}-1.jsonl`;
  element("file-name").textContent = link.download;
  element("text").value = text;
  element("saving").hidden = false;
}

function show(found) {
  const verdict = verdictOf(found.lines, found.device);
  element("verdict").className = `verdict tag ${verdict.kind}`;
  element("verdict").textContent = verdict.text;
  const here = element("here");
  here.hidden = false;
  tag(element("here-tag"), verdict.kind);
  element("here-tag").textContent = IN_SHORT[verdict.kind];
  element("here-said").textContent = verdict.text;
  showDevice(found.device, found.browser);
  offer(found);
}

async function start() {
  const sealText = element("seal").textContent;
  const seal = JSON.parse(sealText);
  const [button, checks] = [element("run"), seal.run.plan[0].checks];
  button.setAttribute("aria-disabled", "true");
  for (const check of checks) {
    tag(element(`outcome-${check}`), "not_run");
    element(`said-${check}`).textContent = "";
  }
  const bar = element("bar");
  Object.assign(bar, { hidden: false, value: 0, max: checks.length });
  heard.shows = () => false; // the runtime prints every shader
  try {
    const found = await runAll(sealText, {
      begins: (check) => (element("verdict").textContent = `Running ${bar.value + 1} of ${checks.length}: ${check} …`),
      ended: (line) => {
        bar.value += 1;
        showLine(line);
      },
    });
    show(found);
  } catch (error) {
    element("verdict").className = "verdict tag none";
    element("verdict").textContent = `The page itself failed, and nothing was shown: ${error.name}: ${error.message}`;
  }
  heard.shows = () => true;
  bar.hidden = true;
  button.removeAttribute("aria-disabled");
  button.textContent = "Run the checks again";
}

function prepare() {
  element("needs-script").remove();
  const button = element("run");
  button.hidden = false;
  button.addEventListener("click", () => button.getAttribute("aria-disabled") || start());
  const { target } = JSON.parse(element("seal").textContent);
  Promise.all([browserTold(), deviceTold(target)]).then(([browser, device]) => {
    showDevice(device, browser);
    element("device-missing").hidden = !device.reason;
    element("device-missing-why").textContent = device.reason ?? "";
    element("device-software").hidden = !device.software;
  });
}

prepare();
