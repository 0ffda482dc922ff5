"""Keys: what is taken from files, skipped or refused, and when they are read again."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from laps.auth.grants import Action
from laps.auth.judge import Verifier
from laps.auth.key_files import MAX_FILE_BYTES, KeyFiles, read_keys, read_revoked
from laps.auth.keys import KeySet, UnusableKeyError, generate, read_jwk, write_jwk
from laps.auth.refusals import AuthError, Reason
from laps.auth.tokens import Algorithm, write_base64url
from laps.errors import ConfigError
from support.tokens import NOW, cat, jwt, key, keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALL = {"put": "", "get": ""}


def public(algorithm: Algorithm = Algorithm.EDDSA) -> dict[str, Any]:
    return write_jwk(key(algorithm), private=False)


def secret() -> dict[str, Any]:
    return write_jwk(key(Algorithm.HS256), private=True)


# --- one key --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_key_signs_and_verifies(algorithm: Algorithm) -> None:
    made = generate(algorithm)
    assert len(made.id) == 16
    signature = made.sign(b"data")
    assert made.verifies(b"data", signature)
    assert not made.verifies(b"date", signature)
    assert not generate(algorithm).verifies(b"data", signature)
    for wrong in (b"", signature[:-1], signature + b"\0", bytes(len(signature))):
        assert not made.verifies(b"data", wrong)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_key_is_written_as_it_is_read(algorithm: Algorithm) -> None:
    made = generate(algorithm, "mine")
    read = read_jwk(write_jwk(made, private=True), "")
    assert (read.id, read.algorithm) == ("mine", algorithm)
    assert made.verifies(b"data", read.sign(b"data"))
    if algorithm is not Algorithm.HS256:
        half = read_jwk(write_jwk(made, private=False), "")
        assert half.verifies(b"data", made.sign(b"data"))
        with pytest.raises(ConfigError, match=r'key "mine" cannot sign: give the file'):
            half.sign(b"data")


def test_key_never_shows_its_secret() -> None:
    shown = repr(generate(Algorithm.HS256, "mine"))
    assert shown == "Key(id='mine', algorithm=<Algorithm.HS256: 'HS256'>, scope=None)"


def test_key_that_is_a_secret_has_no_public_half() -> None:
    with pytest.raises(ConfigError, match="has no public half"):
        write_jwk(key(Algorithm.HS256), private=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kid": "../x"}, r'kid "\.\./x" must be 1 to 128 of'),
        ({"kid": ""}, 'kid "" must be'),
        ({"kid": 7}, "kid 7 must be"),
        ({"kid": "x" * 129}, "must be 1 to 128"),
        ({"x": "AAAA"}, r'key "test-eddsa": '),
        ({"x": None}, "x must be text"),
        ({"x": "*"}, "x is not base64url"),
        ({"d": write_base64url(bytes(32))}, "x and d do not belong together"),
        ({"scope": "all"}, "scope must be an object"),
        ({"scope": {"root": "a"}}, "scope grants nothing"),
        ({"scope": {"put": [""], "post": [""]}}, "scope must be an object with root, put and get"),
        ({"scope": {"put": 7}}, "put must be a path"),
    ],
)
def test_key_that_is_wrong_is_refused_with_what_is_wrong(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        read_jwk({**public(), **change}, "")
    assert not isinstance(raised.value, UnusableKeyError)


def test_key_that_is_a_short_secret_is_refused() -> None:
    short = {"kid": "a", "kty": "oct", "k": write_base64url(bytes(31))}
    with pytest.raises(ConfigError, match="the secret has 31 bytes: 32 at least"):
        read_jwk(short, "")


def test_key_of_another_point_is_refused() -> None:
    wrong = {**public(Algorithm.ES256), "y": write_base64url(bytes(32))}
    with pytest.raises(ConfigError, match=r'key "test-es256": '):
        read_jwk(wrong, "")


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "RSA"},
        {"crv": "Ed448"},
        {"crv": "P-384", "kty": "EC"},
        {"alg": "ES256"},
        {"alg": "none"},
        {"alg": None},
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"key_ops": []},
        {"key_ops": "verify"},
    ],
)
def test_key_for_something_else_is_of_no_use(change: dict[str, Any]) -> None:
    with pytest.raises(UnusableKeyError):
        read_jwk({**public(), **change}, "")


def test_key_without_kty_is_a_secret_as_early_moq_token_wrote_them() -> None:
    old = {"alg": "HS256", "key_ops": ["sign", "verify"], "k": write_base64url(bytes(32)) + "="}
    assert read_jwk(old, "file").algorithm is Algorithm.HS256


# --- a scope in a key -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ({"root": "project/live/room", "put": ""}, True),
        ({"root": "project", "put": ["live/room"]}, True),
        ({"put": ["project/live/room"]}, True),
        ({"root": "project/lively", "put": ""}, False),
        ({"root": "project/live", "get": ""}, False),
        ({"put": ""}, False),
        ({"root": "project", "put": ["live/room", "other"]}, False),
        ({"root": "project", "put": "live", "laps": {"allow": [{"actions": ["fetch"]}]}}, False),
    ],
)
def test_key_scope_bounds_its_tokens_as_a_whole(claims: dict[str, Any], fits: bool) -> None:
    scope = {"root": "project", "put": ["live"]}
    by = read_jwk({**write_jwk(key(), private=True), "scope": scope}, "")
    verifier = Verifier(KeySet([by]))
    if fits:
        assert verifier.verify(0, jwt(claims, by=by), NOW).allows(Action.CLIENT_SETUP)
        return
    with pytest.raises(AuthError, match="grants more than its key") as raised:
        verifier.verify(0, jwt(claims, by=by), NOW)
    assert raised.value.reason is Reason.KEY_SCOPE


def test_key_scope_bounds_a_cat_too() -> None:
    by = read_jwk({**write_jwk(key(), private=True), "scope": {"put": ["live"]}}, "")
    verifier = Verifier(KeySet([by]))
    assert verifier.verify(1, cat({327: [[[0, 6], [b"live"]]]}, by=by), NOW).scopes
    with pytest.raises(AuthError, match="grants more than its key"):
        verifier.verify(1, cat({327: [[[0, 6]]]}, by=by), NOW)


# --- sets -----------------------------------------------------------------------------------------


def reason_of(found: KeySet, key_id: str | None) -> Reason:
    with pytest.raises(AuthError) as raised:
        found.find(key_id)
    return raised.value.reason


def test_keys_are_found_by_id_and_one_alone_without() -> None:
    assert keys().find("test-es256") is key(Algorithm.ES256)
    assert KeySet([key()]).find(None) is key()
    assert reason_of(keys(), None) is Reason.UNKNOWN_KEY
    assert reason_of(KeySet([]), None) is Reason.UNKNOWN_KEY


@pytest.mark.parametrize(
    "key_id",
    [
        "",
        "other",
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\x00b",
        "a\nb",
        "x" * 129,
        "test-eddsa ",
        "test-eddsa\u200b",
        "TEST-EDDSA",
        "t\u0435st-eddsa",
        "%2e%2e",
        "..",
        ".",
    ],
)
def test_key_ids_are_never_more_than_names(key_id: str) -> None:
    assert reason_of(keys(), key_id) is Reason.UNKNOWN_KEY


def test_keys_of_one_id_are_refused() -> None:
    other = generate(Algorithm.EDDSA, "test-eddsa")
    with pytest.raises(ConfigError, match='two keys have the key id "test-eddsa"'):
        KeySet([key(), other])
    bounded = read_jwk({**public(), "scope": {"put": ""}}, "")
    with pytest.raises(ConfigError, match="two keys have the key id"):
        KeySet([key(), bounded])


def test_keys_may_be_there_in_both_halves() -> None:
    half = read_jwk(public(), "")
    for both in ([key(), half], [half, key()]):
        assert KeySet(both).signer() is key()
        assert len(KeySet(both)) == 1


# --- files ----------------------------------------------------------------------------------------


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_keys_come_from_one_jwk_or_a_set(tmp_path: Path) -> None:
    assert [key.id for key in read_keys(write(tmp_path / "a.jwk", public()))] == ["test-eddsa"]
    both = {"keys": [public(), public(Algorithm.ES256)]}
    found = read_keys(write(tmp_path / "b.json", both))
    assert [key.id for key in found] == ["test-eddsa", "test-es256"]
    with pytest.raises(ConfigError, match="no key here can sign"):
        found.signer()


def test_keys_without_an_id_have_the_name_of_their_file(tmp_path: Path) -> None:
    nameless = {name: value for name, value in public().items() if name != "kid"}
    (found,) = read_keys(write(tmp_path / "spring-2026.jwk", nameless))
    assert found.id == "spring-2026"


def test_keys_come_as_base64url_as_moq_token_writes_them(tmp_path: Path) -> None:
    text = write_base64url(json.dumps(secret()).encode())
    (found,) = read_keys(write(tmp_path / "a.jwk", f"{text}\n"))
    assert found.id == "test-hs256"
    assert read_keys(tmp_path / "a.jwk").signer().id == "test-hs256"


@pytest.mark.parametrize("algorithm", [Algorithm.EDDSA, Algorithm.ES256])
def test_keys_come_in_pem(tmp_path: Path, algorithm: Algorithm) -> None:
    by = key(algorithm)
    (tmp_path / "half.pem").write_bytes(
        by.public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    (tmp_path / "whole.pem").write_bytes(pem(by.private))
    found = read_keys(tmp_path)
    assert [key.id for key in found] == ["half", "whole"]
    assert found.signer().id == "whole"
    assert found.find("half").verifies(b"data", by.sign(b"data"))


def pem(private: Any) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    made: bytes = private.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )
    return made


def test_keys_that_are_of_no_use_are_skipped_with_the_reason(tmp_path: Path) -> None:
    mixed = {"keys": [{"kid": "theirs", "kty": "RSA", "n": "AQAB", "e": "AQAB"}, public()]}
    found = read_keys(write(tmp_path / "a.json", mixed))
    assert [key.id for key in found] == ["test-eddsa"]
    (words,) = found.skipped
    assert words.endswith('a.json: key "theirs" is RSA: take Ed25519, P-256 or a secret (oct)')
    write(tmp_path / "b.json", {"keys": mixed["keys"][:1]})
    with pytest.raises(ConfigError, match=r'holds no key that could be used: .*"theirs" is RSA'):
        read_keys(tmp_path / "b.json")


@pytest.mark.parametrize("private", [ec.generate_private_key(ec.SECP384R1()), None])
def test_keys_in_pem_of_another_kind_are_of_no_use(tmp_path: Path, private: Any) -> None:
    private = private or rsa.generate_private_key(65537, 2048)
    (tmp_path / "a.pem").write_bytes(pem(private))
    with pytest.raises(ConfigError, match="take Ed25519 or P-256"):
        read_keys(tmp_path / "a.pem")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds neither JSON nor PEM"),
        ("hello", "holds neither JSON nor PEM"),
        ("{", "the file is not JSON in which each key is there once"),
        ('{"kid": "a", "kid": "b"}', "each key is there once"),
        ('{"keys": {}}', "keys must be a list"),
        ('{"keys": [7]}', "key 1 of the set is not a JSON object"),
        ('{"keys": []}', "holds no key that could be used"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not a key in PEM"),
    ],
)
def test_keys_that_cannot_be_read_name_the_file(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        read_keys(write(tmp_path / "keys.json", content))
    assert str(raised.value).startswith(f"{tmp_path}/keys.json: ")


def test_keys_that_are_not_there_or_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_keys(tmp_path / "none.json")
    (tmp_path / "large.json").write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than"):
        read_keys(tmp_path / "large.json")


def test_key_folder_is_read_and_never_left(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    write(tmp_path / "outside.jwk", {**secret(), "kid": "outside"})
    write(folder / "a.jwk", public())
    write(folder / "b.json", public(Algorithm.ES256))
    write(folder / ".hidden.jwk", "not a key")
    write(folder / "notes.txt", "not a key")
    found = read_keys(folder)
    assert sorted(key.id for key in found) == ["test-eddsa", "test-es256"]
    for key_id in ("../outside", "../outside.jwk", f"{tmp_path}/outside", "a.jwk", "notes"):
        assert reason_of(found, key_id) is Reason.UNKNOWN_KEY


# --- revocations, and reading again ---------------------------------------------------------------


def test_revoked_tokens_and_keys_are_listed_by_line(tmp_path: Path) -> None:
    path = write(tmp_path / "revoked", "# left\n\ntoken call 7\n  key  2026-spring \r\n")
    revoked = read_revoked(path)
    assert revoked.tokens == {"call 7"}
    assert revoked.keys == {"2026-spring"}


@pytest.mark.parametrize("line", ["call-7", "token", "token ", "jti call-7", "tokens a"])
def test_revoked_line_that_says_neither_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=r"revoked:2: .*: write token ID, or key ID"):
        read_revoked(write(tmp_path / "revoked", f"token a\n{line}\n"))


def test_key_files_notice_every_change(tmp_path: Path) -> None:
    path = write(tmp_path / "keys.json", public())
    files = KeyFiles(path)
    assert files.changed()
    files.read()
    assert not files.changed()
    changes: list[Callable[[], object]] = [
        lambda: write(path, public(Algorithm.ES256)),
        lambda: os.utime(path, ns=(1, 1)),
        lambda: write(tmp_path / "revoked", "token a\n"),
        lambda: write(tmp_path / "revoked", "token b\ntoken a\n"),
        lambda: (tmp_path / "revoked").unlink(),
        lambda: write(tmp_path / "new.json", public()).replace(path),
    ]
    for number, change in enumerate(changes):
        change()
        assert files.changed(), number
        files.read()
        assert not files.changed(), number
    path.unlink()
    assert files.changed()


def test_key_files_notice_a_key_that_joins_or_leaves_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a.jwk", public())
    files = KeyFiles(tmp_path)
    found, _ = files.read()
    write(tmp_path / "b.jwk", public(Algorithm.ES256))
    assert files.changed()
    assert len(files.read()[0]) == len(found) + 1
    (tmp_path / "a.jwk").unlink()
    assert files.changed()


def test_key_files_that_fail_leave_what_was_there_and_say_why(tmp_path: Path) -> None:
    path = write(tmp_path / "keys.json", public())
    files = KeyFiles(path)
    verifier = Verifier(*files.read())
    token = jwt(ALL)
    assert verifier.verify(0, token, NOW).scopes
    write(path, "{")
    words = files.reload(verifier)
    assert words is not None
    assert words.startswith(f"{path}: the file is not JSON")
    assert words.endswith("; the keys and revocations that were read before count")
    assert verifier.verify(0, token, NOW).scopes
    # It is not complained about again until somebody changed it.
    assert not files.changed()
    write(path, public(Algorithm.ES256))
    assert files.reload(verifier) is None
    with pytest.raises(AuthError, match="no key has the key id"):
        verifier.verify(0, token, NOW)


def test_key_files_read_revocations_beside_the_keys_or_where_they_are_named(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "keys.json", public())
    write(tmp_path / "revoked", "token call-7\n")
    elsewhere = tmp_path / "elsewhere"
    assert KeyFiles(path).read()[1].tokens == {"call-7"}
    assert KeyFiles(tmp_path).read()[1].tokens == {"call-7"}
    with pytest.raises(ConfigError, match="elsewhere: cannot be read"):
        KeyFiles(path, elsewhere).read()
    write(elsewhere, "key test-eddsa\n")
    assert KeyFiles(path, elsewhere).read()[1].keys == {"test-eddsa"}
