"""`laps policy`: what relays are to keep to, tried on a network, signed and published."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from laps import topology as networks
from laps.errors import ConfigError, LapsError
from laps.files import read_mapping, read_rows
from laps.policy import load_policy
from laps.routing import compliance
from laps.token_files import HELP, METAVAR, read_option
from laps.types import PeerMode, format_node_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from laps.policy import Policy
    from laps.routing.compliance import Demand, Findings, NoWay
    from laps.types import NodeId

out = Console()
err = Console(stderr=True)

policy = typer.Typer(
    name="policy",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="What relays keep to: which ways tracks take, and who may be whose peer.",
    epilog="Example: laps policy check policy.toml --topology network.toml\n\n"
    "Example: laps policy sign policy.toml --key policy.pem --out policy.signed",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The policy, in TOML or JSON.")]
Signed = Annotated[Path, typer.Argument(metavar="FILE", help="A signed policy.")]
PublicKey = Annotated[
    str, typer.Option(metavar="PUB", help="The public key, ed25519:…, or the file that has it.")
]

_Anything = Annotated[Any, msgspec.Meta(description="anything")]

# Of what would be refused so much is shown; --json has all.
MOST_SHOWN: int = 12


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(policy)


# -- check -----------------------------------------------------------------------------------------


@policy.command(
    epilog="Example: laps policy check examples/policy/hospital.toml\n\n"
    "Example: laps policy check examples/policy/hospital.toml "
    "--topology examples/policy/hospital.lab.toml --json"
)
def check(
    file: PolicyFile,
    topology: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The network to try it on: as for `laps sim`, `laps plan` and `laps lab`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a policy would refuse, before relays keep to it.

    Exit status 1 if the network would lose something: a peering, a link, or a track that somebody
    publishes and somebody wants. It is 1 too where the policy names what is not there, and 2 where
    the file cannot be read.
    """
    read = load_policy(file)
    if topology is None:
        if as_json:
            typer.echo(json.dumps({"policy": read.digest, "tables": read.to_mapping()}, indent=2))
        else:
            _print(f"{file}: {_contents(read)}; {read.digest}")
            _say("with --topology FILE it is tried on a network")
        return
    network, demand = _network(topology)
    found = compliance.review(read, network, demand)
    if as_json:
        typer.echo(json.dumps(_mapping(read, found), indent=2))
    else:
        _show(found, network, demand)
    if not found.is_clean:
        raise typer.Exit(1)


class _Node(networks.Node, frozen=True, kw_only=True):
    """A relay, with nothing that policy does not ask for."""


class _Link(networks.Link, frozen=True, kw_only=True):
    """A peering."""


class _Client(msgspec.Struct, frozen=True, kw_only=True):
    """An application, as far as its tracks are named."""

    node: _Anything = None
    nodes: _Anything = ()
    namespace: _Anything = ()
    name: _Anything = None
    track: _Anything = None
    "As a lab has it: it stands for a namespace and a name."

    @property
    def wanted(self) -> tuple[str, str | None]:
        """The namespace, and the name of the track; None: any."""
        if self.track is not None:
            return f"lab/{self.track}", "live"
        parts = self.namespace if isinstance(self.namespace, list) else [self.namespace]
        return "/".join(map(str, parts)), self.name


def _network(path: Path) -> tuple[compliance.Network, list[Demand]]:
    """The network in a file of whatever kind: what policy does not ask for is passed over."""
    mapping = read_mapping(path)
    source = str(path)
    if not mapping.get("nodes"):
        raise ConfigError(f"{source}: nodes: there are none: describe each relay in [[nodes]]")
    nodes = _rows(_Node, mapping, "nodes", source)
    links = _rows(_Link, mapping, "links", source)
    clients = {
        name: _rows(_Client, mapping, name, source) for name in ("publishers", "subscribers")
    }
    networks.check(networks.Topology(nodes=tuple(nodes), links=tuple(links)), source)
    relays = [compliance.Relay(node.id, node.type, node.region) for node in nodes]
    data = [(link.a, link.b) for link in links if link.mode is not PeerMode.CONTROL]
    control = [(link.a, link.b) for link in links if link.mode is not PeerMode.DATA]
    network = compliance.Network(relays, data, control)
    return network, list(_demand(clients["publishers"], clients["subscribers"], network, source))


def _rows(table: type[Any], mapping: Mapping[str, object], name: str, source: str) -> list[Any]:
    rows = mapping.get(name, [])
    if isinstance(rows, list):
        known = set(table.__struct_fields__)
        rows = [
            {key: value for key, value in row.items() if key in known}
            if isinstance(row, dict)
            else row
            for row in rows
        ]
    return read_rows(table, {name: rows}, name, source)


def _demand(
    publishers: Sequence[_Client],
    subscribers: Sequence[_Client],
    network: compliance.Network,
    source: str,
) -> Iterator[Demand]:
    """What is wanted, from whoever publishes it."""
    for wants in subscribers:
        namespace, name = wants.wanted
        for gives in publishers:
            if gives.wanted not in ((namespace, name or "track"), (namespace, None)):
                continue
            track = f"{namespace}/{name or 'track'}"
            for origin in _places(gives, network, source):
                for target in _places(wants, network, source):
                    yield compliance.Demand(track, origin, target)


def _places(client: _Client, network: compliance.Network, source: str) -> Iterator[NodeId]:
    for place in (client.node, *client.nodes):
        if place is not None:
            node_id = networks.parse_id(place)
            if node_id not in network.relays:
                raise ConfigError(f"{source}: {place} is no node: add it to [[nodes]]")
            if not (edges := network.edges_of(node_id)):
                role = network.relays[node_id].role
                alone = role == "stub"
                problem = "has no edge as a peer" if alone else f"is a {role}, and takes no clients"
                raise ConfigError(f"{source}: {place} {problem}: name an edge for its clients")
            yield from edges


# -- what is found ---------------------------------------------------------------------------------


def _contents(read: Policy) -> str:
    counts = {
        "rule": read.rules,
        "way": read.ways,
        "place of nodes": read.nodes,
        "link": read.links,
        "peering": read.peerings,
    }
    words = [_count(len(rows), name) for name, rows in counts.items() if rows]
    classes = ", ".join(sorted(read.services, key=lambda name: read.services[name].order))
    return "; ".join([", ".join(words) or "no rules", f"classes {classes}"])


def _count(number: int, name: str) -> str:
    plural = {"place of nodes": "places of nodes"}.get(name, f"{name}s")
    return f"{number} {name if number == 1 else plural}"


def _show(found: Findings, network: compliance.Network, demand: Sequence[Demand]) -> None:
    edges = len(network.edges)
    _print(f"{_count(len(network.relays), 'relay')}, {_count(edges, 'edge')} among them")
    for line in found.advice:
        _print(f"mind: {line}")
    for title, pairs in (("no peers any more", found.peers), ("closed for data", found.closed)):
        if pairs:
            shown = ", ".join(f"{format_node_id(a)}-{format_node_id(b)}" for a, b in pairs[:10])
            _print(f"{title}: {shown}{' …' if len(pairs) > 10 else ''}")
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    counts = ("pairs of edges", "no way")
    for title in ("tracks", *counts, "why, for one of them"):
        drawn.add_column(title, justify="right" if title in counts else "left")
    for kind, count in found.pairs.items():
        missed = [it for it in found.refused if it.tracks == kind]
        why = _pair_text(missed[0]) if missed else ""
        drawn.add_row(kind, str(count), str(len(missed)), why)
    out.print(drawn)
    if not demand:
        return
    if not found.wanted:
        _print(f"{_count(len(demand), 'subscription')} of the network: each has a way")
        return
    _print(f"{len(found.wanted)} of {_count(len(demand), 'subscription')} would be refused:")
    for it in found.wanted[:MOST_SHOWN]:
        _print(f"  {it.tracks} {_pair_text(it)}")
    if len(found.wanted) > MOST_SHOWN:
        _print(f"  and {len(found.wanted) - MOST_SHOWN} more: --json has all")


def _pair_text(it: NoWay) -> str:
    return f"{format_node_id(it.origin)} to {format_node_id(it.target)}: {it.why}"


def _mapping(read: Policy, found: Findings) -> dict[str, Any]:
    def pairs(some: Sequence[tuple[NodeId, NodeId]]) -> list[list[str]]:
        return [[format_node_id(a), format_node_id(b)] for a, b in some]

    def ways(some: Sequence[NoWay]) -> list[dict[str, str]]:
        return [
            {
                "tracks": it.tracks,
                "origin": format_node_id(it.origin),
                "target": format_node_id(it.target),
                "why": it.why,
            }
            for it in some
        ]

    return {
        "policy": read.digest,
        "clean": found.is_clean,
        "peers": pairs(found.peers),
        "closed": pairs(found.closed),
        "pairs": found.pairs,
        "refused": ways(found.refused),
        "wanted": ways(found.wanted),
        "advice": found.advice,
    }


# -- keys and documents ----------------------------------------------------------------------------


@policy.command(epilog="Example: laps policy keygen policy.pem")
def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the private key.")],
) -> None:
    """Make the key that policies are signed with, and print what relays are to be told of it.

    The public key is written beside it, with .pub after its name.
    """
    from laps.client.sealed import make_key

    text = make_key(file)
    file.with_name(f"{file.name}.pub").write_text(f"{text}\n")
    _print(text)
    _say(f'A relay keeps to its policies with this in its configuration:\n[policy]\nkey = "{text}"')


@policy.command(epilog="Example: laps policy sign policy.toml --key policy.pem --out policy.signed")
def sign(
    file: PolicyFile,
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The private key, of `laps policy keygen`.")
    ],
    signed: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where to write the signed policy.")
    ],
) -> None:
    """Sign a policy: relays that know the key keep to it from the moment that they hear of it."""
    from laps.client.policies import PolicyDocument, sign_policy
    from laps.client.sealed import read_key

    load_policy(file)
    now = time.time()
    document = PolicyDocument(
        sequence=int(now * 1000), issued_at=now, policy=dict(read_mapping(file))
    )
    sealed = sign_policy(document, read_key(key))
    try:
        signed.write_bytes(sealed)
    except OSError as error:
        raise ConfigError(f"--out {signed}: cannot be written: {error.strerror}") from None
    _print(f"policy {document.sequence}: {signed}")


@policy.command(epilog="Example: laps policy verify policy.signed --key policy.pem.pub")
def verify(file: Signed, key: PublicKey, as_json: AsJson = False) -> None:
    """Check that a policy is signed with a key. Exit status 1 if not."""
    from laps.client.policies import open_policy
    from laps.client.sealed import read_public_key

    document, read = open_policy(_read(file), read_public_key(key))
    if as_json:
        said = {
            "sequence": document.sequence,
            "issued_at": document.issued_at,
            "policy": read.digest,
            "tables": read.to_mapping(),
        }
        typer.echo(json.dumps(said, indent=2))
        return
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(document.issued_at))
    _print(f"policy {document.sequence}: issued {when}; {_contents(read)}; {read.digest}")


@policy.command(
    epilog="Example: laps policy publish policy.signed moqt://127.0.0.1:33435 "
    "--key policy.pem.pub --serve"
)
def publish(
    file: Signed,
    url: Annotated[str, typer.Argument(metavar="URL", help="The relay to publish it at.")],
    key: PublicKey,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Stay until Ctrl-C, so that relays that start later hear of it too. Without it, "
            "those do that are there now: it stays for 5 seconds.",
        ),
    ] = False,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            metavar="SHA256", help="Take this certificate, as the relay's ready line has it."
        ),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Take any certificate.")] = False,
    token: Annotated[
        str | None, typer.Option(metavar=METAVAR, help=HELP, show_default=False)
    ] = None,
) -> None:
    """Publish a signed policy: every relay that follows its key keeps to it at once."""
    import uvloop

    from laps.client.documents import publish as send
    from laps.client.documents import until_ctrl_c
    from laps.client.policies import TRACK, open_policy
    from laps.client.sealed import read_public_key

    sealed = _read(file)
    document, _ = open_policy(sealed, read_public_key(key))
    until = " until Ctrl-C" if serve else ""

    async def run() -> None:
        await send(
            sealed,
            TRACK,
            document.sequence,
            url,
            fingerprint=fingerprint,
            insecure=insecure,
            token=read_option(token),
            stop=until_ctrl_c() if serve else None,
            published=lambda: _say(f"policy {document.sequence} is published at {url}{until}"),
        )

    uvloop.run(run())


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise LapsError(f"{file}: {error.strerror}: `laps policy sign` writes one") from None


def _print(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)
