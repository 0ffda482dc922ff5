"""What QUICR clients may do at a relay with keys, by the tokens that they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from laps.auth.judge import OUT_OF_BAND, Verifier
from laps.edge.authority import Authority
from laps.wire.quicr.messages import (
    Authorization,
    Holds,
    PublishIntentOk,
    Response,
    SubscribeReply,
)
from support.moqt import MoqtNet
from support.quicr import QuicrApp
from support.tokens import NOW, jwt, keys

if TYPE_CHECKING:
    from support.quicr import Media, Post


def token(
    *, put: Any = (), get: Any = (), for_s: float | None = None, holds: Holds = Holds.STREAM
) -> Authorization:
    claims: dict[str, Any] = {"put": list(put), "get": list(get)}
    if for_s is not None:
        claims["exp"] = int(NOW + for_s)
    return Authorization(jwt(claims), OUT_OF_BAND, holds)


class Stage:
    """A relay with keys."""

    def __init__(self) -> None:
        self.net = MoqtNet()
        self.relay = self.net.relay("1:1")
        self.authority = Authority(Verifier(keys(), skew_s=0.0))
        self.authority.wall_s = NOW - self.net.now
        self.net.edge(self.relay, self.authority)

    def app(self) -> QuicrApp:
        return QuicrApp(self.net, self.relay)


def responses(opened: Media | Post) -> list[Response]:
    return [it.response for it in opened.heard if isinstance(it, SubscribeReply)]


def asked(app: QuicrApp, what: str, **fields: Any) -> Media | Post:
    match what:
        case "subscribe":
            return app.subscribe("a/t", **fields)
        case "mask":
            return app.subscribe("a/", mask=1, **fields)
        case _:
            return app.publish("a/t", **fields)


ASKS = pytest.mark.parametrize("what", ["subscribe", "mask", "publish"])


@ASKS
def test_without_a_token_nothing_is_granted(what: str) -> None:
    stage = Stage()
    app = stage.app()
    opened = asked(app, what)
    assert responses(opened) == [Response.FAIL]
    assert opened.closed is True
    assert app.closed is None
    assert sum(stage.authority.refused.values()) == 1


@ASKS
def test_a_token_ahead_of_what_it_is_for(what: str) -> None:
    app = Stage().app()
    opened = asked(app, what, token=token(get=["a"], put=["a"]))
    assert responses(opened) == ([] if what == "publish" else [Response.OK])
    assert any(isinstance(it, PublishIntentOk) for it in opened.heard) is (what == "publish")
    other = asked(app, "publish" if what == "subscribe" else "subscribe")
    assert responses(other) == [Response.FAIL]  # whose token was that of another stream


@ASKS
def test_a_token_for_the_connection(what: str) -> None:
    app = Stage().app()
    shown = app.authorize(token(get=["a"], put=["a"], holds=Holds.CONNECTION))
    assert responses(shown) == [Response.OK]
    assert shown.closed is True
    assert Response.FAIL not in responses(asked(app, what))


@ASKS
def test_a_token_that_is_wrong_is_refused_with_the_reason(what: str) -> None:
    app = Stage().app()
    opened = asked(app, what, token=Authorization(b"x"))
    (reply,) = [it for it in opened.heard if isinstance(it, SubscribeReply)]
    assert reply.response is Response.FAIL
    assert "JWT" in reply.reason
    shown = app.authorize(Authorization(b"x", holds=Holds.CONNECTION))
    assert responses(shown) == [Response.FAIL]
    assert app.closed is None


def test_who_may_publish_may_not_read_and_the_other_way_round() -> None:
    app = Stage().app()
    assert responses(app.subscribe("a/t", token=token(put=["a"]))) == [Response.FAIL]
    assert responses(app.publish("a/t", token=token(get=["a"]))) == [Response.FAIL]
    assert responses(app.publish("b/t", token=token(put=["a"]))) == [Response.FAIL]


def test_a_mask_finds_what_its_token_allows() -> None:
    stage = Stage()
    publisher, reader = stage.app(), stage.app()
    publisher.authorize(token(put=["a"], holds=Holds.CONNECTION))
    reader.subscribe("a/", mask=1, token=token(get=["a/b"]))
    for name in ("a/b/t", "a/c/t"):
        publisher.publish(name).object(0, 0, name.encode())
    stage.net.run(1.0)
    got = [item[2] for media in reader.media.values() for item in getattr(media, "objects", [])]
    assert got == [b"a/b/t"]


def test_a_subscription_ends_with_its_token() -> None:
    stage = Stage()
    publisher, reader = stage.app(), stage.app()
    post = publisher.publish("a/t", token=token(put=["a"]))
    media = reader.subscribe("a/t", token=token(get=["a"], for_s=10))
    post.object(0, 0, b"0")
    stage.net.run(11.0)
    post.object(0, 1, b"1")
    stage.net.run(1.0)
    assert media.places == [(0, 0)]
    assert responses(media)[-1] is Response.EXPIRED
    assert media.closed is True


def test_a_newer_token_makes_it_last_longer() -> None:
    stage = Stage()
    publisher, reader = stage.app(), stage.app()
    post = publisher.publish("a/t", token=token(put=["a"], for_s=10))
    media = reader.subscribe("a/t", token=token(get=["a"], for_s=10))
    stage.net.run(5.0)
    post.say(token(put=["a"], for_s=30))
    reader.session.send(media.stream, token(get=["a"], for_s=30))
    stage.net.run(10.0)
    post.object(0, 0, b"0")
    stage.net.run(1.0)
    assert media.places == [(0, 0)]
    stage.net.run(20.0)
    assert media.is_closed()
    assert post.closed is True


def test_a_publication_ends_with_its_token() -> None:
    stage = Stage()
    publisher, reader = stage.app(), stage.app()
    post = publisher.publish("a/t", token=token(put=["a"], for_s=10))
    media = reader.subscribe("a/t", token=token(get=["a"]))
    stage.net.run(11.0)
    assert responses(post) == [Response.EXPIRED]
    post.object(0, 0, b"late")
    stage.net.run(2.0)
    assert media.places == []
    assert publisher.closed is None


def test_a_relay_without_keys_takes_no_notice() -> None:
    net = MoqtNet()
    app = QuicrApp(net, net.relay("1:1"))
    assert responses(app.subscribe("a/t", token=Authorization(b"x"))) == [Response.OK]
    assert responses(app.authorize(Authorization(b"x", holds=Holds.CONNECTION))) == [Response.OK]
