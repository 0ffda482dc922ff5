"""A demand that is made up for measuring: tracks and who subscribes to them, the same for a seed.

Popularity has a long tail: most tracks have a few s-relays, and a few have most of them. An
audience begins in one region, mostly that of the o-relay, and reaches out to the ones around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from laps.spark.planner.network import Ints, Longs, Network

# Bits in a second of a track, and how often: readings, voice, small and large video.
_RATES: Final = ((8_000, 0.35), (48_000, 0.3), (1_200_000, 0.25), (4_000_000, 0.1))

_TRACKS_PER_CHUNK: Final = 250_000
_ROWS_PER_CHUNK: Final = 2_500_000

_EARTH_KM: Final = 6371.0


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Some tracks and all of their subscriptions."""

    track: Longs
    origin: Ints
    rate_bps: NDArray[np.float32]
    profile: NDArray[np.int8]
    row: Ints
    "[subscription]: the place of its track in these arrays."
    relay: Ints
    "[subscription]"

    def tracks(self) -> dict[str, NDArray[Any]]:
        """As the table of tracks has them."""
        return {
            "track": self.track,
            "origin": self.origin,
            "rate_bps": self.rate_bps,
            "profile": self.profile,
        }

    def subscriptions(self) -> dict[str, NDArray[Any]]:
        """As the table of subscriptions has them."""
        return {"track": self.track.take(self.row), "relay": self.relay}


@dataclass(frozen=True, slots=True)
class Chunk:
    """The part of a demand that is made up at a time."""

    number: int
    begin: int
    """The number of its first track."""
    tracks: int
    rows: int


def chunks_of(tracks: int, rows: int) -> list[Chunk]:
    """The whole of a demand in parts, each of which knows what is its own."""
    count = max(1, tracks // _TRACKS_PER_CHUNK, rows // _ROWS_PER_CHUNK)
    count = min(count, tracks)
    return [
        Chunk(
            number,
            tracks * number // count,
            tracks * (number + 1) // count - tracks * number // count,
            rows * (number + 1) // count - rows * number // count,
        )
        for number in range(count)
    ]


class Audience:
    """Makes up tracks and who subscribes to them; `shares` tells how common each profile is."""

    def __init__(self, made: Network, shares: Sequence[float], seed: int = 1) -> None:
        self._seed = seed
        self._shares = np.array(shares) / sum(shares)
        self._region = made.region
        self._edges = np.flatnonzero(made.is_edge).astype(np.int32)
        places = np.array([(node.latitude, node.longitude) for node in made.nodes])
        first = [int(np.flatnonzero(made.region == n)[0]) for n in range(len(made.regions))]
        km = distances_km(places[first])
        # [region, place]: all Edges, those of the region first, then of the next one, and so on.
        nearness = np.argsort(np.argsort(km, axis=1), axis=1)[:, self._region[self._edges]]
        self._near = self._edges[np.argsort(nearness, axis=1, kind="stable")]

    @property
    def most(self) -> int:
        """S-relays that a track has at most: half of all Edges."""
        return max(1, len(self._edges) // 2)

    def chunk(self, number: int, begin: int, tracks: int, rows: int) -> Demand:
        """Tracks from number `begin` on, with exactly so many subscriptions in all, if they fit."""
        random = np.random.default_rng((self._seed, number))
        origin = random.choice(self._edges, tracks)
        rates, often = zip(*_RATES, strict=True)
        rate = random.choice(np.array(rates, np.float32), tracks, p=often)
        profile = random.choice(len(self._shares), tracks, p=self._shares).astype(np.int8)
        count = self._popularity(random, tracks, rows)
        home = self._region[
            np.where(random.random(tracks) < 0.7, origin, random.choice(origin, tracks))
        ]
        row, relay = self._relays(random, count, home)
        # As telemetry has it: what each relay says, one after the other.
        order = np.argsort(relay.astype(np.uint16), kind="stable")
        track = _mixed(np.arange(begin, begin + tracks, dtype=np.uint64))
        return Demand(track, origin, rate, profile, row[order], relay[order])

    def _popularity(self, random: np.random.Generator, tracks: int, rows: int) -> Longs:
        """How many s-relays each track has: a long tail, cut where all Edges have it."""
        most = self.most
        rows = min(rows, tracks * most)
        weight = (1.0 - random.random(tracks)) ** (-1 / 1.3)
        low, high = 0.0, float(most)
        for _ in range(40):
            scale = (low + high) / 2
            if np.minimum(weight * scale, most).astype(np.int64).sum() > rows:
                high = scale
            else:
                low = scale
        count = np.minimum(weight * low, most).astype(np.int64)
        while (missing := rows - int(count.sum())) > 0:
            room = np.flatnonzero(count < most)
            count[random.permutation(room)[:missing]] += 1
        return count

    def _relays(self, random: np.random.Generator, count: Longs, home: Ints) -> tuple[Ints, Ints]:
        """Of the Edges within reach of the home region, so many, evenly and none twice."""
        edges = self._near.shape[1]
        some = np.maximum(count, 1)
        reach = some * (edges / some) ** (random.random(len(count)) ** 2)
        reach = np.clip(reach.astype(np.int64), some, edges)
        row = np.repeat(np.arange(len(count), dtype=np.int32), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        of_row, wide = some[row], reach[row]
        begin = within * wide // of_row
        end = (within + 1) * wide // of_row
        place = begin + (random.random(len(row), np.float32) * (end - begin)).astype(np.int64)
        place = np.minimum(place, end - 1)
        return row, self._near.reshape(-1)[home[row].astype(np.int64) * edges + place]


def _mixed(number: NDArray[np.uint64]) -> Longs:
    """Numbers that look like hashes, a different one for each (the finisher of SplitMix64)."""
    mixed = number + np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D0_49BB_1331_11EB)
    return (mixed ^ mixed >> np.uint64(31)).view(np.int64)


def distances_km(places: NDArray[Any]) -> NDArray[Any]:
    """[place, place]: over the ground, from latitudes and longitudes."""
    latitude, longitude = np.radians(places).T
    half = (
        np.sin((latitude[:, None] - latitude) / 2) ** 2
        + np.cos(latitude[:, None])
        * np.cos(latitude)
        * np.sin((longitude[:, None] - longitude) / 2) ** 2
    )
    km: NDArray[Any] = 2 * _EARTH_KM * np.arcsin(np.sqrt(half.clip(0, 1)))
    return km
