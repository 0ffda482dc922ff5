"""Commands, planners and relays that follow plans, at a relay with keys: with tokens, and without.

One relay process serves all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import laps
from laps.auth.issue import Terms, issue_jwt
from laps.auth.keys import write_jwk
from laps.client.plans import DIRECT, PlanDocument, PlannedTrack, sign_plan
from laps.client.sealed import key_text
from laps.errors import RequestUnauthorized
from laps.steering import Steering
from laps.token_files import TokenFile
from support.loopback import on_loop, until
from support.programs import LAPS, relay_process
from support.runners import lab
from support.tokens import key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from laps.client import Track
    from support.programs import RelayProcess

PLANNER = Ed25519PrivateKey.generate()


def sign(*publish: str, subscribe: tuple[str, ...] = (), life_s: float = 600) -> str:
    def below(names: tuple[str, ...]) -> tuple[tuple[bytes, ...], ...]:
        return tuple(tuple(part.encode() for part in name.split("/")) for name in names)

    expires = int(time.time() + life_s)
    terms = Terms(publish=below(publish), subscribe=below(subscribe), expires=expires)
    return issue_jwt(terms, key())


def write_keys(folder: Path) -> Path:
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    return file


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    folder = tmp_path_factory.mktemp("relay")
    with relay_process(folder / "log", "--auth", str(write_keys(folder))) as running:
        yield running


def run(*args: str, stdin: str = "", env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """A command with no token but the one it is given; its status and what it says."""
    variables = {name: text for name, text in os.environ.items() if name != "LAPS_TOKEN"}
    ran = subprocess.run(
        [LAPS, *args],
        input=stdin,
        env={**variables, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("scheme", ["moqt", "quicr"])
def test_token_of_pub_and_sub_comes_from_a_file_the_environment_or_standard_input(
    relay: RelayProcess, tmp_path: Path, scheme: str
) -> None:
    url = f"{scheme}://{relay.clients}"
    writes, reads = sign("demo"), sign(subscribe=("demo",))
    (tmp_path / "pub.jwt").write_text(writes + "\n")
    track = (url, "demo", f"from-{scheme}")
    given = ("--token", f"@{tmp_path / 'pub.jwt'}")
    assert run("pub", *track, *given, stdin="one\n")[0] == 0
    begin = (*track, "--from", "start", "--count", "1")
    assert run("sub", *begin, stdin=reads, env={"LAPS_TOKEN": reads}) == (0, "one\n", "")
    assert run("sub", *begin, "--token", "-", stdin=reads) == (0, "one\n", "")


@pytest.mark.parametrize("scheme", ["moqt", "quicr"])
def test_token_that_is_wrong_or_missing_ends_pub_and_sub_and_is_not_repeated(
    relay: RelayProcess, scheme: str
) -> None:
    track = (f"{scheme}://{relay.clients}", "demo", "refused")
    status, out, err = run("sub", *track)
    assert (status, out) == (1, "")
    assert "a token is needed" in err
    elsewhere = sign("elsewhere", subscribe=("elsewhere",))
    for command in ("pub", "sub"):
        status, out, err = run(command, *track, stdin="one\n", env={"LAPS_TOKEN": elsewhere})
        assert (status, out) == (1, "")
        assert "no token that was shown allows to" in err
        assert elsewhere not in err
    assert elsewhere not in relay.log.read_text()


@on_loop
async def test_token_file_that_changes_is_shown_without_losing_anything(
    relay: RelayProcess, tmp_path: Path
) -> None:
    """The first allows one track only: the second track is possible once the file is another."""
    file = tmp_path / "token"
    file.write_text(sign("demo/a"))
    async with laps.connect(f"moqt://{relay.clients}", token=TokenFile(file)) as session:
        track = await session.publish("demo/a", "t", first_group=1)
        await track.write(b"one", new_group=True)
        before = session.channel_in_use
        file.write_text(sign("demo/a", "demo/b"))
        await until(lambda: session.channel_in_use is not before)
        other = await session.publish("demo/b", "t", first_group=1)
        await track.write(b"two", new_group=True)
        await other.write(b"three")
        async with laps.connect(
            f"moqt://{relay.clients}", token=sign(subscribe=("demo",))
        ) as reader:
            objects = reader.subscribe("demo/a", "t", start="start")
            assert [(await anext(objects)).payload for _ in range(2)] == [b"one", b"two"]
            assert (await anext(reader.subscribe("demo/b", "t", start="start"))).payload == b"three"


async def write_until_refused(track: Track) -> None:
    while True:
        await track.write(plan(), new_group=True)
        await asyncio.sleep(0.01)


# -- plans -----------------------------------------------------------------------------------------


def plan(sequence: int = 0) -> bytes:
    now = time.time()
    document = PlanDocument(
        sequence=sequence or int(now * 1000),
        issued_at=now,
        expires_at=now + 600,
        policy="sha256:00",
        regions={"eu": ["9:1"]},
        tracks=[PlannedTrack("0" * 16, "demo clock", {"eu": DIRECT})],
    )
    return sign_plan(document, PLANNER)


@on_loop
async def test_plans_are_followed_at_relays_with_keys_by_a_token_of_the_relay_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The planner needs a token for `laps`; a relay that follows reads at its own door."""
    keys = str(write_keys(tmp_path))
    async with lab() as net:
        settings = {"auth__keys": keys, "plan__key": key_text(PLANNER.public_key())}
        one = await net.relay("edge", **settings)
        two = await net.relay("edge", one, **settings)
        await until(lambda: one.relay.id in two.relay.peers)
        following = [Steering(runner, runner.config.plan) for runner in (one, two)]
        url = f"moqt://{one.client_address}"
        try:
            everything = issue_jwt(Terms(publish=((),), subscribe=((),)), key())
            async with laps.connect(url, token=everything) as session:
                track = await session.publish("laps", "plan")
                with pytest.raises(RequestUnauthorized, match="allows to publish"):
                    await write_until_refused(track)
            async with laps.connect(url, token=sign("laps")) as session:
                track = await session.publish("laps", "plan")
                await track.write(plan(7), new_group=True)
                await until(lambda: one.relay.router.plan.sequence == 7)
                await until(lambda: two.relay.router.plan.sequence == 7)
            # The keys are read again, and the relay's own token holds on.
            one.reload(one.config)
            async with laps.connect(url, token=sign("laps")) as session:
                track = await session.publish("laps", "plan")
                await track.write(plan(8), new_group=True)
                await until(lambda: one.relay.router.plan.sequence == 8)
        finally:
            for each in following:
                await each.close()


def test_token_of_the_planner_is_needed_to_publish_a_plan(
    relay: RelayProcess, tmp_path: Path
) -> None:
    file, token = tmp_path / "plan.signed", tmp_path / "planner.jwt"
    file.write_bytes(plan())
    where = (str(file), f"moqt://{relay.clients}", "--key", key_text(PLANNER.public_key()))
    command = ("plan", "publish", *where)
    token.write_text(sign("demo"))
    for args, words in (
        ((), "a token is needed to connect"),
        (("--token", f"@{token}"), "no token that was shown allows to publish"),
    ):
        status, _, err = run(*command, *args)
        assert status == 1, err
        assert words in err
        assert "is published" not in err
        assert token.read_text() not in err
    token.write_text(sign("laps"))
    status, _, err = run(*command, "--token", f"@{token}")
    assert status == 0, err
    assert "is published" in err
