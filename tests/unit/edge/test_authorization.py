"""What MoQT clients may do at a relay with keys, by the tokens that they show."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

from laps.auth.judge import OUT_OF_BAND, Revoked, Verifier
from laps.auth.paths import read_paths
from laps.edge import reviewing
from laps.edge.access import Tokens
from laps.edge.authority import Authority
from laps.policy import policy_from_mapping
from laps.wire.moqt.codes import DoneCode, RequestCode, SessionCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    NamespaceAdded,
    PublishDone,
    PublishNamespace,
    PublishNamespaceCancel,
    PublishOk,
    RequestError,
    RequestOk,
    Subscribe,
    SubscribeOk,
    Token,
    TokenAlias,
    TrackStatus,
    Unsubscribe,
)
from support.moqt import MoqtNet
from support.moqt_streams import Obj
from support.relays import track_name
from support.tokens import NOW, jwt, key, keys

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=["14", "16"])


def token(*, put: Any = (), get: Any = (), for_s: float | None = None, **claims: Any) -> Token:
    """What ann may do, from now on and for a while."""
    if for_s is not None:
        claims["exp"] = int(NOW + for_s)
    value = jwt({"sub": "ann", "put": list(put), "get": list(get), **claims})
    return Token(TokenAlias.USE_VALUE, None, OUT_OF_BAND, value)


class Stage:
    """A relay with keys, and one client at a time that shows a token."""

    def __init__(self, dialect: Dialect = DRAFT16, public: Any = (), **settings: Any) -> None:
        self.net = MoqtNet()
        self.relay = self.net.relay("1:1")
        self.verifier = Verifier(keys(), skew_s=0.0)
        self.authority = Authority(self.verifier, public, **settings)
        self.authority.wall_s = NOW - self.net.now
        self.edge = self.net.edge(self.relay, self.authority)
        self.dialect = dialect

    def app(self, *tokens: Token, url: str = "", **setup: Any) -> App:
        app = self.net.app(self.relay, self.dialect, setup=False, webtransport=bool(url), url=url)
        return app.start(tokens=tokens, **setup)

    def refused(self) -> dict[tuple[str, str], int]:
        return dict(self.authority.refused)


def errors(app: App) -> list[RequestCode | int]:
    return [message.code for message in app.heard if isinstance(message, RequestError)]


# -- connecting ------------------------------------------------------------------------------------


@BOTH
def test_who_shows_no_token_is_not_let_in(dialect: Dialect) -> None:
    stage = Stage(dialect)
    app = stage.app()
    assert app.closed == (SessionCode.UNAUTHORIZED, "a token is needed to connect")
    assert stage.refused() == {("client-setup", "no_token"): 1}
    assert not stage.edge.clients


@BOTH
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"x", SessionCode.MALFORMED_AUTH_TOKEN),
        (jwt({"put": [""], "exp": int(NOW) - 1}), SessionCode.EXPIRED_AUTH_TOKEN),
        (jwt({"put": [""], "nbf": int(NOW) + 100}), SessionCode.UNAUTHORIZED),
        (jwt({"put": []}), SessionCode.UNAUTHORIZED),
    ],
)
def test_a_token_that_is_wrong_closes_the_session(
    dialect: Dialect, value: bytes, code: SessionCode
) -> None:
    app = Stage(dialect).app(Token(TokenAlias.USE_VALUE, None, OUT_OF_BAND, value))
    assert app.closed is not None
    assert app.closed[0] == code
    assert value.decode()[:20] not in app.closed[1] or len(value) < 5


@BOTH
def test_a_token_may_be_in_the_path(dialect: Dialect) -> None:
    value = token(get=["demo"]).value
    assert value is not None
    app = Stage(dialect).app(path=b"/moq?a=1&jwt=" + value)
    assert app.closed is None
    app.subscribe("demo/t")
    app.subscribe("other/t")
    assert errors(app) == [RequestCode.UNAUTHORIZED]


@BOTH
def test_a_token_may_be_in_the_url_of_a_webtransport_session(dialect: Dialect) -> None:
    value = token(get=["demo"]).value
    assert value is not None
    assert Stage(dialect).app(url=f"/moq?jwt={value.decode()}").closed is None
    assert Stage(dialect).app(url="/moq?jwt=x").closed is not None


def test_what_is_public_needs_no_token() -> None:
    stage = Stage(public=read_paths({"get": ["demo"]}))
    app = stage.app()
    app.watch("demo")
    assert isinstance(app.heard[-1], RequestOk)
    app.publish("demo/t")
    assert errors(app) == [RequestCode.UNAUTHORIZED]
    assert stage.refused() == {("publish", "no_token"): 1}


def test_a_relay_without_keys_asks_nobody() -> None:
    net = MoqtNet()
    app = net.app(net.relay("1:1"))
    app.publish("demo/t")
    assert isinstance(app.heard[-1], PublishOk)


@BOTH
def test_a_relay_without_keys_looks_at_no_token_where_policy_binds_tracks(dialect: Dialect) -> None:
    net = MoqtNet()
    relay = net.relay("1:1", region="eu")
    net.edge(relay)
    rules = {"rule": [{"tracks": "clinic/*", "inside": ["us"]}]}
    relay.follow_policy(policy_from_mapping(rules, "a test"), net.now)
    shown = Token(TokenAlias.USE_VALUE, None, OUT_OF_BAND, b"of another relay")
    app = net.app(relay, dialect, setup=False).start(tokens=(shown,))
    assert app.closed is None
    app.subscribe("demo/t", tokens=(shown,))
    assert not errors(app)
    app.subscribe("clinic/t", tokens=(shown,))
    assert errors(app) == [RequestCode.UNAUTHORIZED]


# -- requests --------------------------------------------------------------------------------------

ASKS = {
    "publish-namespace": lambda app, name: app.publish_namespace(name),
    "publish": lambda app, name: app.publish(f"{name}/t"),
    "subscribe": lambda app, name: app.subscribe(f"{name}/t"),
    "fetch": lambda app, name: app.fetch(f"{name}/t", (0, 0), (0, 1)),
    "track-status": lambda app, name: app.request(TrackStatus(0, track_name(f"{name}/t"))),
    "subscribe-namespace": lambda app, name: app.watch(name),
}


@BOTH
@pytest.mark.parametrize("action", ASKS)
def test_every_request_is_judged(dialect: Dialect, action: str) -> None:
    stage = Stage(dialect)
    publishes = action.startswith("publish")
    app = stage.app(token(put=["mine"]) if publishes else token(get=["mine"]))
    ASKS[action](app, "theirs")
    assert errors(app) == [RequestCode.UNAUTHORIZED]
    assert stage.refused() == {(action, "not_allowed"): 1}
    ASKS[action](app, "mine")
    assert stage.refused() == {(action, "not_allowed"): 1}
    assert app.closed is None


@BOTH
def test_who_may_publish_may_not_read_and_the_other_way_round(dialect: Dialect) -> None:
    stage = Stage(dialect)
    publisher, reader = stage.app(token(put=["a"])), stage.app(token(get=["a"]))
    publisher.subscribe("a/t")
    reader.publish("a/t")
    assert errors(publisher) == errors(reader) == [RequestCode.UNAUTHORIZED]


def test_a_request_may_bring_its_own_token() -> None:
    app = Stage().app(token(get=["a"]))
    app.publish("b/t", tokens=(token(put=["b"]),))
    assert isinstance(app.heard[-1], PublishOk)
    app.publish("b/u")  # whose token was that of another request
    assert errors(app) == [RequestCode.UNAUTHORIZED]


def test_a_token_may_be_registered_and_used_by_its_alias() -> None:
    stage = Stage(needs_token=False)
    app = stage.app()
    value = token(put=["b"])
    registered = Token(TokenAlias.REGISTER, 7, value.type, value.value)
    app.publish("b/t", tokens=(registered,))
    app.publish("b/u", tokens=(Token(TokenAlias.USE_ALIAS, 7),))
    assert [type(it) for it in app.heard[-2:]] == [PublishOk, PublishOk]
    assert stage.verifier.signatures == 1


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"x", RequestCode.MALFORMED_AUTH_TOKEN),
        (jwt({"put": [""], "exp": int(NOW) - 1}), RequestCode.EXPIRED_AUTH_TOKEN),
        (jwt({"put": ["c"]}), RequestCode.UNAUTHORIZED),
    ],
)
@BOTH
def test_a_request_with_a_wrong_token_is_refused_and_the_session_goes_on(
    dialect: Dialect, value: bytes, code: RequestCode
) -> None:
    app = Stage(dialect, needs_token=False).app()
    app.publish("b/t", tokens=(Token(TokenAlias.USE_VALUE, None, OUT_OF_BAND, value),))
    # Draft 14 has no other code for PUBLISH.
    assert errors(app) == [RequestCode.UNAUTHORIZED if dialect is DRAFT14 else code]
    assert app.closed is None
    app.publish("b/t", alias=1, tokens=(token(put=["b"]),))  # the alias is free again
    assert isinstance(app.heard[-1], PublishOk)


def test_a_publisher_is_asked_for_the_tracks_that_it_may_publish() -> None:
    stage = Stage()
    allow = [{"actions": ["publish-namespace"], "namespace": "a", "track": "yes"}]
    publisher = stage.app(token(laps={"allow": allow}))
    publisher.publish_namespace("a")
    reader = stage.app(token(get=["a"]))
    reader.subscribe("a/yes")
    reader.subscribe("a/no")
    asked = [it.track.name for it in publisher.heard if isinstance(it, Subscribe)]
    assert asked == [b"yes"]
    assert errors(reader) == [RequestCode.UNAUTHORIZED]


def test_a_joining_fetch_is_judged_by_its_subscription() -> None:
    stage = Stage()
    publisher = stage.app(token(put=["a"]))
    alias = publisher.publish("a/t")
    publisher.stream(alias, 0, Obj(0, b"0"))
    allow = [{"actions": ["subscribe"], "namespace": "a"}]
    reader = stage.app(token(laps={"allow": allow}))
    request_id = reader.subscribe("a/t")
    reader.join(request_id, 0)
    assert errors(reader) == [RequestCode.UNAUTHORIZED]


# -- what a watcher is shown -----------------------------------------------------------------------


def test_a_watcher_is_shown_what_it_may_subscribe_to() -> None:
    stage = Stage()
    publisher = stage.app(token(put=[""]))
    publisher.publish_namespace("live/a")
    watcher = stage.app(token(get=["live/a", "live/c"]))
    watcher.watch("live")
    publisher.publish_namespace("live/b")
    publisher.publish_namespace("live/c")
    shown = [it.suffix for it in watcher.heard if isinstance(it, NamespaceAdded)]
    assert shown == [(b"live", b"a"), (b"live", b"c")]


def test_what_relays_publish_has_to_be_named_in_a_token() -> None:
    stage = Stage()
    everything = stage.app(token(get=[""]))
    everything.subscribe("laps/telemetry/1:1/links")
    assert errors(everything) == [RequestCode.UNAUTHORIZED]
    operator = stage.app(token(get=["laps"]))
    operator.watch("laps")
    assert errors(operator) == []


# -- what ends -------------------------------------------------------------------------------------


def streaming(stage: Stage, *, put_s: float | None = None, get_s: float | None = None) -> Any:
    publisher, reader = stage.app(token(put=["a"])), stage.app(token(get=["other"]))
    alias = publisher.publish("a/t", tokens=(token(put=["a"], for_s=put_s),) if put_s else ())
    reader.subscribe("a/t", tokens=(token(get=["a"], for_s=get_s),))
    publisher.stream(alias, 0, Obj(0, b"0"))
    stage.net.run(1.0)
    return publisher, reader, alias


@BOTH
def test_a_subscription_ends_with_its_token(dialect: Dialect) -> None:
    stage = Stage(dialect)
    publisher, reader, alias = streaming(stage, get_s=10)
    assert reader.places == [(0, 0)]
    stage.net.run(10.0)
    (done,) = [it for it in reader.heard if isinstance(it, PublishDone)]
    assert done.code == DoneCode.EXPIRED
    publisher.stream(alias, 1, Obj(0, b"1"))
    stage.net.run(1.0)
    assert reader.places == [(0, 0)]
    assert reader.closed is None


def test_a_newer_token_makes_a_subscription_last_longer() -> None:
    stage = Stage()
    publisher, reader, alias = streaming(stage, get_s=10)
    (ok,) = [it for it in reader.heard if isinstance(it, SubscribeOk)]
    stage.net.run(5.0)
    reader.update(ok.request_id, tokens=(token(get=["a"], for_s=30),))
    stage.net.run(10.0)
    publisher.stream(alias, 1, Obj(0, b"1"))
    stage.net.run(1.0)
    assert reader.places == [(0, 0), (1, 0)]
    stage.net.run(20.0)
    assert isinstance(reader.heard[-1], PublishDone)


def test_an_update_with_a_wrong_token_ends_the_subscription() -> None:
    stage = Stage()
    _, reader, _ = streaming(stage, get_s=10)
    (ok,) = [it for it in reader.heard if isinstance(it, SubscribeOk)]
    reader.update(ok.request_id, tokens=(token(put=["z"], for_s=-5),))
    assert errors(reader) == [RequestCode.EXPIRED_AUTH_TOKEN]
    assert isinstance(reader.heard[-1], PublishDone)
    assert reader.heard[-1].code == DoneCode.UPDATE_FAILED


@BOTH
def test_a_session_ends_with_its_token(dialect: Dialect) -> None:
    stage = Stage(dialect)
    app = stage.app(token(get=["a"], for_s=10))
    stage.net.run(9.0)
    assert stage.edge.clients
    stage.net.run(2.0)
    assert app.closed is not None
    assert app.closed[0] == SessionCode.EXPIRED_AUTH_TOKEN


@BOTH
def test_what_a_publisher_may_do_ends_with_its_token(dialect: Dialect) -> None:
    stage = Stage(dialect, needs_token=False)
    app = stage.app()
    app.publish_namespace("a")
    assert errors(app) == [RequestCode.UNAUTHORIZED]
    app.request(PublishNamespace(0, (b"a",), (token(put=["a"], for_s=10),)))
    reader = stage.app(token(get=["a"]))
    reader.subscribe("a/t")
    (asked,) = [it for it in app.heard if isinstance(it, Subscribe)]
    app.accept(asked)
    stage.net.run(11.0)
    assert any(isinstance(it, PublishNamespaceCancel) for it in app.heard)
    assert any(isinstance(it, Unsubscribe) for it in app.heard)
    assert isinstance(reader.heard[-1], PublishDone)
    assert app.closed is None
    stage.net.check_empty()


def test_a_track_that_was_published_by_itself_ends_with_its_token() -> None:
    stage = Stage(needs_token=False)
    app = stage.app()
    alias = app.publish("a/t", tokens=(token(put=["a"], for_s=10),))
    reader = stage.app(token(get=["a"]))
    reader.subscribe("a/t")
    stage.net.run(11.0)
    assert isinstance(reader.heard[-1], PublishDone)
    app.stream(alias, 3, Obj(0, b"late"))
    stage.net.run(2.0)
    assert reader.places == []


def test_a_watch_ends_with_its_token() -> None:
    stage = Stage(needs_token=False)
    app = stage.app()
    app.watch("a", tokens=(token(get=["a"], for_s=10),))
    stage.net.run(11.0)
    stage.app(token(put=["a"])).publish_namespace("a/b")
    assert not any(isinstance(it, NamespaceAdded) for it in app.heard)


def test_a_token_that_is_revoked_ends_what_it_allowed() -> None:
    stage = Stage()
    app = stage.app(token(get=["a"], jti="call-7"))
    stage.verifier.replace(keys(), Revoked(tokens=frozenset({"call-7"})))
    stage.edge.reviews.all(stage.net.now)
    stage.net.run()
    assert app.closed is not None


def test_a_key_that_is_revoked_ends_what_it_signed_and_nothing_else() -> None:
    stage = Stage(public=read_paths({"get": ["open"]}))
    app = stage.app()
    app.watch("open")
    other = stage.app(token(get=["a"]))
    stage.verifier.replace(keys(), Revoked(keys=frozenset({key().id})))
    stage.edge.reviews.all(stage.net.now)
    stage.net.run()
    assert (app.closed, other.closed is None) == (None, True)  # it may still see what is public
    other.subscribe("a/t")
    assert errors(other) == [RequestCode.UNAUTHORIZED]


def test_a_token_that_has_to_be_verified_again_is() -> None:
    stage = Stage()
    grant = token(get=["a"], jti="x")
    app = stage.app(grant)
    (known,) = app.client.access.grants
    again = type(known)(**{**_fields(known), "revalidate_s": 5.0})
    app.client.access._session_tokens = Tokens((again,))
    app.client.access.ends_at = stage.net.now + 5.0
    stage.edge.reviews.expect(app.client)
    stage.verifier.replace(keys(), Revoked(tokens=frozenset({"x"})))
    stage.net.run(4.0)
    assert app.closed is None
    stage.net.run(2.0)
    assert app.closed is not None


def _fields(grant: Any) -> dict[str, Any]:
    return {name: getattr(grant, name) for name in type(grant).__slots__}


def test_sessions_that_come_and_go_leave_nothing_until_their_token_ends() -> None:
    stage = Stage()
    grant = token(get=["a"], for_s=3600)
    stage.app(grant)
    before = len(stage.edge.context.timers._calls)
    for _ in range(5):
        app = stage.app(grant)
        stage.edge.client_closed(app.client, stage.net.now)
    assert len(stage.edge.context.timers._calls) == before
    assert sum(map(len, stage.edge.reviews._waiting.values())) == 1


def test_a_thousand_sessions_end_with_their_token_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviewing, "MOST_IN_A_TURN", 2)
    stage = Stage()
    grant = token(get=["a"], for_s=10)
    apps = [stage.app(grant) for _ in range(5)]
    turns: Counter[float] = Counter()
    look = stage.edge.reviews.one

    def one(client: EdgeClient, now: float) -> None:
        turns[now] += 1
        look(client, now)

    monkeypatch.setattr(stage.edge.reviews, "one", one)
    stage.net.run(11.0)
    assert all(app.closed is not None for app in apps)
    assert sorted(turns.values()) == [1, 2, 2]
    assert not stage.edge.reviews._waiting


def test_tokens_do_not_travel_between_relays() -> None:
    net = MoqtNet()
    here, there = net.chain(2)
    publisher, reader = net.app(there), net.app(here)
    publisher.publish_namespace("a")
    net.run(1.0)
    reader.subscribe("a/t", tokens=(token(get=["a"]),))
    net.run(1.0)
    (track,) = [it for it in there.tracks if it.name is not None]
    assert b"eyJ" not in track.subscribe_data
    assert track.subscribe_data


def test_a_client_that_has_left_is_not_kept_for_the_end_of_its_token() -> None:
    stage = Stage()
    app = stage.app(token(get=["a"], for_s=3600.0))
    known = ref(app.client)
    app.leave()
    stage.net.apps.clear()
    del app
    gc.collect()  # the app of this test and its client refer to each other
    assert known() is None
