"""Holds relays to it that nobody is called back: data is handed on, and only then acted upon.

While a stream or a datagram passes (`DataPlane`), nothing may ask or release a publisher, answer a
subscription, or act on events: that waits until the call has returned. And what decides about a
track, or acts on events, is never entered again before it has come to its end.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from laps.edge.edge import Edge
from laps.edge.subscribing import Subscribing
from laps.relay.data import DataPlane
from laps.relay.relay import Relay
from laps.relay.subscribes import SubscribeExchange
from laps.tracks.tracks import Tracks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

DATA = (
    (DataPlane, "publish"),
    (DataPlane, "publish_datagram"),
    (DataPlane, "receive"),
    (DataPlane, "receive_datagram"),
    (DataPlane, "reset"),
)
ACTS = (
    (Tracks, "review"),
    (SubscribeExchange, "review"),
    (Edge, "perform"),
    (Relay, "announce"),
    (Relay, "unannounce"),
    (Relay, "subscribe"),
    (Relay, "unsubscribe"),
    (Relay, "client_closed"),
    (Subscribing, "establish"),
)
ONCE = ((Tracks, "review"), (SubscribeExchange, "review"), (Edge, "perform"))


class Reentry:
    """What is being done, and in which relay."""

    def __init__(self) -> None:
        self._running: list[tuple[int, str]] = []

    def guard(self, cls: type, name: str) -> Callable[..., Any]:
        """A method that says when it is entered where it must not be."""
        method = getattr(cls, name)
        label = f"{cls.__name__}.{name}"
        data = {f"{owner.__name__}.{it}" for owner, it in DATA}

        @wraps(method)
        def guarded(owner: Any, *args: Any, **kwargs: Any) -> Any:
            place = id(_relay_of(owner))
            inside = [running for at, running in self._running if at == place]
            if (cls, name) in ACTS:
                passing = [running for running in inside if running in data]
                assert not passing, f"{label} is called while {passing[-1]} runs"
            if (cls, name) in ONCE:
                assert label not in inside, f"{label} is entered again: {inside}"
            with self._enter(place, label):
                return method(owner, *args, **kwargs)

        return guarded

    @contextmanager
    def _enter(self, place: int, label: str) -> Iterator[None]:
        self._running.append((place, label))
        try:
            yield
        finally:
            self._running.pop()


def _relay_of(owner: Any) -> object:
    """Something that is one for all parts of a relay: its table of tracks."""
    match owner:
        case Tracks():
            return owner
        case Relay():
            return owner.tracks
        case Edge():
            return owner.relay.tracks
        case Subscribing():
            return owner._context.relay.tracks
        case _:
            return owner._tracks


def guard_relays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every relay of a test watched."""
    reentry = Reentry()
    for cls, name in {*DATA, *ACTS}:
        monkeypatch.setattr(cls, name, reentry.guard(cls, name))
