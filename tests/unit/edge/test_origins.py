"""Origins are asked about what clients want: in QUICR, and in both drafts of MoQT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laps.auth.judge import OUT_OF_BAND, Verifier
from laps.auth.origins import Origin, OriginApi
from laps.edge.access import MAX_WAITING
from laps.edge.asking import PAUSE_FIRST_S
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.dialect import DRAFT14, DRAFT16
from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    Publish,
    PublishDone,
    PublishNamespaceCancel,
    PublishNamespaceDone,
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
from laps.wire.quicr.messages import (
    Authorization,
    Holds,
    PublishIntentOk,
    Response,
    SubscribeReply,
)
from support.moqt_streams import Obj
from support.origins import MEDIA, OriginStage, origin
from support.relays import track_name
from support.tokens import jwt, keys

if TYPE_CHECKING:
    from laps.wire.moqt.dialect import Dialect
    from support.moqt import App
    from support.quicr import Media, Post

BOTH = pytest.mark.parametrize("dialect", [DRAFT14, DRAFT16], ids=["14", "16"])

NAME = f"{MEDIA}/t"


def token(value: bytes) -> Token:
    return Token(TokenAlias.USE_VALUE, None, OUT_OF_BAND, value)


def shown(value: bytes, holds: Holds = Holds.STREAM) -> Authorization:
    return Authorization(value, OUT_OF_BAND, holds)


def errors(app: App) -> list[tuple[int, str]]:
    return [(it.code, it.reason) for it in app.heard if isinstance(it, RequestError)]


def reasons(opened: Media | Post) -> list[tuple[Response, str]]:
    return [(it.response, it.reason) for it in opened.heard if isinstance(it, SubscribeReply)]


def is_granted(post: Post) -> bool:
    return any(isinstance(it, PublishIntentOk) for it in post.heard)


# -- QUICR -----------------------------------------------------------------------------------------


def test_subscribe_is_authorized_at_the_origin() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME, token=shown(b"opaque"))
    assert reasons(media) == []
    assert stage.questions() == [
        {
            "origin": MEDIA,
            "relay": "1:1",
            "action": "subscribe",
            "namespace": [MEDIA],
            "track": "t",
            "tokens": [{"type": 0, "token": "opaque"}],
        }
    ]
    stage.answer(allow=True)
    assert reasons(media) == [(Response.OK, "")]


def test_subscribe_is_refused_with_the_origin_s_reason() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=False, reason="not a member")
    ((response, reason),) = reasons(media)
    assert response is Response.FAIL
    assert f"the origin {MEDIA} says no: not a member" in reason
    assert media.closed is True
    assert stage.authority.refused == {("subscribe", "origin_refused"): 1}
    assert stage.counters.refused == 1


def test_publish_intent_is_authorized_at_the_origin() -> None:
    stage = OriginStage()
    post = stage.quicr().publish(NAME)
    assert [it["action"] for it in stage.questions()] == ["publish"]
    assert not post.heard
    stage.answer(allow=True)
    assert is_granted(post)


def test_fragments_before_the_answer_are_flushed_in_order_when_it_is_ok() -> None:
    stage = OriginStage()
    publisher, reader = stage.quicr(), stage.quicr()
    media = reader.subscribe(NAME)
    stage.answer(allow=True)
    post = publisher.publish(NAME)
    post.object(0, 0, b"first", 2)
    post.object(0, 1, b"second")
    post.end()
    assert media.objects == []
    stage.answer(allow=True)
    assert media.objects == [(0, 0, b"first"), (0, 1, b"second")]
    assert media.closed is True  # the end was held too
    assert stage.edge.quicr.early_dropped == 0


@pytest.mark.parametrize("how", ["refused", "failed", "late", "reset", "left"])
def test_fragments_before_the_answer_are_dropped_without_ok(how: str) -> None:
    stage = OriginStage()
    publisher, reader = stage.quicr(), stage.quicr()
    media = reader.subscribe(NAME)
    stage.answer(allow=True)
    post = publisher.publish(NAME)
    post.object(0, 0, b"first")
    post.object(0, 1, b"second")
    match how:
        case "refused":
            stage.answer(allow=False)
        case "failed":
            stage.fail()
        case "late":
            stage.net.run(6.0)
            stage.answer(allow=True)
        case "reset":
            post.reset()
            stage.answer(allow=True)
        case "left":
            publisher.leave()
            stage.answer(allow=True)
    assert media.objects == []
    assert not is_granted(post)
    assert stage.edge.quicr.early_dropped == 2
    stage.net.check_empty()


def test_fragments_are_held_within_bounds_whole_objects_and_the_newest() -> None:
    stage = OriginStage(hold_bytes=1000)
    publisher, reader = stage.quicr(), stage.quicr()
    media = reader.subscribe(NAME)
    stage.answer(allow=True)
    post = publisher.publish(NAME)
    for number in range(5):
        post.object(0, number, bytes([number]) * 400, 150)  # three fragments each
    stage.answer(allow=True)
    stage.net.run(5.0)  # the reader waits for what is missing
    assert media.objects == [(0, 3, b"\3" * 400), (0, 4, b"\4" * 400)]
    assert stage.edge.quicr.early_dropped == 9


def test_fragments_are_held_within_bounds_by_number() -> None:
    stage = OriginStage(hold_fragments=3)
    publisher, reader = stage.quicr(), stage.quicr()
    media = reader.subscribe(NAME)
    stage.answer(allow=True)
    post = publisher.publish(NAME)
    for number in range(10):
        post.object(0, number, b"x")
    stage.answer(allow=True)
    stage.net.run(5.0)
    assert media.places == [(0, 7), (0, 8), (0, 9)]
    assert stage.edge.quicr.early_dropped == 7


def test_an_object_that_is_larger_than_the_bound_is_dropped_to_its_end() -> None:
    stage = OriginStage(hold_bytes=500)
    publisher, reader = stage.quicr(), stage.quicr()
    media = reader.subscribe(NAME)
    stage.answer(allow=True)
    post = publisher.publish(NAME)
    post.object(0, 0, b"x" * 900, 300)
    post.object(0, 1, b"y")
    stage.answer(allow=True)
    stage.net.run(5.0)
    assert media.objects == [(0, 1, b"y")]


def test_a_subscriber_that_cancels_or_closes_meanwhile_leaves_nothing_behind() -> None:
    stage = OriginStage()
    app = stage.quicr()
    cancelled, closed = app.subscribe(NAME), app.subscribe(f"{MEDIA}/u")
    cancelled.cancel()
    closed.close()
    stage.answer_all(allow=True)
    assert not cancelled.heard
    assert not closed.heard
    assert not app.client.subscriptions
    stage.net.check_empty()


def test_a_renewal_while_it_waits_is_answered_once() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    media.renew()
    stage.answer(allow=True)
    assert reasons(media) == [(Response.OK, "")]


def test_a_newer_token_while_it_waits_is_asked_about_instead() -> None:
    stage = OriginStage()
    app = stage.quicr()
    media = app.subscribe(NAME, token=shown(b"old"))
    app.session.send(media.stream, shown(b"new"))
    stage.net.run()
    tokens = [[it["token"] for it in asked["tokens"]] for asked in stage.questions()]
    assert tokens == [["old"], ["old", "new"]]
    stage.answer(0, allow=False)
    assert reasons(media) == []
    stage.answer(0, allow=True)
    assert reasons(media) == [(Response.OK, "")]


def test_other_requests_of_the_same_client_do_not_wait() -> None:
    stage = OriginStage()
    app = stage.quicr()
    app.subscribe(NAME)
    assert reasons(app.subscribe("demo/t")) == [(Response.OK, "")]


def test_a_mask_is_asked_about_as_a_namespace_and_finds_what_is_below() -> None:
    stage = OriginStage()
    publisher, reader = stage.quicr(), stage.quicr()
    reader.subscribe(f"{MEDIA}/room/", mask=1)
    (asked,) = stage.questions()
    assert (asked["action"], asked["namespace"]) == ("subscribe-namespace", [MEDIA])
    stage.answer(allow=True)
    publisher.publish(f"{MEDIA}/room/cam").object(0, 0, b"x")
    stage.answer(allow=True)
    assert [media.name for media in reader.offered] == [f"{MEDIA}/room/cam".encode()]


def test_a_wider_mask_does_not_find_names_of_an_origin_that_was_not_asked() -> None:
    stage = OriginStage()
    publisher, reader = stage.quicr(), stage.quicr()
    assert reasons(reader.subscribe("", mask=1)) == [(Response.OK, "")]
    publisher.publish(NAME).object(0, 0, b"x")
    stage.answer(allow=True)
    publisher.publish("demo/t").object(0, 0, b"x")
    assert [media.name for media in reader.offered] == [b"demo/t"]


def test_names_of_16_bytes_have_the_origin_whose_id_they_begin_with() -> None:
    one, other = origin("one", ids=("0001",)), origin("other", ids=("000102",))
    stage = OriginStage(one, other)
    app = stage.quicr()
    app.subscribe(bytes.fromhex("0001ff") + bytes(13))
    app.subscribe(bytes.fromhex("000102") + bytes(13))
    app.subscribe(bytes.fromhex("000102") + bytes(13), mask=8 * 13)
    assert reasons(app.subscribe(bytes.fromhex("0002") + bytes(14))) == [(Response.OK, "")]
    asked = stage.questions()
    assert [it["origin"] for it in asked] == ["one", "other", "other"]
    assert [it.get("track_prefix") for it in asked] == [None, None, "000102"]


def test_a_mask_over_16_bytes_finds_names_of_its_origin() -> None:
    stage = OriginStage(origin("one", ids=("0001",)))
    publisher, reader = stage.quicr(), stage.quicr()
    reader.subscribe(bytes.fromhex("0001") + bytes(14), mask=8 * 14)
    stage.answer(allow=True)
    name = bytes.fromhex("0001") + b"\7" * 14
    publisher.publish(name).object(0, 0, b"x")
    stage.answer(allow=True)
    assert [media.name for media in reader.offered] == [name]


# -- MoQT ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "action",
    ["subscribe", "publish", "publish-namespace", "fetch", "track-status", "subscribe-namespace"],
)
def test_every_request_is_asked_about_and_waits(dialect: Dialect, action: str) -> None:
    stage = OriginStage(dialect=dialect)
    for allow in (False, True):
        app = stage.moqt(tokens=(token(b"opaque"),))
        before = len(app.heard)
        match action:
            case "subscribe":
                app.subscribe(NAME)
            case "publish":
                app.publish(NAME)
            case "publish-namespace":
                app.publish_namespace(MEDIA)
            case "fetch":
                app.fetch(NAME, (0, 0), (1, 0))
            case "track-status":
                app.request(TrackStatus(0, track_name(NAME)))
            case _:
                app.watch(MEDIA)
        assert len(app.heard) == before
        (asked,) = stage.questions()
        assert asked["action"] == action
        assert asked["namespace"] == [MEDIA]
        assert asked.get("track") == (None if "namespace" in action else "t")
        assert asked["tokens"] == [{"type": 0, "token": "opaque"}]
        stage.answer(allow=allow, reason="no", keep_s=0)
        refused = [it for it in errors(app) if it[0] == RequestCode.UNAUTHORIZED]
        assert refused == ([] if allow else [(RequestCode.UNAUTHORIZED, refused[0][1])])
        app.leave()
    stage.net.check_empty()


@BOTH
def test_subscribe_goes_on_when_the_origin_has_granted_it(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    publisher, reader = stage.moqt(), stage.moqt()
    alias = publisher.publish(NAME)
    reader.subscribe(NAME)
    stage.answer_all(allow=True)
    assert any(isinstance(it, SubscribeOk) for it in reader.heard)
    publisher.stream(alias, 0, Obj(0, b"first"))
    assert reader.objects == [(0, 0, b"first")]


@BOTH
def test_publish_streams_before_the_answer_are_flushed_when_it_is_ok(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    publisher, reader = stage.moqt(), stage.moqt()
    reader.subscribe(NAME)
    stage.answer(allow=True)
    alias = publisher.publish(NAME)
    publisher.stream(alias, 0, Obj(0, b"first"))
    publisher.datagram(alias, 1, 0, payload=b"second")
    stage.net.run(1.5)  # longer than a stream waits for a message that explains it
    assert reader.objects == []
    stage.answer(allow=True)
    assert any(isinstance(it, PublishOk) for it in publisher.heard)
    assert reader.objects == [(0, 0, b"first")]
    assert [it.payload for it in reader.datagrams] == [b"second"]


@BOTH
@pytest.mark.parametrize("how", ["refused", "failed", "late", "left"])
def test_publish_streams_before_the_answer_are_dropped_without_ok(
    dialect: Dialect, how: str
) -> None:
    stage = OriginStage(dialect=dialect)
    publisher = stage.moqt()
    alias = publisher.publish(NAME)
    stream = publisher.open(alias, 0, Obj(0, b"first"))
    match how:
        case "refused":
            stage.answer(allow=False)
        case "failed":
            stage.fail()
        case "late":
            stage.net.run(6.0)
            stage.answer(allow=True)
        case "left":
            publisher.leave()
            stage.answer(allow=True)
    if how != "left":
        assert [it[0] for it in errors(publisher)] == [RequestCode.UNAUTHORIZED]
        assert [it[0] for it in publisher.link.stopped] == [stream.id]
        assert stage.edge.counters.flushed_streams == 1
    assert not len(stage.relay.tracks)
    stage.net.check_empty()


@BOTH
def test_publish_that_is_done_before_the_answer_is_carried_whole(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    publisher, reader = stage.moqt(), stage.moqt()
    reader.subscribe(NAME)
    stage.answer(allow=True)
    request_id = publisher.request(Publish(0, track_name(NAME), 7))
    publisher.stream(7, 0, Obj(0, b"all"))
    publisher.done(request_id, DoneCode.TRACK_ENDED, 1)
    stage.answer(allow=True)
    assert publisher.closed is None
    assert reader.objects == [(0, 0, b"all")]
    stage.net.run(2.0)
    assert any(isinstance(it, PublishDone) for it in reader.heard)


@BOTH
def test_who_withdraws_a_request_while_it_waits_leaves_nothing_behind(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    app = stage.moqt()
    app.say(Unsubscribe(app.subscribe(NAME)))
    app.say(FetchCancel(app.fetch(NAME, (0, 0), (1, 0))))
    app.say(PublishNamespaceDone(app.publish_namespace(MEDIA), (MEDIA.encode(),)))
    app.session.unsubscribe_namespace(app.watch(MEDIA))
    stage.net.run()
    before = len(app.heard)
    stage.answer_all(allow=True)
    assert len(app.heard) == before
    assert not app.client.subscriptions
    assert not app.client.watching
    stage.net.check_empty()


@BOTH
def test_a_joining_fetch_and_an_update_wait_for_their_subscription(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    publisher, reader = stage.moqt(), stage.moqt()
    alias = publisher.publish(NAME)
    stage.answer(allow=True)
    publisher.stream(alias, 0, Obj(0, b"past"))
    request_id = reader.subscribe(NAME)
    reader.join(request_id, 0)
    reader.update(request_id, priority=3)
    assert [it["action"] for it in stage.questions()] == ["subscribe"]
    stage.answer(allow=True)
    assert [it["action"] for it in stage.questions()] == ["fetch"]
    stage.answer(allow=True)
    assert reader.closed is None
    assert errors(reader) == []
    assert [it.priority for it in reader.client.subscriptions.values()] == [3]


@BOTH
def test_an_update_of_what_was_refused_meanwhile_is_refused(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    reader = stage.moqt()
    reader.update(reader.subscribe(NAME), priority=3)
    stage.answer(allow=False)
    assert reader.closed is None
    assert errors(reader)[0][0] == RequestCode.UNAUTHORIZED


@BOTH
def test_a_watcher_is_shown_what_its_origin_allows_and_no_other_origin_s(dialect: Dialect) -> None:
    stage = OriginStage(origin(), origin("other", f"{MEDIA}/others"), dialect=dialect)
    publisher, watcher = stage.moqt(), stage.moqt()
    watcher.watch(MEDIA)
    stage.answer_all(allow=True)
    for name in (f"{MEDIA}/mine", f"{MEDIA}/others/x"):
        publisher.publish_namespace(name)
    stage.answer_all(allow=True)
    told = {it for watch in watcher.client.watching.values() for it in watch.told}
    assert told == {(MEDIA.encode(), b"mine")}


@BOTH
def test_a_namespace_that_is_granted_has_all_tracks_below_it(dialect: Dialect) -> None:
    stage = OriginStage(origin(), origin("other", f"{MEDIA}/others"), dialect=dialect)
    publisher, reader = stage.moqt(), stage.moqt()
    publisher.publish_namespace(MEDIA)
    stage.answer(allow=True)
    publisher.answers[Subscribe] = publisher.accept
    reader.subscribe(NAME)
    stage.answer(allow=True)
    assert any(isinstance(it, SubscribeOk) for it in reader.heard)
    reader.subscribe(f"{MEDIA}/others/t")  # whose origin has granted the publisher nothing
    stage.answer(allow=True)
    assert [it[0] for it in errors(reader)] == [RequestCode.UNAUTHORIZED]


@BOTH
def test_fetch_does_not_go_to_a_publisher_that_an_origin_has_granted_nothing(
    dialect: Dialect,
) -> None:
    stage = OriginStage(origin("inner", "top/inner"), dialect=dialect)
    publisher, reader = stage.moqt(), stage.moqt()
    publisher.publish_namespace("top")  # which is nobody's
    reader.fetch("top/inner/t", (0, 0), (1, 0))
    stage.answer(allow=True)
    assert not any(isinstance(it, Fetch) for it in publisher.heard)
    reader.fetch("top/other/t", (0, 0), (1, 0))
    assert any(isinstance(it, Fetch) for it in publisher.heard)


# -- what an origin is shown, and who asks it ------------------------------------------------------


def test_an_origin_is_not_shown_tokens_that_keys_here_know() -> None:
    known = jwt({"get": ["demo"]})
    stage = OriginStage(verifier=Verifier(keys(), skew_s=0.0))
    app = stage.moqt(tokens=(token(known), token(b"for the origin")))
    app.subscribe(NAME)
    (asked,) = stage.questions()
    assert [it["token"] for it in asked["tokens"]] == ["for the origin"]


def test_the_request_s_own_token_is_shown_in_place_of_the_session_s() -> None:
    stage = OriginStage()
    app = stage.moqt(tokens=(token(b"session"),))
    app.subscribe(NAME, tokens=(token(b"own"),))
    app.subscribe(f"{MEDIA}/u")
    shown_tokens = [[it["token"] for it in asked["tokens"]] for asked in stage.questions()]
    assert shown_tokens == [["own"], ["session"]]


def test_a_token_for_an_origin_does_not_open_other_names() -> None:
    stage = OriginStage(verifier=Verifier(keys(), skew_s=0.0))
    app = stage.quicr()
    assert reasons(app.authorize(shown(b"opaque", Holds.CONNECTION))) == [(Response.OK, "")]
    ((response, reason),) = reasons(app.subscribe("demo/t"))
    assert response is Response.FAIL
    assert "JWT" in reason  # what is wrong with the token that was shown
    assert stage.take() == []


def test_keys_of_an_origin_decide_about_its_names_and_no_others() -> None:
    by_keys = Origin("keyed", ((b"keyed",),), (), None, Verifier(keys(), origin="keyed"))
    stage = OriginStage(by_keys)
    app = stage.quicr()
    everything = shown(jwt({"get": [""], "put": [""]}))
    assert reasons(app.subscribe("keyed/t"))[0][0] is Response.FAIL
    assert reasons(app.subscribe("keyed/t", token=everything)) == [(Response.OK, "")]
    assert reasons(app.subscribe("demo/t")) == [(Response.OK, "")]  # of no origin, and no keys
    assert stage.take() == []


def test_keys_of_the_relay_do_not_decide_about_an_origin_s_names() -> None:
    by_keys = Origin("keyed", ((b"keyed",),), (), None, Verifier(keys(), origin="keyed"))
    theirs = Verifier(keys(), skew_s=0.0)
    stage = OriginStage(by_keys, verifier=theirs)
    everything = jwt({"get": [""]})
    # Both sets of keys know it: with the keys of the origin gone, it is the relay's alone.
    app = stage.moqt(tokens=(token(everything),))
    app.subscribe("keyed/t")
    assert errors(app) == []
    stage.configure(Origin("keyed", ((b"keyed",),), (), OriginApi("https://x/")))
    stage.review()
    stage.answer_all(allow=False)
    assert not app.client.subscriptions


def test_identical_questions_are_asked_once_and_the_answer_is_kept() -> None:
    stage = OriginStage()
    waiting = [stage.quicr().subscribe(NAME) for _ in range(5)]
    assert len(stage.take()) == 1
    stage.answer(allow=True, keep_s=100)
    assert [reasons(it) for it in waiting] == [[(Response.OK, "")]] * 5
    assert reasons(stage.quicr().subscribe(NAME)) == [(Response.OK, "")]
    stage.net.run(50.0)
    assert reasons(stage.quicr().subscribe(NAME)) == [(Response.OK, "")]
    assert stage.take() == []
    assert stage.counters.calls == 1


def test_a_refusal_is_kept_as_long_as_it_says() -> None:
    stage = OriginStage()
    stage.quicr().subscribe(NAME)
    stage.answer(allow=False, keep_s=10)
    assert reasons(stage.quicr().subscribe(NAME))[0][0] is Response.FAIL
    stage.net.run(11.0)
    stage.quicr().subscribe(NAME)
    assert len(stage.take()) == 1
    stage.answer(allow=False, keep_s=0)
    stage.quicr().subscribe(NAME)
    assert len(stage.take()) == 1


def test_another_token_is_another_question() -> None:
    stage = OriginStage()
    for value in (b"a", b"b"):
        stage.quicr().subscribe(NAME, token=shown(value))
    assert len(stage.take()) == 2


def test_a_client_has_a_bounded_number_of_questions() -> None:
    stage = OriginStage()
    app = stage.quicr()
    for number in range(MAX_WAITING):
        app.subscribe(f"{MEDIA}/{number}")
    ((response, reason),) = reasons(app.subscribe(f"{MEDIA}/more"))
    assert response is Response.FAIL
    assert str(MAX_WAITING) in reason


def test_more_tokens_than_an_origin_reads_are_refused() -> None:
    stage = OriginStage()
    app = stage.quicr()
    for number in range(4):
        app.authorize(shown(b"%d" % number, Holds.CONNECTION))
    ((response, _),) = reasons(app.authorize(shown(b"more", Holds.CONNECTION)))
    assert response is Response.FAIL


# -- failures --------------------------------------------------------------------------------------


def test_an_origin_that_does_not_answer_is_refused_in_time_and_late_answers_are_harmless() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.net.run(4.9)
    assert reasons(media) == []
    stage.net.run(0.2)
    ((response, reason),) = reasons(media)
    assert response is Response.FAIL
    assert f"the origin {MEDIA} cannot be asked: it did not answer, 5 s at most" in reason
    stage.answer(allow=True)
    assert len(media.heard) == 1
    assert stage.counters.late == 1
    assert stage.counters.failed == 1
    assert stage.edge.origins.waiting(MEDIA) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"yes",
        b"[]",
        b'{"allow": "true"}',
        b'{"allow": 1}',
        b"{}",
        b'{"allow": true, "allow": false}',
        b'{"allow": true, "keep_s": -1}',
        b'{"allow": true, "keep_s": "1"}',
        b'{"allow": true, "keep_s": true}',
        b'{"allow": true, "keep_s": NaN}',
        b'{"allow": true, "only": "on mondays"}',
        b'{"allow": false, "reason": 3}',
        b"\xff",
        b"{" * 10_000,
    ],
)
def test_an_answer_that_is_none_grants_nothing(body: bytes) -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.take()
    stage.hear(0, body)
    ((response, reason),) = reasons(media)
    assert response is Response.FAIL
    assert "its answer is none" in reason
    assert stage.take() == []  # it is not asked for again


def test_a_failure_is_tried_again_with_back_off_and_then_refused() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    waits = []
    for _ in range(2):
        stage.fail(again=True)
        assert stage.take() == []
        began = stage.net.now
        while not stage.take():
            stage.net.run(0.05)
        waits.append(stage.net.now - began)
    assert waits[1] > waits[0]
    assert reasons(media) == []
    stage.fail(words="it answered with the status 503", again=True)
    assert "503" in reasons(media)[0][1]
    assert stage.counters.retried == 2


def test_a_question_that_was_tried_again_may_be_granted() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.fail(again=True)
    stage.net.run(1.0)
    stage.answer(allow=True)
    assert reasons(media) == [(Response.OK, "")]


def test_an_origin_that_cannot_be_reached_is_tried_by_one_question_at_a_time() -> None:
    stage = OriginStage()
    app = stage.quicr()
    waiting = [app.subscribe(f"{MEDIA}/{number}") for number in range(4)]
    assert len(stage.take()) == 4
    while stage.take():
        stage.fail(unreachable=True)
    stage.net.run(10 * PAUSE_FIRST_S)
    assert len(stage.take()) == 1
    stage.answer(allow=True)
    assert stage.answer_all(allow=True) == 3  # it is back
    assert [reasons(it) for it in waiting] == [[(Response.OK, "")]] * 4


def test_an_origin_that_stays_down_refuses_and_says_why() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    for _ in range(60):
        while stage.take():
            stage.fail(words="nobody answers at its address", unreachable=True)
        stage.net.run(0.1)
    assert "nobody answers at its address" in reasons(media)[0][1]
    assert stage.counters.calls < 10


def test_questions_at_a_time_and_in_the_queue_are_bounded() -> None:
    stage = OriginStage(origin(concurrent=2, queue=3))
    app = stage.quicr()
    waiting = [app.subscribe(f"{MEDIA}/{number}") for number in range(7)]
    assert len(stage.take()) == 2
    assert [len(reasons(it)) for it in waiting] == [0] * 5 + [1] * 2
    assert "3 questions wait for it" in reasons(waiting[-1])[0][1]
    stage.answer(allow=True)
    assert len(stage.take()) == 2
    stage.answer_all(allow=True)
    assert [it[0][0] for it in map(reasons, waiting)] == [Response.OK] * 5 + [Response.FAIL] * 2


def test_nobody_is_asked_for_a_client_that_has_left_the_queue() -> None:
    stage = OriginStage(origin(concurrent=1))
    stage.quicr().subscribe(NAME)
    leaving = stage.quicr()
    leaving.subscribe(f"{MEDIA}/u")
    leaving.leave()
    stage.answer(allow=True)
    assert stage.take() == []


def test_a_question_that_nobody_waited_for_is_asked_when_somebody_does() -> None:
    stage = OriginStage(origin(concurrent=1))
    stage.quicr().subscribe(f"{MEDIA}/first")
    leaving = stage.quicr()
    leaving.subscribe(NAME)
    leaving.leave()
    stage.answer(allow=True)
    assert stage.take() == []
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=True)
    assert reasons(media) == [(Response.OK, "")]


def test_a_request_that_was_withdrawn_in_the_queue_is_not_asked_about() -> None:
    stage = OriginStage(origin(concurrent=1))
    app = stage.quicr()
    app.subscribe(f"{MEDIA}/first")
    app.subscribe(NAME).close()
    reader = stage.moqt()
    reader.say(Unsubscribe(reader.subscribe(f"{MEDIA}/other")))
    stage.answer(allow=True)
    assert stage.take() == []


@BOTH
def test_what_a_client_asked_and_has_ended_is_not_remembered(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    app = stage.moqt()
    app.request(TrackStatus(0, track_name(NAME)))
    stage.answer(allow=True, keep_s=1000)
    for _ in range(300):
        app.request(TrackStatus(0, track_name(NAME)))
        stage.net.run(3.0)  # nobody publishes it: it is refused
    assert len(app.client.access._decisions) < 100
    assert stage.counters.calls == 1


# -- how long a grant lasts ------------------------------------------------------------------------


def test_a_grant_is_asked_for_again_before_it_ends_and_nothing_pauses() -> None:
    stage = OriginStage()
    publisher, reader = stage.quicr(), stage.quicr()
    post, media = publisher.publish(NAME), reader.subscribe(NAME)
    stage.answer_all(allow=True, keep_s=20)
    for number in range(20):
        stage.net.run(4.0)
        stage.answer_all(allow=True, keep_s=20)
        post.object(0, number, b"x")
        media.renew()
    assert media.places == [(0, number) for number in range(20)]
    assert stage.counters.allowed == 2 + 2 * 5


def test_what_a_grant_allowed_ends_when_it_is_refused_the_next_time() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=True, keep_s=20)
    stage.net.run(16.0)
    stage.answer(allow=False, reason="left the call")
    assert reasons(media)[-1][0] is Response.FAIL
    assert "left the call" in reasons(media)[-1][1]
    assert media.closed is True


def test_what_a_grant_allowed_ends_when_the_origin_stays_silent() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=True, keep_s=20)
    stage.net.run(19.5)
    assert len(reasons(media)) == 1
    stage.net.run(1.0)
    assert reasons(media)[-1][0] is Response.FAIL
    assert "cannot be asked" in reasons(media)[-1][1]


@BOTH
def test_what_was_allowed_ends_in_the_draft_s_words(dialect: Dialect) -> None:
    stage = OriginStage(dialect=dialect)
    publisher, reader, other = stage.moqt(), stage.moqt(), stage.moqt()
    publisher.publish(NAME)
    other.publish_namespace(f"{MEDIA}/room")
    reader.subscribe(NAME)
    stage.answer_all(allow=True, keep_s=20)
    stage.net.run(16.0)
    assert stage.answer_all(allow=False) == 3
    assert any(isinstance(it, Unsubscribe) for it in publisher.heard)
    assert any(isinstance(it, PublishNamespaceCancel) for it in other.heard)
    (done,) = [it for it in reader.heard if isinstance(it, PublishDone)]
    assert done.code in (DoneCode.UNAUTHORIZED, DoneCode.EXPIRED)


def test_nobody_is_asked_again_for_what_has_ended() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=True, keep_s=20)
    media.close()
    stage.net.run(30.0)
    assert stage.take() == []


def test_a_newer_token_of_a_request_is_asked_about() -> None:
    stage = OriginStage()
    reader = stage.moqt()
    publisher = stage.moqt()
    publisher.publish(NAME)
    request_id = reader.subscribe(NAME, tokens=(token(b"old"),))
    stage.answer_all(allow=True, keep_s=20)
    reader.update(request_id, tokens=(token(b"new"),))
    (asked,) = stage.questions()
    assert [it["token"] for it in asked["tokens"]] == ["old", "new"]
    assert reader.client.subscriptions
    stage.answer(allow=True)
    assert isinstance(reader.heard[-1], RequestOk)
    stage.net.run(16.0)
    assert [it["action"] for it in stage.questions()] == ["publish"]  # nothing depends on the old


# -- other origins by SIGHUP -----------------------------------------------------------------------


def test_another_server_is_asked_about_what_goes_on() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=True, keep_s=1000)
    stage.configure(origin(timeout_s=2.0))
    stage.review()
    assert len(stage.take()) == 1
    assert len(reasons(media)) == 1  # it goes on meanwhile
    stage.answer(allow=False)
    assert reasons(media)[-1][0] is Response.FAIL


def test_names_that_are_given_to_an_origin_are_asked_about() -> None:
    stage = OriginStage()
    app = stage.quicr()
    media, post = app.subscribe("live/t"), app.publish("live/u")
    stage.configure(origin(MEDIA, "live"))
    stage.review()
    assert sorted(it["action"] for it in stage.questions()) == ["publish", "subscribe"]
    waits = stage.quicr().subscribe("live/t")  # who comes now has to wait for the answer
    assert reasons(waits) == []
    stage.net.run(6.0)
    assert reasons(media)[-1][0] is Response.FAIL
    assert post.closed is True


def test_an_origin_that_is_gone_leaves_its_names_to_the_relay() -> None:
    stage = OriginStage()
    media = stage.quicr().subscribe(NAME)
    stage.answer(allow=True, keep_s=10)
    stage.authority.origins = type(stage.authority.origins)()
    stage.review()
    stage.net.run(20.0)
    assert reasons(media) == [(Response.OK, "")]
    assert reasons(stage.quicr().subscribe(NAME)) == [(Response.OK, "")]


def test_what_is_kept_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laps.edge.decisions.MAX_DECISIONS", 10)
    stage = OriginStage()
    for number in range(30):
        stage.quicr().subscribe(f"{MEDIA}/{number}")
        stage.answer_all(allow=True)
    assert len(stage.authority.decisions) == 10
    monkeypatch.setattr("laps.edge.decisions.MAX_BYTES", 20_000)
    for number in range(5):
        stage.quicr().subscribe(NAME, token=shown(b"%d" % number * 8000))
        stage.answer_all(allow=True)
    assert len(stage.authority.decisions) == 2
