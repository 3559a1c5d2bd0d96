"use strict";
// The page's one script: the colours' switch, and the threshold explorer. It knows no formula: it looks numbers up.

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
  // Doubles are little-endian in the page, whatever the machine.
  const unpack = (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
  };
  const unpackAll = (packed) => new Map(Object.entries(packed).map(([name, text]) => [name, unpack(text)]));
  // Not toLocaleString, which rounds the shortest decimal that stands for a number and not the number itself.
  const grouped = (number, decimals) => number.toFixed(decimals).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const scientific = (number) => number.toExponential(1).replace(".0e", "e").replace(/e([+-])(\d)$/, "e$10$2");
  const small = (number) => (Math.abs(number) < 0.0001 ? scientific(number) : String(number));

  // The same forms as report/formatting.py writes.
  const written = {
    value: (v) => (v !== 0 && Math.abs(v) < 0.0005
      ? small(Number(v.toPrecision(2)))
      : Math.abs(v) < 10 ? v.toFixed(3) : grouped(v, 1)),
    count: (v) => grouped(v, Number.isInteger(v) ? 0 : 2),
    percent: (v) => (v === 0 || v >= 0.001 ? `${(100 * v).toFixed(1)}\u00a0%` : `${Number((100 * v).toPrecision(2))}\u00a0%`),
  };

  const show = (element, value, text) => {
    element.setAttribute("value", String(value));
    element.textContent = text;
  };

  function start(explorer) {
    const data = JSON.parse(explorer.querySelector(".stops").textContent);
    const thresholds = unpack(data.thresholds);
    const counts = unpackAll(data.counts);
    const metrics = unpackAll(data.metrics);
    const last = thresholds.length - 1;
    const find = (selector) => [...explorer.querySelectorAll(selector)];
    const slider = explorer.querySelector(".slider");
    const exact = explorer.querySelector(".exact");
    const effect = explorer.querySelector(".effect");
    const explanation = explorer.querySelector(".explanation");
    const marks = find(".mark").map((element) => ({
      element,
      x: element.dataset.x,
      y: element.dataset.y,
      xRange: element.dataset.xRange.split(" ").map(Number),
      yRange: element.dataset.yRange && element.dataset.yRange.split(" ").map(Number),
    }));
    let stop = data.chosen;

    const stopFor = (threshold) => {
      let low = 0;
      let high = last;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (thresholds[middle] >= threshold) high = middle; else low = middle + 1;
      }
      return low;
    };

    const place = (value, [from, to, start, end]) =>
      start + Math.min(Math.max((value - from) / (to - from), 0), 1) * (end - start);

    const moveMark = ({ element, x, y, xRange, yRange }, threshold) => {
      const across = place(x === undefined ? threshold : metrics.get(x)[stop], xRange);
      if (y === undefined) {
        element.setAttribute("x1", across);
        element.setAttribute("x2", across);
        return;
      }
      element.setAttribute("cx", across);
      element.setAttribute("cy", place(metrics.get(y)[stop], yRange));
      // Where nothing is called positive, precision is 0/0 and its curve has no point.
      element.style.visibility = y === "precision" && x === "recall" && called() === 0 ? "hidden" : "";
    };

    const called = () => counts.get("tp")[stop] + counts.get("fp")[stop];

    function update(threshold, label) {
      for (const element of find("[data-count]")) {
        const value = counts.get(element.dataset.count)[stop];
        show(element, value, written.count(value));
      }
      for (const element of find("[data-metric]")) {
        const value = metrics.get(element.dataset.metric)[stop];
        show(element, value, written[element.dataset.as || "value"](value));
      }
      for (const element of find("[data-met]")) {
        const met = data.met[element.dataset.met][stop] === "1";
        element.className = met ? "met" : "unmet";
        element.querySelector(".state").textContent = met ? "met" : "not met";
      }
      show(effect, threshold, label);
      show(explorer.querySelector(".called"), called(), written.count(called()));
      for (const mark of marks) moveMark(mark, threshold);
      slider.setAttribute("aria-valuetext", `${label}; ${explorer.querySelector(".judged").textContent}`);
    }

    // Says why the numbers are not those of what was typed; nothing where they are.
    const explain = (text) => {
      explanation.textContent = text;
      explanation.hidden = text === "";
      exact.setAttribute("aria-invalid", String(text !== ""));
    };

    // To a stop itself.
    function goTo(number) {
      stop = Math.min(Math.max(number, 0), last);
      const threshold = thresholds[stop];
      slider.value = Math.min(threshold, 1);
      exact.value = threshold <= 1 ? data.labels[stop] : "";
      explain("");
      update(threshold, data.labels[stop]);
    }

    // To any threshold from 0 to 1: itself where its counts are held, else the next stop.
    function goToThreshold(threshold) {
      stop = stopFor(threshold);
      const held = data.complete || thresholds[stop] === threshold;
      const label = held ? String(threshold) : data.labels[stop];
      update(held ? threshold : thresholds[stop], label);
      return held ? "" : `This page does not hold the counts of ${threshold}: the numbers are those of ${label}, the next threshold that it holds.`;
    }

    function slide() {
      exact.value = slider.value;
      explain(goToThreshold(slider.valueAsNumber));
    }

    // What was typed stays as it was typed; where other numbers are shown, the page says which and why.
    function type() {
      const typed = exact.valueAsNumber;
      if (!Number.isFinite(typed)) {
        explain("Type a number from 0 to 1; the numbers are still those of the threshold before.");
        return;
      }
      const threshold = Math.min(Math.max(typed, 0), 1);
      slider.value = threshold;
      const notHeld = goToThreshold(threshold);
      explain(threshold === typed ? notHeld : `Scores lie from 0 to 1, and ${typed} does not: the numbers are those of ${threshold}.`);
    }

    slider.addEventListener("input", slide);
    exact.addEventListener("change", type);
    for (const button of find("[data-stop]")) button.addEventListener("click", () => goTo(Number(button.dataset.stop)));
    for (const button of find("[data-move]")) button.addEventListener("click", () => goTo(stop + Number(button.dataset.move)));
    for (const control of find("input, button")) control.disabled = false;
    explorer.querySelector(".without-script").remove();
    goTo(stop);
  }

  document.querySelectorAll(".explorer").forEach(start);
})();
