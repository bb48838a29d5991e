// Forms that filter a list by words in its items, and by the fields of their selects.
const filtered = (form, items, show) => {
  const apply = () => {
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = [...form.querySelectorAll("select")].filter(({ value }) => value);
    const fits = ({ text, field }) =>
      words.every((word) => text.includes(word)) &&
      chosen.every(({ name, value }) => field(name).split("|").includes(value));
    const places = items.flatMap((item, place) => (fits(item) ? [place] : []));
    form.querySelector("output").textContent = `${places.length} of ${items.length} ${form.dataset.rows}`;
    show(places);
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  return apply;
};

for (const form of document.querySelectorAll("form.filters[data-table]")) {
  const list = document.getElementById(form.dataset.table);
  const rows = [...(list.tBodies?.[0] ?? list).children];
  const items = rows.map((row) => ({ text: row.textContent.toLowerCase(), field: (name) => row.dataset[name] }));
  const apply = filtered(form, items, (places) => {
    const kept = new Set(places);
    rows.forEach((row, place) => {
      row.hidden = !kept.has(place);
      const also = document.getElementById(row.dataset.also);
      if (also) also.hidden = row.hidden;
    });
  });
  apply();
}
