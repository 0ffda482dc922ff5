"""The bidirectional streams under a MoQT session, at a relay and at a client alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.errors import SendBufferFull
from laps.wire.moqt.codes import SessionCode

if TYPE_CHECKING:
    from laps.net.egress import Egress, EgressStream
    from laps.net.transport import Transport

# Control goes ahead of all data; ranks of data begin with a priority from 0 up.
CONTROL_RANK: Final = (-1, 0, 0)


class Bidirectional:
    """As `sessions.moqt.Wire`; who reads none of what is said is given up."""

    def __init__(self, transport: Transport, egress: Egress) -> None:
        self._transport = transport
        self._egress = egress
        self._streams: dict[int, EgressStream] = {}

    def open_stream(self) -> int:
        """As `Wire`."""
        return self._transport.open_stream(unidirectional=False)

    def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """As `Wire`."""
        if not self._transport.established:
            return
        stream = self._stream(stream_id)
        try:
            if fin:
                del self._streams[stream_id]
                stream.finish(data)
            else:
                stream.write(data)
        except SendBufferFull as full:
            reason = f"control messages are not read: {full}"
            self._transport.close(SessionCode.CONTROL_MESSAGE_TIMEOUT, reason)

    def reorder(self, stream_id: int, order: int) -> None:
        """Its bytes are of a class of service with this place, behind control all the same."""
        if self._transport.established:
            self._stream(stream_id).reorder(order)

    def _stream(self, stream_id: int) -> EgressStream:
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = self._egress.adopt(stream_id, CONTROL_RANK)
        return stream

    def end_stream(self, stream_id: int, code: int) -> None:
        """As `Wire`."""
        self._streams.pop(stream_id, None)
        if self._transport.established:
            self._transport.stop_stream(stream_id, code)
            self._transport.reset_stream(stream_id, code)
