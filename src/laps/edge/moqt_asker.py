"""A MoQT client as somebody that fetches from a relay, and that the relay fetches from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.edge.client import EdgeClient
from laps.wire.moqt.messages import FetchCancel

if TYPE_CHECKING:
    from laps.edge.client import Rank, RankedStream
    from laps.sessions.moqt import MoqtSession
    from laps.tracks.track import Track
    from laps.wire.moqt.dialect import Dialect
    from laps.wire.moqt.messages import Fetch, Message


class MoqtAsker(EdgeClient):
    """A client with a MoQT session: a `fetching.Asker`."""

    answers_fetches = True
    session: MoqtSession

    def fetch(self, message: Fetch) -> int:
        """As `EdgeClient.fetch`."""
        return self.session.request(message)

    def fetch_closed(self, request_id: int, *, ok: bool) -> None:
        """As `EdgeClient.fetch_closed`."""
        if ok:
            self.session.finish(request_id)
        elif request_id in self.session.outgoing:
            self.session.send(FetchCancel(request_id))

    # -- as `Asker` --------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect:
        """As `Asker.dialect`."""
        return self.session.dialect

    def has_room_for(self, order: int) -> bool:
        """As `Asker.has_room_for`."""
        return self.link.has_room_for(order)

    def answer(self, message: Message, now: float) -> None:
        """As `Asker.answer`."""
        self.session.send(message)

    def open_fetch(self, track: Track, rank: Rank) -> RankedStream:
        """As `Asker.open_fetch`."""
        return self.link.open_stream(rank, 0)

    def fetch_served(self, request_id: int) -> None:
        """As `Asker.fetch_served`."""
        self.session.finish(request_id)
