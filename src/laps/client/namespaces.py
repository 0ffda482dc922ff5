"""Namespaces that come and go, as an application hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from laps.client.channel import Channel
from laps.client.names import show_namespace
from laps.client.news import News
from laps.client.values import NamespaceEvent
from laps.wire.moqt.messages import NamespaceOptions, SubscribeNamespace

if TYPE_CHECKING:
    import asyncio

    from laps.client.session import Session
    from laps.wire.moqt.messages import Namespace

# A new relay has this long to name again what the one before did.
SETTLE_S: Final = 2.0


class Namespaces(News[NamespaceEvent, Channel]):
    """What `Session.namespaces` returns: an asynchronous iterator of events."""

    def __init__(self, session: Session, prefix: Namespace) -> None:
        self.prefix = prefix
        self._known: dict[Namespace, None] = {}
        self._unconfirmed: set[Namespace] = set()
        super().__init__(session)

    # -- what the relay tells ----------------------------------------------------------------------

    def _told(self, namespace: Namespace, added: bool) -> None:
        if namespace[: len(self.prefix)] != self.prefix:
            return
        self._unconfirmed.discard(namespace)
        if added == (namespace in self._known):
            return
        if added:
            self._known[namespace] = None
        else:
            del self._known[namespace]
        self._tell(NamespaceEvent(namespace, added))

    def _forget_unconfirmed(self) -> None:
        for namespace in list(self._unconfirmed):
            self._told(namespace, False)

    async def _follow(self, channel: Channel) -> None:
        self._unconfirmed = set(self._known)
        channel.watches.append(self._told)
        request_id: int | None = None
        settled: asyncio.TimerHandle | None = None
        try:
            what = f"a subscription to the namespaces below {show_namespace(self.prefix)!r}"
            message = SubscribeNamespace(0, self.prefix, NamespaceOptions.NAMESPACE)
            answer = await channel.ask(message, what)
            request_id = answer.request_id
            settled = channel.loop.call_later(SETTLE_S, self._forget_unconfirmed)
            await channel.until(channel.over)
        finally:
            channel.watches.remove(self._told)
            if settled is not None:
                settled.cancel()
            if request_id is not None and channel.alive:
                channel.session.unsubscribe_namespace(request_id)
