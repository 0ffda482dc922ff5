"""The way in: a URL becomes a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.client.dialling import Dialler
from laps.client.session import Session
from laps.client.urls import parse_url
from laps.config import QuicConfig

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


class Connecting:
    """A session that is about to be: `async with` it, or `await` it and close it yourself."""

    def __init__(
        self,
        url: str,
        *,
        drafts: Sequence[int],
        insecure: bool,
        fingerprint: str | None,
        reconnect_s: float,
        quic: QuicConfig,
    ) -> None:
        self._target = parse_url(url)
        self._drafts = drafts
        self._insecure = insecure
        self._fingerprint = fingerprint
        self._reconnect_s = reconnect_s
        self._quic = quic
        self._session: Session | None = None

    async def _connect(self) -> Session:
        dialler = Dialler(
            self._drafts, insecure=self._insecure, fingerprint=self._fingerprint, quic=self._quic
        )
        try:
            channel = await dialler.dial(self._target)
        except BaseException:
            await dialler.close()
            raise
        return Session(dialler, self._target, channel, reconnect_s=self._reconnect_s)

    def __await__(self) -> Generator[None, None, Session]:
        return self._connect().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._connect()
        return self._session

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._session is not None:
            await self._session.close(end_tracks=kind is None)


def connect(
    url: str,
    *,
    drafts: Sequence[int] = (16, 14),
    insecure: bool = False,
    fingerprint: str | None = None,
    reconnect: bool = True,
    reconnect_s: float = 60.0,
    quic: QuicConfig | None = None,
) -> Connecting:
    """A session with a relay.

        async with laps.connect("moqt://127.0.0.1:33435") as session: ...
        async with laps.connect("https://relay.example/moq") as session: ...

    `moqt` is MoQT on QUIC, `https` MoQT in WebTransport; the port is 443 where none is named. The
    first of `drafts` that the relay speaks is taken. A relay on this machine is trusted; elsewhere
    its certificate has to be signed by an authority that the system trusts, unless its SHA-256
    `fingerprint` is given, or everybody is trusted with `insecure`.

    With `reconnect` a lost connection is dialled again, for `reconnect_s` at most, and a relay that
    leaves is followed to where it points: tracks and subscriptions go on where they were.
    """
    return Connecting(
        url,
        drafts=drafts,
        insecure=insecure,
        fingerprint=fingerprint,
        reconnect_s=reconnect_s if reconnect else 0.0,
        quic=quic or QuicConfig(),
    )
