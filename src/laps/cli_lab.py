"""`laps lab`: a whole network on this machine, and what is done to it from other terminals."""

from __future__ import annotations

import json
import logging
from pathlib import Path  # noqa: TC003 - typer reads it when it runs
from typing import Annotated, Any, Final

import typer

from laps.errors import ConfigError
from laps.units import read_duration, read_share

lab = typer.Typer(rich_markup_mode=None, add_completion=False)

Pid = Annotated[int | None, typer.Option("--pid", help="Which lab, where several are running.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Like 1:100.")]
End = Annotated[str, typer.Argument(metavar="NODE", help="An end of the link, like 1:1.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]

MOST_S: Final = 10
PORT: Final = 33435


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(lab, name="lab", epilog="Example: laps lab --seconds 10")


@lab.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    regions: Annotated[int, typer.Option(metavar="N", help="Regions, from 1 to 12.")] = 3,
    edges: Annotated[int, typer.Option(metavar="N", help="Edges of each region.")] = 2,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="LAB.TOML", help="A network of your own instead."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Stop by itself, so long after objects flow to everybody."),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Where clients reach the first Edge; any free one if taken."
        ),
    ] = PORT,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Whether a web page shows it too.")
    ] = True,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="POLICY.TOML", help="What every relay keeps to."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with configurations and logs.")
    ] = False,
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say more on standard error.")
    ] = False,
) -> None:
    """See a network work on this machine, with nothing configured.

    Starts, each as a process: two Control servers; regions with two Edges and a Via each, as far
    from each other as their cities are; a Stub. Publishers and subscribers in them show on the
    terminal what is delivered, how fast and by which way. Ctrl-C stops it all.

    Exit status 0 if every subscriber received every object.
    """
    if context.invoked_subcommand is not None:
        return
    import uvloop

    from laps.lab.network import load_network, standard
    from laps.lab.show import Options, show
    from laps.policy import load_policy

    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    network = load_network(file) if file is not None else standard(regions, edges)
    if policy is not None:
        load_policy(policy)
    options = Options(seconds, port, dashboard, keep, as_json, policy)
    if not uvloop.run(show(network, options)):
        raise typer.Exit(1)


@lab.command(epilog="Example: laps lab kill 1:100")
def kill(
    node: NodeName,
    wait: Annotated[
        bool, typer.Option(help="Wait a few seconds, and say what it cost the subscribers.")
    ] = True,
    pid: Pid = None,
) -> None:
    """End a relay of the lab that runs, without a word to its peers."""
    _ask({"do": "kill", "node": node}, pid)
    if wait:
        _ask({"do": "aftermath"}, pid)


@lab.command(epilog="Example: laps lab start 1:100")
def start(node: NodeName, pid: Pid = None) -> None:
    """Start a relay that was killed."""
    _ask({"do": "start", "node": node}, pid)


@lab.command(epilog="Example: laps lab delay 1:100 2:100 200ms")
def delay(
    a: End,
    b: End,
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="One way, like 200ms.")],
    pid: Pid = None,
) -> None:
    """Let the link between two relays take so long, each way."""
    _ask({"do": "delay", "a": a, "b": b, "ms": milliseconds(duration)}, pid)


@lab.command(epilog="Example: laps lab drop 1:100 2:100 2%")
def drop(
    a: End,
    b: End,
    share: Annotated[str, typer.Argument(metavar="SHARE", help="Of the datagrams, like 2%.")],
    pid: Pid = None,
) -> None:
    """Let the link between two relays lose datagrams, each way."""
    _ask({"do": "drop", "a": a, "b": b, "share": percentage(share)}, pid)


@lab.command(epilog="Example: laps lab heal")
def heal(pid: Pid = None) -> None:
    """Start what was killed, and make every link what it was."""
    _ask({"do": "heal"}, pid)


@lab.command(epilog="Example: laps lab policy policy.toml")
def policy(
    file: Annotated[
        Path | None, typer.Argument(metavar="[POLICY.TOML]", help="Without it: no policy.")
    ] = None,
    pid: Pid = None,
) -> None:
    """Let every relay of the lab keep to another policy, or to none, while tracks flow."""
    _ask({"do": "policy", "file": "" if file is None else str(file.absolute())}, pid)


@lab.command(epilog="Example: laps lab status --json")
def status(pid: Pid = None, as_json: AsJson = False) -> None:
    """Show how the lab that runs is doing."""
    from laps.lab.doors import ask

    found = ask({"do": "status"}, pid)["status"]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for relay in found["relays"]:
        where = f"{relay['node']:8} {relay['role']:8} {relay['region']:14}"
        typer.echo(f"{where} {relay['state']:8} admin {relay['admin']}")
    for track in found["tracks"]:
        typer.echo(f"{track['track']}: {track['written']} objects, {track['way']}")
    for problem in found["problems"]:
        typer.echo(problem)


@lab.command(
    epilog="Examples: laps lab chaos --seed 7 --minutes 3 --relays small; "
    "laps lab chaos --json | jq .lost"
)
def chaos(
    seed: Annotated[int, typer.Option(metavar="N", help="The same gives the same faults.")] = 1,
    minutes: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="How long faults happen.")
    ] = 10.0,
    relays: Annotated[
        str, typer.Option(metavar="full|small", help="Twelve in three regions, or nine in two.")
    ] = "full",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with configurations and logs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let relays die at random, and see that no subscriber misses an object.

    Starts a lab of its own, with publishers and subscribers of MoQT and QUICR, each of which knows
    two relays. Relays are killed, stand still and are restarted, links are slow and lose up to 5 %
    of their datagrams. Each fault is told with its time and what it cost: the longest pause at any
    subscriber. Ctrl-C ends it in good order.

    Exit status 1 if an object was lost, came twice or out of order, or a relay's memory grew.
    """
    import uvloop

    from laps.lab.chaos.network import SIZES
    from laps.lab.chaos.show import ChaosOptions, show_chaos

    if relays not in SIZES:
        raise ConfigError(f'--relays "{relays}": known are {", ".join(SIZES)}')
    options = ChaosOptions(seed, minutes, SIZES[relays], keep, as_json)
    if not uvloop.run(show_chaos(options)):
        raise typer.Exit(1)


def _ask(asked: dict[str, Any], pid: int | None) -> None:
    from laps.lab.doors import ask

    typer.echo(ask(asked, pid)["said"])


def milliseconds(text: str) -> float:
    """`200ms` or `0.2s`."""
    seconds = read_duration(text, ("ms", "s"))
    if seconds is None:
        raise ConfigError(f'duration "{text}": write it like 200ms or 0.2s')
    if seconds > MOST_S:
        raise ConfigError(f'duration "{text}": must be {MOST_S:g}s at most')
    return round(1000 * seconds, 6)


def percentage(text: str) -> float:
    """`2%` as a share."""
    share = read_share(text)
    if share is None:
        raise ConfigError(f'share "{text}": write it like 2%, from 0% to 100%')
    return share
