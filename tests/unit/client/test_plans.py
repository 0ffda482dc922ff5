"""The signed plan: what is believed, and what is not."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from laps.client.plans import DIRECT, PlanDocument, PlannedTrack, open_plan, sign_plan
from laps.client.sealed import MAX_BYTES, InvalidDocument, key_text, make_key, parse_key, read_key
from laps.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = KEY.public_key()


def document(**changes: object) -> PlanDocument:
    plan = PlanDocument(
        sequence=1_700_000_000_000,
        issued_at=1_700_000_000.0,
        expires_at=1_700_003_600.0,
        policy="sha256:00",
        regions={"eu": ["1:1", "1:2"], "us": ["2:1"]},
        tracks=[PlannedTrack("00000000000000ff", "a/b c", {"eu": "1:9", "us": DIRECT})],
    )
    return msgspec.structs.replace(plan, **changes)


def test_what_was_signed_is_what_is_read() -> None:
    assert open_plan(sign_plan(document(), KEY), PUBLIC) == document()


def test_the_same_plan_is_signed_as_the_same_bytes() -> None:
    again = document(regions={"us": ["2:1"], "eu": ["1:1", "1:2"]})
    assert sign_plan(document(), KEY) == sign_plan(again, KEY)


def test_a_changed_byte_anywhere_is_noticed() -> None:
    sealed = sign_plan(document(), KEY)
    for place in range(0, len(sealed), 7):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(InvalidDocument):
            open_plan(bytes(changed), PUBLIC)


def test_another_key_is_not_believed_and_is_named() -> None:
    other = Ed25519PrivateKey.generate()
    with pytest.raises(InvalidDocument, match=r"signed by .*, and .* is followed"):
        open_plan(sign_plan(document(), other), PUBLIC)


def test_who_claims_another_key_is_found_out() -> None:
    forged = sign_plan(document(), Ed25519PrivateKey.generate())
    head, _, plan = forged.partition(b"\n")
    seal = msgspec.json.decode(head) | {"key": key_text(PUBLIC)}
    with pytest.raises(InvalidDocument, match="does not fit"):
        open_plan(msgspec.json.encode(seal) + b"\n" + plan, PUBLIC)


@pytest.mark.parametrize("garbage", [b"", b"\n", b"{}", b'{"key": 1}\n{}', b"\xff" * 100])
def test_what_is_no_plan_is_refused(garbage: bytes) -> None:
    with pytest.raises(InvalidDocument, match="not a signed document"):
        open_plan(garbage, PUBLIC)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": "laps-plan/2"}, "laps-plan/2"),
        ({"regions": {"eu": ["nowhere"]}}, "nowhere"),
        ({"tracks": [PlannedTrack("not hexadecimal", "", {})]}, "not hexadecimal"),
        ({"tracks": [PlannedTrack("ff", "", {"eu": "1.2"})]}, "1.2"),
    ],
)
def test_a_signed_plan_that_makes_no_sense_is_refused(
    changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidDocument, match=problem):
        open_plan(sign_plan(document(**changes), KEY), PUBLIC)


def test_a_plan_that_is_too_large_is_not_signed() -> None:
    tracks = [PlannedTrack("ff", "x" * 1000, {})] * (MAX_BYTES // 1000)
    with pytest.raises(InvalidDocument, match="publish fewer tracks"):
        sign_plan(document(tracks=tracks), KEY)


def test_a_key_is_written_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "plan.key"
    text = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_text(read_key(path).public_key()) == text
    sealed = sign_plan(document(), read_key(path))
    assert open_plan(sealed, parse_key(text)) == document()


def test_a_key_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "plan.key"
    make_key(path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        make_key(path)
    assert path.read_bytes() == before


def test_what_is_no_key_says_how_to_make_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.key"
    with pytest.raises(ConfigError, match="keygen"):
        read_key(path)
    path.write_text("hello")
    with pytest.raises(ConfigError, match="keygen"):
        read_key(path)
    from cryptography.hazmat.primitives import serialization

    path.write_bytes(
        X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(ConfigError, match="Ed25519"):
        read_key(path)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:!!!!", "AAAA", "ed25519:AAAA"])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="keygen"):
        parse_key(text)
