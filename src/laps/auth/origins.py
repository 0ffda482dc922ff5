r"""Origins: whose a name is, and who decides about it.

    name of a track                        origin
    QUICR   media.example/room/cam         the first part: media.example
    QUICR   16 bytes 00000102…             that with the id 00000102, or the longest that fits
    MoQT    live/cam  video                that with the namespace live, the longest that fits

An origin decides by keys, which a relay checks tokens with as it does with its own, or by an API:
its own server is asked about each action. Names of no origin are the relay's to decide about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laps.auth.grants import Action
from laps.names import BINARY_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from laps.auth.grants import Namespace
    from laps.auth.judge import Verifier


@dataclass(frozen=True, slots=True)
class OriginApi:
    """The server of an origin that is asked, and how far a relay goes in asking it."""

    url: str
    authorities: Path | None = None
    """The certificates that its own has to be signed by; None: those that the system trusts."""
    timeout_s: float = 5.0
    """An answer that takes longer is none, retries and the wait for a turn included."""
    concurrent: int = 32
    """Requests at a time."""
    queue: int = 1000
    """Questions that may wait for their turn."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One origin."""

    name: str
    namespaces: tuple[Namespace, ...] = ()
    """Its names begin with one of these."""
    ids: tuple[str, ...] = ()
    """Or are QUICR names of 16 bytes that begin so, in hexadecimal digits."""
    api: OriginApi | None = None
    verifier: Verifier | None = field(default=None, compare=False, repr=False)
    """What checks tokens of its keys, where it has no API."""


class Origins:
    """All origins of a relay."""

    def __init__(self, origins: Iterable[Origin] = ()) -> None:
        self._by_name = {origin.name: origin for origin in origins}
        all_of = self._by_name.values()
        self._by_namespace = {one: origin for origin in all_of for one in origin.namespaces}
        self._by_id = {one.encode(): origin for origin in all_of for one in origin.ids}
        self.has_api = any(origin.api is not None for origin in all_of)
        """Whether any is asked, so that tokens are kept that only an origin can read."""

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __iter__(self) -> Iterator[Origin]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Origin | None:
        """An origin by what the operator calls it."""
        return self._by_name.get(name)

    def find(
        self, namespace: Namespace, name: bytes | None = None, begins: bytes = b""
    ) -> Origin | None:
        """Whose a name is; None if it is no origin's.

        `begins` is what a track's name begins with, where many are meant.
        """
        if self._by_id and namespace == BINARY_NAMESPACE:
            digits = begins if name is None else name
            for length in range(len(digits), 0, -1):
                if (origin := self._by_id.get(digits[:length])) is not None:
                    return origin
        for length in range(len(namespace), 0, -1):
            if (origin := self._by_namespace.get(namespace[:length])) is not None:
                return origin
        return None


@dataclass(frozen=True, slots=True)
class Question:
    """What an origin is asked: whether somebody with these tokens may do something."""

    action: Action
    namespace: Namespace
    name: bytes | None = None
    """The track's; None where the question is about all below the namespace."""
    begins: bytes = b""
    """What the names of tracks begin with, of QUICR names of 16 bytes and a mask."""
    tokens: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """The type and value of each."""

    @property
    def size(self) -> int:
        """How many bytes of a client's it holds."""
        texts = (*self.namespace, self.name or b"", self.begins)
        return sum(map(len, texts)) + sum(len(value) for _, value in self.tokens)

    def covers(self, action: Action, namespace: Namespace, name: bytes | None) -> bool:
        """Whether who is granted this may do that too, with nothing more asked.

        A grant for a namespace is one for all below it: to publish tracks there, or, of a watcher,
        to be shown them and to be given them.
        """
        if self.name is not None:
            return (self.action, self.namespace, self.name) == (action, namespace, name)
        if namespace[: len(self.namespace)] != self.namespace:
            return False
        if self.begins and name is not None and not name.startswith(self.begins):
            return False
        if self.action is Action.SUBSCRIBE_NAMESPACE:
            return action in (Action.SUBSCRIBE_NAMESPACE, Action.SUBSCRIBE)
        return action is self.action
