"""`laps sim`: one simulated network, or a sweep over many; the simulating is done in `laps.sim`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from typer.core import TyperGroup

from laps.errors import ConfigError, quote
from laps.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.sim.families import Family
    from laps.sweep import Outcome, State

out = Console()
err = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]

# Of a seed that fails, this many findings are shown; the state file has all.
MOST_SHOWN: Final = 5
# As shells have it for what Ctrl-C ended.
EXIT_STOPPED: Final = 130

FAULTS: Final = (
    "Joined by commas, with seconds after the first rest: crash:NODE@S, stop:NODE@S, "
    "restart:NODE@S, freeze:NODE@S, thaw:NODE@S, jump:NODE=SECONDS@S, cut:A-B@S, heal:A-B@S, "
    "split:NODE+NODE@S, join:NODE+NODE@S, flap:A-B@S, delay:A-B=MS@S, loss:A-B=SHARE@S, "
    "random:N[@S]."
)


class _RunFirst(TyperGroup):
    """`laps sim FILE` is `laps sim run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As `Group`, with the command that is meant where none is named."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


sim = typer.Typer(cls=_RunFirst, rich_markup_mode=None, add_completion=False, no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(
        sim,
        name="sim",
        help='Ask "what if" of a network: the same relays without sockets, under a seeded clock. '
        "`laps sim FILE` is `laps sim run FILE`.",
        epilog="Example: laps sim examples/sim/two-regions.toml --seed 7 "
        "--faults crash:1:1@5,restart:1:1@15,random:3\n\n"
        "Example: laps sim sweep --family failover --count 1000",
    )


@sim.command(
    epilog="Example: laps sim examples/sim/two-regions.toml --seed 7 "
    "--faults crash:1:1@5,restart:1:1@15,random:3",
)
def run(
    topology: Annotated[
        Path, typer.Argument(metavar="TOPOLOGY.TOML", help="Nodes, links, publishers, subscribers.")
    ],
    seed: Annotated[int, typer.Option(help="The same seed replays the same run.")] = 1,
    faults: Annotated[str, typer.Option(help=FAULTS)] = "",
    seconds: Annotated[
        float, typer.Option(min=1, help="Virtual time after the network is at rest first.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Ask "what if" of one network.

    Prints how long it took to converge, what was said, copies per link and objects lost. Exit
    status 1 if something does not hold that ought to.
    """
    from laps.sim.report import run as simulate
    from laps.sim.topology import load_topology

    with err.status("simulating"):
        report = simulate(load_topology(topology), seed=seed, faults=faults, seconds=seconds)
    if as_json:
        typer.echo(json.dumps(report.to_mapping(), indent=2))
    else:
        out.print(report.render())
    if report.violations:
        raise typer.Exit(1)


@sim.command(
    epilog="Example: laps sim sweep --family failover --count 1000\n\n"
    "Example: laps sim sweep --family random --from 505 --count 1 --again",
)
def sweep(
    family: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="random, narrow, both-dial, failover, served, restarts, or all."
        ),
    ] = "all",
    first: Annotated[int, typer.Option("--from", metavar="N", min=0, help="The first seed.")] = 0,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="How many seeds.")] = 100,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many processes; as many as cores if absent."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What is done; sweep-NAME.jsonl if absent."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run seeds that are done already, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a family of networks under many seeds, and name those in which something does not hold.

    It can be stopped (Ctrl-C) or killed at any time: the same command goes on where it was, as the
    state file has a line for each seed that is done. After a change of the program, begin with
    another file or with --again. Exit status 1 if anything failed.
    """
    from laps.sim.families import FAMILIES
    from laps.sweep import State

    if family != "all" and family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ConfigError(
            f"--family {quote(family)} is not known: {known}, or all of them with all"
        )
    chosen = list(FAMILIES.values()) if family == "all" else [FAMILIES[family]]
    sweeping = _Sweep(chosen, range(first, first + count), jobs, as_json=as_json)
    kept = State(Path(f"sweep-{family}.jsonl") if state is None else state)
    try:
        sweeping.run(kept, again=again)
    except KeyboardInterrupt:
        typer.echo(f"stopped: {sweeping.progress()}; the same command goes on", err=True)
        raise typer.Exit(EXIT_STOPPED) from None
    finally:
        kept.close()
    if sweeping.failed:
        raise typer.Exit(1)


class _Sweep:
    """What is to be run, and how far it is."""

    def __init__(
        self, families: list[Family], seeds: range, jobs: int | None, *, as_json: bool
    ) -> None:
        self.failed: list[Outcome] = []
        self._families = families
        self._seeds = seeds
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._as_json = as_json
        self._began = time.monotonic()
        self._done = 0
        self._run = 0
        "Of those that are done, in this call."

    def run(self, state: State, *, again: bool) -> None:
        """Run what is not done, and say what failed, then and now."""
        from laps.sweep import sweep as run_all

        if not again:
            for job in self._all():
                if (known := state.outcomes.get((job[0].name, job[1]))) is not None:
                    self._count(known)
        done = set() if again else set(state.outcomes)
        work = (job for job in self._all() if (job[0].name, job[1]) not in done)
        with err.status(self.progress()) as status:
            for outcome in run_all(work, self._jobs):
                if outcome is not None:
                    state.add(outcome)
                    self._run += 1
                    self._count(outcome)
                status.update(self.progress())
        if self._as_json:
            typer.echo(json.dumps(self._mapping(), indent=2))
        else:
            typer.echo(self.progress())

    def progress(self) -> str:
        """How far it is, for people."""
        whole = len(self._families) * len(self._seeds)
        text = f"{self._done} of {whole} seeds, {len(self.failed)} failed"
        passed_s = time.monotonic() - self._began
        if not self._run or not passed_s:
            return text
        rate = self._run / passed_s
        left = (whole - self._done) / rate
        text += f", {rate:.1f} a second"
        return f"{text}, {duration(left)} left" if self._done < whole else text

    def _all(self) -> Iterator[tuple[Family, int]]:
        return ((family, seed) for seed in self._seeds for family in self._families)

    def _count(self, outcome: Outcome) -> None:
        self._done += 1
        if not outcome.findings:
            return
        self.failed.append(outcome)
        if self._as_json:
            return
        lines = [f"{outcome.family} {outcome.seed}: {_command(outcome)}"]
        lines += [f"  {finding}" for finding in outcome.findings[:MOST_SHOWN]]
        if (more := len(outcome.findings) - MOST_SHOWN) > 0:
            lines.append(f"  and {more} more")
        out.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    def _mapping(self) -> dict[str, object]:
        return {
            "done": self._done,
            "failed": [
                {
                    "family": outcome.family,
                    "seed": outcome.seed,
                    "findings": outcome.findings,
                    "command": _command(outcome),
                }
                for outcome in self.failed
            ],
        }


def _command(outcome: Outcome) -> str:
    """What runs a seed alone."""
    return f"laps sim sweep --family {outcome.family} --from {outcome.seed} --count 1 --again"
