// The report: folds what stands below a check, and opens the cell that a link names.
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
})();
