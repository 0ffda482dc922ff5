// The lists beside the picture: tracks, relays, events. Everything that relays say goes in as text.

import { count, element, lasting, many, rate, trackName, visible, when } from "./format.js";
import { shapeOf, stateWords, svg } from "./topology.js";

const MAX_INCIDENTS = 300;

export class TrackList {
  constructor(body, more, onTrack) {
    Object.assign(this, { body, more, onTrack, rows: new Map(), held: false });
    // Rows stay where they are while somebody is about to click one.
    const scroll = body.closest(".scroll");
    scroll.addEventListener("pointerenter", () => (this.held = true));
    scroll.addEventListener("pointerleave", () => (this.held = false));
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) onTrack(row.dataset.track);
    });
  }

  draw(picture, chosen, words) {
    const tracks = this.held ? this.asBefore(picture.tracks) : picture.tracks;
    const seen = new Set(tracks.map((track) => track.track));
    for (const [key, row] of this.rows) {
      if (seen.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    tracks.forEach((track, index) => {
      if (!this.rows.has(track.track)) this.rows.set(track.track, newRow(track));
      const row = this.rows.get(track.track);
      fillRow(row, track, track.track === chosen);
      if (this.body.children[index] !== row) moveTo(this.body, row, index);
    });
    const left = picture.tracks_found - picture.tracks.length;
    this.more.hidden = picture.tracks.length > 0 && left <= 0;
    if (left > 0) this.more.textContent = `The ${picture.tracks.length} fastest of ${count(picture.tracks_found)} tracks are shown; search for others.`;
    else if (words) this.more.textContent = `None of ${many(picture.tracks_total, "track")} has “${words}” in its name.`;
    else this.more.textContent = "No track is published or subscribed to yet.";
  }

  asBefore(tracks) {
    const order = new Map([...this.body.children].map((row, index) => [row.dataset.track, index]));
    return [...tracks].sort((a, b) => (order.get(a.track) ?? Infinity) - (order.get(b.track) ?? Infinity) || 0);
  }
}

function newRow(track) {
  const row = element("tr", { "data-track": track.track });
  const button = element("button", { type: "button", class: "row" }, element("span", { class: "space" }), element("span", { class: "name" }), element("span", { class: "service" }), element("span", { class: "lost" }));
  row.append(element("td", {}, button), element("td", { class: "number" }), element("td", { class: "number" }));
  return row;
}

function fillRow(row, track, chosen) {
  const [cell, speed, readers] = row.children;
  const button = cell.firstChild;
  const named = track.namespace || track.name;
  button.children[0].textContent = named ? visible(track.namespace) : "name not known";
  button.children[1].textContent = named ? visible(track.name) : `#${track.track}`;
  button.children[2].textContent = visible(track.service);
  button.children[2].dataset.service = track.service;
  button.children[3].textContent = track.lost_objects ? `${count(track.lost_objects)} lost` : "";
  button.title = `${trackName(track)}, at ${many(track.relays, "relay")}`;
  button.setAttribute("aria-pressed", chosen);
  row.classList.toggle("chosen", chosen);
  speed.textContent = rate(track.rate_bps);
  readers.textContent = count(track.subscribers);
}

// Moving an element that has the focus would take it away.
function moveTo(body, row, index) {
  const focused = row.contains(document.activeElement) ? document.activeElement : null;
  body.insertBefore(row, body.children[index] ?? null);
  focused?.focus({ preventScroll: true });
}

export function drawRelays(body, nodes, chosen, onNode, now) {
  const focused = document.activeElement?.closest?.("tr")?.dataset.node;
  body.replaceChildren(
    ...nodes.map((node) => {
      const picture = svg("svg", { viewBox: "-13 -13 26 26", class: `key node ${node.state} ${node.role}`, "aria-hidden": "true" });
      picture.append(svg("path", { class: "shape", d: shapeOf(node.role) }));
      const button = element("button", { type: "button", class: "row", title: stateWords(node) }, picture, element("span", { class: "name" }, node.id));
      button.addEventListener("click", () => onNode(node.id));
      const speed = { live: () => rate(node.sent_bps), dead: () => `gone ${lasting(now - node.since)}`, unasked: () => "not asked" }[node.state]();
      return element(
        "tr",
        { "data-node": node.id, class: `${node.state}${node.id === chosen ? " chosen" : ""}` },
        element("td", {}, button),
        element("td", {}, node.role),
        element("td", {}, node.region || "–"),
        element("td", { class: "number" }, speed),
      );
    }),
  );
  if (focused) body.querySelector(`tr[data-node="${CSS.escape(focused)}"] button`)?.focus({ preventScroll: true });
}

export class IncidentList {
  constructor(body, none) {
    Object.assign(this, { body, none, rows: new Map() });
  }

  clear() {
    this.body.replaceChildren();
    this.rows.clear();
    this.none.hidden = false;
  }

  // Oldest first; the newest stands on top. One that is there already is drawn anew where it is, and stays open.
  add(incidents) {
    for (const incident of incidents) {
      const before = this.rows.get(incident.id);
      const row = incidentRow(incident, before?.querySelector("details")?.open ?? false);
      this.rows.set(incident.id, row);
      if (before) before.replaceWith(row);
      else this.body.prepend(row);
      this.none.hidden = true;
    }
    while (this.rows.size > MAX_INCIDENTS) {
      const [first, row] = this.rows.entries().next().value;
      row.remove();
      this.rows.delete(first);
    }
  }
}

function incidentRow(incident, open) {
  const time = element("time", {}, when(incident.at));
  if (!incident.title) return element("li", { class: incident.tone }, time, ...incident.events.map(eventWords));
  const left = incident.count - incident.events.length;
  const details = element(
    "details",
    { class: "what" },
    element("summary", {}, element("b", {}, incident.title), incident.effect ? element("span", { class: "why" }, incident.effect) : ""),
    element("ol", {}, ...incident.events.map((event) => element("li", {}, element("time", {}, when(event.at)), eventWords(event))), left > 0 ? element("li", {}, `and ${many(left, "more event")}`) : ""),
  );
  details.open = open;
  return element("li", { class: incident.tone }, time, details);
}

function eventWords(event) {
  const told = event.detail && event.detail !== event.subject ? event.detail : "";
  const words = visible([told, event.reason].filter(Boolean).join(" — "));
  return element("span", { class: "what" }, element("b", {}, event.event.replaceAll("_", " ")), event.subject ? ` ${visible(event.subject)}` : "", event.node && event.node !== event.subject ? element("span", { class: "who" }, ` at ${event.node}`) : "", words ? element("span", { class: "why", title: words }, words) : "");
}
