"""moq-rs and @moq/net at a relay with keys, with their tokens in the URL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from interop.relays import relay
from interop.scenes import SMALL, TRACK, a_track_passes
from laps.auth.issue import Terms, issue_jwt
from laps.auth.keys import write_jwk
from support.tokens import key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.clients import Start
    from interop.relays import Relay

ROOMS = ((b"interop",),)


class Shown(NamedTuple):
    """A relay as somebody sees it who has a token."""

    relay: Relay
    token: str

    @property
    def fingerprint(self) -> str:
        return self.relay.fingerprint

    def url(self, transport: str) -> str:
        where = self.relay.url(transport)
        return f"{where}{'/' if transport == 'raw' else ''}?jwt={self.token}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    file = tmp_path_factory.mktemp("guarded") / "keys.json"
    file.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    with relay("--node-id", "1:9", "--auth", str(file)) as only:
        yield only


def sides(guarded: Relay) -> tuple[Shown, Shown]:
    """One that may publish, and one that may subscribe."""
    writes, reads = Terms(publish=ROOMS), Terms(subscribe=ROOMS)
    return Shown(guarded, issue_jwt(writes, key())), Shown(guarded, issue_jwt(reads, key()))


def refuses(start: Start, shown: Shown, transport: str, room: str, **settings: str) -> None:
    """Whoever is refused is told so at once."""
    what = {"namespace": room, "track": TRACK, "groups": json.dumps(SMALL), **settings}
    client = start("subscribe", shown.url(transport), fingerprint=shown.fingerprint, **what)
    with pytest.raises(AssertionError, match="'event': 'error'"):
        client.until("subscribed")


@pytest.mark.parametrize("transport", ["raw", "web"])
def test_token_in_the_url_lets_moqrs_in(
    transport: str, guarded: Relay, room: str, moqrs: Start
) -> None:
    a_track_passes(moqrs, moqrs, sides(guarded), room, (transport, transport), SMALL)


@pytest.mark.parametrize("transport", ["raw", "web"])
def test_token_in_the_url_that_is_wrong_keeps_moqrs_out(
    transport: str, guarded: Relay, room: str, moqrs: Start
) -> None:
    refuses(moqrs, Shown(guarded, "swordfish"), transport, room)


@pytest.mark.browser
@pytest.mark.parametrize("draft", ["14", "16"])
def test_token_in_the_url_lets_moq_net_in(
    draft: str, guarded: Relay, room: str, moq_net: Start
) -> None:
    a_track_passes(moq_net, moq_net, sides(guarded), room, groups=SMALL, draft=draft)


@pytest.mark.browser
def test_token_in_the_url_that_is_wrong_keeps_moq_net_out(
    guarded: Relay, room: str, moq_net: Start
) -> None:
    refuses(moq_net, Shown(guarded, "swordfish"), "web", room, draft="16")
