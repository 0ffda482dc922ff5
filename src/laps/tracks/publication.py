"""A publisher of a track: what it was asked, what it answered, and how far it is.

      asked ──► ASKED ── it accepts ──► PUBLISHING ── PUBLISH_DONE ──► ENDING ──► ENDED
                  └───── it refuses ──► REFUSED
      it publishes by itself, or has nothing to answer ──► PUBLISHING
      ASKED ── PUBLISH_DONE comes first ──► ENDING
      any ── nobody wants it any more, or the publisher left ──► ENDED
      REFUSED, ENDED ── it offers the track, somebody wants it, a while has passed ──► ASKED

`wanted` goes beside the states: whether somebody wants the track, so that the publisher was asked
and its flow is laid out. One that has ended, or has refused, stays in the track's table while it is
wanted, so that it is asked again, and not too often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from laps.errors import LocalProtocolError
from laps.routing.flows import FromClient
from laps.wire.moqt.messages import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from laps.routing.flows import FromPeer
    from laps.tracks.ports import Client
    from laps.types import AnnounceInfo, Location, TrackHash, TrackKey
    from laps.wire.moqt.messages import PublishDone, RequestError
    from laps.wire.moqt.track_checking import TrackChecker

    Source = FromPeer | Client
    "Where a stream comes from: another relay, by a flow, or a publisher of this one."


# A publisher that refused a track, or ended it, is asked again after the first of these; the time
# doubles with each question in vain.
ASK_AGAIN_FIRST_S: Final = 0.5
ASK_AGAIN_MOST_S: Final = 8.0


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
    PublicationState.REFUSED: frozenset({PublicationState.ASKED, PublicationState.ENDED}),
    PublicationState.ENDING: frozenset({PublicationState.ENDED}),
    PublicationState.ENDED: frozenset({PublicationState.ASKED}),
}


_CLOSED: Final = (PublicationState.REFUSED, PublicationState.ENDED)


@dataclass(frozen=True, slots=True)
class NewGroupWanted:
    """An event: a subscriber at another relay asks the publisher here for a new group."""

    key: TrackKey
    value: int


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
    largest: Location | None = None
    "How far the track is, as it has said."
    continues: bool = False
    "It has said how far the track is: what it sends again is what was."
    checker: TrackChecker | None = None
    "What it has said of the track since it was asked or began, for it not to say the contrary."
    attempts: int = 0
    "How often it was asked and refused, or ended."
    ask_again_at: float = 0.0
    "When it may be asked again, where it refused or ended."
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

    def back_off(self, now: float) -> None:
        """It refused, or has ended: it is asked again after a while at the earliest."""
        wait_s = min(ASK_AGAIN_MOST_S, ASK_AGAIN_FIRST_S * 2 ** min(self.attempts, 8))
        self.attempts += 1
        self.ask_again_at = now + wait_s

    def ask_again(self, now: float) -> bool:
        """Somebody wants the track that it refused or ended; False if it is too early."""
        if not self.is_closed or now < self.ask_again_at:
            return False
        self.advance(PublicationState.ASKED)
        self.request_id, self.by_publish, self.alias = -1, False, None
        self.refusal = self.done = self.largest = None
        self.streams = self.open_streams = 0
        self.checker = None
        return True

    @property
    def is_closed(self) -> bool:
        """Whether it refused, or has ended."""
        return self.state in _CLOSED

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
        asked = is_new_request(self.new_group, value, largest)
        self.new_group = asked or self.new_group
        return asked is not None


def is_new_request(
    asked: tuple[int, int] | None, value: int, largest: Location | None
) -> tuple[int, int] | None:
    """What is to be remembered of a new group that is asked for; None: it was, and is to come."""
    at = -1 if largest is None else largest.group
    return (value, at) if asked is None or asked[0] < value or asked[1] < at else None
