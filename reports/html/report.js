// The report: folds the details of rows, sorts, pages and filters lists, and opens the cell that a link names.
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
    const { size, words } = packed[name];
    const texts = await chunk(name, Math.floor(place / size));
    const template = document.createElement("template");
    // A character of private use is the number of words that many items have.
    template.innerHTML = texts[place % size].replace(/[\ue000-\uf8ff]/g, (sign) => words[sign.charCodeAt(0) - 0xe000]);
    return template.content.firstElementChild;
  };

  // A row with details in the row below it, which `load` fetches if they are packed: the button shows and hides them.
  const foldable = (row, load) => {
    const head = row.querySelector("th");
    const toggle = document.createElement("button");
    toggle.type = "button";
    toggle.className = "toggle";
    toggle.append(...head.childNodes);
    row.showDetails = async (open) => {
      toggle.setAttribute("aria-expanded", String(open));
      if (open && !detailsOf(row)) {
        const more = await load().catch(() => null);
        if (!more) toggle.append(` ${TOO_OLD}`);
        else if (!detailsOf(row)) row.after(foldAll(more));
      }
      if (detailsOf(row)) detailsOf(row).hidden = toggle.getAttribute("aria-expanded") !== "true";
    };
    toggle.addEventListener("click", () => row.showDetails(toggle.getAttribute("aria-expanded") !== "true"));
    head.append(toggle);
    row.showDetails(row.classList.contains("failing"));
  };
  const detailsOf = (row) => (row.nextElementSibling?.matches(".more") ? row.nextElementSibling : null);
  const foldAll = (root) => {
    for (const more of root.querySelectorAll("tr.more")) foldable(more.previousElementSibling);
    return root;
  };
  foldAll(document);

  // A list of findings or cells: `matches` are the indices of the items that pass its form. Of a packed list the
  // items on the page are only a part. `folded` leaves out the cells that work until a button or a filter asks.
  const list = (below) => {
    const name = below.dataset.more;
    const { index, number, page, chunks } = packed[name];
    const holder = document.getElementById(below.dataset.list);
    const own = chunks ? null : [...holder.querySelectorAll("article.finding, tr.cell")];
    const homes = holder.matches("tbody, .items") ? [holder] : [...holder.querySelectorAll(".items")];
    const button = below.querySelector("button");
    const form = document.querySelector(`form[data-paged="${name}"]`);
    const items = index.text.map((text, place) => ({ text: text.toLowerCase(), field: (one) => index[one][place] }));
    const quiet = index.quiet?.filter(Boolean).length ?? 0;
    let folded = quiet > 0 && quiet < number;
    let chosen = items.map((_, place) => place);
    let order = (one) => one;
    let matches = [];
    let shown = 0;
    let asked = 0;

    const say = () => {
      below.hidden = shown >= matches.length;
      const left = matches.length.toLocaleString("en");
      button.textContent = `Show ${Math.min(page, matches.length - shown)} more of ${left}`;
      if (fold) fold.textContent = `${quiet.toLocaleString("en")} cell${quiet === 1 ? " works" : "s work"}`;
      fold?.setAttribute("aria-expanded", String(!folded));
    };
    const put = (item) => {
      const more = item.matches("tr") && detailsOf(item);
      (homes.find((home) => home.dataset.cause === item.dataset.cause) ?? homes[0]).append(item, ...(more ? [more] : []));
    };
    const wanted = async (place) => {
      const item = await fragment(name, place);
      if (item.matches("tr")) foldable(item, () => fragment("checks", place));
      return item;
    };
    const show = async (from) => {
      const turn = ++asked;
      const places = matches.slice(from, own ? undefined : from + page);
      const found = own ? null : await Promise.all(places.map(wanted)).catch(() => TOO_OLD);
      if (turn !== asked) return;
      if (found === TOO_OLD) {
        below.replaceChildren(TOO_OLD);
        below.hidden = false;
        return;
      }
      if (own) for (const item of own) item.classList.add("left-out");
      else if (from === 0) for (const home of homes) home.replaceChildren();
      for (const item of found ?? places.map((place) => own[place])) {
        item.classList.remove("left-out");
        put(item);
      }
      for (const home of homes) {
        const section = home.closest(".cause");
        if (section) section.hidden = !home.querySelector(":scope > :not(.left-out)") && chosen.length < number;
      }
      shown = from + places.length;
      say();
    };
    const arrange = () => {
      const all = !folded || chosen.length < number;
      matches = all ? [...chosen] : chosen.filter((place) => !index.quiet[place]);
      matches.sort((one, other) => (index.quiet?.[one] ?? 0) - (index.quiet?.[other] ?? 0) || order(one, other));
      show(0);
    };
    button.addEventListener("click", () => show(shown));
    const fold = folded ? Object.assign(document.createElement("button"), { type: "button", className: "toggle fold" }) : null;
    if (fold) {
      below.after(fold);
      fold.addEventListener("click", () => {
        folded = !folded;
        arrange();
      });
    }
    if (form) {
      filtered(form, items, (places) => {
        chosen = places;
        arrange();
      });
      form.querySelector("output").textContent = "";
    }
    const table = holder.closest("table");
    if (table) sortable(table, SORTED[name], index, (by) => {
      order = by;
      arrange();
    });
    if (fold || own || table) arrange();
    else {
      matches = chosen;
      shown = holder.querySelectorAll("article.finding").length;
      say();
    }
    return { index, holder, wanted };
  };

  // The field of the index that each column is sorted by; a second click turns the order around.
  const SORTED = { cells: ["text", "rank", "", "target", "passed", "error", "time", ""] };
  const sortable = (table, fields, index, sort) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const values = index[fields[column]];
      if (!values) return;
      const toggle = Object.assign(document.createElement("button"), { type: "button", className: "sort" });
      toggle.append(...head.childNodes);
      head.append(toggle);
      head.setAttribute("aria-sort", "none");
      toggle.addEventListener("click", () => {
        const largest = fields[column] === "error" || fields[column] === "time";
        const before = head.getAttribute("aria-sort");
        const down = before === "none" ? largest : before === "ascending";
        for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const least = (one, other) => (values[one] < values[other] ? -1 : values[one] > values[other] ? 1 : one - other);
        sort(down ? (one, other) => least(other, one) : least);
      });
    });
  };
  const lists = {};
  for (const below of document.querySelectorAll("[data-more]")) lists[below.dataset.more] = list(below);

  const reveal = (cell) => {
    cell.classList.remove("left-out");
    for (let one = cell; one; one = one.parentElement?.closest("details")) if (one.tagName === "DETAILS") one.open = true;
    cell.scrollIntoView();
  };

  // A cell that isn't shown is put first.
  const places = new Map((packed.cells?.index.text ?? []).map((id, place) => [id, place]));
  globalThis.isReported = (id) => places.has(decoded(id)); // the matrix asks
  const openCell = async (id) => {
    const { holder, wanted } = lists.cells;
    const row = document.getElementById(id) ?? (await wanted(places.get(id)).catch(() => null));
    if (!row) return;
    row.classList.remove("left-out");
    if (!row.isConnected) holder.prepend(row);
    await row.showDetails(true);
    row.scrollIntoView();
    row.querySelector("button").focus({ preventScroll: true });
  };

  const decoded = (hash) => {
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
      const home = document.querySelector(`.items[data-cause="${card.dataset.cause}"]`) ?? document.getElementById("remark-list");
      home.prepend(card);
      reveal(card);
    }
  };
  const follow = () => {
    const id = decoded(location.hash.slice(1));
    const there = document.getElementById(id);
    if (places.has(id)) openCell(id);
    else if (there?.matches("details.cell, .finding")) reveal(there);
    else if (!there && id.startsWith("finding-")) openFinding(id.slice("finding-".length));
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });
  follow();

  document.documentElement.classList.add("scripted");
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest?.("button.copy");
    if (!copy) return;
    const code = copy.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // not allowed here: the person copies what is selected
      copy.textContent = "Selected";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });

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
