// The network as a picture: land, links, their labels, nodes. Elements are kept from one second to
// the next, so that what has the focus or is being clicked stays.

import { fit, graphLayout, mapLayout, placed, project } from "./layout.js";
import { STEPS, many, ms, percent, rate, step, time, visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 9;

export const SHAPES = {
  edge: `M0-${SIZE}A${SIZE} ${SIZE} 0 1 1 0 ${SIZE}A${SIZE} ${SIZE} 0 1 1 0-${SIZE}Z`,
  via: `M0-${SIZE + 3}L${SIZE + 3} 0L0 ${SIZE + 3}L-${SIZE + 3} 0Z`,
  stub: `M0-${SIZE + 1}L${SIZE + 1} ${SIZE - 1}L-${SIZE + 1} ${SIZE - 1}Z`,
  control: `M-${SIZE - 1}-${SIZE - 1}H${SIZE - 1}V${SIZE - 1}H-${SIZE - 1}Z`,
};
export const shapeOf = (role) => (Object.hasOwn(SHAPES, role) ? SHAPES[role] : SHAPES.edge);

// Where a name may stand: its place from the middle of the node, and what of it is there.
const SIDES = {
  below: { x: 0, y: SIZE + 16, anchor: "middle" },
  right: { x: SIZE + 7, y: 1, anchor: "start" },
  left: { x: -SIZE - 7, y: 1, anchor: "end" },
  above: { x: 0, y: -SIZE - 20, anchor: "middle" },
};

export function svg(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

export class Topology {
  constructor(root, { land, onNode }) {
    this.root = root;
    this.rings = land.rings;
    this.onNode = onNode;
    this.mode = null; // what a reader chose; or else a map, if a node has a place
    this.positions = new Map();
    this.shape = "";
    this.drawn = { links: new Map(), nodes: new Map() };
    const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" });
    arrow.append(svg("path", { d: "M0 0L8 4L0 8Z", class: "arrow" }));
    const definitions = svg("defs");
    definitions.append(arrow);
    this.layers = Object.fromEntries(["land", "links", "labels", "nodes"].map((name) => [name, svg("g", { class: name })]));
    root.append(definitions, ...Object.values(this.layers));
    this.coast = svg("path", { class: "coast" });
    this.layers.land.append(this.coast);
    new ResizeObserver(() => this.last && this.draw(...this.last)).observe(root);
  }

  // The mode that is drawn, whoever chose it.
  modeFor(nodes) {
    return this.mode ?? (nodes.some(placed) || !nodes.length ? "map" : "graph");
  }

  draw(nodes, links, tree, chosen) {
    this.last = [nodes, links, tree, chosen];
    const { width, height } = this.root.getBoundingClientRect();
    if (width < 50 || height < 50) return;
    this.place(nodes, links, width, height);
    this.lit = tree && litBy(tree);
    this.root.classList.toggle("lit", Boolean(this.lit));
    this.root.dataset.service = (tree && tree.service) || "";
    this.turnNames(nodes, width, height);
    const shown = links.filter((link) => this.positions.has(link.a) && this.positions.has(link.b));
    this.keep("links", shown, () => this.newLink(), (made, link) => this.drawLink(made, link));
    this.keep("nodes", nodes, (node) => this.newNode(node), (made, node) => this.drawNode(made, node, chosen));
    this.drawLabels(nodes, shown, width);
  }

  // Nodes move only if one comes or goes, or the picture has another size.
  place(nodes, links, width, height) {
    const mode = this.modeFor(nodes);
    const shape = JSON.stringify([mode, Math.round(width), Math.round(height), nodes.map((node) => [node.id, node.latitude, node.longitude]), links.length]);
    if (shape === this.shape) return;
    this.shape = shape;
    this.root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.root.dataset.mode = mode;
    if (mode === "map") {
      const fitted = fit(nodes, width, height);
      this.coast.setAttribute("d", coast(this.rings, fitted));
      this.positions = mapLayout(nodes, links, fitted, width, height);
      this.places = new Map(nodes.filter(placed).map((node) => [node.id, fitted.to(project(node.longitude, node.latitude))]));
    } else {
      this.coast.setAttribute("d", "");
      this.positions = graphLayout(nodes, links, this.graph ?? new Map(), width, height);
      this.graph = this.positions;
      this.places = new Map();
    }
  }

  // Makes, changes and removes the elements of a layer, by id.
  keep(layer, rows, make, change) {
    const drawn = this.drawn[layer];
    const seen = new Set(rows.map((row) => row.id));
    for (const [id, made] of drawn) {
      if (seen.has(id)) continue;
      made.remove();
      drawn.delete(id);
    }
    for (const row of rows) {
      if (!drawn.has(row.id)) {
        drawn.set(row.id, make(row));
        this.layers[layer].append(drawn.get(row.id));
      }
      change(drawn.get(row.id), row);
    }
  }

  newLink() {
    const made = svg("g");
    made.append(svg("title"), svg("path", { class: "wide" }), svg("path", { class: "line" }));
    return made;
  }

  drawLink(made, link) {
    const copies = this.lit?.links.get(link.id);
    const flow = Math.max(link.ab_bps, link.ba_bps);
    const [from, to] = copies?.from === link.b ? [link.b, link.a] : [link.a, link.b];
    const [, wide, line] = made.children;
    const path = this.curve(link, from, to, copies ? 17 : 0);
    wide.setAttribute("d", path);
    line.setAttribute("d", path);
    if (copies) line.setAttribute("marker-end", "url(#arrow)");
    else line.removeAttribute("marker-end");
    made.setAttribute("class", `link ${link.state} ${link.mode || "unknown"} step-${step(flow)}${link.on_demand ? " demand" : ""}${copies ? " copies" : ""}`);
    made.dataset.link = link.id;
    made.dataset.copies = copies ? copies.copies : 0;
    const lost = link.packets > 0 ? `, ${percent(Math.min(1, link.lost / link.packets))} lost` : "";
    const words = link.state === "dead" ? "gone" : `${ms(link.srtt_us)}, ${link.a} → ${link.b} ${rate(link.ab_bps)}, back ${rate(link.ba_bps)}${lost}`;
    const why = link.on_demand && link.state !== "dead" ? `, on demand: ${visible(link.on_demand)}` : "";
    setText(made.children[0], `${link.a} – ${link.b}${link.mode ? ` (${link.mode})` : ""}: ${words}${why}`);
  }

  // A flat arc that ends `short` pixels before the node it leads to.
  curve(link, from, to, short) {
    const [start, end, middle] = [this.positions.get(from), this.positions.get(to), this.bend(link)];
    const [dx, dy] = [end[0] - middle[0], end[1] - middle[1]];
    const back = short / (Math.hypot(dx, dy) || 1);
    const round = (value) => value.toFixed(1);
    return `M${start.map(round)}Q${middle.map(round)} ${round(end[0] - dx * back)},${round(end[1] - dy * back)}`;
  }

  bend(link) {
    const [a, b] = [this.positions.get(link.a), this.positions.get(link.b)];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const length = Math.hypot(dx, dy) || 1;
    const height = Math.min(36, length * 0.14) * (dx < 0 ? -1 : 1);
    return [(a[0] + b[0]) / 2 + (dy / length) * height, (a[1] + b[1]) / 2 - (dx / length) * height];
  }

  newNode(node) {
    const made = svg("g", { tabindex: 0, role: "button" });
    const act = () => this.onNode(node.id);
    made.addEventListener("click", act);
    made.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    });
    made.append(svg("title"), svg("circle", { class: "ring", r: SIZE + 8 }), svg("path", { class: "shape" }));
    made.append(svg("text"), svg("text"));
    made.dataset.node = node.id;
    return made;
  }

  drawNode(made, node, chosen) {
    const [x, y] = this.positions.get(node.id);
    const part = this.lit?.nodes.get(node.id);
    const [title, , shape, name, words] = made.children;
    made.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    const classes = ["node", node.state, node.role, part && "part", part?.origin && "origin", node.id === chosen && "chosen", node.draining && "draining"];
    made.setAttribute("class", classes.filter(Boolean).join(" "));
    made.setAttribute("aria-label", `${node.role || "relay"} ${node.id}, ${stateWords(node)}`);
    shape.setAttribute("d", shapeOf(node.role));
    const side = this.sides.get(node.id);
    for (const [line, text] of [name, words].entries()) {
      text.setAttribute("x", side.x);
      text.setAttribute("y", side.y + 13 * line);
      text.setAttribute("class", `${line ? "words" : "name"} ${side.anchor}`);
    }
    setText(name, node.id);
    setText(words, this.secondLine(node));
    setText(title, `${node.role || "relay"} ${node.id}${node.region ? `, ${node.region}` : ""}: ${stateWords(node)}`);
  }

  // Labels go where there is room, those of the busiest links first; the rest is in the titles.
  drawLabels(nodes, links, width) {
    const taken = nodes.flatMap((node) => [this.shapeBox(node), this.textBox(node, this.sides.get(node.id))]);
    const made = [];
    const order = [...links].sort((a, b) => this.weight(b) - this.weight(a));
    for (const link of order) {
      const copies = this.lit?.links.get(link.id);
      if ((this.lit && !copies) || link.state !== "live" || !link.srtt_us) continue;
      if (link.mode === "control" && !copies) continue;
      const text = copies ? `${copies.copies}× · ${ms(link.srtt_us)}` : ms(link.srtt_us);
      const box = this.free(link, text, taken, width);
      if (!box) continue;
      taken.push(box);
      const label = svg("g", { class: copies ? "label copies" : "label", transform: `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})` });
      label.append(svg("rect", { x: -box.w, y: -7, width: 2 * box.w, height: 14, rx: 4 }), svg("text", { y: 3.5 }, text));
      label.dataset.link = link.id;
      made.push(label);
    }
    this.layers.labels.replaceChildren(...this.regionLabels(nodes, taken), ...made);
  }

  weight(link) {
    return (this.lit?.links.has(link.id) ? 1e15 : 0) + link.ab_bps + link.ba_bps;
  }

  // Names stand below their nodes, or beside or above where another is in the way. They stay
  // there until nodes move, or another track is chosen.
  turnNames(nodes, width, height) {
    const key = JSON.stringify([this.shape, nodes.map((node) => node.state), this.lit && [...this.lit.nodes.keys()]]);
    if (key === this.turned) return;
    this.turned = key;
    this.sides = new Map();
    const taken = nodes.map((node) => this.shapeBox(node));
    for (const node of nodes) {
      const others = taken.filter((box) => box.node !== node.id);
      const sides = Object.values(SIDES).filter((side) => {
        const box = this.textBox(node, side);
        return box.x - box.w > 0 && box.x + box.w < width && box.y + box.h < height - 30 && !others.some((other) => overlap(box, other));
      });
      this.sides.set(node.id, sides[0] ?? SIDES.below);
      taken.push({ ...this.textBox(node, this.sides.get(node.id)), node: "" });
    }
  }

  // Where things are, as middle and half of width and height.
  shapeBox(node) {
    const [x, y] = this.positions.get(node.id);
    return { x, y, w: SIZE + 3, h: SIZE + 3, node: node.id };
  }

  textBox(node, side) {
    const [x, y] = this.positions.get(node.id);
    const second = this.secondLine(node) ? Math.max(this.lit ? 13 : 0, this.secondLine(node).length) : 0;
    const half = Math.max(3.7 * node.id.length, 2.9 * second);
    const lines = second ? 2 : 1;
    return { x: x + side.x + { middle: 0, start: half, end: -half }[side.anchor], y: y + side.y - 4 + 6.5 * (lines - 1), w: half, h: 6.5 * lines };
  }

  secondLine(node) {
    return this.lit && node.state !== "dead" ? partWords(this.lit.nodes.get(node.id)) : shortWords(node);
  }

  free(link, text, taken, width) {
    const [a, b, middle] = [this.positions.get(link.a), this.positions.get(link.b), this.bend(link)];
    for (const t of [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74]) {
      const at = (axis) => (1 - t) * (1 - t) * a[axis] + 2 * t * (1 - t) * middle[axis] + t * t * b[axis];
      const box = { x: at(0), y: at(1), w: 3.3 * text.length + 3, h: 8 };
      if (box.x - box.w > 4 && box.x + box.w < width - 4 && !taken.some((other) => overlap(box, other))) return box;
    }
    return null;
  }

  // The name of a region once, above its nodes.
  regionLabels(nodes, taken) {
    const regions = Map.groupBy(nodes.filter((node) => node.region), (node) => node.region);
    return [...regions].flatMap(([region, members]) => {
      const points = members.map((node) => this.positions.get(node.id));
      const box = { x: points.reduce((sum, [x]) => sum + x, 0) / points.length, y: Math.min(...points.map(([, y]) => y)) - 26, w: 3.6 * region.length, h: 8 };
      if (taken.some((other) => overlap(box, other))) return [];
      taken.push(box);
      return [svg("text", { x: box.x.toFixed(1), y: box.y.toFixed(1), class: "region" }, region)];
    });
  }
}

function overlap(one, other) {
  return Math.abs(one.x - other.x) < one.w + other.w && Math.abs(one.y - other.y) < one.h + other.h;
}

// The nodes and links of a tree, by id; a link has the direction of its copies.
function litBy(tree) {
  const links = new Map();
  for (const link of tree.links) {
    for (const id of [`${link.from} ${link.to}`, `${link.to} ${link.from}`]) links.set(id, link);
  }
  return { nodes: new Map(tree.nodes.map((node) => [node.id, node])), links };
}

function partWords(part) {
  if (!part) return "";
  const words = [];
  if (part.origin || part.publishers) words.push("publisher");
  if (part.subscribers) words.push(many(part.subscribers, "sub"));
  if (part.added_us) words.push(`+${part.added_us < 1e4 ? ms(part.added_us) : `${Math.round(part.added_us / 1000)} ms`}`);
  return words.join(" · ");
}

function shortWords(node) {
  if (node.state === "dead") return `gone ${time(node.since)}`;
  if (node.state === "unasked") return "not asked";
  return node.draining ? "leaving" : "";
}

export function stateWords(node) {
  if (node.state === "dead") return `does not answer since ${time(node.since)}`;
  if (node.state === "unasked") return "not asked, others tell of it";
  return node.draining ? "leaving" : `live, sends ${rate(node.sent_bps)}`;
}

function setText(made, text) {
  if (made.textContent !== text) made.textContent = text;
}

function coast(rings, fitted) {
  const point = (ring, i) => fitted.to(project(ring[i] / 10, ring[i + 1] / 10)).map((value) => value.toFixed(1)).join(" ");
  return rings
    .map((ring) => {
      const points = [];
      for (let i = 0; i < ring.length; i += 2) points.push(point(ring, i));
      return `M${points.join("L")}Z`;
    })
    .join("");
}

// What the shapes and colours mean.
export function drawLegend(root, { onControl }) {
  const roles = Object.entries(SHAPES).map(([role, shape]) => {
    const picture = svg("svg", { viewBox: "-13 -13 26 26", class: `key node live ${role}`, "aria-hidden": "true" });
    picture.append(svg("path", { class: "shape", d: shape }));
    return entry(picture, role[0].toUpperCase() + role.slice(1));
  });
  const rates = STEPS.map(([, words], index) => {
    const picture = svg("svg", { viewBox: "0 0 18 8", class: `bar link live step-${index}`, "aria-hidden": "true" });
    picture.append(svg("path", { class: "line", d: "M1 4H17" }));
    return entry(picture, words);
  });
  const demand = svg("svg", { viewBox: "0 0 18 8", class: "bar link live demand step-1", "aria-hidden": "true" });
  demand.append(svg("path", { class: "line", d: "M1 4H17" }));
  const box = document.createElement("input");
  Object.assign(box, { type: "checkbox", checked: true, id: "control-links" });
  box.addEventListener("change", () => onControl(box.checked));
  const label = document.createElement("label");
  label.append(box, " control links");
  root.append(group("roles", roles), group("rates", rates), group("demand-links", [entry(demand, "on demand")]), label);
}

function entry(picture, words) {
  const made = document.createElement("span");
  made.append(picture, words);
  return made;
}

function group(name, children) {
  const made = document.createElement("div");
  made.className = name;
  made.append(...children);
  return made;
}
