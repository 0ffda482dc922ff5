"""`laps token`: keys and tokens from the command line, and what is said of those that are wrong."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from laps import cli_token
from laps.auth.jwt import read_claims
from laps.auth.key_files import read_keys
from laps.auth.keys import read_jwk
from laps.auth.refusals import AuthError
from laps.auth.tokens import Algorithm
from laps.errors import ConfigError, LapsError


def run(
    *args: object,
    status: int = 0,
    given: str | bytes | None = None,
    env: dict[str, str] | None = None,
) -> str:
    variables = {"LAPS_TOKEN": None, **(env or {})}
    result = CliRunner().invoke(cli_token.token, list(map(str, args)), input=given, env=variables)
    if isinstance(result.exception, LapsError):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


@pytest.fixture
def key(tmp_path: Path) -> Path:
    run("key", tmp_path / "issuer.jwk")
    return tmp_path / "issuer.jwk"


@pytest.fixture
def public(key: Path) -> Path:
    return key.with_name("issuer.pub.json")


# --- key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_token_key_is_for_its_owner_only(tmp_path: Path, algorithm: Algorithm) -> None:
    file = tmp_path / "issuer.jwk"
    run("key", file, "--algorithm", algorithm, "--id", "spring")
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_keys(file).signer().id == "spring"
    public = tmp_path / "issuer.pub.json"
    assert public.exists() is (algorithm is not Algorithm.HS256)
    if public.exists():
        assert not {"d", "k"} & json.loads(public.read_text())["keys"][0].keys()
        assert read_keys(public).find("spring").private is None


def test_token_key_is_not_written_over_unless_forced(key: Path, public: Path) -> None:
    before = key.read_text(), public.read_text()
    with pytest.raises(ConfigError, match=r"issuer\.jwk: is there already; --force writes over it"):
        run("key", key)
    key.unlink()
    with pytest.raises(ConfigError, match=r"issuer\.pub\.json: is there already"):
        run("key", key)
    assert not key.exists()
    run("key", key, "--force")
    assert (key.read_text(), public.read_text()) != before
    assert key.stat().st_mode & 0o777 == 0o600


def test_token_key_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none/a\.jwk: cannot be written: No such file"):
        run("key", tmp_path / "none" / "a.jwk")
    with pytest.raises(ConfigError, match=r'key id "\.\./x" must be'):
        run("key", tmp_path / "a.jwk", "--id", "../x")


def test_token_key_can_be_bounded(tmp_path: Path) -> None:
    file = tmp_path / "studio.jwk"
    run("key", file, "--publish", "studio")
    assert run("sign", "--key", file, "--publish", "studio/cam")
    for beyond in (("--publish", "live"), ("--subscribe", "studio")):
        with pytest.raises(AuthError, match="grants more than its key"):
            run("sign", "--key", file, *beyond)
    (half,) = read_keys(tmp_path / "studio.pub.json")
    assert half.scope is not None


# --- sign and check -------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["jwt", "cat"])
def test_token_is_signed_and_checked(key: Path, public: Path, written: str) -> None:
    token = run(
        *("sign", "--key", key, "--publish", "live/cam", "--subscribe", "live", "--subject", "ann"),
        *("--id", "call-7", "--audience", "relay.example", "--format", written),
    )
    asked = ("check", "--keys", public, "--audience", "relay.example")
    shown = run(*asked, token)
    assert re.match(r"ok: ann, key \w+, token call-7, until 20\d\d-.* UTC, 6[01] min from", shown)
    assert "publish-namespace, request-update, publish: live/cam/… any track\n" in shown
    may = (*asked, token, "--may")
    run(*may, "publish", "--namespace", "live/cam", "--track", "video")
    run(*may, "SUBSCRIBE", "--namespace", "live/other")
    run(*may, "client_setup")
    run(*may, "subscribe-namespace", "--namespace", "")
    with pytest.raises(LapsError, match=r"^the token does not allow publish live video$"):
        run(*may, "publish", "--namespace", "live", "--track", "video")
    with pytest.raises(AuthError, match=r'the token is for "relay\.example"'):
        run("check", "--keys", public, token)


def test_token_check_says_for_a_program_what_it_says_for_people(key: Path, public: Path) -> None:
    limits = ("--limit", "tracks=10", "--limit", "sessions=0")
    token = run("sign", "--key", key, "--publish", "", "--expires", "never", *limits).strip()
    asked = ("check", "--keys", public, "--json")
    said = json.loads(run(*asked, token))
    assert said["ok"] is True
    assert said["until"] is None
    assert (said["limits"]["tracks"], said["limits"]["sessions"]) == (10, 0)
    assert said["allows"][0] == "client-setup"
    said = json.loads(run(*asked, token, "--may", "fetch", "--namespace", "a", status=1))
    assert (said["ok"], said["reason"]) == (False, "not_allowed")
    said = json.loads(run(*asked, f"{token}x", status=1))
    assert (said["ok"], said["reason"]) == (False, "malformed")


def test_token_that_is_revoked_is_refused(key: Path, public: Path) -> None:
    token = run("sign", "--key", key, "--publish", "", "--id", "call-7")
    key.with_name("revoked").write_text("token call-7\n")
    with pytest.raises(AuthError, match='the token "call-7" is revoked'):
        run("check", "--keys", public, token)


@pytest.mark.parametrize("written", ["jwt", "cat"])
def test_token_comes_by_argument_variable_or_standard_input(
    key: Path, public: Path, written: str
) -> None:
    token = run("sign", "--key", key, "--publish", "", "--format", written)
    asked = ("check", "--keys", public)
    assert run(*asked, token).startswith("ok: ")
    assert run(*asked, env={"LAPS_TOKEN": token}).startswith("ok: ")
    assert run(*asked, given=token).startswith("ok: ")
    assert run(*asked, "-", given=f"\n {token}\n").startswith("ok: ")
    with pytest.raises(ConfigError, match="there is no token"):
        run(*asked, given="\n")
    with pytest.raises(AuthError, match=r"the token has \d+ bytes: 8192 at most"):
        run(*asked, given="x" * 20_000)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "the token would allow nothing: give --publish"),
        (("--publish", "a", "--expires", "soon"), r'--expires "soon": write it like 90s'),
        (("--publish", "a", "--expires", "0s"), r'--expires "0s": write it like'),
        (("--publish", "a//b"), r'namespace "a//b" has an empty part'),
        (("--publish", "a", "--limit", "track=1"), "no such limit, did you mean tracks"),
        (("--publish", "a", "--limit", "tracks=-1"), "write it like tracks=10"),
        (("--publish", "a", "--limit", "tracks=1", "--format", "cat"), "no claim for limits"),
    ],
)
def test_token_that_cannot_be_signed_says_why(key: Path, args: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run("sign", "--key", key, *args)


def test_token_is_not_signed_with_a_public_half(public: Path) -> None:
    with pytest.raises(ConfigError, match="no key here can sign: give the file with the private"):
        run("sign", "--key", public, "--publish", "a")


def test_token_check_knows_its_actions(key: Path) -> None:
    with pytest.raises(ConfigError, match=r'--may "publsh": no such action, did you mean publish'):
        run("check", "--keys", key, "x", "--may", "publsh")


# --- show -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["jwt", "cat"])
def test_token_is_shown_and_said_to_be_unchecked(key: Path, written: str) -> None:
    token = run("sign", "--key", key, "--publish", "live", "--subject", "ann", "--format", written)
    shown = run("show", token)
    assert shown.startswith(f"not checked: a {written.upper()} that anybody could have written\n")
    assert re.search(r"^  exp +\d+, 20\d\d-", shown, re.MULTILINE)
    assert "publish: live/… any track" in shown
    said: dict[str, Any] = json.loads(run("show", "--json", token))
    assert (said["checked"], said["format"], said["claims"]["sub"]) == (False, written, "ann")


def test_token_that_says_what_cannot_be_enforced_is_shown_all_the_same() -> None:
    from support.tokens import jwt

    shown = run("show", jwt({"put": "", "cnf": {}, "sub": "\u202eann"}).decode())
    assert "cnf" in shown
    assert "\u202e" not in shown
    assert "relays would refuse it: the token is bound to a key (cnf)" in shown


def test_token_that_is_none_is_refused_without_a_traceback() -> None:
    for text in ("", "x", "a.b.c", "\u00e9"):
        with pytest.raises(LapsError):
            run("show", text or "-", given="")


# --- the page -----------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PROGRAM = f'laps() {{ {shlex.quote(sys.executable)} -c "from laps.cli import main; main()" "$@"; }}'


def test_token_commands_of_the_page_run_as_they_are(tmp_path: Path) -> None:
    (commands,) = re.findall(r"^## laps token\n\n```sh\n(.*?)```", PAGE.read_text(), re.M | re.S)
    script = f"{PROGRAM}\n{commands}"
    ran = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "not checked: a JWT" in ran.stdout
    assert "\nok: " in ran.stdout


def test_token_claims_of_the_page_are_a_token() -> None:
    claims = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.S)[0]
    read = read_claims(claims.encode())
    assert (read.subject, read.limits.tracks, len(read.scopes)) == ("ann", 10, 4)


# --- the program ----------------------------------------------------------------------------------

LAZY = "import sys; import laps.auth.judge, laps.auth.key_files; print(*sys.modules)"


def test_token_libraries_are_not_imported_before_a_token_needs_them() -> None:
    found = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, check=True, text=True)
    assert not {"cbor2", "cryptography", "jwt"} & set(found.stdout.split())


@pytest.mark.parametrize("command", [(), ("key",), ("sign",), ("show",), ("check",)])
def test_token_help_shows_how_it_is_used(command: tuple[str, ...]) -> None:
    assert f"Example: laps {' '.join(('token', *command))}" in run(*command, "--help")


# --- bound ----------------------------------------------------------------------------------------


def test_bound_prints_the_public_half_with_what_its_relay_may(key: Path, public: Path) -> None:
    args = ("--node", "1:*", "--role", "edge", "--region", "eu", "--namespace", "alpha")
    for file in (public, key):
        (jwk,) = json.loads(run("bound", file, *args, "--carries", "none"))["keys"]
        assert "d" not in jwk
        assert jwk["laps"] == {
            "nodes": ["1:*"],
            "roles": ["edge"],
            "regions": ["eu"],
            "namespaces": ["alpha"],
            "carries": [],
        }
        assert read_jwk(jwk, "").id == read_keys(public).find(None).id
    (jwk,) = json.loads(run("bound", public, "--carries", "2:*", "--carries", "3:1"))["keys"]
    assert jwk["laps"] == {"carries": ["2:*", "3:1"]}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "nothing would be bounded"),
        (("--node", "1"), "needs a colon"),
        (("--role", "king"), "king"),
    ],
)
def test_bound_says_what_is_wrong(public: Path, args: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run("bound", public, *args)
