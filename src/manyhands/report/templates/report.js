/* Better with it, complete without it: sorting, filters, CSV files, items in a window, a switch
   between light and dark. All text is set as text, never as markup. */
(() => {
  "use strict";
  const doc = document, root = doc.documentElement, FOLDED = 15;
  const all = (selector, within) => [...(within || doc).querySelectorAll(selector)];
  const make = (tag, text, attributes) => {
    const node = doc.createElement(tag);
    if (text) node.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    return node;
  };
  const button = (text, act, attributes) => {
    const node = make("button", text, { type: "button", ...attributes });
    node.addEventListener("click", act);
    return node;
  };

  /* -- texts of cells: whole names, and numbers without signs of grouping -- */
  const text = (cell) => {
    const copy = cell.cloneNode(true);
    all(".hidden, .scale, .scripted, small, svg", copy).forEach((node) => node.remove());
    all("[title]", copy).forEach((node) => { node.textContent = node.title; });
    return copy.textContent.replace(/\s+%/g, "%").replace(/\s+/g, " ").trim();
  };
  const NUMBER = /^([<>]?)([\u2212-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)/i;
  const value = (cell) => {
    const found = NUMBER.exec(text(cell));
    if (!found) return null;
    const number = parseFloat(found[2].replace(/,/g, "").replace("\u2212", "-"));
    return found[1] === "<" ? number - 0.5 : found[1] === ">" ? number + 0.5 : number;
  };

  /* -- CSV -- */
  const field = (words) => {
    const safe = /^[=+@\t\r-]/.test(words) && !/^-?[\d.,]+$/.test(words) ? "'" + words : words;
    return /[",\n\r]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
  };
  const save = (name, lines) => {
    const url = URL.createObjectURL(new Blob(["\ufeff" + lines.join("\r\n") + "\r\n"],
      { type: "text/csv;charset=utf-8" }));
    const link = make("a", "", { href: url, download: name + ".csv" });
    doc.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  const csv = (table) => {
    const plotted = new Set(all("thead th", table).flatMap((th, k) => th.matches(".bar") ? [k] : []));
    const counted = all("small", table).length > 0;  // Their counts are columns of their own.
    const lines = all("tr", table).map((row, r) => {
      const cells = [...row.cells].filter((_, k) => !plotted.has(k));
      const counts = counted ? cells.slice(1).map((cell) =>
        r ? all("small", cell).map((each) => each.textContent).join("") : text(cell) + ", n") : [];
      return [...cells.map(text), ...counts].map(field).join(",");
    });
    save((table.id || table.closest("[id]").id).replace(/^table-/, ""), lines);
  };
  const saver = (table) => button("CSV", () => csv(table),
    { class: "csv", "aria-label": "CSV: " + (table.caption ? text(table.caption) : "table") });

  /* -- tables -- */
  const sortBy = (table, column, ascending) => {
    const body = table.tBodies[0], rows = [...body.rows];
    const keys = new Map(rows.map((row) => {
      const cell = row.cells[column];
      return [row, cell ? [value(cell), text(cell)] : [null, ""]];
    }));
    const numeric = rows.some((row) => keys.get(row)[0] !== null) &&
      rows.every((row) => keys.get(row)[0] !== null || /^[\u2013\s]*$/.test(keys.get(row)[1]));
    rows.sort((a, b) => {
      const [m, s] = keys.get(a), [n, t] = keys.get(b);
      if (numeric && (m === null || n === null)) return (m === null) - (n === null);
      const order = numeric ? m - n : s.localeCompare(t, undefined, { numeric: true });
      return ascending ? order : -order;
    });
    body.append(...rows);
    all("thead th", table).forEach((th, k) => {
      if (k === column) th.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      else th.removeAttribute("aria-sort");
    });
  };
  const sortable = (table) => all("thead th", table).forEach((th, k) => {
    if (th.matches(".bar")) return;
    const words = th.textContent.trim();
    const act = () => sortBy(table, k, th.getAttribute("aria-sort") !== "ascending");
    th.replaceChildren(button(words, act, { class: "sort" }));
  });
  const tools = (table) => {
    const rows = () => [...table.tBodies[0].rows], scroll = table.closest(".scroll") || table;
    const bar = make("div", "", { class: "tools" }), said = make("span", "", { class: "quiet" });
    said.setAttribute("role", "status");
    const caption = table.caption ? text(table.caption) : "table";
    let fold = null, field;
    const show = () => {
      const words = field ? field.value.trim().toLowerCase() : "";
      let n = 0;
      rows().forEach((row) => {
        row.hidden = words !== "" && !text(row).toLowerCase().includes(words);
        n += !row.hidden;
      });
      table.classList.toggle("filtered", words !== "");
      said.textContent = words === "" ? "" : n + " of " + rows().length;
    };
    if (rows().length > 5) {
      field = make("input", "", { type: "search", placeholder: "filter",
        "aria-label": "Filter: " + caption });
      field.addEventListener("input", show);
      bar.append(field, said);
    }
    if (rows().length > FOLDED) {
      fold = button("", () => {
        table.classList.toggle("folded");
        label();
      }, { class: "fold" });
      const label = () => {
        const folded = table.classList.contains("folded");
        fold.textContent = folded ? "show all " + rows().length + " rows" : "show fewer";
        fold.setAttribute("aria-expanded", String(!folded));
      };
      table.classList.add("folded");
      label();
      scroll.after(fold);
    }
    bar.append(saver(table));
    scroll.before(bar);
    return { show, fold };
  };

  /* -- annotators whom the table leaves out: one line each, tabs between the fields -- */
  const rest = doc.getElementById("annotators-rest-lines");
  const annotators = doc.getElementById("table-annotators");
  if (rest && annotators) {
    const names = all("thead th", annotators).map((th) => th.dataset.field || "");
    const append = () => {
      const made = rest.textContent.trim().split("\n").slice(1).map((line) => {
        const [id, n, right, low, high, gold, flags] = line.split("\t");
        const share = (words) => words ? words + "\u202f%" : "\u2013";
        const known = { n, flags, accuracy: share(right), gold: share(gold),
          interval: low ? low + " to " + share(high) : "\u2013" };
        const row = make("tr");
        names.forEach((name, k) => {
          const cell = k ? make("td", known[name] || "") : make("th", id, { scope: "row" });
          if (k) cell.className = name === "flags" ? "flags" : "n";
          row.append(cell);
        });
        return row;
      });
      annotators.tBodies[0].append(...made);
      doc.getElementById("annotators-rest").hidden = true;
      extend.remove();
    };
    const extend = button(rest.dataset.label, append, { class: "fold", id: "annotators-extend" });
    doc.getElementById("annotators-rest").before(extend);
  }

  all("table.list").forEach((table) => {
    sortable(table);
    tools(table);
  });

  /* -- items in a window -- */
  const viewer = make("dialog", "", { id: "viewer", "aria-label": "Instances" });
  const shown = make("div", "", { class: "items" });
  viewer.append(button("close", () => viewer.close(), { class: "close" }), shown);
  doc.body.append(viewer);
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); });
  const card = (id) => {
    const found = doc.getElementById(id);
    if (!found) return null;
    const copy = found.cloneNode(true);
    copy.removeAttribute("id");
    return copy;
  };
  const open = (title, cards) => {
    shown.replaceChildren(make("h2", title), ...cards);
    viewer.showModal();
  };
  doc.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const id = link.getAttribute("href").slice(1);
    if (/^item-/.test(id)) {
      const one = card(id);
      if (one) { event.preventDefault(); open("", [one]); }
    } else if (/^(cell|pair)-/.test(id)) {
      const row = doc.getElementById(id);
      if (!row) return;
      const cards = all("a[href^='#item-']", row)
        .map((each) => card(each.getAttribute("href").slice(1))).filter(Boolean);
      if (cards.length) { event.preventDefault(); open(row.dataset.title || text(row.cells[0]), cards); }
    }
  });
  /* Cells that name instances become buttons, in folded tables when they are first looked at. */
  const openCell = (cell) => {
    const table = cell.closest("table"), head = table.tHead.rows[0].cells[cell.cellIndex];
    const [row, column] = [text(cell.parentNode.cells[0]), text(head)];
    const title = table.id === "table-agreement-matrix" ? row + " and " + column + " differ"
      : table.id ? row + ", window " + column
      : text(table.caption) + " " + row + " labelled " + column;
    const cards = cell.dataset.at.split("\t").map((one) =>
      one[0] === "#" ? card("item-" + one.slice(1)) : make("p", one.slice(1)));
    open(title, cards.filter(Boolean));
  };
  const heat = (table) => {
    const scroll = table.closest(".scroll"), bar = make("div", "", { class: "tools" });
    if (scroll.previousElementSibling && scroll.previousElementSibling.matches(".tools")) return;
    all("td[data-at]", table).forEach((cell) => cell.firstChild.replaceWith(
      button(cell.firstChild.textContent, () => openCell(cell), { class: "cell" })));
    bar.append(saver(table));
    scroll.before(bar);
  };
  all("table.heat").filter((table) => !table.closest("details")).forEach(heat);
  all("details").forEach((part) => part.addEventListener("toggle", () =>
    all("table.heat", part).forEach(heat)));
  const reveal = () => {
    const target = location.hash && doc.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
      if (node.tagName === "TABLE") node.classList.remove("folded");
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  /* -- commands break between words, not at the hyphen of an option -- */
  all("code").forEach((code) => {
    const parts = code.textContent.split(/(?<!\S)(--?[A-Za-z][\w-]*)/);
    if (parts.length === 1) return;
    code.replaceChildren(...parts.map((part, k) =>
      k % 2 ? make("span", part, { class: "whole" }) : part));
  });

  /* -- folds: all at once; and print has what is folded, also where styles cannot unfold it -- */
  const folds = all("details.question");
  if (folds.length > 1) {
    const toggle = button("", () => {
      const closed = folds.some((each) => !each.open);
      folds.forEach((each) => { each.open = closed; });
    }, { id: "unfold" });
    const named = () => {
      toggle.textContent = folds.some((each) => !each.open) ? "open all" : "close all";
    };
    folds.forEach((each) => each.addEventListener("toggle", named));
    named();
    doc.getElementById("page-tools").append(toggle);
  }
  let unfolded = [];
  addEventListener("beforeprint", () => {
    const whole = doc.getElementById("whole").checked;
    unfolded = folds.filter((each) => !each.open && (whole || !each.closest(".later")));
    unfolded.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => unfolded.forEach((each) => { each.open = false; }));

  /* -- light and dark -- */
  const dark = [...doc.styleSheets].flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule.media && /prefers-color-scheme/.test(rule.media.mediaText));
  const bar = doc.getElementById("page-tools");
  if (bar && dark.length) {
    let isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const theme = button("", () => { isDark = !isDark; paint(); }, { id: "theme" });
    const paint = () => {
      dark.forEach((rule) => { rule.media.mediaText = isDark ? "screen" : "not all"; });
      root.style.colorScheme = isDark ? "dark" : "light";
      theme.textContent = isDark ? "light" : "dark";
    };
    theme.textContent = isDark ? "light" : "dark";
    bar.append(theme);
  }
  const everything = doc.getElementById("all-tables");
  if (everything) {
    everything.replaceChildren(...all("table.list, table.heat[id]").map((table) => {
      const name = table.caption ? text(table.caption) : table.id;
      const item = make("li");
      item.append(button(name, () => csv(table), { class: "link" }));
      return item;
    }));
  }
  root.classList.add("js");
})();
