// SPDX-License-Identifier: Apache-2.0
#include "page.hpp"

namespace coeus::report {

const char* const page_style = R"css(
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --ink: #1d2530; --soft: #5c6673; --line: #e3e6eb; --axis: #b9c0ca;
  --c0: #2563eb; --c1: #d9480f; --c2: #0f8a5f; --c3: #9333ea; --c4: #a16207; --c5: #0e7490; --c6: #be185d;
  --c7: #4d7c0f; --marks: #d9480f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2029; --ink: #e4e8ee; --soft: #97a1ae; --line: #2a323d; --axis: #4a5563;
    --c0: #6ea8fe; --c1: #ff922b; --c2: #40c997; --c3: #c38fff; --c4: #e0b040; --c5: #3bc9db; --c6: #f783ac;
    --c7: #a9d65c; --marks: #ff922b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 20px 40px; }
h1 { font-size: 25px; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 0 0 6px; font-weight: 650; }
h2 small { color: var(--soft); font-weight: 400; font-size: 13px; margin-left: 6px; }
p.about, footer { color: var(--soft); margin: 4px 0 0; font-size: 14px; overflow-wrap: anywhere; }
footer { margin-top: 24px; font-size: 13px; }
.notice { background: var(--card); border-left: 3px solid var(--c4); padding: 8px 12px; margin: 12px 0 0; font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin: 20px 0 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 11px 14px 12px; }
.tile dt { color: var(--soft); font-size: 12.5px; }
.tile dd { margin: 2px 0 0; font-size: 20px; font-weight: 650; font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
.tile dd small { display: block; font-size: 12px; font-weight: 400; color: var(--soft); letter-spacing: 0; }
dl { margin: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 20px; margin: 18px 0 0; padding: 0; list-style: none; font-size: 14px; }
.legend svg { width: 26px; height: 10px; margin-right: 7px; vertical-align: baseline; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; margin: 14px 0 0; }
.card { padding: 14px 16px 10px; position: relative; min-width: 0; }
.wide { grid-column: 1 / -1; }
.head { display: flex; justify-content: space-between; gap: 14px; align-items: baseline; flex-wrap: wrap; }
.head .legend { margin: 0; font-size: 13px; color: var(--soft); }
.plot { display: block; width: 100%; height: auto; touch-action: pan-y; overflow: visible; }
.plot text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); stroke-width: 1; }
.base { stroke: var(--axis); stroke-width: 1; }
.curve { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.faint { stroke-width: 1; opacity: 0.32; }
.between { stroke-width: 1.2; stroke-dasharray: 3 4; opacity: 0.55; }
.second { stroke-dasharray: 7 4; }
.mark { fill: var(--card); stroke: var(--c); stroke-width: 1.9; }
.dot { fill: var(--c); stroke: var(--card); stroke-width: 1.5; }
.pointer { stroke: var(--axis); stroke-width: 1; }
.tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--axis); border-radius: 7px;
  padding: 6px 10px; font-size: 13px; white-space: nowrap; box-shadow: 0 3px 14px rgb(0 0 0 / 0.16); z-index: 1; }
.tip b { font-variant-numeric: tabular-nums; float: right; margin-left: 16px; }
.tip i { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 7px; background: var(--c); }
.tip i.ring { background: none; border: 2px solid var(--c); }
section { margin-top: 14px; }
.bar { display: flex; height: 22px; border-radius: 5px; overflow: hidden; margin: 10px 0 0; background: var(--line); }
.bar span, .swatch { background: var(--c); }
.bar + .legend { margin: 8px 0 6px; font-size: 13px; }
.swatch { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 7px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { text-align: left; padding: 6px 22px 6px 0; border-top: 1px solid var(--line); vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
thead th { border-top: 0; font-weight: 650; }
tbody th { font-weight: 400; color: var(--soft); }
code, pre { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 10px 0 4px; overflow-x: auto; }
summary { cursor: pointer; font-weight: 650; font-size: 15px; }
@media (max-width: 760px) {
  .charts { grid-template-columns: 1fr; }
  .wide .scroll .plot { min-width: 620px; }
}
@media print { body { background: none; } .card, .tile { break-inside: avoid; } }
)css";

const char* const page_script = R"js(
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
)js";

}  // namespace coeus::report
