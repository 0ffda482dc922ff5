// Lines over the last ten minutes, with the values under the pointer.

import { svg } from "./topology.js";
import { element, time } from "./format.js";

const SPANS = [[60, "1 min ago"], [180, "3 min ago"], [600, "10 min ago"]]; // seconds that are drawn
const MAX_LINES = 8; // besides the bold one: more cannot be told apart
const GAP_S = 4; // samples further apart are not joined

export class Plot {
  // `read` makes {bold, lines: {name: value}} of a sample; `format` words of a value.
  constructor(root, { title, read, format, least }) {
    Object.assign(this, { root, read, format, least, samples: [], pointer: null });
    this.now = element("output", { class: "now" });
    this.picture = svg("svg", { role: "img", "aria-label": `${title} over the last ten minutes` });
    this.tip = element("div", { class: "tip", hidden: true });
    this.caption = element("span", {}, title);
    root.append(element("figcaption", {}, this.caption, this.now), this.picture, this.tip);
    this.picture.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.picture.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw(this.samples, this.end)).observe(root);
  }

  name(title) {
    if (this.caption.textContent === title) return;
    this.caption.textContent = title;
    this.picture.setAttribute("aria-label", `${title}, over the last ten minutes`);
  }

  draw(samples, end) {
    Object.assign(this, { samples, end });
    const { width, height } = this.picture.getBoundingClientRect();
    if (width < 40 || !samples.length) return;
    const [span, words] = SPANS.find(([limit]) => end - samples[0].at <= limit) ?? SPANS.at(-1);
    this.from = end - span;
    const box = { left: 2, right: width - 2, top: 10, bottom: height - 16 };
    const rows = samples.map((sample) => ({ at: sample.at, ...this.read(sample) }));
    const names = largest(rows);
    const top = ceiling(Math.max(this.least, ...rows.map((row) => row.bold ?? 0), ...names.map((name) => Math.max(...rows.map((row) => row.lines[name] ?? 0)))));
    this.x = (at) => box.right - ((end - at) / span) * (box.right - box.left);
    const y = (value) => box.bottom - (value / top) * (box.bottom - box.top);
    const parts = [];
    for (const value of [0, top / 2, top]) {
      parts.push(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }));
    }
    names.forEach((name, index) => parts.push(svg("path", { class: `series s${index}`, d: this.path(rows, (row) => row.lines[name], y) })));
    parts.push(svg("path", { class: "series bold", d: this.path(rows, (row) => row.bold, y) }));
    parts.push(svg("text", { class: "tick", x: box.left, y: box.top - 1 }, this.format(top)));
    parts.push(svg("text", { class: "tick", x: box.left, y: height - 4 }, words));
    parts.push(svg("text", { class: "tick end", x: box.right, y: height - 4 }, "now"));
    if (this.pointer !== null) parts.push(svg("line", { class: "pointer", x1: this.pointer, x2: this.pointer, y1: box.top, y2: box.bottom }));
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...parts);
    this.rows = rows;
    const last = rows.at(-1).bold;
    this.now.textContent = last === null || last === undefined ? "–" : this.format(last);
    this.drawTip();
  }

  path(rows, value, y) {
    let before = -Infinity;
    const parts = [];
    for (const row of rows) {
      const height = value(row);
      if (height === null || height === undefined || row.at < this.from) continue;
      parts.push(`${row.at - before > GAP_S ? "M" : "L"}${this.x(row.at).toFixed(1)} ${y(height).toFixed(1)}`);
      before = row.at;
    }
    return parts.join("");
  }

  point(x) {
    this.pointer = x;
    this.draw(this.samples, this.end);
  }

  drawTip() {
    const row = this.pointer === null ? null : nearest(this.rows, (row) => Math.abs(this.x(row.at) - this.pointer));
    this.tip.hidden = !row;
    if (!row) return;
    const lines = Object.entries(row.lines).sort((a, b) => b[1] - a[1]).slice(0, MAX_LINES);
    this.tip.replaceChildren(
      element("b", {}, `${time(row.at)}  ${row.bold === null ? "–" : this.format(row.bold)}`),
      ...lines.map(([name, value]) => element("span", {}, `${name.replace(" ", "–")}  ${this.format(value)}`)),
    );
    this.tip.classList.toggle("left", this.pointer > this.picture.clientWidth / 2);
  }
}

// The names of the lines that are drawn: those with the largest values at the end.
function largest(rows) {
  const seen = {};
  for (const row of rows.slice(-60)) {
    for (const [name, value] of Object.entries(row.lines)) seen[name] = Math.max(seen[name] ?? 0, value);
  }
  return Object.keys(seen).sort((a, b) => seen[b] - seen[a]).slice(0, MAX_LINES).sort();
}

function nearest(rows, distance) {
  return rows.reduce((best, row) => (best === null || distance(row) < distance(best) ? row : best), null);
}

// 1, 2 or 5 times a power of ten: what an axis ends at.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((times) => times * power).find((limit) => limit >= value * 0.999);
}
