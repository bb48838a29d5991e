// The matrix: opens cells, moves between them with arrow keys, filters rows and columns, and keeps its state in the
// fragment of the address. Texts are set as text only.
(() => {
  "use strict";
  const source = document.getElementById("matrix-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const tables = [...document.querySelectorAll("table.matrix")];
  // On a small screen the legend would fill the screen.
  if (matchMedia("(max-width: 700px)").matches) document.querySelector("details.legend").open = false;
  const dialog = document.getElementById("cell");
  const form = document.getElementById("matrix-filters");
  const FILTER_OF = { families: "family", architectures: "architecture" };
  let opened = "";
  const LEVELS = ["high", "medium", "low", "unsupported", "unknown", "model"];
  const BASES = ["measured", "imported", "expired", "predicted", "assumed"];

  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const place = (td) => {
    const row = td.parentElement;
    return { table: row.closest("table").id, row: row.sectionRowIndex, column: td.cellIndex - 1 };
  };

  const cellName = ({ table, row, column }) => {
    const id = data[table][row].id;
    if (table === "families") return `${id.replaceAll("_", " ")} on ${data.targets[column]}`;
    if (table !== "models") return `${id} on ${data.targets[column]}`;
    const [model, task, precision] = id.split("/");
    return [model, task, data.targets[column], precision].join("/");
  };

  // The name of a cell in a link: its own id for a model, else table, row and column.
  const cellKey = (at) =>
    at.table === "models"
      ? cellName(at)
      : [at.table, encodeURIComponent(data[at.table][at.row].id), data.targets[at.column]].join("/");

  const decoded = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };

  const cellNamed = (key) => {
    const parts = key.split("/");
    let [table, id, target] = parts;
    if (parts.length === 4) [table, id, target] = ["models", [parts[0], parts[1], parts[3]].join("/"), parts[2]];
    else id = decoded(id ?? "");
    const body = document.getElementById(table)?.tBodies?.[0];
    const row = Object.hasOwn(data, table) && body ? data[table].findIndex((one) => one.id === id) : -1;
    const column = data.targets.indexOf(target);
    return row < 0 || column < 0 ? null : body.rows[row].cells[column + 1];
  };

  const listed = (label, texts) => {
    const term = document.createDocumentFragment();
    term.append(element("dt", label));
    for (const number of texts) {
      const text = data.texts[number];
      const item = element("dd");
      const rule = label === "Rules" && document.getElementById(`rule-${text}`);
      if (rule) {
        item.append(leaving(text, `rule-${text}`), ": ", ...rule.querySelector(".reason").cloneNode(true).childNodes, element("br"), "Source: ", ...rule.querySelector(".source").cloneNode(true).childNodes);
      } else {
        item.textContent = text;
      }
      term.append(item);
    }
    return term;
  };

  // A link to another place of this page: the dialog ends first, and then doesn't change the address.
  const leaving = (text, id) => {
    const link = element("a", text);
    link.href = `#${id}`;
    link.addEventListener("click", () => {
      opened = "";
      remember();
      dialog.close();
    });
    return link;
  };

  const open = (td) => {
    const at = place(td);
    document.getElementById("cell-title").textContent = cellName(at);
    const [level, basis] = [LEVELS, BASES].map((words) => words.find((word) => td.classList.contains(word)));
    const counts = td.querySelector("small")?.textContent ?? "";
    const tag = element("span", level ?? counts);
    tag.className = `tag level ${level ?? ""} ${basis ?? ""}`;
    document.getElementById("cell-level").replaceChildren(tag, ` ${basis ?? "no basis"}`);
    const sections = data.details[data[at.table][at.row].cells[at.column]];
    const detail = document.getElementById("cell-detail");
    detail.replaceChildren(...sections.map(([label, texts]) => listed(label, texts)));
    if (!sections.length) detail.append(element("dd", "There are no details."));
    const row = data[at.table][at.row];
    if (at.table === "models") {
      const [model, task, precision] = row.id.split("/");
      const command = `${data.command} ${model} --task ${task} --device ${data.targets[at.column]} --precision ${precision}`;
      const facts = [["Model", [row.family.replaceAll("_", " "), row.architecture]], ["Run it", [command]]];
      for (const [label, texts] of facts)
        detail.append(element("dt", label), ...texts.filter(Boolean).map((text) => element("dd", text)));
      detail.lastElementChild.replaceChildren(element("code", command));
      if (globalThis.isReported?.(cellName(at))) {
        const item = element("dd");
        item.append(leaving("Its checks", cellName(at)));
        detail.append(element("dt", "In this report"), item);
      }
    }
    const showModels = document.getElementById("cell-show");
    showModels.hidden = !(FILTER_OF[at.table] && form);
    showModels.firstElementChild.onclick = () => {
      dialog.close();
      setFilters({ [FILTER_OF[at.table]]: row.id, target: data.targets[at.column] });
      form.scrollIntoView();
    };
    opened = cellKey(at);
    document.getElementById("cell-link").href = `#${linked(opened)}`;
    remember();
    if (!dialog.open) dialog.showModal();
  };

  // One stop for the Tab key in each table; arrow keys continue from there.
  const shown = (td) => !td.hidden && !td.parentElement.hidden;
  const stop = (table, td) => {
    for (const old of table.querySelectorAll('button[tabindex="0"]')) old.tabIndex = -1;
    if (td) td.firstElementChild.tabIndex = 0;
  };
  const firstShown = (table) => [...table.querySelectorAll("tbody td")].find(shown);

  const step = (td, rows, columns) => {
    const body = td.closest("tbody");
    let row = td.parentElement.sectionRowIndex + rows;
    let column = td.cellIndex + columns;
    for (;;) {
      const next = body.rows[row]?.cells[column];
      if (!next || next.tagName !== "TD") return null;
      if (shown(next)) return next;
      row += rows;
      column += columns;
    }
  };

  const edge = (td, last) => {
    const cells = [...td.parentElement.querySelectorAll("td")].filter(shown);
    return last ? cells.at(-1) : cells[0];
  };

  const KEYS = {
    ArrowUp: (td) => step(td, -1, 0),
    ArrowDown: (td) => step(td, 1, 0),
    ArrowLeft: (td) => step(td, 0, -1),
    ArrowRight: (td) => step(td, 0, 1),
    Home: (td) => edge(td, false),
    End: (td) => edge(td, true),
  };

  for (const table of tables) {
    table.setAttribute("role", "grid");
    for (const button of table.querySelectorAll("tbody button")) button.tabIndex = -1;
    stop(table, firstShown(table));
    table.addEventListener("click", (event) => {
      const td = event.target.closest("td");
      if (!td) return;
      stop(table, td);
      open(td);
    });
    table.addEventListener("keydown", (event) => {
      const td = event.target.closest("td");
      const next = td && KEYS[event.key]?.(td);
      if (!next) return;
      event.preventDefault();
      stop(table, next);
      next.firstElementChild.focus();
    });
  }

  dialog.addEventListener("close", () => {
    if (!opened) return;
    opened = "";
    remember();
  });
  document.getElementById("cell-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  // A cell that fails alone: on the CPU and on all other targets that are known the model works.
  const has = (td, ...levels) => levels.some((level) => td.classList.contains(level));
  document.getElementById("models")?.classList.add("cards");
  for (const { cells } of document.getElementById("models")?.tBodies[0].rows ?? []) {
    data.targets.forEach((target, column) => (cells[column + 1].dataset.target = target));
    const failing = [...cells].filter((td) => has(td, "low", "unsupported", "model"));
    const cpu = cells[data.targets.indexOf("cpu") + 1];
    if (failing.length === 1 && has(cpu, "high", "medium")) failing[0].classList.add("here");
  }

  const FILTERS = ["q", "target", "against", "level", "fails", "basis", "family", "architecture"];
  const setFilters = (values) => {
    for (const name of FILTERS) form.elements[name].value = values[name] ?? "";
    remember();
    apply();
  };

  let written = "";
  const linked = (key) => (key.split("/").length === 4 ? key : `?${new URLSearchParams({ cell: key })}`);
  const remember = () => {
    const chosen = FILTERS.map((name) => [name, form?.elements[name].value]).filter(([, value]) => value);
    const alone = opened && !chosen.length;
    written = alone ? `#${linked(opened)}` : `#?${new URLSearchParams(opened ? [...chosen, ["cell", opened]] : chosen)}`;
    if (location.hash !== written) location.replace(written);
  };

  const apply = () => {
    const [q, target, against, level, fails, basis, family, architecture] = FILTERS.map((name) => form.elements[name].value);
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const table = document.getElementById("models");
    const only = [target, against].filter(Boolean).map((name) => data.targets.indexOf(name) + 1);
    const inColumn = (cell) => !only.length || cell.cellIndex === 0 || only.includes(cell.cellIndex);
    let kept = 0;
    for (const cell of table.tHead.rows[0].cells) cell.hidden = !inColumn(cell);
    for (const row of table.tBodies[0].rows) {
      const { id, family: own, architecture: shape } = data.models[row.sectionRowIndex];
      const text = `${id} ${own} ${shape}`.toLowerCase();
      const wanted = [level, fails, basis].filter(Boolean);
      let fits = !wanted.length;
      const pair = only.map((column) => LEVELS.find((name) => has(row.cells[column], name)));
      const differ = pair.length === 2 && pair[0] !== pair[1] && !pair.includes("unknown");
      for (const cell of row.cells) {
        cell.hidden = !inColumn(cell);
        cell.classList.toggle("differs", differ && only.includes(cell.cellIndex));
        if (cell.cellIndex === 0 || cell.hidden) continue;
        const met = wanted.every((name) => has(cell, name));
        cell.classList.toggle("faint", !met);
        fits ||= met;
      }
      row.hidden = !(fits && words.every((word) => text.includes(word)) && (!family || own === family) && (!architecture || shape === architecture));
      kept += !row.hidden;
    }
    stop(table, firstShown(table));
    form.querySelector("output").textContent = `${kept} of ${data.models.length} rows`;
  };

  const openNamed = (key) => {
    const td = cellNamed(key);
    if (!td) return;
    td.scrollIntoView({ block: "center" });
    open(td);
  };

  const follow = () => {
    if (location.hash === written) return;
    const hash = location.hash.slice(1);
    if (hash.startsWith("?")) {
      const { cell, ...filters } = Object.fromEntries(new URLSearchParams(hash.slice(1)));
      if (form) setFilters(filters);
      if (cell) openNamed(cell);
      else form?.scrollIntoView();
    } else if (hash.split("/").length === 4 && !globalThis.isReported?.(hash)) {
      openNamed(hash);
    }
  };

  if (form) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      remember();
      apply();
    });
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      setFilters({});
    });
    apply();
  }
  addEventListener("hashchange", follow);
  follow();
})();
