"""What relays announce, and what is made of what strangers announce."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ifaddr
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import InterfaceChoice
from zeroconf.asyncio import AsyncServiceInfo

from laps.client import nearest as nearest_module
from laps.client.nearest import MOST, by_distance, measure, nearby, nearest, select
from laps.errors import LapsError
from laps.net import discovery
from laps.net.discovery import (
    MAX_ALPNS,
    MAX_HOSTS,
    MAX_TEXT_BYTES,
    SERVICE_TYPE,
    Announcement,
    Announcer,
    Found,
    discover,
    hosts_of,
    interfaces_of,
    read_found,
    unique,
)
from laps.types import Address, parse_node_id
from support.loopback import on_loop, until

if TYPE_CHECKING:
    from collections.abc import Callable

SHA256 = "3f" * 32
SAID: dict[bytes, bytes | None] = {
    b"v": b"1",
    b"node": b"1.2:1234",
    b"role": b"edge",
    b"alpn": b"moqt-16,moq-00,h3",
    b"region": b"eu",
    b"sha256": SHA256.encode(),
}
RELAY = Found(
    node="1.2:1234",
    role="edge",
    host="192.0.2.1",
    port=4433,
    alpns=("moqt-16", "moq-00", "h3"),
    region="eu",
    fingerprint=SHA256,
)


def read(said: dict[bytes, bytes | None], *hosts: str, port: int | None = 4433) -> Found | None:
    return read_found(said, hosts or ("192.0.2.1",), port)


# -- what is announced -----------------------------------------------------------------------------


def announcement(**changes: Any) -> Announcement:
    said = Announcement(
        node_id=parse_node_id("1.2:1234"),
        role="edge",
        address=Address("127.0.0.1", 4433),
        alpns=("moqt-16", "moq-00", "h3"),
        region="eu",
        fingerprint=SHA256,
    )
    return replace(said, **changes)


@pytest.mark.parametrize("region", ["eu", "", "Straße", "ü" * 500])
def test_what_is_announced_is_what_is_found(region: str) -> None:
    said = announcement(region=region)
    info = AsyncServiceInfo(SERVICE_TYPE, f"x.{SERVICE_TYPE}", properties=said.properties())
    read_back = AsyncServiceInfo(SERVICE_TYPE, f"x.{SERVICE_TYPE}", properties=info.text)
    assert read_found(read_back.properties, ["192.0.2.1"], 4433) == replace(
        RELAY, region=region[: MAX_TEXT_BYTES // 2]
    )


@pytest.mark.parametrize(
    ("host", "interfaces"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("127.0.0.9", ["127.0.0.1"]),
        ("::1", ["127.0.0.1"]),
        ("0.0.0.0", InterfaceChoice.All),
        ("::", InterfaceChoice.All),
        ("192.0.2.1", ["192.0.2.1"]),
        ("2001:db8::1", ["2001:db8::1"]),
    ],
)
def test_a_relay_is_announced_as_far_as_it_listens(
    host: str, interfaces: list[str] | InterfaceChoice
) -> None:
    assert interfaces_of(Address(host, 1)) == interfaces


class Card:
    """A network card, as ifaddr has it."""

    class Ip:
        def __init__(self, ip: str) -> None:
            self.is_IPv6 = ":" in ip
            self.ip = (ip, 0, 0) if self.is_IPv6 else ip

    def __init__(self, *ips: str) -> None:
        self.ips = [self.Ip(ip) for ip in ips]


def test_a_relay_on_every_address_tells_those_that_others_can_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = [Card("127.0.0.1", "::1"), Card("192.0.2.7", "fe80::1", "2001:db8::7")]
    monkeypatch.setattr(ifaddr, "get_adapters", lambda: cards)
    assert hosts_of(Address("127.0.0.1", 1)) == ("127.0.0.1",)
    assert hosts_of(Address("::1", 1)) == ("::1",)
    assert hosts_of(Address("0.0.0.0", 1)) == ("192.0.2.7",)
    assert hosts_of(Address("::", 1)) == ("192.0.2.7", "2001:db8::7")
    cards.pop()
    assert hosts_of(Address("0.0.0.0", 1)) == ("127.0.0.1",)
    assert hosts_of(Address("::", 1)) == ("127.0.0.1", "::1")


# -- what is found ---------------------------------------------------------------------------------


def test_what_a_relay_says_is_read() -> None:
    assert read(SAID) == RELAY
    assert RELAY.url == "moqt://192.0.2.1:4433"
    assert replace(RELAY, host="2001:db8::1").url == "moqt://[2001:db8::1]:4433"


def test_keys_are_read_in_either_case_and_the_first_counts() -> None:
    assert read({key.upper(): value for key, value in SAID.items()}) == RELAY
    assert read({**SAID, b"REGION": b"us"}) == RELAY


def test_nothing_said_is_still_a_place_to_dial() -> None:
    found = read({})
    assert found == Found("", "", "192.0.2.1", 4433, (), "", None)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"node", b"nonsense", {"node": ""}),
        (b"node", b"1.2:1234\n", {"node": ""}),
        (b"node", b"\xff", {"node": ""}),
        (b"node", None, {"node": ""}),
        (b"node", b"01.2:1234", {"node": "1.2:1234"}),
        (b"role", b"king", {"role": ""}),
        (b"role", b"x" * 250, {"role": ""}),
        (b"region", b"\xff\xfe", {"region": ""}),
        (b"region", b"\x1b[2J", {"region": ""}),
        (b"region", "\u202eeu".encode(), {"region": ""}),
        (b"region", b"x" * (MAX_TEXT_BYTES + 1), {"region": ""}),
        (b"alpn", b"", {"alpns": ()}),
        (b"alpn", b",,h3,", {"alpns": ("h3",)}),
        (b"alpn", b"h3," + b"x" * 33, {"alpns": ("h3",)}),
        (b"alpn", "h3,ü".encode(), {"alpns": ("h3",)}),
        (b"alpn", b"a," * 50, {"alpns": ("a",) * MAX_ALPNS}),
        (b"sha256", b"3f", {"fingerprint": None}),
        (b"sha256", b"xy" * 32, {"fingerprint": None}),
        (b"sha256", SHA256.upper().encode(), {"fingerprint": SHA256}),
        (b"sha256", None, {"fingerprint": None}),
    ],
)
def test_what_makes_no_sense_is_left_out(
    key: bytes, value: bytes | None, expected: dict[str, Any]
) -> None:
    assert read({**SAID, key: value}) == replace(RELAY, **expected)


def test_what_cannot_be_dialled_or_read_is_no_relay() -> None:
    assert read(SAID, port=None) is None
    assert read(SAID, port=0) is None
    assert read(SAID, port=70000) is None
    assert read_found(SAID, [], 4433) is None
    assert read(SAID, "0.0.0.0", "224.0.0.251", "fe80::1", "nonsense", "fe80::1%3") is None
    assert read({**SAID, b"v": b"2"}) is None
    assert read({**SAID, b"v": None}) is None


def test_addresses_are_bounded_and_each_is_there_once() -> None:
    found = read(SAID, "192.0.2.1", "192.0.2.1", *(f"192.0.2.{n}" for n in range(2, 60)))
    assert found is not None
    assert found.host == "192.0.2.1"
    assert len({found.host, *found.more_hosts}) == MAX_HOSTS


@given(
    st.dictionaries(st.binary(max_size=20) | st.sampled_from(list(SAID)), st.none() | st.binary()),
    st.lists(st.text(max_size=50) | st.ip_addresses().map(str)),
    st.none() | st.integers(),
)
def test_nothing_a_stranger_says_raises(
    said: dict[bytes, bytes | None], hosts: list[str], port: int | None
) -> None:
    found = read_found(said, hosts, port)
    if found is not None:
        assert (found.node + found.role + found.region + "".join(found.alpns)).isprintable()


@given(st.binary(max_size=400))
def test_no_txt_record_raises(text: bytes) -> None:
    info = AsyncServiceInfo(SERVICE_TYPE, f"x.{SERVICE_TYPE}", properties=text)
    assert read_found(info.properties, ["192.0.2.1"], 4433) is None or info.text == text


def test_a_relay_that_is_heard_twice_is_there_once() -> None:
    again = replace(RELAY, host="198.51.100.1", more_hosts=("192.0.2.1", "203.0.113.1"))
    (found,) = unique([RELAY, again])
    assert found == replace(RELAY, more_hosts=("198.51.100.1", "203.0.113.1"))


def test_different_relays_stay_apart() -> None:
    others = [
        replace(RELAY, port=4434),
        replace(RELAY, node="1.2:1235"),
        replace(RELAY, fingerprint="00" * 32),
        replace(RELAY, node="", fingerprint=None),
        replace(RELAY, node="", fingerprint=None, host="192.0.2.2"),
    ]
    assert unique([RELAY, *others]) == [RELAY, *others]


# -- which is taken --------------------------------------------------------------------------------


def at(rtt_us: int | None, node: str = "1:1", host: str = "192.0.2.1") -> Found:
    return replace(RELAY, node=node, host=host, rtt_us=rtt_us)


def test_the_nearest_is_first_and_who_does_not_answer_last() -> None:
    shuffled = [at(None), at(30_000), at(200), at(None, "0:1"), at(5_000)]
    assert sorted(shuffled, key=by_distance) == [
        at(200),
        at(5_000),
        at(30_000),
        at(None, "0:1"),
        at(None),
    ]


def test_the_nearest_is_taken_and_of_several_as_near_always_the_same() -> None:
    assert select([]) is None
    assert select([at(None)]) is None
    assert select([at(9_000, "1:1"), at(2_000, "1:2"), at(None, "0:0")]) == at(2_000, "1:2")
    assert select([at(1_900, "1:1"), at(1_000, "1:2")]) == at(1_900, "1:1")
    here = at(1_900, "1:3", host="127.0.0.1")
    assert select([at(1_000, "1:2"), here]) == here


def answering(
    monkeypatch: pytest.MonkeyPatch, *relays: Found, reached: Callable[[Found], bool] | None = None
) -> None:
    """mDNS finds these, and all of them, or some, can be dialled."""

    async def found(*_: object, **__: object) -> list[Found]:
        return list(relays)

    async def measured(these: list[Found]) -> list[Found]:
        return [relay if reached is None or reached(relay) else at(None) for relay in these]

    monkeypatch.setattr(nearest_module, "discover", found)
    monkeypatch.setattr(nearest_module, "measure", measured)


@on_loop
async def test_a_relay_that_speaks_the_draft_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(at(1_000, "1:1"), alpns=("moq-00",))
    new = replace(at(9_000, "1:2"), alpns=("moqt-16", "h3"))
    silent = replace(at(20_000, "1:3"), alpns=())
    answering(monkeypatch, old, new, silent)
    assert await nearest() == old
    assert await nearest((16,)) == new
    answering(monkeypatch, old, silent)
    assert await nearest((16,)) == silent
    answering(monkeypatch, old)
    with pytest.raises(LapsError, match="speaks MoQT draft 16: give a URL"):
        await nearest((16,))


@on_loop
async def test_the_next_nearest_are_there_for_when_the_nearest_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, nearer, far = at(2_000, "1:2"), at(1_500, "1:1"), at(9_000, "1:3")
    silent = at(None, "1:4")
    answering(monkeypatch, nearer, near, far, silent)
    assert await nearby() == [nearer, near, far]
    answering(monkeypatch, *(at(9_000 + n, f"2:{n}") for n in range(9)))
    assert len(await nearby()) == MOST


@on_loop
async def test_a_relay_is_found_by_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    near = at(1_000)
    far = replace(at(9_000), fingerprint="ab" * 32)
    answering(monkeypatch, near, far)
    assert await nearest(fingerprint="AB:" * 31 + "AB") == far
    with pytest.raises(LapsError, match="no relay with the certificate 00 was found by mDNS"):
        await nearest(fingerprint="00")


@on_loop
async def test_none_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch)
    with pytest.raises(
        LapsError, match=r"give the URL of one, like .* or start one with `laps rel"
    ):
        await nearest()
    answering(monkeypatch, RELAY, reached=lambda _: False)
    with pytest.raises(LapsError, match=r"answers, not at 192\.0\.2\.1:4433: give a URL"):
        await nearest()


@on_loop
async def test_nothing_found_is_nothing_measured() -> None:
    assert await measure([]) == []


# -- where there is no mDNS ------------------------------------------------------------------------


@pytest.fixture
def no_mdns(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(discovery, "AsyncZeroconf", refuse)


@pytest.mark.usefixtures("no_mdns")
@on_loop
async def test_a_relay_that_cannot_be_announced_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    announcer = Announcer(announcement())
    await until(lambda: bool(caplog.records))
    announcer.update("00" * 32)
    await announcer.close()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        "not announced by mDNS: [Errno 98] Address already in use: clients have" in record.message
    )


@pytest.mark.usefixtures("no_mdns")
@on_loop
async def test_who_cannot_look_is_told_why() -> None:
    with pytest.raises(
        LapsError, match=r"cannot be looked for by mDNS: .* already in use: give a U"
    ):
        await discover(1.0)


@pytest.mark.usefixtures("no_mdns")
@on_loop
async def test_an_announcer_may_be_closed_before_it_began_and_twice() -> None:
    announcer = Announcer(announcement())
    await announcer.close()
    await announcer.close()
