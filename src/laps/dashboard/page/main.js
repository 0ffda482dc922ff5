// Asks the dashboard once a second how things are, and has it drawn.

import { IncidentList, TrackList, drawRelays } from "./lists.js";
import { Panel } from "./panel.js";
import { Plot } from "./plots.js";
import { Topology, drawLegend } from "./topology.js";
import { count, many, ms, percent, rate, time, trackName } from "./format.js";

const EACH_MS = 1000;
const KEPT_S = 600;
const the = (id) => document.getElementById(id);

const state = { run: "", track: "", relay: null, words: "", control: true, samples: [], change: 0, picture: null, asked: 0, at: 0 };

const land = await (await fetch("land.json")).json();
const topology = new Topology(the("topology"), { land, onNode: chooseRelay });
const tracks = new TrackList(the("tracks"), the("tracks-more"), chooseTrack);
const incidents = new IncidentList(the("incidents"), the("incidents-none"));
const panel = new Panel(the("panel"), () => chooseRelay(null));
const plots = [
  new Plot(the("plot-rate"), { title: "Rate delivered, and by relay", format: rate, least: 1000, read: (sample) => ({ bold: sample.delivered_bps, lines: sample.relays }) }),
  new Plot(the("plot-latency"), { title: "Latency: sRTT of links", format: ms, least: 1000, read: latencies }),
  new Plot(the("plot-loss"), { title: "Loss on links", format: percent, least: 0.001, read: (sample) => ({ bold: sample.loss, lines: {} }) }),
];

// Of the chosen track how much later it is at each relay than at the first; else of all links.
function latencies(sample) {
  const lines = state.track ? (sample.added[state.track] ?? {}) : sample.links;
  const values = Object.values(lines);
  return { bold: state.track ? (values.length ? Math.max(...values) : null) : median(values), lines };
}

function median(values) {
  const sorted = values.sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : null;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// -- asking ---------------------------------------------------------------------------------------

async function ask() {
  const number = ++state.asked;
  const query = new URLSearchParams({ q: state.words, own: the("own").checked ? 1 : 0, track: state.track, samples: state.samples.at(-1)?.number ?? 0, changes: state.change });
  let picture;
  try {
    const answer = await fetch(`api/picture?${query}`, { signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    picture = await answer.json();
  } catch {
    if (number === state.asked) say([`The dashboard does not answer. ${state.at ? `What is shown is of ${time(state.at)}.` : ""}`]);
    return;
  }
  if (number !== state.asked) return; // a later question has been asked meanwhile
  if (state.run && picture.run !== state.run) {
    Object.assign(state, { run: picture.run, samples: [], change: 0 });
    incidents.clear();
    await ask(); // another process: it counts from one
    return;
  }
  state.run = picture.run;
  take(picture);
}

function take(picture) {
  Object.assign(state, { picture, at: picture.at });
  state.samples.push(...picture.samples);
  while (state.samples.length && picture.at - state.samples[0].at > KEPT_S) state.samples.shift();
  state.change = Math.max(state.change, ...picture.incidents.map((incident) => incident.number));
  incidents.add(picture.incidents);
  say(picture.problems);
  draw();
  panel.draw(picture.nodes);
}

async function live() {
  for (;;) {
    const began = performance.now();
    await ask();
    await new Promise((wake) => setTimeout(wake, Math.max(100, EACH_MS - (performance.now() - began))));
  }
}

// -- drawing --------------------------------------------------------------------------------------

function draw() {
  const { picture } = state;
  if (!picture) return;
  const tree = picture.tree && picture.tree.track === state.track ? picture.tree : null;
  const links = state.control ? picture.links : picture.links.filter((link) => link.mode !== "control");
  topology.draw(picture.nodes, links, tree, state.relay);
  const mode = topology.modeFor(picture.nodes);
  the("as-map").setAttribute("aria-pressed", mode === "map");
  the("as-graph").setAttribute("aria-pressed", mode === "graph");
  tracks.draw(picture, state.track, state.words);
  drawRelays(the("relays"), picture.nodes, state.relay, chooseRelay, picture.at);
  plots[1].name(state.track ? "Latency: of this track, by relay" : "Latency: sRTT of links");
  for (const plot of plots) plot.draw(state.samples, picture.at);
  drawFigures(picture);
  drawChosen(tree);
}

function drawFigures(picture) {
  const live = picture.nodes.filter((node) => node.state === "live").length;
  const dead = picture.nodes.filter((node) => node.state === "dead").length;
  const last = state.samples.slice(-5);
  the("figure-relays").textContent = dead ? `${live} live, ${dead} gone` : `${live} live`;
  the("figure-relays").classList.toggle("bad", dead > 0);
  the("figure-tracks").textContent = count(picture.tracks_total);
  the("figure-delivered").textContent = rate(mean(last.map((sample) => sample.delivered_bps)) ?? 0);
  the("figure-lost").textContent = count(picture.lost_objects);
  the("figure-lost").classList.toggle("bad", picture.lost_objects > 0);
  the("figure-loss").textContent = percent(mean(last.map((sample) => sample.loss)));
}

function drawChosen(tree) {
  the("chosen").hidden = !state.track;
  if (!state.track) return;
  the("chosen-name").textContent = trackName(tree ?? { track: state.track });
  the("chosen-words").textContent = tree ? treeWords(tree) : "…";
}

function treeWords(tree) {
  if (!tree.nodes.length) return "is carried by no relay now";
  const copies = tree.links.reduce((sum, link) => sum + link.copies, 0);
  const readers = tree.nodes.reduce((sum, node) => sum + node.subscribers, 0);
  const origins = tree.nodes.filter((node) => node.origin).map((node) => node.id);
  return `${origins.length ? `from ${origins.join(", ")}` : "has no publisher"} · ${rate(tree.rate_bps ?? 0)} · ${many(copies, "copy", "copies")} between ${many(tree.nodes.length, "relay")} · ${many(readers, "subscriber")}`;
}

function say(problems) {
  const root = the("problems");
  const words = problems.length > 3 ? [...problems.slice(0, 3), `and ${many(problems.length - 3, "more relay")} with problems.`] : problems;
  root.hidden = !words.length;
  if (root.innerText !== words.join("\n")) root.replaceChildren(...words.map((text) => Object.assign(document.createElement("p"), { textContent: text })));
}

// -- choosing -------------------------------------------------------------------------------------

function chooseTrack(track) {
  state.track = track === state.track ? "" : track;
  draw();
  ask();
}

function chooseRelay(node) {
  state.relay = node === state.relay ? null : node;
  if (state.relay) panel.open(state.relay);
  else panel.close();
  draw();
  if (state.picture) panel.draw(state.picture.nodes);
}

function drawAs(mode) {
  topology.mode = mode;
  draw();
}

function turnTo(shown) {
  for (const name of ["tracks", "relays"]) {
    the(`tab-${name}`).setAttribute("aria-selected", name === shown);
    the(`list-${name}`).hidden = name !== shown;
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  the("theme").setAttribute("aria-label", theme === "dark" ? "Switch to light" : "Switch to dark");
  the("theme").title = the("theme").getAttribute("aria-label");
}

the("as-map").addEventListener("click", () => drawAs("map"));
the("as-graph").addEventListener("click", () => drawAs("graph"));
the("tab-tracks").addEventListener("click", () => turnTo("tracks"));
the("tab-relays").addEventListener("click", () => turnTo("relays"));
the("chosen-clear").addEventListener("click", () => chooseTrack(state.track));
the("search").addEventListener("input", (event) => {
  state.words = event.target.value.trim();
  ask();
});
the("own").addEventListener("change", ask);
the("theme").addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", theme);
  setTheme(theme);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (state.relay) chooseRelay(state.relay);
  if (state.track) chooseTrack(state.track);
});
drawLegend(the("legend"), {
  onControl: (shown) => {
    state.control = shown;
    draw();
  },
});
const stored = localStorage.getItem("theme");
if (stored === "light" || stored === "dark") setTheme(stored);
live();
