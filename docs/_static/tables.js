/* Say above a table that it scrolls, where it does. */
(function () {
  "use strict";
  function mark(box) {
    const scrolls = box.scrollWidth > box.clientWidth + 1;
    const hint = box.previousElementSibling;
    const has = hint && hint.classList.contains("scroll-hint");
    box.classList.toggle("scrolls", scrolls);
    if (scrolls && !has) {
      const text = document.createElement("p");
      text.className = "scroll-hint";
      text.textContent = "This table is wider than the page: scroll it sideways. \u2194";
      box.before(text);
    } else if (!scrolls && has) {
      hint.remove();
    }
  }
  const boxes = document.querySelectorAll(".bd-article .pst-scrollable-table-container");
  const watch = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
  boxes.forEach((box) => watch.observe(box));
})();
