"""A real Chromium completes the QUIC handshake: it has no connection id, and post-quantum keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.chromium import chromium, page_server
from support.engines import identity
from support.loopback import listening, on_loop, until

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """<!doctype html><title>handshake</title><script>
const hash = Uint8Array.from("%(hash)s".match(/../g), h => parseInt(h, 16));
new WebTransport("https://127.0.0.1:%(port)d/", {
  serverCertificateHashes: [{algorithm: "sha-256", value: hash}],
});
</script>"""


@pytest.mark.browser
@on_loop
async def test_chromium_connects_by_the_fingerprint_of_the_certificate(tmp_path: Path) -> None:
    async with listening(alpn=("h3",)) as there:
        page = PAGE % {"hash": identity().fingerprint, "port": there.port}
        with page_server(page) as url, chromium(url, tmp_path):
            await until(lambda: bool(there.connections))
            connection, saw = there.connections[0], there.seen[0]
            assert connection.alpn == "h3"
            # The first thing said over HTTP/3: a control stream (0) that begins with SETTINGS (4).
            await until(lambda: any(data[:2] == b"\x00\x04" for data in saw.data.values()))
            # And it reads what we send: a stream of a type nobody knows is to be refused.
            stream = connection.open_stream(unidirectional=True)
            connection.write(stream, b"\x21greased")
            await until(lambda: bool(saw.stops) or connection.stats().in_flight_bytes == 0)
            assert connection.stats().srtt_us > 0
            await asyncio.sleep(0)
