// The report: folds the details of a check, pages and filters long lists, and opens the cell that a link names.
// Packed items are unpacked when they are needed; they were escaped when the page was made.
(() => {
  "use strict";
  const source = document.getElementById("packed");
  const packed = source ? JSON.parse(source.textContent) : {};
  const TOO_OLD = "This browser doesn't support DecompressionStream. See the JSON report.";

  const unpacked = new Map();
  const chunk = (name, number) => {
    const key = `${name} ${number}`;
    if (!unpacked.has(key)) {
      const bytes = Uint8Array.from(atob(packed[name].chunks[number]), (sign) => sign.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      unpacked.set(key, new Response(stream).json());
    }
    return unpacked.get(key);
  };
  const fragment = async (name, place) => {
    const { size } = packed[name];
    const texts = await chunk(name, Math.floor(place / size));
    const template = document.createElement("template");
    template.innerHTML = texts[place % size];
    return template.content.firstElementChild;
  };

  const foldChecks = (root) => {
    for (const more of root.querySelectorAll("tr.more")) {
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
  };
  foldChecks(document);

  // A list that isn't shown completely: `matches` are the indices of the items that pass its form.
  const list = (below) => {
    const name = below.dataset.more;
    const { index, number, page } = packed[name];
    const holder = document.getElementById(below.dataset.list);
    const button = below.querySelector("button");
    const form = document.querySelector(`form[data-paged="${name}"]`);
    const items = index.text.map((text, place) => ({ text: text.toLowerCase(), field: (one) => index[one][place] }));
    let matches = items.map((_, place) => place);
    let shown = holder.children.length;
    let asked = 0;

    const say = () => {
      below.hidden = shown >= matches.length;
      button.textContent = `Show ${Math.min(page, matches.length - shown)} more of ${matches.length}`;
      if (form) form.querySelector("output").textContent = `${matches.length} of ${number} ${form.dataset.rows}`;
    };
    const show = async (from) => {
      const turn = ++asked;
      const wanted = matches.slice(from, from + page);
      const found = await Promise.all(wanted.map((place) => fragment(name, place))).catch(() => TOO_OLD);
      if (turn !== asked) return;
      if (found === TOO_OLD) {
        below.replaceChildren(TOO_OLD);
        return;
      }
      if (from === 0) holder.replaceChildren(...found);
      else holder.append(...found);
      shown = from + found.length;
      say();
    };
    button.addEventListener("click", () => show(shown));
    if (form) {
      filtered(form, items, (places) => {
        matches = places;
        show(0);
      });
    }
    say();
  };
  for (const below of document.querySelectorAll("[data-more]")) list(below);

  const reveal = (cell) => {
    for (let one = cell; one; one = one.parentElement?.closest("details")) if (one.tagName === "DETAILS") one.open = true;
    cell.scrollIntoView();
  };

  // A packed cell gets its element at once, so that its address is taken, and its text when it is unpacked.
  const places = new Map((packed.cells ? packed.verdicts.index.text : []).map((id, place) => [id, place]));
  const openPacked = (id) => {
    const opened = document.getElementById("opened");
    const waiting = document.createElement("details");
    waiting.className = "cell";
    waiting.id = id;
    waiting.append(Object.assign(document.createElement("summary"), { textContent: id }));
    opened.prepend(waiting);
    fragment("cells", places.get(id)).then(
      (cell) => {
        cell.open = true;
        foldChecks(cell);
        waiting.replaceWith(cell);
        cell.scrollIntoView();
        cell.querySelector("summary").focus({ preventScroll: true });
      },
      () => waiting.append(TOO_OLD),
    );
  };

  const named = () => {
    const hash = location.hash.slice(1);
    try {
      return decodeURIComponent(hash);
    } catch {
      return hash;
    }
  };
  const openFinding = async (id) => {
    for (const name of ["findings", "remarks"]) {
      const place = packed[name]?.index.id?.indexOf(id) ?? -1;
      if (place < 0) continue;
      const card = await fragment(name, place).catch(() => null);
      if (!card) return;
      document.getElementById(name === "findings" ? "finding-list" : "remark-list").prepend(card);
      reveal(card);
    }
  };
  const follow = () => {
    const id = named();
    const there = document.getElementById(id);
    if (there?.matches("details.cell, .finding")) reveal(there);
    else if (!there && places.has(id)) openPacked(id);
    else if (!there && id.startsWith("finding-")) openFinding(id.slice("finding-".length));
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });
  follow();

  // Everything is printed.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });
})();
