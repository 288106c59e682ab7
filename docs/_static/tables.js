/* Say above a table that it scrolls, where it does; break long sentences of outputs. */
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

  /* What a command prints: sentences are broken as in a terminal, unless a table there would be. */
  const ruler = document.createElement("span");
  ruler.textContent = "0".repeat(100);
  function fit(pre) {
    const style = getComputedStyle(pre);
    ruler.style.cssText = "position: absolute; visibility: hidden";
    pre.append(ruler);
    const width = ruler.getBoundingClientRect().width / 100;
    ruler.remove();
    const room = pre.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const drawn = pre.textContent.split("\n").filter((line) => /[\u2500-\u257f]/.test(line));
    pre.classList.toggle("wraps", drawn.every((line) => line.length * width <= room));
  }
  const outputs = document.querySelectorAll("div.cell_output pre");
  const watchOutputs = new ResizeObserver((entries) => entries.forEach((entry) => fit(entry.target)));
  outputs.forEach((pre) => watchOutputs.observe(pre));
})();
