"""Relays as an operator starts them, for clients that are not ours."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LAPS = str(Path(sys.executable).with_name("laps"))
READY = re.compile(
    r"ready node=\S+ clients=(\S+) peers=(\S+) sha256=([0-9a-f]{64}) admin=\S+ auth=\S+\n"
)


class Relay(NamedTuple):
    """A relay that runs: where clients and peers find it, and the hash of its certificate."""

    clients: str
    peers: str
    fingerprint: str

    @property
    def raw(self) -> str:
        """Where MoQT over QUIC itself is spoken."""
        return f"moqt://{self.clients}"

    @property
    def web(self) -> str:
        """Where MoQT over WebTransport is spoken."""
        return f"https://{self.clients}/moq"

    def url(self, transport: str) -> str:
        """`raw` or `web`."""
        return {"raw": self.raw, "web": self.web}[transport]


@contextmanager
def relay(*flags: str) -> Iterator[Relay]:
    """One relay until the end of the block, where it is asked to stop and must do so in time."""
    with subprocess.Popen(
        [LAPS, "relay", "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", *flags],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            ready = READY.fullmatch(line)
            assert ready is not None, f"not the line of a relay that is ready: {line!r}"
            assert ready[1] != "none"
            yield Relay(*ready.groups())
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
