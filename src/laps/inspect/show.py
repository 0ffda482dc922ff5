"""`laps show`: a view of one relay, or of all that are found, as a table or as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from laps import units
from laps.admin.schema.clients import Clients
from laps.admin.schema.network import Nodes, Peers
from laps.admin.schema.relay import Node
from laps.admin.schema.tracks import Cache, Tracks
from laps.inspect.columns import Column, Row
from laps.names import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.admin.schema.fields import Page
    from laps.admin.schema.network import KnownNode
    from laps.inspect.columns import View
    from laps.inspect.relays import Relays

# As many rows as somebody looks through; a program takes what the relay gives it, 1,000.
PEOPLE_ROWS: Final = 100

TELEMETRY: Final = "laps/telemetry/"


@dataclass(slots=True)
class Shown:
    """What relays answered, at one time."""

    view: View
    answers: list[Page]
    silent: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    one: bool = False
    "A single relay was asked, so that no column has to say which."

    @property
    def total(self) -> int:
        """How many rows there are, shown or not."""
        return sum(getattr(answer, "total", 0) for answer in self.answers)

    def to_mapping(self) -> dict[str, Any]:
        """For programs: the answers as they came, and the rates where there are some."""
        shown: dict[str, Any] = {
            "view": self.view.name,
            "answers": msgspec.to_builtins(self.answers),
            "silent": self.silent,
        }
        rates = [
            {**self.view.name_of(row), **row.rates} for row in self.rows if row.rates is not None
        ]
        return {**shown, "rates": rates} if rates else shown


async def ask(relays: Relays, view: View, limit: int | None, text: str = "") -> Shown:
    """A view of all these relays."""
    query: dict[str, Any] = {}
    if limit is not None:
        query["limit"] = 0 if view.newest_last else limit
    if text:
        query["q"] = text
    answers = await relays.ask(lambda api: api.get(view.page, **query))
    shown = Shown(view, list(answers.values()), relays.silent, one=len(relays.apis) == 1)
    if view.name == "nodes":
        selves = await relays.ask(lambda api: api.get(Node))
        # No data goes through a Control server, so its ways say little.
        shown.answers = [
            answer
            for last in (False, True)
            for node, answer in answers.items()
            if (_role(selves, node) == "control") == last
        ]
        shown.rows = list(_network(shown, selves, text))
    else:
        shown.rows = [row for answer in shown.answers for row in view.rows(answer)]
        if view.newest_last:
            shown.rows.sort(key=lambda row: float(row.values.at))
    if view.name == "counters" and text:
        shown.rows = [row for row in shown.rows if text in _words(row.values)]
    return shown


def _words(values: msgspec.Struct, without: str = "") -> str:
    written = msgspec.to_builtins(values)
    return " ".join(str(value) for field, value in written.items() if field != without)


def _network(shown: Shown, selves: dict[str, Node], text: str) -> Iterable[Row]:
    """Each node once: as the first relay sees it, and after that what only others know."""
    seen: set[str] = set()
    for answer in shown.answers:
        assert isinstance(answer, Nodes)  # noqa: S101 - the view is of these
        own = selves.get(answer.node)
        if own is not None and own.node not in seen and text in _words(own, without="at"):
            seen.add(own.node)
            yield Row(own.node, own, answer.at)
        for row in shown.view.rows(answer):
            node: KnownNode = row.values
            if node.node in seen:
                continue
            seen.add(node.node)
            # A Control server says what it is; to others it is a Via.
            values = replace(node, role=_role(selves, node.node) or node.role)
            if answer is not shown.answers[0]:
                # The way to it, and how far it is, is another from each relay.
                values = replace(values, best=None)
            yield dataclasses.replace(row, values=values)


def _role(selves: dict[str, Node], node: str) -> str:
    return selves[node].role if node in selves else ""


def with_rates(now: Shown, before: Shown) -> Shown:
    """The same with how fast amounts grow, where a row was there before."""
    known = {repr(before.view.name_of(row)): row for row in before.rows}
    rows: list[Row] = []
    for row in now.rows:
        earlier = known.get(repr(now.view.name_of(row)))
        elapsed = 0.0 if earlier is None else row.at - earlier.at
        rates: dict[str, float] = {}
        if earlier is not None and elapsed > 0:
            for key in row.values.__struct_fields__:
                if (key.endswith(("_bytes", "_packets")) or key == "value") and isinstance(
                    was := earlier.get(key), int | float
                ):
                    rates[key] = max(0.0, (row.get(key) - was) / elapsed)
        rows.append(dataclasses.replace(row, rates=rates))
    return dataclasses.replace(now, rows=rows)


# -- for people ------------------------------------------------------------------------------------


def table(shown: Shown, limit: int) -> Table:
    """The rows for people; 0 for all of them."""
    view = shown.view
    columns: Sequence[Column] = view.columns
    once = view.name == "nodes"
    if not shown.one and not once:
        columns = (Column("node", lambda row: row.node), *columns)
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [[column.show(row) for column in columns] for row in _shortened(shown, limit)]
    for index, column in enumerate(columns):
        # A column that says nothing of any row is in the way of the others.
        used = (
            index == 0 or not cells or any(row[index] not in ("", units.NOTHING) for row in cells)
        )
        if used:
            drawn.add_column(
                column.head,
                justify="right" if column.right else "left",
                overflow="fold" if column.folds else "ellipsis",
                no_wrap=not column.folds,
            )
        for row in cells if not used else ():
            row[index] = _UNUSED
    for row in cells:
        drawn.add_row(*(Text(visible(cell)) for cell in row if cell is not _UNUSED))
    return drawn


_UNUSED: Final = "\0unused"


def _shortened(shown: Shown, limit: int) -> list[Row]:
    if not limit:
        return shown.rows
    return shown.rows[-limit:] if shown.view.newest_last else shown.rows[:limit]


def notes(shown: Shown, limit: int) -> list[str]:
    """The lines below the table."""
    said: list[str] = []
    view, count = shown.view, len(shown.rows)
    if not count:
        said.append(f"no {view.name}")
    drawn = min(count, limit) if limit else count
    rest = max(count, shown.total if view.unfold is None and view.name != "nodes" else 0) - drawn
    if rest > 0:
        said.append(f"{rest:,} more: --limit 0 shows all, --filter TEXT those with a text")
    for answer in shown.answers:
        if isinstance(answer, Cache):
            held, most = units.size(answer.bytes), units.size(answer.limit_bytes)
            age = units.duration(answer.age_s)
            said.append(f"{answer.node} keeps {held} of at most {most}, for {age}")
    if shown.answers and isinstance(first := shown.answers[0], Nodes) and view.name == "nodes":
        said.append(f"ways and delays as {first.node} sees them")
    if view.name == "fib" and any(out.old for row in shown.rows for out in row.values.out):
        said.append("* takes no new streams, and waits for its last to end")
    return said


# -- the whole -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Overview:
    """A network in a few figures."""

    relays: list[dict[str, Any]]
    roles: dict[str, int]
    links: int
    tracks: int
    telemetry: int
    "Tracks of relays about themselves."
    silent: dict[str, str]

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "relays": self.relays,
            "roles": self.roles,
            "links": self.links,
            "tracks": self.tracks,
            "telemetry": self.telemetry,
            "silent": self.silent,
        }

    def words(self) -> str:
        """One line."""
        nodes = sum(self.roles.values())
        roles = ", ".join(f"{count} {role}" for role, count in sorted(self.roles.items()))
        asked = len(self.relays)
        of = "" if asked == nodes else f", of which {asked} could be asked"
        own = f" and {self.telemetry:,} of telemetry" if self.telemetry else ""
        return (
            f"{units.many(nodes, 'relay')} ({roles}){of}; {units.many(self.links, 'link')}; "
            f"{units.many(self.tracks, 'track')}{own}"
        )

    def table(self) -> Table:
        """The relays that were asked."""
        drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        heads = (
            "node",
            "role",
            "region",
            "peers",
            "clients",
            "tracks",
            "memory",
            "sent",
            "received",
        )
        for head in (*heads, "up", "admin"):
            drawn.add_column(
                head, justify="left" if head in ("node", "role", "region", "admin") else "right"
            )
        for row in self.relays:
            drawn.add_row(
                row["node"],
                row["role"],
                row["region"] or units.NOTHING,
                units.number(row["peers"]),
                units.number(row["clients"]),
                units.number(row["tracks"]),
                units.size(row["memory_bytes"]),
                units.size(row["sent_bytes"]),
                units.size(row["received_bytes"]),
                units.duration(row["up_s"]),
                row["admin"].removeprefix("http://"),
            )
        return drawn


async def overview(relays: Relays) -> Overview:
    """How the network is, in a few figures, from all that answer."""
    nodes = await relays.ask(lambda api: api.get(Node))
    known = await relays.ask(lambda api: api.get(Nodes, limit=0))
    peers = await relays.ask(lambda api: api.get(Peers, limit=0))
    clients = await relays.ask(lambda api: api.get(Clients, limit=1))
    tracks = await relays.ask(lambda api: api.get(Tracks, limit=0))
    roles = {row.node: row.role for page in known.values() for row in page.nodes}
    for page in peers.values():
        for peer in page.peers:
            roles.setdefault(peer.node, peer.role)
    roles.update((node, page.role) for node, page in nodes.items())
    links = {frozenset((node, row.node)) for node, page in peers.items() for row in page.peers}
    listed = [row for answer in tracks.values() for row in answer.tracks]
    telemetry = {row.track for row in listed if row.namespace.startswith(TELEMETRY)}
    hashes = {row.track for row in listed} - telemetry
    rows = [
        {
            "node": node,
            "role": page.role,
            "region": page.region,
            "peers": peers[node].total if node in peers else None,
            "clients": clients[node].total if node in clients else None,
            "tracks": tracks[node].total if node in tracks else None,
            "memory_bytes": page.memory_bytes,
            "sent_bytes": page.sent_bytes,
            "received_bytes": page.received_bytes,
            "up_s": page.at - page.since,
            "admin": relays.apis[node].url,
        }
        for node, page in nodes.items()
    ]
    counted = dict(Counter(roles.values()))
    return Overview(rows, counted, len(links), len(hashes), len(telemetry), relays.silent)


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
