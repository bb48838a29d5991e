// The page's user interface: starts the checks, shows their results, offers the evidence.

const OUTCOMES = { out_of_memory: "out of memory", not_run: "not run" };
function element(id) {
  return document.getElementById(id);
}

function tag(node, outcome) {
  node.className = `tag ${outcome}`;
  node.textContent = OUTCOMES[outcome] ?? outcome;
}

function showLine({ check_name, outcome, error_message, max_rel_error, tolerance, offloaded_ops = {} }) {
  tag(element(`outcome-${check_name}`), outcome);
  const texts = [error_message];
  if (!error_message && max_rel_error !== undefined) {
    texts.push(`error ${max_rel_error.toExponential(1)}, tolerance ${tolerance.toExponential(0)}`);
  }
  const host = Object.entries(offloaded_ops).map(([name, times]) => `${name} × ${times}`);
  if (check_name === "runs_natively" && host.length) texts.push(`on the host: ${host.join(", ")}`);
  element(`said-${check_name}`).textContent = texts.filter(Boolean).join("; ");
}

function showFacts(rows) {
  const list = element("facts");
  list.replaceChildren();
  for (const [name, text] of rows.filter(([, text]) => text)) {
    const [term, value] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, value.textContent] = [name, text];
    list.append(term, value);
  }
}

function showDevice(device, browser) {
  const adapter = device.facts ?? {};
  const yesNo = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : "");
  showFacts([
    ["Browser", `${browser.name} ${browser.version}`],
    ["System", [browser.platform, browser.model].filter(Boolean).join(", ")],
    ["Adapter's vendor", adapter.vendor],
    ["Architecture", adapter.architecture],
    ["Device", adapter.device],
    ["Description", adapter.description],
    ["Fallback adapter", yesNo(adapter.fallback)],
    ["Counts as a GPU", device.said?.stands_in ? `no: it is ${device.said.stands_in}` : ""],
    ["Context", adapter.kind],
    ["Reported as accelerated", yesNo(adapter.accelerated)],
    ["As requested", device.said?.requested],
    ["Why no check can run", device.reason],
  ]);
  element("device-missing").hidden = !device.reason;
  element("device-missing-why").textContent = device.reason ?? "";
  element("device-software").hidden = !device.software;
  const button = element("run");
  button.classList.toggle("idle", Boolean(device.reason));
  if (device.reason) button.textContent = "Try again";
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
  const { level, short, text } = verdictOf(found.lines, found.device, found.seal);
  element("verdict").className = `verdict tag ${level}`;
  element("verdict").textContent = text;
  element("here").hidden = false;
  element("here-tag").className = `tag ${level}`;
  element("here-tag").textContent = short;
  element("here-said").textContent = text;
  element("run").textContent = "Run the checks again";
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
    element("verdict").className = "verdict tag unsupported";
    element("verdict").textContent = `The page failed, without a result: ${error.name}: ${error.message}`;
  }
  heard.shows = () => true;
  bar.hidden = true;
  button.removeAttribute("aria-disabled");
}

function prepare() {
  const button = element("run");
  button.hidden = false;
  button.addEventListener("click", () => button.getAttribute("aria-disabled") || start());
  const { target } = JSON.parse(element("seal").textContent);
  Promise.all([browserFacts(), deviceFacts(target)]).then(([browser, device]) => showDevice(device, browser));
  element("needs-script").remove();
}

prepare();
