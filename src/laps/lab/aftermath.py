"""What a relay's death costs subscribers: what they missed, and how long they waited."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laps.lab.traffic import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from laps.lab.traffic import Reader, Writer

# What is missing may still come for this long; nearly always it is there after a second.
LIMIT_S: Final = 15.0
# Whoever has received something by then has noticed, if there was anything to notice.
LEAST_S: Final = 3.0
LOOK_S: Final = 0.1


@dataclass(slots=True)
class _Seen:
    """A subscriber, and how it stood when a relay died."""

    reader: Reader
    interval_s: float
    "Between two objects, as they are published."
    written: int
    missed: frozenset[int]
    "What it had missed before."


class Aftermath:
    """Watches the subscribers from the moment that a relay is killed."""

    def __init__(
        self,
        node: str,
        readers: list[Reader],
        writers: list[Writer],
        ways: Iterable[tuple[str, str]],
    ) -> None:
        """`ways` are the links for data between the relays that are left.

        Those whose own relay it is, and those that no way leads to any more, wait until it is
        back, and are not looked at.
        """
        ways = list(ways)
        by_track = {it.spec.track: it for it in writers if it.spec.node != node}
        self._died = time.monotonic()
        self._seen: list[_Seen] = []
        self.cut_off = 0
        "Subscribers that have nobody to receive from."
        for reader in readers:
            writer = by_track.get(reader.spec.track)
            if (
                writer is None
                or reader.spec.node == node
                or reader.spec.node not in reached_from(writer.spec.node, ways)
            ):
                self.cut_off += 1
                continue
            interval_s = 1 / SHAPES[writer.spec.kind].per_s
            missed = frozenset(reader.account.missing)
            self._seen.append(_Seen(reader, interval_s, writer.written, missed))

    async def wait(self) -> str:
        """Wait until everybody has received what there is; in words, how it went."""
        began = time.monotonic()
        await asyncio.sleep(LEAST_S)
        while (  # noqa: ASYNC110 - nobody tells when the last has come
            waiting := self._waiting()
        ) and time.monotonic() < began + LIMIT_S:
            await asyncio.sleep(LOOK_S)
        words = []
        if not self._seen:
            words.append(
                "every subscriber or its publisher is at it, or no way leads there without it"
            )
        elif waiting:
            misses = [f"{it.reader.spec} misses {self._missing(it)} objects" for it in waiting]
            words.append(f"after {LIMIT_S:g} s {', '.join(misses)}")
        else:
            longest = max(self._seen, key=lambda it: self._pause_s(it) - it.interval_s)
            pause_s = self._pause_s(longest)
            pause = f"the longest pause was {pause_s:.2f} s, {longest.reader.spec}"
            words += ["every subscriber received every object", pause]
        if self.cut_off:
            words.append(f"{self.cut_off} wait until it is started again")
        return "; ".join(words)

    def _pause_s(self, seen: _Seen) -> float:
        return seen.reader.pause_since(self._died)

    def _waiting(self) -> list[_Seen]:
        return [
            it
            for it in self._seen
            if self._missing(it) or it.reader.account.following <= it.written
        ]

    def _missing(self, seen: _Seen) -> int:
        account = seen.reader.account
        return len(account.missing - seen.missed) + max(0, seen.written - account.following)


def reached_from(node: str, ways: Sequence[tuple[str, str]]) -> set[str]:
    """The relays that ways lead to, and the one they lead from."""
    reached, found = set[str](), {node}
    while found:
        reached |= found
        pairs = [*ways, *((b, a) for a, b in ways)]
        found = {b for a, b in pairs if a in reached} - reached
    return reached
