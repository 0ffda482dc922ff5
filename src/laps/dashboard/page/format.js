// Figures in words: at most three digits and a unit.

const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`;
}

export const rate = (bps) => (bps < 1 ? "0" : scaled(bps, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000));
export const bytes = (count) => scaled(count ?? 0, ["B", "kB", "MB", "GB", "TB"], 1000);
export const count = (number) => Number(number ?? 0).toLocaleString("en");

export function ms(us) {
  if (us === null || us === undefined || us <= 0) return "–";
  const value = us / 1000;
  return `${value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value === 0 ? "0" : value < 0.1 ? value.toFixed(3) : value < 10 ? value.toFixed(2) : value.toFixed(0)} %`;
}

export const time = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

export function when(at) {
  const day = new Date(at * 1000);
  const today = new Date().toDateString() === day.toDateString();
  return today ? time(at) : `${day.toISOString().slice(0, 10)} ${time(at)}`;
}

export function lasting(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

// Names are others' words: what a page would act on, or not show, is written as its bytes. Relays do the same (laps.names.visible).
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const hex = (byte) => `\\x${byte.toString(16).padStart(2, "0")}`;
export const visible = (text) => String(text ?? "").replace(HIDDEN, (found) => Array.from(new TextEncoder().encode(found), hex).join(""));

export const trackName = (row) => (row.namespace || row.name ? visible(`${row.namespace} ${row.name}`.trim()) : `#${row.track}`);

export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

// Steps of the colours of links: up to so many bits a second.
export const STEPS = [
  [1e4, "idle"],
  [1e5, "< 100k"],
  [1e6, "< 1M"],
  [1e7, "< 10M"],
  [1e8, "< 100M"],
  [Infinity, "more bit/s"],
];
export const step = (bps) => STEPS.findIndex(([limit]) => bps < limit);

// An element with text in it: what relays say is text, never HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
