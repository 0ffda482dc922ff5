"""What a grant allows: the examples of C4M, and what watchers may see."""

from __future__ import annotations

import pytest

from laps.auth.grants import Action, Grant, Limits, Match, MatchType, Scope, allowing

EXAMPLE_COM = (Match(b"example"), Match(b"com"))
BOB = Match(b"/bob")
PREFIX, SUFFIX = MatchType.PREFIX, MatchType.SUFFIX

Full = tuple[tuple[bytes, ...], bytes]


def full(text: str) -> Full:
    """`example,com /bob` as a namespace and a name."""
    namespace, _, name = text.partition(" ")
    return tuple(part.encode() for part in namespace.split(",")), name.encode()


def scope(
    namespace: tuple[Match, ...] = (),
    track: Match | None = None,
    *,
    ends: bool = False,
    actions: frozenset[Action] = frozenset({Action.PUBLISH}),
) -> Scope:
    return Scope(actions, namespace, ends, track)


def grant(*scopes: Scope, until: float | None = None) -> Grant:
    return Grant("ann", scopes, until)


# The examples of the draft, each with what it permits and what it prohibits.
EXAMPLES = {
    "exact": (
        scope(EXAMPLE_COM, BOB, ends=True),
        ["example,com /bob"],
        [
            "example,com ",
            "example,com /bob/123",
            "example,com /alice",
            "alternate,example,com /bob",
            "12345 ",
            "example com/bob",
            "example,com,/bob ",
            "example,com, /bob",
        ],
    ),
    "prefix of the track": (
        scope(EXAMPLE_COM, Match(b"/bob", PREFIX), ends=True),
        ["example,com /bob", "example,com /bob/123", "example,com /bob/logs"],
        ["example,com ", "example,com /alice", "alternate,example,com /bob", "example com/bob"],
    ),
    "longer namespaces": (
        scope(EXAMPLE_COM, BOB),
        ["example,com /bob", "example,com, /bob", "example,com,bob /bob"],
        ["example,com ", "example,com /bob/123", "example,com,/bob ", "example com/bob"],
    ),
    "any track": (
        scope(EXAMPLE_COM),
        ["example,com /bob", "example,com, /bob", "example,com ", "example,com,/bob "],
        ["alternate,example,com /bob", "12345 ", "example com/bob"],
    ),
    "prefix of a field": (
        scope((Match(b"example"), Match(b"user-", PREFIX)), Match(b"/data"), ends=True),
        ["example,user-alice /data", "example,user- /data"],
        [
            "example,alice /data",
            "example,user-alice,extra /data",
            "example,USER-alice /data",
            "example /data",
        ],
    ),
    "suffix": (
        scope(EXAMPLE_COM, Match(b".json", SUFFIX), ends=True),
        ["example,com data.json", "example,com /api/response.json", "example,com .json"],
        [
            "example,com data.xml",
            "example,com json",
            "example,com data.JSON",
            "example,com data.json.bak",
        ],
    ),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_grants_follow_the_examples_of_the_draft(example: str) -> None:
    given, permits, prohibits = EXAMPLES[example]
    asked = grant(given)
    assert [text for text in permits if not asked.allows(Action.PUBLISH, *full(text))] == []
    assert [text for text in prohibits if asked.allows(Action.PUBLISH, *full(text))] == []
    assert not any(asked.allows(Action.SUBSCRIBE, *full(text)) for text in permits)


def test_grant_without_scopes_allows_nothing() -> None:
    assert not any(grant().allows(action, (b"a",), b"b") for action in Action)
    assert not grant().may_watch(())


def test_grant_to_connect_concerns_no_name() -> None:
    connect = frozenset({Action.CLIENT_SETUP})
    assert grant(scope(EXAMPLE_COM, BOB, actions=connect)).allows(Action.CLIENT_SETUP)
    assert not grant(scope(EXAMPLE_COM, BOB)).allows(Action.CLIENT_SETUP)


def test_grant_of_a_namespace_has_no_name_to_match_until_a_track_is_asked_for() -> None:
    actions = frozenset({Action.PUBLISH_NAMESPACE, Action.SUBSCRIBE})
    given = grant(scope(EXAMPLE_COM, BOB, actions=actions))
    assert given.allows(Action.PUBLISH_NAMESPACE, (b"example", b"com"))
    assert given.allows(Action.PUBLISH_NAMESPACE, (b"example", b"com"), b"/bob")
    assert not given.allows(Action.PUBLISH_NAMESPACE, (b"example", b"com"), b"/alice")
    # A request for a track without a name could be for any.
    assert not given.allows(Action.SUBSCRIBE, (b"example", b"com"))


def test_watch_of_a_shorter_prefix_is_possible_and_what_is_shown_is_filtered() -> None:
    watch = frozenset({Action.SUBSCRIBE_NAMESPACE})
    given = grant(scope((Match(b"rooms"), Match(b"team-", PREFIX)), ends=True, actions=watch))
    for prefix in ((), (b"rooms",), (b"rooms", b"team-a")):
        assert given.may_watch(prefix)
    for outside in ((b"other",), (b"rooms", b"x"), (b"rooms", b"team-a", b"deeper")):
        assert not given.may_watch(outside)
    assert given.may_see((b"rooms", b"team-a"))
    for hidden in ((b"rooms",), (b"rooms", b"x"), (b"rooms", b"team-a", b"deeper"), ()):
        assert not given.may_see(hidden)


def test_watch_needs_its_own_action() -> None:
    assert not grant(scope(EXAMPLE_COM)).may_watch((b"example",))


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        (Match(b"a"), Match(b"a"), True),
        (Match(b"a"), Match(b"ab"), False),
        (Match(b"a"), Match(b"a", PREFIX), False),
        (Match(b"a", PREFIX), Match(b"ab"), True),
        (Match(b"a", PREFIX), Match(b"ab", PREFIX), True),
        (Match(b"ab", PREFIX), Match(b"a", PREFIX), False),
        (Match(b"a", PREFIX), Match(b"a", SUFFIX), False),
        (Match(b"", PREFIX), Match(b"a", SUFFIX), True),
        (Match(b"a", SUFFIX), Match(b"ba", SUFFIX), True),
        (Match(b"a", SUFFIX), Match(b"ab"), False),
    ],
)
def test_match_covers_what_it_matches_all_of(wide: Match, narrow: Match, covers: bool) -> None:
    assert wide.covers(narrow) is covers


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        (scope(), scope(EXAMPLE_COM, BOB), True),
        (scope(EXAMPLE_COM), scope(), False),
        (scope(EXAMPLE_COM), scope(EXAMPLE_COM[:1]), False),
        (scope(EXAMPLE_COM), scope((*EXAMPLE_COM, BOB), ends=True), True),
        (scope(EXAMPLE_COM, ends=True), scope(EXAMPLE_COM), False),
        (scope(EXAMPLE_COM, ends=True), scope(EXAMPLE_COM, BOB, ends=True), True),
        (scope(EXAMPLE_COM, BOB), scope(EXAMPLE_COM), False),
        (scope(), scope(actions=frozenset({Action.FETCH})), False),
        (scope(), scope(actions=frozenset({Action.PUBLISH, Action.FETCH})), False),
    ],
)
def test_grant_is_within_scopes_that_have_all_of_it(
    wide: Scope, narrow: Scope, covers: bool
) -> None:
    assert grant(narrow).is_within([wide]) is covers


def test_grant_is_within_several_scopes_together_action_by_action() -> None:
    both = frozenset({Action.PUBLISH, Action.FETCH})
    bounds = [scope(EXAMPLE_COM), scope(actions=frozenset({Action.FETCH}))]
    assert grant(scope(EXAMPLE_COM, actions=both)).is_within(bounds)
    assert not grant(scope(actions=both)).is_within(bounds)


def test_grants_of_a_client_count_together_and_the_longest_is_the_one_that_allows() -> None:
    short, long, other = grant(scope(), until=10), grant(scope(), until=20), grant()
    assert allowing([short, other, long], Action.PUBLISH, (b"a",), b"b") is long
    for_ever = grant(scope())
    assert allowing([for_ever, long], Action.PUBLISH, (b"a",), b"b") is for_ever
    assert allowing([short, long], Action.FETCH, (b"a",), b"b") is None
    assert allowing([], Action.CLIENT_SETUP) is None


def test_limits_say_nothing_unless_told() -> None:
    assert set(vars_of(Limits())) == {None}
    assert Limits(tracks=0) != Limits()


def vars_of(limits: Limits) -> list[int | None]:
    return [getattr(limits, name) for name in Limits.__slots__]
