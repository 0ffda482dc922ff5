"""How chaos went: a mapping for programs, tables for people, and whether all was well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group
from rich.table import Table

from laps.lab.summary import problems as problems_of_lab

if TYPE_CHECKING:
    from laps.lab.chaos.memory import Life
    from laps.lab.chaos.running import Chaos, Happened
    from laps.lab.traffic import Reader


def problems(chaos: Chaos) -> list[str]:
    """What went wrong; empty: all was well."""
    found = problems_of_lab(chaos.lab) + chaos.problems
    found += [
        f"publisher of {writer.spec.track} at {writer.spec.node}: {writer.error}"
        for writer in chaos.lab.writers
        if writer.error
    ]
    found += [
        f"{life.node} grew from {life.start_mb:.0f} to {life.end_mb:.0f} MB in {life.age_s:.0f} s"
        for life in chaos.memory.grown()
    ]
    return found


def totals(chaos: Chaos) -> dict[str, int]:
    """Of all subscribers together."""
    readers = chaos.lab.readers
    return {
        "objects": sum(reader.account.received for reader in readers),
        "lost": sum(_lost(chaos, reader) for reader in readers),
        "twice": sum(reader.account.duplicates for reader in readers),
        "out_of_order": sum(reader.account.late for reader in readers),
    }


def as_mapping(chaos: Chaos) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "seed": chaos.seed,
        "seconds": round(chaos.seconds, 1),
        "relays": len(chaos.lab.relays),
        **totals(chaos),
        "faults": [_fault(it) for it in chaos.happened],
        "subscribers": [_subscriber(chaos, reader) for reader in chaos.lab.readers],
        "memory": [_life(life) for life in chaos.memory.longest()],
        "problems": problems(chaos),
    }


def tables(chaos: Chaos) -> Group:
    """All of it, for people."""
    return Group(_table_of_faults(chaos), _table_of_readers(chaos), _table_of_memory(chaos))


def verdict(chaos: Chaos) -> str:
    """One line that says it."""
    found = totals(chaos)
    words = (
        f"{len(chaos.happened)} faults in {chaos.seconds:.0f} s, {found['objects']} objects: "
        f"{found['lost']} lost, {found['twice']} twice, {found['out_of_order']} out of order"
    )
    long = [life for life in chaos.memory.longest() if life.is_long]
    if long:
        most = max(long, key=lambda life: life.growth)
        words += f"; memory {most.growth:+.0%} at most, of {most.node}"
    return words


def _lost(chaos: Chaos, reader: Reader) -> int:
    if reader.account.first is None:
        return chaos.lab.written(reader.spec.track)
    return sum(map(len, chaos.lab.lost(reader)))


def _fault(it: Happened) -> dict[str, Any]:
    return {
        "at_s": round(it.at_s, 3),
        "kind": it.fault.kind,
        "nodes": it.fault.nodes,
        "lasts_s": round(it.fault.lasts_s, 3),
        "amount": round(it.fault.amount, 4),
        "longest_pause_s": round(it.pause_s, 3),
        "subscriber": it.subscriber,
        "behind": it.behind,
    }


def _subscriber(chaos: Chaos, reader: Reader) -> dict[str, Any]:
    account = reader.account
    return {
        "track": reader.spec.track,
        "node": reader.spec.node,
        "protocol": reader.spec.protocol,
        "received": account.received,
        "lost": _lost(chaos, reader),
        "twice": account.duplicates,
        "out_of_order": account.late,
    }


def _life(life: Life) -> dict[str, Any]:
    return {
        "node": life.node,
        "pid": life.pid,
        "seconds": round(life.age_s, 1),
        "start_mb": round(life.start_mb, 1),
        "end_mb": round(life.end_mb, 1),
        "counts": life.is_long,
    }


def _table_of_faults(chaos: Chaos) -> Table:
    made = _table("fault", "times", "pause p50, s", "longest, s", "of")
    by_kind: dict[str, list[Happened]] = {}
    for it in chaos.happened:
        by_kind.setdefault(it.fault.kind, []).append(it)
    for kind, those in by_kind.items():
        those.sort(key=lambda it: it.pause_s)
        half, worst = those[len(those) // 2], those[-1]
        figures = f"{half.pause_s:.2f}", f"{worst.pause_s:.2f}"
        made.add_row(kind, str(len(those)), *figures, f"{worst.fault}, {worst.subscriber}")
    return made


def _table_of_readers(chaos: Chaos) -> Table:
    made = _table("subscriber", "received", "lost", "twice", "out of order")
    for reader in chaos.lab.readers:
        row = _subscriber(chaos, reader)
        figures = (str(row[name]) for name in ("received", "lost", "twice", "out_of_order"))
        made.add_row(str(reader.spec), *figures)
    return made


def _table_of_memory(chaos: Chaos) -> Table:
    made = _table("relay", "lived, s", "start, MB", "end, MB", "growth")
    for life in chaos.memory.longest():
        growth = f"{life.growth:+.0%}" if life.is_long else "too short"
        sizes = f"{life.age_s:.0f}", f"{life.start_mb:.0f}", f"{life.end_mb:.0f}"
        made.add_row(life.node, *sizes, growth)
    return made


def _table(first: str, *others: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    made.add_column(first)
    for head in others:
        made.add_column(head, justify="left" if head == "of" else "right")
    return made
