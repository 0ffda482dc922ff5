"""What a server answers to clients of every size, before it knows that they are where they say."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import cache

import pytest
from aioquic.quic.configuration import QuicConfiguration as ForeignConfiguration
from aioquic.quic.connection import QuicConnection as ForeignConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted
from qh3._hazmat import pull_quic_header

from laps.config import QuicConfig
from laps.net.engine import CONNECTION_ID_BYTES, Engine
from laps.net.handshake import (
    AMPLIFICATION,
    MAX_UNPROVED_ADDRESSES,
    AddressLimit,
    encode_refusal,
)
from laps.net.tls import Identity, self_signed
from support.engines import CLIENT, SERVER, Recorder, configuration, identity
from support.initials import initial

# RFC 9000 section 14.1: a client takes no less for an answer that it has to acknowledge.
MIN_DATAGRAM = 1200

ELSEWHERE = ("192.0.2.9", 1000)


@cache
def long_identity() -> Identity:
    """A certificate of five packets, which are more than the answer to one."""
    return self_signed([f"relay-{n}.a-long-name-of-a-host.example.org" for n in range(120)])


@dataclass
class Server:
    """A server's engine, and how much came to it and went from it."""

    shown: Identity = field(default_factory=identity)
    retry_cid: bytes | None = None
    received: int = 0
    sent: list[bytes] = field(default_factory=list)
    engine: Engine | None = None
    completed: list[str] = field(default_factory=list)
    now: float = 100.0

    def take(self, datagram: bytes, *, addr: tuple[str, int] = CLIENT) -> list[bytes]:
        """Receive a datagram; what is sent at once."""
        header = pull_quic_header(datagram, 0, CONNECTION_ID_BYTES)
        if self.engine is None:
            shown = configuration(QuicConfig(), is_client=False, alpn=["laps"], cid_bytes=8)
            shown.load_cert_chain(self.shown.certificate, self.shown.key)
            self.engine = Engine(
                shown,
                QuicConfig(),
                self._complete,
                original_destination_cid=header[3],
                retry_source_cid=self.retry_cid,
                client_cid=header[4],
            )
        self.received += len(datagram)
        self.engine.receive([datagram], addr, self.now)
        return self.transmit()

    def transmit(self) -> list[bytes]:
        assert self.engine is not None
        sent: list[bytes] = []
        while (batch := self.engine.transmit(self.now, 64)) is not None:
            sent += batch[0]
        self.sent += sent
        return sent

    def wait(self, seconds: float) -> list[bytes]:
        """Serve the timers of so much time; what is sent in it."""
        assert self.engine is not None
        end, sent = self.now + seconds, len(self.sent)
        while (timer := self.engine.timer()) is not None and timer <= end:
            self.now = max(self.now, timer)
            self.engine.handle_timer(self.now)
            self.transmit()
        self.now = end
        return self.sent[sent:]

    @property
    def sent_bytes(self) -> int:
        return sum(map(len, self.sent))

    def _complete(self, alpn: str) -> Recorder:
        self.completed.append(alpn)
        return Recorder()


def _is_initial(datagram: bytes) -> bool:
    return datagram[0] & 0xF0 == 0xC0


@pytest.mark.parametrize("packet_bytes", [249, 328, 400, 520, 800, 1000, 1199, 1200])
@pytest.mark.parametrize("datagram_bytes", [1200, 1252, 1357, 1472])
def test_handshake_answers_any_initial_in_full(packet_bytes: int, datagram_bytes: int) -> None:
    server = Server()
    answer = server.take(initial(packet_bytes, datagram_bytes))
    assert server.engine is not None
    assert server.engine.close_state is None
    assert _is_initial(answer[0])
    assert len(answer[0]) >= MIN_DATAGRAM
    assert server.sent_bytes <= AMPLIFICATION * datagram_bytes


def test_handshake_repetitions_are_long_enough_and_stay_below_the_limit() -> None:
    server = Server()
    server.take(initial(328, 1252))
    repeated = server.wait(60)
    assert [len(sent) for sent in repeated if _is_initial(sent)] >= [MIN_DATAGRAM]
    assert all(len(sent) >= MIN_DATAGRAM for sent in repeated if _is_initial(sent))
    assert server.sent_bytes <= AMPLIFICATION * server.received
    assert server.engine is not None
    assert server.engine.timer() is None  # nothing is to be done until the client sends


@pytest.mark.parametrize("cid_bytes", [0, 8, 20])
def test_handshake_is_refused_in_a_packet_that_any_client_reads(cid_bytes: int) -> None:
    """Also one without a connection id, as Chromium is."""
    client = ForeignConnection(
        configuration=ForeignConfiguration(
            is_client=True, alpn_protocols=["laps"], connection_id_length=cid_bytes
        )
    )
    client.connect(SERVER, now=0.0)
    ((hello, _), *_) = client.datagrams_to_send(now=0.0)
    header = pull_quic_header(hello, 0, CONNECTION_ID_BYTES)
    assert len(header[4]) == cid_bytes
    refusal = encode_refusal(header[3], header[4], 2, "full")
    assert len(refusal) < 100
    client.receive_datagram(refusal, SERVER, now=0.1)
    client.handle_timer(now=100.0)  # it waits for its packets to be gone
    events = iter(client.next_event, None)
    (ended,) = (event for event in events if isinstance(event, ConnectionTerminated))
    assert (ended.error_code, ended.reason_phrase) == (2, "full")


@dataclass
class Client:
    """A client of another make, which pads after its packets."""

    server: Server
    names: int = 0
    now: float = 100.0
    connected: bool = False

    def __post_init__(self) -> None:
        self.quic = ForeignConnection(
            configuration=ForeignConfiguration(
                is_client=True,
                alpn_protocols=["laps", *(f"{n:0200}" for n in range(self.names))],
                server_name="localhost",
                verify_mode=ssl.CERT_NONE,
            )
        )
        self.quic.connect(SERVER, now=self.now)

    def exchange(self) -> None:
        """Let datagrams pass both ways until neither side has any."""
        while hellos := self.quic.datagrams_to_send(now=self.now):
            for datagram, _ in hellos:
                for answer in self.server.take(datagram):
                    self.take(answer)

    def take(self, answer: bytes) -> None:
        self.quic.receive_datagram(answer, SERVER, now=self.now)
        while (event := self.quic.next_event()) is not None:
            self.connected |= isinstance(event, HandshakeCompleted)


@pytest.mark.parametrize("names", [0, 1, 2, 3, 4, 6, 12, 18])
def test_handshake_with_padding_after_the_packets_completes(names: int) -> None:
    client = Client(Server(), names)
    client.exchange()
    assert client.connected
    assert client.server.completed == ["laps"]


def test_handshake_goes_on_where_the_limit_stopped_it() -> None:
    server = Server(shown=long_identity())
    client = Client(server)
    ((hello, _),) = client.quic.datagrams_to_send(now=100.0)
    answer = server.take(hello)
    assert AMPLIFICATION * len(hello) - 1280 < server.sent_bytes <= AMPLIFICATION * len(hello)
    assert server.wait(60) == []
    before = server.sent_bytes
    assert server.take(hello) != []  # the client repeats itself
    assert before < server.sent_bytes <= AMPLIFICATION * server.received
    for datagram in answer:
        client.take(datagram)
    client.exchange()
    assert client.connected
    assert server.completed == ["laps"]


def test_handshake_without_limit_for_an_address_that_retry_proved() -> None:
    server = Server(shown=long_identity(), retry_cid=b"retrycid")
    server.take(initial(328, 1252))
    assert server.sent_bytes > AMPLIFICATION * server.received


def test_handshake_that_is_given_up_at_the_limit_ends() -> None:
    server = Server(shown=long_identity())
    server.take(initial(328, 1252))
    assert server.engine is not None
    server.engine.close(0, "handshake timed out", application=False)
    server.transmit()
    assert server.sent_bytes <= AMPLIFICATION * server.received
    server.wait(60)
    assert server.engine.terminated


def test_handshake_pays_nobody_with_what_came_from_elsewhere() -> None:
    limit = AddressLimit()
    limit.received(CLIENT, 1200)
    assert not limit.take(ELSEWHERE, 1)
    assert limit.take(CLIENT, 3600)
    assert not limit.take(CLIENT, 1)
    for n in range(2 * MAX_UNPROVED_ADDRESSES):
        limit.received(("192.0.2.9", 1000 + n), 100)
    taken = [limit.take(("192.0.2.9", 1000 + n), 300) for n in range(2 * MAX_UNPROVED_ADDRESSES)]
    assert taken.count(True) == MAX_UNPROVED_ADDRESSES - 1


def test_handshake_with_an_address_that_changes_stays_below_the_limit_of_each() -> None:
    server = Server(shown=long_identity())
    hello = initial(328, 1252)
    server.take(hello)
    engine = server.engine
    assert engine is not None
    for n in range(20):
        engine.receive([hello], ("192.0.2.9", 1000 + n), server.now)
        while (batch := engine.transmit(server.now, 64)) is not None:
            assert sum(map(len, batch[0])) <= AMPLIFICATION * len(hello)
    assert not engine.terminated
