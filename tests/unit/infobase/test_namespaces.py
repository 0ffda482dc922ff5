"""The namespace information base: what publishers at which node offer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laps.infobase import namespaces as module
from laps.infobase.namespaces import RETENTION_S, NamespaceChange, Namespaces
from laps.types import NamespaceInfo, NodeId, sequence_newer

NEAR, FAR = NodeId(1), NodeId(2)
ROOM = (b"conference", b"room")


def offer(
    sequence: int,
    source: NodeId = NEAR,
    namespace: tuple[bytes, ...] = ROOM,
    name: bytes | None = None,
) -> NamespaceInfo:
    return NamespaceInfo(sequence, source, namespace, name)


@pytest.fixture
def base() -> Namespaces:
    return Namespaces()


# -- what is said ----------------------------------------------------------------------------------


def test_an_offer_is_news_once(base: Namespaces) -> None:
    assert base.add(offer(1), 0.0) == NamespaceChange(offer(1), added=True, first=True)
    assert base.add(offer(1), 0.0) is None
    assert base.counters.duplicates == 1
    assert base.add(offer(2), 0.0) == NamespaceChange(offer(2), added=True, first=False)
    assert (list(base), len(base)) == ([offer(2)], 1)


def test_two_nodes_may_offer_the_same(base: Namespaces) -> None:
    base.add(offer(1), 0.0)
    assert base.add(offer(1, FAR), 0.0) == NamespaceChange(offer(1, FAR), added=True, first=False)
    gone = base.withdraw(offer(2), 0.0)
    assert gone == NamespaceChange(offer(2), added=False, first=False)
    gone = base.withdraw(offer(2, FAR), 0.0)
    assert gone == NamespaceChange(offer(2, FAR), added=False, first=True)
    assert (list(base), len(base), base.matching(())) == ([], 0, [])


def test_a_name_is_another_offer_than_its_namespace(base: Namespaces) -> None:
    base.add(offer(1), 0.0)
    named = base.add(offer(1, name=b""), 0.0)
    assert named is not None
    assert named.first
    assert len(base) == 2
    assert base.get(NEAR, (ROOM, b"")) == offer(1, name=b"")
    assert base.get(NEAR, (ROOM, b"video")) is None


def test_a_withdraw_that_is_not_newer_is_old_news(base: Namespaces) -> None:
    base.add(offer(5), 0.0)
    assert base.withdraw(offer(5), 0.0) is None
    assert base.withdraw(offer(4), 0.0) is None
    assert (len(base), base.counters.duplicates) == (1, 2)


def test_a_withdraw_that_overtakes_its_offer_is_news_and_holds(base: Namespaces) -> None:
    gone = base.withdraw(offer(2), 0.0)
    assert gone == NamespaceChange(offer(2), added=False, first=False)
    assert base.add(offer(1), 0.0) is None
    assert base.sequence(NEAR, (ROOM, None)) == 2
    assert base.add(offer(3), 0.0) is not None


def test_what_was_withdrawn_is_forgotten_after_a_while(base: Namespaces) -> None:
    base.withdraw(offer(5), 0.0)
    assert base.next_expiry == RETENTION_S
    base.expire(RETENTION_S)
    assert [base.next_expiry, base.sequence(NEAR, (ROOM, None))] == [None, None]
    assert base.add(offer(1), RETENTION_S) is not None


def test_withdrawn_sequences_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WITHDRAWN", 2)
    base = Namespaces()
    for part in (b"a", b"b", b"c"):
        base.withdraw(offer(5, namespace=(part,)), 0.0)
    kept = [base.sequence(NEAR, ((part,), None)) for part in (b"a", b"b", b"c")]
    assert kept == [None, 5, 5]
    assert base.counters.forgotten_early == 1


def test_a_node_that_is_gone_takes_all_along_and_starts_anew(base: Namespaces) -> None:
    base.add(offer(9), 0.0)
    base.add(offer(9, name=b"video"), 0.0)
    base.add(offer(9, FAR), 0.0)
    base.withdraw(offer(9, namespace=(b"old",)), 0.0)
    base.purge_source(NEAR)
    assert list(base) == [offer(9, FAR)]
    assert list(base.sources((ROOM, None))) == [FAR]
    assert base.matching(ROOM) == [offer(9, FAR)]
    told = base.purged(1)
    assert (len(told), base.is_purging) == (1, True)
    told += base.purged(9)
    assert base.is_purging is False
    assert sorted(told, key=lambda change: change.first) == [
        NamespaceChange(offer(9), added=False, first=False),
        NamespaceChange(offer(9, name=b"video"), added=False, first=True),
    ]
    base.purge_source(NEAR)
    assert base.purged(9) == []
    assert list(base) == [offer(9, FAR)]
    assert base.add(offer(1), 0.0) is not None
    assert base.add(offer(1, namespace=(b"old",)), 0.0) is not None


def test_a_node_that_is_back_before_it_is_forgotten_keeps_what_it_offers(base: Namespaces) -> None:
    for name in (b"a", b"b", b"c"):
        base.add(offer(9, name=name), 0.0)
    base.purge_source(NEAR)
    assert base.add(offer(1, name=b"b"), 0.0) is not None
    told = base.purged(9)
    assert sorted(change.info.name or b"" for change in told) == [b"a", b"c"]
    assert list(base.sources((ROOM, b"b"))) == [NEAR]
    assert list(base) == [offer(1, name=b"b")]


# -- what is known ---------------------------------------------------------------------------------


def test_a_prefix_finds_what_begins_with_its_parts(base: Namespaces) -> None:
    infos = [
        offer(1, FAR),
        offer(1),
        offer(1, namespace=(*ROOM, b"12"), name=b"video"),
        offer(1, namespace=(b"conference",)),
        offer(1, namespace=(b"conferences", b"room")),
        offer(1, namespace=()),
    ]
    for info in infos:
        base.add(info, 0.0)
    assert base.matching(ROOM) == [offer(1), offer(1, FAR), infos[2]]
    assert base.matching((b"conference",)) == [offer(1), offer(1, FAR), infos[2], infos[3]]
    assert base.matching((*ROOM, b"12")) == [infos[2]]
    assert base.matching((b"conf",)) == []
    assert len(base.matching(())) == len(infos)
    assert list(base.of_source(FAR)) == [offer(1, FAR)]


# -- as a whole ------------------------------------------------------------------------------------

words = st.tuples(
    st.booleans(),
    st.sampled_from([NEAR, FAR]),
    st.sampled_from([(b"a",), (b"a", b"b")]),
    st.sampled_from([None, b"n"]),
    st.integers(0, 5),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(words, max_size=30))
def test_the_table_is_what_the_newest_words_say(
    said: list[tuple[bool, NodeId, tuple[bytes, ...], bytes | None, int]],
) -> None:
    base = Namespaces()
    newest: dict[tuple[NodeId, tuple[bytes, ...], bytes | None], tuple[int, bool]] = {}
    for added, source, namespace, name, sequence in said:
        key = source, namespace, name
        news = key not in newest or sequence_newer(sequence, newest[key][0])
        take = base.add if added else base.withdraw
        assert (take(offer(sequence, source, namespace, name), 0.0) is not None) is news
        if news:
            newest[key] = sequence, added
    expected = {offer(sequence, *key) for key, (sequence, added) in newest.items() if added}
    assert set(base) == set(base.matching(())) == expected
    assert len(base) == len(expected)
