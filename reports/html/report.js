// The report: folds what stands below a check, opens the cell that a link names, filters cells.
(() => {
  "use strict";
  for (const more of document.querySelectorAll("tr.more")) {
    const row = more.previousElementSibling;
    const head = row.querySelector("th");
    const toggle = document.createElement("button");
    toggle.className = "toggle";
    toggle.append(...head.childNodes);
    const show = (open) => {
      more.hidden = !open;
      toggle.setAttribute("aria-expanded", String(open));
    };
    toggle.addEventListener("click", () => show(more.hidden));
    show(row.classList.contains("failing"));
    head.append(toggle);
  }

  const cells = [...document.querySelectorAll("details.cell")];
  const follow = () => {
    const cell = document.getElementById(location.hash.slice(1));
    if (!cells.includes(cell)) return;
    cell.open = true;
    cell.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();

  // What is printed is all of it.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });

  const form = document.getElementById("report-filters");
  if (!form) return;
  const rows = [...document.getElementById("verdict-table").tBodies[0].rows];
  const apply = () => {
    const { q, level, outcome } = form.elements;
    const words = q.value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = 0;
    rows.forEach((row, place) => {
      const text = row.textContent.toLowerCase();
      const fits =
        words.every((word) => text.includes(word)) &&
        (!level.value || row.dataset.level === level.value) &&
        (!outcome.value || row.dataset.outcomes.split(" ").includes(outcome.value));
      row.hidden = !fits;
      cells[place].hidden = !fits;
      kept += fits;
    });
    form.querySelector("output").textContent = `${kept} of ${rows.length} cells`;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  apply();
})();
