// Where nodes are drawn: on the map by their place, or as a graph by their links.

const LABEL_ROOM = 50; // pixels between nodes, so that labels below them can be read
const MAX_ZOOM = 700; // pixels a radian: beyond it coastlines are a few straight lines
const GOLDEN = 2.399963;

const radians = (degrees) => (degrees * Math.PI) / 180;

// Miller's projection: familiar, and gives the north less room than Mercator's.
export function project(longitude, latitude) {
  return [radians(longitude), -1.25 * Math.asinh(Math.tan(0.8 * radians(Math.max(-85, Math.min(85, latitude)))))];
}

// From projected to pixels: the placed nodes fill the picture, and the picture is filled with world.
export function fit(nodes, width, height) {
  const points = nodes.filter(placed).map((node) => project(node.longitude, node.latitude));
  if (!points.length) points.push([0, -0.3]);
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const room = Math.min(90, width / 6);
  const wanted = Math.min((width - 2 * room) / (right - left || 1e-9), (height - 150) / (bottom - top || 1e-9));
  const scale = Math.max(20, Math.min(wanted, MAX_ZOOM));
  const dx = width / 2 - (scale * (left + right)) / 2;
  const dy = height / 2 - 14 - (scale * (top + bottom)) / 2;
  return { scale, to: ([x, y]) => [x * scale + dx, y * scale + dy] };
}

export const placed = (node) => node.latitude !== null && node.latitude !== undefined;

// Positions on the map. A node without a place stands beside a peer, or else at the lower edge.
export function mapLayout(nodes, links, fitted, width, height) {
  const anchors = new Map();
  for (const node of nodes.filter(placed)) anchors.set(node.id, fitted.to(project(node.longitude, node.latitude)));
  const lost = nodes.filter((node) => !anchors.has(node.id));
  for (const node of lost) {
    const link = links.find((row) => (row.a === node.id && anchors.has(row.b)) || (row.b === node.id && anchors.has(row.a)));
    if (link) anchors.set(node.id, anchors.get(link.a === node.id ? link.b : link.a));
  }
  const rest = nodes.filter((node) => !anchors.has(node.id));
  rest.forEach((node, index) => anchors.set(node.id, [(width * (index + 1)) / (rest.length + 1), height - 70]));
  return spread(nodes, anchors, width, height);
}

// Pushes nodes apart until each can be seen, and pulls each towards where it belongs.
function spread(nodes, anchors, width, height) {
  const room = Math.max(24, Math.min(LABEL_ROOM, width / 9, 0.75 * Math.sqrt((width * height) / Math.max(1, nodes.length))));
  const points = nodes.map((node, index) => {
    const [x, y] = anchors.get(node.id);
    return { x: x + 6 * Math.cos(index * GOLDEN), y: y + 6 * Math.sin(index * GOLDEN), anchor: [x, y] };
  });
  const rounds = Math.min(240, Math.ceil(3e6 / (nodes.length * nodes.length + 1)));
  for (let round = 0; round < rounds; round += 1) {
    for (const point of points) {
      point.x += 0.04 * (point.anchor[0] - point.x);
      point.y += 0.04 * (point.anchor[1] - point.y);
    }
    pushApart(points, room);
    keepInside(points, width, height);
  }
  return new Map(nodes.map((node, index) => [node.id, [points[index].x, points[index].y]]));
}

function pushApart(points, room) {
  for (let i = 0; i < points.length; i += 1) {
    for (let j = i + 1; j < points.length; j += 1) {
      const [dx, dy] = [points[j].x - points[i].x, points[j].y - points[i].y];
      const distance = Math.hypot(dx, dy) || 0.01;
      if (distance >= room) continue;
      const push = (room - distance) / distance / 2;
      points[i].x -= dx * push;
      points[i].y -= dy * push;
      points[j].x += dx * push;
      points[j].y += dy * push;
    }
  }
}

function keepInside(points, width, height) {
  for (const point of points) {
    point.x = Math.max(34, Math.min(width - 34, point.x));
    point.y = Math.max(52, Math.min(height - 76, point.y));
  }
}

// Positions by links alone: peers attract, all repel; from where nodes stood before, if they did.
export function graphLayout(nodes, links, before, width, height) {
  const ordered = [...nodes].sort((a, b) => (a.region ?? "").localeCompare(b.region ?? "") || a.id.localeCompare(b.id));
  const points = new Map();
  ordered.forEach((node, index) => {
    const angle = (2 * Math.PI * index) / ordered.length;
    const [x, y] = before.get(node.id) ?? [width / 2 + 0.35 * width * Math.cos(angle), height / 2 + 0.35 * height * Math.sin(angle)];
    points.set(node.id, { x, y });
  });
  const all = [...points.values()];
  const ideal = 0.62 * Math.sqrt((width * height) / Math.max(1, all.length));
  const rounds = Math.min(400, Math.ceil(4e6 / (all.length * all.length + 1)));
  for (let round = 0; round < rounds; round += 1) {
    step(all, points, links, ideal, 0.1 * ideal * (1 - round / rounds));
  }
  return spread(nodes, stretched(points, width, height), width, height);
}

function step(all, points, links, ideal, most) {
  for (const point of all) [point.fx, point.fy] = [0, 0];
  for (let i = 0; i < all.length; i += 1) {
    for (let j = i + 1; j < all.length; j += 1) {
      const [dx, dy] = [all[j].x - all[i].x, all[j].y - all[i].y];
      const square = Math.max(1, dx * dx + dy * dy);
      pull(all[i], all[j], dx, dy, (-ideal * ideal) / square);
    }
  }
  for (const link of links) {
    const [a, b] = [points.get(link.a), points.get(link.b)];
    if (!a || !b) continue;
    const [dx, dy] = [b.x - a.x, b.y - a.y];
    pull(a, b, dx, dy, (link.mode === "control" ? 0.2 : 1) * (Math.hypot(dx, dy) / ideal));
  }
  for (const point of all) {
    const force = Math.hypot(point.fx, point.fy) || 1;
    point.x += (point.fx / force) * Math.min(force, most);
    point.y += (point.fy / force) * Math.min(force, most);
  }
}

function pull(a, b, dx, dy, force) {
  a.fx += dx * force;
  a.fy += dy * force;
  b.fx -= dx * force;
  b.fy -= dy * force;
}

function stretched(points, width, height) {
  const xs = [...points.values()].map((point) => point.x);
  const ys = [...points.values()].map((point) => point.y);
  const within = (value, low, high, from, to) => (high - low < 1 ? (from + to) / 2 : from + ((value - low) / (high - low)) * (to - from));
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const side = Math.min(90, width / 6);
  return new Map(
    [...points].map(([id, point]) => [
      id,
      [within(point.x, left, right, side, width - side), within(point.y, top, bottom, 72, height - 96)],
    ]),
  );
}
