// What a reader sees and does: starts the checks, says what came of them, hands the evidence over.

const SIGNED = { passed: "passed", failed: "failed", timeout: "timeout", out_of_memory: "out of memory", not_run: "not run" };

function element(id) {
  return document.getElementById(id);
}

function tag(node, outcome) {
  node.className = `tag ${outcome}`;
  node.textContent = SIGNED[outcome] ?? outcome;
}

// One sentence for all checks; `kind` is a word of the style. Only a device of its own is said to work.
function verdictOf(lines, device) {
  const count = (wanted) => lines.filter((line) => wanted(line.outcome)).length;
  const [passed, notRun] = [count((one) => one === "passed"), count((one) => one === "not_run")];
  const failed = lines.length - passed - notRun;
  if (device.reason) return { kind: "unknown", text: `Nothing was shown: ${device.reason}.` };
  if (failed) return { kind: "none", text: `It doesn't work here: ${failed} of ${lines.length} checks failed on ${device.name}.` };
  if (notRun) return { kind: "unknown", text: `Not proven: ${notRun} of ${lines.length} checks were not run.` };
  if (device.software) return { kind: "medium", text: `All ${passed} checks passed on ${device.name}. That is the processor playing a GPU: it says nothing of a GPU.` };
  if (device.said.requested) return { kind: "medium", text: `All ${passed} checks passed where it was requested: ${device.said.requested}.` };
  return { kind: "high", text: `It works here: all ${passed} checks passed on ${device.name}.` };
}

function showLine(line) {
  tag(element(`outcome-${line.check_name}`), line.outcome);
  const measured = line.error_message || line.max_rel_error === undefined ? "" : `error ${typeof line.max_rel_error === "number" ? line.max_rel_error.toExponential(1) : line.max_rel_error}, tolerance ${line.tolerance.toExponential(0)}`;
  const host = Object.keys(line.offloaded_ops ?? {}).length && line.check_name === "runs_natively" ? `on the host: ${Object.entries(line.offloaded_ops).map(([name, times]) => `${name} × ${times}`).join(", ")}` : "";
  element(`said-${line.check_name}`).textContent = [line.error_message, measured, host].filter(Boolean).join("; ");
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
  const fallback = adapter.fallback === undefined ? "" : adapter.fallback ? "yes" : "no";
  facts([
    ["Browser", `${browser.name} ${browser.version}`],
    ["System", [browser.platform, browser.model].filter(Boolean).join(", ")],
    ["Adapter's vendor", adapter.vendor],
    ["Architecture", adapter.architecture],
    ["Device", adapter.device],
    ["Description", adapter.description],
    ["Calls itself a fallback", fallback],
    ["Stands for a GPU", device.said?.stands_in ? `no: it is ${device.said.stands_in}` : ""],
    ["Context", adapter.kind],
    ["Says that it is accelerated", adapter.accelerated === null || adapter.accelerated === undefined ? "" : String(adapter.accelerated)],
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
  element("here-tag").textContent = { high: "works", medium: "under a condition", none: "doesn't work", unknown: "not shown" }[verdict.kind];
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
  heard.quiet = true;
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
  heard.quiet = false;
  bar.hidden = true;
  button.removeAttribute("aria-disabled");
  button.textContent = "Run the checks again";
}

function prepare() {
  element("needs-script").remove();
  const button = element("run");
  button.hidden = false;
  button.addEventListener("click", () => button.getAttribute("aria-disabled") || start());
  Promise.all([browserTold(), deviceTold(JSON.parse(element("seal").textContent).target)]).then(([browser, device]) => {
    showDevice(device, browser);
    element("device-missing").hidden = !device.reason;
    element("device-missing-why").textContent = device.reason ?? "";
    element("device-software").hidden = !device.software;
  });
}

prepare();
