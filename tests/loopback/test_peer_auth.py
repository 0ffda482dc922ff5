"""Relays that prove to each other who they are, on real sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from laps.auth.keys import Key, generate, public_half, write_jwk
from laps.auth.tokens import Algorithm
from laps.config import Config, PeeringConfig, override
from laps.errors import CloseCode, ConfigError
from laps.net import runner as runner_module
from laps.net.diallers import trust_of
from laps.net.link import PEERING_ALPN
from laps.net.runner import Runner
from laps.types import Address, parse_node_id
from support.loopback import on_loop, until
from support.relays import App
from support.runners import announce, lab, publish, subscribe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "REDIAL_FIRST_S", 0.02)
    monkeypatch.setattr(runner_module, "REDIAL_MOST_S", 0.2)
    monkeypatch.setattr(runner_module, "MEASURE_S", 0.05)


class Keys:
    """Keys of relays in files: private ones, and a set of public ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.public = folder / "peers.json"
        self._set: dict[str, dict[str, Any]] = {}

    def make(self, name: str, *, known: bool = True, **bounds: object) -> dict[str, Any]:
        """What a relay with a key of its own is started with."""
        key: Key = generate(Algorithm.EDDSA, name)
        own = self._folder / f"{name}.jwk"
        own.write_text(json.dumps(write_jwk(key, private=True)))
        if known:
            self._set[name] = {**write_jwk(key, private=False), "laps": bounds}
            self.write()
        return {"peering__key": str(own), "peering__keys": str(self.public)}

    def know(self, name: str) -> None:
        """Add the public half of a key that was not."""
        own = json.loads((self._folder / f"{name}.jwk").read_text())
        self._set[name] = public_half(own)
        self.write()

    def forget(self, name: str) -> None:
        del self._set[name]
        self.write()

    def write(self) -> None:
        """Another file in its place, so that nobody reads half of one."""
        made = self.public.with_suffix(".new")
        made.write_text(json.dumps({"keys": list(self._set.values())}))
        made.replace(self.public)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def knows(one: Runner, other: Runner) -> bool:
    return other.relay.id in one.relay.peers


@on_loop
async def test_two_relays_with_keys_are_peers_and_data_flows(keys: Keys) -> None:
    near, far = keys.make("near", nodes=["9:1"]), keys.make("far", nodes=["9:2"], roles=["via"])
    async with lab() as net:
        one = await net.relay("edge", **near)
        two = await net.relay("via", one, **far, relay__reflect=True)
        await until(lambda: knows(one, two) and knows(two, one))
        three = await net.relay("edge", two, **keys.make("three"))
        await until(lambda: one.relay.nodes.best(three.relay.id) is not None)
        publisher, app = App(), App()
        announce(one, publisher, "demo")
        subscribe(three, app, "demo/t")
        await until(lambda: len(publisher.asked) == 1)
        publish(one, publisher, "demo/t", 0, b"proved")
        await until(lambda: app.got == [b"proved"])


@on_loop
async def test_a_relay_without_a_key_is_refused_and_told_why(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        two = await net.relay("edge", one)
        await until(lambda: "AUTHORIZATION did not come in time" in caplog.text)
        await until(lambda: one.relay.counters.unproved_peers > 0)
        assert not knows(one, two)
        assert "application error 8: refused with response code 2" in caplog.text
        events = [item.event for item in one.relay.journal.recent()]
        assert any(event.name == "peer_refused" and event.subject == "9:2" for event in events)


@on_loop
async def test_a_plain_peer_is_refused_unless_its_address_is_trusted(
    keys: Keys, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "PEERING_ALPNS", (PEERING_ALPN,))
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        two = await net.relay("edge", one)
        await until(lambda: "it speaks plain laps" in caplog.text)
        assert not knows(one, two)
        three = await net.relay("edge", peering__trusted=["127.0.0.0/8"], **keys.make("three"))
        four = await net.relay("edge", three)
        await until(lambda: knows(three, four) and knows(four, three))


@on_loop
async def test_a_key_for_another_node_or_an_unknown_one_is_refused_and_told_why(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        await net.relay("edge", one, **keys.make("far", nodes=["9:7"]))
        await until(lambda: 'the key "far" is not for node 9:2 (nodes)' in caplog.text)
        await net.relay("edge", one, **keys.make("unknown", known=False))
        await until(lambda: 'no key has the key id "unknown"' in caplog.text)
        assert not one.relay.peers


@on_loop
async def test_the_side_that_is_dialled_proves_itself_too(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    near = keys.make("near")
    async with lab() as net:
        anybody = await net.relay("edge")
        two = await net.relay("edge", anybody, **near)
        await until(lambda: "came in place of AUTHORIZATION" in caplog.text)
        assert not knows(two, anybody)
        with_key = await net.relay("edge", **near | {"peering__require_auth": False})
        three = await net.relay("edge", with_key, **keys.make("three"))
        await until(lambda: knows(three, with_key))


@on_loop
async def test_the_node_that_is_dialled_has_to_be_the_expected_one(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        named = {"peering__nodes": {str(one.peer_address): "9:9"}}
        two = await net.relay("edge", one, **keys.make("far"), **named)
        await until(lambda: "node 9:1 answers where 9:9 is expected" in caplog.text)
        assert not knows(two, one)
        right = {"peering__nodes": {str(one.peer_address): "9:1"}}
        three = await net.relay("edge", one, **keys.make("three"), **right)
        await until(lambda: knows(three, one) and knows(one, three))


@on_loop
async def test_a_wrong_pin_is_refused_before_anything_is_proved(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        wrong = {"peering__fingerprints": {str(one.peer_address): "ab" * 32}}
        two = await net.relay("edge", one, **keys.make("far"), **wrong)
        await until(lambda: "Fingerprints did not match" in caplog.text)
        assert not knows(two, one)


@on_loop
async def test_keys_are_read_again_when_they_change(keys: Keys) -> None:
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        two = await net.relay("edge", one, **keys.make("far"))
        await until(lambda: knows(one, two))
        keys.forget("far")
        await until(lambda: not knows(one, two))
        assert one.relay.counters.unproved_peers > 0
        assert any(close.code == CloseCode.NOT_AUTHORIZED for close in one.closes.last)


@on_loop
async def test_keys_are_read_again_on_reload_and_wrong_ones_change_nothing(
    keys: Keys, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "MEASURE_S", 3600)
    async with lab() as net:
        one = await net.relay("edge", **keys.make("near"))
        far = keys.make("far", known=False)
        two = await net.relay("edge", one, **far)
        await until(lambda: 'no key has the key id "far"' in caplog.text)
        keys.public.write_text("{")
        with pytest.raises(ConfigError, match=r"peers\.json"):
            one.reload(one.config)
        keys.know("far")
        one.reload(one.config)
        two.reload(two.config)
        await until(lambda: knows(one, two) and knows(two, one))


# -- configuration ---------------------------------------------------------------------------------


def test_a_relay_beyond_loopback_wants_keys_or_a_word_that_it_needs_none(tmp_path: Path) -> None:
    values: dict[str, object] = {"peering.listen": "0.0.0.0:0"}
    with pytest.raises(ConfigError) as refused:
        override(Config(), values, "laps.toml")
    assert str(refused.value) == (
        'laps.toml: peering.listen = "0.0.0.0:0": is not loopback, so peers have to prove who they '
        "are, and that needs peering.keys: `laps token key` makes keys; or let in everybody who "
        "reaches it: peering.require_auth = false"
    )
    assert not override(Config(), {**values, "peering.require_auth": False}, "x").requires_peer_auth
    with_keys = {**values, "peering.keys": str(tmp_path), "peering.key": str(tmp_path)}
    assert override(Config(), with_keys, "x").requires_peer_auth
    # A stub listens for no peers, whatever its address says.
    assert not override(Config(), {**values, "node.type": "stub"}, "x").requires_peer_auth


def test_a_relay_on_loopback_asks_for_proofs_where_it_has_keys(tmp_path: Path) -> None:
    assert not Config().requires_peer_auth
    keys = {"peering.keys": str(tmp_path), "peering.key": str(tmp_path)}
    assert override(Config(), keys, "x").requires_peer_auth
    assert not override(Config(), {**keys, "peering.require_auth": False}, "x").requires_peer_auth


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"peering.require_auth": True}, "peering.require_auth = true: needs peering.keys"),
        ({"peering.keys": "a"}, 'peering.keys = "a": needs peering.key'),
        ({"peering.trusted": ["here"]}, 'address "here" must be an IP address'),
        ({"peering.nodes": {"1.2.3.4:5": "1:1"}}, "is not dialled"),
        ({"peering.nodes": {"1.2.3.4:5": "1"}}, "needs a colon"),
    ],
)
def test_settings_of_proofs_that_are_wrong_are_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        override(Config(), values, "laps.toml")
    assert words in str(refused.value)


def test_a_node_that_proves_itself_may_show_any_certificate() -> None:
    peer, other = Address("192.0.2.1", 1), Address("192.0.2.2", 1)
    nodes = ((peer, parse_node_id("1:1")),)
    asks = Config(peering=PeeringConfig(nodes=nodes, require_auth=True))
    assert trust_of(peer, asks).anyone
    assert not trust_of(other, asks).anyone
    assert not trust_of(peer, Config(peering=PeeringConfig(nodes=nodes))).anyone
    trusted = override(
        Config(), {"peering.trusted": ["192.0.2.1"], "peering.require_auth": False}, "x"
    ).peering.trusted
    lenient = Config(peering=PeeringConfig(nodes=nodes, require_auth=True, trusted=trusted))
    assert not trust_of(peer, lenient).anyone


@on_loop
async def test_a_key_that_cannot_be_used_stops_the_relay_at_once(tmp_path: Path) -> None:
    path = tmp_path / "key.jwk"
    path.write_text(json.dumps(write_jwk(generate(Algorithm.ES256, "k"), private=True)))
    config = Config(peering=PeeringConfig(listen=Address("127.0.0.1", 0), key=path))
    with pytest.raises(ConfigError, match="a relay signs with EdDSA"):
        Runner(config)
    public = write_jwk(generate(Algorithm.EDDSA, "k"), private=False)
    path.write_text(json.dumps(public))
    with pytest.raises(ConfigError, match=r"peering\.key: no key here can sign"):
        Runner(config)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        Runner(config)
