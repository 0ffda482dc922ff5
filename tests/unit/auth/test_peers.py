"""What relays prove to each other with, and every way in which such a token is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laps.auth import peers
from laps.auth.bounds import UNBOUNDED, Bounds, NodePattern, holds, read_bounds
from laps.auth.judge import Revoked, Verifier
from laps.auth.keys import Key, KeySet, generate, read_jwk, write_jwk
from laps.auth.peers import MAX_LIFETIME_S, PeerVerifier, Place, ProofError, Side, Speaker, sign
from laps.auth.refusals import AuthError
from laps.auth.tokens import Algorithm
from laps.errors import ConfigError
from laps.types import NodeId, parse_node_id
from support.tokens import NOW, jwt

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE = parse_node_id("1:100")
SPEAKER = Speaker(NODE, "edge", "eu")
PLACE = Place("ab" * 32, Side.DIALLER)
KEY = generate(Algorithm.EDDSA, "relay")


def bounded(**members: object) -> Key:
    """The same key with bounds."""
    return read_jwk({**write_jwk(KEY, private=True), "laps": members}, "relay")


def verify(
    token: bytes,
    key: Key = KEY,
    node_id: NodeId = NODE,
    place: Place = PLACE,
    now: float = NOW,
    revoked: Revoked | None = None,
) -> peers.Proven:
    return PeerVerifier(KeySet([key]), revoked).verify(token, node_id, place, now)


def claims(**others: object) -> dict[str, Any]:
    """Those of a right token, and others over them; None takes one away."""
    said: Mapping[str, object] = {
        "sub": "1:100",
        "aud": PLACE.audience,
        "iat": int(NOW),
        "exp": int(NOW) + 60,
        "jti": "one",
        "laps": {"side": "dialler", "role": "edge", "region": "eu"},
        **others,
    }
    return {name: value for name, value in said.items() if value is not None}


def test_a_relay_proves_who_it_is() -> None:
    proven = verify(sign(SPEAKER, PLACE, KEY, NOW))
    assert proven.speaker == SPEAKER
    assert (proven.key_id, proven.bounds) == ("relay", UNBOUNDED)


def test_namespaces_that_a_relay_speaks_for_are_carried() -> None:
    speaker = Speaker(NODE, "edge", "eu", ((b"rooms", b"eu"), (b"\xff",)))
    proven = verify(sign(speaker, PLACE, KEY, NOW))
    assert proven.speaker == speaker
    assert proven.may_offer((b"rooms", b"eu", b"1"))
    assert not proven.may_offer((b"rooms",))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"sub": "1:101"}, "the token is that of node 1:101 (sub), not of 1:100"),
        ({"sub": "me"}, "needs a colon"),
        ({"aud": "cd" * 32}, "the token is for another server (aud)"),
        ({"aud": [PLACE.audience, "cd" * 32]}, "the token is for another server (aud)"),
        ({"aud": None}, "aud must be text"),
        ({"iat": None}, "iat must be a whole number"),
        ({"exp": None}, "exp must be a whole number"),
        ({"exp": int(NOW) + 61}, "the token is valid for 61 s: 60 at most"),
        ({"iat": int(NOW) - 180, "exp": int(NOW) - 120}, "the token expired 120 s ago"),
        ({"iat": int(NOW) + 90, "exp": int(NOW) + 100}, "the token is of 90 s from now"),
        ({"jti": None}, "jti must be text"),
        ({"laps": None}, "the token is not that of a relay"),
        ({"laps": {"allow": []}}, "the token is not that of a relay"),
        ({"laps": {"side": "dialled", "role": "edge"}}, "not that of the dialler (laps.side)"),
        ({"laps": {"side": "dialler", "role": "king"}}, 'no relay has the role "king"'),
        ({"laps": {"side": "dialler"}}, "laps.role must be text"),
        ({"laps": {"side": "dialler", "role": "edge", "x": 1}}, "unknown key"),
        ({"laps": {"side": "dialler", "role": "edge", "namespaces": "a"}}, "must be a list"),
    ],
)
def test_a_token_is_refused_for_what_it_says(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ProofError) as refused:
        verify(jwt(claims(**said), by=KEY))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"nodes": ["1:101", "2:*"]}, 'the key "relay" is not for node 1:100 (nodes)'),
        ({"roles": ["via"]}, 'is not for the role "edge" (roles)'),
        ({"regions": ["us"]}, 'is not for the region "eu" (regions)'),
        ({"namespaces": ["rooms/us"]}, 'is not for the namespace "rooms" (namespaces)'),
    ],
)
def test_a_token_that_goes_beyond_the_bounds_of_its_key_is_refused(
    members: dict[str, object], words: str
) -> None:
    token = sign(Speaker(NODE, "edge", "eu", ((b"rooms",),)), PLACE, KEY, NOW)
    with pytest.raises(ProofError) as refused:
        verify(token, bounded(**members))
    assert words in str(refused.value)
    verify(token, bounded(nodes=["1:*"], roles=["edge"], regions=["eu"], namespaces=["rooms"]))


def test_a_token_is_taken_once() -> None:
    verifier = PeerVerifier(KeySet([KEY]))
    token = sign(SPEAKER, PLACE, KEY, NOW)
    verifier.verify(token, NODE, PLACE, NOW)
    with pytest.raises(ProofError, match=r"used before \(jti\)"):
        verifier.verify(token, NODE, PLACE, NOW + 1)
    with pytest.raises(ProofError, match="expired"):
        verifier.verify(token, NODE, PLACE, NOW + 200)


def test_no_more_tokens_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "MAX_SEEN", 2)
    verifier = PeerVerifier(KeySet([KEY]))
    tokens = [sign(SPEAKER, PLACE, KEY, NOW) for _ in range(3)]
    for token in tokens:
        verifier.verify(token, NODE, PLACE, NOW)
    assert len(verifier._seen) == 2
    verifier.verify(sign(SPEAKER, PLACE, KEY, NOW + 1000), NODE, PLACE, NOW + 1000)
    assert len(verifier._seen) == 1


def test_neither_side_s_token_is_taken_for_the_other_s() -> None:
    answer = Place(PLACE.audience, Side.DIALLED)
    verify(sign(SPEAKER, answer, KEY, NOW), place=answer)
    for made, wanted in ((PLACE, answer), (answer, PLACE)):
        with pytest.raises(ProofError, match="not that of the"):
            verify(sign(SPEAKER, made, KEY, NOW), place=wanted)


def test_an_unknown_key_another_key_and_another_algorithm_are_refused() -> None:
    token = sign(SPEAKER, PLACE, KEY, NOW)
    with pytest.raises(ProofError, match='no key has the key id "relay"'):
        verify(token, generate(Algorithm.EDDSA, "another"))
    with pytest.raises(ProofError, match="the signature is not that of the key"):
        verify(token, generate(Algorithm.EDDSA, "relay"))
    for algorithm in (Algorithm.ES256, Algorithm.HS256):
        other = generate(algorithm, "relay")
        with pytest.raises(ProofError, match="is signed with EdDSA"):
            verify(sign(SPEAKER, PLACE, other, NOW), other)
    with pytest.raises(ProofError, match="three parts"):
        verify(b"nonsense")


def test_a_revoked_key_or_token_is_refused() -> None:
    with pytest.raises(ProofError, match='the key "relay" is revoked'):
        verify(sign(SPEAKER, PLACE, KEY, NOW), revoked=Revoked(keys=frozenset({"relay"})))
    with pytest.raises(ProofError, match='the token "one" is revoked'):
        verify(jwt(claims(), by=KEY), revoked=Revoked(tokens=frozenset({"one"})))


def test_a_peer_goes_with_its_key() -> None:
    verifier = PeerVerifier(KeySet([KEY]))
    proven = verifier.verify(sign(SPEAKER, PLACE, KEY, NOW), NODE, PLACE, NOW)
    verifier.recheck(proven)
    for keys, revoked, words in (
        ([generate(Algorithm.EDDSA, "another")], Revoked(), "no key has"),
        ([generate(Algorithm.EDDSA, "relay")], Revoked(), "is another now"),
        ([KEY], Revoked(keys=frozenset({"relay"})), "is revoked"),
        ([bounded(carries=[])], Revoked(), "has other bounds now"),
    ):
        verifier.replace(KeySet(keys), revoked)
        with pytest.raises(ProofError, match=words):
            verifier.recheck(proven)


def test_tokens_of_relays_and_of_clients_are_not_taken_for_each_other() -> None:
    token = sign(SPEAKER, PLACE, KEY, NOW)
    with pytest.raises(AuthError, match="unknown key"):
        Verifier(KeySet([KEY]), audience=[PLACE.audience]).verify(0, token, NOW)
    with pytest.raises(ProofError, match="not that of a relay"):
        verify(jwt(claims(laps={}, put="", get=""), by=KEY))


def test_the_lifetime_of_a_token_is_the_one_that_is_allowed() -> None:
    verify(sign(SPEAKER, PLACE, KEY, NOW), now=NOW + MAX_LIFETIME_S)


# -- bounds ----------------------------------------------------------------------------------------


def test_bounds_name_nodes_by_id_by_half_and_all() -> None:
    bounds = read_bounds({"nodes": ["1:100", "1.2:*"], "carries": ["*"]})
    assert bounds.carries == (NodePattern(0, 0),)
    for text, allowed in (("1:100", True), ("1:101", False), ("1.2:9", True), ("1.3:9", False)):
        assert holds(bounds.nodes, parse_node_id(text)) is allowed
    assert read_bounds(None) == UNBOUNDED == Bounds()


def test_a_stub_carries_nobody_whatever_its_key_says() -> None:
    for role, carries in (("edge", True), ("via", True), ("stub", False)):
        token = sign(Speaker(NODE, role), PLACE, KEY, NOW)
        assert verify(token).may_carry(parse_node_id("1:7")) is carries
    proven = verify(sign(SPEAKER, PLACE, KEY, NOW), bounded(carries=["2:*"]))
    assert proven.may_carry(parse_node_id("2:7"))
    assert not proven.may_carry(parse_node_id("1:7"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "laps must be an object"),
        ({"node": []}, 'laps has "node"; known: nodes, roles'),
        ({"nodes": "1:1"}, "laps.nodes must be a list of strings"),
        ({"nodes": ["1"]}, "needs a colon"),
        ({"nodes": ["x:*"]}, "digits"),
        ({"roles": ["king"]}, 'laps.roles has "king"; known: edge, via, stub, control'),
    ],
)
def test_bounds_that_are_wrong_are_named(value: object, words: str) -> None:
    jwk = {**write_jwk(KEY, private=False), "laps": value}
    with pytest.raises(ConfigError) as refused:
        read_jwk(jwk, "relay")
    assert words in str(refused.value)
    assert 'key "relay"' in str(refused.value)


# -- the golden token ------------------------------------------------------------------------------

VECTOR = Path(__file__).parents[2] / "vectors" / "authorization.txt"
RFC_8037 = {
    "kid": "rfc8037",
    "kty": "OKP",
    "crv": "Ed25519",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
}


def test_the_golden_token_proves_what_its_vector_says() -> None:
    *_, last = VECTOR.read_text().split("token = ")
    proven = verify(bytes.fromhex(last), read_jwk(RFC_8037, ""), now=1_790_000_030)
    assert proven.speaker == SPEAKER
    assert proven.id == "00112233445566778899aabbccddeeff"
