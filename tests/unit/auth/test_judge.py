"""A verifier: time, audience, revocation, size, and what it remembers."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from laps.auth.grants import Action, Grant
from laps.auth.judge import MAX_TOKEN_BYTES, OUT_OF_BAND, Revoked, Verifier
from laps.auth.keys import KeySet, generate, read_jwk, write_jwk
from laps.auth.refusals import AuthError, Outcome, Reason
from laps.auth.tokens import Algorithm
from laps.wire.moqt.codes import RequestCode, SessionCode
from support.tokens import NOW, cat, jwt, key, keys, verify

ALL = {"put": "", "get": ""}
MOQT = {327: [[[0, 6]]]}
NOON = int(NOW)


def refusal(verifier: Verifier, token: bytes, now: float = NOW, token_type: int = 0) -> Reason:
    with pytest.raises(AuthError) as raised:
        verifier.verify(token_type, token, now)
    return raised.value.reason


def both(**claims: Any) -> list[bytes]:
    """The same claims as a JWT and as a CAT."""
    numbers = {"aud": 3, "exp": 4, "nbf": 5, "iat": 6, "jti": 7}
    values = {
        numbers[name]: value.encode() if name == "jti" else value for name, value in claims.items()
    }
    return [jwt({**ALL, **claims}), cat({**MOQT, **values})]


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", both(exp=NOON))
def test_exp_is_the_end_with_a_minute_for_clocks(token: bytes) -> None:
    verifier = Verifier(keys())
    assert verifier.verify(0, token, NOON - 1).until == NOON + 60
    assert verifier.verify(0, token, NOON + 59.9)
    for late in (NOON + 60, NOON + 1e9):
        assert refusal(verifier, token, late) is Reason.EXPIRED
        assert refusal(Verifier(keys()), token, late) is Reason.EXPIRED
    assert refusal(Verifier(keys(), skew_s=0), token, NOON) is Reason.EXPIRED


@pytest.mark.parametrize("token", [*both(nbf=NOON), *both(iat=NOON), *both(nbf=0, iat=NOON)])
def test_nbf_and_iat_are_the_beginning_with_a_minute_for_clocks(token: bytes) -> None:
    verifier = Verifier(keys())
    assert refusal(verifier, token, NOON - 61) is Reason.NOT_YET_VALID
    assert verifier.verify(0, token, NOON - 60)
    # Also from memory, where a clock is put back.
    assert refusal(verifier, token, NOON - 61) is Reason.NOT_YET_VALID


def test_expired_tokens_of_strangers_are_strangers_first() -> None:
    token = jwt({**ALL, "exp": 1}, {"kid": key().id}, by=generate(Algorithm.EDDSA))
    assert refusal(Verifier(keys()), token) is Reason.BAD_SIGNATURE


# --- audience -------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", both(aud=["relay.example", "other.example"]))
def test_aud_has_to_name_the_relay(token: bytes) -> None:
    assert Verifier(keys(), audience=["relay.example"]).verify(0, token, NOW)
    assert Verifier(keys(), audience=["a", "other.example"]).verify(0, token, NOW)
    for audience in (["relay"], ["RELAY.example"], []):
        assert refusal(Verifier(keys(), audience=audience), token) is Reason.AUDIENCE


def test_aud_is_one_text_too_and_may_be_left_out() -> None:
    verifier = Verifier(keys(), audience=["relay.example"])
    assert verifier.verify(0, jwt({**ALL, "aud": "relay.example"}), NOW)
    assert verifier.verify(0, jwt(ALL), NOW)
    assert refusal(verifier, jwt({**ALL, "aud": ""})) is Reason.AUDIENCE


# --- keys and signatures --------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_signature_of_another_key_is_refused(algorithm: Algorithm) -> None:
    stranger = generate(algorithm, key(algorithm).id)
    verifier = Verifier(keys())
    assert refusal(verifier, jwt(ALL, by=stranger)) is Reason.BAD_SIGNATURE
    assert refusal(verifier, cat(MOQT, by=stranger)) is Reason.BAD_SIGNATURE


@pytest.mark.parametrize("header", [{"jwk": {}}, {"jku": "https://evil.example"}, {"x5c": []}])
def test_keys_that_a_token_brings_along_are_not_looked_at(header: dict[str, Any]) -> None:
    stranger = generate(Algorithm.EDDSA, key().id)
    assert refusal(Verifier(keys()), jwt(ALL, header, by=stranger)) is Reason.BAD_SIGNATURE


def test_token_without_a_key_id_is_for_the_only_key() -> None:
    token = jwt(ALL, {"kid": None})
    assert Verifier(KeySet([key()])).verify(0, token, NOW).key_id == key().id
    assert refusal(Verifier(keys()), token) is Reason.UNKNOWN_KEY


@pytest.mark.parametrize("kid", [7, ["a"], True, {"a": 1}])
def test_key_id_of_another_type_is_malformed(kid: object) -> None:
    assert refusal(Verifier(keys()), jwt(ALL, {"kid": kid})) is Reason.MALFORMED


@pytest.mark.parametrize("kid", ["../../etc/passwd", "/etc/passwd", "a\0b", "", "\u202ea"])
def test_key_ids_with_paths_in_them_are_unknown(kid: str) -> None:
    assert refusal(Verifier(keys()), jwt(ALL, {"kid": kid})) is Reason.UNKNOWN_KEY


# --- revocation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("token", both(jti="call-7"))
@pytest.mark.parametrize(
    "revoked", [Revoked(tokens=frozenset({"call-7"})), Revoked(keys=frozenset({"test-eddsa"}))]
)
def test_revoked_tokens_and_tokens_of_revoked_keys_are_refused(
    token: bytes, revoked: Revoked
) -> None:
    verifier = Verifier(keys())
    grant = verifier.verify(0, token, NOW)
    verifier.recheck(grant, NOW)
    verifier.replace(keys(), revoked)
    assert refusal(verifier, token) is Reason.REVOKED
    with pytest.raises(AuthError, match="is revoked"):
        verifier.recheck(grant, NOW)


def test_token_without_an_id_is_not_revoked_by_an_empty_one() -> None:
    assert Verifier(keys(), Revoked(frozenset({""}))).verify(0, jwt(ALL), NOW)


def test_recheck_ends_what_has_no_key_or_no_time_left() -> None:
    verifier = Verifier(keys())
    grant = verifier.verify(0, jwt({**ALL, "exp": NOON + 10, "nbf": NOON}), NOW)
    verifier.recheck(grant, NOON + 69)
    with pytest.raises(AuthError, match="expired 60 s ago"):
        verifier.recheck(grant, NOON + 70)
    verifier.replace(KeySet([key(Algorithm.ES256)]), Revoked())
    with pytest.raises(AuthError, match="no key has the key id"):
        verifier.recheck(grant, NOW)


def test_recheck_ends_what_a_key_of_the_same_id_did_not_sign_or_may_not_grant() -> None:
    for algorithm in Algorithm:
        verifier = Verifier(keys())
        grant = verifier.verify(0, jwt(ALL, by=key(algorithm)), NOW)
        verifier.replace(KeySet([generate(algorithm, key(algorithm).id)]), Revoked())
        with pytest.raises(AuthError, match="is another than the one of this token"):
            verifier.recheck(grant, NOW)
    bounded = read_jwk({**write_jwk(key(), private=True), "scope": {"put": "live"}}, "")
    grant = Verifier(keys()).verify(0, jwt(ALL), NOW)
    with pytest.raises(AuthError, match="grants more than its key"):
        Verifier(KeySet([bounded])).recheck(grant, NOW)


def test_recheck_of_what_a_relay_grants_by_itself_looks_at_the_time_only() -> None:
    verifier = Verifier(keys())
    verifier.recheck(Grant("", ()), NOW)
    with pytest.raises(AuthError, match="expired"):
        verifier.recheck(Grant("", (), until=NOW), NOW)


# --- size and type --------------------------------------------------------------------------------


def test_tokens_that_are_too_large_are_not_looked_at() -> None:
    large = jwt({**ALL, "x": "x" * MAX_TOKEN_BYTES})
    verifier = Verifier(keys())
    assert refusal(verifier, large) is Reason.TOO_LARGE
    assert refusal(verifier, bytes(MAX_TOKEN_BYTES + 1), token_type=1) is Reason.TOO_LARGE
    assert verifier.signatures == 0
    assert Verifier(keys(), max_bytes=2 * len(large)).verify(0, large, NOW)


@pytest.mark.parametrize("token_type", [2, 3, 2**62 - 1])
def test_token_types_that_are_not_known_are_refused(token_type: int) -> None:
    assert refusal(Verifier(keys()), jwt(ALL), token_type=token_type) is Reason.UNKNOWN_TYPE


def test_jwt_is_no_cat() -> None:
    assert refusal(Verifier(keys()), jwt(ALL), token_type=1) is Reason.MALFORMED


# --- memory ---------------------------------------------------------------------------------------


def test_a_thousand_sessions_with_one_token_cost_one_signature() -> None:
    verifier = Verifier(keys())
    token = jwt({**ALL, "exp": NOON + 100})
    assert len({id(verifier.verify(0, token, NOW)) for _ in range(1000)}) == 1
    assert verifier.signatures == 1


def test_memory_is_bounded_and_forgets_what_was_used_longest_ago() -> None:
    verifier = Verifier(keys(), max_cached=2)
    one, two, three = (jwt({**ALL, "sub": name}) for name in ("one", "two", "three"))
    for token in (one, two, one, three, one):
        verifier.verify(0, token, NOW)
    assert verifier.signatures == 3
    verifier.verify(0, two, NOW)
    assert verifier.signatures == 4


def test_memory_is_emptied_when_keys_change() -> None:
    verifier = Verifier(keys())
    token = jwt(ALL)
    verifier.verify(0, token, NOW)
    verifier.replace(KeySet([generate(Algorithm.EDDSA, key().id)]), Revoked())
    assert refusal(verifier, token) is Reason.BAD_SIGNATURE


def test_memory_holds_no_refusals() -> None:
    verifier = Verifier(keys())
    token = jwt(ALL, by=generate(Algorithm.EDDSA, key().id))
    for _ in range(3):
        assert refusal(verifier, token) is Reason.BAD_SIGNATURE
    assert verifier.signatures == 3


# --- refusals -------------------------------------------------------------------------------------


def test_every_reason_is_one_of_the_three_that_moqt_has() -> None:
    outcomes = {reason: reason.outcome for reason in Reason}
    of = {
        outcome: {reason for reason in Reason if outcomes[reason] is outcome} for outcome in Outcome
    }
    for outcome in Outcome:
        assert {RequestCode[outcome.name].name, SessionCode[outcome.name].name} == {outcome.name}
    assert of[Outcome.EXPIRED_AUTH_TOKEN] == {Reason.EXPIRED}
    assert of[Outcome.MALFORMED_AUTH_TOKEN] == {
        Reason.MALFORMED,
        Reason.TOO_LARGE,
        Reason.UNKNOWN_TYPE,
    }


def test_refusals_survive_pickling_and_never_show_the_token() -> None:
    token = jwt({**ALL, "exp": 1, "sub": "secret-name"})
    with pytest.raises(AuthError) as raised:
        verify(token)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.reason, str(again)) == (Reason.EXPIRED, str(raised.value))
    assert "secret-name" not in str(again)
    assert token.decode()[:10] not in str(again)


def test_the_key_of_the_relay_itself_is_found_by_its_id_alone() -> None:
    own = generate(Algorithm.EDDSA, "own")
    verifier = Verifier(KeySet([key()]), own=own)
    grant = verifier.verify(OUT_OF_BAND, jwt({"get": ["laps"]}, by=own), NOW)
    assert grant.allows(Action.SUBSCRIBE, (b"laps",), b"plan")
    # A token that names no key is still for the only one that the operator gave.
    without = jwt(json.dumps({"get": ["a"]}), json.dumps({"alg": "EdDSA", "typ": "JWT"}))
    assert verifier.verify(OUT_OF_BAND, without, NOW).key_id == key().id
    verifier.replace(KeySet([key(Algorithm.ES256)]), Revoked())
    verifier.recheck(grant, NOW)
    with pytest.raises(AuthError, match="no key has the key id"):
        Verifier(KeySet([key()])).verify(OUT_OF_BAND, jwt({"get": ["laps"]}, by=own), NOW)
