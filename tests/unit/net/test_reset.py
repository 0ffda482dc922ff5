"""Stateless resets: their bytes, their number, and that they come to an end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps import places
from laps.net import reset
from laps.net.reset import PeerTokens, Resets, relay_secret
from support.engines import SERVER, Pair

if TYPE_CHECKING:
    from pathlib import Path

SECRET = bytes(range(32))
CID = bytes.fromhex("0102030405060708")


def test_reset_token_is_the_hmac_of_the_connection_id() -> None:
    resets = Resets(SECRET, 8)
    assert resets.token(CID).hex() == "5ea9633fb4bd1788197520638af1f7a6"
    # A client that has no id of its own chooses ours, of up to 20 bytes; a packet is routed by 8.
    assert resets.token(CID + b"more of it") == resets.token(CID)
    assert Resets(bytes(32), 8).token(CID) != resets.token(CID)


def test_reset_ends_with_the_token_and_looks_like_a_packet() -> None:
    resets = Resets(SECRET, 8)
    packet = b"\x5f" + CID + bytes(1000)
    answers = {resets.answer(packet, 1.0) for _ in range(50)}
    assert len(answers) == 50
    for answer in answers:
        assert answer is not None
        assert len(answer) == 42
        assert answer[0] & 0xC0 == 0x40
        assert answer[-16:] == resets.token(CID)


@pytest.mark.parametrize(
    ("packet_bytes", "reset_bytes"),
    [(9, 0), (21, 0), (22, 21), (30, 29), (42, 41), (43, 42), (44, 42), (1472, 42)],
)
def test_reset_is_smaller_than_the_packet(packet_bytes: int, reset_bytes: int) -> None:
    answer = Resets(SECRET, 8).answer(b"\x40" + CID + bytes(packet_bytes - 9), 1.0)
    assert len(answer or b"") == reset_bytes


@given(st.integers(1, 1500))
def test_two_endpoints_that_reset_each_other_fall_silent(size: int) -> None:
    here, there = Resets(b"a" * 32, 8), Resets(b"b" * 32, 8)
    packet: bytes | None = b"\x40" + bytes(size - 1)
    rounds = 0
    while packet is not None:
        here, there = there, here
        packet = here.answer(packet, 1.0)
        rounds += 1
    assert rounds <= 23


def test_resets_are_so_many_a_second() -> None:
    resets = Resets(SECRET, 8)
    packet = b"\x40" + CID + bytes(100)
    answers = [resets.answer(packet, 5.0 + i / 2000) for i in range(1500)]
    assert sum(answer is not None for answer in answers) == reset.RESETS_A_SECOND
    assert resets.answer(packet, 6.0) is not None


def test_peer_token_is_found_at_the_end_of_a_datagram() -> None:
    tokens, token = PeerTokens(), Resets(SECRET, 8).token(CID)
    key = tokens.key_of(token)
    assert tokens.key(b"\x40\x01\x02\x03\x04" + token) == key
    assert tokens.key(b"\x40\x01\x02\x03\x05" + token[:-1] + b"\x00") != key
    assert tokens.key(b"\x40\x01\x02\x03" + token) is None
    assert PeerTokens().key_of(token) != key


def test_client_is_given_the_token_of_its_server_s_id() -> None:
    resets = Resets(SECRET, 8)
    client, server = Pair(resets=resets).connect()
    assert client.peer_reset_token == resets.token(server.cid)
    assert server.peer_reset_token is None


def test_client_without_an_id_is_given_the_token_of_the_id_it_chose() -> None:
    resets = Resets(SECRET, 8)
    client, server = Pair(resets=resets, client_cid_bytes=0).connect()
    assert client.peer_reset_token == resets.token(server.cid)


def test_reset_ends_the_connection_at_once() -> None:
    pair = Pair()
    client, _ = pair.connect()
    client.receive_reset()
    (close,) = pair.client_saw.closes
    assert close.by_peer
    assert not close.application
    assert "stateless reset" in str(close)
    assert client.terminated
    assert client.transmit(pair.now, 10) is None
    client.receive([bytes(50)], SERVER, pair.now)
    assert len(pair.client_saw.closes) == 1


def test_relay_has_the_same_secret_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "place"))
    made = [relay_secret(key, "1:1", "clients") for key in (b"key", b"key", None, None)]
    assert made[0] == made[1] != made[2] == made[3]
    assert relay_secret(b"key", "1:2", "clients") != made[0]
    assert relay_secret(b"key", "1:1", "peers") != made[0]


def test_relay_that_can_keep_no_secret_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "file" / "place"))
    with caplog.at_level(logging.INFO):
        first, second = (relay_secret(None, "1:1", "clients") for _ in range(2))
    assert first != second
    assert "connections from before will time out" in caplog.text
