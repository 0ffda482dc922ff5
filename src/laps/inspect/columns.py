"""The pages of the admin API as tables: which columns a person wants of each, in what units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from laps import units
from laps.admin.schema.clients import Clients, Closes, Origins
from laps.admin.schema.control import Control
from laps.admin.schema.decisions import (
    WIDEST_BPS,
    ClassesOfService,
    Demand,
    PolicyLines,
    Probes,
)
from laps.admin.schema.fields import ListPage
from laps.admin.schema.network import Announces, Nodes, Path, Peers, Subscribes
from laps.admin.schema.relay import Counters, Events
from laps.admin.schema.tracks import Cache, Fib, NodeSets, Tracks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laps.admin.schema.fields import Page

# A list inside a cell is as long as this, and then it says how much more there is.
FEW: Final = 4


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a view, and how fast its amounts grow."""

    node: str
    "The relay that answered with it."
    values: Any
    "A row of the admin API, or what is made of one."
    at: float
    "When it was so."
    rates: dict[str, float] | None = None
    "A second, by field; None where there was one answer only."

    def get(self, field: str) -> Any:
        """A field; None where this row has no such field."""
        return getattr(self.values, field, None)


@dataclass(frozen=True, slots=True)
class Column:
    """What a person sees of a row."""

    head: str
    show: Callable[[Row], str]
    right: bool = False
    folds: bool = False
    "Long text goes on in the next line; others are cut."


@dataclass(frozen=True, slots=True)
class View:
    """One of the things that `laps show` shows."""

    name: str
    page: type[Page]
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    "The fields that name a row, so that it is found again in the next answer."
    newest_last: bool = False
    "In the order of time: of many rows the last are wanted."
    unfold: Callable[[Any], Iterable[msgspec.Struct]] | None = None
    "Makes the rows out of an answer that has no list of its own, or more than one for each."

    def rows(self, answer: Page) -> list[Row]:
        """The rows of an answer."""
        values: Iterable[msgspec.Struct] = ()
        if self.unfold is not None:
            values = self.unfold(answer)
        elif isinstance(answer, ListPage):
            values = answer.rows
        node, at = getattr(answer, "node", ""), getattr(answer, "at", 0.0)
        return [Row(node, row, at) for row in values]

    def name_of(self, row: Row) -> dict[str, Any]:
        """What names a row among all: its relay, and its key as the admin API writes it."""
        written = msgspec.to_builtins(row.values)
        return {"node": row.node, **{field: written.get(field) for field in self.key}}


# -- cells -----------------------------------------------------------------------------------------


def _track(row: Row) -> str:
    """A track by its name, or by its hash where a relay knows no more."""
    namespace, name = row.get("namespace"), row.get("name")
    if namespace or name:
        return f"{namespace} {name}"
    return str(row.get("track") or units.NOTHING)


def some(items: Iterable[Any]) -> str:
    """A few of a list."""
    texts = [str(item) for item in items]
    if not texts:
        return units.NOTHING
    more = f" +{len(texts) - FEW}" if len(texts) > FEW else ""
    return " ".join(texts[:FEW]) + more


def _text(head: str, field: str, *, folds: bool = False) -> Column:
    def show(row: Row) -> str:
        value = row.get(field)
        return units.NOTHING if value is None or value == "" else str(value)

    return Column(head, show, folds=folds)


def _count(head: str, field: str) -> Column:
    return Column(head, lambda row: units.number(row.get(field)), right=True)


def _rare(head: str, field: str) -> Column:
    """A count that is 0 while all is well, and then takes no room."""
    return Column(head, lambda row: units.number(row.get(field) or None), right=True)


def _bytes(head: str, field: str) -> Column:
    """An amount that grows: in all, or a second where that is known."""

    def show(row: Row) -> str:
        if row.rates is not None:
            return units.rate(row.rates.get(field))
        return units.size(row.get(field))

    return Column(head, show, right=True)


def _size(head: str, field: str) -> Column:
    return Column(head, lambda row: units.size(row.get(field)), right=True)


def _delay(head: str, field: str) -> Column:
    return Column(head, lambda row: units.delay(row.get(field)), right=True)


def _since(head: str, field: str = "since") -> Column:
    """How long ago."""

    def show(row: Row) -> str:
        then = row.get(field)
        return units.NOTHING if not then else units.duration(row.at - then)

    return Column(head, show, right=True)


def _list(head: str, field: str) -> Column:
    return Column(head, lambda row: some(row.get(field) or ()))


TRACK: Final = Column("track", _track, folds=True)


def _loss(row: Row) -> str:
    get = row.get if row.rates is None else row.rates.get
    sent, lost = get("sent_packets"), get("lost_packets")
    return units.NOTHING if not sent or lost is None else units.share(lost / sent)


def _best(row: Row) -> Path | None:
    best: Path | None = row.get("best")
    return best


def _via(row: Row) -> str:
    best = _best(row)
    return units.NOTHING if best is None else best.peer


def _hops(row: Row) -> str:
    best = _best(row)
    # As selection counts: the relays in between.
    return units.NOTHING if best is None or not best.hops else str(len(best.hops) - 1)


def _srtt(row: Row) -> str:
    best = _best(row)
    return units.delay(None if best is None else best.srtt_us)


def _way(row: Row) -> str:
    best = _best(row)
    return "" if best is None else " ".join(best.hops)


def _origin(row: Row) -> str:
    source = row.values.source
    if source.stub is not msgspec.UNSET:
        return f"stub {source.stub}"
    if source.client is not msgspec.UNSET:
        return f"client {source.client}"
    peer = units.NOTHING if source.peer is msgspec.UNSET else source.peer
    return f"{peer} set {'?' if source.sns is msgspec.UNSET else source.sns}"


def _outs(row: Row) -> str:
    return some(f"{out.peer} set {out.sns}" + ("*" if out.old else "") for out in row.values.out)


def _width(row: Row) -> str:
    width = row.get("width_bps") or 0
    return f"{'≥ ' if width >= WIDEST_BPS else ''}{units.rate(width / 8 or None)}"


def _largest(row: Row) -> str:
    largest = row.get("largest")
    return units.NOTHING if largest is None else f"{largest[0]}/{largest[1]}"


def _speaks(row: Row) -> str:
    """The protocol, and what it runs on where that is not QUIC itself."""
    over = row.get("transport")
    return f"{row.get('protocol')}{'/web' if over == 'webtransport' else ''}"


def _sent_to(row: Row) -> str:
    """Where a client was asked to go, and why; and that it stays, if it does."""
    if not row.get("sent_to"):
        return units.NOTHING
    stays = " and stays" if row.get("stays") else ""
    return f"{row.get('sent_to')}{stays}: {row.get('sent_why')}"


def _names_of(row: Row) -> str:
    """What the names of an origin begin with."""
    return some([*(row.get("namespaces") or ()), *(row.get("ids") or ())])


def _answer_time(row: Row) -> str:
    """How long an origin took, on average."""
    answered = row.get("answered")
    return units.delay(row.get("answer_us") / answered if answered else None)


def _counter(row: Row) -> str:
    if row.rates is not None:
        return units.per_second(row.rates.get("value"))
    return units.number(row.get("value"))


# -- answers without a list of their own -----------------------------------------------------------


class PathRow(msgspec.Struct, frozen=True):
    """A path to a node, and why it is taken or not."""

    to: str
    best: Path | None
    reason: str


def _paths(answer: Nodes) -> Iterable[PathRow]:
    """A row for each path: the best first, and those it was preferred to."""
    for node in answer.nodes:
        if node.best is None:
            yield PathRow(node.node, None, node.reason or "no path leads there")
            continue
        yield PathRow(node.node, node.best, node.reason)
        for other in node.alternates:
            yield PathRow("", other, _lesser(other))


def _lesser(path: Path) -> str:
    if not path.admitted:
        return "not admitted"
    return "instead" if path.carries_data else "instead; for control alone"


class CounterRow(msgspec.Struct, frozen=True):
    """One number that a room has counted."""

    room: str
    counter: str
    value: int


def _counters(answer: Counters) -> Iterable[CounterRow]:
    """A row for each number."""
    for room, counters in msgspec.structs.asdict(answer).items():
        for name, value in counters.items():
            yield CounterRow(room, name, value)


_SRTT = Column("sRTT", _srtt, right=True)

VIEWS: Final = {
    view.name: view
    for view in (
        View(
            "nodes",
            Nodes,
            (
                _text("node", "node"),
                _text("role", "role"),
                _text("region", "region"),
                _text("clients at", "clients_address"),
                Column("load", lambda row: units.share(row.get("load")), right=True),
                Column("via", _via),
                Column("hops", _hops, right=True),
                _SRTT,
            ),
            ("node",),
        ),
        View(
            "peers",
            Peers,
            (
                _text("peer", "node"),
                _text("role", "role"),
                _text("for", "mode"),
                _text("address", "address"),
                _delay("sRTT", "srtt_us"),
                _bytes("sent", "sent_bytes"),
                _bytes("received", "received_bytes"),
                Column("lost", _loss, right=True),
                _rare("probes", "probe_timeouts"),
                _size("queue", "queue_bytes"),
                _count("leads to", "leads_to"),
                _since("up"),
                _text("on demand, as", "on_demand", folds=True),
            ),
            ("node",),
        ),
        View(
            "paths",
            Nodes,
            (
                Column("to", lambda row: str(row.values.to)),
                Column("by", _way, folds=True),
                _SRTT,
                _text("why", "reason", folds=True),
            ),
            unfold=_paths,
        ),
        View(
            "subscribes",
            Subscribes,
            (TRACK, _text("wanted at", "source"), _text("hash", "track"), _text("seq", "sequence")),
            ("source", "track"),
        ),
        View(
            "announces",
            Announces,
            (
                _text("namespace", "namespace", folds=True),
                Column("name", lambda row: row.get("name") or "(all below)", folds=True),
                _text("at", "source"),
                _text("client", "client"),
            ),
            ("source", "client", "namespace", "name"),
        ),
        View(
            "tracks",
            Tracks,
            (
                TRACK,
                _text("class", "service"),
                _count("pub", "publishers"),
                _count("sub", "subscribers"),
                _list("from", "ingress"),
                _list("to", "egress"),
                _bytes("received", "received_bytes"),
                _bytes("sent", "sent_bytes"),
                _size("kept", "cached_bytes"),
                _rare("lost", "lost_objects"),
                Column("largest", _largest, right=True),
            ),
            ("track",),
        ),
        View(
            "fib",
            Fib,
            (
                Column("from", _origin),
                _text("track", "track"),
                Column("to", _outs, folds=True),
                Column("here", lambda row: "yes" if row.get("local") else "no"),
                _list("for", "targets"),
                _list("unreached", "unreached"),
            ),
            ("from", "track"),
        ),
        View(
            "sns",
            NodeSets,
            (
                _text("peer", "peer"),
                _text("direction", "direction"),
                _text("set", "sns"),
                _list("nodes", "nodes"),
                _count("streams", "streams"),
                Column("old", lambda row: "yes" if row.get("old") else ""),
            ),
            ("peer", "direction", "sns"),
        ),
        View(
            "cache",
            Cache,
            (
                TRACK,
                _size("kept", "bytes"),
                _count("groups", "groups"),
                _text("first", "first_group"),
                _text("last", "last_group"),
            ),
            ("track",),
        ),
        View(
            "clients",
            Clients,
            (
                _text("no", "client"),
                Column("speaks", _speaks),
                _text("address", "address"),
                _delay("sRTT", "srtt_us"),
                _count("sub", "subscribes"),
                _count("pub", "publishes"),
                _bytes("sent", "sent_bytes"),
                _bytes("received", "received_bytes"),
                _size("queue", "queue_bytes"),
                _count("drops", "dropped_groups"),
                _since("up"),
                Column("sent to", _sent_to, folds=True),
            ),
            ("client",),
        ),
        View(
            "policy",
            PolicyLines,
            (
                _text("table", "kind"),
                _text("of", "what", folds=True),
                _text("holds", "holds", folds=True),
            ),
        ),
        View(
            "probes",
            Probes,
            (
                _text("node", "node"),
                _text("role", "role"),
                _delay("RTT", "rtt_us"),
                _delay("expected", "estimate_us"),
                Column("lost", lambda row: units.share(row.get("loss")), right=True),
                Column("carries", _width),
                _since("probed", "probed_at"),
                _rare("unanswered", "unanswered"),
                _list("too near to", "doubted"),
            ),
            ("node",),
        ),
        View(
            "classes",
            ClassesOfService,
            (
                _count("order", "order"),
                _list("classes", "classes"),
                _count("tracks", "tracks"),
                _bytes("sent", "sent_bytes"),
                _size("waiting", "waiting_bytes"),
                _rare("dropped", "dropped"),
            ),
            ("order",),
        ),
        View(
            "demand",
            Demand,
            (
                _text("kind", "kind"),
                _text("node", "node"),
                _text("state", "state"),
                _text("for region", "region"),
                _count("helps", "flows"),
                _since("since"),
                _text("why", "why", folds=True),
            ),
            ("kind", "node", "region", "contact"),
        ),
        View(
            "control",
            Control,
            (
                _text("of", "node"),
                Column("server", lambda row: "yes" if row.get("serves") else ""),
                _text("is sent", "hears"),
                _list("its servers", "servers"),
                _count("announces", "announces"),
                _count("subscribes", "holds"),
                _text("why", "why", folds=True),
            ),
            ("node",),
        ),
        View(
            "origins",
            Origins,
            (
                _text("origin", "origin"),
                _text("by", "decides"),
                Column("names", _names_of),
                _count("calls", "calls"),
                _count("allowed", "allowed"),
                _count("refused", "refused"),
                _count("failed", "failed"),
                _count("waiting", "waiting"),
                Column("answers in", _answer_time, right=True),
                _text("last failure", "last_failure", folds=True),
            ),
            ("origin",),
        ),
        View(
            "counters",
            Counters,
            (
                _text("room", "room"),
                _text("counter", "counter"),
                Column("count", _counter, right=True),
            ),
            ("room", "counter"),
            unfold=_counters,
        ),
        View(
            "closes",
            Closes,
            (
                _since("ago", "at"),
                _text("kind", "kind"),
                _text("who", "who"),
                _text("address", "address"),
                Column("by", lambda row: "them" if row.get("by_peer") else "us"),
                _text("code", "code"),
                _text("why", "reason", folds=True),
            ),
        ),
        View(
            "events",
            Events,
            (
                _since("ago", "at"),
                _text("event", "event"),
                _text("subject", "subject"),
                _text("detail", "detail", folds=True),
                _text("why", "reason", folds=True),
            ),
            newest_last=True,
        ),
    )
}
