"""`laps plan`: which tracks go hub and spoke, and which by which Vias."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop
from rich.console import Console
from rich.text import Text

from laps.errors import ConfigError, LapsError
from laps.token_files import HELP, METAVAR, read_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from rich.console import RenderableType

    from laps.client.plans import PlanDocument
    from laps.client.tokens import TokenLike
    from laps.spark.planner.plan import Plan
    from laps.spark.planner.problem import Problem

out = Console()
err = Console(stderr=True)

plan = typer.Typer(
    name="plan",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Example: laps plan --topology examples/plan/topology.toml "
    "--policy examples/plan/policy.toml --out plan --picture plan.svg\n\n"
    "Example: laps plan explain sports/final/video --plan plan\n\n"
    "Example: laps plan --tables tables --policy policy.toml --key planner.pem "
    "--publish moqt://127.0.0.1:33435 --serve\n\n"
    "Example: laps plan --generate nodes=2000,tracks=20e6,subscriptions=200e6",
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Fingerprint = Annotated[
    str | None,
    typer.Option(metavar="SHA256", help="Take this certificate, as the relay's ready line has it."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Take any certificate.")]
TokenOption = Annotated[str | None, typer.Option(metavar=METAVAR, help=HELP, show_default=False)]
Serve = Annotated[
    bool,
    typer.Option(
        "--serve",
        help="Stay until Ctrl-C, so that relays that start later get the plan too. Without it, "
        "those get it that follow plans now: it stays for 5 seconds.",
    ),
]


@dataclass(frozen=True, slots=True)
class Door:
    """The relay that a plan is published at, and what it is shown."""

    url: str | None
    "None: the plan is not published."
    fingerprint: str | None
    insecure: bool
    token: TokenLike | None = field(repr=False)


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(plan)


@plan.callback()
def make(
    ctx: typer.Context,
    topology: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Nodes, links, publishers, subscribers: TOML or JSON."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the plan has to keep to; left out: the defaults."),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Tables of `laps pipeline`, or of an earlier plan. With --topology, nodes and "
            "links are those of the file, and the tables say what flows.",
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to write the plan's tables.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw today and the plan: .png or .svg.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sign the plan with this key; `laps plan keygen` makes one."
        ),
    ] = None,
    valid: Annotated[
        float,
        typer.Option(min=0.01, max=8760, metavar="HOURS", help="How long relays follow it."),
    ] = 24.0,
    publish: Annotated[
        str | None, typer.Option(metavar="URL", help="Publish the signed plan at this relay.")
    ] = None,
    serve: Serve = False,
    fingerprint: Fingerprint = None,
    insecure: Insecure = False,
    token: TokenOption = None,
    generate: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Make up a network and its demand, and plan that on Spark: "
            "nodes=2000,tracks=20e6,subscriptions=200e6, or less of each.",
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where Spark runs, local[*] if left out; with --tables, plan on Spark whatever "
            "their size. On a cluster --tables and --out are folders that all machines have.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide for each track and region: hub and spoke, or one copy to a Via that makes the others.

    Long-haul copies and origin egress are minimised within what the policy allows: fan-out, delay,
    capacity, regions. Exit status 1 if something cannot be served within it; that is listed, with
    the constraint and what would help.
    """
    if ctx.invoked_subcommand is not None:
        return
    if generate is not None or _is_large(tables, master, topology):
        signed = {"--picture": picture, "--key": key, "--publish": publish}
        _plan_large(generate, topology, tables, policy, out_dir, master, signed, as_json)
        return
    _check(topology, tables, out_dir, picture, key, publish, serve)
    if token is not None and publish is None:
        raise ConfigError("--token: give --publish URL, the relay to show it to")
    door = Door(publish, fingerprint, insecure, read_option(token))
    _need_spark()
    from laps.client.sealed import read_key
    from laps.spark.planner.render import as_mapping, render_plan

    signer = None if key is None else read_key(key)
    made = _plan(topology, policy, tables)
    if out_dir is not None:
        _write(out_dir, made)
    if picture is not None:
        from laps.spark.planner.picture import draw

        draw(made, picture)
    if as_json:
        typer.echo(json.dumps(as_mapping(made), indent=2))
    else:
        _show(render_plan(made))
    if signer is not None:
        _sign(made, signer, valid * 3600, out_dir, serve, door)
    if made.infeasible:
        raise typer.Exit(1)


def _check(
    topology: Path | None,
    tables: Path | None,
    out_dir: Path | None,
    picture: Path | None,
    key: Path | None,
    publish: str | None,
    serve: bool,
) -> None:
    """ConfigError for arguments that do not go together."""
    if topology is None and tables is None:
        raise ConfigError(
            "laps plan needs a network: give --topology FILE, or --tables DIR; "
            "`laps plan --help` has examples"
        )
    if publish is not None and key is None:
        problem = "relays follow signed plans only: give --key FILE; `laps plan keygen` makes one"
        raise ConfigError(f"--publish: {problem}")
    if serve and publish is None:
        raise ConfigError("--serve: give --publish URL, the relay to serve the plan at")
    if picture is not None and picture.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--picture {picture}: end its name in .png or .svg")
    if out_dir is not None and tables is not None and out_dir.resolve() == tables.resolve():
        raise ConfigError(f"--out {out_dir}: the tables are there: give another folder")
    if key is not None and publish is None and out_dir is None:
        raise ConfigError("--key: the signed plan goes nowhere: give --out DIR or --publish URL")


def _is_large(tables: Path | None, master: str | None, topology: Path | None) -> bool:
    """Whether these tables are for Spark: asked for, or more than one machine holds in lists."""
    if tables is None:
        if master is not None:
            raise ConfigError("--master: give --tables DIR or --generate SIZE, what Spark is for")
        return False
    if topology is not None or not (tables / "subscriptions").is_dir():
        return False
    _need_spark()
    from laps.spark.planner.scale import count_subscriptions
    from laps.spark.planner.sources import MOST_SUBSCRIPTIONS

    return master is not None or count_subscriptions(tables) > MOST_SUBSCRIPTIONS


def _plan_large(
    generate: str | None,
    topology: Path | None,
    tables: Path | None,
    policy: Path | None,
    out_dir: Path | None,
    master: str | None,
    unfit: Mapping[str, object],
    as_json: bool,
) -> None:
    """Plan on Spark; without --out what is written is gone afterwards."""
    _need_spark()
    from laps.policy import load_policy, policy_from_mapping
    from laps.spark.planner import scale
    from laps.spark.planner.generate import parse_size

    for option in (name for name, value in unfit.items() if value is not None):
        raise ConfigError(f"{option}: not for a plan of this size: its tables are what there is")
    if generate is not None and (topology is not None or tables is not None):
        raise ConfigError("--generate: makes up a network: leave out --topology and --tables")
    if out_dir is None and master is not None and not master.startswith("local"):
        raise ConfigError(f"--master {master}: give --out DIR, a folder that all machines have")
    if out_dir is not None and tables is not None and out_dir.resolve() == tables.resolve():
        raise ConfigError(f"--out {out_dir}: the tables are there: give another folder")
    size = None if generate is None else parse_size(generate)
    wanted = policy_from_mapping({}, "policy") if policy is None else load_policy(policy)
    source = str(policy or "policy")
    with tempfile.TemporaryDirectory(prefix="laps-plan-") as temporary:
        folder = Path(temporary) if out_dir is None else out_dir
        scale.require_writable(folder)
        if size is not None:
            made = scale.plan_made_up(size, wanted, source, folder.resolve(), master, err)
        else:
            assert tables is not None  # noqa: S101 - one of the two was given
            places = (tables.resolve(), folder.resolve())
            made = scale.plan_tables(*places, wanted, source, master, err)
    if as_json:
        typer.echo(json.dumps(made.to_mapping(), indent=2))
    else:
        _show(scale.render(made))
    if made.plan.missing or made.plan.planned.overloaded:
        raise typer.Exit(1)


def _plan(topology: Path | None, policy: Path | None, tables: Path | None) -> Plan:
    from laps.spark.planner.plan import make_plan

    problem = _problem(topology, policy, tables)
    with err.status(f"planning {len(problem.pairs)} pairs"):
        return make_plan(problem)


def _problem(topology: Path | None, policy: Path | None, tables: Path | None) -> Problem:
    """What is to be planned, from wherever it comes."""
    from laps.policy import load_policy, policy_from_mapping
    from laps.spark.planner.demand import demand_of
    from laps.spark.planner.network import network
    from laps.spark.planner.problem import pose
    from laps.spark.planner.topology import load_topology

    wanted = policy_from_mapping({}, "policy") if policy is None else load_policy(policy)
    by_file = None if topology is None else load_topology(topology)
    if tables is not None:
        from laps.spark.planner.sources import problem_of

        return problem_of(tables, wanted, str(policy or "policy"), by_file)
    assert by_file is not None  # noqa: S101 - one of the two was given
    return pose(
        network(by_file.nodes, by_file.links),
        wanted,
        demand_of(by_file, wanted),
        sources=(by_file.source, str(policy or "policy")),
    )


def _need_spark() -> None:
    """LapsError where what plans are made with is not installed."""
    try:
        import laps.spark.planner.plan  # noqa: F401
    except ModuleNotFoundError as error:
        raise LapsError(f"{error}: planning needs it: pip install 'laps[spark]'") from None


def _write(folder: Path, made: Plan) -> None:
    from laps.spark.planner.store import write_plan

    try:
        write_plan(folder, made)
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror}") from None


def _sign(
    made: Plan,
    key: Ed25519PrivateKey,
    valid_s: float,
    out_dir: Path | None,
    serve: bool,
    door: Door,
) -> None:
    from laps.client.plans import sign_plan
    from laps.spark.planner.document import FILE, document_of

    document = document_of(made, now=time.time(), valid_s=valid_s)
    sealed = sign_plan(document, key)
    if out_dir is not None:
        (out_dir / FILE).write_bytes(sealed)
    if door.url is not None:
        _publish(sealed, document, serve, door)


def _publish(sealed: bytes, document: PlanDocument, serve: bool, door: Door) -> None:
    from laps.client.documents import publish as send
    from laps.client.documents import until_ctrl_c
    from laps.client.plans import TRACK

    async def run() -> None:
        stop = until_ctrl_c() if serve else None
        until = " until Ctrl-C" if serve else ""
        plan = f"plan {document.sequence} of {len(document.tracks)} tracks"
        await send(
            sealed,
            TRACK,
            document.sequence,
            door.url or "",
            fingerprint=door.fingerprint,
            insecure=door.insecure,
            token=door.token,
            stop=stop,
            published=lambda: _say(f"{plan} is published at {door.url}{until}"),
        )

    uvloop.run(run())


# -- explain ---------------------------------------------------------------------------------------


@plan.command(epilog="Example: laps plan explain sports/final/video --plan plan")
def explain(
    track: Annotated[
        str, typer.Argument(metavar="TRACK", help="namespace/name, or the 16 digits of its hash.")
    ],
    folder: Annotated[
        Path, typer.Option("--plan", metavar="DIR", help="The folder that --out wrote.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say why a track goes the way it does: every option of every region, and why not."""
    _need_spark()
    from laps.spark.planner.explain import explain as find
    from laps.spark.planner.render import render_explanation

    found = find(folder, track)
    if as_json:
        typer.echo(json.dumps(found.to_mapping(), indent=2))
        return
    _show(render_explanation(found))


@plan.command("tables", epilog="Example: laps plan tables pipeline demand --policy policy.toml")
def make_tables(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="What `laps pipeline` writes to.")],
    out_dir: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write the tables.")],
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Whose rules give tracks their class and regions."),
    ] = None,
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Nodes and links, instead of the reported.")
    ] = None,
) -> None:
    """Make tables to plan from of what relays reported, for networks of any size."""
    _need_spark()
    from laps.policy import load_policy, policy_from_mapping
    from laps.spark.planner.sources import write_tables
    from laps.spark.planner.topology import load_topology

    wanted = policy_from_mapping({}, "policy") if policy is None else load_policy(policy)
    by_file = None if topology is None else load_topology(topology)
    known = write_tables(source, out_dir, wanted, str(policy or "policy"), by_file)
    _print(f"{known.size} nodes and {len(known.links)} links, and what flows between: {out_dir}")


# -- keys and documents ----------------------------------------------------------------------------


@plan.command(epilog="Example: laps plan keygen planner.pem")
def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the private key.")],
) -> None:
    """Make the key that plans are signed with, and print what relays are to be told of it.

    The public key is written beside it, with .pub after its name.
    """
    from laps.client.sealed import make_key

    text = make_key(file)
    file.with_name(f"{file.name}.pub").write_text(f"{text}\n")
    _print(text)
    _say(f'A relay follows its plans with this in its configuration:\n[plan]\nkey = "{text}"')


@plan.command(epilog="Example: laps plan verify plan/plan.signed --key planner.pem.pub")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A signed plan.")],
    key: Annotated[
        str,
        typer.Option(metavar="PUB", help="The public key, ed25519:…, or the file that has it."),
    ],
    as_json: AsJson = False,
) -> None:
    """Check that a plan is signed with a key, and has not expired. Exit status 1 if not."""
    from laps.client.plans import open_plan
    from laps.client.sealed import read_public_key
    from laps.spark.planner.document import read_bytes

    public = read_public_key(key)
    document = open_plan(read_bytes(file), public)
    expired = document.expires_at <= time.time()
    if as_json:
        said = {
            "sequence": document.sequence,
            "issued_at": document.issued_at,
            "expires_at": document.expires_at,
            "expired": expired,
            "policy": document.policy,
            "tracks": len(document.tracks),
        }
        typer.echo(json.dumps(said, indent=2))
    else:
        _print(
            f"plan {document.sequence}: {len(document.tracks)} tracks, issued "
            f"{_time(document.issued_at)}, expires {_time(document.expires_at)}, {document.policy}"
        )
    if expired:
        raise LapsError(f"{file}: the plan expired at {_time(document.expires_at)}: plan again")


@plan.command(
    "publish",
    epilog="Example: laps plan publish plan/plan.signed moqt://127.0.0.1:33435 "
    "--key planner.pem.pub --serve\n\n"
    "Example: laps plan publish plan/plan.signed moqt://relay.example:33435 "
    "--key planner.pem.pub --token @planner.jwt",
)
def publish_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A signed plan.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="The relay to publish it at.")],
    key: Annotated[
        str,
        typer.Option(metavar="PUB", help="The public key, ed25519:…, or the file that has it."),
    ],
    serve: Serve = False,
    fingerprint: Fingerprint = None,
    insecure: Insecure = False,
    token: TokenOption = None,
) -> None:
    """Publish a plan that was signed before, once somebody has looked at it."""
    from laps.client.plans import open_plan
    from laps.client.sealed import read_public_key
    from laps.spark.planner.document import read_bytes

    sealed = read_bytes(file)
    document = open_plan(sealed, read_public_key(key))
    if document.expires_at <= time.time():
        raise LapsError(f"{file}: the plan expired at {_time(document.expires_at)}: plan again")
    _publish(sealed, document, serve, Door(url, fingerprint, insecure, read_option(token)))


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _show(pieces: Sequence[RenderableType]) -> None:
    for piece in pieces:
        # A line stays one, however long, for who greps.
        out.print(piece, soft_wrap=isinstance(piece, Text))


def _print(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)
