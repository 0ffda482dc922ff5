"""Namespaces that come and go, as an application hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.client.values import NamespaceEvent
from laps.client.watching import Watching
from laps.names import Namespace
from laps.wire.moqt.messages import (
    NamespaceOptions,
)

if TYPE_CHECKING:
    from laps.client.channel import Channel


class Namespaces(Watching[Namespace, NamespaceEvent]):
    """What `Session.namespaces` returns: an asynchronous iterator of events."""

    options = NamespaceOptions.NAMESPACE
    things = "namespaces"

    def _event(self, key: Namespace, added: bool) -> NamespaceEvent:
        return NamespaceEvent(key, added)

    def _attach(self, channel: Channel) -> None:
        channel.watches.append(self._told)

    def _detach(self, channel: Channel) -> None:
        channel.watches.remove(self._told)

    def _told(self, namespace: Namespace, added: bool) -> None:
        if namespace[: len(self.prefix)] == self.prefix:
            self._changed(namespace, added)
