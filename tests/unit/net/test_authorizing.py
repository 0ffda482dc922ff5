"""The keys of a relay, and the token that it signs for itself."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from laps.auth.grants import Action
from laps.auth.judge import OUT_OF_BAND
from laps.auth.keys import write_jwk
from laps.auth.refusals import AuthError
from laps.config import AuthConfig, Config
from laps.net.authorizing import Authorizing
from support.tokens import key

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    return Config(auth=AuthConfig(keys=file))


def test_token_for_itself_reads_one_track_at_this_relay_and_does_nothing_else(
    config: Config,
) -> None:
    relay, other = Authorizing(config), Authorizing(config)
    token = relay.token_for_itself("laps", "plan").encode()
    now = time.monotonic()
    (grant,) = relay.authority.read(OUT_OF_BAND, token, now)
    allowed = [
        (action, namespace, name)
        for action in Action
        for namespace in ((b"laps",), (b"laps", b"telemetry", b"1:1"), (b"demo",))
        for name in (b"plan", b"node")
        if grant.allows(action, namespace, name) and action is not Action.CLIENT_SETUP
    ]
    reading = (Action.SUBSCRIBE, Action.REQUEST_UPDATE, Action.FETCH, Action.TRACK_STATUS)
    assert allowed == [(action, (b"laps",), b"plan") for action in reading]
    assert relay.authority.judge((grant,), Action.CLIENT_SETUP, (), None, now) is grant
    with pytest.raises(AuthError, match="no key has the key id"):
        other.authority.read(OUT_OF_BAND, token, now)
