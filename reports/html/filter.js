// Filters the rows of a form's table or list: by words in their text, and by the data attributes that the selects name.
(() => {
  "use strict";
  for (const form of document.querySelectorAll("form.filters[data-table]")) {
    const list = document.getElementById(form.dataset.table);
    const rows = [...(list.tBodies?.[0] ?? list).children];
    const selects = [...form.querySelectorAll("select")];
    const apply = () => {
      const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
      let kept = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        const fits =
          words.every((word) => text.includes(word)) &&
          selects.every(({ name, value }) => !value || row.dataset[name].split("|").includes(value));
        row.hidden = !fits;
        const also = document.getElementById(row.dataset.also);
        if (also) also.hidden = !fits;
        kept += fits;
      }
      form.querySelector("output").textContent = `${kept} of ${rows.length} ${form.dataset.rows}`;
    };
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    apply();
  }
})();
