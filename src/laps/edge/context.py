"""What the parts of an `Edge` share: the relay, the clients, the time that things fall due, and the
answers to "who offers this track?".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.edge.addresses import Addresses
from laps.edge.client import EdgeClient
from laps.edge.settings import ClientCounters, EdgeSettings, QuicrCounters
from laps.edge.shares import Limit, Shares, Whose
from laps.relay.roles import Role
from laps.relay.stub import StubClient
from laps.relay.timers import Timers
from laps.tracks.ports import Answers
from laps.types import announce_info, hash_track

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.edge.authority import Authority
    from laps.edge.client import ClientLink
    from laps.edge.shares import ClientShare
    from laps.relay.relay import Relay
    from laps.tracks.ports import Client
    from laps.tracks.track import Track
    from laps.types import NodeId, TrackName


class Context:
    """What the parts of an Edge share."""

    def __init__(self, relay: Relay, settings: EdgeSettings, authority: Authority) -> None:
        self.relay = relay
        self.authority = authority
        self.settings = settings
        self.counters = ClientCounters()
        self.quicr = QuicrCounters()
        self.shares = Shares(settings.shares, relay.journal)
        self.addresses = Addresses(self.shares, settings.exempt)
        self.connected: dict[EdgeClient, None] = {}
        "Clients, those too whose sessions have not been set up."
        self.clients: dict[EdgeClient, None] = {}
        self.holding: set[EdgeClient] = set()
        "Clients with streams that nobody has explained yet."
        self.timers = Timers()
        self.is_sooner = False
        "Something falls due earlier than all that was known at the last `deadline`."

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Make a call at a time."""
        first = self.timers.next
        self.is_sooner = self.is_sooner or first is None or when < first
        self.timers.at(when, call)

    def share_of(self, link: ClientLink) -> ClientShare:
        """What a client that connects by a link has of the relay."""
        return self.shares.client(self.addresses.account(link.host))

    def track(self, name: TrackName, now: float) -> Track:
        """A track by its name."""
        return self.relay.tracks.track(hash_track(name), now, name)

    def no_room_for(self, name: TrackName) -> str | None:
        """Why a track that is not known here cannot be taken; None if it can."""
        tracks, most = self.relay.tracks, self.settings.most_tracks
        if len(tracks) < most or hash_track(name).full_name_hash in tracks:
            return None
        self.shares.refused[Whose.RELAY, Limit.TRACKS] += 1
        return f"this relay has {most} tracks, as many as clients.most_tracks allows"

    def announce(
        self, client: EdgeClient, namespace: tuple[bytes, ...], name: bytes | None, now: float
    ) -> None:
        """Tell the network that a client offers a namespace or a track."""
        info = announce_info(self.relay.id, namespace, name)
        self.relay.announce(client, info, now, (namespace, name))

    def unannounce(
        self, client: EdgeClient, namespace: tuple[bytes, ...], name: bytes | None, now: float
    ) -> None:
        """It no longer does."""
        info = announce_info(self.relay.id, namespace, name)
        self.relay.unannounce(client, info, now, (namespace, name))

    # -- who offers a track ------------------------------------------------------------------------

    def is_offered(self, track: Track) -> bool:
        """Whether somebody is known to publish a track."""
        here = track.answering or self.has_answering(track) or self.has_plain(track)
        return bool(here or self.elsewhere(track))

    def publisher(self, track: Track) -> EdgeClient | None:
        """A client that offers a track and can be asked for ranges, whether or not it was asked.

        It may offer a namespace and not be allowed all below it.
        """
        for client in self._offering(track):
            if isinstance(client, EdgeClient) and client.answers_fetches:
                name = track.name
                if name is None or client.access.may_publish(name.namespace, name.name):
                    return client
        return None

    def has_answering(self, track: Track) -> bool:
        """Whether a client offers a track that says itself whether it has it."""
        return any(client.answers is Answers.ITSELF for client in self._offering(track))

    def has_plain(self, track: Track) -> bool:
        """Whether a publisher offers a track that has nothing to answer."""
        return any(client.answers is Answers.NEVER for client in self._offering(track))

    def elsewhere(self, track: Track, asked_by: NodeId | None = None) -> list[NodeId]:
        """The other relays that offer a track, our own Stubs first.

        A relay that asks us knows of the others itself, unless it is a Stub of ours.
        """
        if track.name is None:
            return []
        stubs = [
            client.peer.node_id
            for client in self._offering(track)
            if isinstance(client, StubClient) and client.answers is Answers.BY_RELAY_REQUEST
        ]
        if asked_by is not None and asked_by not in {it.peer.node_id for it in self.relay.stubs}:
            return stubs
        offers = self.relay.extensions.namespaces.offering(track.name.namespace, track.name.name)
        return stubs + [it for it in offers if it not in (self.relay.id, asked_by)]

    def offering_nodes(self, track: Track) -> list[NodeId]:
        """The nodes that offer a track, this one among them."""
        return ([self.relay.id] if self._offering(track) else []) + self.elsewhere(track)

    def is_blind(self) -> bool:
        """Whether tracks may exist that nobody has told us of."""
        if self.relay.role is Role.STUB:
            return True
        return any(
            not peer_link.link.extended
            for peer in self.relay.peers.values()
            for peer_link in peer.links.values()
        )

    def _offering(self, track: Track) -> list[Client]:
        return [] if track.name is None else self.relay.tracks.offering(track.name)
