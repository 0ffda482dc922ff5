"""`laps plan` as a person runs it: exit statuses, and a plan that reaches relays."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

import laps
from laps.client.plans import TRACK, open_plan
from laps.client.sealed import NAMESPACE, parse_key
from support.programs import LAPS, relay_process

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from laps.client.plans import PlanDocument

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"
EXAMPLE = ("--topology", str(EXAMPLES / "topology.toml"), "--policy", str(EXAMPLES / "policy.toml"))


def public_of(key: Path) -> Ed25519PublicKey:
    return parse_key(Path(f"{key}.pub").read_text().strip())


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [LAPS, "plan", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "planner.pem"
    made = run("keygen", str(path))
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("ed25519:")
    assert f'[plan]\nkey = "{made.stdout.strip()}"' in made.stderr
    return path


async def heard(url: str, public: Ed25519PublicKey) -> PlanDocument:
    """The plan that somebody hears who follows plans as relays do."""
    async with laps.connect(url) as session:
        found = await anext(session.subscribe(NAMESPACE, TRACK, start="current"))
        plan = open_plan(found.payload, public)
        assert (found.group, found.id) == (plan.sequence, 0)
        return plan


def test_the_exit_status_tells_a_plan_from_an_infeasible_one_and_from_wrong_usage(
    tmp_path: Path,
) -> None:
    assert run(*EXAMPLE).returncode == 0
    policy = tmp_path / "policy.toml"
    policy.write_text("[plan]\nfan_out_per_region = 0\ncandidates = 1\n[class.silver]\nstretch = 1")
    infeasible = run(*EXAMPLE[:2], "--policy", str(policy))
    assert infeasible.returncode == 1
    assert "\ninfeasible: " in infeasible.stdout
    assert infeasible.stderr == ""
    policy.write_text('[[rule]]\ntracks = "*"\navoid = ["mars"]')
    wrong = run(*EXAMPLE[:2], "--policy", str(policy))
    assert wrong.returncode == 2
    assert wrong.stderr == (
        f'laps: {policy}: rule[1]: avoid = ["mars"]: "mars" is no region of the network: no node '
        "is in it and no link transits it; known: ca, eu, us-east, us-west\n"
    )


def test_neither_help_nor_a_plan_from_a_file_starts_java() -> None:
    """Help does without NumPy and Spark, and a plan without the process that Spark runs in."""
    program = (
        "import sys; sys.argv[:2] = ['laps', 'plan']\n"
        "from laps.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "context = sys.modules.get('pyspark.core.context')\n"
        "java = context is not None and context.SparkContext._gateway is not None\n"
        "sys.stderr.write(f\"{'numpy' in sys.modules} {context is not None} {java}\")"
    )

    def said(*args: str) -> str:
        command = [sys.executable, "-c", program, "--", *args]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return ran.stderr

    assert said("--help") == "False False False"
    assert said(*EXAMPLE) == "True True False"


def test_who_follows_plans_hears_of_one_that_is_published_and_left(
    key: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    assert run(*EXAMPLE, "--key", str(key), "--out", str(folder)).returncode == 0
    sealed = str(folder / "plan.signed")

    async def follow(url: str) -> None:
        following = asyncio.ensure_future(heard(url, public_of(key)))
        later = await asyncio.to_thread(run, "publish", sealed, url, "--key", f"{key}.pub")
        assert later.returncode == 0, later.stderr
        plan = await following
        assert later.stderr == f"plan {plan.sequence} of 5 tracks is published at {url}\n"
        names = {track.name: track.by_region for track in plan.tracks}
        assert names["sports/final/audio"] == {"eu": "3:2", "us-east": "2:1"}

    with relay_process(tmp_path / "relay.log") as relay:
        uvloop.run(follow(f"moqt://{relay.clients}"))
    refused = run("publish", sealed, "moqt://127.0.0.1:9", "--key", "ed25519:" + "A" * 43 + "=")
    assert refused.returncode == 1
    assert "is followed" in refused.stderr


def test_a_plan_that_is_served_is_there_for_who_comes_later(key: Path, tmp_path: Path) -> None:
    config, public = tmp_path / "relay.toml", public_of(key)
    config.write_text("[cache]\nbytes = 0\n")

    # Not even a relay that keeps nothing is without the plan then.
    with relay_process(tmp_path / "relay.log", "--config", str(config)) as relay:
        url = f"moqt://{relay.clients}"
        command = [LAPS, "plan", *EXAMPLE, "--key", str(key), "--publish", url, "--serve"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as serving:
            assert serving.stderr is not None
            line = serving.stderr.readline()
            assert line.endswith(f"is published at {url} until Ctrl-C\n"), line
            assert (
                uvloop.run(heard(url, public)).sequence == uvloop.run(heard(url, public)).sequence
            )
            serving.send_signal(signal.SIGINT)
            assert serving.wait(timeout=20) == 0


def test_a_relay_that_follows_the_key_takes_the_plan(key: Path, tmp_path: Path) -> None:
    config, kept = tmp_path / "relay.toml", tmp_path / "kept.plan"
    public = Path(f"{key}.pub").read_text().strip()
    config.write_text(f'[plan]\nkey = "{public}"\nfile = "{kept}"\n')
    log = tmp_path / "relay.log"
    with relay_process(log, "--config", str(config)) as relay:
        url = f"moqt://{relay.clients}"
        command = [LAPS, "plan", *EXAMPLE, "--key", str(key), "--publish", url, "--serve"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as serving:
            # It writes the plan down when it follows it.
            while not kept.exists():
                assert serving.poll() is None
                time.sleep(0.01)
            serving.terminate()
            assert serving.wait(timeout=20) == 0
    assert "of 5 tracks" in log.read_text()
    assert open_plan(kept.read_bytes(), parse_key(public)).tracks
