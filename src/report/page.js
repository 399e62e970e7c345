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
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
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
  document.querySelectorAll(".plot").forEach((plot, index) => {
    const chart = data.charts[index], [left, top, width, height] = chart.box, card = plot.closest(".card");
    const toX = v => left + width * (v - chart.x[0]) / (chart.x[1] - chart.x[0]);
    const part = chart.log ? v => Math.log(v / chart.y[0]) / Math.log(chart.y[1] / chart.y[0])
                           : v => (v - chart.y[0]) / (chart.y[1] - chart.y[0]);
    const toY = v => top + height * (1 - part(v));
    let marks = null, tip = null;
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
      const x = chart.x[0] + (at - left) / width * (chart.x[1] - chart.x[0]);
      const found = chart.curves.map(curve => ({curve, point: nearest(curve.points, x)}));
      const distance = entry => Math.abs(toX(entry.point[0]) - at);
      const lead = found.reduce((a, b) => distance(b) < distance(a) ? b : a);
      const shown = found.filter(entry => Math.abs(toX(entry.point[0]) - toX(lead.point[0])) < (entry.curve.marks ? 3 : 14));
      marks = element("g", {});
      const lineX = toX(lead.point[0]);
      add("line", {x1: lineX, x2: lineX, y1: top, y2: top + height, class: "pointer"});
      tip = document.createElement("div");
      tip.className = "tip";
      tip.append(chart.xTitle + " " + number(lead.point[0]));
      for (const {curve, point} of shown) {
        add("circle", {cx: toX(point[0]), cy: toY(point[1]), r: 4.5, class: curve.marks ? "mark" : "dot", style: "--c:" + curve.color});
        const row = document.createElement("div"), value = document.createElement("b"), swatch = document.createElement("i");
        swatch.style.setProperty("--c", curve.color);
        if (curve.marks) swatch.className = "ring";
        value.textContent = number(point[1]);
        row.append(swatch, curve.name, value);
        tip.append(row);
      }
      plot.append(marks);
      place(tip, card, event);
    };
    follow(plot, move, leave);
  });
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
