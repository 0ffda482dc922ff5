// Tracks of a session (moqt.js): Subscription is one that is read, Track one that is written.

import { DoneCode, Message, ResetCode } from "./codes.js";
import { Writer, concat, toBytes } from "./wire.js";

// Objects that wait for whoever reads a subscription. Behind them streams wait, unread, and so does
// their sender; datagrams are dropped.
const QUEUED_OBJECTS = 64;

// Streams may come this long behind the PUBLISH_DONE that speaks of them.
const LATE_STREAMS_MS = 2000;

// `for await (const object of subscription)`, until the track ends. An object has group, id and
// payload; fetched or datagram say how it came, if not on a stream of its subgroup.
export class Subscription {
  alias = null;
  // The location of the last object that there was when it began, or null.
  largest = null;
  // The publisher says that the track has ended, and why.
  done = null;
  // Datagrams that nobody had time for.
  dropped = 0;

  #session;
  #queue = new Queue(QUEUED_OBJECTS);
  #fetched = Promise.resolve();
  #streams = { begun: 0, open: 0, expected: Infinity };

  constructor(session, id) {
    this.#session = session;
    this.id = id;
  }

  [Symbol.asyncIterator]() {
    return this.#queue[Symbol.asyncIterator]();
  }

  // No more of it.
  async end() {
    if (this.#queue.closed) return;
    this._finish();
    await this.#session._send(Message.UNSUBSCRIBE, new Writer().varint(this.id));
  }

  // What came before the subscription is being fetched: it goes ahead of everything else.
  _fetching() {
    this.#fetched = new Promise((resolve) => (this._fetched = resolve));
  }

  _fetched = () => {};

  // A stream, behind its type and alias:
  //   group | subgroup, in one of the modes | priority(1), unless it is the track's
  //   and for each object: id, minus that before, minus 1 | extensions | payload, or 0 and a status
  async _read(type, reader) {
    this.#streams.begun += 1;
    this.#streams.open += 1;
    try {
      const group = await reader.varint();
      if (type & 0x04) await reader.varint();
      if (!(type & 0x20)) await reader.u8();
      let id = -1;
      while (!(await reader.atEnd())) {
        id += (await reader.varint()) + 1;
        if (type & 0x01) await reader.bytes();
        const payload = await reader.bytes();
        const status = payload.length ? 0 : await reader.varint();
        await this.#fetched;
        if (status === 0) await this._put({ group, id, payload });
        if (this.#queue.closed) return await reader.cancel(ResetCode.CANCELLED);
      }
    } finally {
      this.#streams.open -= 1;
      this.#maybeFinish();
    }
  }

  _put(object) {
    return this.#queue.put(object);
  }

  _offer(object) {
    if (!this.#queue.offer(object)) this.dropped += 1;
  }

  // All has been sent, on so many streams, some of which may still be on their way.
  _done(code, streams, reason) {
    this.done = { code, reason };
    this.#streams.expected = streams;
    this.#maybeFinish();
    setTimeout(() => this._finish(), LATE_STREAMS_MS);
  }

  #maybeFinish() {
    if (this.#streams.open === 0 && this.#streams.begun >= this.#streams.expected) this._finish();
  }

  _finish() {
    this.#queue.close();
    this._fetched();
    this.#session._forget(this);
  }
}

// Each group goes on a stream of its own.
export class Track {
  // Resolved when it has ended, or nobody wants it any more.
  closed = new Promise((resolve) => (this._close = resolve));

  #session;
  #group;
  #id = -1; // the last object of the group,
  #streamed = -1; // and the last of those that went on its stream
  #stream = null;
  #streams = 0;
  #over = false;
  #turn = Promise.resolve();

  // Groups count on from the time: a publisher that comes back does not use any of them twice.
  constructor(session, id, alias, firstGroup = Date.now()) {
    this.#session = session;
    this.id = id;
    this.alias = alias;
    this.#group = firstGroup - 1;
  }

  // The next object, of the same group or the first of the next one.
  write(payload, { newGroup = false } = {}) {
    return this.#next(() => this.#write(toBytes(payload), newGroup));
  }

  // The next object, in a datagram: quick, and lost if it does not fit or does not arrive.
  datagram(payload, { newGroup = false } = {}) {
    return this.#next(() => this.#datagram(toBytes(payload), newGroup));
  }

  // There will be no more of it.
  end() {
    return this.#next(async () => {
      await this.#endGroup();
      const done = new Writer().varint(this.id).varint(DoneCode.TRACK_ENDED);
      await this.#session._send(Message.PUBLISH_DONE, done.varint(this.#streams).bytes(""));
      this._finish();
    });
  }

  _finish() {
    this.#over = true;
    const reason = { message: "not wanted", streamErrorCode: ResetCode.CANCELLED };
    this.#stream?.abort(new WebTransportError(reason)).catch(() => {});
    this.#stream = null;
    this.#session._forget(this);
    this._close();
  }

  // One thing at a time, in the order of the calls; nothing once it is over.
  #next(work) {
    const done = this.#turn.then(() => (this.#over ? undefined : work()));
    this.#turn = done.catch(() => {});
    return done;
  }

  async #write(payload, newGroup) {
    this.#begin(newGroup);
    if (this.#streamed === -1) await this.#openStream();
    const head = new Writer().varint(++this.#id - this.#streamed - 1).varint(payload.length);
    if (payload.length === 0) head.varint(0); // a status: it is an object like any other
    this.#streamed = this.#id;
    try {
      await this.#stream?.ready;
      this.#stream?.write(concat([head.done(), payload])).catch(() => {});
    } catch {
      this.#stream = null; // the relay wants no more of this group
    }
  }

  // type | alias | group; the type says that the priority is the track's, that the subgroup is 0,
  // and that its end is the end of the group
  async #openStream() {
    const writable = await this.#session.transport.createUnidirectionalStream();
    this.#streams += 1;
    this.#stream = writable.getWriter();
    this.#stream.closed.catch(() => {});
    const header = new Writer().varint(0x38).varint(this.alias).varint(this.#group);
    this.#stream.write(header.done()).catch(() => {});
  }

  // type | alias | group | object | payload; the priority is the track's
  async #datagram(payload, newGroup) {
    this.#begin(newGroup);
    const head = new Writer().varint(0x08).varint(this.alias).varint(this.#group);
    await this.#session._sendDatagram(concat([head.varint(++this.#id).done(), payload]));
  }

  #begin(newGroup) {
    if (!newGroup && this.#id !== -1) return;
    this.#endGroup(); // not awaited: a group need not wait for the last bytes of the one before
    this.#group += 1;
    this.#id = this.#streamed = -1;
  }

  async #endGroup() {
    const stream = this.#stream;
    this.#stream = null;
    await stream?.close().catch(() => {});
  }
}

// Objects on their way to whoever reads them.
class Queue {
  closed = false;

  #items = [];
  #limit;
  #writers = []; // wait for room
  #wakeReader = () => {};

  constructor(limit) {
    this.#limit = limit;
  }

  // Resolved when the item is in it, or nobody will read it.
  async put(item) {
    while (!this.offer(item) && !this.closed) {
      await new Promise((resolve) => this.#writers.push(resolve));
    }
  }

  // Whether there was room.
  offer(item) {
    if (this.closed || this.#items.length >= this.#limit) return false;
    this.#items.push(item);
    this.#wakeReader();
    return true;
  }

  // What is in it can still be read.
  close() {
    this.closed = true;
    this.#wakeReader();
    for (const wake of this.#writers.splice(0)) wake();
  }

  async *[Symbol.asyncIterator]() {
    while (true) {
      while (this.#items.length) {
        const item = this.#items.shift();
        this.#writers.shift()?.();
        yield item;
      }
      if (this.closed) return;
      await new Promise((resolve) => (this.#wakeReader = resolve));
    }
  }
}
