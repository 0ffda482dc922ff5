"""The way in: a URL becomes a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, cast

from laps.client.dialling import Dialler
from laps.client.lasting import dial_first
from laps.client.quicr.dialling import QuicrDialler
from laps.client.quicr.session import QuicrSession
from laps.client.session import Session
from laps.client.tokens import source_of
from laps.client.urls import Place, target_of
from laps.config import QuicConfig
from laps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from laps.client.carrier import C
    from laps.client.lasting import Dials
    from laps.client.tokens import TokenLike
    from laps.client.urls import Target

    Where = str | Place | Sequence[str | Place]

_WAY: Final = "write `async with laps.connect(...) as session:`, or `await laps.connect(...)`"
_SESSION_NAMES: Final = {name for name in dir(Session) if not name.startswith("_")}


class Connecting:
    """A session that is about to be: `async with` it, or `await` it and close it yourself."""

    def __init__(
        self,
        url: Where,
        *,
        drafts: Sequence[int],
        insecure: bool,
        fingerprint: str | None,
        reconnect_s: float,
        quic: QuicConfig,
        token: TokenLike | None,
    ) -> None:
        self._targets = _targets(url)
        self._drafts = drafts
        self._insecure = insecure
        self._fingerprint = fingerprint
        self._reconnect_s = reconnect_s
        self._quic = quic
        self._token = source_of(token)
        self._session: Session | None = None

    async def _connect(self) -> Session:
        if self._targets[0].quicr:
            # It has the methods of the other; what QUICR lacks says so when it is called.
            return cast("Session", await self._connect_quicr())
        dialler = Dialler(
            self._drafts,
            insecure=self._insecure,
            fingerprint=self._fingerprint,
            quic=self._quic,
            token=self._token,
        )
        target, channel = await self._dial(dialler)
        return Session(
            dialler,
            target,
            channel,
            reconnect_s=self._reconnect_s,
            others=self._targets,
            token=self._token,
        )

    async def _connect_quicr(self) -> QuicrSession:
        dialler = QuicrDialler(
            insecure=self._insecure,
            fingerprint=self._fingerprint,
            quic=self._quic,
            token=self._token,
        )
        target, channel = await self._dial(dialler)
        return QuicrSession(
            dialler,
            target,
            channel,
            reconnect_s=self._reconnect_s,
            others=self._targets,
            token=self._token,
        )

    async def _dial(self, dialler: Dials[C]) -> tuple[Target, C]:
        try:
            return await dial_first(dialler, self._targets)
        except BaseException:
            await dialler.close()
            raise

    def __enter__(self) -> NoReturn:
        raise TypeError(f"a session is asynchronous: {_WAY}")

    def __exit__(self, *_: object) -> None:
        """As `__enter__`."""

    def __getattr__(self, name: str) -> NoReturn:
        if name in _SESSION_NAMES:
            raise AttributeError(f"there is no session yet to {name!r} with: {_WAY}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __await__(self) -> Generator[None, None, Session]:
        return self._connect().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._connect()
        return self._session

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._session is not None:
            await self._session.close(end_tracks=kind is None)


def _targets(url: Where) -> list[Target]:
    places = [url] if isinstance(url, str | Place) else list(url)
    for place in places:
        if not isinstance(place, str | Place):
            raise TypeError(f"a URL is text, and this is {type(place).__name__}: {place!r}")
    if not places:
        raise ConfigError("no URL is given: name a relay, or several in the order to try them in")
    targets = [target_of(place) for place in places]
    if len({target.quicr for target in targets}) > 1:
        raise ConfigError("quicr:// and other URLs cannot stand for each other: give one kind")
    return targets


def connect(
    url: Where,
    *,
    drafts: Sequence[int] = (16, 14),
    insecure: bool = False,
    fingerprint: str | None = None,
    reconnect: bool = True,
    reconnect_s: float = 60.0,
    quic: QuicConfig | None = None,
    token: TokenLike | None = None,
) -> Connecting:
    """A session with a relay.

        async with laps.connect("moqt://127.0.0.1:33435") as session: ...
        async with laps.connect("https://relay.example/moq") as session: ...
        async with laps.connect("quicr://relay.example:33435") as session: ...

    Several URLs are tried in their order, now and whenever a connection is lost. So are relays that
    were found by mDNS: `laps.connect(await laps.client.nearest.nearby())`.

    `moqt` is MoQT on QUIC, `https` MoQT in WebTransport, and the first of `drafts` that the relay
    speaks is taken; `quicr` is QUICR, whose session is a `QuicrSession`. A relay on this machine is
    trusted; elsewhere its certificate has to be signed by an authority that the system trusts,
    unless its SHA-256 `fingerprint` is given, or everybody is trusted with `insecure`.

    With `reconnect` a lost connection is dialled again, for `reconnect_s` at most, and a relay that
    leaves is followed to where it points: tracks and subscriptions go on where they were.

    `token` is shown to relays that ask for one: text (a JWT, or a CAT in base64url), bytes (a CAT),
    or a function, also an asynchronous one, that returns such. It is called for each connection and
    again before its token ends, so that the session goes on. Without it, LAPS_TOKEN of the
    environment is taken. A relay that takes no such token raises Unauthorized.
    """
    return Connecting(
        url,
        drafts=drafts,
        insecure=insecure,
        fingerprint=fingerprint,
        reconnect_s=reconnect_s if reconnect else 0.0,
        quic=quic or QuicConfig(),
        token=token,
    )
