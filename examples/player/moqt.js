// A MoQT client (draft-ietf-moq-transport-16) over WebTransport, without dependencies:
//
//   const session = await connect("https://127.0.0.1:4443/", { sha256: "ab12…", token: "ey…" });
//
//   const subscription = await session.subscribe(["demo"], "frames");
//   for await (const { group, id, payload } of subscription) …    // begins with the current group
//   await subscription.end();
//
//   const track = await session.publish(["demo"], "frames");
//   await track.write(bytes, { newGroup: true });
//   await track.end();
//
//   session.close();
//
// Control messages go over one bidirectional stream. Objects come on unidirectional streams, one
// for each subgroup, and in datagrams; those of a FETCH on a stream of their own.

import {
  FETCH_HEADER,
  LARGEST_OBJECT,
  Message,
  OUT_OF_BAND,
  PROTOCOL,
  Parameter,
  RELATIVE_JOINING_FETCH,
  RequestCode,
  ResetCode,
  SessionCode,
  Setup,
  TRACKS_AND_NAMESPACES,
  USE_VALUE,
} from "./codes.js";
import { Subscription, Track } from "./tracks.js";
import { Cursor, ProtocolViolation, StreamReader, Writer, encodeVarint } from "./wire.js";

// What a relay may ask of this page in all. A page does not live long enough to have to allow more.
const MAX_REQUEST_ID = 2 ** 20;

// Live objects wait this long for those that were there before, which go ahead of them.
const JOIN_MS = 5000;

// A request that was refused.
export class RequestError extends Error {
  constructor(code, reason) {
    const known = Object.keys(RequestCode).find((name) => RequestCode[name] === code);
    const name = known ?? `error ${code}`;
    super(reason ? `${reason} (${name})` : name);
    this.code = code;
  }
}

// There is no session. `handshake`: the browser tried, and does not tell a page why it failed.
export class ConnectError extends Error {
  constructor(message, { handshake = false } = {}) {
    super(message);
    this.handshake = handshake;
  }
}

// A session with a relay. `sha256` is the fingerprint of its certificate, for those that no
// authority has signed; browsers want them to be ECDSA, and valid for no more than 14 days. `token`
// is shown to the relay in CLIENT_SETUP, so it is in no URL, and in no log of what URLs were asked.
export async function connect(url, { sha256 = "", token = "", timeoutMs = 10_000 } = {}) {
  if (!globalThis.WebTransport) throw new ConnectError("this browser has no WebTransport");
  const options = { protocols: [PROTOCOL], congestionControl: "low-latency" };
  if (sha256) {
    options.serverCertificateHashes = [{ algorithm: "sha-256", value: parseFingerprint(sha256) }];
  }
  let transport;
  try {
    transport = new WebTransport(url, options);
  } catch (error) {
    throw new ConnectError(`“${url}” cannot be dialled: ${error.message}`);
  }
  transport.closed.catch(() => {});
  const timer = setTimeout(() => transport.close(), timeoutMs);
  try {
    await transport.ready;
  } catch {
    clearTimeout(timer);
    throw new ConnectError(`no session with ${url}`, { handshake: true });
  }
  try {
    if (transport.protocol !== PROTOCOL) {
      throw new Error(`the relay, or this browser, does not speak ${PROTOCOL}`);
    }
    const session = new Session(transport);
    await session._setUp(token);
    return session;
  } catch (error) {
    transport.close();
    throw new ConnectError(`no session with ${url}: ${error.message}`);
  } finally {
    clearTimeout(timer);
  }
}

function parseFingerprint(text) {
  const hex = text.replace(/[\s:]/g, "");
  if (!/^[0-9a-f]{64}$/i.test(hex)) {
    throw new ConnectError(
      `“${text}” is no SHA-256: that has 64 hexadecimal digits, like those behind sha256= in ` +
        "the line that a relay prints when it is ready",
    );
  }
  return Uint8Array.from(hex.match(/../g), (digits) => parseInt(digits, 16));
}

const startsWith = (namespace, prefix) => prefix.every((part, at) => part === namespace[at]);

export class Session {
  // Called with a URI, perhaps empty, when the relay asks its clients to go elsewhere.
  ongoaway = () => {};

  #control;
  #datagrams;
  #nextId = 0;
  #nextAlias = 0;
  #maxRequestId = 0;
  #requests = new Map(); // request id: who waits for the answer
  #subscribing = new Set(); // SUBSCRIBEs without an answer: their aliases are not known yet
  #tracks = new Map(); // request id: Subscription or Track
  #aliases = new Map(); // track alias: Subscription
  #fetches = new Map(); // request id: the Subscription that it is for
  #announced = new Set(); // { namespace, serve }
  #watches = new Set(); // { prefix, tell }

  constructor(transport) {
    this.transport = transport;
    // { code, reason } of the end, whoever brings it about. No code: the connection was lost.
    this.closed = transport.closed.then(
      ({ closeCode, reason }) => ({ code: closeCode ?? 0, reason: reason ?? "" }),
      (error) => ({ code: null, reason: error.message }),
    );
    this.closed.then(({ code, reason }) => this.#over(code, reason));
  }

  // End the session; without a code, as one does when all is well.
  close(code = SessionCode.NO_ERROR, reason = "") {
    this.transport.close({ closeCode: code, reason });
  }

  // -- asking -------------------------------------------------------------------------------------

  // The objects of a track from now on; with `join`, from the beginning of the current group on.
  async subscribe(namespace, name, { join = true } = {}) {
    const id = this.#newId();
    const subscription = new Subscription(this, id);
    this.#tracks.set(id, subscription);
    const request = new Writer().varint(id).namespace(namespace).bytes(name);
    request.parameters([Parameter.SUBSCRIPTION_FILTER, encodeVarint(LARGEST_OBJECT)]);
    const answered = this.#ask(id, Message.SUBSCRIBE, request);
    this.#subscribing.add(answered);
    // Right behind it, so that a late viewer waits for one round trip and not for two.
    if (join) this.#fetch(subscription);
    try {
      const answer = await answered;
      subscription.alias = answer.varint();
      const largest = answer.parameters().get(Parameter.LARGEST_OBJECT);
      if (largest) subscription.largest = new Cursor(largest).location();
      this.#aliases.set(subscription.alias, subscription);
      return subscription;
    } catch (error) {
      this._forget(subscription);
      throw error;
    } finally {
      this.#subscribing.delete(answered);
    }
  }

  // A joining FETCH: what the current group has ahead of the subscription. Where there is nothing
  // the relay refuses it, and that is as well.
  #fetch(subscription) {
    const id = this.#newId();
    const request = new Writer().varint(id).varint(RELATIVE_JOINING_FETCH);
    request.varint(subscription.id).varint(0).parameters();
    subscription._fetching();
    this.#fetches.set(id, subscription);
    this.#ask(id, Message.FETCH, request).catch(() => this.#fetched(id));
    setTimeout(() => this.#fetched(id), JOIN_MS);
  }

  #fetched(id) {
    this.#fetches.get(id)?._fetched();
    this.#fetches.delete(id);
  }

  // A track that is written from now on, whether or not somebody reads it.
  async publish(namespace, name, { firstGroup } = {}) {
    const id = this.#newId();
    const track = new Track(this, id, this.#nextAlias++, firstGroup);
    this.#tracks.set(id, track);
    const request = new Writer().varint(id).namespace(namespace).bytes(name);
    try {
      await this.#ask(id, Message.PUBLISH, request.varint(track.alias).parameters());
    } catch (error) {
      this._forget(track);
      throw error;
    }
    return track;
  }

  // Offer the tracks of a namespace, to be written when somebody wants them. `serve` is called with
  // the name of a track, and returns a function that takes the Track; or nothing, to refuse it.
  async announce(namespace, serve) {
    const id = this.#newId();
    const announced = { namespace, serve };
    this.#announced.add(announced);
    const request = new Writer().varint(id).namespace(namespace).parameters();
    try {
      await this.#ask(id, Message.PUBLISH_NAMESPACE, request);
    } catch (error) {
      this.#announced.delete(announced);
      throw error;
    }
    const end = async () => {
      this.#announced.delete(announced);
      await this._send(Message.PUBLISH_NAMESPACE_DONE, new Writer().varint(id));
    };
    return { end };
  }

  // Hear of the namespaces and tracks below a prefix: `tell` is called with { namespace, name,
  // gone } for each that is there, and each that comes. A namespace has no name; it may go again.
  async watch(prefix, tell) {
    const id = this.#newId();
    const stream = await this.transport.createBidirectionalStream();
    const writer = stream.writable.getWriter();
    const reader = new StreamReader(stream.readable);
    const watch = { prefix, tell };
    const end = async () => {
      this.#watches.delete(watch);
      await Promise.allSettled([writer.close(), reader.cancel(ResetCode.CANCELLED)]);
    };
    this.#watches.add(watch);
    const request = new Writer().varint(id).namespace(prefix).varint(TRACKS_AND_NAMESPACES);
    request.parameters([Parameter.FORWARD, 0]);
    const answered = this.#expect(id);
    await writer.write(request.message(Message.SUBSCRIBE_NAMESPACE));
    this.#run(
      this.#readMessages(reader, (type, cursor) => {
        if (type === Message.REQUEST_OK || type === Message.REQUEST_ERROR) {
          this.#answer(type, cursor);
          return;
        }
        const namespace = [...prefix, ...cursor.namespace()];
        tell({ namespace, name: null, gone: type === Message.NAMESPACE_DONE });
      }),
    );
    try {
      await answered;
    } catch (error) {
      await end();
      throw error;
    }
    return { end };
  }

  // -- requests and answers -----------------------------------------------------------------------

  #newId() {
    const id = this.#nextId;
    if (id >= this.#maxRequestId) throw new Error("the relay allows no more requests at once");
    this.#nextId += 2;
    return id;
  }

  #ask(id, type, writer) {
    const answered = this.#expect(id);
    this._send(type, writer);
    return answered;
  }

  #expect(id) {
    return new Promise((resolve, reject) => this.#requests.set(id, { resolve, reject }));
  }

  #answer(type, cursor) {
    const id = cursor.varint();
    const waiting = this.#requests.get(id);
    this.#requests.delete(id);
    if (type !== Message.REQUEST_ERROR) {
      waiting?.resolve(cursor);
      return;
    }
    const code = cursor.varint();
    cursor.varint(); // when to try again
    waiting?.reject(new RequestError(code, cursor.text()));
  }

  #refuse(id, code, reason) {
    this._send(Message.REQUEST_ERROR, new Writer().varint(id).varint(code).varint(0).bytes(reason));
  }

  // What cannot be sent because the session is over need not be: `closed` tells of that.
  _send(type, writer) {
    return this.#control.write(writer.message(type)).catch(() => {});
  }

  _sendDatagram(bytes) {
    this.#datagrams ??= this.transport.datagrams.writable.getWriter();
    return this.#datagrams.write(bytes);
  }

  // A subscription, or a track, is over.
  _forget(track) {
    this.#tracks.delete(track.id);
    if (this.#aliases.get(track.alias) === track) this.#aliases.delete(track.alias);
    for (const [id, wanted] of this.#fetches) if (wanted === track) this.#fetches.delete(id);
  }

  // -- hearing ------------------------------------------------------------------------------------

  async _setUp(token) {
    const stream = await this.transport.createBidirectionalStream();
    this.#control = stream.writable.getWriter();
    this.#control.closed.catch(() => {});
    const ready = this.#expect("setup");
    const parameters = [
      [Setup.MAX_REQUEST_ID, MAX_REQUEST_ID],
      [Setup.IMPLEMENTATION, "laps player"],
    ];
    if (token) {
      // alias_type(var-int) | token_type(var-int) | token
      const shown = new TextEncoder().encode(token);
      const value = new Uint8Array([USE_VALUE, OUT_OF_BAND, ...shown]);
      parameters.push([Setup.AUTHORIZATION_TOKEN, value]);
    }
    this._send(Message.CLIENT_SETUP, new Writer().parameters(...parameters));
    const reader = new StreamReader(stream.readable);
    this.#run(this.#readMessages(reader, (type, cursor) => this.#take(type, cursor)));
    this.#run(this.#readStreams());
    this.#run(this.#readDatagrams());
    await ready;
  }

  // What breaks the protocol ends the session; anything else is its end, of which `closed` tells.
  #run(work) {
    work.catch((error) => {
      if (!(error instanceof ProtocolViolation)) return;
      this.close(SessionCode.PROTOCOL_VIOLATION, error.message);
    });
  }

  async #readMessages(reader, take) {
    while (!(await reader.atEnd())) {
      const type = await reader.varint();
      const [high, low] = await reader.take(2);
      take(type, new Cursor(await reader.take(high * 256 + low)));
    }
  }

  #take(type, cursor) {
    switch (type) {
      case Message.SERVER_SETUP:
        this.#maxRequestId = cursor.parameters().get(Setup.MAX_REQUEST_ID) ?? 0;
        this.#requests.get("setup")?.resolve();
        this.#requests.delete("setup");
        break;
      case Message.MAX_REQUEST_ID:
        this.#maxRequestId = cursor.varint();
        break;
      case Message.GOAWAY:
        this.ongoaway(cursor.text());
        break;
      case Message.REQUEST_OK:
      case Message.REQUEST_ERROR:
      case Message.SUBSCRIBE_OK:
      case Message.PUBLISH_OK:
      case Message.FETCH_OK:
        this.#answer(type, cursor);
        break;
      case Message.SUBSCRIBE:
        this.#wanted(cursor);
        break;
      case Message.UNSUBSCRIBE:
        this.#tracks.get(cursor.varint())?._finish();
        break;
      case Message.PUBLISH:
        this.#offered(cursor);
        break;
      case Message.PUBLISH_DONE:
        this.#tracks.get(cursor.varint())?._done(cursor.varint(), cursor.varint(), cursor.text());
        break;
      case Message.REQUEST_UPDATE:
        this._send(Message.REQUEST_OK, new Writer().varint(cursor.varint()).parameters());
        break;
      case Message.FETCH:
      case Message.TRACK_STATUS:
        this.#refuse(cursor.varint(), RequestCode.NOT_SUPPORTED, "this page keeps nothing it sent");
        break;
      case Message.FETCH_CANCEL:
      case Message.REQUESTS_BLOCKED:
        break;
      default:
        throw new ProtocolViolation(`message ${type} is unknown, or has no place here`);
    }
  }

  // Somebody wants a track of a namespace that we announced.
  #wanted(cursor) {
    const [id, namespace, name] = [cursor.varint(), cursor.namespace(), cursor.text()];
    const announced = [...this.#announced].find((one) => startsWith(namespace, one.namespace));
    const feed = announced?.serve(name);
    if (!feed) {
      this.#refuse(id, RequestCode.DOES_NOT_EXIST, `there is no track ${name} here`);
      return;
    }
    const track = new Track(this, id, this.#nextAlias++);
    this.#tracks.set(id, track);
    this._send(Message.SUBSCRIBE_OK, new Writer().varint(id).varint(track.alias).parameters());
    feed(track);
  }

  // A track that we hear of because we watch its namespace: whoever wants it will subscribe.
  #offered(cursor) {
    const [id, namespace, name] = [cursor.varint(), cursor.namespace(), cursor.text()];
    this.#refuse(id, RequestCode.UNINTERESTED, "this page is only looking");
    for (const { prefix, tell } of this.#watches) {
      if (startsWith(namespace, prefix)) tell({ namespace, name, gone: false });
    }
  }

  // Each on its own: none waits for another, and one that is reset takes nothing with it.
  async #readStreams() {
    for await (const readable of this.transport.incomingUnidirectionalStreams) {
      this.#run(this.#readStream(new StreamReader(readable)));
    }
  }

  async #readStream(reader) {
    const type = await reader.varint();
    if (type === FETCH_HEADER) {
      const id = await reader.varint();
      try {
        await this.#readFetched(reader, this.#fetches.get(id));
      } finally {
        this.#fetched(id);
      }
      return;
    }
    if ((type & ~0x2f) !== 0x10 || (type & 0x06) === 0x06) {
      throw new ProtocolViolation(`stream type ${type} is unknown`);
    }
    const subscription = await this.#subscriptionOf(await reader.varint());
    if (subscription) await subscription._read(type, reader);
    else await reader.cancel(ResetCode.CANCELLED);
  }

  // Objects may overtake the SUBSCRIBE_OK that explains their alias. They wait for it, unread.
  async #subscriptionOf(alias) {
    if (!this.#aliases.has(alias)) await Promise.allSettled(this.#subscribing);
    return this.#aliases.get(alias);
  }

  // flags | group | subgroup | object | priority(1) | extensions | payload; the flags say which are
  // there, and what is not follows from the object before.
  async #readFetched(reader, subscription) {
    let [group, id] = [0, -1];
    while (!(await reader.atEnd())) {
      const flags = await reader.varint();
      if (flags === 0x8c || flags === 0x10c) {
        [group, id] = [await reader.varint(), await reader.varint()]; // nothing comes up to here
        continue;
      }
      if (flags > 0x7f) throw new ProtocolViolation(`flags ${flags} of an object are unknown`);
      if (flags & 0x08) group = await reader.varint();
      if (!(flags & 0x40) && (flags & 0x03) === 0x03) await reader.varint();
      id = flags & 0x04 ? await reader.varint() : id + 1;
      if (flags & 0x10) await reader.u8();
      if (flags & 0x20) await reader.bytes();
      const payload = await reader.bytes();
      if (!subscription) return reader.cancel(ResetCode.CANCELLED);
      await subscription._put({ group, id, payload, fetched: true });
    }
  }

  // type | alias | group | object | priority(1) | extensions | status, or the payload up to the end
  async #readDatagrams() {
    for await (const datagram of this.transport.datagrams.readable) {
      const cursor = new Cursor(datagram);
      const type = cursor.varint();
      const subscription = this.#aliases.get(cursor.varint());
      const group = cursor.varint();
      const id = type & 0x04 ? 0 : cursor.varint();
      if (!(type & 0x08)) cursor.u8();
      if (type & 0x01) cursor.bytes();
      if (type & 0x20) continue;
      subscription?._offer({ group, id, payload: cursor.rest(), datagram: true });
    }
  }

  #over(code, reason) {
    const words = `the session has ended${code ? `, with code ${code}` : ""}`;
    const error = new Error(reason ? `${words}: ${reason}` : words);
    for (const { reject } of this.#requests.values()) reject(error);
    this.#requests.clear();
    for (const track of [...this.#tracks.values()]) track._finish();
  }
}
