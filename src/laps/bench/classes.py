"""`laps bench classes`: three tracks on a link that is too narrow for them; who comes first?

    publishers -> Edge 1 -> a narrow link -> Edge 2 -> subscribers

Three videos of 2 Mbit/s, a lab of two relays as processes, one after the other: on a wide link, on
the narrow one without a policy, and on the narrow one with a policy that makes one of them gold and
one bronze. The delay is that from a publisher to its subscriber, of what came in the time measured.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from laps.bench.tables import Figure, table_of
from laps.lab.network import network_from_mapping
from laps.lab.running import Lab
from laps.lab.traffic import percentile

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

CLASSES: Final = ("gold", "silver", "bronze")
DELAY_MS: Final = 20.0

# What QUIC needs to find out how wide the link is.
RISE_S: Final = 6.0

# Gold has the delay of a link that is not full, and what a full one holds by itself: packets of all
# classes that have left the relay, a quarter of a second at most, and what QUIC has been given.
PATH_MS: Final = 300.0
# A gold track is so much sooner than without a policy.
SOONER: Final = 4.0


@dataclass(slots=True)
class Delays:
    """What one subscriber noticed."""

    p50_ms: float
    p95_ms: float
    lost: int = 0
    "What has not come some seconds after the end."


def measure(seconds: float, mbit: float, progress: Callable[[str], None]) -> list[Figure]:
    """One lab after the other."""
    with TemporaryDirectory(prefix="laps-bench-") as text:
        folder = Path(text)
        policy = folder / "policy.toml"
        policy.write_text(
            "\n".join(f'[[rule]]\ntracks = "lab/{it}/*"\nclass = "{it}"' for it in CLASSES)
        )
        progress("a link that is wide enough")
        alone = _run(seconds, 100.0, folder / "wide", None)
        progress(f"a link of {mbit:g} Mbit/s, without a policy")
        without = _run(seconds, mbit, folder / "without", None)
        progress(f"a link of {mbit:g} Mbit/s, with classes")
        with_ = _run(seconds, mbit, folder / "with", policy)
    return _figures(alone, without, with_)


def _run(seconds: float, mbit: float, folder: Path, policy: Path | None) -> dict[str, Delays]:
    folder.mkdir()
    return asyncio.run(_lab(seconds, Lab(_network(mbit), folder, policy=policy)))


async def _lab(seconds: float, lab: Lab) -> dict[str, Delays]:
    try:
        await lab.start(dashboard=False)
        await asyncio.sleep(RISE_S)
        before = [len(reader.latencies) for reader in lab.readers]
        await asyncio.sleep(seconds)
        found = {}
        for reader, start in zip(lab.readers, before, strict=True):
            came = reader.latencies[start:]
            # What has not come at all has waited for at least as long as it was measured.
            p50, p95 = percentile(came, 0.5), percentile(came, 0.95)
            found[reader.spec.track] = Delays(
                1000 * (seconds if p50 is None else p50),
                1000 * (seconds if p95 is None else p95),
            )
        await lab.end()
        for reader in lab.readers:
            found[reader.spec.track].lost = sum(map(len, lab.lost(reader)))
        return found
    finally:
        await lab.close()


def _network(mbit: float) -> Any:
    nodes = [{"id": f"{half}:1", "region": f"region {half}"} for half in (1, 2)]
    link = {"a": "1:1", "b": "2:1", "delay_ms": DELAY_MS, "bandwidth_mbit": mbit}
    publishers = [{"node": "1:1", "track": it, "kind": "video"} for it in CLASSES]
    subscribers = [{"node": "2:1", "track": it} for it in CLASSES]
    mapping = {"nodes": nodes, "links": [link], "publishers": publishers}
    return network_from_mapping({**mapping, "subscribers": subscribers}, "bench")


def _figures(
    alone: dict[str, Delays], without: dict[str, Delays], with_: dict[str, Delays]
) -> list[Figure]:
    found = []
    for case, delays in (("wide link", alone), ("narrow link", without)):
        for name in CLASSES:
            found.append(Figure(case, f"{name}, p50", round(delays[name].p50_ms, 1), "ms"))
            found.append(Figure(case, f"{name}, p95", round(delays[name].p95_ms, 1), "ms"))
    case = "narrow link, with classes"
    most = alone["gold"].p50_ms + PATH_MS
    for name in CLASSES:
        bound = most if name == "gold" else None
        p50, p95 = round(with_[name].p50_ms, 1), round(with_[name].p95_ms, 1)
        found.append(Figure(case, f"{name}, p50", p50, "ms", most=bound and round(bound, 1)))
        found.append(Figure(case, f"{name}, p95", p95, "ms"))
    ratio = without["gold"].p50_ms / max(with_["gold"].p50_ms, 0.1)
    found.append(Figure(case, "gold is sooner by", round(ratio, 2), "times", least=SOONER))
    ratio = with_["bronze"].p50_ms / max(with_["gold"].p50_ms, 0.1)
    found.append(Figure(case, "bronze is later than gold by", round(ratio, 2), "times", least=1.0))
    found.append(Figure(case, "gold lost", with_["gold"].lost, "objects", most=0))
    return found


def table(figures: list[Figure], mbit: float) -> Table:
    """For people."""
    caption = "From publisher to subscriber; gold may take what a full path holds by itself."
    return table_of(figures, f"Three videos of 2 Mbit/s on a link of {mbit:g} Mbit/s", caption)
