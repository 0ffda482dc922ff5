"""Who is at the other end of a link: how peers prove it, and what those may say that have.

A relay with a key sends AUTHORIZATION on every link that has extensions, whether or not it is asked
for. A relay that asks for it lets nobody in who has not sent one that is right, but for those whose
address the operator trusts; of these it believes everything, as it does where it does not ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laps.auth.bounds import UNBOUNDED
from laps.auth.peers import Place, ProofError, Side, Speaker, sign
from laps.errors import CloseCode
from laps.relay.roles import RULES, Role
from laps.types import format_node_id, is_in_network
from laps.wire.peering import ResponseCode

if TYPE_CHECKING:
    from laps.auth.keys import Key
    from laps.auth.peers import PeerVerifier, Proven
    from laps.infobase.nodes import SessionId
    from laps.relay.journal import Journal
    from laps.relay.peers import Links, PeerLink
    from laps.relay.ports import Link
    from laps.relay.settings import RelayCounters
    from laps.routing.policy import PolicyInForce
    from laps.sessions.peer import Effect, Event, PeerRefused
    from laps.types import Network, NodeId, NodeInfo


@dataclass(frozen=True, slots=True)
class ProofPolicy:
    """What an operator decides about proofs."""

    key: Key | None = None
    "What this relay proves itself with."
    verifier: PeerVerifier | None = None
    "What the proofs of others are checked with."
    required: bool = False
    trusted: tuple[Network, ...] = ()
    "Where peers may be that need not prove anything."
    region: str = ""


class PeerProofs:
    """The proofs of one relay, its own and its peers'."""

    def __init__(
        self,
        self_id: NodeId,
        role: Role,
        links: Links,
        peering: PolicyInForce,
        journal: Journal,
        counters: RelayCounters,
    ) -> None:
        self.policy = ProofPolicy()
        self._peering = peering
        "Which nodes may be peers at all."
        self._seen_version = peering.version
        self.epoch_s = 0.0
        "The time of day when the relay's time was 0, in seconds since 1970."
        self._self_id = self_id
        self._role = role
        self._links = links
        self._journal = journal
        self._counters = counters
        self._proven: dict[SessionId, Proven] = {}

    def configure(self, policy: ProofPolicy, now: float) -> None:
        """Take what an operator has decided anew; peers whose keys no longer count are closed."""
        self.policy = policy
        bounds = policy.key.bounds if policy.required and policy.key is not None else UNBOUNDED
        self._links.carried = bounds.carries
        for link_id, proven in list(self._proven.items()):
            try:
                if policy.required and policy.verifier is not None:
                    policy.verifier.recheck(proven)
            except ProofError as error:
                self._note_refused(proven.speaker.node_id, str(error), now)
                if (link := self._links.links.get(link_id)) is not None:
                    link.close(CloseCode.NOT_AUTHORIZED, f"refused: {error}")

    def of(self, link: Link) -> LinkProofs:
        """How the two ends of a link prove who they are."""
        return LinkProofs(self, link)

    def proven(self, link_id: SessionId) -> Proven | None:
        """Who is at the other end of a link, if it had to prove it."""
        return self._proven.get(link_id)

    def closed(self, link_id: SessionId) -> None:
        """A link is closed."""
        self._proven.pop(link_id, None)

    # -- what links ask ----------------------------------------------------------------------------

    def wants(self, link: Link) -> bool:
        """Whether the other end has to prove who it is."""
        return self.policy.required and not is_in_network(link.remote, self.policy.trusted)

    def token(self, link: Link, now: float) -> bytes | None:
        """A token of our own for a link."""
        key = self.policy.key
        if key is None:
            return None
        speaker = Speaker(
            self._self_id, self._role.value, self.policy.region, key.bounds.namespaces
        )
        place = Place(link.certificate, Side.DIALLER if link.dialled else Side.DIALLED)
        return sign(speaker, place, key, self.epoch_s + now)

    def check(self, link: Link, info: NodeInfo, token: bytes | None, now: float) -> str:
        """Why the other end of a link is not who it says, or not whom we dialled; empty: it is."""
        if link.expected is not None and info.id != link.expected:
            names = format_node_id(info.id), format_node_id(link.expected)
            return "node {} answers where {} is expected (peering.nodes)".format(*names)
        problem = self._proof_problem(link, info, token, now)
        proven = self._proven.get(link.id)
        region = "" if proven is None else proven.speaker.region
        return problem or self._peering.against_peer(info.id, region) or ""

    def _proof_problem(self, link: Link, info: NodeInfo, token: bytes | None, now: float) -> str:
        if not self.wants(link):
            return ""
        if token is None:
            way_out = f"name {link.remote} in peering.trusted to take it without"
            return f"it speaks plain laps, which has no AUTHORIZATION: {way_out}"
        if self.policy.verifier is None:
            return "there are no keys to check anybody with (peering.keys)"
        place = Place(link.certificate, Side.DIALLED if link.dialled else Side.DIALLER)
        try:
            proven = self.policy.verifier.verify(token, info.id, place, self.epoch_s + now)
        except ProofError as error:
            return str(error)
        role = proven.speaker.role
        if RULES[Role(role)].node_type is not info.type:
            return f"its token is for the role {role}, and it is a {info.type.name.lower()}"
        self._proven[link.id] = proven
        return ""

    # -- when policy changes -----------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Close peers that may not be any more: policy is another, or they are elsewhere."""
        if self._seen_version == self._peering.version:
            return
        self._seen_version = self._peering.version
        for peer in list(self._links.peers.values()):
            against = self._peering.against_peer(peer.node_id)
            if against is None or peer.is_stub:
                continue
            self._note_refused(peer.node_id, against, now)
            for peer_link in list(peer.links.values()):
                peer_link.link.close(CloseCode.NOT_AUTHORIZED, f"refused: {against}")

    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        return None if self._seen_version == self._peering.version else 0.0

    # -- what becomes of it ------------------------------------------------------------------------

    def give_up(self, peer_link: PeerLink, now: float) -> list[Effect | Event]:
        """After the time that a proof may take: a peer that has sent none is refused."""
        return peer_link.session.give_up("AUTHORIZATION did not come in time")

    def refused(self, link: Link, event: PeerRefused, now: float) -> None:
        """One side does not want the other: the link is closed, and the operator is told."""
        if event.reason and event.node_id is not None:
            self._note_refused(event.node_id, event.reason, now)
        elif link.dialled and event.response_code == ResponseCode.NOT_AUTHORIZED:
            return  # the peer closes the link, and says why
        link.close(event.close_code, event.describe(self._self_id, dialled=link.dialled))

    def _note_refused(self, node_id: NodeId, reason: str, now: float) -> None:
        self._counters.unproved_peers += 1
        self._journal.note(now, "peer_refused", format_node_id(node_id), reason=reason)


class LinkProofs:
    """As `sessions.peer.Proofs`, for one link."""

    def __init__(self, proofs: PeerProofs, link: Link) -> None:
        self._proofs = proofs
        self._link = link

    @property
    def wanted(self) -> bool:
        """As `Proofs.wanted`."""
        return self._proofs.wants(self._link)

    def token(self, now: float) -> bytes | None:
        """As `Proofs.token`."""
        return self._proofs.token(self._link, now)

    def check(self, info: NodeInfo, token: bytes | None, now: float) -> str:
        """As `Proofs.check`."""
        return self._proofs.check(self._link, info, token, now)
