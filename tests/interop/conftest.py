from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from interop.clients import browser, program
from interop.environments import bundle_of, python_with
from interop.relays import relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop.clients import Start
    from interop.relays import Relay

_rooms = count(1)


@pytest.fixture(scope="session")
def aiomoqt_python() -> Path:
    return python_with("aiomoqt")


@pytest.fixture(scope="session")
def moqrs_python() -> Path:
    return python_with("moqrs")


@pytest.fixture(scope="session")
def bundle() -> Path:
    return bundle_of("moq_net")


@pytest.fixture(scope="session")
def one_relay() -> Iterator[Relay]:
    with relay("--node-id", "1:1") as only:
        yield only


@pytest.fixture(scope="session")
def two_relays() -> Iterator[tuple[Relay, Relay]]:
    with (
        relay("--node-id", "1:2") as near,
        relay("--node-id", "1:3", "--peer", near.peers) as far,
    ):
        yield near, far


@pytest.fixture(params=["one relay", "two relays"])
def ends(request: pytest.FixtureRequest) -> tuple[Relay, Relay]:
    """Where the publisher and the subscriber connect."""
    if request.param == "one relay":
        only: Relay = request.getfixturevalue("one_relay")
        return only, only
    both: tuple[Relay, Relay] = request.getfixturevalue("two_relays")
    return both


@pytest.fixture
def room() -> str:
    """A namespace that no other test uses, since all of them share the relays."""
    return f"interop/room-{next(_rooms)}"


@pytest.fixture
def aiomoqt(aiomoqt_python: Path) -> Iterator[Start]:
    with program(aiomoqt_python, "aiomoqt_client.py") as start:
        yield start


@pytest.fixture
def moqrs(moqrs_python: Path) -> Iterator[Start]:
    with program(moqrs_python, "moqrs_client.py") as start:
        yield start


@pytest.fixture
def moq_net(bundle: Path, tmp_path: Path) -> Iterator[Start]:
    with browser(bundle, tmp_path) as start:
        yield start
