"""Limits of tokens and addresses at a real relay: both drafts, WebTransport and QUICR; and clients
that do their worst beside others that do not.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import laps
from laps.auth.grants import Limits
from laps.auth.issue import Terms, issue_jwt
from laps.auth.keys import write_jwk
from laps.bench.hostile import MOST_MB, relay
from laps.bench.hostile_clients import HALF, Attacker
from laps.bench.relay_process import peak_bytes, rss_bytes
from laps.config import QuicConfig
from laps.edge.addresses import IdleTime, Knock
from laps.edge.shares import Limit
from laps.errors import HandshakeFailed, RequestRefused
from laps.net.quic import Endpoint
from laps.net.tls import Trust
from laps.types import TrackName
from laps.wire.moqt.codes import SessionCode
from laps.wire.moqt.messages import (
    PublishNamespace,
    RequestError,
    RequestOk,
    Subscribe,
    SubscribeNamespace,
    TrackStatus,
)
from support.engines import Recorder, identity
from support.hostile import ATTACKS, SOURCE, attacking
from support.loopback import TRUST, dialling, on_loop, until
from support.runners import lab
from support.tokens import key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from laps.bench.hostile_clients import Session
    from laps.client import Connecting
    from laps.net.connection import Connection
    from laps.net.runner import Runner

DEMO = (b"demo",)
SPOKEN = [
    pytest.param("moqt", 16, id="moqt-16"),
    pytest.param("moqt", 14, id="moqt-14"),
    pytest.param("https", 16, id="webtransport-16"),
    pytest.param("quicr", 0, id="quicr"),
]
spoken = pytest.mark.parametrize(("scheme", "draft"), SPOKEN)


def sign(**limits: int) -> str:
    terms = Terms(
        subject="ann",
        publish=(DEMO,),
        subscribe=(DEMO,),
        expires=int(time.time() + 600),
        limits=Limits(**limits),
    )
    return issue_jwt(terms, key())


@asynccontextmanager
async def guarded(folder: Path, **settings: Any) -> AsyncIterator[Runner]:
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    async with lab() as net:
        yield await net.relay("edge", auth__keys=str(file), **settings)


def connect(runner: Runner, scheme: str, draft: int, token: str) -> Connecting:
    return laps.connect(f"{scheme}://{runner.client_address}", drafts=(draft or 16,), token=token)


def refused(runner: Runner) -> dict[tuple[str, str], int]:
    return {(str(whose), str(limit)): n for (whose, limit), n in runner.edge.shares.refused.items()}


async def publish(session: Any, name: str) -> None:
    """Publish a track; RequestRefused if that is refused."""
    track = await session.publish("demo", name)
    async with asyncio.timeout(5):
        for _ in range(10):
            await track.write(b"x")
            await asyncio.sleep(0.01)


@spoken
@on_loop
async def test_limits_of_a_token_on_tracks_and_requests(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    async with guarded(tmp_path) as here:
        async with connect(here, scheme, draft, sign(tracks=2)) as session:
            await publish(session, "1")
            await publish(session, "2")
            with pytest.raises(RequestRefused, match="this token has 2 published tracks; ask aga"):
                await publish(session, "3")
        assert refused(here)["bearer", "tracks"] >= 1
        async with connect(here, scheme, draft, sign(requests_per_s=1)) as session:
            with pytest.raises(RequestRefused, match="this token has 1 requests a second; ask"):
                await publish_many(session)
        assert refused(here)["bearer", "requests_per_s"] >= 1


async def publish_many(session: Any) -> None:
    for number in range(9):
        await publish(session, f"many {number}")


@spoken
@on_loop
async def test_limits_of_a_token_on_subscriptions(tmp_path: Path, scheme: str, draft: int) -> None:
    async with (
        guarded(tmp_path) as here,
        connect(here, scheme, draft, sign()) as publisher,
        connect(here, scheme, draft, sign(subscriptions=1)) as reader,
    ):
        for name in ("1", "2"):
            await publish(publisher, name)
        first = reader.subscribe("demo", "1", start="start")
        async with asyncio.timeout(5):
            assert (await anext(first)).payload == b"x"
            with pytest.raises(RequestRefused, match="this token has 1 subscriptions; ask"):
                await anext(reader.subscribe("demo", "2", start="start"))
        assert refused(here)["bearer", "subscriptions"] >= 1


@spoken
@on_loop
async def test_limits_of_a_token_on_sessions(tmp_path: Path, scheme: str, draft: int) -> None:
    """A client that is refused tries again, until the first has left."""
    token = sign(sessions=1)

    async def second() -> None:
        async with connect(here, scheme, draft, token) as session:
            await publish(session, "second")

    async with guarded(tmp_path) as here:
        async with connect(here, scheme, draft, token) as first:
            await publish(first, "first")
            waiting = asyncio.ensure_future(second())
            async with asyncio.timeout(10):
                await until(lambda: ("bearer", "sessions") in refused(here))
            assert len(here.edge.clients) <= 2
        waiting.cancel()
        await asyncio.wait([waiting])


@spoken
@on_loop
async def test_limits_of_a_token_on_bytes_shape_and_lose_nothing(
    tmp_path: Path, scheme: str, draft: int
) -> None:
    """400 kB at 200 kB a second both ways have to wait, and all of them come."""
    async with (
        guarded(tmp_path) as here,
        connect(here, scheme, draft, sign(bytes_in_per_s=200_000)) as publisher,
        connect(here, scheme, draft, sign(bytes_out_per_s=200_000)) as reader,
    ):
        track = await publisher.publish("demo", "t")
        objects = reader.subscribe("demo", "t", start="start")
        for number in range(20):
            await track.write(bytes([number]) * 20_000, new_group=number % 5 == 0)
        async with asyncio.timeout(20):
            payloads = [(await anext(objects)).payload for _ in range(20)]
        assert [payload[0] for payload in payloads] == list(range(20))
        shaped = {str(limit) for _, limit in here.edge.shares.shaped}
        assert shaped == {"bytes_in_per_s", "bytes_out_per_s"}


# -- addresses -------------------------------------------------------------------------------------


async def dial(runner: Runner, source: str = SOURCE) -> tuple[Endpoint, Recorder]:
    assert runner.client_address is not None
    endpoint, heard = Endpoint.dialler(source, QuicConfig()), Recorder()
    host, port = runner.client_address.host, runner.client_address.port
    try:
        await endpoint.connect(host, port, ["moqt-16"], Trust(anyone=True), lambda _: heard)
    except HandshakeFailed:
        await endpoint.close(0, "")
        raise
    return endpoint, heard


@on_loop
async def test_sessions_of_an_address_are_refused_at_the_first_packet() -> None:
    async with lab() as net:
        here = await net.relay("edge", limits__exempt=["127.0.0.1"], limits__address_sessions=2)
        open_ = [(await dial(here))[0] for _ in range(2)]
        with pytest.raises(HandshakeFailed, match="this address has 2 sessions; ask again in 1 s"):
            await dial(here)
        elsewhere, _ = await dial(here, "127.0.0.3")
        exempt, _ = await dial(here, "127.0.0.1")
        await open_[0].close(0, "")
        async with asyncio.timeout(5):
            await until(lambda: here.edge.addresses.account(SOURCE).counts["sessions"] == 1)  # type: ignore[union-attr,index]
        again, _ = await dial(here)
        for endpoint in (open_[1], elsewhere, exempt, again):
            await endpoint.close(0, "")
        assert refused(here)["address", "sessions"] >= 1


@on_loop
async def test_handshakes_of_an_address_over_the_rate_prove_it_and_are_refused() -> None:
    async with lab() as net:
        here = await net.relay(
            "edge", limits__exempt=["127.0.0.1"], limits__address_handshakes_per_s=1
        )
        endpoints: list[Endpoint] = []

        async def dial_many() -> None:
            for _ in range(40):
                endpoints.append((await dial(here))[0])  # noqa: PERF401 - until one is refused

        with pytest.raises(HandshakeFailed, match="this address has 1 handshakes a second"):
            await dial_many()
        assert len(endpoints) >= 20, "ten at once, and ten more with a proof"
        counters = here.endpoints()[0].counters
        assert counters.retries_sent >= 10
        for endpoint in endpoints:
            await endpoint.close(0, "")


# -- each limit on its own -------------------------------------------------------------------------

NOBODY = (b"no",)


@asynccontextmanager
async def attacked(**limits: int) -> AsyncIterator[tuple[Runner, Attacker]]:
    """A relay with limits for addresses, and a client of an address that has them."""
    async with lab() as net:
        settings = {f"limits__{name}": value for name, value in limits.items()}
        here = await net.relay("edge", limits__exempt=["127.0.0.1"], **settings)
        assert here.client_address is not None
        attacker = Attacker(here.client_address.port)
        try:
            async with asyncio.timeout(10):
                yield here, attacker
        finally:
            await attacker.close()


async def answers(session: Session, number: int) -> list[RequestError]:
    """What a client was refused, once it has so many answers."""
    kinds = (RequestError, RequestOk)
    await until(lambda: sum(isinstance(it, kinds) for it in session.heard) >= number)
    return [it for it in session.heard if isinstance(it, RequestError)]


def ask(session: Session, *requests: Any) -> None:
    assert session.moqt is not None
    for request in requests:
        session.moqt.request(request)


@on_loop
async def test_open_requests_of_an_address_are_refused_and_count_until_they_are_answered() -> None:
    """Nobody answers for a track that nobody has: those who wait for it hold a request each."""
    async with attacked(address_open_requests=3) as (here, attacker):
        session = await attacker.moqt()
        ask(session, *(Subscribe(0, TrackName(NOBODY, b"%d" % number)) for number in range(5)))
        refusals = await answers(session, 2)
        assert {it.reason for it in refusals} == {
            "this address has 3 requests without an answer; ask again in 1 s"
        }
        assert [it.retry_ms for it in refusals] == [1000, 1000]
        account = here.edge.addresses.account(SOURCE)
        assert account is not None
        assert account.counts[Limit.OPEN_REQUESTS] == 3
        # Another session of the same address has no more; once the first has left it has.
        second = await attacker.moqt()
        ask(second, Subscribe(0, TrackName(NOBODY, b"x")))
        assert len(await answers(second, 1)) == 1
        session.connection.close(0, "")
        await until(lambda: account.counts[Limit.OPEN_REQUESTS] == 0)
        ask(second, Subscribe(0, TrackName(NOBODY, b"y")))
        await until(lambda: account.counts[Limit.OPEN_REQUESTS] == 1)
        assert refused(here)["address", "open_requests"] == 3


@on_loop
async def test_namespaces_of_an_address_are_refused_published_and_watched() -> None:
    async with attacked(address_namespaces=2) as (here, attacker):
        session = await attacker.moqt()
        ask(session, *(PublishNamespace(0, (b"mine", b"%d" % number)) for number in range(3)))
        (over,) = await answers(session, 3)
        assert "this address has 2 namespaces, published and watched" in over.reason
        ask(session, SubscribeNamespace(0, NOBODY))
        assert len(await answers(session, 4)) == 2
        assert refused(here)["address", "namespaces"] == 2


@on_loop
async def test_names_that_are_too_long_are_refused_and_the_session_goes_on() -> None:
    async with attacked(name_bytes=100) as (here, attacker):
        session = await attacker.moqt()
        ask(
            session,
            PublishNamespace(0, (bytes(60), bytes(41))),
            TrackStatus(0, TrackName((bytes(60),), bytes(41))),
            PublishNamespace(0, (bytes(60), bytes(40))),
        )
        refusals = await answers(session, 3)
        words = "the name has 101 bytes: 100 at most (limits.name_bytes)"
        assert [(it.reason, it.retry_ms) for it in refusals] == [(words, None)] * 2
        assert not session.is_closed
        assert refused(here)["relay", "name_bytes"] == 2


@on_loop
async def test_cache_of_a_bearer_is_bounded_and_of_others_nothing_goes(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path) as here,
        connect(here, "moqt", 16, sign()) as other,
        connect(here, "moqt", 16, sign(cache_bytes=100_000)) as publisher,
        asyncio.timeout(10),
    ):
        await publish(other, "other")
        kept = here.relay.tracks.cache.size
        assert kept
        track = await publisher.publish("demo", "mine")
        await track.write(bytes(10_000), new_group=True)
        (account,) = here.edge.shares._bearers.values()
        assert account.cache is not None
        owner = account.cache
        await until(lambda: bool(owner.order))
        first = next(iter(owner.order)).id
        for _ in range(49):
            await track.write(bytes(10_000), new_group=True)
        await until(lambda: any(group.id == first + 49 for group in owner.order))
        assert 50_000 < owner.size <= 100_000
        assert here.relay.tracks.cache.size == kept + owner.size


@on_loop
async def test_half_messages_of_all_sessions_close_the_one_that_holds_most() -> None:
    async with attacked(half_message_bytes=100_000) as (here, attacker):
        modest, greedy = await attacker.moqt(), await attacker.moqt()
        half = here.edge.shares.half_messages
        modest.send(modest.open_stream(), HALF[:30_000])
        await until(lambda: half.size >= 30_000)
        for _ in range(2):
            greedy.send(greedy.open_stream(), HALF)
        await until(lambda: greedy.is_closed)
        assert not modest.is_closed
        assert half.size == 30_000
        assert refused(here)["relay", "half_message_bytes"] == 1


@on_loop
async def test_floods_of_requests_are_refused_and_then_closed() -> None:
    """Ten a second: forty pass at once, forty are refused, and whoever still asks is closed."""
    async with attacked(address_requests_per_s=10) as (here, attacker):
        session = await attacker.moqt()
        for number in range(200):
            if not session.is_closed:
                ask(session, TrackStatus(0, TrackName(NOBODY, b"%d" % number)))
        await until(lambda: session.is_closed)
        close = session.connection.close_state
        assert close is not None
        assert close.code == SessionCode.TOO_MANY_REQUESTS
        assert "this address has 10 requests a second" in close.reason
        assert refused(here)["address", "requests_per_s"] >= 40


# -- the worst -------------------------------------------------------------------------------------


async def carry(port: int, track_name: str, seconds: float) -> None:
    """A well-behaved pair: every object that is sent comes, once and in order."""
    url = f"moqt://127.0.0.1:{port}"
    async with laps.connect(url) as publisher, laps.connect(url) as reader:
        track = await publisher.publish("good", track_name)
        objects = reader.subscribe("good", track_name, start="start")
        sent = 0
        received: list[int] = []

        async def read() -> None:
            async for item in objects:
                number = int.from_bytes(item.payload[:4])
                received.append(number)

        reading = asyncio.ensure_future(read())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await track.write(sent.to_bytes(4) + bytes(1000), new_group=sent % 50 == 0)
            sent += 1
            await asyncio.sleep(0.005)
        async with asyncio.timeout(20):
            await until(lambda: len(received) >= sent)
        reading.cancel()
        assert received == list(range(sent))


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.nightly
@on_loop
async def test_hostile_client_costs_little_memory_and_others_no_object(attack: str) -> None:
    with relay() as target:
        await carry(target.port, "before", 0.3)
        before = rss_bytes(target.pid)
        with attacking(target.port, attack) as attacker:
            await carry(target.port, "beside", 2.0)
            done = attacker.ask()
        assert done["sent"] + done["sessions"] > 0
        assert (peak_bytes(target.pid) - before) / 1e6 < MOST_MB


@on_loop
async def test_hostile_client_that_does_everything_at_once_costs_others_no_object() -> None:
    with relay() as target:
        await carry(target.port, "before", 0.3)
        before = rss_bytes(target.pid)
        with (
            attacking(target.port, "half messages"),
            attacking(target.port, "request flood"),
            attacking(target.port, "reset storm"),
        ):
            await carry(target.port, "beside", 2.0)
        assert (peak_bytes(target.pid) - before) / 1e6 < MOST_MB


class _Spent:
    """A door at which every address has had its time, and what it is told of more."""

    def __init__(self) -> None:
        self.idle = IdleTime()
        self.took: list[float] = []

    def knock(self, host: str, now: float, *, proved: bool) -> Knock:
        return Knock.ADMIT

    def left(self, host: str) -> None: ...

    def meter(self, host: str) -> _Spent:
        return self

    def is_spent(self, now: float) -> bool:
        return True

    def spend(self, seconds: float, now: float) -> None:
        self.took.append(seconds)


@on_loop
async def test_the_time_of_a_handshake_counts_for_the_address_once_it_is_proved() -> None:
    door, unproved = _Spent(), []

    def accept(_: Connection) -> Recorder:
        unproved.append(list(door.took))
        return Recorder()

    endpoint = Endpoint.listen(
        "127.0.0.1", 0, QuicConfig(), ["laps"], identity(), accept, door=door
    )
    try:
        async with dialling() as here:
            port = endpoint.address[1]
            await here.connect("127.0.0.1", port, ["laps"], TRUST, lambda _: Recorder())
            await until(lambda: bool(unproved))
    finally:
        await endpoint.close(0, "")
    assert unproved == [[]]
    (took,) = door.took
    assert took > 0
