"""Push-back: whoever sends waits for those who read it, and not for those who do not.

Each connection that data goes out by says whether too much waits on it. While all those say so that
a sender's data goes to, the sender waits:

    a publisher here        is not read from; its windows close
    a set of a peer's,      the peer is told, by SET_PRESSED, and what it sends here counts as
    a track of a Stub's     pressed there: so the word goes on to the publisher's relay

One that keeps up is enough for a sender to go on, and then the others fall behind within their
bounds. Before one of them has to drop something, it is waited for as well, if it reads: it may have
had less of the processor than the others, and takes what waits for it as soon as it has its turn.
If it is still behind after some seconds it is slower than they are, and they do not wait for it.
Nor do they for those that catch up and fall behind again and again, or come back for it: of its
time, a sender spends a small part on waiting for some while others keep up, whoever these are.

It is for the bursts that a relay, and a path, can work off, however busy the machine. Where hardly
anything moves for a while, the subscriber is too slow for the track: the sender goes on, and the
subscriber loses old groups. The relay that is next to the connection decides that; those before it
take its word, which counts for a while only, and is repeated as long as it holds.

Time in which this relay itself had to wait for the processor does not count: where it has none,
those who read may have none either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.buckets import Bucket
from laps.relay.stub import StubClient
from laps.relay.timers import Timers
from laps.routing.flows import FromClient, FromPeer
from laps.routing.terms import ORDERS
from laps.wire.extensions import SetPressed, Urgency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from laps.infobase.nodes import SessionId
    from laps.relay.data import DataPlane
    from laps.relay.peers import Links
    from laps.relay.ports import Link
    from laps.routing.flows import FlowKey
    from laps.routing.forwarding import Fib
    from laps.tracks.ports import Client, Pressed, Sender
    from laps.tracks.track import Track
    from laps.tracks.tracks import Tracks
    from laps.types import SnsId, TrackKey

# A sender waits this long, and again as long as meanwhile at least one of the connections, or
# the one that it waits for, has sent so much: 8 Mbit/s, which is little for a relay and a lot for a
# subscriber that is too slow.
PATIENCE_S: Final = 0.5
MOVING_BYTES: Final = 512 * 1024

# One that is about to lose something is waited for so long since much waits for it, while others
# keep up: what it had too little of the processor for it has caught up with by then.
CATCH_UP_S: Final = 5.0

# Of a longer time, a sender waits for such this share.
CATCH_UP_SHARE: Final = 0.05

# What a peer has said counts this long: it says it again with each PATIENCE_S.
TOLD_S: Final = 2.5 * PATIENCE_S

# What went on without waiting is looked at again.
FORGET_S: Final = 5.0

# 10 µs each, and as much again to tell a peer.
MOST_REVIEWED: Final = 100


@dataclass(frozen=True, slots=True)
class PeerSet:
    """What comes from a peer under one of its sets."""

    flow: FromPeer
    links: Links = field(compare=False)

    def flows(self) -> tuple[FlowKey, ...]:
        """As `Sender.flows`."""
        return (self.flow,)

    def wait(self, urgency: Urgency) -> None:
        """As `Sender.wait`: the peer is told."""
        peer_link = self.links.peer_links.get(self.flow.link)
        if peer_link is not None and peer_link.link.extended:
            self.links.send_on(peer_link, SetPressed(self.flow.sns_id, urgency))


class _Sink(NamedTuple):
    """A connection that data goes out by, and what its other end has said of that data."""

    connection: Pressed
    told: Urgency
    order: int
    "The place of its class there: what waits of those below it is no matter."

    @property
    def pressed(self) -> bool:
        return bool(self.told) or self.connection.pressed_for(self.order)


@dataclass(slots=True)
class _Wait:
    """How a sender waits."""

    since: float
    urgency: Urgency
    sent: dict[Pressed, int | None]
    "What each connection had sent by then; None where its other end has said that it is pressed."


class _CatchUp:
    """How long a sender may still wait for some while others keep up."""

    def __init__(self) -> None:
        self.left_s = Bucket(CATCH_UP_SHARE, CATCH_UP_S)
        self._counted_at: float | None = None
        "It waits for them, and has been counted until this time."

    def waits(self, wanted: bool, now: float) -> bool:
        """Whether it waits from now on, if that is wanted; it is counted how long it did."""
        if self._counted_at is not None:
            self.left_s.spend(now - self._counted_at, now)
        waits = wanted and not self.left_s.wait_s(now)
        self._counted_at = now if waits else None
        return waits


class Pressure:
    """Which publishers, and which peers' sets, wait."""

    def __init__(
        self,
        links: Links,
        fib: Fib,
        data: DataPlane,
        tracks: Tracks,
        stubs: Mapping[SessionId, StubClient],
    ) -> None:
        self._links = links
        self._fib = fib
        self._data = data
        self._tracks = tracks
        self._stubs = stubs
        self._timers = Timers()
        self.waiting: dict[Sender, _Wait] = {}
        self.told: dict[tuple[SessionId, SnsId], tuple[Urgency, float]] = {}
        "What peers have said of the sets that they are sent, and until when it counts."
        self._impatient: set[Sender] = set()
        "Those that waited for nothing: they go on until somebody keeps up again."
        self._pressed: dict[tuple[Pressed, int], tuple[float, int]] = {}
        "Since when connections have been pressed, by class, and what they had sent by then."
        self._slow: set[Pressed] = set()
        "Those that were waited for and hardly moved: until nothing presses on them, nobody waits."
        self._catch_ups: dict[Sender, _CatchUp] = {}
        "Those that have waited for some while others kept up, lately."
        self._unreviewed: dict[Sender, None] = {}
        "A pressed connection may concern thousands."
        self.is_sooner = False
        "Whether `deadline` may be sooner than when it was last asked for."
        self.starved_s = 0.0
        "How long the relay has had to wait for the processor so far: this is no time in here."
        self.pauses = 0

    # -- what happens ------------------------------------------------------------------------------

    def client_changed(self, client: Client, now: float) -> None:
        """The connection to a client is pressed, or no longer."""
        now -= self.starved_s
        if client.sink is not None and not client.sink.pressed:
            self._ease(client.sink)
        tracks = map(self._tracks.get, self._tracks.shared.subscribed.of(client))
        self._review_all((it for track in tracks for it in self._senders(track)), now)

    def link_changed(self, link: Link, now: float) -> None:
        """The connection to a peer is pressed, or no longer."""
        if not link.pressed:
            self._ease(link)
        waiting = [sender for sender, wait in self.waiting.items() if link in wait.sent]
        flows = [flow.key for flow in self._fib.running_on(link.id)]
        if (stub := self._stubs.get(link.id)) is not None:
            self.client_changed(stub, now)
        self._review_all([*waiting, *self._senders_of(flows)], now - self.starved_s)

    def began(self, now: float) -> None:
        """Streams began on links that are pressed."""
        egress = self._data.egress
        flows, egress.pressing = egress.pressing, {}
        began = (it for it in self._senders_of(flows) if it not in self.waiting)
        self._review_all(began, now - self.starved_s)

    def track_changed(self, track: Track, now: float) -> None:
        """A track goes to somebody else, or to somebody no longer."""
        waiting = (it for it in self._senders(track) if it in self.waiting)
        self._review_all(waiting, now - self.starved_s)

    def peer_said(self, link_id: SessionId, sns_id: SnsId, urgency: Urgency, now: float) -> None:
        """A peer says how it is with what it is sent under a set."""
        now -= self.starved_s
        if urgency is Urgency.NONE:
            self.told.pop((link_id, sns_id), None)
        else:
            until = now + TOLD_S
            self.told[link_id, sns_id] = urgency, until
            self._timers.at(until, partial(self._expire, link_id, sns_id, until))
        self._said(link_id, sns_id, now)

    def _expire(self, link_id: SessionId, sns_id: SnsId, until: float, now: float) -> None:
        if self.told.get((link_id, sns_id), (None, None))[1] == until:
            del self.told[link_id, sns_id]
            self._said(link_id, sns_id, now)

    def _said(self, link_id: SessionId, sns_id: SnsId, now: float) -> None:
        if (stub := self._stubs.get(link_id)) is not None:
            key = stub.track_under(sns_id)
            self._review_all(self._senders(None if key is None else self._tracks.get(key)), now)
        elif (flow := self._fib.under(link_id, sns_id)) is not None:
            self._review_all(self._senders_of([flow.key]), now)

    def closed(self, sink: Pressed | None) -> None:
        """A connection is gone. Who sent on it is forgotten when it has waited for long enough."""
        if sink is not None:
            self._ease(sink)

    # -- who waits ---------------------------------------------------------------------------------

    def _senders(self, track: Track | None) -> Iterator[Sender]:
        """Those that a track comes from."""
        if track is None:
            return
        for publication in track.publishers.values():
            if (sender := publication.publisher.sender(track.key)) is not None:
                yield sender
        for flow in self._tracks.shared.feeding.get(track.key, ()):
            yield PeerSet(flow, self._links)

    def _senders_of(self, flows: Iterable[FlowKey]) -> Iterator[Sender]:
        """Those that flows come from."""
        for flow in flows:
            if isinstance(flow, FromPeer):
                yield PeerSet(flow, self._links)
            elif isinstance(flow, FromClient):
                track = self._tracks.get(flow.track)
                for publication in () if track is None else track.publishers.values():
                    sender = publication.publisher.sender(flow.track)
                    if publication.publisher is flow.client and sender is not None:
                        yield sender

    def _review_all(self, senders: Iterable[Sender], now: float) -> None:
        self._unreviewed |= dict.fromkeys(senders)
        self._review_some(now)
        self.is_sooner = True

    def _review_some(self, now: float) -> None:
        for _ in range(min(MOST_REVIEWED, len(self._unreviewed))):
            # To review one may set others going, and what they send fills connections.
            if self._unreviewed:
                sender, _ = self._unreviewed.popitem()
                self._review(sender, now)

    def _review(self, sender: Sender, now: float) -> None:
        """Let somebody wait, or go on."""
        urgency = self._urgency(sender, now)
        wait = self.waiting.get(sender)
        if wait is None and urgency:
            self.pauses += 1
            self._wait(sender, urgency, now)
        elif wait is not None and not urgency:
            del self.waiting[sender]
            sender.wait(urgency)
        elif wait is not None and wait.urgency is not urgency:
            wait.urgency = urgency
            sender.wait(urgency)

    def _wait(self, sender: Sender, urgency: Urgency, now: float) -> None:
        sent = {
            sink.connection: None if sink.told else sink.connection.sent_bytes
            for sink in self._sinks(sender)
        }
        wait = self.waiting[sender] = _Wait(now, urgency, sent)
        self._timers.at(now + PATIENCE_S, partial(self._waited, sender, wait))
        sender.wait(urgency)

    def _waited(self, sender: Sender, wait: _Wait, now: float) -> None:
        """Somebody has waited for a while: is it of any use?"""
        if self.waiting.get(sender) is not wait:
            return
        stuck = {
            connection
            for connection, sent in wait.sent.items()
            if sent is not None and connection.sent_bytes - sent < MOVING_BYTES
        }
        self._slow.update(connection for connection in stuck if connection.pressed)
        if len(stuck) == len(wait.sent):
            self._impatient.add(sender)
            self._timers.at(now + FORGET_S, partial(self._forget_impatience, sender))
        if urgency := self._urgency(sender, now):
            self._wait(sender, urgency, now)
        else:
            del self.waiting[sender]
            sender.wait(urgency)

    def _forget_impatience(self, sender: Sender, now: float) -> None:
        """Somebody that goes on may be gone, and nothing tells so."""
        if sender in self._impatient:
            self._review(sender, now)
        if sender in self._impatient:
            self._timers.at(now + FORGET_S, partial(self._forget_impatience, sender))

    def _urgency(self, sender: Sender, now: float) -> Urgency:
        """Whether all that somebody's data goes to is pressed, or one that reads may soon lose."""
        sinks = list(self._sinks(sender))
        for connection, _, order in sinks:
            if not connection.pressed:
                self._ease(connection)
            elif not connection.pressed_for(order):
                self._pressed.pop((connection, order), None)
            elif (connection, order) not in self._pressed:
                self._pressed[connection, order] = now, connection.sent_bytes
        crowded = any(self._is_crowded(sink, now) for sink in sinks)
        if not sinks or any(not sink.pressed for sink in sinks):
            self._impatient.discard(sender)
            return Urgency.CROWDED if self._catches_up(sender, crowded, now) else Urgency.NONE
        self._catches_up(sender, False, now)
        if crowded:
            return Urgency.CROWDED
        return Urgency.NONE if sender in self._impatient else Urgency.PRESSED

    def _catches_up(self, sender: Sender, wanted: bool, now: float) -> bool:
        """Whether somebody waits for some while others keep up, if that is wanted."""
        catch_up = self._catch_ups.get(sender)
        if catch_up is None:
            if not wanted:
                return False
            catch_up = self._catch_ups[sender] = _CatchUp()
            self._timers.at(now + FORGET_S, partial(self._forget_catch_up, sender))
        return catch_up.waits(wanted, now)

    def _forget_catch_up(self, sender: Sender, now: float) -> None:
        """As `_forget_impatience`."""
        is_read = any(True for _ in self._sinks(sender))
        if is_read and not self._catch_ups[sender].left_s.is_full(now):
            self._timers.at(now + FORGET_S, partial(self._forget_catch_up, sender))
        else:
            del self._catch_ups[sender]

    def _sinks(self, sender: Sender) -> Iterator[_Sink]:
        """The connections that somebody's data goes out by."""
        for key in sender.flows():
            flow = self._fib.get(key)
            if flow is None:
                continue
            for link_id, sns_id in flow.current():
                if (link := self._links.links.get(link_id)) is not None:
                    yield _Sink(link, self._told(link_id, sns_id), flow.terms.order)
            if isinstance(key, FromClient):
                yield from self._local(key.track)
            elif flow.local and flow.track is not None:
                yield from self._local(flow.track)

    def _local(self, key: TrackKey) -> Iterator[_Sink]:
        """Those of the clients here that want a track."""
        track = self._tracks.get(key)
        if track is None:
            return
        order = track.order
        for client in track.subscribers:
            if isinstance(client, StubClient):
                sns_id = client.sets.get(key)
                told = Urgency.NONE if sns_id is None else self._told(client.sink.id, sns_id)
                yield _Sink(client.sink, told, order)
            elif client.sink is not None:
                yield _Sink(client.sink, Urgency.NONE, order)

    def _told(self, link_id: SessionId, sns_id: SnsId) -> Urgency:
        return self.told.get((link_id, sns_id), (Urgency.NONE, 0.0))[0]

    def _is_crowded(self, sink: _Sink, now: float) -> bool:
        """Whether a connection is about to lose something, and reads as far as it had the time."""
        connection = sink.connection
        if sink.told is Urgency.CROWDED:
            return True
        place = connection, sink.order
        if not connection.crowded_for(sink.order) or connection in self._slow:
            return False
        if place not in self._pressed:
            return False
        since, sent = self._pressed[place]
        if now - since > CATCH_UP_S:
            return False
        turns = int((now - since) / PATIENCE_S)
        return connection.sent_bytes - sent >= turns * MOVING_BYTES

    def _ease(self, connection: Pressed) -> None:
        for order in range(ORDERS):
            self._pressed.pop((connection, order), None)
        self._slow.discard(connection)

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """As `Due.tick`."""
        now -= self.starved_s
        self._timers.run(now)
        self._review_some(now)

    def deadline(self) -> float | None:
        """As `Due.deadline`."""
        self.is_sooner = False
        if self._unreviewed:
            return 0.0
        return None if (due := self._timers.next) is None else due + self.starved_s
