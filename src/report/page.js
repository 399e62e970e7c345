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
    const add = (name, attributes) => {
      const element = document.createElementNS(SVG, name);
      for (const key in attributes) element.setAttribute(key, attributes[key]);
      marks.append(element);
    };
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
      marks = document.createElementNS(SVG, "g");
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
      card.append(tip);
      const frameOfCard = card.getBoundingClientRect(), px = event.clientX - frameOfCard.left;
      const side = px + 18 + tip.offsetWidth < frameOfCard.width ? px + 18 : px - 18 - tip.offsetWidth;
      tip.style.left = Math.max(0, side) + "px";
      tip.style.top = Math.max(30, event.clientY - frameOfCard.top - tip.offsetHeight / 2) + "px";
    };
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    plot.addEventListener("pointerleave", leave);
  });
})();
