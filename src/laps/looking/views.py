"""The views of the admin API as tables: which columns a person wants of each, and in what units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laps import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Values = dict[str, Any]

# A list inside a cell is as long as this, and then it says how much more there is.
FEW: Final = 4


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a view, and what two answers say of how fast its amounts grow."""

    node: str
    "Who says it."
    values: Values
    at: float
    "When it was so."
    rates: dict[str, float] | None = None
    "A second, by field; None where there was one answer only."


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
    path: str
    "Of the admin API, below /v1/."
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    "The fields that name a row, so that it is found again in the next answer."
    newest_last: bool = False
    "In the order of time: of many rows the last are wanted."
    unfold: Callable[[Values], Iterable[Values]] | None = None
    "Makes the rows out of an answer that has no list of its own, or more than one for each."

    def rows(self, answer: Values) -> list[Row]:
        """The rows of an answer."""
        node, at = str(answer.get("node", "")), float(answer.get("at", 0.0))
        values = answer.get(self.path, ()) if self.unfold is None else self.unfold(answer)
        return [Row(node, row, at) for row in values]

    def name_of(self, row: Row) -> tuple[Any, ...]:
        """What names a row among all."""
        return (row.node, *(repr(row.values.get(field)) for field in self.key))


# -- cells -----------------------------------------------------------------------------------------


def track_text(values: Values) -> str:
    """A track by its name, or by its hash where a relay knows no more."""
    namespace, name = values.get("namespace"), values.get("name")
    if namespace or name:
        return f"{namespace} {name}"
    return str(values.get("track") or units.NOTHING)


def some(items: Iterable[Any]) -> str:
    """A few of a list."""
    texts = [str(item) for item in items]
    if not texts:
        return units.NOTHING
    more = f" +{len(texts) - FEW}" if len(texts) > FEW else ""
    return " ".join(texts[:FEW]) + more


def _text(head: str, field: str, *, folds: bool = False) -> Column:
    def show(row: Row) -> str:
        value = row.values.get(field)
        return units.NOTHING if value is None or value == "" else str(value)

    return Column(head, show, folds=folds)


def _count(head: str, field: str) -> Column:
    return Column(head, lambda row: units.number(row.values.get(field)), right=True)


def _bytes(head: str, field: str) -> Column:
    """An amount that grows: in all, or a second where that is known."""

    def show(row: Row) -> str:
        if row.rates is not None:
            return units.rate(row.rates.get(field))
        return units.size(row.values.get(field))

    return Column(head, show, right=True)


def _size(head: str, field: str) -> Column:
    return Column(head, lambda row: units.size(row.values.get(field)), right=True)


def _delay(head: str, field: str) -> Column:
    return Column(head, lambda row: units.delay(row.values.get(field)), right=True)


def _since(head: str, field: str = "since") -> Column:
    """How long ago."""

    def show(row: Row) -> str:
        then = row.values.get(field)
        return units.NOTHING if not then else units.duration(row.at - then)

    return Column(head, show, right=True)


def _list(head: str, field: str) -> Column:
    return Column(head, lambda row: some(row.values.get(field) or ()))


TRACK: Final = Column("track", lambda row: track_text(row.values), folds=True)


def _loss(row: Row) -> str:
    source = row.values if row.rates is None else row.rates
    sent, lost = source.get("sent_packets"), source.get("lost_packets")
    return units.NOTHING if not sent or lost is None else units.share(lost / sent)


def _best(row: Row) -> Values:
    return row.values.get("best") or {}


def _hops(row: Row) -> str:
    hops = _best(row).get("hops")
    # As selection counts: the relays in between.
    return units.NOTHING if hops is None else str(len(hops) - 1)


def _origin(row: Row) -> str:
    source = row.values.get("from") or {}
    if "stub" in source:
        return f"stub {source['stub']}"
    if "client" in source:
        return f"client {source['client']}"
    return f"{source.get('peer', units.NOTHING)} set {source.get('sns', '?')}"


def _outs(row: Row) -> str:
    outs = row.values.get("out") or ()
    return some(f"{out['peer']} set {out['sns']}" + ("*" if out.get("old") else "") for out in outs)


def _largest(row: Row) -> str:
    largest = row.values.get("largest")
    return units.NOTHING if largest is None else f"{largest[0]}/{largest[1]}"


def _speaks(row: Row) -> str:
    """The protocol; what it runs on is QUIC itself unless it is said."""
    over = row.values.get("transport")
    return f"{row.values.get('protocol')}{'/web' if over == 'webtransport' else ''}"


def _counter(row: Row) -> str:
    if row.rates is not None:
        return units.per_second(row.rates.get("value"))
    return units.number(row.values.get("value"))


# -- answers without a list of their own -----------------------------------------------------------


def _paths(answer: Values) -> Iterable[Values]:
    """A row for each path: the best first, and those it was preferred to."""
    for node in answer.get("nodes", ()):
        best, others = node.get("best"), node.get("alternates") or ()
        if best is None:
            yield {"to": node["node"], "reason": node.get("reason") or "no path leads there"}
            continue
        yield {"to": node["node"], "best": best, "reason": node.get("reason")}
        for other in others:
            yield {"to": "", "best": other, "reason": _lesser(other)}


def _lesser(path: Values) -> str:
    if not path.get("admitted", True):
        return "not admitted"
    return "instead" if path.get("carries_data", True) else "instead; for control alone"


def _counters(answer: Values) -> Iterable[Values]:
    """A row for each number, however deep."""
    for room, counters in answer.items():
        if isinstance(counters, dict):
            for name, value in counters.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield {"room": room, "counter": name, "value": value}


def _way(row: Row) -> str:
    return " ".join(_best(row).get("hops") or ())


_SRTT = Column("sRTT", lambda row: units.delay(_best(row).get("srtt_us")), right=True)

VIEWS: Final = {
    view.name: view
    for view in (
        View(
            "nodes",
            "nodes",
            (
                _text("node", "node"),
                _text("role", "role"),
                _text("region", "region"),
                _text("clients at", "clients_address"),
                Column("load", lambda row: units.share(row.values.get("load")), right=True),
                Column("via", lambda row: _best(row).get("peer", units.NOTHING)),
                Column("hops", _hops, right=True),
                _SRTT,
            ),
            ("node",),
        ),
        View(
            "peers",
            "peers",
            (
                _text("peer", "node"),
                _text("role", "role"),
                _text("for", "mode"),
                _text("address", "address"),
                _delay("sRTT", "srtt_us"),
                _bytes("sent", "sent_bytes"),
                _bytes("received", "received_bytes"),
                Column("lost", _loss, right=True),
                _size("queue", "queue_bytes"),
                _count("leads to", "leads_to"),
                _since("up"),
            ),
            ("node",),
        ),
        View(
            "paths",
            "nodes",
            (
                Column("to", lambda row: str(row.values["to"])),
                Column("by", _way, folds=True),
                _SRTT,
                _text("why", "reason", folds=True),
            ),
            unfold=_paths,
        ),
        View(
            "subscribes",
            "subscribes",
            (TRACK, _text("wanted at", "source"), _text("hash", "track"), _text("seq", "sequence")),
            ("source", "track"),
        ),
        View(
            "announces",
            "announces",
            (
                _text("namespace", "namespace", folds=True),
                Column("name", lambda row: row.values.get("name") or "(all below)", folds=True),
                _text("at", "source"),
                _text("client", "client"),
            ),
            ("source", "client", "namespace", "name"),
        ),
        View(
            "tracks",
            "tracks",
            (
                TRACK,
                _count("pub", "publishers"),
                _count("sub", "subscribers"),
                _list("from", "ingress"),
                _list("to", "egress"),
                _bytes("received", "received_bytes"),
                _bytes("sent", "sent_bytes"),
                _size("kept", "cached_bytes"),
                Column("largest", _largest, right=True),
            ),
            ("track",),
        ),
        View(
            "fib",
            "fib",
            (
                Column("from", _origin),
                _text("track", "track"),
                Column("to", _outs, folds=True),
                Column("here", lambda row: "yes" if row.values.get("local") else "no"),
                _list("for", "targets"),
                _list("unreached", "unreached"),
            ),
            ("from", "track"),
        ),
        View(
            "sns",
            "sns",
            (
                _text("peer", "peer"),
                _text("direction", "direction"),
                _text("set", "sns"),
                _list("nodes", "nodes"),
                _count("streams", "streams"),
                Column("old", lambda row: "yes" if row.values.get("old") else ""),
            ),
            ("peer", "direction", "sns"),
        ),
        View(
            "cache",
            "cache",
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
            "clients",
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
            ),
            ("client",),
        ),
        View(
            "counters",
            "counters",
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
            "closes",
            (
                _since("ago", "at"),
                _text("kind", "kind"),
                _text("who", "who"),
                _text("address", "address"),
                Column("by", lambda row: "them" if row.values.get("by_peer") else "us"),
                _text("code", "code"),
                _text("why", "reason", folds=True),
            ),
        ),
        View(
            "events",
            "events",
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
