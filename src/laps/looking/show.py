"""`laps show`: a view of one relay, or of all that are found, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from laps import units
from laps.looking.views import Column, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.looking.api import Answer
    from laps.looking.relays import Relays
    from laps.looking.views import View

# As many rows as somebody looks through; a program takes what the relay gives it, 1,000.
PEOPLE_ROWS: Final = 100

TELEMETRY: Final = "laps/telemetry/"


@dataclass(slots=True)
class Shown:
    """What relays answered, at one time."""

    view: View
    answers: list[Answer]
    silent: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    one: bool = False
    "A single relay was asked, so nobody needs to be told which."

    @property
    def total(self) -> int:
        """How many rows there are, shown or not."""
        return sum(int(answer.get("total", 0)) for answer in self.answers)

    def to_mapping(self) -> dict[str, Any]:
        """For programs: the answers as they came, and the rates where there are some."""
        shown: dict[str, Any] = {
            "view": self.view.name,
            "answers": self.answers,
            "silent": self.silent,
        }
        rates = [
            {"node": row.node, **{key: row.values.get(key) for key in self.view.key}, **row.rates}
            for row in self.rows
            if row.rates is not None
        ]
        return {**shown, "rates": rates} if rates else shown


async def ask(relays: Relays, view: View, limit: int | None, text: str = "") -> Shown:
    """A view of all these relays."""
    parameters: dict[str, str | int] = {}
    if limit is not None:
        parameters["limit"] = 0 if view.newest_last else limit
    if text:
        parameters["q"] = text
    answers = await relays.ask(lambda api: api.get(view.path, **parameters))
    shown = Shown(view, list(answers.values()), relays.silent, one=len(relays.apis) == 1)
    if view.name == "nodes":
        selves = await relays.ask(lambda api: api.get("node"))
        # No data goes through a Control server, so its ways say little.
        shown.answers.sort(key=lambda answer: _role(selves, answer["node"]) == "control")
        shown.rows = list(_network(shown, selves, text))
    else:
        shown.rows = [row for answer in shown.answers for row in view.rows(answer)]
        if view.newest_last:
            shown.rows.sort(key=lambda row: float(row.values["at"]))
    if view.path == "counters" and text:
        shown.rows = [row for row in shown.rows if text in " ".join(map(str, row.values.values()))]
    return shown


def _network(shown: Shown, selves: dict[str, Answer], text: str) -> Iterable[Row]:
    """Each node once: as the first relay sees it, and behind that what only others know."""
    seen: set[str] = set()
    for answer in shown.answers:
        node = str(answer["node"])
        own = {key: value for key, value in selves.get(node, {}).items() if key != "at"}
        if node not in seen and text in " ".join(map(str, own.values())):
            seen.add(node)
            yield Row(node, own, answer.get("at", 0.0))
        for row in shown.view.rows(answer):
            if row.values["node"] in seen:
                continue
            seen.add(row.values["node"])
            # A Control server says what it is; to others it is a Via.
            row.values["role"] = _role(selves, row.values["node"]) or row.values.get("role")
            # The way to it, and how far it is, is another from each relay.
            yield (
                row
                if answer is shown.answers[0]
                else replace(row, values={**row.values, "best": None})
            )


def _role(selves: dict[str, Answer], node: str) -> str:
    return str(selves.get(node, {}).get("role", ""))


def with_rates(now: Shown, before: Shown) -> Shown:
    """The same with how fast amounts grow, where a row was there before."""
    known = {before.view.name_of(row): row for row in before.rows}
    rows: list[Row] = []
    for row in now.rows:
        earlier = known.get(now.view.name_of(row))
        elapsed = 0.0 if earlier is None else row.at - earlier.at
        rates: dict[str, float] = {}
        if earlier is not None and elapsed > 0:
            for key, value in row.values.items():
                if (key.endswith(("_bytes", "_packets")) or key == "value") and isinstance(
                    was := earlier.values.get(key), int | float
                ):
                    rates[key] = max(0.0, (value - was) / elapsed)
        rows.append(replace(row, rates=rates))
    return replace(now, rows=rows)


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
        drawn.add_row(*(Text(cell) for cell in row if cell is not _UNUSED))
    return drawn


_UNUSED: Final = "\0unused"


def _shortened(shown: Shown, limit: int) -> list[Row]:
    if not limit:
        return shown.rows
    return shown.rows[-limit:] if shown.view.newest_last else shown.rows[:limit]


def notes(shown: Shown, limit: int) -> list[str]:
    """What is to be said below the table."""
    said: list[str] = []
    view, count = shown.view, len(shown.rows)
    if not count:
        said.append(f"no {view.name}")
    drawn = min(count, limit) if limit else count
    rest = max(count, shown.total if view.unfold is None and view.name != "nodes" else 0) - drawn
    if rest > 0:
        said.append(f"{rest:,} more: --limit 0 shows all, --filter TEXT those with a text")
    if view.name == "cache":
        for answer in shown.answers:
            held, most = units.size(answer.get("bytes")), units.size(answer.get("limit_bytes"))
            age = units.duration(answer.get("age_s"))
            said.append(f"{answer['node']} keeps {held} of at most {most}, for {age}")
    if view.name == "nodes" and shown.answers:
        said.append(f"ways and delays as {shown.answers[0]['node']} sees them")
    if view.name == "fib" and any(
        out.get("old") for row in shown.rows for out in row.values.get("out") or ()
    ):
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
    nodes = await relays.ask(lambda api: api.get("node"))
    known = await relays.ask(lambda api: api.get("nodes", limit=0))
    peers = await relays.ask(lambda api: api.get("peers", limit=0))
    clients = await relays.ask(lambda api: api.get("clients", limit=1))
    tracks = await relays.ask(lambda api: api.get("tracks", limit=0))
    roles = {row["node"]: row["role"] for answer in known.values() for row in answer["nodes"]}
    roles.update((row["node"], row["role"]) for row in _peers(peers) if row["node"] not in roles)
    roles.update((node, answer["role"]) for node, answer in nodes.items())
    links = {
        frozenset((node, row["node"])) for node, answer in peers.items() for row in answer["peers"]
    }
    listed = [row for answer in tracks.values() for row in answer["tracks"]]
    telemetry = {row["track"] for row in listed if row["namespace"].startswith(TELEMETRY)}
    hashes = {row["track"] for row in listed} - telemetry
    counted: dict[str, int] = {}
    for role in roles.values():
        counted[role] = counted.get(role, 0) + 1
    rows = [
        {
            "node": node,
            "role": answer["role"],
            "region": answer.get("region"),
            "peers": _total(peers.get(node)),
            "clients": _total(clients.get(node)),
            "tracks": _total(tracks.get(node)),
            "memory_bytes": answer.get("memory_bytes"),
            "sent_bytes": answer.get("sent_bytes"),
            "received_bytes": answer.get("received_bytes"),
            "up_s": answer["at"] - answer["since"] if "at" in answer else None,
            "admin": relays.apis[node].url,
        }
        for node, answer in nodes.items()
    ]
    return Overview(rows, counted, len(links), len(hashes), len(telemetry), relays.silent)


def _peers(answers: dict[str, Answer]) -> list[dict[str, Any]]:
    return [row for answer in answers.values() for row in answer["peers"]]


def _total(answer: Answer | None) -> int | None:
    return None if answer is None else int(answer["total"])
