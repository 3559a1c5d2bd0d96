"use strict";
// What every page has: the switch of colours, and a cue beside tables that are wider than the screen.

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const relabel = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; relabel(); });
  system.addEventListener("change", relabel);
  button.hidden = false;
  relabel();
})();

(() => {
  const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => look(target)));
  const look = (box) => {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("overflows", hidden > 1);
    box.classList.toggle("at-end", hidden <= 1 || box.scrollLeft >= hidden - 1);
  };
  for (const box of document.querySelectorAll(".scroll")) {
    const cue = document.createElement("p");
    cue.className = "cue";
    cue.setAttribute("aria-hidden", "true");
    cue.textContent = "More columns: scroll sideways \u2192";
    box.before(cue);
    box.addEventListener("scroll", () => look(box), { passive: true });
    watch.observe(box);
    look(box);
  }
})();

(() => {
  // Closed folds are printed open, and closed again after that.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((fold) => { fold.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));
})();
