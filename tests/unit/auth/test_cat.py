"""Common Access Tokens: the vectors of C4M, COSE in all its forms, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import cbor2
import pytest

from laps.auth import issue
from laps.auth.cat import Claim, read_claims, write_scope
from laps.auth.grants import Action, Match, MatchType, Scope
from laps.auth.refusals import AuthError, Reason
from laps.auth.tokens import Algorithm
from support.tokens import NOW, cat, key, verify

EVERYTHING = {Claim.MOQT: [[list(range(9))]]}
SIGN1, MAC0, CWT = b"\xd2", b"\xd1", b"\xd8\x3d"


def refusal(token: bytes, now: float = NOW, token_type: int = 1) -> Reason:
    with pytest.raises(AuthError) as raised:
        verify(token, now, token_type)
    return raised.value.reason


# --- claims that restrict -------------------------------------------------------------------------

VALID_AT = 1_700_003_600


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("catu", "a2190136664341542d763119013805"),
        (
            "catnip",
            (
                "a1190137846d3139322e3136382e312e313030a16869705f72616e67656a31302e302e302e302f38a163"
                "61736e19fc00a16961736e5f72616e67658219fc0019fd00"
            ),
        ),
        (
            "cath",
            (
                "a119013b83782068747470733a2f2f6578616d706c652e636f6d2f6c6976652f73747265616d31a16670"
                "7265666978781868747470733a2f2f6578616d706c652e636f6d2f766f642fa166737566666978652e6d"
                "337538"
            ),
        ),
        ("catalpn", "a119013a82666d6f712d3030626833"),
        (
            "cnf",
            (
                "a401781868747470733a2f2f617574682e6578616d706c652e636f6d041a6555428008a1035820a0b1c2"
                "d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b1190141a200183c0101"
            ),
        ),
    ],
)
def test_cat_claims_that_restrict_and_are_not_enforced_are_refused(name: str, payload: str) -> None:
    with pytest.raises(AuthError, match=f"the claim {name} cannot be enforced") as raised:
        verify(cat(bytes.fromhex(payload)), VALID_AT, 1)
    assert raised.value.reason is Reason.UNENFORCED


@pytest.mark.parametrize(
    "claim", [8, 308, 311, 313, 316, 321, 323, 324, 329, 999, -1, "moqt", b"x"]
)
def test_cat_claims_that_nobody_knows_are_refused(claim: object) -> None:
    assert refusal(cat({**EVERYTHING, claim: 1})) is Reason.UNENFORCED


# --- COSE -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("outer", [b"", CWT])
@pytest.mark.parametrize("tagged", [True, False])
def test_cat_is_read_tagged_and_untagged(algorithm: Algorithm, outer: bytes, tagged: bool) -> None:
    tag = (MAC0 if algorithm is Algorithm.HS256 else SIGN1) if tagged else b""
    token = cat(EVERYTHING, by=key(algorithm), tag=outer + tag)
    grant = verify(token, token_type=1)
    assert grant.allows(Action.PUBLISH, (b"a",), b"b")
    assert grant.key_id == key(algorithm).id
    assert verify(token, token_type=0) == grant


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padding", [b"=", b""])
def test_cat_is_read_as_text_where_both_sides_agreed_so(encode: Any, padding: bytes) -> None:
    token = cat(EVERYTHING)
    text = encode(token) if padding else encode(token).rstrip(b"=")
    assert verify(text) == verify(token)
    assert refusal(text, token_type=1) is Reason.MALFORMED


@pytest.mark.parametrize("number", [-9, -19])
def test_cat_algorithms_have_newer_names(number: int) -> None:
    by = key(Algorithm.ES256 if number == -9 else Algorithm.EDDSA)
    assert verify(cat(EVERYTHING, {1: number}, by), token_type=1).scopes


def test_cat_names_its_key_in_either_header() -> None:
    protected = cbor2.dumps({1: -8})
    body = cbor2.dumps(EVERYTHING)
    signature = key().sign(cbor2.dumps(["Signature1", protected, b"", body]))
    token = cbor2.dumps([protected, {4: key().id.encode()}, body, signature])
    assert verify(token, token_type=1).key_id == key().id
    assert refusal(cbor2.dumps([protected, {}, body, signature])) is Reason.UNKNOWN_KEY


@pytest.mark.parametrize("number", [-4, 0, -257, -37, 6, 4, 1, 2**70, None, "ES256", True, -7.5])
def test_cat_algorithms_that_are_not_allowed_are_refused(number: object) -> None:
    token = cat(EVERYTHING, {1: number})
    assert refusal(token) in (Reason.ALGORITHM, Reason.MALFORMED)


def test_cat_algorithm_is_protected() -> None:
    body, protected = cbor2.dumps(EVERYTHING), cbor2.dumps({4: key().id.encode()})
    for header in (protected, b"", b"\xa0"):
        signature = key().sign(cbor2.dumps(["Signature1", header, b"", body]))
        token = cbor2.dumps([header, {1: -8}, body, signature])
        assert refusal(token) is Reason.ALGORITHM


def test_cat_header_in_both_places_is_refused() -> None:
    assert refusal(cat(EVERYTHING, unprotected={1: -8})) is Reason.MALFORMED
    assert refusal(cat(EVERYTHING, unprotected={4: b"other"})) is Reason.MALFORMED


def test_cat_signed_with_a_public_key_as_secret_is_refused() -> None:
    """Algorithm confusion: the key is for signatures, and the token says MAC."""
    import hmac

    protected = cbor2.dumps({1: 5, 4: key().id.encode()})
    body = cbor2.dumps(EVERYTHING)
    secret = key().public.public_bytes_raw()
    seal = hmac.digest(secret, cbor2.dumps(["MAC0", protected, b"", body]), "sha256")
    assert refusal(cbor2.dumps([protected, {}, body, seal])) is Reason.ALGORITHM


def test_cat_tag_and_algorithm_belong_together() -> None:
    assert refusal(cat(EVERYTHING, tag=MAC0)) is Reason.ALGORITHM
    assert refusal(cat(EVERYTHING, by=key(Algorithm.HS256), tag=SIGN1)) is Reason.ALGORITHM


@pytest.mark.parametrize("crit", [[99], [], [1], None])
def test_cat_with_critical_headers_is_refused(crit: object) -> None:
    assert refusal(cat(EVERYTHING, {2: crit})) is Reason.CRITICAL
    assert refusal(cat(EVERYTHING, unprotected={2: crit})) is Reason.CRITICAL


@pytest.mark.parametrize("kind", ["CAT", "application/cwt", 61])
def test_cat_types_that_are_known(kind: object) -> None:
    assert verify(cat(EVERYTHING, {16: kind}), token_type=1).scopes


@pytest.mark.parametrize("kind", ["JWT", "cat ", "", 60, None, True, b"CAT", ["CAT"]])
def test_cat_of_another_type_is_refused(kind: object) -> None:
    assert refusal(cat(EVERYTHING, {16: kind})) is Reason.UNKNOWN_TYPE


@pytest.mark.parametrize(
    "key_id", [b"../../etc/passwd", b"/etc/passwd", b"a\x00b", b"", b"\xff", b"x" * 129]
)
def test_cat_key_ids_are_no_paths(key_id: bytes) -> None:
    assert refusal(cat(EVERYTHING, {4: key_id})) is Reason.UNKNOWN_KEY


# --- CBOR -----------------------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b"\xa1\x19\x01\x47" + b"\x81" * depth + b"\x00"


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "80",
        "01",
        "f6",
        "a104",  # breaks off
        "a1041a6a9d000000",  # something after the end
        "a2041a6a9d0000041b00000002540be3ff",  # exp twice
        "bf041a6a9d0000ff",  # a length that is not told first
        "a104c11a6a9d0000",  # a tag: a date
        "a104c2411a",  # a tag: a long number
        "a101d823632e2a2b",  # a tag: a pattern
        "d81ca0",  # a tag: something shared
        "a101d81d00",  # a tag: a reference to it
        "bb7fffffffffffffff",
        "9bffffffffffffffff",
        "5bffffffffffffffff",
        "a1015bffffffffffffffff",
        "a1a10101",
        "a101f8ff00",
        "a10161ff",
    ],
)
def test_cat_payload_is_one_plain_map_with_each_key_once(payload: str) -> None:
    assert refusal(cat(bytes.fromhex(payload))) in (Reason.MALFORMED, Reason.UNENFORCED)


@pytest.mark.parametrize("depth", [8, 100, 5000])
def test_cat_cannot_be_nested_deeply(depth: int) -> None:
    assert refusal(cat(nested(depth))) is Reason.MALFORMED
    assert refusal(b"\x84" * depth) is Reason.MALFORMED


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x84",
        SIGN1,
        CWT + CWT + SIGN1,
        cbor2.dumps([b"", {}, b""]),
        cbor2.dumps([b"", {}, b"", b"", b""]),
        cbor2.dumps([b"", [], b"", b""]),
        cbor2.dumps(["", {}, b"", b""]),
        cbor2.dumps([b"\x01", {}, b"", b""]),
        cbor2.dumps([b"\xa0\xa0", {}, b"", b""]),
        cbor2.dumps([b"", {}, None, b""]),
        cbor2.dumps({1: 2}),
    ],
)
def test_cat_that_is_no_cose_message_is_malformed(token: bytes) -> None:
    assert refusal(token) is Reason.MALFORMED


# --- claims ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [Claim.EXP, Claim.NBF, Claim.IAT])
@pytest.mark.parametrize(
    "value", [1.79e9, -1, True, False, None, "1790000000", [], b"x", float("inf"), 2**40, 2**63]
)
def test_cat_times_are_whole_seconds(claim: Claim, value: object) -> None:
    assert refusal(cat({**EVERYTHING, claim: value})) is Reason.MALFORMED


@pytest.mark.parametrize(
    "claims",
    [
        {Claim.ISS: 1},
        {Claim.SUB: b"ann"},
        {Claim.AUD: 1},
        {Claim.AUD: []},
        {Claim.CTI: "text"},
        {Claim.MOQT_REVAL: "300"},
        {Claim.MOQT_REVAL: -1},
        {Claim.MOQT_REVAL: True},
        {Claim.MOQT_REVAL: float("nan")},
        {Claim.MOQT_REVAL: float("inf")},
        {True: "iss"},
        {1.0: "iss"},
    ],
)
def test_cat_claims_of_another_type_are_refused(claims: dict[Any, Any]) -> None:
    assert refusal(cat({**EVERYTHING, **claims})) in (Reason.MALFORMED, Reason.UNENFORCED)


@pytest.mark.parametrize(
    "moqt",
    [
        None,
        [],
        {},
        [[]],
        [[[]]],
        [[6]],
        [[["6"]]],
        [[[True]]],
        [[[6.0]]],
        [[[6], []]],
        [[[6], None]],
        [[[6], [None, b"a"]]],
        [[[6], [b"a", None, None]]],
        [[[6], ["a"]]],
        [[[6], [[0, b"a"]]]],
        [[[6], [[3, b"a"]]]],
        [[[6], [[True, b"a"]]]],
        [[[6], [[1, "a"]]]],
        [[[6], [[1]]]],
        [[[6], {0: b"a"}]],
        [[[6], [b"a"], None]],
        [[[6], [b"a"], [b"b"]]],
        [[[6], [b"a"], b"b", b"c"]],
    ],
)
def test_cat_scopes_are_those_of_the_draft(moqt: object) -> None:
    assert refusal(cat({Claim.MOQT: moqt})) is Reason.MALFORMED


def test_cat_without_scopes_allows_nothing() -> None:
    grant = verify(cat({Claim.SUB: "ann"}), token_type=1)
    assert grant.scopes == ()
    assert not grant.allows(Action.CLIENT_SETUP)


def test_cat_actions_of_a_later_draft_allow_nothing() -> None:
    grant = verify(cat({Claim.MOQT: [[[6, 9, -1, 2**40]]]}), token_type=1)
    assert grant.scopes[0].actions == {Action.PUBLISH}


def test_cat_that_is_to_be_verified_oftener_than_we_do_is_refused() -> None:
    assert refusal(cat({**EVERYTHING, Claim.MOQT_REVAL: 0.5})) is Reason.UNENFORCED
    assert verify(cat({**EVERYTHING, Claim.MOQT_REVAL: 1}), token_type=1).revalidate_s == 1
    assert verify(cat({**EVERYTHING, Claim.MOQT_REVAL: 0}), token_type=1).revalidate_s is None


@pytest.mark.parametrize(("cti", "shown"), [(b"call-7", "call-7"), (b"\x01\xff", "01ff")])
def test_cat_is_revoked_by_what_its_issuer_called_it(cti: bytes, shown: str) -> None:
    assert verify(cat({**EVERYTHING, Claim.CTI: cti}), token_type=1).id == shown


@pytest.mark.parametrize("version", [1, "CAT-v1"])
def test_cat_versions(version: object) -> None:
    assert verify(cat({**EVERYTHING, Claim.CATV: version}), token_type=1).scopes
    assert refusal(cat({**EVERYTHING, Claim.CATV: 2})) is Reason.UNENFORCED


# --- signing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_cat_of_ours_says_what_a_jwt_of_ours_says(algorithm: Algorithm) -> None:
    terms = issue.Terms(
        publish=((b"live", b"cam"),),
        subscribe=((), (b"a",)),
        subject="ann",
        id="call-7",
        issued=int(NOW),
        expires=int(NOW) + 100,
    )
    by = key(algorithm)
    one = verify(issue.issue_cat(terms, by), token_type=1)
    assert one == verify(issue.issue_jwt(terms, by).encode())
    assert one.allows(Action.PUBLISH, (b"live", b"cam"), b"video")


@pytest.mark.parametrize(
    "scope",
    [
        Scope(frozenset({Action.FETCH})),
        Scope(frozenset({Action.FETCH}), (Match(b"a"),), ends=True),
        Scope(frozenset({Action.FETCH}), (), ends=True),
        Scope(
            frozenset({Action.FETCH, Action.PUBLISH}),
            (Match(b"a", MatchType.PREFIX), Match(b"\xff", MatchType.SUFFIX)),
            track=Match(b"x"),
        ),
    ],
)
def test_cat_scopes_are_written_as_they_are_read(scope: Scope) -> None:
    payload = cbor2.dumps({Claim.MOQT: [write_scope(scope)]})
    assert read_claims(payload).scopes == (scope,)


def test_cat_scope_of_all_namespaces_and_one_track() -> None:
    scope = Scope(frozenset({Action.FETCH}), track=Match(b"x"))
    (read,) = read_claims(cbor2.dumps({Claim.MOQT: [write_scope(scope)]})).scopes
    for namespace in ((b"a",), (b"a", b"b")):
        assert read.allows(Action.FETCH, namespace, b"x")
        assert not read.allows(Action.FETCH, namespace, b"y")
