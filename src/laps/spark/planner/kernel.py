"""From the rows of a bucket to pairs of a track and a region, with NumPy alone.

A bucket holds every subscription of its tracks, by track and then by region, so a pair is a run of
rows: where it begins is found by comparing neighbours, and what its s-relays allow together is one
reduction over the run. Nothing is sorted and no Python loop sees a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from laps.spark.planner.options import DIRECT

if TYPE_CHECKING:
    from laps.spark.planner.network import Ints, Longs, Network
    from laps.spark.planner.options import Masks, Options

Floats = NDArray[np.float64]

_NOT_DIRECT: Final = np.uint8(0xFF ^ 1 << DIRECT)


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Tracks of one bucket with their s-relays."""

    track: Longs
    "[track]: the hash of its full name, ascending."
    origin: Ints
    "[track]"
    rate_bps: Floats
    "[track]"
    profile: NDArray[np.int8]
    "[track]"
    row: Ints
    "[row]: the number of its track in this bucket, ascending."
    relay: Ints
    "[row]: by track, then region, then number; none twice, and never the o-relay."


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """What the kernel has to know about nodes and profiles."""

    region: Ints
    "[node]"
    allowed: Masks
    "[profile, o, s], as in Options."
    fan_out: Ints
    "[profile]"


def lookup_of(options: Options) -> Lookup:
    """What the kernel takes from options."""
    fan_out = np.array([profile.fan_out for profile in options.profiles], np.int32)
    return Lookup(options.network.region, options.allowed, fan_out)


def places(network: Network) -> Ints:
    """[node]: where it stands when nodes are ordered by region."""
    place = np.empty(network.size, np.int32)
    place[np.argsort(network.region, kind="stable")] = np.arange(network.size, dtype=np.int32)
    return place


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of one bucket, by track and then by region."""

    track: Ints
    "[pair]: the number of its track in the bucket."
    region: Ints
    n: NDArray[np.int64]
    "[pair]: how many s-relays it has."
    together: Masks
    "[pair]: the options that keep delay and rules for all of them."
    mask: Masks
    "[pair]: those that keep the fan-out too."
    first: NDArray[np.int64]
    "[pair]: where its rows begin."

    def __len__(self) -> int:
        return len(self.track)


def find_pairs(lookup: Lookup, bucket: Bucket) -> Pairs:
    """Every pair of the bucket."""
    region = lookup.region.take(bucket.relay)
    begins = np.ones(len(region), np.bool_)
    np.not_equal(region[1:], region[:-1], out=begins[1:])
    begins[1:] |= bucket.row[1:] != bucket.row[:-1]
    first = np.flatnonzero(begins)
    track = bucket.row.take(first)
    n = np.empty_like(first)
    n[:-1] = first[1:] - first[:-1]
    n[-1:] = len(region) - first[-1:]
    together = _together(lookup, bucket, first)
    mask = together.copy()
    mask[n > lookup.fan_out.take(bucket.profile).take(track)] &= _NOT_DIRECT
    return Pairs(track, region.take(first), n, together, mask, first)


def _together(lookup: Lookup, bucket: Bucket, first: NDArray[np.int64]) -> Masks:
    """[pair]: what all of its s-relays allow."""
    if not len(first):
        return np.empty(0, np.uint8)
    profiles, size, _ = lookup.allowed.shape
    number: Any = np.int32 if profiles * size * size < 1 << 31 else np.int64
    row = (bucket.profile.astype(number) * size + bucket.origin) * size
    place = row.take(bucket.row)
    place += bucket.relay
    masks: Masks = np.bitwise_and.reduceat(lookup.allowed.reshape(-1).take(place), first)
    return masks


def slice_of(track: Longs, slices: int) -> NDArray[np.int64]:
    """The slice of its cell that a track is in: the same in every run, and even over any bucket.

    The bucket is the low bits of the hash, so the product's high ones are taken.
    """
    mixed = track.view(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return ((mixed >> np.uint64(32)) * np.uint64(slices) >> np.uint64(32)).astype(np.int64)


def total_by(place: NDArray[Any], bits: NDArray[Any], count: int) -> Floats:
    """[place]: the sum of what goes there."""
    # Of nothing at all NumPy makes whole numbers.
    return np.bincount(place, bits, minlength=count).astype(np.float64, copy=False)
