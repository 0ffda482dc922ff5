"""What a relay with a key may be, and what it may speak for: the member `laps` of a JSON Web Key.

    {
      "kid": "berlin-1", "kty": "OKP", "crv": "Ed25519", "x": "…",
      "laps": {
        "nodes": ["1:100"], "roles": ["edge"], "regions": ["eu"],
        "namespaces": ["rooms/eu"], "carries": []
      }
    }

What is left out is not bounded, so a key without the member is that of any relay. `nodes` are the
ids that it may have, and `carries` those of other nodes that it may tell of ways to and pass on
messages of: an id, all with a first half (`1:*`), or all (`*`). A namespace stands for all below
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from laps.errors import ConfigError, quote
from laps.names import read_namespace
from laps.types import parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laps.auth.grants import Namespace
    from laps.types import NodeId

ROLES: Final = ("edge", "via", "stub", "control")
_MEMBERS: Final = ("nodes", "roles", "regions", "namespaces", "carries")
_ALL_BITS: Final = 2**64 - 1
_HIGH_BITS: Final = _ALL_BITS ^ 0xFFFF_FFFF


class NodePattern(NamedTuple):
    """Node ids that agree in some bits: one, those of a first half, or all."""

    bits: int
    mask: int

    def has(self, node_id: NodeId) -> bool:
        """Whether an id is one of them."""
        return node_id & self.mask == self.bits


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a relay with a key may be and say; None in place of each: whatever it likes."""

    nodes: tuple[NodePattern, ...] | None = None
    roles: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    namespaces: tuple[Namespace, ...] | None = None
    carries: tuple[NodePattern, ...] | None = None


UNBOUNDED: Final = Bounds()


def holds(nodes: Iterable[NodePattern] | None, node_id: NodeId) -> bool:
    """Whether a bound allows a node."""
    return nodes is None or any(pattern.has(node_id) for pattern in nodes)


def is_below(namespace: Namespace, allowed: Iterable[Namespace] | None) -> bool:
    """Whether a namespace is one that is allowed, or below one."""
    return allowed is None or any(namespace[: len(one)] == one for one in allowed)


def read_bounds(value: object) -> Bounds:
    """The member `laps` of a key; ConfigError says what is wrong in it."""
    if value is None:
        return UNBOUNDED
    if not isinstance(value, dict):
        raise ConfigError("laps must be an object")
    for name in value:
        if name not in _MEMBERS:  # it may be a restriction of a later version
            raise ConfigError(f"laps has {quote(name)}; known: {', '.join(_MEMBERS)}")
    lists = {name: _texts(value[name], name) for name in value}
    roles, regions = lists.get("roles"), lists.get("regions")
    namespaces = lists.get("namespaces")
    for role in roles or ():
        if role not in ROLES:
            raise ConfigError(f"laps.roles has {quote(role)}; known: {', '.join(ROLES)}")
    return Bounds(
        nodes=_nodes(lists.get("nodes")),
        roles=None if roles is None else frozenset(roles),
        regions=None if regions is None else frozenset(regions),
        namespaces=None if namespaces is None else tuple(map(read_namespace, namespaces)),
        carries=_nodes(lists.get("carries")),
    )


def _texts(value: object, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ConfigError(f"laps.{name} must be a list of strings")
    return value


def _nodes(texts: list[str] | None) -> tuple[NodePattern, ...] | None:
    return None if texts is None else tuple(map(read_node_pattern, texts))


def read_node_pattern(text: str) -> NodePattern:
    """Nodes as an operator names them; ConfigError says what is wrong with an id."""
    if text == "*":
        return NodePattern(0, 0)
    if text.endswith(":*"):
        return NodePattern(parse_node_id(f"{text[:-2]}:0"), _HIGH_BITS)
    return NodePattern(parse_node_id(text), _ALL_BITS)
