"""The subscribe information base: the last word of each source about each track."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps.infobase import subscribes as module
from laps.infobase.subscribes import (
    RETENTION_S,
    SEEN_RETENTION_S,
    SeenSubscribes,
    SubscribeChange,
    Subscribes,
)
from laps.types import (
    NodeId,
    SubscribeInfo,
    TrackHash,
    TrackKey,
    TrackName,
    hash_track,
    sequence_newer,
)
from laps.wire.subscribe import encode_subscribe

NEAR, FAR = NodeId(1 << 40), NodeId(2 << 40)
SEVEN, EIGHT, NINE, TEN = map(TrackKey, (7, 8, 9, 10))


def subscribe(
    sequence: int,
    source: NodeId = NEAR,
    track: TrackKey = SEVEN,
    data: bytes | memoryview = b"subscribe",
) -> SubscribeInfo:
    return SubscribeInfo(sequence, source, TrackHash(track + 1, track + 2, track), data)


def purge(base: Subscribes, source: NodeId) -> set[TrackKey]:
    """A node is gone: what it wanted, told whole."""
    base.purge_source(source)
    return {track.full_name_hash for _, track in base.purged(1000)}


@pytest.fixture
def base() -> Subscribes:
    return Subscribes()


# -- adding ----------------------------------------------------------------------------------------


def test_a_subscribe_is_news_once(base: Subscribes) -> None:
    info = subscribe(1)
    assert base.add(info, 0.0) == SubscribeChange(info, added=True, first=True)
    assert base.add(info, 0.0) is None
    assert base.counters.duplicates == 1
    assert list(base) == [info]
    assert (base.get(NEAR, SEVEN), base.sequence(NEAR, SEVEN)) == (info, 1)


def test_a_track_is_reached_by_all_its_sources(base: Subscribes) -> None:
    third = NodeId(3)
    changes = [base.add(subscribe(1, source), 0.0) for source in (NEAR, FAR, third)]
    assert [change and change.first for change in changes] == [True, False, False]
    base.add(subscribe(1, FAR, track=EIGHT), 0.0)
    assert base.sources(SEVEN) == {NEAR, FAR, third}
    assert base.sources(EIGHT) == {FAR}
    assert base.sources(NINE) == frozenset()
    assert set(base.tracks()) == {7, 8}
    assert [info.track_hash.full_name_hash for info in base.of_source(FAR)] == [7, 8]
    assert len(base) == 4


def test_what_is_kept_is_a_copy(base: Subscribes) -> None:
    message = bytearray(b"header and subscribe")
    base.add(subscribe(1, data=memoryview(message)[11:]), 0.0)
    message[:] = bytes(len(message))
    held = base.get(NEAR, SEVEN)
    assert held is not None
    assert held.subscribe_data == b"subscribe"


def test_a_newer_form_takes_the_place_of_the_older(base: Subscribes) -> None:
    base.add(subscribe(1), 0.0)
    newer = subscribe(2, data=b"other")
    assert base.add(newer, 0.0) == SubscribeChange(newer, added=True, first=False)
    assert (list(base), len(base)) == ([newer], 1)


@pytest.mark.parametrize(
    ("held", "arrives", "taken"),
    [
        (65535, 0, True),
        (65000, 100, True),
        (0, 65535, False),
        (0, 0x7FFF, True),
        (0, 0x8000, True),
        (0x8000, 0, False),
    ],
)
def test_sequences_wrap(base: Subscribes, held: int, arrives: int, taken: bool) -> None:
    base.add(subscribe(held), 0.0)
    assert (base.add(subscribe(arrives), 0.0) is not None) == taken
    assert base.sequence(NEAR, SEVEN) == (arrives if taken else held)


# -- withdrawing -----------------------------------------------------------------------------------


def test_a_withdraw_tells_when_the_last_source_is_gone(base: Subscribes) -> None:
    base.add(subscribe(1), 0.0)
    base.add(subscribe(1, FAR), 0.0)
    one, last = subscribe(2), subscribe(2, FAR)
    assert base.withdraw(one, 0.0) == SubscribeChange(one, added=False, first=False)
    assert base.sources(SEVEN) == {FAR}
    assert base.withdraw(last, 0.0) == SubscribeChange(last, added=False, first=True)
    assert (len(base), list(base), list(base.tracks())) == (0, [], [])


def test_a_withdraw_that_is_not_newer_is_old_news(base: Subscribes) -> None:
    base.add(subscribe(5), 0.0)
    assert base.withdraw(subscribe(5), 0.0) is None
    assert base.withdraw(subscribe(4), 0.0) is None
    assert (len(base), base.counters.duplicates) == (1, 2)


def test_an_advertisement_that_a_withdraw_overtook_is_not_taken(base: Subscribes) -> None:
    info = subscribe(2)
    assert base.withdraw(info, 0.0) == SubscribeChange(info, added=False, first=False)
    assert base.withdraw(info, 0.0) is None
    assert base.add(subscribe(1), 0.0) is None
    assert len(base) == 0


def test_a_subscribe_comes_back_with_a_newer_sequence(base: Subscribes) -> None:
    base.add(subscribe(1), 0.0)
    base.withdraw(subscribe(2), 0.0)
    assert base.sequence(NEAR, SEVEN) == 2
    again = subscribe(3)
    assert base.add(again, 0.0) == SubscribeChange(again, added=True, first=True)
    assert base.withdraw(subscribe(2), 0.0) is None
    assert list(base) == [again]


# -- forgetting ------------------------------------------------------------------------------------


def test_a_withdrawn_sequence_is_forgotten_in_time(base: Subscribes) -> None:
    base.withdraw(subscribe(5), 10.0)
    base.expire(9.0 + RETENTION_S)
    assert (base.sequence(NEAR, SEVEN), base.next_expiry) == (5, 10.0 + RETENTION_S)
    base.expire(10.0 + RETENTION_S)
    assert (base.sequence(NEAR, SEVEN), base.next_expiry) == (None, None)
    assert base.add(subscribe(1), 100.0) is not None


def test_the_last_withdraw_counts(base: Subscribes) -> None:
    base.withdraw(subscribe(1), 0.0)
    base.withdraw(subscribe(2), 30.0)
    base.expire(RETENTION_S)
    assert (base.sequence(NEAR, SEVEN), base.next_expiry) == (2, 30.0 + RETENTION_S)


def test_what_is_subscribed_again_does_not_expire(base: Subscribes) -> None:
    base.withdraw(subscribe(1), 0.0)
    base.add(subscribe(2), 1.0)
    base.expire(RETENTION_S)
    assert (base.sequence(NEAR, SEVEN), len(base)) == (2, 1)


def test_withdrawn_sequences_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WITHDRAWN", 2)
    base = Subscribes()
    for track in (SEVEN, EIGHT, NINE):
        base.withdraw(subscribe(5, track=track), 0.0)
    assert [base.sequence(NEAR, track) for track in (SEVEN, EIGHT, NINE)] == [None, 5, 5]
    assert base.counters.forgotten_early == 1


def test_a_node_that_is_gone_starts_anew(base: Subscribes) -> None:
    kept = subscribe(1, FAR)
    for info in (subscribe(9), subscribe(9, track=EIGHT), kept):
        base.add(info, 0.0)
    base.withdraw(subscribe(9, track=TEN), 0.0)
    assert purge(base, NEAR) == {7, 8}
    assert purge(base, NEAR) == set()
    assert (list(base), list(base.tracks()), base.sources(SEVEN)) == ([kept], [7], frozenset({FAR}))
    assert base.sequence(NEAR, TEN) is None
    assert base.add(subscribe(1, track=TEN), 0.0) is not None
    base.expire(RETENTION_S)
    assert base.sequence(NEAR, TEN) == 1


# -- any history -----------------------------------------------------------------------------------


def test_an_advertisement_outweighs_a_withdrawal_of_the_same_number() -> None:
    """A node that is restarted within a second begins with the number it took leave with."""
    subscribes = Subscribes()
    subscribes.add(subscribe(6), 0.0)
    subscribes.withdraw(subscribe(7), 0.0)
    assert subscribes.add(subscribe(7), 0.5) is not None
    assert subscribes.withdraw(subscribe(7), 0.6) is None  # the old word, come late
    assert subscribes.sources(SEVEN) == {NEAR}
    assert subscribes.add(subscribe(7), 0.7) is None


class Model:
    """The same in as few words as possible: the last word about each subscribe, and its time."""

    def __init__(self) -> None:
        self.words: dict[tuple[NodeId, TrackKey], tuple[SubscribeInfo, bool, float]] = {}

    def say(self, info: SubscribeInfo, added: bool, now: float) -> SubscribeChange | None:
        self.expire(now)
        key = info.source_node_id, info.track_hash.full_name_hash
        last = self.words.get(key)
        again = added and last and not last[1] and info.sequence == last[0].sequence
        if last and not again and not sequence_newer(info.sequence, last[0].sequence):
            return None
        others = self.sources(key[1]) - {key[0]}
        self.words[key] = info, added, now
        was_there = bool(last and last[1])
        return SubscribeChange(info, added, first=not others and was_there != added)

    def sources(self, track: TrackKey) -> set[NodeId]:
        return {key[0] for key, word in self.words.items() if key[1] == track and word[1]}

    def present(self) -> Iterator[SubscribeInfo]:
        return (info for info, added, _ in self.words.values() if added)

    def purge(self, source: NodeId) -> None:
        self.words = {key: word for key, word in self.words.items() if key[0] != source}

    def expire(self, now: float) -> None:
        self.words = {
            key: word for key, word in self.words.items() if word[1] or word[2] + RETENTION_S > now
        }


def by_key(infos: Iterator[SubscribeInfo]) -> list[SubscribeInfo]:
    return sorted(infos, key=by_key_of)


def by_key_of(info: SubscribeInfo) -> tuple[NodeId, TrackKey]:
    return info.source_node_id, info.track_hash.full_name_hash


infos = st.builds(
    subscribe,
    st.sampled_from([0, 1, 2, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF]),
    st.sampled_from([NEAR, FAR]),
    st.sampled_from([SEVEN, TrackKey(2**64 - 10)]),
    st.binary(max_size=3),
)
steps = st.tuples(
    st.sampled_from(["add", "add", "withdraw", "withdraw", "purge", "tell some"]),
    infos,
    st.sampled_from([0.0, 1.0, RETENTION_S / 2, RETENTION_S]),
)


@given(st.lists(steps, max_size=25))
def test_any_history_is_as_in_the_model(steps: list[tuple[str, SubscribeInfo, float]]) -> None:
    base, model, now = Subscribes(), Model(), 0.0
    for what, info, later in steps:
        now += later
        source = info.source_node_id
        if what == "purge":
            base.purge_source(source)
            model.purge(source)
        elif what == "tell some":
            for node_id, track_hash in base.purged(1):
                assert node_id not in model.sources(track_hash.full_name_hash)
        else:
            said = (base.add if what == "add" else base.withdraw)(info, now)
            assert said == model.say(info, what == "add", now)
        assert by_key(iter(base)) == by_key(model.present())
        assert len(base) == len(list(model.present()))
        key = source, info.track_hash.full_name_hash
        held = next((it for it in model.present() if by_key_of(it) == key), None)
        assert (base.get(*key), base.holds(*key)) == (held, held is not None)
        for track in {key[1] for key in model.words}:
            assert base.sources(track) == model.sources(track)
            assert (track in set(base.tracks())) == bool(model.sources(track))
            assert not model.sources(track) or tuple(base.in_namespace(track + 1)) == (track,)
    base.expire(now)
    model.expire(now)
    for (source, track), (last, _, _) in model.words.items():
        assert base.sequence(source, track) == last.sequence
    for source in (NEAR, FAR):
        purge(base, source)
    base.expire(now + RETENTION_S)
    assert not base.is_purging
    assert [base.wants(track + 1) for track in (SEVEN, TrackKey(2**64 - 10))] == [False, False]
    assert (len(base), list(base), list(base.tracks()), base.next_expiry) == (0, [], [], None)
    assert not len(base._made._forms)


def test_what_a_node_that_is_gone_wanted_is_told_some_at_a_time(base: Subscribes) -> None:
    for track in range(100, 110):
        base.add(subscribe(1, track=TrackKey(track)), 0.0)
    base.purge_source(NEAR)
    assert (len(base), list(base), base.sources(TrackKey(105))) == (0, [], frozenset())
    told = base.purged(4)
    assert (len(told), base.is_purging) == (4, True)
    # It is back for one of those that are not told, and wants it.
    back = next(track for track in range(100, 110) if base.wants(track + 1))
    assert base.add(subscribe(1, track=TrackKey(back)), 0.0) is not None
    told += base.purged(100)
    assert {node_id for node_id, _ in told} == {NEAR}
    assert {track.full_name_hash for _, track in told} == set(range(100, 110)) - {back}
    assert (base.is_purging, list(base.tracks())) == (False, [back])
    assert base.sources(TrackKey(back)) == {NEAR}


def test_the_tracks_of_a_namespace_are_found(base: Subscribes) -> None:
    def of(track: TrackKey, source: NodeId = NEAR) -> SubscribeInfo:
        return SubscribeInfo(1, source, TrackHash(77, track, track), b"")

    assert not base.wants(77)
    for track in (SEVEN, EIGHT, NINE):
        base.add(of(track), 0.0)
    base.add(of(SEVEN, FAR), 0.0)
    assert tuple(base.in_namespace(77)) == (SEVEN, EIGHT, NINE)
    for track in (SEVEN, EIGHT, NINE):
        base.withdraw(replace(of(track), sequence=2), 0.0)
    assert tuple(base.in_namespace(77)) == (SEVEN,)
    base.withdraw(replace(of(SEVEN, FAR), sequence=2), 0.0)
    assert (base.wants(77), tuple(base.in_namespace(77))) == (False, ())


# -- many ------------------------------------------------------------------------------------------


def message(number: int, node: int, sequence: int = 1) -> SubscribeInfo:
    name = TrackName((b"conference", b"room-%d" % (number // 20)), b"camera-%d" % number)
    return SubscribeInfo(
        sequence, NodeId(node << 32), hash_track(name), encode_subscribe(name, number)
    )


def test_many_subscribes_of_many_nodes_come_back_as_they_came(base: Subscribes) -> None:
    infos = [message(number, node) for number in range(60) for node in range(number + 1)]
    for info in infos:
        base.add(info, 0.0)
    assert (by_key(iter(base)), len(base)) == (by_key(iter(infos)), len(infos))
    for number in range(60):
        track = message(number, 0).track_hash
        assert base.sources(track.full_name_hash) == {NodeId(it << 32) for it in range(number + 1)}
        assert base.track_hash(track.full_name_hash) == track
        assert track.full_name_hash in set(base.in_namespace(track.namespace_hash))
    assert len(base._made._forms) == 3
    for node in range(0, 60, 2):
        base.purge_source(NodeId(node << 32))
    assert {int(source) >> 32 for source in base.sources(infos[-1].track_hash.full_name_hash)} == {
        *range(1, 60, 2)
    }
    while base.is_purging:
        assert len(base.purged(7)) <= 7
    left = [info for info in infos if (info.source_node_id >> 32) % 2]
    assert by_key(iter(base)) == by_key(iter(left))
    changes = [base.withdraw(replace(info, sequence=2), 0.0) for info in left]
    # Track 0 was wanted by node 0 alone.
    assert sum(change is not None and change.first for change in changes) == 59
    assert (len(base), list(base.tracks()), len(base._made._forms)) == (0, [], 0)


def test_many_nodes_that_want_one_track_come_and_go(base: Subscribes) -> None:
    infos = [message(1, node) for node in range(3000)]
    track = infos[0].track_hash.full_name_hash
    assert [node for node, info in enumerate(infos) if base.add(info, 0.0).first] == [0]  # type: ignore[union-attr]
    assert base.sources(track) == {info.source_node_id for info in infos}
    for info in infos[1:]:
        base.withdraw(replace(info, sequence=2), 0.0)
    assert base.sources(track) == {infos[0].source_node_id}


def test_tracks_whose_hashes_differ_in_high_bits_only_are_kept_apart(base: Subscribes) -> None:
    infos = [subscribe(1, track=TrackKey(number << 50)) for number in range(1000)]
    for info in infos:
        base.add(info, 0.0)
    assert by_key(iter(base)) == infos
    assert [base.get(NEAR, TrackKey(number << 50)) for number in range(1000)] == infos
    assert purge(base, NEAR) == {number << 50 for number in range(1000)}


def test_a_subscribe_of_65_kilobytes_is_held_once(base: Subscribes) -> None:
    data = bytes(range(256)) * 255
    infos = [subscribe(1, source, data=data) for source in (NEAR, FAR)]
    for info in infos:
        base.add(info, 0.0)
    assert [base.get(source, SEVEN) for source in (NEAR, FAR)] == infos
    assert len(base._made._forms) == 1


# -- a relay that keeps none -----------------------------------------------------------------------


def test_a_word_goes_by_once() -> None:
    seen = SeenSubscribes()
    assert [seen.seen(subscribe(n), 0.0) for n in (5, 5, 4, 6, 5)] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert not seen.seen(subscribe(5, FAR), 0.0)
    assert seen.counters.duplicates == 3


def test_what_was_seen_long_ago_is_news_again() -> None:
    seen = SeenSubscribes()
    seen.seen(subscribe(5), 0.0)
    assert seen.seen(subscribe(5), SEEN_RETENTION_S - 1)
    assert not seen.seen(subscribe(5), SEEN_RETENTION_S)


def test_what_was_seen_is_bounded_and_the_oldest_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_SEEN", 2)
    seen = SeenSubscribes()
    for track in (SEVEN, EIGHT, NINE):
        seen.seen(subscribe(5, track=track), 0.0)
    assert seen.counters.forgotten_early == 1
    assert seen.seen(subscribe(5, track=NINE), 0.0)
    assert not seen.seen(subscribe(5, track=SEVEN), 0.0)


def test_words_of_a_node_that_was_gone_are_news() -> None:
    seen = SeenSubscribes()
    seen.seen(subscribe(5), 0.0)
    seen.purge_source(NEAR)
    assert not seen.seen(subscribe(1), 0.0)
