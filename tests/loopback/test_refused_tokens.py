"""Every reason to refuse a token, on real sockets: both drafts, both transports, and QUICR.

One relay process has all keys, a list of what is revoked, and a name of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import laps
from laps.auth.keys import generate, write_jwk
from laps.auth.refusals import Outcome, Reason
from laps.auth.tokens import Algorithm
from laps.errors import Unauthorized
from support.loopback import on_loop
from support.programs import relay_process
from support.tokens import cat, jwt, key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from laps.client import Connecting
    from support.programs import RelayProcess

SPOKEN = [
    pytest.param("moqt", 16, id="moqt-16"),
    pytest.param("moqt", 14, id="moqt-14"),
    pytest.param("https", 16, id="webtransport-16"),
    pytest.param("https", 14, id="webtransport-14"),
    pytest.param("quicr", 0, id="quicr"),
]

BOUNDED = generate(Algorithm.EDDSA, "bounded")
REVOKED = generate(Algorithm.EDDSA, "lost")
STRANGER = generate(Algorithm.EDDSA, key().id)
ALL = {"put": ["demo"], "get": ["demo"]}
EVERYBODY = "the-relay"


@dataclass(frozen=True)
class Case:
    """A token that is refused, for one reason."""

    reason: Reason
    words: str
    "Some of what whoever shows it is told."
    make: Callable[[], bytes | None]
    name: str = ""


# What is not a token's fault: `test_origins.py` and `test_policy.py` have these.
OF_OTHERS = {Reason.ORIGIN_REFUSED, Reason.ORIGIN_FAILED, Reason.POLICY}

CASES = [
    Case(Reason.NO_TOKEN, "a token is needed", lambda: None),
    Case(Reason.MALFORMED, "three parts between dots", lambda: b"swordfish"),
    Case(
        Reason.MALFORMED,
        "each key is there once",
        lambda: jwt('{"put":["demo"],"put":[]}'),
        "a key twice",
    ),
    Case(Reason.TOO_LARGE, "8192 at most", lambda: jwt({**ALL, "x": "y" * 8192})),
    Case(Reason.UNKNOWN_TYPE, "typ", lambda: jwt(ALL, {"typ": "at+jwt"})),
    Case(Reason.CRITICAL, "crit", lambda: jwt(ALL, {"crit": ["b64"]})),
    Case(Reason.ALGORITHM, "alg", lambda: jwt(ALL, {"alg": "none"}), "none"),
    Case(Reason.ALGORITHM, "alg", lambda: jwt(ALL, {"alg": "HS256"}), "confused"),
    Case(Reason.UNKNOWN_KEY, "no key has", lambda: jwt(ALL, {"kid": "another"})),
    Case(Reason.UNKNOWN_KEY, "letters that no key id", lambda: jwt(ALL, {"kid": "../x"}), "path"),
    Case(Reason.BAD_SIGNATURE, "signature", lambda: jwt(ALL, by=STRANGER)),
    Case(Reason.UNENFORCED, "catnip", lambda: cat({6: 1, 311: [["192.0.2.1"]]}), "catnip"),
    Case(Reason.KEY_SCOPE, "more than its key", lambda: jwt(ALL, by=BOUNDED)),
    Case(Reason.AUDIENCE, "not for this relay", lambda: jwt({**ALL, "aud": "another"})),
    Case(Reason.EXPIRED, "the token expired", lambda: jwt({**ALL, "exp": at(-90)})),
    Case(Reason.NOT_YET_VALID, "is valid in", lambda: jwt({**ALL, "nbf": at(300)})),
    Case(Reason.REVOKED, "is revoked", lambda: jwt({**ALL, "jti": "stolen"}), "token"),
    Case(Reason.REVOKED, "is revoked", lambda: jwt(ALL, by=REVOKED), "key"),
    Case(Reason.NOT_ALLOWED, "allows to", lambda: jwt({"get": ["elsewhere"]})),
]


def at(seconds: float) -> int:
    return int(time.time() + seconds)


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    folder = tmp_path_factory.mktemp("relay")
    keys = folder / "keys.json"
    bounded = {**write_jwk(BOUNDED, private=False), "scope": {"get": ["elsewhere"]}}
    public = [bounded, *(write_jwk(each, private=False) for each in (key(), REVOKED))]
    keys.write_text(json.dumps({"keys": public}))
    (folder / "revoked").write_text("token stolen\nkey lost\n")
    config = folder / "relay.toml"
    config.write_text(f'[auth]\nkeys = "{keys}"\naudience = ["{EVERYBODY}"]\n')
    with relay_process(folder / "log", "--config", str(config), "--no-discovery") as running:
        yield running


def connect(relay: RelayProcess, scheme: str, draft: int, token: Any) -> Connecting:
    return laps.connect(f"{scheme}://{relay.clients}", drafts=(draft or 16,), token=token)


async def read(connecting: Connecting) -> None:
    async with asyncio.timeout(10), connecting as session:
        await anext(session.subscribe("demo", "t"))


def refused(relay: RelayProcess) -> dict[str, int]:
    """How often the relay has refused for each reason, whatever was asked for."""
    counts: dict[str, int] = {}
    text = httpx.get(f"http://{relay.admin}/metrics", trust_env=False).text
    for line in text.splitlines():
        if line.startswith("laps_auth_refused_total{"):
            labels, _, value = line.rpartition(" ")
            reason = labels.partition('reason="')[2].partition('"')[0]
            counts[reason] = counts.get(reason, 0) + int(float(value))
    return counts


@pytest.mark.parametrize(("scheme", "draft"), SPOKEN)
@on_loop
async def test_token_is_refused_for_each_reason_with_its_code_and_is_counted(
    relay: RelayProcess, scheme: str, draft: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAPS_TOKEN", raising=False)
    assert {case.reason for case in CASES} == set(Reason) - OF_OTHERS
    shown: list[str] = []
    for case in CASES:
        made = case.make()
        token = made.decode() if made is not None and made.isascii() else made
        before = refused(relay)
        with pytest.raises(Unauthorized) as problem:
            await read(connect(relay, scheme, draft, token))
        told, named = str(problem.value), f"{case.reason} {case.name}: {problem.value}"
        assert case.words in told, named
        assert problem.value.expired == (case.reason.outcome is Outcome.EXPIRED_AUTH_TOKEN), named
        after = refused(relay)
        assert after.get(case.reason, 0) == before.get(case.reason, 0) + 1, named
        assert sum(after.values()) == sum(before.values()) + 1, named
        if isinstance(token, str):
            assert token not in told
            shown.append(token)
    log = relay.log.read_text()
    assert not [token for token in shown if token in log]


@pytest.mark.parametrize(("scheme", "draft"), SPOKEN)
@on_loop
async def test_token_that_is_right_is_not_refused(
    relay: RelayProcess, scheme: str, draft: int
) -> None:
    """The same relay takes tokens that name it, and of all that are right in every way."""
    before = refused(relay)
    token = jwt({**ALL, "aud": EVERYBODY, "exp": at(600), "jti": "kept"}).decode()
    async with connect(relay, scheme, draft, token) as session:
        track = await session.publish("demo", f"{scheme}-{draft}")
        await track.write(b"here")
        found = await anext(session.subscribe("demo", f"{scheme}-{draft}", start="start"))
        assert found.payload == b"here"
    assert refused(relay) == before
