"""The test vectors of draft-ietf-moq-c4m: tokens as they are, and what is to become of them."""

from __future__ import annotations

import json

import pytest

from laps.auth.cose import looks_like
from laps.auth.grants import Action
from laps.auth.judge import Verifier
from laps.auth.keys import KeySet, generate, read_jwk
from laps.auth.refusals import AuthError, Reason
from laps.auth.tokens import Algorithm, write_base64url
from support.tokens import NOW, cat, jwt, key
from support.tokens import keys as other_keys

SECRET = read_jwk({"kty": "oct", "k": write_base64url(bytes(range(32)))}, "vectors")
P256 = read_jwk(
    {
        "kty": "EC",
        "crv": "P-256",
        "x": write_base64url(
            bytes.fromhex("60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6")
        ),
        "y": write_base64url(
            bytes.fromhex("7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299")
        ),
    },
    "vectors",
)
AUDIENCES = ["https://relay.example.com", "https://moq-relay.example.com"]
VALID_AT = 1_700_003_600

Asked = list[tuple[int, list[str], str, bool]]

SCOPES: dict[str, tuple[str, Asked]] = {
    "moqt_publisher_exact": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVVCgBkBR4GDggIGgktleGFtcGxl"
            "LmNvbUVhbGljZYIBRnZpZGVvLQ.oAPD24Wu_zHnDcuM6a-ePeGvRJjbCa6U7iswdsKzFDk"
        ),
        [
            (2, ["example.com", "alice"], "video-hd", True),
            (6, ["example.com", "alice"], "video-sd", True),
            (6, ["example.com", "alice"], "audio-main", False),
            (4, ["example.com", "alice"], "video-hd", False),
            (6, ["example.com", "bob"], "video-hd", False),
        ],
    ),
    "moqt_subscriber_prefix": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVVCgBkBR4GCgwMEB4GCAVJjb25m"
            "ZXJlbmNlLmV4YW1wbGU.pfUPZultmyCm1GF2PvPXAYXzvK6d1D-OFNBLG1AwjDg"
        ),
        [
            (4, ["conference.example.room1"], "audio", True),
            (7, ["conference.example.room2"], "video", True),
            (4, ["other.domain"], "audio", False),
            (6, ["conference.example.room1"], "audio", False),
        ],
    ),
    "moqt_multi_scope": (
        (
            "ogEjEGNDQVQ.pAF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVVCgBkBR4KCggIGgkxsaXZlLmV4"
            "YW1wbGVIc3R1ZGlvLWGCggQHgYIBTGxpdmUuZXhhbXBsZRkBSPlcsA.byEzQmxc28UXFyFekHtgOtaVm"
            "WyIPl-63xNMOF0Q_IU"
        ),
        [
            (6, ["live.example", "studio-a"], "cam1", True),
            (4, ["live.example.studio-b"], "cam1", True),
            (6, ["live.example", "studio-b"], "cam1", False),
            (2, ["other.example", "studio-a"], "", False),
        ],
    ),
    "moqt_admin_wildcard": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVVCgBkBR4GBiQABAgMEBQYHCA.X"
            "lNItz7OGqnNEbaqZ_bQh6TL-wV6SDr8hXyOLmtQkj4"
        ),
        [
            (0, ["any.namespace"], "any-track", True),
            (6, ["any.namespace"], "any-track", True),
            (8, ["any.namespace"], "status", True),
        ],
    ),
    "moqt_suffix_match": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVVCgBkBR4GDgQSBggJMLmV4YW1w"
            "bGUuY29tggJGLWF1ZGlv.-eGYTPe_n1PeC0sgHdWCqgnKRHGYF-T89WTk269liBg"
        ),
        [
            (4, ["cdn.example.com"], "stream1-audio", True),
            (4, ["cdn.example.com"], "stream1-video", False),
            (4, ["cdn.other.org"], "stream1-audio", False),
        ],
    ),
}

OUTCOMES: dict[str, tuple[str, Reason | None]] = {
    "token_hmac_minimal": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQOBeBlodHRwczovL3JlbGF5LmV4YW1w"
            "bGUuY29tBBplVUKA.W17GD7Gj-B0YtejX7fRwLlUmEkje-ME81oCc9oZaaYY"
        ),
        None,
    ),
    "valid_basic": (
        (
            "ogEjEGNDQVQ.pAF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQOBeBlodHRwczovL3JlbGF5LmV4YW1w"
            "bGUuY29tBBplVUKABRplU_EA.9SztgnG4xgw8U9zDFnqPIuPn6hLwuilSigQcfPsArSg"
        ),
        None,
    ),
    "invalid_expired": (
        (
            "ogEjEGNDQVQ.ogF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaX14QAA.lq8nGBiZm80yUwl1kH_Tv"
            "2prKu_nV20JvxVJW8ZGkho"
        ),
        Reason.EXPIRED,
    ),
    "invalid_not_yet_valid": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVaUAAUaZVVCgA.fPIUugY7_oSeH"
            "lheu83_8Yyljsk3iP2zGeWRUi7NtUs"
        ),
        Reason.NOT_YET_VALID,
    ),
    "invalid_wrong_audience": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQOBeB9odHRwczovL290aGVyLXJlbGF5"
            "LmV4YW1wbGUuY29tBBplVUKA.b8KxAKxJglzhELMuc9bYmsikrx3F9Y3YdvpfHLbsyk0"
        ),
        Reason.AUDIENCE,
    ),
    "invalid_tampered_signature": (
        (
            "ogEjEGNDQVQ.owF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQOBeBlodHRwczovL3JlbGF5LmV4YW1w"
            "bGUuY29tBBplVUKA.pF7GD7Gj-B0YtejX7fRwLlUmEkje-ME81oCc9oZaaYY"
        ),
        Reason.BAD_SIGNATURE,
    ),
    # restricted by claims that are not enforced here
    "token_hmac_full": (
        (
            "ogEjEGNDQVQ.qgF4Gmh0dHBzOi8vaXNzdWVyLm1vcS5leGFtcGxlAnZ1c2VyOmFsaWNlQGV4YW1wbGUu"
            "Y29tA4J4Gmh0dHBzOi8vcmVsYXkxLmV4YW1wbGUuY29teBpodHRwczovL3JlbGF5Mi5leGFtcGxlLmNv"
            "bQQaZVVCgAUaZVPxAAYaZVPxAAdKdmVjdG9yLTAwMhkBNmZDQVQtdjEZATeBbDIwMy4wLjExMy41MBkB"
            "OAo.AqpYox40q1P6s8dVtHzwj0WKNgPaTZM9fAsc5GFPRNo"
        ),
        Reason.UNENFORCED,
    ),
    # restricted by claims that are not enforced here
    "dpop_jwk_binding": (
        (
            "ogEjEGNDQVQ.pAF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQQaZVVCgAihA1ggoLHC0-T1prfI2eDx"
            "orPE1eb3qLnA0eLzpLXG1-j5oLEZAUGiABg8AQE.sN9kLIp64zIN9zDXoTLYC0xsJU_1FNF3kaO0CbdA"
            "_3M"
        ),
        Reason.UNENFORCED,
    ),
}
ES256 = (
    "ogEmEGNDQVQ.pAF4GGh0dHBzOi8vYXV0aC5leGFtcGxlLmNvbQOBeB1odHRwczovL21vcS1yZWxheS5l"
    "eGFtcGxlLmNvbQQaZVVCgAUaZVPxAA.-jMV6d4GH9d9gUOUQormHaPXoh_f-xmAKwxXXFeAmOfNS2t1o"
    "WkN7tTCuq6ZS_xGLg2KIAbz6JeA80NXOClNeg"
)


def outcome(verifier: Verifier, token: str, now: float) -> Reason | None:
    try:
        verifier.verify(1, token.encode(), now)
    except AuthError as error:
        return error.reason
    return None


@pytest.mark.parametrize("vector", SCOPES)
def test_cat_vectors_of_the_draft_allow_what_they_say(vector: str) -> None:
    token, asked = SCOPES[vector]
    grant = Verifier(KeySet([SECRET])).verify(1, token.encode(), VALID_AT)
    for action, namespace, track, expected in asked:
        name = (Action(action), tuple(map(str.encode, namespace)), track.encode())
        assert grant.allows(*name) is expected, name
    assert grant.until == 1_700_086_400 + 60
    assert grant.revalidate_s == (300 if vector == "moqt_multi_scope" else None)
    assert Verifier(KeySet([SECRET])).verify(0, token.encode(), VALID_AT) == grant


@pytest.mark.parametrize("vector", OUTCOMES)
def test_cat_vectors_of_the_draft_are_judged_as_it_says(vector: str) -> None:
    token, expected = OUTCOMES[vector]
    now = 1_700_000_000 if vector == "invalid_not_yet_valid" else VALID_AT
    assert outcome(Verifier(KeySet([SECRET]), audience=AUDIENCES), token, now) is expected


def test_cat_vectors_are_for_their_keys_and_algorithms() -> None:
    verifier = Verifier(KeySet([P256]), audience=AUDIENCES)
    assert outcome(verifier, ES256, VALID_AT) is None
    assert outcome(verifier, OUTCOMES["valid_basic"][0], VALID_AT) is Reason.ALGORITHM
    stranger = Verifier(KeySet([generate(Algorithm.ES256)]), audience=AUDIENCES)
    assert outcome(stranger, ES256, VALID_AT) is Reason.BAD_SIGNATURE


# {1: -8}, the header of an EdDSA token.
MAP_HEADER = write_base64url(b"\xa1\x01\x27")


def dotted(header: bytes, payload: bytes, algorithm: Algorithm) -> str:
    signed = f"{write_base64url(header)}.{write_base64url(payload)}"
    return f"{signed}.{write_base64url(key(algorithm).sign(signed.encode()))}"


def test_cat_with_dots_and_jwt_are_never_taken_for_each_other() -> None:
    """Both sign the same kind of text, so that it must be plain which of the two it is."""
    verifier = Verifier(other_keys())
    one = jwt({"put": ""}).decode()
    assert outcome(verifier, one, NOW) is Reason.MALFORMED
    for header in ({}, {"alg": "EdDSA", "kid": key().id}):
        for spaces in ("", " ", "\n", "\r", "\t"):
            text = write_base64url(f"{spaces}{json.dumps(header)}".encode())
            assert not looks_like(f"{text}.e30.e30".encode())
    claims = one.partition(".")[2]
    crossed = f"{MAP_HEADER}.{claims}".encode()
    for token_type in (0, 1):
        with pytest.raises(AuthError, match="names no key"):
            verifier.verify(token_type, crossed, NOW)


def test_cat_number_of_the_vectors_is_no_algorithm_of_cose() -> None:
    by = key(Algorithm.HS256)
    verifier = Verifier(KeySet([by]))
    assert outcome(verifier, dotted(b"\xa1\x01\x23", b"\xa0", Algorithm.HS256), NOW) is None
    with pytest.raises(AuthError, match="alg is -4"):
        verifier.verify(1, cat({}, {1: -4}, by=by), NOW)


@pytest.mark.parametrize("change", [b"=", b"\n", b".", b"*", b"\xff"])
def test_cat_with_dots_has_one_spelling(change: bytes) -> None:
    token = OUTCOMES["valid_basic"][0].encode()
    for spoiled in (token + change, token.replace(b".", change + b".", 1), token[:5] + change):
        with pytest.raises(AuthError):
            Verifier(KeySet([SECRET]), audience=AUDIENCES).verify(1, spoiled, VALID_AT)
