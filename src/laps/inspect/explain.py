"""Why a track's data goes where it goes: the tree, put together from what each relay says.

A flow is followed from relay to relay by its set: what one sends to a peer under an SNS id is the
flow that the peer has from it under that id. So the tree is what relays do, and not what they would
do. A relay that cannot be asked is passed by what its neighbours say: which flows come from it, and
which way leads on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from laps.admin.client import NotFound
from laps.admin.schema.network import Announces, KnownNode, OneNode, Peers, Subscribes
from laps.admin.schema.relay import Node
from laps.admin.schema.tracks import Fib, OneTrack, Origin, Tracks
from laps.admin.schema.tracks import Hop as TrackHop
from laps.inspect.names import Wanted, by_number
from laps.inspect.trees import Hop, TrackStory, Way, Why

if TYPE_CHECKING:
    from laps.admin.schema.tracks import Flow, OutSet
    from laps.inspect.relays import Relays

Visit = tuple[str, Origin]
"A flow that was seen: the relay, and where it comes from."

# Between two looks at how much has come. Relays count by the stream, each second at the latest.
RATE_S: Final = 1.0


async def find_track(relays: Relays, wanted: Wanted) -> tuple[Wanted, dict[str, OneTrack]]:
    """The track as relays know it, by its hash or by the name they show."""
    rows = await relays.ask(lambda api: api.find(OneTrack, wanted.hash))
    if not rows and wanted.name:
        # A namespace part may have a slash in it, and then the name reads like another's.
        lists = await relays.ask(lambda api: api.get(Tracks, q=wanted.name, limit=0))
        listed = [row for answer in lists.values() for row in answer.tracks]
        names = wanted.namespace, wanted.name
        found = next((row.track for row in listed if (row.namespace, row.name) == names), None)
        if found is not None:
            wanted = Wanted(found, *names)
            rows = await relays.ask(lambda api: api.find(OneTrack, found))
    if not rows:
        asked = ", ".join(relays.apis)
        raise NotFound(
            f"no track {wanted} is known to the relays that were asked ({asked}): nobody publishes "
            "it and nobody wants it there; `laps show tracks` lists what there is"
        )
    for row in rows.values():
        if row.namespace or row.name:
            wanted = Wanted(wanted.hash, row.namespace, row.name)
            break
    return wanted, rows


async def explain_track(relays: Relays, wanted: Wanted, rate_s: float = RATE_S) -> TrackStory:
    """The tree that a track's data takes now."""
    wanted, rows = await find_track(relays, wanted)
    walk = _Walk(relays, wanted, rows)
    await walk.prepare(rate_s)
    return await walk.story()


class _Walk:
    """One look at one track."""

    def __init__(self, relays: Relays, wanted: Wanted, rows: dict[str, OneTrack]) -> None:
        self._relays = relays
        self._wanted = wanted
        self._rows = rows
        self._asked: set[str] = set()
        "Those that have answered."
        self._rates: dict[str, float] = {}
        self._flows: dict[str, list[Flow]] = {}
        self._srtts: dict[tuple[str, str], int] = {}
        self._on_demand: dict[tuple[str, str], str] = {}
        "Why a relay has dialled another that nobody configured."
        self._roles: dict[str, str] = {}
        self._wants: dict[str, set[str]] = {}
        "The nodes that want the track, as each relay knows them."
        self._offers: set[str] = set()
        "Where publishers are that say they have it."
        self._visited: set[Visit] = set()
        self._ways: dict[tuple[str, str], OneNode | None] = {}
        self._story = TrackStory(str(wanted), wanted.hash)

    async def prepare(self, rate_s: float) -> None:
        """Ask all relays what they know."""
        relays, key = self._relays, self._wanted.hash
        fib = await relays.ask(lambda api: api.get(Fib, q=key, limit=0))
        self._asked = set(fib)
        for node, flows in fib.items():
            self._flows[node] = [flow for flow in flows.fib if flow.track == key]
        for node, peers in (await relays.ask(lambda api: api.get(Peers, limit=0))).items():
            for peer in peers.peers:
                self._roles.setdefault(peer.node, peer.role)
                if peer.on_demand:
                    self._on_demand[node, peer.node] = peer.on_demand
                    # The other side uses it too, and does not know why it is there.
                    why = f"{node} dialled it: {peer.on_demand}"
                    self._on_demand.setdefault((peer.node, node), why)
                if peer.srtt_us:
                    self._srtts[node, peer.node] = peer.srtt_us
        for node, own in (await relays.ask(lambda api: api.get(Node))).items():
            self._roles[node] = own.role
        subscribes = await relays.ask(lambda api: api.get(Subscribes, q=key, limit=0))
        for node, wanted in subscribes.items():
            self._wants[node] = {row.source for row in wanted.subscribes if row.track == key}
        if self._wanted.namespace:
            await self._ask_who_offers()
        if rate_s:
            await self._measure(rate_s)

    async def _ask_who_offers(self) -> None:
        """Which relays have publishers that would send it if somebody wanted it."""
        parts = self._wanted.namespace.split("/")
        announces = await self._relays.ask(lambda api: api.get(Announces, q=parts[0], limit=0))
        for answer in announces.values():
            for row in answer.announces:
                offered = row.namespace.split("/")
                named = row.name in (None, self._wanted.name)
                if named and offered == parts[: len(offered)]:
                    self._offers.add(row.source)

    async def _measure(self, rate_s: float) -> None:
        await asyncio.sleep(rate_s)
        again = await self._relays.ask(lambda api: api.find(OneTrack, self._wanted.hash))
        for node, row in again.items():
            before = self._rows.get(node)
            if before is not None and row.at > before.at:
                came = row.received_bytes - before.received_bytes
                self._rates[node] = max(0.0, came / (row.at - before.at))

    async def story(self) -> TrackStory:
        """The trees, with notes and defects."""
        story = self._story
        for node in self._relays.apis:
            if self._roles.get(node) != "stub":
                await self._plant(node)
        await self._plant_stubs()
        await self._orphans()
        for root in story.roots:
            self._check(root)
        self._say_who_is_missing()
        return story

    # -- hops --------------------------------------------------------------------------------------

    def _hop(self, node: str, above: Hop | None, targets: set[str]) -> Hop:
        row = self._rows.get(node)
        hop = Hop(node, self._roles.get(node, ""), asked=node in self._asked)
        if row is not None:
            hop.publishers, hop.subscribers = row.publishers, row.subscribers
            self._story.service = self._story.service or row.service
            self._story.servers = self._story.servers or row.servers
        hop.bytes_per_s = self._rates.get(node)
        hop.targets = by_number(targets)
        if above is None:
            hop.sum_us = 0
        else:
            links = self._srtts
            hop.srtt_us = links.get((above.node, node), links.get((node, above.node)))
            if hop.srtt_us is not None and above.sum_us is not None:
                hop.sum_us = above.sum_us + hop.srtt_us
        return hop

    async def _plant(self, node: str) -> None:
        """The tree of a relay, if publishers are its clients."""
        flows = [flow for flow in self._flows.get(node, ()) if flow.source.client is not UNSET]
        own = [flow for flow in flows if flow.source.stub is UNSET]
        row = self._rows.get(node)
        # A Stub's publishers count here too, and have a tree of their own.
        if not own and (row is None or row.publishers <= len(flows)):
            return
        root = self._hop(node, None, {target for flow in own for target in flow.targets})
        for flow in own:
            await self._follow(root, flow, (node,))
        await self._add_stubs(root, (node,))
        self._story.roots.append(root)

    async def _plant_stubs(self) -> None:
        """The trees of Stubs: the relay above each has the flow."""
        given: dict[str, list[tuple[str, Flow]]] = {}
        for node, flows in self._flows.items():
            for flow in flows:
                if (stub := flow.source.stub) is not UNSET:
                    given.setdefault(stub, []).append((node, flow))
        for node, row in self._rows.items():
            if self._roles.get(node) == "stub" and row.origin:
                given.setdefault(node, [])
        for stub in by_number(given):
            root = self._hop(stub, None, set())
            root.role = "stub"
            for node, flow in given[stub]:
                below = self._hop(node, root, set(flow.targets))
                await self._follow(below, flow, (stub, node))
                await self._add_stubs(below, (stub, node))
                root.below.append(below)
            self._story.roots.append(root)

    async def _add_stubs(self, above: Hop, path: tuple[str, ...]) -> None:
        """The Stubs that a relay gives it to, which are clients to it."""
        for node, flows in list(self._flows.items()):
            if self._roles.get(node) != "stub" or node in path:
                continue
            for flow in flows:
                if flow.source.peer == above.node:
                    below = self._hop(node, above, {node})
                    below.why = (Why((node,), f"a Stub of {above.node}"),)
                    await self._follow(below, flow, (*path, node))
                    above.below.append(below)

    async def _follow(self, hop: Hop, flow: Flow, path: tuple[str, ...]) -> None:
        """All that a relay sends on of a flow."""
        self._visited.add((hop.node, flow.source))
        hop.notes += self._unreached(hop.node, flow.unreached)
        for out in flow.out:
            if out.old and not out.streams:
                continue
            below = await self._below(hop, out, path)
            if out.old:
                below.notes.append(f"an old way: {out.streams} streams end here, no new ones begin")
            hop.below.append(below)

    def _unreached(self, node: str, nodes: list[str]) -> list[str]:
        """Who wants it and is not sent it, the same reasons together."""
        together: dict[str, list[str]] = {}
        for target in nodes:
            reason = self._reasons(node).get(target) or "no link leads there"
            together.setdefault(reason, []).append(target)
        return [f"not sent to {' '.join(to)}: {reason}" for reason, to in together.items()]

    def _reasons(self, node: str) -> dict[str, str]:
        """Why a relay sends the track the way that it does, by target."""
        row = self._rows.get(node)
        return {} if row is None else {hop.node: hop.reason for hop in row.hops}

    async def _below(self, above: Hop, out: OutSet, path: tuple[str, ...]) -> Hop:
        node, nodes = str(out.peer), set(out.nodes)
        hop = self._hop(node, above, nodes)
        hop.why = await self._why(above.node, node, nodes)
        if (why := self._on_demand.get((above.node, node))) is not None:
            hop.notes.append(f"a session on demand: {why}")
        if node in path:
            self._story.defects.append(f"a loop: {' to '.join((*path, node))}")
            return hop
        path = (*path, node)
        if not hop.asked:
            await self._pass_by(hop, above.node, nodes - {node}, path)
            return hop
        flow = await self._arriving(node, Origin(peer=above.node, sns=out.sns))
        if flow is None:
            if nodes - {node} or node not in nodes:
                hop.notes.append("has not heard of this set yet, so what it does is not known")
        else:
            await self._follow(hop, flow, path)
        await self._add_stubs(hop, path)
        return hop

    async def _arriving(self, node: str, source: Origin) -> Flow | None:
        """The flow that a relay has from a peer under a set."""
        for flow in self._flows.get(node, ()):
            if flow.source == source:
                return flow
        # Of a track that has not carried anything, a relay that passes it on has no hash.
        answer = await self._relays.find(node, Fib, q=str(source.peer), limit=0)
        for flow in () if answer is None else answer.fib:
            if flow.source == source:
                self._flows.setdefault(node, []).append(flow)
                return flow
        return None

    # -- relays that cannot be asked ---------------------------------------------------------------

    async def _pass_by(self, hop: Hop, asker: str, nodes: set[str], path: tuple[str, ...]) -> None:
        """Go on after one that cannot be asked: by what comes from it, and the ways beyond."""
        left = set(nodes)
        for node, flows in self._flows.items():
            for flow in flows:
                covered = _covered(node, flow)
                if flow.source.peer != hop.node or not covered & left or node in path:
                    continue
                left -= covered
                below = self._hop(node, hop, covered & nodes)
                below.notes.append(f"{hop.node} was not asked why")
                await self._follow(below, flow, (*path, node))
                hop.below.append(below)
        onward: dict[str, set[str]] = {}
        for node in left:
            way = await self._way(asker, node, hop.node)
            if way is None:
                hop.notes.append(f"how it goes on to {node} is not known")
            else:
                onward.setdefault(way, set()).add(node)
        for node in by_number(onward):
            below = self._hop(node, hop, onward[node])
            below.notes.append(f"as {asker} knows the way")
            hop.below.append(below)
            if node not in path:
                await self._pass_by(below, asker, onward[node] - {node}, (*path, node))

    async def _way(self, asker: str, node: str, after: str) -> str | None:
        """The next relay after one on the way to a node, as `asker` knows it."""
        answer = await self._known(asker, node)
        for path in () if answer is None else (answer.best, *answer.alternates):
            if path is not None and after in path.hops[:-1]:
                return path.hops[path.hops.index(after) + 1]
        return None

    async def _known(self, asker: str, node: str) -> OneNode | None:
        """What a relay knows of the ways to a node."""
        if (asker, node) not in self._ways:
            answer = await self._relays.find(asker, OneNode, node)
            self._ways[asker, node] = answer
            if answer is not None:
                self._roles.setdefault(node, answer.role)
        return self._ways[asker, node]

    async def _orphans(self) -> None:
        """Flows that come from relays that were not asked, and belong to no tree yet."""
        for node, flows in list(self._flows.items()):
            for flow in flows:
                peer = flow.source.peer
                if not isinstance(peer, str) or peer in self._asked:
                    continue
                if (node, flow.source) in self._visited:
                    continue
                root = next((r for r in self._story.roots if r.node == peer), None)
                if root is None:
                    root = self._hop(peer, None, _covered(node, flow))
                    root.notes.append("where it has it from is not known")
                    self._story.roots.append(root)
                below = self._hop(node, root, set(flow.targets))
                await self._follow(below, flow, (peer, node))
                root.below.append(below)

    # -- reasons -----------------------------------------------------------------------------------

    async def _why(self, node: str, peer: str, targets: set[str]) -> tuple[Why, ...]:
        """Why a relay sends to a peer what is for some nodes, the same reasons together."""
        row = self._rows.get(node)
        hops = {} if row is None else {hop.node: hop for hop in row.hops}
        together: dict[tuple[str, tuple[Way, ...]], list[str]] = {}
        for target in by_number(targets):
            hop: TrackHop | KnownNode | None = hops.get(target)
            if isinstance(hop, TrackHop) and hop.peer != peer:
                hop = None
            if hop is None and (hop := await self._known(node, target)) is None:
                continue
            ways = tuple(Way.of(path) for path in hop.alternates if path.peer != peer)
            together.setdefault((hop.reason, ways), []).append(target)
        return tuple(Why(tuple(nodes), *reason) for reason, nodes in together.items())

    # -- notes and defects -------------------------------------------------------------------------

    def _check(self, root: Hop) -> None:
        """A relay that has the same twice."""
        above: dict[str, list[str]] = {}
        for hop in root.all():
            for below in hop.below:
                if not any(note.startswith("an old way") for note in below.notes):
                    above.setdefault(below.node, []).append(hop.node)
        for node, sources in above.items():
            if len(set(sources)) > 1:
                twice = " and from ".join(by_number(sources))
                self._story.defects.append(
                    f"a double copy: {node} has it from {twice}; for an instant that is a way that "
                    "changes, and for longer a defect"
                )

    def _say_who_is_missing(self) -> None:
        story, notes = self._story, self._story.notes
        reached = {hop.node for root in story.roots for hop in root.all()}
        readers = {node: row.subscribers for node, row in self._rows.items()}
        wanting = {node for node, count in readers.items() if count}
        wanting |= {source for sources in self._wants.values() for source in sources}
        if not story.roots:
            self._say_why_nothing_flows(wanting)
        elif not wanting:
            notes.append("nobody subscribes to it")
        for node in by_number(wanting - reached) if story.roots else ():
            heard = [root.node for root in story.roots if node in self._wants.get(root.node, ())]
            if not all(root.asked for root in story.roots):
                notes.append(f"whether {node}, which wants it, gets it is not known")
                continue
            why = f"{story.roots[0].node} has not heard of it"
            if heard:
                told = self._reasons(heard[0]).get(node, "")
                why = f"{heard[0]} knows of it: {told or 'no path leads there'}"
            count = readers.get(node)
            who = f"{node} gets nothing"
            if count:
                who = f"{node}, with {count} subscriber{'' if count == 1 else 's'}, gets nothing"
            notes.append(f"{who}: {why}")
        self._say_who_was_not_asked()

    def _say_why_nothing_flows(self, wanting: set[str]) -> None:
        at, offers = " ".join(by_number(wanting)), " ".join(by_number(self._offers))
        if not self._offers:
            words = (
                f"nobody publishes it; it is wanted at {at}" if wanting else "nobody publishes it"
            )
        elif wanting:
            words = (
                f"{offers} offers it and {at} wants it, and yet no relay that was asked sends it"
            )
        else:
            words = f"nobody subscribes to it, so nothing flows; {offers} offers it"
        self._story.notes.append(words)

    def _say_who_was_not_asked(self) -> None:
        story = self._story
        unasked = by_number({h.node for r in story.roots for h in r.all() if not h.asked})
        if unasked:
            story.notes.append(
                f"not asked: {' '.join(unasked)}; give their admin addresses with --admin to see "
                "what they do"
            )


def _covered(node: str, flow: Flow) -> set[str]:
    """The nodes that a flow at a relay is for, the relay itself among them."""
    return {node, *flow.targets} if flow.local else set(flow.targets)
