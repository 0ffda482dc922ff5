// The page: what is asked for goes to a relay (moqt.js), and what comes back is shown.

import { ConnectError, connect } from "./moqt.js";

const FIELDS = ["url", "sha256", "token", "namespace", "track"];
// Addresses are kept in histories and logs, so they fill in all fields but the token.
const IN_ADDRESS = FIELDS.filter((name) => name !== "token");
const PARTS = ["canvas", "writing", "found", "lines", "figures"];
const LINES_SHOWN = 500;
const FRAMES_PER_SECOND = 10;
const LINES_PER_GROUP = 50;
const FIGURES_MS = 500;

const $ = (id) => document.getElementById(id);
const { elements } = $("form");
const buttons = ["play", "pictures", "text", "list"].map((name) => elements[name]);

// What goes on now: { session, end }, or null.
let current = null;

// --- what is on the page -------------------------------------------------------------------------

function say(text) {
  $("status").textContent = text;
}

function complain(text) {
  $("error").textContent = text;
  $("error").hidden = !text;
}

function show(...ids) {
  for (const id of PARTS) $(id).hidden = !ids.includes(id);
}

function asked() {
  const values = Object.fromEntries(FIELDS.map((name) => [name, elements[name].value.trim()]));
  return { ...values, namespace: values.namespace.split("/").filter((part) => part) };
}

// Why there is no session. Browsers keep it from pages, so that these cannot look around in a
// network: all that can be said is what to look at.
function explain(error, { url, sha256 }) {
  if (!window.isSecureContext) {
    return (
      "Browsers allow WebTransport on secure pages only: open this one at http://127.0.0.1, or by " +
      "https."
    );
  }
  if (!globalThis.WebTransport) {
    return (
      "This browser has no WebTransport: Chrome, Edge and Firefox have it, and Safari since 26.4."
    );
  }
  if (!(error instanceof ConnectError && error.handshake)) return `${error.message}.`;
  const address = /\/\/localhost\b/.test(url)
    ? "localhost may be ::1 here, where the relay does not listen: write 127.0.0.1."
    : "No relay listens there, or UDP does not get through: see clients= in its ready line.";
  const certificate = sha256
    ? `Its certificate is not the one with the SHA-256 ${sha256.slice(0, 8)}…: a relay makes a ` +
      "new one whenever it starts, and says which behind sha256= in its ready line."
    : "Its certificate is signed by nobody whom this browser trusts: then give its SHA-256, " +
      "which is behind sha256= in the relay's ready line.";
  return (
    `No session with ${url}. A browser does not tell a page why; it is one of these:\n` +
    `• ${address}\n• ${certificate}\nThe browser's console (F12) has the reason.`
  );
}

// --- figures -------------------------------------------------------------------------------------

class Figures {
  #count = 0;
  #skipped = 0;
  #window = { since: performance.now(), objects: 0, bytes: 0 };
  #timer = setInterval(() => this.#tick(), FIGURES_MS);

  saw({ group, id, payload }) {
    this.#count += 1;
    this.#window.objects += 1;
    this.#window.bytes += payload.length;
    $("group").textContent = group;
    $("object").textContent = id;
    $("count").textContent = this.#count;
  }

  skipped(count = 1) {
    this.#skipped += count;
    $("skipped").textContent = this.#skipped;
  }

  stop() {
    clearInterval(this.#timer);
  }

  #tick() {
    const now = performance.now();
    const { since, objects, bytes } = this.#window;
    $("rate").textContent = ((objects * 1000) / (now - since)).toFixed(1);
    $("bitrate").textContent = ((bytes * 8) / (now - since)).toFixed(0);
    this.#window = { since: now, objects: 0, bytes: 0 };
  }
}

// --- objects -------------------------------------------------------------------------------------

// The type of a picture by its first bytes, or null.
function pictureType(bytes) {
  const begins = (offset, ...wanted) => wanted.every((byte, at) => bytes[offset + at] === byte);
  if (begins(0, 0xff, 0xd8, 0xff)) return "image/jpeg";
  if (begins(0, 0x89, 0x50, 0x4e, 0x47)) return "image/png";
  if (begins(0, 0x52, 0x49, 0x46, 0x46) && begins(8, 0x57, 0x45, 0x42, 0x50)) return "image/webp";
  return null;
}

function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    const head = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0"));
    return `${bytes.length} bytes: ${head.join(" ")}${bytes.length > 16 ? " …" : ""}`;
  }
}

function addLine(text) {
  const line = document.createElement("li");
  line.textContent = text;
  $("lines").append(line);
  while ($("lines").childElementCount > LINES_SHOWN) $("lines").firstElementChild.remove();
  line.scrollIntoView({ block: "nearest" });
}

function paint(picture) {
  const canvas = $("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
}

// Draws pictures, one at a time. Those that come meanwhile replace each other, and none is drawn
// over a later one: what is shown is always the latest there is time for.
class Painter {
  #figures;
  #next = null;
  #busy = false;
  #drawn = { group: -1, id: -1 };

  constructor(figures) {
    this.#figures = figures;
  }

  async offer(object, type) {
    if (this.#next) this.#figures.skipped();
    this.#next = { object, type };
    if (this.#busy) return;
    this.#busy = true;
    while (this.#next) {
      const { object, type } = this.#next;
      this.#next = null;
      await this.#draw(object, type);
    }
    this.#busy = false;
  }

  async #draw(object, type) {
    const { group, id } = this.#drawn;
    if (object.group < group || (object.group === group && object.id < id)) {
      this.#figures.skipped();
      return;
    }
    try {
      const picture = await createImageBitmap(new Blob([object.payload], { type }));
      paint(picture);
      picture.close();
      this.#drawn = object;
    } catch {
      this.#figures.skipped(); // not what its first bytes say
    }
  }
}

// --- what the buttons do -------------------------------------------------------------------------

async function play(session, { namespace, track }) {
  const subscription = await session.subscribe(namespace, track);
  const figures = new Figures();
  const painter = new Painter(figures);
  const watch = async () => {
    for await (const object of subscription) {
      const type = pictureType(object.payload);
      figures.saw(object);
      if (type) {
        show("canvas", "figures");
        painter.offer(object, type);
      } else {
        show("lines", "figures");
        addLine(textOf(object.payload));
      }
    }
    figures.stop();
    if (subscription.done) await stop("The track has ended.");
  };
  show("figures");
  say(`Playing ${namespace.join("/")} ${track}.`);
  watch();
  return () => subscription.end();
}

// Each picture is a group of its own, so that a viewer may begin with any of them.
async function publishPictures(session, { namespace, track }) {
  const published = await session.publish(namespace, track);
  const figures = new Figures();
  let going = true;
  const draw = async () => {
    for (let number = 0; going; number++) {
      const due = performance.now() + 1000 / FRAMES_PER_SECOND;
      const picture = await drawPicture(number);
      figures.saw({ group: number, id: 0, payload: picture });
      await published.write(picture, { newGroup: true });
      await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    }
  };
  show("canvas", "figures");
  say(`Publishing pictures as ${namespace.join("/")} ${track}.`);
  draw();
  return async () => {
    going = false;
    figures.stop();
    await published.end();
  };
}

// A ball that goes round, and the time.
async function drawPicture(number) {
  const picture = new OffscreenCanvas(320, 180);
  const context = picture.getContext("2d");
  const angle = (number / FRAMES_PER_SECOND) * 2;
  context.fillStyle = "#12304f";
  context.fillRect(0, 0, 320, 180);
  context.fillStyle = "#ffb020";
  context.beginPath();
  context.arc(160 + 110 * Math.cos(angle), 90 + 50 * Math.sin(angle), 18, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = "#ffffff";
  context.font = "20px monospace";
  context.textAlign = "center";
  context.fillText(new Date().toLocaleTimeString(), 160, 97);
  paint(picture);
  const blob = await picture.convertToBlob({ type: "image/jpeg", quality: 0.8 });
  return new Uint8Array(await blob.arrayBuffer());
}

// A late reader is given the lines of the group so far.
async function publishText(session, { namespace, track }) {
  const published = await session.publish(namespace, track);
  let number = 0;
  $("writing").onsubmit = (event) => {
    event.preventDefault();
    const { line } = $("writing").elements;
    if (!line.value) return;
    published.write(line.value, { newGroup: number % LINES_PER_GROUP === 0 });
    number += 1;
    addLine(line.value);
    line.value = "";
  };
  show("writing", "lines");
  say(`Publishing text as ${namespace.join("/")} ${track}.`);
  $("writing").elements.line.focus();
  return () => published.end();
}

async function list(session, { namespace: prefix }) {
  const entries = new Map();
  $("found").replaceChildren();
  const watch = await session.watch(prefix, ({ namespace, name, gone }) => {
    const path = namespace.join("/");
    const key = JSON.stringify([path, name]);
    if (gone) entries.get(key)?.remove();
    if (gone || entries.get(key)?.isConnected) return;
    const entry = document.createElement("li");
    const choose = document.createElement("button");
    choose.type = "button";
    choose.textContent = name === null ? `${path}/` : `${path} ${name}`;
    choose.onclick = async () => {
      await stop("Ready.");
      elements.namespace.value = path;
      if (name !== null) {
        elements.track.value = name;
        await start(play);
      }
    };
    entry.append(choose);
    entries.set(key, entry);
    $("found").append(entry);
  });
  show("found");
  say(prefix.length ? `Below ${prefix.join("/")}:` : "All there is:");
  return () => watch.end();
}

// --- beginning and end ---------------------------------------------------------------------------

async function start(activity) {
  await stop("");
  const wanted = asked();
  complain("");
  $("lines").replaceChildren();
  for (const button of buttons) button.disabled = true;
  elements.stop.disabled = false;
  say(`Connecting to ${wanted.url}`);
  const mine = (current = { session: null, end: async () => {} });
  try {
    const session = await connect(wanted.url, { sha256: wanted.sha256, token: wanted.token });
    mine.session = session;
    if (current !== mine) return session.close(); // stopped meanwhile
    session.ongoaway = () => say("The relay is about to stop.");
    session.closed.then(({ code, reason }) => {
      if (current === mine) failed(`The relay ended the session${ending(code, reason)}`);
    });
    mine.end = await activity(session, wanted);
  } catch (error) {
    if (current === mine) failed(explain(error, wanted));
  }
}

function ending(code, reason) {
  if (code === null) return `: the connection was lost (${reason}).`;
  return `, with code ${code}${reason ? `: ${reason}` : ""}.`;
}

function failed(text) {
  complain(text);
  stop("Stopped.");
}

async function stop(text) {
  const over = current;
  current = null;
  for (const button of buttons) button.disabled = false;
  elements.stop.disabled = true;
  if (text) say(text);
  if (!over) return;
  await over.end().catch(() => {});
  over.session?.close();
}

for (const [name, value] of new URLSearchParams(location.search)) {
  if (IN_ADDRESS.includes(name)) elements[name].value = value;
}
$("form").onsubmit = (event) => {
  event.preventDefault();
  start(play);
};
elements.pictures.onclick = () => start(publishPictures);
elements.text.onclick = () => start(publishText);
elements.list.onclick = () => start(list);
elements.stop.onclick = () => stop("Stopped.");
window.addEventListener("pagehide", () => current?.session?.close());

if (!globalThis.WebTransport) complain(explain(new Error(), asked()));
else if (new URLSearchParams(location.search).get("autoplay") === "1") start(play);
