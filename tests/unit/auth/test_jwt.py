"""JSON Web Tokens: the claims of moq-relay and ours, and everything that is refused in them."""

from __future__ import annotations

import hmac
import json
from typing import Any

import jwt as pyjwt
import pytest

from laps.auth import issue
from laps.auth.grants import Action, Grant, Limits
from laps.auth.jwt import read_claims
from laps.auth.keys import write_jwk
from laps.auth.refusals import AuthError, Reason
from laps.auth.tokens import Algorithm, write_base64url
from support.tokens import NOW, jwt, key, verify

ALL = {"put": "", "get": ""}


def refusal(token: bytes, now: float = NOW) -> Reason:
    with pytest.raises(AuthError) as raised:
        verify(token, now)
    return raised.value.reason


def may(grant: Grant, action: Action, namespace: str, name: str = "video") -> bool:
    return grant.allows(action, tuple(map(str.encode, namespace.split("/"))), name.encode())


# --- the claims of moq-relay ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "publishes", "subscribes", "neither"),
    [
        (
            {"root": "demo", "put": ["my-stream"], "get": [""]},
            ["demo/my-stream", "demo/my-stream/x"],
            ["demo", "demo/other", "demo/my-stream", "demo/my-stream/x"],
            ["demos", "other", "demo2/my-stream"],
        ),
        (
            {"root": "rooms/123", "put": "alice", "get": ""},
            ["rooms/123/alice"],
            ["rooms/123/bob", "rooms/123/alice"],
            ["rooms/1234/alice", "rooms/12", "rooms"],
        ),
        ({"put": [""], "get": [""]}, ["a", "a/b"], ["a", "a/b"], []),
        ({"put": [], "get": [""]}, [], ["a/b"], []),
        ({"put": [""]}, ["a/b"], [], []),
        ({"root": "/demo//x/", "put": "/a/"}, ["demo/x/a"], [], ["demo/x", "demo/x/ab"]),
        # Only a slash parts a path, and no letter stands for another.
        ({"put": ["demo\uff0fa", "de\u0301mo"]}, ["demo\uff0fa"], [], ["demo/a", "d\u00e9mo"]),
    ],
)
def test_jwt_paths_are_those_of_moq_relay(
    claims: dict[str, Any], publishes: list[str], subscribes: list[str], neither: list[str]
) -> None:
    grant = verify(jwt(claims))
    for path in {*publishes, *subscribes, *neither}:
        assert may(grant, Action.PUBLISH, path) is (path in publishes), path
        assert may(grant, Action.PUBLISH_NAMESPACE, path) is (path in publishes), path
        assert may(grant, Action.SUBSCRIBE, path) is (path in subscribes), path
        assert may(grant, Action.FETCH, path) is (path in subscribes), path
        assert may(grant, Action.SUBSCRIBE_NAMESPACE, path) is (path in subscribes), path
    assert grant.allows(Action.CLIENT_SETUP)


@pytest.mark.parametrize("claims", [{}, {"root": "demo"}, {"put": [], "get": []}])
def test_jwt_that_grants_nothing_does_not_even_connect(claims: dict[str, Any]) -> None:
    grant = verify(jwt(claims))
    assert grant.scopes == ()
    assert not grant.allows(Action.CLIENT_SETUP)


def test_jwt_says_whom_and_until_when_it_is_for() -> None:
    claims = {**ALL, "sub": "ann", "jti": "call-7", "exp": int(NOW) + 100, "iat": int(NOW)}
    grant = verify(jwt(claims))
    assert (grant.subject, grant.id, grant.key_id) == ("ann", "call-7", key().id)
    assert grant.until == NOW + 100 + 60
    assert verify(jwt(ALL)).until is None


# --- our claim ------------------------------------------------------------------------------------


def test_jwt_claim_laps_says_what_paths_cannot() -> None:
    laps = {
        "allow": [
            {
                "actions": ["subscribe", "track-status"],
                "namespace": ["rooms", {"prefix": "team-"}],
                "ends": True,
                "track": {"suffix": ".json"},
            },
            {"actions": ["publish_namespace"], "namespace": "logs/\\xff"},
        ],
        "limits": {"tracks": 10, "bytes_in_per_s": 0},
    }
    grant = verify(jwt({"laps": laps}))
    assert may(grant, Action.SUBSCRIBE, "rooms/team-a", "a.json")
    assert may(grant, Action.TRACK_STATUS, "rooms/team-a", "a.json")
    assert may(grant, Action.REQUEST_UPDATE, "rooms/team-a", "a.json")
    assert not may(grant, Action.SUBSCRIBE, "rooms/team-a/x", "a.json")
    assert not may(grant, Action.SUBSCRIBE, "rooms/team-a", "a.xml")
    assert not may(grant, Action.FETCH, "rooms/team-a", "a.json")
    assert grant.allows(Action.PUBLISH_NAMESPACE, (b"logs", b"\xff"))
    assert not grant.allows(Action.PUBLISH_NAMESPACE, (b"logs", b"\\xff"))
    assert grant.allows(Action.CLIENT_SETUP)
    assert grant.limits == Limits(tracks=10, bytes_in_per_s=0)


@pytest.mark.parametrize(
    "laps",
    [
        [],
        "all",
        {"node": "1:2"},
        {"allow": {}},
        {"allow": [[]]},
        {"allow": [{}]},
        {"allow": [{"actions": "publish"}]},
        {"allow": [{"actions": [6]}]},
        {"allow": [{"actions": ["PUBLISH"]}]},
        {"allow": [{"actions": ["publish"], "only_on": "sunday"}]},
        {"allow": [{"actions": ["publish"], "ends": 1}]},
        {"allow": [{"actions": ["publish"], "namespace": None}]},
        {"allow": [{"actions": ["publish"], "namespace": [None]}]},
        {"allow": [{"actions": ["publish"], "namespace": [{"prefix": "a", "suffix": "b"}]}]},
        {"allow": [{"actions": ["publish"], "namespace": [{"regex": ".*"}]}]},
        {"allow": [{"actions": ["publish"], "track": None}]},
        {"allow": [{"actions": ["publish"], "track": {"prefix": 1}}]},
        {"limits": []},
        {"limits": {"tracks": True}},
        {"limits": {"tracks": -1}},
        {"limits": {"tracks": 1.5}},
        {"limits": {"tracks": 2**60}},
        {"limits": {"cookies": 1}},
    ],
)
def test_jwt_claim_laps_is_refused_where_anything_in_it_is_not_understood(laps: object) -> None:
    assert refusal(jwt({**ALL, "laps": laps})) is Reason.MALFORMED


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"root": 1},
        {"root": ["a"]},
        {"put": 1},
        {"put": None},
        {"put": {"a": 1}},
        {"put": [["a"]]},
        {"get": [1]},
        {"get": True},
        {"sub": 7},
        {"jti": ["a"]},
        {"iss": {}},
        {"aud": 7},
        {"aud": []},
        {"aud": [None]},
        {"sub": "\ud800"},
        {"put": "\udfff"},
    ],
)
def test_jwt_claims_of_another_type_are_refused(claims: dict[str, Any]) -> None:
    assert refusal(jwt({**ALL, **claims})) is Reason.MALFORMED


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    [
        *("1790000000.5", "1790000000.0", "-1", "true", "false", "null", '"1790000000"', "[]"),
        *("{}", "1e400", "NaN", "Infinity", "9" * 30, "9" * 5000, "253402300800"),
    ],
)
def test_jwt_times_are_whole_seconds(claim: str, value: str) -> None:
    assert refusal(jwt(f'{{"put": "", "{claim}": {value}}}')) is Reason.MALFORMED


@pytest.mark.parametrize(
    "payload",
    [
        '{"put": "a", "put": ""}',
        '{"exp": 1, "\\u0065xp": 9999999999, "put": ""}',
        '{"put": "", "laps": {"limits": {"tracks": 1, "tracks": 2}}}',
        "[]",
        '"put"',
        "null",
        "",
        "{",
        '{"put": ""} {}',
        '{"put": ""}\x00',
        '\ufeff{"put": ""}',
        "[" * 3000 + "]" * 3000,
        '{"a":' + "[" * 2900 + "]" * 2900 + "}",
    ],
)
def test_jwt_payload_is_one_json_object_with_each_key_once(payload: str) -> None:
    assert refusal(jwt(payload)) is Reason.MALFORMED


def test_jwt_header_has_each_key_once() -> None:
    kid = key().id
    header = f'{{"alg": "none", "alg": "EdDSA", "kid": "{kid}"}}'
    assert refusal(jwt(ALL, header)) is Reason.MALFORMED


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "none ", "HS512", "RS256"])
def test_jwt_algorithms_that_are_not_allowed_are_refused(name: str) -> None:
    token = jwt(ALL, {"alg": name})
    assert refusal(token) is Reason.ALGORITHM
    unsigned = token[: token.rindex(b".") + 1]
    assert refusal(unsigned) is Reason.ALGORITHM


@pytest.mark.parametrize("name", ["eddsa", "EdDSA\u200b", "\uff25dDSA", "Es256"])
def test_jwt_algorithms_are_compared_letter_by_letter(name: str) -> None:
    assert refusal(jwt(ALL, {"alg": name})) is Reason.ALGORITHM


@pytest.mark.parametrize("algorithm", [None, 1, ["EdDSA"], True])
def test_jwt_algorithm_is_text(algorithm: object) -> None:
    assert refusal(jwt(ALL, {"alg": algorithm})) is Reason.MALFORMED


def test_jwt_signed_with_a_public_key_as_secret_is_refused() -> None:
    """Algorithm confusion: everybody knows the public key, and HMAC would take it."""
    public = key(Algorithm.ES256).public
    from cryptography.hazmat.primitives import serialization as form

    pem = public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    raw = public.public_bytes(form.Encoding.X962, form.PublicFormat.UncompressedPoint)
    for secret in (pem, raw, json.dumps(write_jwk(key(Algorithm.ES256), private=False)).encode()):
        header = {"alg": "HS256", "kid": key(Algorithm.ES256).id}
        signed = ".".join(write_base64url(json.dumps(part).encode()) for part in (header, ALL))
        forged = f"{signed}.{write_base64url(hmac.digest(secret, signed.encode(), 'sha256'))}"
        assert refusal(forged.encode()) is Reason.ALGORITHM


@pytest.mark.parametrize("crit", [["exp"], [], ["b64"], None, "exp", ["unheard-of"]])
def test_jwt_with_critical_headers_is_refused(crit: object) -> None:
    assert refusal(jwt(ALL, {"crit": crit, "b64": True})) is Reason.CRITICAL


@pytest.mark.parametrize("kind", ["dpop-proof+jwt", "at+jwt", "JOSE", "", "JWT ", "\u017fWT"])
def test_jwt_of_another_type_is_refused(kind: str) -> None:
    assert refusal(jwt(ALL, {"typ": kind})) is Reason.UNKNOWN_TYPE
    assert refusal(jwt(ALL, {"cty": "JWT"})) is Reason.UNKNOWN_TYPE


@pytest.mark.parametrize("kind", ["JWT", "jwt", "Jwt"])
def test_jwt_type_has_no_case(kind: str) -> None:
    assert verify(jwt(ALL, {"typ": kind})).scopes


def test_jwt_bound_to_a_key_is_refused() -> None:
    assert refusal(jwt({**ALL, "cnf": {"jkt": "x"}})) is Reason.UNENFORCED


def test_jwt_claims_that_nobody_knows_are_ignored() -> None:
    assert verify(jwt({**ALL, "name": "Ann", "email": 7})) == verify(jwt(ALL))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token + b"=",
        lambda token: token + b"\n",
        lambda token: b" " + token,
        lambda token: token + b".",
        lambda token: b"." + token,
        lambda token: token.replace(b".", b""),
        lambda token: token.replace(b".", b".."),
        lambda token: token[: token.rindex(b".")],
        lambda token: token.replace(b".", "\u3002".encode()),
        lambda token: token[:5] + b"\n" + token[5:],
        lambda token: token[:5] + b"*" + token[5:],
        lambda token: b"\xff" + token,
        lambda token: b"",
        lambda token: b"..",
    ],
)
def test_jwt_has_one_spelling(spoil: Any) -> None:
    assert refusal(spoil(jwt(ALL))) is Reason.MALFORMED


def test_jwt_last_letters_that_stand_for_the_same_bytes_are_refused() -> None:
    token = jwt(ALL).decode()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # 64 bytes of a signature leave four bits of the last letter unused.
    other = letters[letters.index(token[-1]) ^ 1]
    assert refusal((token[:-1] + other).encode()) is Reason.MALFORMED


# --- an implementation that is not ours -----------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_jwt_of_ours_is_taken_by_pyjwt(algorithm: Algorithm) -> None:
    by = key(algorithm)
    terms = issue.Terms(publish=((b"live", b"cam"),), subject="ann", expires=9_999_999_999)
    token = issue.issue_jwt(terms, by)
    private = algorithm is Algorithm.HS256
    public = pyjwt.PyJWK(write_jwk(by, private=private))
    said = pyjwt.decode(token, public, algorithms=[str(algorithm)])
    assert said == {"sub": "ann", "exp": 9_999_999_999, "put": ["live/cam"]}
    assert pyjwt.get_unverified_header(token)["kid"] == by.id


@pytest.mark.parametrize("algorithm", Algorithm)
def test_jwt_of_pyjwt_is_taken_by_us(algorithm: Algorithm) -> None:
    by = key(algorithm)
    signer = pyjwt.PyJWK(write_jwk(by, private=True)).key
    token = pyjwt.encode(ALL, signer, algorithm=str(algorithm), headers={"kid": by.id})
    assert verify(token.encode()).scopes == read_claims(json.dumps(ALL).encode()).scopes
