"""QUICR names and the tracks they stand for.

A name is bytes. As text with slashes it is a track whose namespace is all parts but the last:

    demo/clock/seconds              namespace demo/clock, track seconds

A name of 16 bytes that is no such text is the track (`quicr`, its hex digits). With a mask a name
stands for many tracks: of a 16-byte name the mask counts the low-order bits that may be anything;
a text is the beginning of all names that go on with further parts, whatever the mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from laps.errors import LapsError
from laps.names import BINARY_NAMESPACE
from laps.types import TrackName

BINARY_BYTES: Final = 16

# What MoQT allows, since every track can be subscribed to by MoQT too.
MAX_PARTS: Final = 33
MAX_NAME_BYTES: Final = 4096


class NameRefused(LapsError):  # noqa: N818 - as in errors.py
    """A name that stands for no track; the words are for whoever sent it."""


def is_binary(name: bytes) -> bool:
    """Whether a name is 16 bytes and no text with slashes."""
    return len(name) == BINARY_BYTES and not (b"/" in name and _is_text(name))


def _is_text(name: bytes) -> bool:
    try:
        return name.decode().isprintable()
    except UnicodeDecodeError:
        return False


def decode_name(name: bytes) -> TrackName:
    """The track that a name stands for."""
    if is_binary(name):
        return TrackName(BINARY_NAMESPACE, name.hex().encode())
    parts = _parts(name)
    if len(parts) < 2:
        raise NameRefused("a name is 16 bytes, or text with at least one slash like demo/clock")
    return TrackName(parts[:-1], parts[-1])


def encode_name(track: TrackName) -> bytes:
    """The name of a track; NameRefused where QUICR has none for it."""
    if track.namespace == BINARY_NAMESPACE and len(track.name) == 2 * BINARY_BYTES:
        try:
            binary = bytes.fromhex(track.name.decode())
        except ValueError:
            binary = b""
        if is_binary(binary) and binary.hex().encode() == track.name:
            return binary
    name = b"/".join((*track.namespace, track.name))
    try:
        same = decode_name(name) == track
    except NameRefused:
        same = False
    if not same:
        problem = "parts are empty, no text, too long or too many, or have slashes"
        raise NameRefused(f"a track whose {problem} has no name")
    return name


def _parts(name: bytes) -> tuple[bytes, ...]:
    if len(name) > MAX_NAME_BYTES:
        raise NameRefused(f"a name of {len(name)} bytes is too long: there can be {MAX_NAME_BYTES}")
    if not _is_text(name):
        raise NameRefused("a name that is not 16 bytes has to be text in UTF-8")
    parts = tuple(name.split(b"/"))
    if not all(parts):
        raise NameRefused("a part of the name is empty")
    if len(parts) > MAX_PARTS:
        raise NameRefused(f"a name of {len(parts)} parts is too long: there can be {MAX_PARTS}")
    return parts


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a SUBSCRIBE asks for: one track, or all that its mask leaves open."""

    name: bytes
    mask: int = 0

    @property
    def is_wild(self) -> bool:
        """Whether it stands for more than one track."""
        return self.mask != 0

    def track(self) -> TrackName:
        """The one track that it stands for."""
        return decode_name(self.name)

    def check(self) -> None:
        """NameRefused if it stands for nothing."""
        if not self.is_wild:
            decode_name(self.name)
        elif not is_binary(self.name):
            self._text_parts()
        elif self.mask > 8 * BINARY_BYTES:
            most = 8 * BINARY_BYTES
            raise NameRefused(f"mask {self.mask} is too large: the name has {most} bits")

    @property
    def prefix(self) -> tuple[bytes, ...]:
        """What the namespace of every track begins with."""
        if is_binary(self.name):
            return BINARY_NAMESPACE
        if not self.is_wild:
            return self.track().namespace
        return self._text_parts()[:-1]

    @property
    def digits(self) -> bytes:
        """The digits that a mask leaves of a name of 16 bytes; of a text none."""
        if not is_binary(self.name):
            return b""
        return self.name.hex().encode()[: (8 * BINARY_BYTES - self.mask) // 4]

    def matches(self, track: TrackName) -> bool:
        """Whether a track is among those it stands for, all of which have names."""
        if not self.is_wild:
            return track == self.track()
        parts = () if (binary := is_binary(self.name)) else self._text_parts()
        if (*track.namespace, track.name)[: len(parts)] != parts:
            return False
        try:
            name = encode_name(track)
        except NameRefused:
            return False
        if not binary:
            return True
        if not is_binary(name):
            return False
        return int.from_bytes(name) >> self.mask == int.from_bytes(self.name) >> self.mask

    def _text_parts(self) -> tuple[bytes, ...]:
        """A truncated name; the slash it may end with is no part."""
        name = self.name.removesuffix(b"/")
        return _parts(name) if name else ()
