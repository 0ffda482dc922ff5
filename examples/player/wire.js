// The bytes of MoQT (draft-ietf-moq-transport-16): written with Writer, read with Cursor where all
// of them are there, and with StreamReader where they are still coming.
//
// A var-int is a Number as long as that is exact, and a BigInt from 2^53 on: track aliases are
// often hashes of 62 bits, and both kinds serve as keys of a Map.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const toBytes = (value) => (typeof value === "string" ? encoder.encode(value) : value);
export const toText = (bytes) => decoder.decode(bytes);

// What an object may have: anybody could publish one that fills the memory of the page.
export const MAX_PAYLOAD_BYTES = 64 * 1024 * 1024;

// The other side wrote something that nobody can read: the session is over.
export class ProtocolViolation extends Error {}

export function concat(chunks) {
  if (chunks.length === 1) return chunks[0];
  const whole = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.length, 0));
  let offset = 0;
  for (const chunk of chunks) {
    whole.set(chunk, offset);
    offset += chunk.length;
  }
  return whole;
}

// --- var-ints ------------------------------------------------------------------------------------

// The two highest bits of the first byte say how long it is: 1, 2, 4 or 8 bytes.

export function encodeVarint(value) {
  const bytes = new Uint8Array(8);
  const view = new DataView(bytes.buffer);
  if (value < 2 ** 6) {
    view.setUint8(0, Number(value));
    return bytes.subarray(0, 1);
  }
  if (value < 2 ** 14) {
    view.setUint16(0, Number(value) + 0x4000);
    return bytes.subarray(0, 2);
  }
  if (value < 2 ** 30) {
    view.setUint32(0, Number(value) + 0x80000000);
    return bytes.subarray(0, 4);
  }
  view.setBigUint64(0, BigInt(value) | (3n << 62n));
  return bytes;
}

export const varintLength = (first) => 1 << (first >> 6);

export function decodeVarint(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  switch (bytes.length) {
    case 1:
      return view.getUint8(0);
    case 2:
      return view.getUint16(0) & 0x3fff;
    case 4:
      return view.getUint32(0) & 0x3fffffff;
  }
  const value = view.getBigUint64(0) & ((1n << 62n) - 1n);
  return value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

// --- writing -------------------------------------------------------------------------------------

export class Writer {
  #parts = [];

  varint(value) {
    return this.raw(encodeVarint(value));
  }

  // Bytes as they are.
  raw(bytes) {
    this.#parts.push(bytes);
    return this;
  }

  // Bytes, or text, behind their length.
  bytes(value) {
    const bytes = toBytes(value);
    return this.varint(bytes.length).raw(bytes);
  }

  // A sequence of parts, each of text or bytes.
  namespace(parts) {
    this.varint(parts.length);
    for (const part of parts) this.bytes(part);
    return this;
  }

  // Pairs of a type and a value: a number if the type is even, and bytes if it is odd. Each type is
  // written as its distance from the one before, so they go in order.
  parameters(...pairs) {
    this.varint(pairs.length);
    let last = 0;
    for (const [type, value] of pairs.sort(([a], [b]) => a - b)) {
      this.varint(type - last);
      last = type;
      if (type % 2) this.bytes(value);
      else this.varint(value);
    }
    return this;
  }

  done() {
    return concat(this.#parts);
  }

  // type(var-int) | length(2) | payload
  message(type) {
    const payload = this.done();
    const length = new Uint8Array([payload.length >> 8, payload.length & 0xff]);
    return concat([encodeVarint(type), length, payload]);
  }
}

// --- reading what is there -----------------------------------------------------------------------

export class Cursor {
  #bytes;
  #offset = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  take(size) {
    const end = this.#offset + Number(size);
    if (end > this.#bytes.length) throw new ProtocolViolation("a field is longer than its message");
    const taken = this.#bytes.subarray(this.#offset, end);
    this.#offset = end;
    return taken;
  }

  rest() {
    return this.take(this.#bytes.length - this.#offset);
  }

  u8() {
    return this.take(1)[0];
  }

  varint() {
    const [first] = this.take(1);
    this.#offset -= 1;
    return decodeVarint(this.take(varintLength(first)));
  }

  bytes() {
    return this.take(this.varint());
  }

  text() {
    return toText(this.bytes());
  }

  namespace() {
    return Array.from({ length: Number(this.varint()) }, () => this.text());
  }

  location() {
    return { group: this.varint(), object: this.varint() };
  }

  // A Map from types to values, as Writer.parameters takes them.
  parameters() {
    const found = new Map();
    let type = 0;
    for (let left = this.varint(); left > 0; left--) {
      type += Number(this.varint());
      found.set(type, type % 2 ? this.bytes() : this.varint());
    }
    return found;
  }
}

// --- reading what is coming ----------------------------------------------------------------------

export class StreamReader {
  #reader;
  #held = new Uint8Array();

  constructor(readable) {
    this.#reader = readable.getReader();
  }

  // Whether nothing follows.
  async atEnd() {
    return !(await this.#fill(1));
  }

  async take(size) {
    if (!(await this.#fill(size))) {
      throw new ProtocolViolation("a stream ends in the middle of a field");
    }
    const taken = this.#held.subarray(0, size);
    this.#held = this.#held.subarray(size);
    return taken;
  }

  async u8() {
    return (await this.take(1))[0];
  }

  async varint() {
    const [first] = await this.take(1);
    const length = varintLength(first);
    if (length === 1) return first;
    const rest = await this.take(length - 1);
    return decodeVarint(concat([new Uint8Array([first]), rest]));
  }

  // Bytes behind their length.
  async bytes() {
    const length = await this.varint();
    if (length > MAX_PAYLOAD_BYTES) {
      throw new ProtocolViolation(`an object of ${length} bytes is more than this page takes`);
    }
    return this.take(length);
  }

  // Read no further, and tell the other side so.
  async cancel(streamErrorCode) {
    const reason = new WebTransportError({ message: "not wanted", streamErrorCode });
    await this.#reader.cancel(reason).catch(() => {});
  }

  async #fill(size) {
    const chunks = [this.#held];
    let length = this.#held.length;
    while (length < size) {
      const { value, done } = await this.#reader.read();
      if (done) break;
      chunks.push(value);
      length += value.length;
    }
    this.#held = concat(chunks);
    return length >= size;
  }
}
