"use strict";
/* Keys, focus and announcements. Without this file the page works by its forms and links. */
(() => {
  const root = document.documentElement;
  const live = document.getElementById("live");
  const trouble = document.getElementById("trouble");
  const keys = document.getElementById("keys");
  let busy = false;
  const setBusy = (on) => {
    busy = on;
    root.setAttribute("aria-busy", on);
  };
  setBusy(true); // Until htmx has taken the forms over, right before this listener runs.
  document.addEventListener("DOMContentLoaded", () => setBusy(false));
  let focused = "";

  const remember = (value) => {
    try {
      localStorage.setItem("manyhands-keys", value);
    } catch {
      /* Storage may be switched off. */
    }
  };
  const switchKeys = (on) => {
    keys.checked = on;
    root.classList.toggle("keyless", !on);
  };
  try {
    switchKeys(localStorage.getItem("manyhands-keys") !== "off");
  } catch {
    switchKeys(true);
  }
  keys.addEventListener("change", () => {
    switchKeys(keys.checked);
    remember(keys.checked ? "on" : "off");
  });
  root.classList.add("scripted");

  const isTyping = (element) =>
    element.matches("textarea, select, input:not([type=checkbox])") || element.isContentEditable;

  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (at.id === "find") {
      findKey(event, at);
      return;
    }
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || !keys.checked) return;
    if (busy || isTyping(at)) return;
    if (event.key === "Enter" && at.closest("a, button, summary, input")) return;
    const found = [...document.querySelectorAll("[data-key]")].find(
      (element) => element.dataset.key === event.key,
    );
    if (!found) return;
    event.preventDefault();
    if (found.id === "find") found.focus();
    else found.click();
  });

  const findKey = (event, field) => {
    if (event.key === "Escape") field.blur();
    if (event.key !== "Enter") return;
    event.preventDefault();
    const first = document.querySelector(".options li:not([hidden]) :is(button, input)");
    if (field.value.trim() && first && !busy) first.click();
  };

  document.addEventListener("input", (event) => {
    if (event.target.id !== "find") return;
    const wanted = event.target.value.trim().toLowerCase();
    for (const row of document.querySelectorAll(".options li")) {
      const name = row.querySelector(".of").textContent.toLowerCase();
      row.hidden = !name.includes(wanted);
    }
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches("#filters select")) event.target.form.requestSubmit();
  });

  const isMain = (event) => event.detail?.ctx?.target?.id === "main";

  document.addEventListener("htmx:before:request", (event) => {
    if (!isMain(event)) return;
    setBusy(true);
    trouble.hidden = true;
    focused = document.activeElement?.closest("#filters") ? document.activeElement.id : "item";
  });
  document.addEventListener("htmx:error", () => {
    trouble.textContent =
      "The explorer does not answer, so nothing was saved. Start it again; what was saved before is safe.";
    trouble.hidden = false;
  });
  document.addEventListener("htmx:finally:request", (event) => {
    if (!isMain(event)) return;
    setBusy(false);
    const said = document.querySelector("#main [role=alert]") ?? document.querySelector("#main [data-said]");
    if (event.detail.ctx.status !== "swapped") return;
    live.textContent = `${said ? said.textContent.trim() : ""} ${document.querySelector("#main h1")?.textContent ?? ""}`;
    document.querySelector(".menu[open]")?.removeAttribute("open");
    document.getElementById(focused)?.closest("details")?.setAttribute("open", ""); // Of filters.
    (document.getElementById(focused) ?? document.getElementById("main")).focus({ preventScroll: true });
    scrollTo(0, 0);
  });
})();
