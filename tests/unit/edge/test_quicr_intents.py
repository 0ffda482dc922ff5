"""Where a QUICR subscription begins, wherever its track is when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.types import Location
from laps.wire.quicr.fragments import cut
from laps.wire.quicr.messages import Intent, Response, Terms
from support.moqt import MoqtNet
from support.quicr import Media, Post, QuicrApp, check_empty

if TYPE_CHECKING:
    from laps.wire.quicr.messages import Fragment

Place = tuple[int, int]

TRACK = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]
COUNTS = {0: 3, 1: 2, 2: 1}
IMMEDIATE, CATCH_UP, WAIT_UP = Intent


def payload(place: Place) -> bytes:
    return b"%d.%d " % place * 600  # three fragments


class Publisher:
    """Sends a track, step by step."""

    def __init__(self, net: MoqtNet, *, datagrams: bool) -> None:
        self._app = QuicrApp(net, net.relays["1:1"])
        self.datagrams = datagrams
        self.post: Post

    def publish(self) -> None:
        self.post = self._app.publish("demo/t", datagrams=self.datagrams)

    def send(self, *places: Place) -> None:
        for place in places:
            for fragment in self.pieces(place):
                self.piece(fragment)

    def pieces(self, place: Place) -> list[Fragment]:
        return list(cut(*place, payload(place), 1000))

    def piece(self, fragment: Fragment) -> None:
        if self.datagrams:
            before = COUNTS.get(fragment.group - 1, 0)
            self.post.datagram(fragment, Terms(objects_before=before))
        else:
            self.post.say(fragment)


# The moment; then for each intent where it begins, and what START_POINTs are said.
Expected = tuple[list[Place], list[Place]]
MOMENTS: dict[str, dict[Intent, Expected]] = {
    "before anybody publishes": {
        IMMEDIATE: (TRACK, []),
        CATCH_UP: (TRACK, []),
        WAIT_UP: (TRACK, []),
    },
    "published and nothing sent": {
        IMMEDIATE: (TRACK, []),
        CATCH_UP: (TRACK, []),
        WAIT_UP: (TRACK, []),
    },
    "inside an object": {
        # On a stream an object is known when it is whole, in datagrams when it begins.
        IMMEDIATE: (TRACK[1:], [(0, 1)]),
        CATCH_UP: (TRACK, []),
        WAIT_UP: (TRACK[3:], [(1, 0)]),
    },
    "between objects": {
        IMMEDIATE: (TRACK[2:], [(0, 2)]),
        CATCH_UP: (TRACK, []),
        WAIT_UP: (TRACK[3:], [(1, 0)]),
    },
    "between groups": {
        IMMEDIATE: (TRACK[3:], [(0, 3), (1, 0)]),
        CATCH_UP: (TRACK, []),
        WAIT_UP: (TRACK[3:], [(1, 0)]),
    },
    "behind the last object": {
        IMMEDIATE: ([], [(2, 1)]),
        CATCH_UP: (TRACK, []),
        WAIT_UP: ([], [(3, 0)]),
    },
    "behind the end": {
        IMMEDIATE: ([], []),
        CATCH_UP: (TRACK, []),
        WAIT_UP: ([], []),
    },
    "while its publisher is away": {
        IMMEDIATE: (TRACK[3:], [(0, 3), (1, 0)]),
        CATCH_UP: (TRACK, []),
        WAIT_UP: (TRACK[3:], [(1, 0)]),
    },
}


def expected(moment: str, intent: Intent, *, datagrams: bool, to: bool, far: bool) -> Expected:
    places, starts = MOMENTS[moment][intent]
    if moment == "inside an object" and datagrams and intent is IMMEDIATE:
        places, starts = TRACK[2:], [(0, 2)]
    if moment == "while its publisher is away" and far and intent is not CATCH_UP:
        starts = [(1, 0)]  # to a relay that never had it, the track begins there
    if moment == "behind the end" and far:
        places, starts = [], []  # nothing of it was ever here
    if to:
        starts = starts[:1]  # datagrams need no other
    return places, starts


@pytest.mark.parametrize("relays", [1, 3], ids=["near", "far"])
@pytest.mark.parametrize("to", [False, True], ids=["to stream", "to datagrams"])
@pytest.mark.parametrize("datagrams", [False, True], ids=["from stream", "from datagrams"])
@pytest.mark.parametrize("intent", Intent, ids=lambda intent: intent.name.lower())
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_subscription_begins_where_its_intent_says(
    moment: str, intent: Intent, datagrams: bool, to: bool, relays: int
) -> None:
    net = MoqtNet()
    row = net.chain(relays)
    pub = Publisher(net, datagrams=datagrams)

    def subscribe() -> Media:
        media = QuicrApp(net, row[-1]).subscribe("demo/t", intent, datagrams=to)
        assert [reply.response for reply in media.replies] == [Response.OK]
        net.run(0.2)
        return media

    ended = False
    match moment:
        case "before anybody publishes":
            media = subscribe()
            pub.publish()
            rest = TRACK
        case "published and nothing sent":
            pub.publish()
            media = subscribe()
            rest = TRACK
        case "inside an object":
            pub.publish()
            pub.send((0, 0))
            first, *others = pub.pieces((0, 1))
            pub.piece(first)
            media = subscribe()
            for fragment in others:
                pub.piece(fragment)
            rest = TRACK[2:]
        case "between objects" | "between groups" | "behind the last object":
            sent = {"between objects": 2, "between groups": 3}.get(moment, len(TRACK))
            pub.publish()
            pub.send(*TRACK[:sent])
            media = subscribe()
            rest = TRACK[sent:]
        case "behind the end":
            pub.publish()
            pub.send(*TRACK)
            pub.post.end((2, 1) if datagrams else None)
            net.run(3)
            media = subscribe()
            ended, rest = True, []
        case _:
            pub.publish()
            pub.send(*TRACK[:3])
            pub.post.reset()
            net.run(3)
            media = subscribe()
            pub.publish()
            if not datagrams:
                pub.post.start(1, 0)
            rest = TRACK[3:]
    pub.send(*rest)
    net.run(1)
    places, starts = expected(moment, intent, datagrams=datagrams, to=to, far=relays > 1)
    assert media.app.closed is None
    assert sorted(media.places) == places
    if not to:
        assert media.places == places
    assert all(item[2] == payload(item[:2]) for item in media.objects)
    assert media.starts == starts
    if not ended:
        assert not media.is_closed()
        pub.post.end((2, 1) if datagrams else None)
        net.run(3)
        assert media.closed is True
        assert sorted(media.places) == places
        last = (places[-1][0], places[-1][1] + 1) if places else starts[-1]
        assert media.fins == ([last] if to else [])
    elif intent is CATCH_UP and relays == 1:
        assert media.closed is True  # it had all there is
        assert media.fins == ([(2, 1)] if to else [])
    else:
        assert media.closed is None  # whoever publishes it next goes on with it
        assert media.fins == []
    check_empty(net)


@pytest.mark.parametrize("relays", [1, 3], ids=["near", "far"])
@pytest.mark.parametrize("to", [False, True], ids=["to stream", "to datagrams"])
@pytest.mark.parametrize(
    ("since", "first"),
    [
        (Location(0, 1), 1),
        (Location(1, 0), 3),
        (Location(1, 1), 4),
        (Location(1, 2), 0),  # nobody is there yet: the publisher has begun anew
        (Location(9, 0), 0),
    ],
)
def test_who_catches_up_is_sent_what_it_does_not_have(
    since: Location, first: int, to: bool, relays: int
) -> None:
    assert TRACK[3:5] == [(1, 0), (1, 1)]
    net = MoqtNet()
    row = net.chain(relays)
    pub = Publisher(net, datagrams=False)
    pub.publish()
    pub.send(*TRACK[:4])
    net.run(1)
    media = QuicrApp(net, row[-1]).subscribe("demo/t", CATCH_UP, datagrams=to, since=since)
    net.run(1)
    pub.send(*TRACK[4:])
    net.run(1)
    assert media.places == TRACK[first:]
    assert media.starts[:1] == ([TRACK[first]] if first else [])


@pytest.mark.parametrize("to", [False, True], ids=["to stream", "to datagrams"])
@pytest.mark.parametrize(
    ("since", "first"),
    [
        (Location(7, 2), (7, 2)),
        (Location(7, 9), (6, 0)),  # the relay that it has left was further in the group,
        (Location(8, 5), (6, 0)),  # or had the next one
        (Location(9, 0), (0, 0)),  # the publisher has begun anew
    ],
)
def test_who_catches_up_at_a_relay_that_is_a_little_less_far_is_not_sent_all_again(
    since: Location, first: tuple[int, int], to: bool
) -> None:
    net = MoqtNet()
    (relay,) = net.chain(1)
    pub = Publisher(net, datagrams=False)
    pub.publish()
    pub.send(*((group, number) for group in range(8) for number in range(2)))
    net.run(1)
    media = QuicrApp(net, relay).subscribe("demo/t", CATCH_UP, datagrams=to, since=since)
    net.run(1)
    pub.send((8, 0))
    net.run(1)
    assert media.places[0] == (first if first != (7, 2) else (8, 0))
    assert media.places[-1] == (8, 0)
