"use strict";
// The threshold explorer. Of metrics it knows no formula: it looks numbers up. Only what mistakes cost is computed here.

(() => {
  // Doubles are little-endian in the page, whatever the machine.
  const bytesOf = (text) => new DataView(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer);
  const unpack = (text) => {
    const view = bytesOf(text);
    return Float64Array.from({ length: view.byteLength / 8 }, (_, i) => view.getFloat64(8 * i, true));
  };
  const unpackSingles = (text) => {
    const view = bytesOf(text);
    return Float32Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));
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
  const between = ([low, high]) => `${written.value(low)} to ${written.value(high)}`;
  const share = (part, whole) => `${written.count(part)} of ${written.count(whole)}${whole > 0 ? ` (${written.percent(part / whole)})` : ""}`;

  const show = (element, value, text) => {
    element.setAttribute("value", String(value));
    element.textContent = text;
  };
  const numbersOf = (text) => text && text.split(" ").map(Number);
  const place = (value, [from, to, start, end]) => start + Math.min(Math.max((value - from) / (to - from), 0), 1) * (end - start);

  function decode(script) {
    const data = JSON.parse(script.textContent);
    const groups = data.groups.map((group) => ({
      positives: group.positives, tp: unpackSingles(group.tp), fp: unpackSingles(group.fp), values: unpackSingles(group.values),
    }));
    return { ...data, groups, thresholds: unpack(data.thresholds), counts: unpackAll(data.counts), metrics: unpackAll(data.metrics) };
  }

  function start(explorer) {
    const find = (selector) => [...explorer.querySelectorAll(selector)];
    const one = (selector) => explorer.querySelector(selector);
    const scripts = find("script.stops");
    const decoded = new Map();
    const logit = explorer.dataset.axis === "logit";
    const [low, high] = [Number(explorer.dataset.low), Number(explorer.dataset.high)];
    const [slider, exact, effect, explanation] = [".slider", ".exact", ".effect", ".explanation"].map(one);
    const judged = one(".judged data").dataset.metric;
    const overlay = (element) => ({
      element,
      x: element.dataset.x,
      y: element.dataset.y,
      xRange: numbersOf(element.dataset.xRange),
      yRange: numbersOf(element.dataset.yRange),
    });
    const [marks, chosenMarks, costMarks, curves] = [".mark", "line.chosen", "line.cost", "path.curve[data-y]"].map((kind) => find(kind).map(overlay));
    let data = null;
    let stop = 0;

    const positionOf = (threshold) => {
      const inside = Math.min(Math.max(threshold, 0), 1);
      return Math.min(Math.max(logit ? Math.log(inside) - Math.log1p(-inside) : inside, low), high);
    };
    const thresholdAt = (position) => (logit ? 1 / (1 + Math.exp(-position)) : position);
    const count = (name, at = stop) => data.counts.get(name)[at];
    const value = (name, at = stop) => data.metrics.get(name)[at];
    const text = (name, kind = "value", at = stop) => (data.unknown[name][at] === "1" ? "not known" : written[kind](value(name, at)));
    const called = (at = stop) => count("tp", at) + count("fp", at);
    const last = () => data.thresholds.length - 1;
    const feasible = (at) => Object.values(data.met).every((held) => held[at] === "1");

    const stopFor = (threshold) => {
      let [from, to] = [0, last()];
      while (from < to) {
        const middle = (from + to) >> 1;
        if (data.thresholds[middle] >= threshold) to = middle; else from = middle + 1;
      }
      return from;
    };

    // Where a threshold or a metric of a stop lies along an axis of a chart.
    const along = (name, at, range) => place(name === undefined ? positionOf(data.thresholds[at]) : value(name, at), range);
    // Where nothing is flagged, precision is 0/0 and its curve has no point.
    const hasPoint = ({ x, y }, at) => !(x === "recall" && y === "precision" && called(at) === 0);

    const moveMark = (mark, position) => {
      const { element, x, y, xRange, yRange } = mark;
      const across = x === undefined ? place(position, xRange) : along(x, stop, xRange);
      if (y === undefined) {
        element.setAttribute("x1", across);
        element.setAttribute("x2", across);
        return;
      }
      element.setAttribute("cx", across);
      element.setAttribute("cy", along(y, stop, yRange));
      element.style.visibility = hasPoint(mark, stop) ? "" : "hidden";
    };

    function update(threshold, label) {
      for (const element of find("[data-count]")) {
        const number = count(element.dataset.count);
        show(element, number, written.count(number));
      }
      for (const element of find("[data-metric]")) {
        show(element, value(element.dataset.metric), text(element.dataset.metric, element.dataset.as));
      }
      for (const element of find("[data-met]")) {
        const met = data.met[element.dataset.met][stop] === "1";
        element.className = met ? "met" : "unmet";
        element.querySelector(".state").textContent = met ? "met" : "not met";
      }
      for (const row of find("[data-group]")) {
        const group = data.groups[Number(row.dataset.group)];
        row.querySelector(".found").textContent = share(group.tp[stop], group.positives);
        row.querySelector(".right-alarms").textContent = share(group.tp[stop], group.tp[stop] + group.fp[stop]);
        show(row.querySelector(".value"), group.values[stop], written.value(group.values[stop]));
      }
      show(effect, threshold, label);
      show(one(".called"), called(), written.count(called()));
      for (const mark of marks) moveMark(mark, positionOf(threshold));
      slider.setAttribute("aria-valuetext", `${label}; ${one(".judged").textContent}`);
    }

    // Says why the numbers do not belong to what was typed; says nothing where they do.
    const explain = (text) => {
      explanation.textContent = text;
      explanation.hidden = text === "";
      exact.setAttribute("aria-invalid", String(text !== ""));
    };

    // To a stop itself.
    function goTo(number) {
      stop = Math.min(Math.max(number, 0), last());
      const threshold = data.thresholds[stop];
      slider.value = positionOf(threshold);
      exact.value = threshold <= 1 ? data.labels[stop] : "";
      explain("");
      update(threshold, data.labels[stop]);
    }

    // To any threshold from 0 to 1: itself where its counts are held, else the next stop.
    function goToThreshold(threshold) {
      stop = stopFor(threshold);
      const held = data.complete || data.thresholds[stop] === threshold;
      const label = held ? String(threshold) : data.labels[stop];
      update(held ? threshold : data.thresholds[stop], label);
      return held ? "" : `This page does not hold the counts of ${threshold}: the numbers belong to ${label}, the next threshold that it holds.`;
    }

    const nearestStop = (position) => {
      const after = stopFor(thresholdAt(position));
      const distance = (at) => Math.abs(positionOf(data.thresholds[at]) - position);
      return after > 0 && distance(after - 1) < distance(after) ? after - 1 : after;
    };

    // The slider of a logit axis goes from stop to stop; the other one through the thresholds of three decimals.
    function slide() {
      const position = slider.valueAsNumber;
      if (logit) {
        goTo(nearestStop(position));
        slider.value = position;
        return;
      }
      explain("");
      goToThreshold(position);
      exact.value = effect.getAttribute("value") === "Infinity" ? slider.value : effect.textContent;
    }

    // What was typed stays as it was typed; where other numbers are shown, the page says which and why.
    function type() {
      const typed = exact.valueAsNumber;
      if (!Number.isFinite(typed)) {
        explain("Type a number from 0 to 1; the numbers still belong to the threshold before.");
        return;
      }
      const threshold = Math.min(Math.max(typed, 0), 1);
      slider.value = positionOf(threshold);
      const notHeld = goToThreshold(threshold);
      explain(threshold === typed ? notHeld : `Scores lie from 0 to 1, and ${typed} does not: the numbers belong to ${threshold}.`);
    }

    // What mistakes cost.
    const [miss, alarm, ratio, price] = [".miss", ".alarm", ".ratio", ".price"].map(one);
    const cost = (at) => count("fn", at) * miss.valueAsNumber + count("fp", at) * alarm.valueAsNumber;
    function chooseByCost() {
      if (!(miss.valueAsNumber >= 0 && alarm.valueAsNumber >= 0)) {
        price.textContent = "Type two costs of 0 or more.";
        return;
      }
      const some = data.thresholds.some((_, at) => feasible(at));
      let best = -1;
      for (let at = 0; at <= last(); at++) {
        if ((!some || feasible(at)) && (best < 0 || cost(at) <= cost(best))) best = at;
      }
      goTo(best);
      const under = some && Object.keys(data.met).length > 0 ? " under the requirements" : "";
      price.textContent = `Cheapest here${under}: threshold ${data.labels[best]}, which costs ${written.count(cost(best))} on these samples. ` +
        `The chosen threshold costs ${written.count(cost(data.chosen))}, flagging nobody ${written.count(cost(last()))}, flagging everybody ${written.count(cost(0))}.`;
      for (const { element, xRange } of costMarks) {
        const across = place(positionOf(data.thresholds[best]), xRange);
        element.setAttribute("x1", across);
        element.setAttribute("x2", across);
      }
      explorer.classList.add("priced");
    }
    const rounded = (number) => Number(number.toPrecision(2));
    ratio.addEventListener("input", () => {
      const power = ratio.valueAsNumber;
      miss.value = rounded(10 ** Math.max(power, 0));
      alarm.value = rounded(10 ** Math.max(-power, 0));
      chooseByCost();
    });
    for (const field of [miss, alarm]) {
      field.addEventListener("change", () => {
        if (miss.valueAsNumber > 0 && alarm.valueAsNumber > 0) ratio.value = Math.log10(miss.valueAsNumber / alarm.valueAsNumber);
        chooseByCost();
      });
    }

    // The curves of another method.
    const short = (number) => String(Number(number.toFixed(1)));
    function pathOf(curve) {
      const { element, x, y, xRange, yRange } = curve;
      const steps = "step" in element.dataset;
      let [path, pen, before] = ["", "M", ""];
      for (let at = 0; at <= last(); at++) {
        if (!hasPoint(curve, at) || ("feasible" in element.dataset && !feasible(at))) {
          [pen, before] = ["M", ""];
          continue;
        }
        const [across, up] = [short(along(x, at, xRange)), short(along(y, at, yRange))];
        if (steps) path += at === 0 ? `M${short(xRange[2])} ${up}H${across}` : `V${up}H${across}`;
        else if (`${across} ${up}` !== before) path += `${pen}${across} ${up}`;
        [pen, before] = ["L", `${across} ${up}`];
      }
      return path;
    }
    function shade(role, ranges) {
      for (const group of find(`svg g.${role}`)) {
        const [range, [top, height]] = [numbersOf(group.dataset.xRange), numbersOf(group.dataset.box)];
        group.replaceChildren(...ranges.map(([from, to]) => {
          const end = place(positionOf(to), range);
          const width = Math.max(end - place(positionOf(from), range), 1);
          const box = document.createElementNS(group.namespaceURI, "rect");
          for (const [name, size] of Object.entries({ x: end - width, y: top, width, height })) box.setAttribute(name, size);
          return box;
        }));
      }
    }
    function choose(number) {
      if (!decoded.has(number)) decoded.set(number, decode(scripts[number]));
      data = decoded.get(number);
      for (const curve of curves) curve.element.setAttribute("d", pathOf(curve));
      for (const { element, xRange } of chosenMarks) {
        const across = place(positionOf(data.thresholds[data.chosen]), xRange);
        element.setAttribute("x1", across);
        element.setAttribute("x2", across);
      }
      shade("feasible", Object.keys(data.met).length > 0 ? data.spans : []);
      shade("interval", data.interval ? [data.interval] : []);
      for (const element of find(".interval-ends")) element.textContent = data.interval ? between(data.interval) : "not known";
      for (const element of find("[data-chosen]")) {
        show(element, value(element.dataset.chosen, data.chosen), text(element.dataset.chosen, "value", data.chosen));
      }
      for (const element of find("[data-caption]")) element.textContent = data.captions[element.dataset.caption];
      for (const chart of find(".sweep svg")) chart.setAttribute("aria-label", `Every threshold. ${data.captions.sweep}`);
      one(".about").textContent = data.about;
      one(".presets").replaceChildren(...data.presets.map(([text, at]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.stop = at;
        button.textContent = text;
        return button;
      }));
      for (const figure of find(".of-first")) figure.hidden = number !== 0;
      explorer.classList.remove("priced");
    }

    // Hovering and clicking on charts.
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    explorer.append(tip);
    function listen(svg) {
      const inside = marks.filter(({ element }) => element.ownerSVGElement === svg);
      const point = inside.find(({ y }) => y !== undefined);
      const line = inside.find(({ y }) => y === undefined);
      const range = (point || line).xRange;
      svg.querySelector("title")?.remove(); // the browser would show it over the tip
      svg.classList.add("explorable");
      let ring = null;
      if (point) {
        ring = document.createElementNS(svg.namespaceURI, "circle");
        ring.setAttribute("class", "ring");
        ring.setAttribute("r", "4");
        ring.style.visibility = "hidden";
        svg.append(ring);
      }
      const nearest = (event) => {
        const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        if (line) {
          const position = low + Math.min(Math.max((x - range[2]) / (range[3] - range[2]), 0), 1) * (high - low);
          return { at: logit ? nearestStop(position) : stopFor(Math.round(1000 * position) / 1000), position };
        }
        let [best, smallest] = [0, Infinity];
        for (let at = 0; at <= last(); at++) {
          if (!hasPoint(point, at)) continue;
          const distance = Math.hypot(along(point.x, at, point.xRange) - x, along(point.y, at, point.yRange) - y);
          if (distance < smallest) [best, smallest] = [at, distance];
        }
        return { at: best, position: null };
      };
      svg.addEventListener("pointermove", (event) => {
        const { at } = nearest(event);
        const box = explorer.getBoundingClientRect();
        tip.textContent = `Threshold ${data.labels[at]}: ${judged} ${text(judged, "value", at)}, finds ${text("recall", "percent", at)}, ` +
          `${text("precision", "percent", at)} of alarms right`;
        tip.hidden = false;
        tip.style.left = `${Math.min(Math.max(event.clientX - box.left - tip.offsetWidth / 2, 0), box.width - tip.offsetWidth)}px`;
        tip.style.top = `${event.clientY - box.top - tip.offsetHeight - 14}px`;
        if (ring) {
          ring.style.visibility = "";
          ring.setAttribute("cx", along(point.x, at, point.xRange));
          ring.setAttribute("cy", along(point.y, at, point.yRange));
        }
      });
      svg.addEventListener("pointerleave", () => {
        tip.hidden = true;
        if (ring) ring.style.visibility = "hidden";
      });
      svg.addEventListener("click", (event) => {
        const { at, position } = nearest(event);
        if (position === null || logit) goTo(at);
        else { slider.value = position; slide(); }
      });
    }

    slider.addEventListener("input", slide);
    exact.addEventListener("change", type);
    one(".presets").addEventListener("click", ({ target }) => { if (target.dataset.stop) goTo(Number(target.dataset.stop)); });
    for (const button of find("[data-move]")) button.addEventListener("click", () => goTo(stop + Number(button.dataset.move)));
    for (const select of find("select.method")) {
      select.value = "0"; // a browser may remember another one
      select.addEventListener("change", () => { choose(Number(select.value)); goTo(data.chosen); });
    }
    for (const control of find("input, button, select")) control.disabled = false;
    explorer.classList.add("scripted");
    one(".without-script").remove();
    choose(0);
    goTo(data.chosen);
    new Set(marks.map(({ element }) => element.ownerSVGElement)).forEach(listen);
  }

  document.querySelectorAll(".explorer").forEach(start);
})();
