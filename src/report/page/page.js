// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const number = v => {
    const a = Math.abs(v);
    if (a >= 1e5) return Math.round(v).toLocaleString("en");
    return a !== 0 && a < 1e-3 ? v.toExponential(3) : String(Number(v.toPrecision(6)));
  };
  // the numbers of the points before and after x; `at` is the x of a point
  const around = (points, x, at) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at(points[middle]) < x) low = middle; else high = middle;
    }
    return [low, high];
  };
  const nearest = (points, x, at) => {
    const [low, high] = around(points, x, at);
    return Math.abs(at(points[low]) - x) <= Math.abs(at(points[high]) - x) ? points[low] : points[high];
  };
  // the place of a step among [[step, place], ...]
  const placeOf = (places, step) => {
    const [low, high] = around(places, step, point => point[0]), [from, start] = places[low], [to, end] = places[high];
    const part = to > from ? Math.min(1, Math.max(0, (step - from) / (to - from))) : 1;
    return start + part * (end - start);
  };
  // of a slider from 0 (none) to 8; at 4 the mean is that of the page without this script
  const drawnSmoothing = 4;
  const windowOf = (curve, smoothing) =>
    smoothing === 0 ? 1 : Math.floor(curve.values / 40 * 2 ** (smoothing - drawnSmoothing)) | 1;
  // the window is shorter at the beginning, on both sides, and at the end, on the right side
  const movingMean = (curve, smoothing) => {
    const all = curve.means.length > 0 ? curve.means : curve.points, sums = [0];
    for (const [, y] of all) sums.push(sums[sums.length - 1] + y);
    const wide = Math.floor(windowOf(curve, smoothing) * all.length / curve.values / 2);
    return all.map(([x], i) => {
      const half = Math.min(wide, i), last = Math.min(i + half + 1, all.length);
      return [x, (sums[last] - sums[i - half]) / (last + half - i)];
    });
  };
  const element = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  };
  // puts a tip of a card beside the pointer
  const place = (tip, card, event) => {
    card.append(tip);
    const frame = card.getBoundingClientRect(), px = event.clientX - frame.left;
    const side = px + 18 + tip.offsetWidth < frame.width ? px + 18 : px - 18 - tip.offsetWidth;
    tip.style.left = Math.max(0, side) + "px";
    tip.style.top = Math.max(30, event.clientY - frame.top - tip.offsetHeight / 2) + "px";
  };
  const follow = (picture, move, leave) => {
    picture.addEventListener("pointermove", move);
    picture.addEventListener("pointerdown", move);
    picture.addEventListener("pointerleave", leave);
  };
  // the part of an axis below a value, and the value there
  const position = (axis, v) => axis.log ? Math.log(v / axis.low) / Math.log(axis.high / axis.low)
                                         : (v - axis.low) / (axis.high - axis.low);
  const value = (axis, part) => axis.log ? axis.low * (axis.high / axis.low) ** part
                                         : axis.low + part * (axis.high - axis.low);
  const logX = document.getElementById("logX"), logY = document.getElementById("logY"), layOuts = [];
  const over = Array.from(document.getElementsByName("over")), smoothing = document.getElementById("smoothing");
  document.querySelectorAll(".plot").forEach((plot, index) => {
    const chart = data.charts[index], [left, top, drawn, height] = chart.box, card = plot.closest(".card");
    const right = plot.viewBox.baseVal.width - left - drawn, bottom = plot.viewBox.baseVal.height - top - height;
    // the axes now, and the width between them
    let xAxis = chart.x[0].linear, yAxis = chart.y, width = drawn, marks = null, tip = null;
    // where the steps of each run are, and what this is; null: the axis has their numbers
    let places = null, xTitle = chart.x[0].title;
    const placed = (run, step) => places ? placeOf(places[run], step) : step;
    const toX = v => left + width * position(xAxis, v), toY = v => top + height * (1 - position(yAxis, v));
    // what was drawn moves from its first place on the first axes to its place on the axes of now
    const movedX = (run, x) => toX(placed(run, value(chart.x[0].linear, (x - left) / drawn)));
    const movedY = y => toY(value(chart.y, 1 - (y - top) / height));
    const first = new Map();
    plot.querySelectorAll("polyline, circle, .start > *").forEach(part => {
      const names = part.tagName === "polyline" ? ["points"] : part.tagName === "circle" ? ["cx", "cy"] :
                    part.tagName === "text" ? ["x"] : ["x1"];
      const curve = part.getAttribute("data-curve");
      const run = curve === null ? Number(part.parentElement.getAttribute("data-run")) : chart.curves[curve].run;
      first.set(part, {run, drawn: names.map(name => [name, part.getAttribute(name)])});
    });
    // the line of each noisy curve's values, and that of their mean, which may not be drawn yet
    const smoothed = chart.curves.map((curve, i) => ({curve, lines: plot.querySelectorAll(`polyline[data-curve="${i}"]`)}))
      .filter(({curve}) => curve.noisy).map(({curve, lines: [logged, drawnMean]}) => {
        const mean = drawnMean || logged.cloneNode();
        if (!drawnMean) logged.after(mean);
        return {curve, logged, mean, wasDrawn: Boolean(drawnMean)};
      });
    const drawMeans = () => {
      const chosen = Number(smoothing.value);
      for (const {curve, logged, mean, wasDrawn} of smoothed) {
        const asDrawn = chosen === drawnSmoothing, shown = asDrawn ? wasDrawn : windowOf(curve, chosen) > 1;
        logged.classList.toggle("faint", shown);
        mean.style.display = shown ? "" : "none";
        if (shown && !asDrawn)
          mean.setAttribute("points", movingMean(curve, chosen).map(([x, y]) =>
            toX(placed(curve.run, x)).toFixed(1) + "," + toY(y).toFixed(2)).join(" "));
      }
    };
    const redraw = () => {
      leave();
      for (const [part, {run, drawn: attributes}] of first)
        for (const [name, text] of attributes) {
          if (name === "points")
            part.setAttribute(name, text.split(" ").map(point => {
              const [x, y] = point.split(",");
              return movedX(run, Number(x)).toFixed(1) + "," + movedY(Number(y)).toFixed(2);
            }).join(" "));
          else if (name === "x") part.setAttribute(name, movedX(run, Number(text) - 4) + 4);
          else part.setAttribute(name, name === "cy" ? movedY(Number(text)) : movedX(run, Number(text)));
          if (name === "x1") part.setAttribute("x2", part.getAttribute("x1"));
        }
      drawMeans();
      const parts = [], base = top + height;
      const line = (style, x1, y1, x2, y2) => parts.push(element("line", {class: style, x1, y1, x2, y2}));
      const label = (x, y, anchor, text) => {
        parts.push(element("text", {x, y, "text-anchor": anchor}));
        parts[parts.length - 1].textContent = text;
      };
      for (const [tick, text] of yAxis.ticks) {
        line("grid", left, toY(tick), left + width, toY(tick));
        label(left - 9, toY(tick) + 4, "end", text);
      }
      line("base", left, base, left + width, base);
      let free = 0;  // where the next number of the x axis has room
      for (const [tick, text] of xAxis.ticks) {
        const x = toX(tick), half = 3.5 * text.length;
        line("base", x, base, x, base + 4);
        if (x - half < free) continue;
        label(x, base + 18, "middle", text);
        free = x + half + 8;
      }
      label(left + width / 2, base + bottom - 6, "middle", xTitle);
      plot.querySelector(".axes").replaceChildren(...parts);
    };
    const layOut = () => {
      const whole = Math.min(left + drawn + right, Math.max(280, plot.parentElement.clientWidth - 32));
      width = whole - left - right;
      const chosen = Math.max(0, over.findIndex(choice => choice.checked)), other = chosen > 0 && chart.x[chosen];
      const axes = other || chart.x[0];
      places = other ? data.places[chosen - 1].runs : null;
      xTitle = other ? data.places[chosen - 1].title : axes.title;
      xAxis = logX.checked && axes.log || axes.linear;
      yAxis = logY.checked && chart.logY || chart.y;
      plot.setAttribute("viewBox", `0 0 ${whole} ${top + height + bottom}`);
      redraw();
    };
    const leave = () => {
      if (marks) marks.remove();
      if (tip) tip.remove();
      marks = tip = null;
    };
    const add = (name, attributes) => marks.append(element(name, attributes));
    const move = event => {
      const frame = plot.getBoundingClientRect(), zoom = plot.viewBox.baseVal.width / frame.width;
      const at = (event.clientX - frame.left) * zoom;
      leave();
      if (at < left - 12 || at > left + width + 12) return;
      const x = value(xAxis, (at - left) / width);
      const found = chart.curves.map(curve => {
        const point = nearest(curve.points, x, of => placed(curve.run, of[0]));
        return {curve, point, x: placed(curve.run, point[0])};
      });
      const distance = entry => Math.abs(toX(entry.x) - at);
      const lead = found.reduce((a, b) => distance(b) < distance(a) ? b : a);
      const shown = found.filter(entry => Math.abs(toX(entry.x) - toX(lead.x)) < (entry.curve.marks ? 3 : 14));
      marks = element("g", {});
      const lineX = toX(lead.x);
      add("line", {x1: lineX, x2: lineX, y1: top, y2: top + height, class: "pointer"});
      tip = document.createElement("div");
      tip.className = "tip";
      tip.append(xTitle + " " + number(lead.x));
      for (const {curve, point, x: atStep} of shown) {
        add("circle", {cx: toX(atStep), cy: toY(point[1]), r: 4.5, class: curve.marks ? "mark" : "dot", style: "--c:" + curve.color});
        const row = document.createElement("div"), shownValue = document.createElement("b"), swatch = document.createElement("i");
        swatch.style.setProperty("--c", curve.color);
        if (curve.marks) swatch.className = "ring";
        shownValue.textContent = number(point[1]);
        row.append(swatch, curve.name, shownValue);
        tip.append(row);
      }
      plot.append(marks);
      place(tip, card, event);
    };
    follow(plot, move, leave);
    layOuts.push(layOut);
  });
  const layOutAll = () => layOuts.forEach(layOut => layOut());
  [logX, logY, ...over].forEach(choice => choice.addEventListener("change", layOutAll));
  smoothing.addEventListener("input", layOutAll);
  window.addEventListener("resize", layOutAll);
  layOutAll();
  document.querySelector(".switches").hidden = false;
  // cells are digits from 0 to 60: no token, 30 for the mean load, four times the mean
  const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxy", even = 30;
  const loadOf = digit => digit < even ? digit / even : 4 ** (digit / even - 1);
  document.querySelectorAll(".map").forEach((map, index) => {
    const {box: [left, top, width, height], edges, records, rows, row: name, layers} = data.maps[index];
    const columns = edges.length - 1, first = edges[0], last = edges[columns];
    const card = map.closest(".card"), choice = card.querySelector("select"), cells = map.querySelector("g");
    let tip = null, mark = null;
    const leave = () => {
      if (mark) mark.remove();
      if (tip) tip.remove();
      mark = tip = null;
    };
    const digitOf = (row, column) => digits.indexOf(layers[choice.selectedIndex][row * columns + column]);
    const draw = () => {
      const paths = new Map();
      for (let row = 0; row < rows; ++row)
        for (let start = 0, end = 0; start < columns; start = end) {
          const digit = digitOf(row, start);
          while (end < columns && digitOf(row, end) === digit) ++end;
          const wide = edges[end] - edges[start];
          paths.set(digit, (paths.get(digit) || "") + `M${edges[start] - first} ${rows - 1 - row}h${wide}v1h-${wide}z`);
        }
      paths.delete(-1);
      cells.replaceChildren(...Array.from(paths, ([digit, d]) => {
        const apart = digit / even - 1;
        return element("path", {class: apart < 0 ? "under" : "over", "fill-opacity": Math.abs(apart), d});
      }));
    };
    const move = event => {
      const frame = map.getBoundingClientRect(), zoom = map.viewBox.baseVal.width / frame.width;
      const step = first + ((event.clientX - frame.left) * zoom - left) / width * (last - first);
      const column = edges.findIndex(edge => edge >= step) - 1;
      const below = Math.floor(((event.clientY - frame.top) * zoom - top) / height * rows);
      leave();
      if (column < 0 || below < 0 || below >= rows) return;
      const row = rows - 1 - below, digit = digitOf(row, column), from = edges[column] + 1, to = edges[column + 1];
      const toX = edge => left + width * (edge - first) / (last - first);
      mark = element("rect", {x: toX(edges[column]), y: top + below * height / rows, class: "pointer",
                              width: toX(to) - toX(edges[column]), height: height / rows});
      map.append(mark);
      tip = document.createElement("div");
      tip.className = "tip";
      const line = document.createElement("div"), value = document.createElement("b");
      value.textContent = digit < 0 ? "not recorded" : digit === 2 * even ? "4 or more" : loadOf(digit).toFixed(2);
      line.append(name + " " + row, value);
      tip.append(records === 1 || from === to ? "step " + number(to) : "steps " + number(from) + " to " + number(to), line);
      place(tip, card, event);
    };
    choice.addEventListener("change", () => {
      leave();
      draw();
    });
    choice.disabled = false;
    follow(map, move, leave);
  });
})();
