"""A lab on a terminal: tables that live, lines where there is no terminal, words at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from laps.lab.summary import problems
from laps.lab.traffic import percentile
from laps.lab.watching import tree
from laps.types import PeerMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from laps.lab.running import Lab
    from laps.lab.traffic import Reader
    from laps.lab.watching import Event

# What fits beside each other on a screen of 100 columns and 40 lines.
RELAYS: Final = 14
LINKS: Final = 13
SUBSCRIBERS: Final = 12
EVENTS: Final = 5

_STYLES: Final = {"up": "green", "starting": "yellow", "down": "red"}


class Screen:
    """What is shown while a lab runs; it remembers what it showed, for the rates."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._counted: dict[Reader, tuple[float, int]] = {}
        self._rates: dict[Reader, float] = {}

    def render(self) -> RenderableType:
        """The whole picture."""
        self._count()
        beside = Table.grid(padding=(0, 3, 0, 0))
        beside.add_row(self._relays(), self._links())
        return Group(self._head(), beside, self._tracks(), self._events())

    def lines(self) -> list[str]:
        """The same in a few plain lines."""
        self._count()
        lab = self._lab
        up = sum(relay.state == "up" for relay in lab.relays.values())
        made = [f"{self._seconds():.0f} s: {up} of {len(lab.relays)} relays up, {lab.phase}"]
        for writer in lab.writers:
            readers = [reader for reader in lab.readers if reader.spec.track == writer.spec.track]
            took = [value for reader in readers for value in reader.recent]
            lost = sum(len(reader.account.missing) for reader in readers)
            rate = sum(self._rates.get(reader, 0.0) for reader in readers)
            way = tree(lab.watch.copies(writer.spec.track), writer.spec.node)
            made.append(
                f"  {writer.spec.track}: {rate_words(rate)} to {len(readers)} subscribers, "
                f"p50 {_ms(took, 0.5)}, p99 {_ms(took, 0.99)}, lost {lost}; {way}"
            )
        return made

    def _seconds(self) -> float:
        return time.time() - self._lab.began

    def _count(self) -> None:
        """Rates, of a second at least."""
        now = time.monotonic()
        for reader in self._lab.readers:
            at, counted = self._counted.setdefault(reader, (now, reader.account.bytes))
            if now - at >= 1:
                self._rates[reader] = 8 * (reader.account.bytes - counted) / (now - at)
                self._counted[reader] = (now, reader.account.bytes)

    def _head(self) -> Text:
        lab = self._lab
        words = Text()
        words.append("LAPS lab", style="bold")
        words.append(f"  {self._seconds():.0f} s  {lab.phase}")
        if lab.url:
            words.append(f"  clients {lab.url}")
        if lab.dashboard:
            words.append(f"  dashboard {lab.dashboard}")
        words.append(
            "\nelsewhere: laps lab kill NODE, start NODE, delay A B 200ms, drop A B 2%, heal",
            style="dim",
        )
        return words

    def _relays(self) -> Table:
        table = _table("relay", "role", "region", "state", ">load", ">clients", ">peers")
        rows = sorted(self._lab.relays.values(), key=lambda relay: relay.state != "down")
        for relay in rows[:RELAYS]:
            sight = self._lab.watch.sights[relay.name]
            known = sight.answered
            table.add_row(
                relay.name,
                relay.node.type,
                relay.node.region,
                Text(relay.state, style=_STYLES[relay.state]),
                f"{100 * sight.load:.0f} %" if known else "-",
                str(sight.clients) if known else "-",
                str(len(sight.peers)) if known else "-",
            )
        if len(rows) > RELAYS:
            table.add_row(f"and {len(rows) - RELAYS} more")
        return table

    def _links(self) -> Table:
        """Those for data that carry the most."""
        table = _table("link", ">sRTT", ">rate")
        rows = []
        for a, b, link in self._lab.links:
            if link.mode is PeerMode.CONTROL:
                continue
            here, there = self._lab.watch.sights[a], self._lab.watch.sights[b]
            row = next((peer for peer in here.peers if peer.node == b), None)
            rate = here.rates.get(b, 0.0) + there.rates.get(a, 0.0)
            if row is not None:
                rows.append((rate, f"{a} - {b}", row.srtt_us))
        for rate, name, srtt_us in sorted(rows, reverse=True)[:LINKS]:
            table.add_row(name, f"{srtt_us / 1000:.0f} ms", rate_words(rate))
        return table

    def _tracks(self) -> Table:
        table = _table("track", "at", "by", ">rate", ">p50", ">p99", ">received", ">lost")
        shown = 0
        for writer in self._lab.writers:
            hops = self._lab.watch.copies(writer.spec.track)
            most = max((hops.count(hop) for hop in hops), default=0)
            copies = f"{most} a link" if hops else ""
            table.add_row(
                Text(writer.spec.track, style="bold"),
                f"{writer.spec.node}, publisher",
                writer.spec.protocol,
                *("", "", copies, f"of {writer.written}", ""),
            )
            for reader in self._lab.readers:
                if reader.spec.track != writer.spec.track or shown >= SUBSCRIBERS:
                    continue
                shown += 1
                table.add_row(*self._subscriber(reader))
        return table

    def _subscriber(self, reader: Reader) -> Iterable[Any]:
        account = reader.account
        lost = len(account.missing)
        way = self._lab.watch.copies(reader.spec.track)
        root = next(w.spec.node for w in self._lab.writers if w.spec.track == reader.spec.track)
        yield ""
        yield path_words(way, root, reader.spec.node)
        yield reader.spec.protocol
        yield rate_words(self._rates.get(reader, 0.0))
        yield _ms(reader.recent, 0.5)
        yield _ms(reader.recent, 0.99)
        yield str(account.received)
        yield Text(str(lost), style="red" if lost else "green")

    def _events(self) -> RenderableType:
        """What was done, and what relays said to it, the last ones below."""
        told = [(fault.at, fault.words, "yellow") for fault in self._lab.faults]
        told += [(at, words, "") for at, words in news(self._lab.watch.events, self._lab.flowing)]
        lines = Text(no_wrap=True, overflow="ellipsis")
        for at, words, style in sorted(told)[-EVENTS:]:
            lines.append(f"{time.strftime('%H:%M:%S', time.localtime(at))} {words}\n", style=style)
        return lines


def news(events: Iterable[Event], since: float) -> list[tuple[float, str]]:
    """What a person wants to hear; routes of one relay that change alike are told of together."""
    made: list[tuple[float, str]] = []
    routes: dict[tuple[str, str, int], list[Event]] = {}
    for event in events:
        if event.at < since or not event.is_news:
            continue
        if event.event == "path_changed":
            routes.setdefault((event.node, event.detail, int(event.at)), []).append(event)
        else:
            made.append((event.at, str(event)))
    for (node, detail, _), alike in routes.items():
        if len(alike) == 1:
            made.append((alike[0].at, str(alike[0])))
        else:
            nodes = ", ".join(event.subject for event in alike)
            made.append((alike[0].at, f"{node}: routes changed, {detail}, to {nodes}"))
    return made


def path_words(hops: Iterable[tuple[str, str]], root: str, node: str) -> str:
    """The way of a track from its publisher's relay to one node: `1:1>1:100>2:1`."""
    before = {far: near for near, far in sorted(set(hops), reverse=True)}
    way = [node]
    while way[0] != root and way[0] in before and before[way[0]] not in way:
        way.insert(0, before[way[0]])
    return ">".join(way)


def rate_words(bps: float) -> str:
    """A rate for people."""
    return f"{bps / 1e6:.2f} Mbit/s" if bps >= 1e5 else f"{bps / 1e3:.1f} kbit/s"


def _ms(values: Any, share: float) -> str:
    found = percentile(values, share)
    return "-" if found is None else f"{1000 * found:.0f} ms"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", no_wrap=True)
    return table


def closing(lab: Lab) -> RenderableType:
    """What came of it, when it is over."""
    table = _table("track", "subscriber", "by", ">received", ">lost", ">p50", ">p99")
    for reader in lab.readers:
        account = reader.account
        lost = sum(map(len, lab.lost(reader)))
        table.add_row(
            reader.spec.track,
            reader.spec.node,
            reader.spec.protocol,
            str(account.received),
            str(lost),
            _ms(reader.latencies, 0.5),
            _ms(reader.latencies, 0.99),
        )
    words = Text()
    for writer in lab.writers:
        spec = writer.spec
        words.append(f"{spec.track}: {writer.written} objects, ")
        words.append(f"{tree(lab.routes.get(spec.track, []), spec.node)}\n")
    for fault in lab.faults:
        words.append(f"{fault.words}\n", style="yellow")
    found = problems(lab)
    for problem in found:
        words.append(f"{problem}\n", style="red")
    if not found:
        words.append("every subscriber received every object", style="green")
    words.rstrip()
    return Group(table, words)
