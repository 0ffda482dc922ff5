"""Which relays are asked: those named by address, or else those of this machine.

Several networks may run on one machine, with the same node ids in each. Relays belong together that
know each other as nodes, by id and by the address where others reach them. Those of one network are
asked: the largest, or of two that are equal the one that was started last.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from laps.admin.client import (
    AdminClient,
    AdminError,
    NoAnswer,
    NotFound,
    Pool,
    admin_url,
    urls_of_this_machine,
)
from laps.admin.schema.network import Nodes
from laps.admin.schema.relay import Node
from laps.types import parse_node_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from laps.admin.client import PageT

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """Whom a person means."""

    admin: tuple[str, ...] = ()
    "Addresses of admin APIs; none for the relays of this machine."
    token: str = ""


@dataclass(slots=True)
class Relays:
    """The relays that answer, by node id, and those that do not."""

    apis: dict[str, AdminClient] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    "Why one does not, or is not asked, by its address."
    pool: Pool | None = None
    "The connections to them."

    def only(self, node: str) -> Relays:
        """The one with an id."""
        if node not in self.apis:
            known = ", ".join(self.apis)
            raise NotFound(
                f"no relay {node} was found; those that answer: {known}. Give the address of "
                "another with --admin"
            )
        return Relays({node: self.apis[node]}, {}, self.pool)

    async def ask(self, call: Callable[[AdminClient], Awaitable[T | None]]) -> dict[str, T]:
        """The same of each, at once; a relay with no answer is left out, one that left noted."""
        apis = list(self.apis.items())
        answers = await asyncio.gather(*(self._one(call, api) for _, api in apis))
        return {
            node: answer
            for (node, _), answer in zip(apis, answers, strict=True)
            if answer is not None
        }

    async def _one(
        self, call: Callable[[AdminClient], Awaitable[T | None]], api: AdminClient
    ) -> T | None:
        try:
            return await call(api)
        except NoAnswer as error:
            self.silent[api.url] = str(error)
            return None

    async def find(
        self, node: str, page: type[PageT], name: str = "", **query: str | int
    ) -> PageT | None:
        """A page of one; None if it does not know the thing, or does not answer any more."""
        if (api := self.apis.get(node)) is None:
            return None
        return await self._one(lambda it: it.find(page, name, **query), api)

    async def close(self) -> None:
        """Ask no more."""
        if self.pool is not None:
            await self.pool.close()


@asynccontextmanager
async def opened(where: Where) -> AsyncIterator[Relays]:
    """The relays that a person means; an error if none of them answers."""
    relays = Relays(pool=Pool())
    try:
        await find_more(relays, where)
        if not relays.apis:
            raise _nobody(relays)
        yield relays
    finally:
        await relays.close()


async def find_more(relays: Relays, where: Where) -> list[str]:
    """Add those that have come since; their ids."""
    asked = {api.url for api in relays.apis.values()}
    urls = [url for url in dict.fromkeys(_urls(where)) if url not in asked]
    new = await asyncio.gather(*(_introduce(url, where.token, relays) for url in urls))
    found = [api for api in new if api is not None]
    if found and not where.admin:
        found = await _of_one_network(relays, found)
    for api in sorted(found, key=lambda api: parse_node_id(api.node)):
        relays.apis[api.node] = api  # one that was started again has another address
    return [api.node for api in found]


async def _introduce(url: str, token: str, relays: Relays) -> AdminClient | None:
    api = AdminClient(url, token, relays.pool)
    try:
        api.node = (await api.get(Node)).node
    except AdminError as error:
        relays.silent[url] = str(error)
        return None
    relays.silent.pop(url, None)
    return api


@dataclass(frozen=True, slots=True)
class _Known:
    """A relay, and the nodes that it knows."""

    api: AdminClient
    contact: str
    since: float
    nodes: frozenset[tuple[str, str]]

    def meets(self, other: _Known) -> bool:
        """Whether one of them knows the other, and not just its id."""
        return (other.api.node, other.contact) in self.nodes or (
            (self.api.node, self.contact) in other.nodes
        )


async def _of_one_network(relays: Relays, found: list[AdminClient]) -> list[AdminClient]:
    """Those of the relays that were found that are of one network, with those that are asked."""
    apis = [*relays.apis.values(), *found]
    if len(apis) == 1:
        return found
    known = [item for item in await asyncio.gather(*map(_knows, apis)) if item is not None]
    networks: list[list[_Known]] = []
    for item in known:
        joined = [network for network in networks if any(item.meets(other) for other in network)]
        networks = [network for network in networks if network not in joined]
        networks.append([item, *(other for network in joined for other in network)])
    asked = {api.url for api in relays.apis.values()}
    networks.sort(
        key=lambda network: (
            any(item.api.url in asked for item in network),
            len(network),
            max(item.since for item in network),
        ),
        reverse=True,
    )
    taken = {item.api.node for item in networks[0]} if networks else set()
    wanted = {item.api.url for item in networks[0]} if networks else set()
    for network in networks[1:]:
        alone = len(network) == 1 and not network[0].nodes
        for item in network:
            if alone and item.api.node not in taken:
                taken.add(item.api.node)  # it knows nobody, and nobody has its id
                wanted.add(item.api.url)
            else:
                relays.silent[item.api.url] = (
                    f"relay {item.api.node} at {item.api.url} is of another network on this "
                    "machine: give its address with --admin"
                )
    return [api for api in found if api.url in wanted]


async def _knows(api: AdminClient) -> _Known | None:
    try:
        node, nodes = await asyncio.gather(api.get(Node), api.get(Nodes, limit=0))
    except AdminError:
        return None
    others = frozenset((row.node, row.contact) for row in nodes.nodes if row.node != node.node)
    return _Known(api, node.contact, node.since, others)


def _urls(where: Where) -> Sequence[str]:
    if where.admin:
        return [admin_url(text) for text in where.admin]
    return urls_of_this_machine()


def _nobody(relays: Relays) -> NoAnswer:
    if relays.silent:
        # The first says why; of the others the address is enough.
        first, *others = relays.silent.values()
        more = f" (nor do {len(others)} others)" if others else ""
        return NoAnswer(first + more)
    return NoAnswer(
        "no relay was found on this machine: start one with `laps relay` or `laps lab`, or name "
        "the admin address of another with --admin http://HOST:PORT (or LAPS_ADMIN)"
    )
