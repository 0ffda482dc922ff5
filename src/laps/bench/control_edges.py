"""The process of `laps bench control` that has some of the light Edges, each on QUIC of its own.

`python -m laps.bench.control_edges '{"tracks": 200, …}'`; each line on standard input is a
question, and is answered in one:

    {"do": "state", "servers": [...]}   what there is; and whether all have just these servers
    {"do": "fill"}                      subscribe to everything, as fast as servers take it
    {"do": "change", "rate": 250}       from now on so many changes a second; 0: no more
    {"do": "keep", "as": "name"}        write the tables and samples to files of that name
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from laps.bench.control_servers import DEAD_AFTER_S
from laps.bench.light_edge import TICKS_PER_S, Layout, LightEdge, Tables
from laps.config import Config
from laps.errors import CloseCode, LapsError
from laps.infobase.nodes import SessionId
from laps.net.backlog import ByClass
from laps.net.diallers import Diallers
from laps.net.link import EXTENDED_ALPN, LinkEvents, QuicLink
from laps.net.link_watch import LinkWatch
from laps.net.runner import REDIAL_FIRST_S, REDIAL_MOST_S
from laps.relay.servers import responsible
from laps.sessions.peer import ControlReceived, PeerConnected, PeerSession, SendControl
from laps.types import Address, DataDirection, NodeId, NodeInfo, NodeType, PeerMode
from laps.wire.extensions import EXTENDED_CODECS
from laps.wire.peering import Connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laps.errors import ConnectionClosed
    from laps.net.connection import Connection

# How often servers that others have named are looked for, and changes are made.
LOOK_S: Final = 0.1
CHANGE_S: Final = 0.002
# In one turn of the loop, so that what has come is read between.
MOST_CHANGES: Final = 100
# While so much waits for a server, nothing more is subscribed to.
FILL_AHEAD: Final = 200

# So many sessions are written to in a turn of the loop, a batch each; then what has come is read.
MOST_PUMPED: Final = 4
# And so many subscribes are looked at.
MOST_LOOKED_AT: Final = 500


class Session:
    """One connection of one Edge to a server; it is the `Wire` of the light Edge."""

    def __init__(self, edge: LightEdge, link: QuicLink) -> None:
        self.edge = edge
        self.link = link
        self.server: NodeId | None = None
        self._stream = link.open_control()
        info = NodeInfo(edge.id, NodeType.EDGE)
        connect = Connect(PeerMode.CONTROL, DataDirection.BIDIRECTIONAL, info)
        self.peer, effects = PeerSession.dial(connect, self._stream, EXTENDED_CODECS)
        for effect in effects:
            if isinstance(effect, SendControl):
                link.send_control(effect.stream_id, effect.data)

    @property
    def room(self) -> int:
        return self.link.control_room

    def write(self, data: bytes) -> None:
        self.link.send_control(self._stream, data)


class Edges:
    """The Edges of this process, their connections, and what they are told to do."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.tables = Tables(Layout(given["tracks"], given["edges"]))
        self.edges = {number: LightEdge(number, self.tables) for number in given["mine"]}
        self.made = 0
        "Changes."
        self._epoch = given["epoch"]
        self._folder = Path(given["folder"])
        self._known = [Address.parse(it) for it in given["servers"]]
        self._config = Config()
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._diallers = Diallers(self._config)
        self._links: dict[SessionId, QuicLink] = {}
        self._sessions: dict[SessionId, Session] = {}
        self._kept: dict[tuple[int, Address], asyncio.Task[None]] = {}
        self._by_class = ByClass()
        self._events = LinkEvents(
            data=self._data,
            datagram=self._ignore,
            reset=self._ignore,
            closed=self._closed,
            tick=self._ignore,
            stopped=self._ignore,
            writable=self._writable,
        )
        self._watch = LinkWatch(self._links, lambda _: True, (), lambda *_: None, DEAD_AFTER_S)
        self._pumping: asyncio.Handle | None = None
        self._turns: dict[LightEdge, None] = {}
        "Edges that have something to write, in the order of their turns."
        self._fills: dict[int, Iterator[int]] = {}
        self._random = random.Random(len(self.edges))  # noqa: S311 - the same each time
        self._gone: list[int] = []
        "Tracks of ours that were unsubscribed from."
        self._rate = self._due = 0.0
        self._changing: asyncio.TimerHandle | None = None
        self._look()

    @property
    def ticks(self) -> int:
        """The time that SUBSCRIBE messages tell."""
        return int((time.monotonic() - self._epoch) * TICKS_PER_S)

    # -- connections -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Dial servers that were given, or that others have named since."""
        self._loop.call_later(LOOK_S, self._look)
        for number, edge in self.edges.items():
            told = (edge.contacts.get(it, "") for it in edge.named)
            for address in (*self._known, *(Address.parse(it) for it in told if it)):
                if (number, address) not in self._kept:
                    task = asyncio.ensure_future(self._keep(edge, address))
                    self._kept[number, address] = task

    async def _keep(self, edge: LightEdge, server: Address) -> None:
        """Dial a server, and dial it again whenever the connection ends, as a relay does."""
        wait = REDIAL_FIRST_S
        while True:
            opened = time.monotonic()
            with suppress(LapsError, OSError):
                accept = partial(self._accept, edge)
                dialled = self._diallers.connect(server, edge.number, (EXTENDED_ALPN,), accept)
                await (await dialled).wait_closed()
                if time.monotonic() - opened > REDIAL_MOST_S:
                    wait = REDIAL_FIRST_S
            await asyncio.sleep(wait * (0.5 + random.random() / 2))  # noqa: S311 - no secret
            wait = min(2 * wait, REDIAL_MOST_S)

    def _accept(self, edge: LightEdge, connection: Connection) -> QuicLink:
        number = SessionId(next(self._numbers))
        link = QuicLink(
            connection, number, self._config.egress, self._events, self._by_class, dialled=True
        )
        self._links[number] = link
        self._loop.call_soon(self._introduce, edge, link)
        return link

    def _introduce(self, edge: LightEdge, link: QuicLink) -> None:
        if link.connection.established:
            self._sessions[link.id] = Session(edge, link)

    def _data(self, link: QuicLink, stream_id: int, data: bytes, _: bool) -> None:
        session = self._sessions.get(link.id)
        if session is None:
            return
        ticks = self.ticks
        for it in session.peer.receive(stream_id, data):
            if isinstance(it, PeerConnected):
                if it.node_info.id in session.edge.sessions:
                    link.close(CloseCode.GRACEFUL, "there is a session already")
                    return
                session.server = it.node_info.id
                session.edge.begin(session.server, session)
            elif isinstance(it, ControlReceived) and session.server is not None:
                session.edge.receive(session.server, it.message, ticks)
        if session.edge.waiting or session.edge.number in self._fills:
            self._pump_soon(session.edge)

    def _closed(self, link: QuicLink, _: ConnectionClosed) -> None:
        # It may be in the middle of something that is said on it.
        self._loop.call_soon(self._forget, link)

    def _forget(self, link: QuicLink) -> None:
        self._links.pop(link.id, None)
        session = self._sessions.pop(link.id, None)
        if session is not None and session.server is not None:
            session.edge.left(session.server)
            self._pump_soon(session.edge)

    def _writable(self, link: QuicLink) -> None:
        session = self._sessions.get(link.id)
        if session is not None and session.server is not None:
            session.edge.waiting[session.server] = None
            self._pump_soon(session.edge)

    def _ignore(self, *_: object) -> None:
        """Nothing here depends on it."""

    def _pump_soon(self, *edges: LightEdge) -> None:
        """Write what waits of these Edges, when it is their turn."""
        self._turns |= dict.fromkeys(edges)
        if self._pumping is None and self._turns:
            self._pumping = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = None
        left = MOST_PUMPED
        for edge in list(self._turns):
            del self._turns[edge]
            if edge.number in self._fills:
                self._fill_some(edge)
            for server in list(edge.waiting)[:left]:
                del edge.waiting[server]
                left -= 1
                if server in edge.sessions and edge.pump(server):
                    edge.waiting[server] = None
            if edge.waiting or (edge.number in self._fills and _has_room(edge)):
                self._pump_soon(edge)
            if left <= 0:
                break
        if self._turns:
            self._pump_soon()

    # -- subscribes --------------------------------------------------------------------------------

    def fill(self) -> None:
        """Subscribe to everything."""
        layout = self.tables.layout
        self._fills = {number: layout.wanted(number) for number in self.edges}
        self._pump_soon(*self.edges.values())

    def _fill_some(self, edge: LightEdge) -> None:
        ticks, tracks = self.ticks, self._fills[edge.number]
        for _ in range(FILL_AHEAD if _has_room(edge) else 0):
            if (track := next(tracks, None)) is None:
                del self._fills[edge.number]
                return
            edge.change(track, ticks, wanted=True)

    def change(self, rate: float) -> None:
        """From now on so many changes a second."""
        if not self._rate:
            del self.tables.samples[:]  # of the fill
        self._rate, self._due = rate, 0.0
        if self._changing is not None:
            self._changing.cancel()
        self._change_some(time.monotonic())

    def _change_some(self, since: float) -> None:
        now = time.monotonic()
        self._changing = None
        if not self._rate:
            return
        # What could not be made when it was due is made later, within a second.
        self._due = min(self._due + self._rate * (now - since), self._rate)
        for _ in range(min(int(self._due), MOST_CHANGES)):
            self._due -= 1
            self._change()
        self._changing = self._loop.call_later(CHANGE_S, self._change_some, now)

    def _change(self) -> None:
        """Unsubscribe from something, or subscribe anew to what was unsubscribed from."""
        layout, tables, pick = self.tables.layout, self.tables, self._random
        wanted = bool(self._gone) and pick.random() < 0.5
        if wanted:
            place = pick.randrange(len(self._gone))
            self._gone[place], self._gone[-1] = self._gone[-1], self._gone[place]
            track = self._gone.pop()
        else:
            row = pick.randrange(max(1, layout.tracks // layout.edges))
            track = layout.wanted_in(row, pick.choice(list(self.edges)))
            if track >= layout.tracks or not tables.is_wanted[track]:
                return
            self._gone.append(track)
        edge = self.edges[layout.subscriber(track)]
        edge.change(track, self.ticks, wanted=wanted)
        self._pump_soon(edge)
        self.made += 1

    # -- answers -----------------------------------------------------------------------------------

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What is asked is done, or told."""
        match asked["do"]:
            case "fill":
                self.fill()
            case "change":
                self.change(asked["rate"])
            case "keep":
                self._keep_files(asked["as"])
            case "shares":
                return await self._shares()
        return self._state(tuple(asked.get("servers", ())))

    def _state(self, servers: Sequence[int]) -> dict[str, Any]:
        edges, nodes = self.edges.values(), self.tables.layout.edges - 1
        counted = self.tables.counters
        traffic = [it for each in self._diallers.endpoints for it in each.traffic()]
        return {
            "has_servers": all(edge.servers == servers for edge in edges),
            "knows_nodes": all(
                sum(it >> 32 == 1 for it in session.nodes) >= nodes
                for edge in edges
                for session in edge.sessions.values()
            ),
            "is_whole": not self._fills and all(edge.is_whole for edge in edges),
            "is_quiet": not self._fills and all(edge.is_quiet for edge in edges),
            "made": self.made,
            "wanted": counted.wanted,
            "known": counted.known,
            "told": counted.told,
            "told_again": counted.told_again,
            "heard": counted.heard,
            "strays": counted.strays,
            "corrected": counted.corrected,
            "bytes": sum(sent + received for sent, received in traffic),
        }

    async def _shares(self) -> dict[str, int]:
        """How many subscribes of ours each server has to hold."""
        shares: Counter[int] = Counter()
        for edge in self.edges.values():
            for looked_at, track in enumerate(self.tables.layout.wanted(edge.number)):
                if not looked_at % MOST_LOOKED_AT:
                    await asyncio.sleep(0)
                if self.tables.is_wanted[track]:
                    shares.update(responsible(edge.key(track), edge.servers))
        return {str(server): held for server, held in shares.items()}

    def _keep_files(self, name: str) -> None:
        tables = self.tables
        for kind, table in (("wanted", tables.is_wanted), ("known", tables.is_known)):
            (self._folder / f"{name}.{kind}").write_bytes(table)
        (self._folder / f"{name}.samples").write_bytes(tables.samples.tobytes())


def _has_room(edge: LightEdge) -> bool:
    return bool(edge.servers) and all(
        len(it.outbox) < FILL_AHEAD and it.wire.room > 0 for it in edge.sessions.values()
    )


async def serve(given: dict[str, Any]) -> None:
    """Answer questions until they end."""
    edges = Edges(given)
    loop = asyncio.get_running_loop()
    asked: asyncio.Queue[bytes | None] = asyncio.Queue()
    unread = b""

    def readable() -> None:
        nonlocal unread
        if not (data := os.read(sys.stdin.fileno(), 65536)):
            loop.remove_reader(sys.stdin.fileno())
            asked.put_nowait(None)
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            asked.put_nowait(line)

    loop.add_reader(sys.stdin.fileno(), readable)
    _say("here")
    while (line := await asked.get()) is not None:
        _say(json.dumps(await edges.answer(json.loads(line))))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.disable()  # nobody reads standard error, and it must not fill
    uvloop.run(serve(json.loads(sys.argv[1])))
