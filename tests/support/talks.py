"""One side of a MoQT session, with a test for the other side."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from laps.sessions.moqt import MoqtSession
from laps.types import Location, TrackName
from laps.wire.moqt.codes import MoqtViolation, SessionCode
from laps.wire.moqt.dialect import DRAFT14
from laps.wire.moqt.messages import (
    ClientSetup,
    Filter,
    FilterType,
    RequestUpdate,
    ServerSetup,
    Subscribe,
)
from support.moqt_streams import DRAFTS, LARGEST

if TYPE_CHECKING:
    from laps.sessions.moqt import MoqtLimits
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Message

NAME = TrackName((b"demo", b"room"), b"video")
OTHER = TrackName((b"demo", b"room"), b"audio")
ROOM = (b"demo", b"room")

both = pytest.mark.parametrize("dialect", DRAFTS, ids=repr)
sides = pytest.mark.parametrize("is_client", [False, True], ids=["server", "client"])


def subscribe(request_id: int = 0, track: TrackName = NAME) -> Subscribe:
    return Subscribe(request_id, track, LARGEST)


def update(request_id: int, existing_id: int) -> RequestUpdate:
    wanted = Filter(FilterType.ABSOLUTE_START, Location(0, 0))
    return RequestUpdate(request_id, existing_id, wanted, 7, True)


def refused_with(code: SessionCode, talk: Talk, *messages: Message, stream: int = 0) -> str:
    """Hear something that closes the session with a code; the reason."""
    with pytest.raises(MoqtViolation) as caught:
        talk.hear(*messages, stream=stream)
    assert caught.value.code is code
    return caught.value.problem


def violates(talk: Talk, *messages: Message, stream: int = 0) -> str:
    return refused_with(SessionCode.PROTOCOL_VIOLATION, talk, *messages, stream=stream)


class Talk:
    """A session whose words are written down, and which hears what the test says."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        is_client: bool = False,
        limits: MoqtLimits | None = None,
        webtransport: bool = False,
        max_request_id: int = 100,
        setup: bool = True,
    ) -> None:
        self.dialect = dialect
        named = None if dialect is DRAFT14 else dialect
        self._ids = count(0 if is_client else 1, 4)
        self._sent: dict[int, bytearray] = {}
        self.finished: list[int] = []
        self.session = MoqtSession(
            self, named, is_client=is_client, limits=limits, webtransport=webtransport
        )
        if is_client and setup:
            self.session.start()
        if setup:
            self.hear(self.setup(max_request_id=max_request_id))
            self.session.flush()
            self.said()

    def setup(self, **fields: Any) -> ClientSetup | ServerSetup:
        """What the other side begins with."""
        if self.session._is_client:
            version = DRAFT14.version if self.dialect is DRAFT14 else None
            return ServerSetup(**{"version": version} | fields)
        versions = (DRAFT14.version,) if self.dialect is DRAFT14 else ()
        return ClientSetup(**{"versions": versions} | fields)

    # -- the other side ----------------------------------------------------------------------------

    def hear(self, *messages: Message, stream: int = 0, fin: bool = False) -> list[Message]:
        """What comes out when these go in, on one stream."""
        return self.hear_bytes(b"".join(map(self.dialect.encode, messages)), stream, fin=fin)

    def hear_bytes(self, data: bytes, stream: int = 0, *, fin: bool = False) -> list[Message]:
        return list(self.session.receive(stream, data, fin=fin))

    def said(self, stream: int = 0) -> list[Message]:
        """What was said on a stream since the last time."""
        data = bytes(self._sent.pop(stream, b""))
        found: list[Message] = []
        offset = 0
        while offset < len(data):
            kind, payload, offset = self.dialect.split(data, offset)
            found.append(self.dialect.decode(kind, payload))
        return found

    # -- as `Wire` ---------------------------------------------------------------------------------

    def open_stream(self) -> int:
        return next(self._ids)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        assert stream_id not in self.finished
        self._sent.setdefault(stream_id, bytearray()).extend(data)
        if fin:
            self.finished.append(stream_id)

    def end_stream(self, stream_id: int, code: int) -> None:
        raise AssertionError("a session leaves its streams open")
