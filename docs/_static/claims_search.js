/* Search over all claims of the papers: window.CLAIMS is written by conf.py from the pages of claims.
   Without this script, the links below the search lead to the same claims. */
(function () {
  "use strict";
  const place = document.getElementById("claims-search");
  if (!place || !window.CLAIMS) return;
  const SHOWN = 50;
  const [PAPER, CLAIM, WHOSE, VERDICT, WHY, PAGE] = [0, 1, 2, 3, 4, 5];

  function make(tag, content, attributes) {
    const element = document.createElement(tag);
    if (content !== undefined) element.textContent = content;
    Object.entries(attributes || {}).forEach(([name, value]) => element.setAttribute(name, value));
    return element;
  }

  function chooser(name, column) {
    const label = make("label", name + " ");
    const select = make("select");
    select.append(make("option", "all", { value: "" }));
    [...new Set(window.CLAIMS.map((claim) => claim[column]))].forEach((value) =>
      select.append(make("option", value, { value }))
    );
    select.addEventListener("change", show);
    label.append(select);
    return [label, select];
  }

  const form = make("form", undefined, { role: "search" });
  form.addEventListener("submit", (event) => event.preventDefault());
  const words = make("input", undefined, {
    type: "search",
    placeholder: "such as: Crowd Layer LabelMe",
    autocomplete: "off",
  });
  const labelled = make("label", "Words ");
  labelled.append(words);
  words.addEventListener("input", show);
  const choosers = [chooser("Paper", PAPER), chooser("Whose", WHOSE), chooser("Verdict", VERDICT)];
  form.append(labelled, ...choosers.map(([label]) => label));
  const said = make("p", undefined, { "aria-live": "polite" });
  const found = make("div", undefined, { class: "claims-found" });
  place.append(form, said, found);

  function show() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = [PAPER, WHOSE, VERDICT].map((column, k) => [column, choosers[k][1].value]);
    const asked = wanted.length > 0 || chosen.some(([, value]) => value);
    found.replaceChildren();
    if (!asked) {
      said.textContent = `${window.CLAIMS.length} claims. Type a method, a data set or a verdict.`;
      return;
    }
    const fitting = window.CLAIMS.filter((claim) => {
      const text = claim.slice(PAPER, PAGE).join(" ").toLowerCase();
      return (
        wanted.every((word) => text.includes(word)) &&
        chosen.every(([column, value]) => !value || claim[column] === value)
      );
    });
    const first = fitting.length > SHOWN ? `, the first ${SHOWN} shown` : "";
    said.textContent = `${fitting.length} of ${window.CLAIMS.length} claims${first}.`;
    if (!fitting.length) return;
    const table = make("table", undefined, { class: "table" });
    const head = make("tr");
    ["verdict", "claim", "why"].forEach((name) => head.append(make("th", name, { scope: "col" })));
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    fitting.slice(0, SHOWN).forEach((claim) => {
      const row = make("tr");
      const cell = make("td", claim[CLAIM] + " ");
      cell.append(make("a", `${claim[PAPER]}, ${claim[WHOSE]}`, { href: claim[PAGE] }));
      row.append(make("td", claim[VERDICT]), cell, make("td", claim[WHY]));
      table.tBodies[0].append(row);
    });
    found.append(table);
  }
  show();
})();
