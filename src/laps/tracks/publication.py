"""A publisher of a track: what it was asked, what it answered, and how far it is.

      asked ──► ASKED ── it accepts ──► PUBLISHING ── PUBLISH_DONE ──► ENDING ──► ENDED
                  └───── it refuses ──► REFUSED
      it publishes by itself, or has nothing to answer ──► PUBLISHING
      ASKED ── PUBLISH_DONE comes first ──► ENDING
      any ── nobody wants it any more, or the publisher left ──► ENDED

`wanted` goes beside the states: whether somebody wants the track, so that the publisher was asked
and its flow is laid out. One that has ended, or has refused, stays in the track's table while it is
wanted, so that it is not asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from laps.errors import LocalProtocolError
from laps.routing.forwarding import FromClient
from laps.wire.moqt.messages import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from laps.routing.forwarding import FromPeer
    from laps.tracks.ports import Client
    from laps.types import AnnounceInfo, Location, TrackHash, TrackKey
    from laps.wire.moqt.messages import PublishDone, RequestError

    Source = FromPeer | Client
    "Where a stream comes from: another relay, by a flow, or a publisher of this one."


class PublicationState(Enum):
    """How far a publisher is with a track."""

    ASKED = auto()
    PUBLISHING = auto()
    REFUSED = auto()
    ENDING = auto()
    "It has said that the track ends; streams of it may still be on their way."
    ENDED = auto()


_NEXT: Final = {
    PublicationState.ASKED: frozenset(
        {
            PublicationState.PUBLISHING,
            PublicationState.REFUSED,
            PublicationState.ENDING,
            PublicationState.ENDED,
        }
    ),
    PublicationState.PUBLISHING: frozenset({PublicationState.ENDING, PublicationState.ENDED}),
    PublicationState.REFUSED: frozenset({PublicationState.ENDED}),
    PublicationState.ENDING: frozenset({PublicationState.ENDED}),
    PublicationState.ENDED: frozenset[PublicationState](),
}


@dataclass(slots=True, eq=False)
class Publication:
    """A track that a client publishes to us, by its PUBLISH or because we asked."""

    hash: TrackHash
    "The track."
    publisher: Client
    state: PublicationState
    request_id: int = -1
    "The PUBLISH, our SUBSCRIBE, or QUICR's control stream; -1 where the publisher has none."
    by_publish: bool = False
    "It sends without being asked."
    accepted: bool = True
    "Whether its PUBLISH was answered: until then the answer says whether to send."
    wanted: bool = False
    "Somebody wants the track: the publisher was asked, and its flow is laid out."
    alias: int | None = None
    "What its streams call the track."
    refusal: RequestError | None = None
    "Its answer, where it refused."
    done: PublishDone | None = None
    "Its last message, where it has ended the track."
    streams: int = 0
    "How many streams it has opened."
    open_streams: int = 0
    "How many of them are open."
    priority: int = DEFAULT_PRIORITY
    ttl_us: int = 0
    lazy: bool = False
    "It publishes by PUBLISH, and sends only while it is told to."
    forward: bool = True
    "Whether it is told to send."
    kept: AnnounceInfo | None = None
    "What stands for it among the announces, after its namespace was withdrawn."
    new_group: tuple[int, int] | None = None
    "The last new group that we asked for, and the largest group at that time."
    flow_key: FromClient = field(init=False)
    "What its flow is known by."

    def __post_init__(self) -> None:
        self.flow_key = FromClient(self.publisher, self.key)

    @property
    def key(self) -> TrackKey:
        """What the track is known by in every table."""
        return self.hash.full_name_hash

    def advance(self, state: PublicationState) -> None:
        """Go to another state, if the table has such a step."""
        if state not in _NEXT[self.state]:
            raise LocalProtocolError(f"a publication cannot go from {self.state} to {state}")
        self.state = state

    @property
    def is_established(self) -> bool:
        """Whether objects may arrive."""
        return self.state is PublicationState.PUBLISHING

    @property
    def is_answered(self) -> bool:
        """Whether the publisher has answered, whatever it said."""
        return self.state is not PublicationState.ASKED

    def wants_new_group(self, value: int, largest: Location | None) -> bool:
        """Whether to ask for a new group: not again before there is one."""
        at = -1 if largest is None else largest.group
        asked, self.new_group = self.new_group, (value, at)
        return asked is None or asked[0] < value or asked[1] < at
