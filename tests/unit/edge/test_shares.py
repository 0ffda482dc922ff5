"""What a bearer, an address and all clients together may have, in MoQT and QUICR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.auth.grants import Limits
from laps.auth.judge import OUT_OF_BAND, Verifier
from laps.edge.authority import Authority
from laps.edge.shaping import MOST_MESSAGES
from laps.edge.shares import Limit, ShareSettings, Whose
from laps.wire.moqt.codes import RequestCode, SessionCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    Publish,
    PublishNamespaceDone,
    PublishOk,
    RequestError,
    RequestOk,
    Subscribe,
    SubscribeOk,
    Token,
    TokenAlias,
    Unsubscribe,
)
from laps.wire.quicr.codes import QuicrCode
from laps.wire.quicr.messages import (
    Authorization,
    Holds,
    PublishIntentOk,
    Response,
    SubscribeReply,
)
from support.moqt import MoqtNet
from support.moqt_streams import Obj
from support.quicr import Media, Post, QuicrApp
from support.relays import track_name
from support.tokens import NOW, jwt, keys

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=["14", "16"])


def bearer(**limits: int) -> bytes:
    """A token for everything, within limits; all that are made here are of one bearer."""
    return jwt({"sub": "ann", "put": [""], "get": [""], "laps": {"limits": limits}})


class Stage:
    """A relay with keys, and clients that show tokens."""

    def __init__(self, dialect: Dialect = DRAFT16, **shares: Any) -> None:
        self.net = MoqtNet()
        self.relay = self.net.relay("1:1")
        authority = Authority(Verifier(keys(), skew_s=0.0))
        authority.wall_s = NOW - self.net.now
        self.edge = self.net.edge(self.relay, authority, shares=ShareSettings(**shares))
        self.dialect = dialect

    def app(self, token: bytes, dialect: Dialect | None = None, **fields: Any) -> App:
        app = self.net.app(self.relay, dialect or self.dialect, setup=False, **fields)
        return app.start(tokens=(Token(TokenAlias.USE_VALUE, None, OUT_OF_BAND, token),))

    def quicr(self, token: bytes) -> QuicrApp:
        app = QuicrApp(self.net, self.relay)
        app.authorize(Authorization(token, OUT_OF_BAND, Holds.CONNECTION))
        return app

    def refused(self) -> dict[tuple[str, str], int]:
        return dict(self.edge.shares.refused)

    def events(self) -> list[tuple[str, str]]:
        noted = [it.event for it in self.relay.journal.recent()]
        return [(it.subject, it.detail) for it in noted if it.name == "over_limit"]


def replies(opened: Media | Post) -> list[tuple[Response, str]]:
    return [(it.response, it.reason) for it in opened.heard if isinstance(it, SubscribeReply)]


def is_granted(opened: Media | Post) -> bool:
    ok = any(isinstance(it, PublishIntentOk) for it in opened.heard)
    return ok or (Response.OK, "") in replies(opened)


def is_paused(app: App | QuicrApp) -> bool:
    return app.link.paused


def refusal(app: App) -> RequestError:
    error = app.last(RequestError)
    assert error.code == RequestCode.INTERNAL_ERROR
    assert (error.retry_ms is not None) == (app.dialect is DRAFT16), error
    return error


# -- sessions --------------------------------------------------------------------------------------


@BOTH
def test_sessions_of_a_bearer_count_together_whatever_they_speak(dialect: Dialect) -> None:
    stage = Stage(dialect)
    token = bearer(sessions=3)
    first = stage.app(token)
    stage.app(token, webtransport=True)
    stage.quicr(token)
    assert first.closed is None
    refused = stage.app(token)
    assert refused.closed is not None
    assert refused.closed[0] == SessionCode.TOO_MANY_REQUESTS
    assert "3 sessions; ask again in 1 s" in refused.closed[1]
    assert replies(stage.quicr(token).media[0])[0][0] is Response.FAIL
    assert stage.refused() == {("bearer", "sessions"): 2}
    first.leave()
    assert stage.app(token).closed is None
    stage.net.check_empty()


def test_sessions_count_by_token_id_where_there_is_one() -> None:
    stage = Stage()
    claims = {"sub": "ann", "get": [""], "laps": {"limits": {"sessions": 1}}}
    one, two = (jwt(claims | {"jti": name}) for name in ("one", "two"))
    assert stage.app(one).closed is None
    assert stage.app(two).closed is None
    assert stage.app(one).closed is not None


def test_session_leaves_the_account_of_a_token_that_has_ended() -> None:
    stage = Stage()
    limits = {"laps": {"limits": {"sessions": 1}}, "get": [""]}
    old = jwt({"jti": "old", "exp": int(NOW + 10), **limits})
    app = stage.quicr(old)
    app.authorize(Authorization(jwt({"jti": "new", **limits}), OUT_OF_BAND, Holds.CONNECTION))
    (client,) = stage.edge.clients
    assert len(client.share._bearers) == 2
    stage.net.run(20.0)
    assert [account.name for account in client.share._bearers] == ["new"]
    stage.net.check_empty()


# -- requests --------------------------------------------------------------------------------------


@BOTH
def test_requests_a_second_are_refused_with_the_time_to_ask_again(dialect: Dialect) -> None:
    stage = Stage(dialect)
    app, other = stage.app(bearer(requests_per_s=1)), stage.app(bearer(requests_per_s=1))
    for number in range(2):
        app.publish(f"a/{number}")
        other.publish(f"b/{number}")
    assert len([*app.heard_of(PublishOk), *other.heard_of(PublishOk)]) == 4
    app.publish("a/10")
    error = refusal(app)
    assert "this token has 1 requests a second; ask again in 1 s" in error.reason
    assert error.retry_ms in (None, 1000)
    stage.net.run(1.0)
    app.publish("a/10")
    assert isinstance(app.heard[-1], PublishOk)
    assert stage.events() == [("bearer ann", "requests_per_s")]


@BOTH
def test_requests_without_end_close_the_session(dialect: Dialect) -> None:
    stage = Stage(dialect)
    app = stage.app(bearer(requests_per_s=1))
    for number in range(8):
        app.publish(f"a/{number}")
    assert len(app.heard_of(RequestError)) == 4
    app.publish("a/20")
    assert app.closed is not None
    assert app.closed[0] == SessionCode.TOO_MANY_REQUESTS
    assert len(stage.events()) == 1, "the operator is told once in a minute"
    stage.net.check_empty()


def test_requests_that_the_session_refuses_itself_count_too() -> None:
    stage = Stage()
    app = stage.app(bearer(requests_per_s=1))
    app.watch("a")
    for _ in range(30):
        app.watch("a/b")
    assert app.closed is not None
    assert app.closed[0] == SessionCode.TOO_MANY_REQUESTS


def test_requests_of_quicr_are_refused_in_words_and_then_closed() -> None:
    stage = Stage()
    app = stage.quicr(bearer(requests_per_s=1))
    for number in range(4):
        assert is_granted(app.publish(f"a/{number}"))
    ((response, reason),) = replies(app.subscribe("a/x"))
    assert response is Response.FAIL
    assert reason == "this token has 1 requests a second; ask again in 1 s"
    for _ in range(4):
        app.subscribe("a/x")
    assert app.closed is not None
    assert app.closed[0] == QuicrCode.TOO_MANY


@BOTH
def test_update_that_is_one_too_many_leaves_its_subscription_alone(dialect: Dialect) -> None:
    stage = Stage(dialect)
    pub = stage.app(bearer())
    alias = pub.publish("a/t")
    app = stage.app(bearer(requests_per_s=1))
    request_id = app.subscribe("a/t")
    for _ in range(6):
        app.update(request_id, priority=3)
    pub.stream(alias, 0, Obj(0, b"still"))
    assert app.objects == [(0, 0, b"still")]
    if dialect is DRAFT16:
        assert app.heard_of(RequestError)


@BOTH
def test_open_requests_are_those_without_an_answer(dialect: Dialect) -> None:
    stage = Stage(dialect)
    app = stage.app(bearer(open_requests=2))
    app.subscribe("a/1")
    app.subscribe("a/2")  # both wait for a publisher
    app.subscribe("a/3")
    assert "2 requests without an answer" in refusal(app).reason
    pub = stage.app(bearer())
    pub.publish("a/1")
    assert app.heard_of(SubscribeOk)
    app.subscribe("a/4")
    assert stage.refused() == {("bearer", "open_requests"): 1}
    stage.net.run(10.0)
    assert len(app.heard_of(RequestError)) == 3, "those that nobody publishes are answered too"
    app.subscribe("a/5")
    stage.net.check_empty()


# -- tracks, subscriptions, namespaces ------------------------------------------------------------


@BOTH
def test_tracks_of_a_bearer_count_in_all_its_sessions(dialect: Dialect) -> None:
    stage = Stage(dialect)
    token = bearer(tracks=2)
    one, two, quicr = stage.app(token), stage.app(token), stage.quicr(token)
    one.publish("a/1")
    two.publish("a/2")
    one.publish("a/3")
    assert "2 published tracks" in refusal(one).reason
    post = quicr.publish("a/3")
    assert replies(post)[0][0] is Response.FAIL
    request_id = next(iter(two.client.publications))
    two.done(request_id, 2, 0)
    stage.net.run(1.0)
    assert is_granted(quicr.publish("a/3"))
    stage.net.check_empty()


def test_tracks_of_a_namespace_are_not_asked_for_beyond_the_limit() -> None:
    stage = Stage()
    pub = stage.app(bearer(tracks=1))
    pub.publish_namespace("a")
    sub = stage.app(bearer())
    sub.subscribe("a/1")
    sub.subscribe("a/2")
    assert len(pub.heard_of(Subscribe)) == 1
    pub.accept(pub.heard_of(Subscribe)[0])
    stage.net.run(5.0)
    (error,) = sub.heard_of(RequestError)
    assert "as many tracks as it may have" in error.reason
    stage.net.check_empty()


@BOTH
def test_subscriptions_end_and_make_room_for_others(dialect: Dialect) -> None:
    stage = Stage(dialect)
    pub = stage.app(bearer())
    for number in range(3):
        pub.publish(f"a/{number}")
    token = bearer(subscriptions=2)
    app, quicr = stage.app(token), stage.quicr(token)
    first = app.subscribe("a/0")
    media = quicr.subscribe("a/1")
    assert is_granted(media)
    app.subscribe("a/2")
    assert "2 subscriptions" in refusal(app).reason
    app.say(Unsubscribe(first))
    app.subscribe("a/2")
    assert isinstance(app.heard[-1], SubscribeOk)
    assert replies(quicr.subscribe("a/0"))[0][0] is Response.FAIL
    media.cancel()
    assert is_granted(quicr.subscribe("a/0"))
    stage.net.check_empty()


@BOTH
def test_subscriptions_that_the_relay_offers_count_as_well(dialect: Dialect) -> None:
    stage = Stage(dialect)
    token = bearer(subscriptions=1)
    app, quicr = stage.app(token), stage.quicr(bearer(subscriptions=1, tracks=9))
    app.watch("a")
    quicr.subscribe("a/", mask=1)
    pub = stage.app(bearer())
    for number in range(3):
        pub.publish(f"a/{number}")
    offers = app.heard_of(Publish)
    if dialect is DRAFT16:  # the older draft is told of namespaces only
        assert len(offers) == 1
    assert len(quicr.offered) == 1
    stage.net.check_empty()


@BOTH
def test_namespaces_published_and_watched_have_a_bound(dialect: Dialect) -> None:
    stage = Stage(dialect, relay=Limits(namespaces=3))
    app = stage.app(bearer(namespaces=2))
    app.publish_namespace("a")
    app.watch("b")
    app.publish_namespace("c")
    assert "this token has 2 namespaces" in refusal(app).reason
    app.say(PublishNamespaceDone(app.heard_of(RequestOk)[0].request_id, (b"a",)))
    app.publish_namespace("c")
    assert isinstance(app.heard[-1], RequestOk)
    other = stage.app(bearer())
    other.publish_namespace("d")
    other.publish_namespace("e")
    assert "this relay has 3 namespaces" in refusal(other).reason
    assert stage.refused() == {("bearer", "namespaces"): 1, ("relay", "namespaces"): 1}
    stage.net.check_empty()


@BOTH
def test_names_have_a_length(dialect: Dialect) -> None:
    stage = Stage(dialect, name_bytes=10)
    app = stage.app(bearer())
    for ask in (app.publish, app.subscribe, app.publish_namespace, app.watch):
        ask("seven12/four")
        error = app.last(RequestError)
        assert error.reason == "the name has 11 bytes: 10 at most (limits.name_bytes)"
        assert error.retry_ms is None
    quicr = stage.quicr(bearer())
    assert "11 bytes" in replies(quicr.publish("seven12/four"))[0][1]
    assert "11 bytes" in replies(quicr.subscribe("seven12/four"))[0][1]
    app.publish("seven12/two")
    assert isinstance(app.heard[-1], PublishOk)


# -- bytes -----------------------------------------------------------------------------------------


@BOTH
def test_bytes_in_are_shaped_and_nothing_is_lost(dialect: Dialect) -> None:
    stage = Stage(dialect)
    pub, sub = stage.app(bearer(bytes_in_per_s=100_000)), stage.app(bearer())
    alias = pub.publish("a/t")
    sub.subscribe("a/t")
    pub.stream(alias, 0, Obj(0, bytes(60_000)))
    assert not is_paused(pub)
    pub.stream(alias, 1, Obj(0, bytes(60_000)))
    assert is_paused(pub)
    stage.net.run(0.3)
    assert is_paused(pub)
    stage.net.run(0.4)  # what is above the burst of 64 KiB is paid for by then
    assert not is_paused(pub)
    assert [len(payload) for _, _, payload in sub.objects] == [60_000, 60_000]
    assert dict(stage.edge.shares.shaped) == {("bearer", "bytes_in_per_s"): 1}


def test_bytes_in_of_a_bearer_count_in_all_its_sessions() -> None:
    stage = Stage()
    token = bearer(bytes_in_per_s=10_000)
    pub, quicr = stage.app(token), stage.quicr(token)
    post = quicr.publish("a/q")
    alias = pub.publish("a/t")
    pub.stream(alias, 0, Obj(0, bytes(70_000)))
    post.object(0, 0, bytes(10))
    assert is_paused(pub)
    assert is_paused(quicr)
    stage.net.run(2.0)
    assert not is_paused(pub)
    assert not is_paused(quicr)


def test_bytes_in_and_pressure_hold_a_publisher_independently() -> None:
    stage = Stage()
    pub, sub = stage.app(bearer(bytes_in_per_s=100_000)), stage.app(bearer())
    alias = pub.publish("a/t")
    sub.subscribe("a/t")
    stream = pub.open(alias, 0, Obj(0, bytes(80_000)))
    assert is_paused(pub)
    sub.link.press(True)
    stage.net.run(0.2)
    assert is_paused(pub), "it may send, and its subscriber does not read"
    stream.write(Obj(1, bytes(100_000)))
    sub.link.press(False)
    assert is_paused(pub), "its subscriber reads, and it has sent too much"
    stage.net.run(2.0)
    assert not is_paused(pub)


def test_bytes_out_are_a_matter_of_the_link() -> None:
    stage = Stage()
    app, quicr = stage.app(bearer(bytes_out_per_s=5)), stage.quicr(bearer(bytes_out_per_s=5))
    (account,) = app.link.paced_by
    assert quicr.link.paced_by == (account,)
    assert account.bytes_out is not None
    assert account.bytes_out.rate == 5
    assert stage.app(bearer()).link.paced_by == ()


# -- the cache -------------------------------------------------------------------------------------


def test_cache_of_a_bearer_is_its_own_oldest_first() -> None:
    stage = Stage()
    greedy, other = stage.app(bearer(cache_bytes=100_000)), stage.app(bearer())
    first, second, theirs = greedy.publish("a/1"), greedy.publish("a/2"), other.publish("b/1")
    other.stream(theirs, 0, Obj(0, bytes(50_000)))
    for group in range(4):
        greedy.stream(first, group, Obj(0, bytes(20_000)))
    greedy.stream(second, 0, Obj(0, bytes(20_000)))
    cache = stage.relay.tracks.cache
    assert cache.counters.shares_exceeded == 1
    kept = {
        (track.name.namespace[0], track.name.name, group)
        for track in stage.relay.tracks
        if track.name is not None
        for group in track.cached.groups
    }
    assert (b"b", b"1", 0) in kept, "what is another's stays"
    assert (b"a", b"1", 0) not in kept
    assert {(b"a", b"1", 3), (b"a", b"2", 0)} <= kept
    (account,) = greedy.client.share._bearers
    assert account.cache is not None
    assert account.cache.size <= 100_000
    assert account.cache.size == sum(group.size for group in account.cache.order)
    greedy.leave()
    again = stage.app(bearer(cache_bytes=100_000))
    assert next(iter(again.client.share._bearers)) is account, "what is kept still counts for it"
    stage.net.check_empty()
    assert account.cache.size == 0
    assert not account.cache.order


def test_cache_of_a_track_stays_with_who_published_it_first() -> None:
    stage = Stage()
    victim = stage.app(bearer())
    alias = victim.publish("a/t")
    victim.stream(alias, 0, Obj(0, bytes(50_000)))
    thief = stage.app(bearer(cache_bytes=1_000))
    thief.publish("a/t")
    (track,) = stage.relay.tracks
    assert track.cached.owner is None
    assert track.cached.size > 50_000


# -- half messages ---------------------------------------------------------------------------------


def half(size: int) -> bytes:
    """A control message that says it is long, and never ends."""
    return b"\x03\xff\xff" + bytes(size)


@BOTH
def test_half_messages_of_all_sessions_are_bounded_and_who_holds_most_goes(
    dialect: Dialect,
) -> None:
    stage = Stage(dialect, half_message_bytes=10_000)
    small, large, quicr = stage.app(bearer()), stage.app(bearer()), stage.quicr(bearer())
    held = stage.edge.shares.half_messages
    small.say_bytes(half(1_000))
    quicr.say_bytes(b"\xff\xff" + bytes(2_000))
    large.say_bytes(half(6_500))
    assert held.size == 1_003 + 2_002 + 6_503
    small.say_bytes(bytes(1_000))
    assert (small.closed, quicr.closed) == (None, None)
    assert large.closed is not None
    assert large.closed[0] == SessionCode.INTERNAL_ERROR
    assert "limits.half_message_bytes is 10000" in large.closed[1]
    assert stage.refused() == {(Whose.RELAY, Limit.HALF_MESSAGES): 1}
    quicr.say_bytes(bytes(9_000))
    assert quicr.closed is not None
    assert quicr.closed[0] == QuicrCode.TOO_LARGE
    small.leave()
    assert held.size == 0


# -- addresses -------------------------------------------------------------------------------------


class OpenStage:
    """A relay without keys, and clients from an address."""

    def __init__(self, **limits: int) -> None:
        self.net = MoqtNet()
        self.relay = self.net.relay("1:1")
        settings = ShareSettings(address=Limits(**limits))
        self.edge = self.net.edge(self.relay, shares=settings)

    def app(self, host: str) -> App:
        self.edge.addresses.arrived(host, self.net.now)
        app = self.net.app(self.relay, setup=False)
        self.edge.context.connected.pop(app.client)
        app.link.host = host
        app.client = type(app.client)(self.edge, app.link, DRAFT16, webtransport=False)
        return app.start()


def test_address_limits_hold_where_nobody_shows_a_token() -> None:
    stage = OpenStage(tracks=2, bytes_in_per_s=1_000)
    one, two, elsewhere = stage.app("192.0.2.1"), stage.app("192.0.2.1"), stage.app("192.0.2.2")
    one.publish("a/1")
    alias = two.publish("a/2")
    one.publish("a/3")
    assert "this address has 2 published tracks" in one.last(RequestError).reason
    elsewhere.publish("a/3")
    assert isinstance(elsewhere.heard[-1], PublishOk)
    two.stream(alias, 0, Obj(0, bytes(70_000)))
    assert is_paused(two)
    assert not is_paused(elsewhere)
    noted = [it.event.subject for it in stage.relay.journal.recent()]
    assert noted == ["address"], "which address it is stays with the relay"


def test_nothing_is_counted_where_nothing_is_limited() -> None:
    stage = OpenStage()
    app = stage.app("192.0.2.1")
    app.publish("a/1")
    share = app.client.share
    assert share._held == {}
    assert share.inflow == share.outflow == ()
    assert len(stage.edge.addresses) == 0


def test_every_limit_of_a_token_is_enforced() -> None:
    """Each name of `Limits` is counted, shaped or kept: none is parsed for nothing."""
    enforced = {str(limit) for limit in Limit} | {"cache_bytes"}
    assert set(Limits.__slots__) <= enforced


# -- turns -----------------------------------------------------------------------------------------


def publish_at_once(app: App, count: int, more: bytes = b"") -> None:
    """Many requests, that come in one piece."""
    said: list[bytes] = []
    send, app.post_data = app.post_data, lambda _, data, fin: said.append(data)  # type: ignore[method-assign,assignment]
    for number in range(count):
        app.session.request(Publish(0, track_name(f"a/{number}"), number))
    app.post_data = send  # type: ignore[method-assign]
    app.post_data(0, b"".join(said) + more, False)


@BOTH
def test_messages_without_end_leave_others_their_turn_and_are_all_answered(
    dialect: Dialect,
) -> None:
    stage = Stage(dialect)
    app = stage.app(bearer())
    publish_at_once(app, 300)
    stage.net.run()
    assert len(app.heard_of(PublishOk)) == MOST_MESSAGES - 1  # one was the setup
    assert is_paused(app)
    stage.net.run(0.1)
    assert len(app.heard_of(PublishOk)) == 300
    assert not is_paused(app)


def test_messages_of_later_turns_wait_for_the_time_of_their_address() -> None:
    stage = Stage()
    app = stage.app(bearer())
    app.link.is_spent = True
    publish_at_once(app, 300)
    stage.net.run(1.0)
    assert len(app.heard_of(PublishOk)) == MOST_MESSAGES - 1  # one was the setup
    assert is_paused(app)
    app.link.is_spent = False
    stage.net.run(0.2)
    assert len(app.heard_of(PublishOk)) == 300
    assert not is_paused(app)


def test_messages_that_break_the_protocol_close_the_session_in_a_later_turn_too() -> None:
    stage = Stage()
    app = stage.app(bearer())
    publish_at_once(app, 100, more=b"\x3f\x00\x00")
    stage.net.run(0.1)
    assert app.closed is not None
    assert app.closed[0] == SessionCode.PROTOCOL_VIOLATION
    stage.net.check_empty()
