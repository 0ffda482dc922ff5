// One relay: its tables as it has them now, asked anew each second while they are looked at.

import { bytes, count, element, lasting, ms, percent, rate, trackName, when } from "./format.js";
import { stateWords } from "./topology.js";

const path = (row) => (row ? [row.peer, ...(row.hops ?? []).filter((hop) => hop !== row.peer)].join(" → ") : "none");

// For each table: its list, and columns of title, words of a row, and
// true for a number or "long" for what may take several lines.
const TABLES = {
  peers: {
    columns: [
      ["peer", (row) => row.node],
      ["role", (row) => row.role],
      ["for", (row) => row.mode],
      ["sRTT", (row) => ms(row.srtt_us), true],
      ["out", (row, look) => rate(look.speed(`out ${row.node}`, row.sent_bytes)), true],
      ["in", (row, look) => rate(look.speed(`in ${row.node}`, row.received_bytes)), true],
      ["lost", (row) => (row.sent_packets ? percent(row.lost_packets / row.sent_packets) : "–"), true],
      ["waits", (row) => bytes(row.queue_bytes), true],
      ["leads to", (row) => count(row.leads_to), true],
      ["address", (row) => row.address],
    ],
    none: "It has no peers.",
  },
  nodes: {
    columns: [
      ["node", (row) => row.node],
      ["role", (row) => row.role],
      ["best path", (row) => path(row.best), "long"],
      ["sRTT", (row) => ms(row.best?.srtt_us), true],
      ["why", (row) => row.reason, "long"],
      ["others", (row) => count(row.alternates?.length), true],
    ],
    none: "It knows no other nodes.",
  },
  tracks: {
    columns: [
      ["track", trackName, "long"],
      ["rate", (row, look) => rate(look.speed(`track ${row.track}`, row.received_bytes)), true],
      ["subs", (row) => count(row.subscribers), true],
      ["from", (row) => (row.origin ? "its publisher" : row.ingress?.join(", "))],
      ["to", (row) => row.egress?.join(", ")],
      ["cached", (row) => bytes(row.cached_bytes), true],
    ],
    none: "It carries no tracks.",
  },
  clients: {
    columns: [
      ["client", (row) => row.client],
      ["protocol", (row) => row.protocol],
      ["over", (row) => row.transport],
      ["sRTT", (row) => ms(row.srtt_us), true],
      ["to it", (row, look) => rate(look.speed(`to ${row.client}`, row.sent_bytes)), true],
      ["from it", (row, look) => rate(look.speed(`from ${row.client}`, row.received_bytes)), true],
      ["subscribes", (row) => count(row.subscribes), true],
      ["publishes", (row) => count(row.publishes), true],
      ["dropped", (row) => count(row.dropped_groups), true],
      ["for", (row, look) => lasting(look.now - row.since), true],
      ["address", (row) => row.address],
    ],
    none: "It has no clients.",
  },
  demand: {
    columns: [
      ["kind", (row) => row.kind],
      ["node", (row) => row.node || row.contact],
      ["state", (row) => row.state],
      ["region", (row) => row.region || "–"],
      ["helps", (row) => count(row.flows), true],
      ["why", (row) => row.why, "long"],
    ],
    none: "It has dialled nobody on demand.",
  },
  policy: {
    columns: [
      ["table", (row) => row.kind.replaceAll("_", " ")],
      ["of", (row) => row.what, "long"],
      ["holds", (row) => row.holds, "long"],
    ],
    none: "It has no policy: everything is allowed.",
  },
  counters: {
    rows: (answer) =>
      Object.entries(answer).flatMap(([room, counters]) =>
        counters && typeof counters === "object" ? Object.entries(counters).map(([name, value]) => ({ room, name, value })) : [],
      ),
    columns: [
      ["of", (row) => row.room],
      ["counter", (row) => row.name.replaceAll("_", " ")],
      ["count", (row) => (typeof row.value === "number" ? count(row.value) : JSON.stringify(row.value)), true],
    ],
    none: "It has counted nothing.",
  },
  closes: {
    rows: (answer) => [...(answer.closes ?? [])].sort((a, b) => b.at - a.at),
    columns: [
      ["at", (row) => when(row.at)],
      ["kind", (row) => row.kind],
      ["who", (row) => row.who],
      ["by", (row) => (row.by_peer ? "the other side" : "this relay")],
      ["code", (row) => row.code, true],
      ["reason", (row) => row.reason, "long"],
    ],
    none: "No connection has ended.",
  },
  node: {
    rows: (answer) => Object.entries(answer).map(([name, value]) => ({ name, value })),
    columns: [
      ["", (row) => row.name.replaceAll("_", " ")],
      ["", (row) => valueWords(row), "long"],
    ],
    none: "",
  },
};
const TITLES = { node: "About" };

function valueWords({ name, value }) {
  if (name.endsWith("_bytes") && typeof value === "number") return bytes(value);
  if (name === "since" && typeof value === "number") return when(value);
  if (value && typeof value === "object") return Object.entries(value).map(([key, item]) => `${key} ${typeof item === "number" ? count(item) : JSON.stringify(item)}`).join(", ");
  return value === null || value === "" ? "–" : String(value);
}

export class Panel {
  constructor(root, onClose) {
    const part = (id) => root.querySelector(`#panel-${id}`);
    Object.assign(this, { root, title: part("title"), words: part("words"), tabs: part("tabs"), body: part("body"), node: null, view: "peers", before: new Map() });
    part("close").addEventListener("click", onClose);
    for (const view of Object.keys(TABLES)) {
      const tab = element("button", { type: "button", role: "tab", "data-view": view, "aria-controls": "panel-body" }, TITLES[view] ?? view[0].toUpperCase() + view.slice(1));
      tab.addEventListener("click", () => this.turnTo(view));
      this.tabs.append(tab);
    }
  }

  open(node) {
    if (node === this.node) return;
    this.node = node;
    this.root.hidden = false;
    this.title.focus({ preventScroll: true });
    this.turnTo(this.view);
  }

  close() {
    this.node = null;
    this.root.hidden = true;
  }

  turnTo(view) {
    this.view = view;
    this.before.clear();
    this.shown = "";
    for (const tab of this.tabs.children) tab.setAttribute("aria-selected", tab.dataset.view === view);
    this.body.replaceChildren(element("p", { class: "note" }, "…"));
    this.ask();
  }

  // What is drawn of it, and its newest table.
  draw(nodes) {
    if (!this.node) return;
    const node = nodes.find((row) => row.id === this.node);
    this.title.textContent = this.node;
    const words = node ? [node.role, node.region, stateWords(node), node.version && `version ${node.version}`] : ["it is no longer known"];
    this.words.textContent = words.filter(Boolean).join(" · ");
    this.ask();
  }

  async ask() {
    const [node, view] = [this.node, this.view];
    const query = new URLSearchParams({ node, view });
    let answer;
    try {
      answer = await (await fetch(`api/relay?${query}`, { signal: AbortSignal.timeout(5000) })).json();
    } catch {
      return; // the page says already that the dashboard does not answer
    }
    if (node === this.node && view === this.view) this.show(answer);
  }

  show(answer) {
    this.now = Date.now() / 1000;
    if (answer.error) {
      this.body.replaceChildren(element("p", { class: "note" }, answer.error));
      return;
    }
    const table = TABLES[this.view];
    const rows = table.rows ? table.rows(answer) : (answer[this.view] ?? []);
    const parts = rows.length ? [this.table(table.columns, rows)] : [element("p", { class: "note" }, table.none)];
    if (answer.total > rows.length) parts.push(element("p", { class: "note" }, `The first ${rows.length} of ${count(answer.total)}; “laps show” has them all.`));
    const [left, top] = [this.body.scrollLeft, this.body.scrollTop];
    this.body.replaceChildren(...parts);
    this.body.scrollTo(left, top);
  }

  table(columns, rows) {
    const side = (kind) => (kind ? { class: kind === true ? "number" : kind } : {});
    const head = columns.some(([title]) => title) ? [element("thead", {}, element("tr", {}, ...columns.map(([title, , number]) => element("th", { scope: "col", ...side(number) }, title))))] : [];
    const body = rows.map((row) => element("tr", {}, ...columns.map(([, words, number]) => element("td", side(number), String(words(row, this) ?? "–") || "–"))));
    return element("table", {}, ...head, element("tbody", {}, ...body));
  }

  // Bits a second, of a count of bytes and the one before it.
  speed(key, amount) {
    const before = this.before.get(key);
    if (before && this.now - before.at < 0.5) return before.rate;
    const grown = before ? (8 * (amount - before.amount)) / (this.now - before.at) : 0;
    this.before.set(key, { at: this.now, amount, rate: Math.max(0, grown) });
    return Math.max(0, grown);
  }
}
