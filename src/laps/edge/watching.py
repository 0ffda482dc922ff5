"""Who hears of which namespaces and tracks: SUBSCRIBE_NAMESPACE, and QUICR's masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.types import TrackName

if TYPE_CHECKING:
    from laps.edge.client import EdgeClient, Watch
    from laps.edge.context import Context
    from laps.infobase.namespaces import NamespaceChange


class Watches:
    """The namespace subscriptions of a relay's clients."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def watch(self, client: EdgeClient, watch: Watch, now: float) -> None:
        """Tell a client of what there is below a prefix, and of what comes."""
        client.watching[watch.request_id] = watch
        for info in self._context.relay.extensions.namespaces.matching(watch.prefix):
            if watch.shows(info.namespace):
                self._tell(client, watch, info.namespace, info.name, now)

    def changed(self, change: NamespaceChange, now: float) -> None:
        """A namespace or a track has its first publisher, or has lost its last."""
        info = change.info
        for client in list(self._context.clients):
            for watch in list(client.watching.values()):
                if not watch.shows(info.namespace):
                    continue
                if change.added:
                    self._tell(client, watch, info.namespace, info.name, now)
                    continue
                if info.name is not None:
                    client.withdraw(TrackName(info.namespace, info.name))
                if info.namespace in watch.told and not self._is_offered(info.namespace):
                    client.tell_namespace_gone(watch, info.namespace)

    def _is_offered(self, namespace: tuple[bytes, ...]) -> bool:
        return self._context.relay.extensions.namespaces.has(namespace)

    def _tell(
        self,
        client: EdgeClient,
        watch: Watch,
        namespace: tuple[bytes, ...],
        name: bytes | None,
        now: float,
    ) -> None:
        """A track that is published by itself is one of its namespace, which need not be."""
        if not client.access.may_see(namespace, name, now):
            return
        if watch.namespaces and namespace not in watch.told:
            client.tell_namespace(watch, namespace)
        if name is not None and watch.tracks and client.access.may_have(namespace, name, now):
            track = self._context.track(TrackName(namespace, name), now)
            client.offer(track, forward=watch.forward, now=now)
