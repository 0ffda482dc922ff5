"""Who hears of which namespaces and tracks: SUBSCRIBE_NAMESPACE, in both drafts' ways."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laps.edge.moqt import MoqtClient
from laps.telemetry.records import NAMESPACE
from laps.types import TrackName
from laps.wire.moqt.messages import NamespaceOptions, RequestOk

if TYPE_CHECKING:
    from laps.edge.client import AnyClient
    from laps.edge.edge import Edge
    from laps.infobase.namespaces import NamespaceChange
    from laps.wire.moqt.messages import PublishNamespaceCancel, SubscribeNamespace


@dataclass(slots=True)
class Watch:
    """A SUBSCRIBE_NAMESPACE."""

    request_id: int
    prefix: tuple[bytes, ...]
    namespaces: bool
    "Namespaces are told,"
    tracks: bool
    "and tracks, with PUBLISH."
    forward: bool
    told: dict[tuple[bytes, ...], int | None] = field(default_factory=dict)
    "What was told, and in draft 14 the request it was told by."
    names_relays: bool = False
    "It asks for what relays publish themselves, though its prefix is empty."

    def shows(self, namespace: tuple[bytes, ...]) -> bool:
        """Whether a namespace is below the prefix.

        What relays publish themselves is for who asks for it: all there is does not name it.
        """
        if not self.prefix and namespace[:1] == NAMESPACE[:1]:
            return self.names_relays
        return namespace[: len(self.prefix)] == self.prefix


class Watches:
    """The namespace subscriptions of a relay's clients."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def add(self, client: MoqtClient, message: SubscribeNamespace, now: float) -> None:
        """A client wants to hear of what is published below a prefix."""
        options = message.options
        watch = Watch(
            message.request_id,
            message.prefix,
            namespaces=options is not NamespaceOptions.PUBLISH,
            tracks=options is not NamespaceOptions.NAMESPACE,
            forward=message.forward,
        )
        client.session.send(RequestOk(message.request_id))
        self.watch(client, watch, now)

    def watch(self, client: AnyClient, watch: Watch, now: float) -> None:
        """Tell a client of what there is below a prefix, and of what comes."""
        client.watching[watch.request_id] = watch
        for info in self._edge.relay.extensions.namespaces.matching(watch.prefix):
            if watch.shows(info.namespace):
                self._tell(client, watch, info.namespace, info.name, now)

    def remove(self, client: MoqtClient, prefix: tuple[bytes, ...]) -> None:
        """It no longer does."""
        for request_id, watch in list(client.watching.items()):
            if watch.prefix == prefix:
                del client.watching[request_id]
                for said_id in watch.told.values():
                    if said_id is not None:
                        client.session.finish(said_id)

    def cancelled(self, client: AnyClient, message: PublishNamespaceCancel) -> None:
        """A client does not want a namespace that we told it of."""
        for watch in client.watching.values():
            if message.namespace in watch.told:
                watch.told[message.namespace] = None

    def changed(self, change: NamespaceChange, now: float) -> None:
        """A namespace or a track has its first publisher, or has lost its last."""
        info = change.info
        for client in list(self._edge.clients):
            for watch in list(client.watching.values()):
                if not watch.shows(info.namespace):
                    continue
                if change.added:
                    self._tell(client, watch, info.namespace, info.name, now)
                else:
                    self._tell_gone(client, watch, info.namespace, info.name)

    def _tell(
        self,
        client: AnyClient,
        watch: Watch,
        namespace: tuple[bytes, ...],
        name: bytes | None,
        now: float,
    ) -> None:
        if name is not None:
            if watch.tracks:
                client.offer(self._edge.track(TrackName(namespace, name)), forward=watch.forward)
        elif watch.namespaces and namespace not in watch.told and isinstance(client, MoqtClient):
            said = client.session.tell_namespace(watch.request_id, namespace)
            watch.told[namespace] = said

    def _tell_gone(
        self, client: AnyClient, watch: Watch, namespace: tuple[bytes, ...], name: bytes | None
    ) -> None:
        if name is not None:
            client.withdraw(TrackName(namespace, name))
        elif namespace in watch.told and isinstance(client, MoqtClient):
            said = watch.told.pop(namespace)
            client.session.tell_namespace_gone(watch.request_id, namespace, said)
