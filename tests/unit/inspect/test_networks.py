"""Networks that run side by side on one machine are kept apart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from laps.inspect import relays as module
from laps.inspect.relays import Relays, Where, find_more
from support.inspect_fake import FakeApi

if TYPE_CHECKING:
    import pytest

    from laps.admin.client import AdminClient


class Machine:
    """The relays of a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.apis: dict[str, FakeApi] = {}
        monkeypatch.setattr(module, "urls_of_this_machine", lambda: list(self.apis))
        monkeypatch.setattr(module, "AdminClient", self._client)

    def _client(self, url: str, *_: Any) -> AdminClient:
        return cast("AdminClient", self.apis[url])

    def network(self, port: int, since: float, *ids: str) -> None:
        """Relays that know each other."""
        for number, node in enumerate(ids):
            api = FakeApi(node)
            api.url = f"http://127.0.0.1:{port + number}"
            api.views["node"] |= {"contact": f"127.0.0.1:{port + number}", "since": since}
            for other, name in enumerate(ids):
                if name != node:
                    api.add("nodes", node=name, contact=f"127.0.0.1:{port + other}")
            self.apis[api.url] = api

    def found(self, relays: Relays | None = None) -> Relays:
        relays = relays or Relays()
        asyncio.run(find_more(relays, Where()))
        return relays


def test_networks_on_one_machine_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.network(100, 5.0, "1:1", "1:2")
    machine.network(200, 1.0, "1:1", "1:2", "1:3")
    relays = machine.found()
    urls = {node: api.url for node, api in relays.apis.items()}
    assert urls == {f"1:{n}": f"http://127.0.0.1:{199 + n}" for n in (1, 2, 3)}
    assert sorted(relays.silent) == ["http://127.0.0.1:100", "http://127.0.0.1:101"]
    assert (
        "1:1 at http://127.0.0.1:100 is of another network" in relays.silent["http://127.0.0.1:100"]
    )


def test_networks_that_are_equal_give_way_to_the_younger(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.network(100, 5.0, "1:1", "1:2")
    machine.network(200, 1.0, "1:1", "1:2")
    assert machine.found().apis["1:1"].url == "http://127.0.0.1:100"


def test_networks_stay_the_same_when_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.network(100, 5.0, "1:1", "1:2")
    relays = machine.found()
    machine.network(200, 9.0, "1:1", "1:2", "1:3")
    machine.found(relays)
    assert {api.url for api in relays.apis.values()} == {
        "http://127.0.0.1:100",
        "http://127.0.0.1:101",
    }


def test_networks_of_one_relay_each_are_shown_together(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.network(100, 1.0, "1:1")
    machine.network(200, 2.0, "1:2")
    machine.network(300, 3.0, "1:2")
    relays = machine.found()
    assert {node: api.url for node, api in relays.apis.items()} == {
        "1:1": "http://127.0.0.1:100",
        "1:2": "http://127.0.0.1:300",
    }
