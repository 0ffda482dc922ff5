"""`laps bench`: arguments and words; the measuring is done in `laps.bench`."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from laps.bench.tables import as_mapping, table_of_figures
from laps.errors import ConfigError, LapsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from laps.bench import control as bench_control
    from laps.bench import quic as bench_quic

bench = typer.Typer(help="Measure this machine; every figure beside its peers in one run.")

out = Console()
err = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def _print_line(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


@bench.command("quic", epilog="Example: laps bench quic --only 'one stream' --rounds 5")
def bench_quic_command(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long a measurement takes.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="The median of so many is reported.")] = 3,
    only: Annotated[
        list[str] | None, typer.Option(metavar="CASE", help="Only this case. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The QUIC endpoint on loopback, beside qh3 alone and aioquic.

    Exit status 1 if a ratio is below what the project asks of itself.
    """
    from laps.bench import quic as bench_quic

    known = [case.name for case in bench_quic.CASES]
    if unknown := set(only or ()) - set(known):
        raise ConfigError(f'--only "{unknown.pop()}": known are {", ".join(known)}')
    with err.status("measuring") as status:
        results = bench_quic.measure(seconds, rounds, only or [], status.update)
    if as_json:
        _print_line(json.dumps(bench_quic.as_mapping(results), indent=2))
    else:
        out.print(_quic_table(results))
    if not all(result.holds() for result in results):
        raise typer.Exit(1)


@bench.command("infobase", epilog="Example: laps bench infobase --count 1000000")
def bench_infobase_command(
    count: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Only the cost of so many subscribes. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What subscribe information costs in one relay, from ten thousand to four million entries.

    And how long the relay is busy at a time when very much happens at once. Exit status 1 if of a
    million subscribes or more each takes more than 100 bytes or 15 us, or the relay is busy for
    more than 20 ms. With --count 20000000 it takes a quarter of an hour and 2 GB.
    """
    from laps.bench import infobase as bench_infobase
    from laps.bench import turns as bench_turns

    with err.status("measuring") as status:
        counts = tuple(count) if count else bench_infobase.COUNTS
        results = bench_infobase.measure(counts, progress=status.update)
        turns = [] if count else bench_turns.measure(status.update)
    if as_json:
        rows = bench_infobase.as_mapping(results) + bench_turns.as_mapping(turns)
        _print_line(json.dumps(rows, indent=2))
    else:
        out.print(bench_infobase.table(results))
        if turns:
            out.print(bench_turns.table(turns))
    if not bench_infobase.holds(results) or not all(turn.holds() for turn in turns):
        raise typer.Exit(1)


@bench.command("peering", epilog="Example: laps bench peering --count 200000")
def bench_peering_command(
    count: Annotated[
        list[int] | None,
        typer.Option(min=1000, metavar="N", help="So many subscribes. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How long a relay takes to join a network of a hundred thousand or two million subscribes.

    Exit status 1 if it takes more than a millisecond for each, or the one that tells grows.
    """
    from laps.bench import peering as bench_peering

    with err.status("measuring") as status:
        counts = tuple(count) if count else bench_peering.COUNTS
        results = bench_peering.measure(counts, progress=status.update)
    if as_json:
        _print_line(json.dumps(bench_peering.as_mapping(results), indent=2))
    else:
        out.print(bench_peering.table(results))
    if not all(result.holds() for result in results):
        raise typer.Exit(1)


@bench.command(
    "control",
    epilog="Example: laps bench control --servers 4 --edges 20 --tracks 200000 --rate 2000 "
    "--kill --add --picture control.svg",
)
def bench_control_command(
    servers: Annotated[int, typer.Option(min=1, max=32, metavar="N", help="At first.")] = 2,
    edges: Annotated[int, typer.Option(min=2, max=500, metavar="N", help="Light ones.")] = 8,
    tracks: Annotated[
        int, typer.Option(min=1, metavar="N", help="Each is wanted by one Edge.")
    ] = 20_000,
    rate: Annotated[
        float, typer.Option(min=1, metavar="N", help="Subscribes and unsubscribes a second.")
    ] = 500.0,
    seconds: Annotated[float, typer.Option(min=1, help="How long these go on.")] = 10.0,
    kill: Annotated[bool, typer.Option("--kill", help="Kill a server meanwhile.")] = False,
    add: Annotated[bool, typer.Option("--add", help="Let one more join meanwhile.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the delays: .png or .svg.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Control servers that share the subscribes of a network, as they come, go and are killed.

    The servers are real relays; Edges are light ones, many to a process, on QUIC. In the end one
    server is restarted. Exit status 1 if an Edge that publishes does not know of a subscribe that
    there is, or of one that there is no more, or if servers hold other shares than theirs.
    """
    from laps.bench import control as bench_control

    if kill and servers < 2:
        raise ConfigError(f"--kill: of {servers} control server none would be left")
    draw = _control_picture(picture)
    asked = bench_control.Asked(servers, edges, tracks, rate, seconds, kill=kill, add=add)
    with err.status("measuring") as status:
        result = bench_control.measure(asked, status.update)
    if as_json:
        _print_line(json.dumps(bench_control.mapping(result), indent=2))
    else:
        out.print(bench_control.table(result))
    draw(result)
    if not result.holds():
        raise typer.Exit(1)


def _control_picture(path: Path | None) -> Callable[[bench_control.Result], None]:
    """What draws it; an error before anything is measured where it cannot be drawn."""
    if path is None:
        return lambda _: None
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--picture {path}: end its name in .png or .svg")
    try:
        from laps.bench.control_picture import draw
    except ModuleNotFoundError as error:
        raise LapsError(f"{error}: a picture needs it: pip install 'laps[spark]'") from None
    return lambda result: draw(result, path)


@bench.command("soak", epilog="Example: laps bench soak --minutes 30")
def bench_soak_command(
    minutes: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="How long, on one relay and on three.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """What becomes of a relay's memory under connects, leaves and churn.

    Exit status 1 if it grows by more than 5 % after the first third, or an object is missing.
    """
    from laps.bench import soak as bench_soak

    with err.status("soaking") as status:
        results = bench_soak.measure(minutes, progress=status.update)
    if as_json:
        _print_line(json.dumps(bench_soak.as_mapping(results), indent=2))
    else:
        out.print(bench_soak.table(results))
    if not all(result.holds() for result in results):
        raise typer.Exit(1)


@bench.command("failover", epilog="Example: laps bench failover --relay edge --kills 50")
def bench_failover_command(
    relay: Annotated[
        str,
        typer.Option(metavar="via|edge", help="Which is killed: in the middle, or clients' own."),
    ] = "via",
    kills: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often: some nine seconds each.")
    ] = 10,
    delay_ms: Annotated[
        float, typer.Option(min=0, max=1000, metavar="MS", help="Between the regions, one way.")
    ] = 40.0,
    as_json: AsJson = False,
) -> None:
    """What subscribers notice when a relay is killed, again and again.

    Of Edges it is that of the subscribers and that of the publisher in turns; each client knows
    two. Exit status 1 if an object is missing or comes twice, or if one kill in twenty makes them
    wait for more than 1.5 s.
    """
    from laps.bench import failover as bench_failover

    if relay not in bench_failover.RELAYS:
        raise ConfigError(f'--relay "{relay}": known are {", ".join(bench_failover.RELAYS)}')
    with err.status("measuring") as status:
        figures = bench_failover.measure(relay, kills, delay_ms, status.update)
    if as_json:
        _print_line(json.dumps(as_mapping(figures), indent=2))
    else:
        out.print(bench_failover.table(figures, relay, kills, delay_ms))
    if not all(figure.holds() for figure in figures):
        raise typer.Exit(1)


@bench.command("hops", epilog="Example: laps bench hops --seconds 10")
def bench_hops_command(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long objects pass.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """The delay that each relay adds, through five of them on loopback.

    Exit status 1 if a hop adds a millisecond or more at the median.
    """
    from laps.bench import hops as bench_hops

    with err.status("measuring") as status:
        result = bench_hops.measure(seconds, status.update)
    if as_json:
        _print_line(json.dumps(result, indent=2))
    else:
        out.print(bench_hops.table(result))
    if not bench_hops.holds(result):
        raise typer.Exit(1)


@bench.command("relay", epilog="Example: laps bench relay --only latency --only memory")
def bench_relay_command(
    seconds: Annotated[float, typer.Option(min=0.1, help="How long a measurement takes.")] = 3.0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="CASE", help="Only this case. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """One relay and its clients: throughput, small objects, delay, memory, and what is lost.

    Exit status 1 if something is not as the project asks of itself.
    """
    from laps.bench import relay as bench_relay

    if unknown := set(only or ()) - set(bench_relay.CASES):
        known = ", ".join(bench_relay.CASES)
        raise ConfigError(f'--only "{unknown.pop()}": known are {known}')
    with err.status("measuring") as status:
        figures = bench_relay.measure(seconds, only or [], status.update)
    if as_json:
        _print_line(json.dumps(as_mapping(figures), indent=2))
    else:
        out.print(bench_relay.table(figures))
    if not bench_relay.holds(figures):
        raise typer.Exit(1)


@bench.command("telemetry", epilog="Example: laps bench telemetry --tracks 1000 --rounds 12")
def bench_telemetry_command(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long a turn takes.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns with telemetry off, and on.")] = 12,
    tracks: Annotated[
        int | None, typer.Option(metavar="1000|10000", help="Only with so many tracks.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a relay's telemetry costs it, with a thousand tracks that flow, off and on in turns.

    Exit status 1 if that is a hundredth of a core or more.
    """
    from laps.bench import telemetry as bench_telemetry

    known = sorted({case.tracks for case in bench_telemetry.CASES})
    if tracks is not None and tracks not in known:
        raise ConfigError(f"--tracks {tracks}: known are {', '.join(map(str, known))}")
    with err.status("measuring") as status:
        results = bench_telemetry.measure(seconds, rounds, tracks, status.update)
    if as_json:
        _print_line(json.dumps(bench_telemetry.as_mapping(results), indent=2))
    else:
        out.print(bench_telemetry.table(results))
    if not bench_telemetry.holds(results):
        raise typer.Exit(1)


@bench.command("admin", epilog="Example: laps bench admin --tracks 10000")
def bench_admin_command(
    tracks: Annotated[int, typer.Option(min=1, help="So many tracks.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Each view is asked for so often.")] = 20,
    as_json: AsJson = False,
) -> None:
    """What it costs a relay to be looked into: a scrape, and a page of its tracks.

    Exit status 1 if either takes 50 ms of its time, or holds its loop for as long.
    """
    from laps.bench import admin as bench_admin

    with err.status("measuring") as status:
        results = bench_admin.measure(tracks, rounds, status.update)
    if as_json:
        _print_line(json.dumps(bench_admin.as_mapping(results), indent=2))
    else:
        out.print(bench_admin.table(tracks, results))
    if not bench_admin.holds(results):
        raise typer.Exit(1)


@bench.command("auth", epilog="Example: laps bench auth --rounds 20")
def bench_auth_command(
    sessions: Annotated[int, typer.Option(min=1, help="So many in a turn.")] = 25,
    objects: Annotated[int, typer.Option(min=1, help="So many in a turn.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="So often, with new relays.")] = 6,
    as_json: AsJson = False,
) -> None:
    """What tokens cost a relay: its time for a session and for an object, with keys and without.

    Exit status 1 if a session takes 5 % more with them, or an object takes more.
    """
    from laps.bench import auth as bench_auth
    from laps.bench.tables import table_of

    with err.status("measuring") as status:
        results = bench_auth.measure(sessions, objects, rounds, status.update)
    if as_json:
        _print_line(json.dumps(as_mapping(results), indent=2))
    else:
        caption = (
            "The processor time of two relays, in turns; ratios are of four turns side by side."
        )
        out.print(
            table_of(results, "A relay that asks for tokens, beside one that does not", caption)
        )
    if not all(result.holds() for result in results):
        raise typer.Exit(1)


@bench.command("hostile", epilog="Example: laps bench hostile --only 'reset storm' --seconds 5")
def bench_hostile_command(
    seconds: Annotated[float, typer.Option(min=0.5, help="How long an attack takes.")] = 3.0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ATTACK", help="Only this attack. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What one client that does its worst costs a relay, and the clients beside it.

    Exit status 1 if it costs 50 MB or more, or the others a tenth of their throughput or an object.
    """
    from laps.bench import hostile as bench_hostile
    from laps.bench.hostile_clients import ATTACKS

    if unknown := set(only or ()) - set(ATTACKS):
        known = ", ".join(ATTACKS)
        raise ConfigError(f'--only "{unknown.pop()}": known are {known}')
    with err.status("measuring") as status:
        results = bench_hostile.measure(seconds, only or [], status.update)
    if as_json:
        _print_line(json.dumps(bench_hostile.as_mapping(results), indent=2))
    else:
        out.print(bench_hostile.table(results))
    if not all(result.holds() for result in results):
        raise typer.Exit(1)


@bench.command("classes", epilog="Example: laps bench classes --mbit 5")
def bench_classes_command(
    seconds: Annotated[float, typer.Option(min=1, help="How long delays are measured.")] = 10.0,
    mbit: Annotated[
        float, typer.Option(min=4.5, max=100, metavar="N", help="How wide the link is.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """What classes of service do on a link that is too narrow: gold, silver and bronze.

    Three labs of two relays, about half a minute each. Exit status 1 if the gold track loses an
    object, or takes longer than on a wide link by more than a full path holds.
    """
    from laps.bench import classes as bench_classes

    with err.status("measuring") as status:
        figures = bench_classes.measure(seconds, mbit, status.update)
    if as_json:
        _print_line(json.dumps(as_mapping(figures), indent=2))
    else:
        out.print(bench_classes.table(figures, mbit))
    if not all(figure.holds() for figure in figures):
        raise typer.Exit(1)


@bench.command("deciding", epilog="Example: laps bench deciding --nodes 200 --regions 8 --seed 1")
def bench_deciding_command(
    nodes: Annotated[
        int, typer.Option(min=8, max=2000, metavar="N", help="So many relays, an eighth are Vias.")
    ] = 60,
    regions: Annotated[int, typer.Option(min=2, max=50, metavar="N", help="In so many.")] = 4,
    seed: Annotated[int, typer.Option(metavar="N", help="The same gives the same.")] = 1,
    as_json: AsJson = False,
) -> None:
    """What a network saves that decides by itself: copies and delays, without and with it.

    Simulated, so that the figures are the same on any machine. Exit status 1 if it takes more
    copies between regions than without.
    """
    from laps.bench import deciding as bench_deciding

    if nodes < 2 * regions:
        raise ConfigError(f"--nodes {nodes}: {regions} regions want {2 * regions} at least")
    with err.status("simulating") as status:
        found = bench_deciding.compare(nodes, regions, seed, status.update)
    if as_json:
        _print_line(json.dumps(found.to_mapping(), indent=2))
    else:
        out.print(bench_deciding.table(found))
    if found.after.long_haul > found.before.long_haul:
        raise typer.Exit(1)


@bench.command("moving", epilog="Example: laps bench moving --nodes 60 --regions 4 --seed 1")
def bench_moving_command(
    nodes: Annotated[int, typer.Option(min=4, max=500, metavar="N", help="So many Edges.")] = 24,
    regions: Annotated[int, typer.Option(min=2, max=50, metavar="N", help="In so many.")] = 4,
    seed: Annotated[int, typer.Option(metavar="N", help="The same gives the same.")] = 1,
    as_json: AsJson = False,
) -> None:
    """What it saves to move clients where their content is: copies, without and with it.

    Simulated, so that the figures are the same on any machine. Exit status 1 if it takes more
    copies between regions than without, or if a viewer misses an object or has one twice.
    """
    from laps.bench import moving as bench_moving

    if nodes < 2 * regions:
        raise ConfigError(f"--nodes {nodes}: {regions} regions want {2 * regions} at least")
    with err.status("simulating") as status:
        found = bench_moving.compare(nodes, regions, seed, status.update)
    if as_json:
        _print_line(json.dumps(found.to_mapping(), indent=2))
    else:
        out.print(bench_moving.table(found))
    if not found.holds:
        raise typer.Exit(1)


@bench.command("plan", epilog="Example: laps bench plan --generate tracks=20e6,subscriptions=200e6")
def bench_plan_command(
    generate: Annotated[
        str,
        typer.Option(metavar="SIZE", help="nodes=2000,tracks=10e6,subscriptions=100e6, or others."),
    ] = "nodes=2000,tracks=10e6,subscriptions=100e6",
    rounds: Annotated[int, typer.Option(min=1, help="The median of so many is reported.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Adding up a demand for a plan, on bucketed files, beside DuckDB and Polars.

    Exit status 1 if laps on Spark is not twice as fast as the better of them.
    """
    try:
        from laps.bench import plan as bench_plan
        from laps.spark.planner.generate import parse_size
    except ModuleNotFoundError as error:
        raise LapsError(f"{error}: planning needs it: pip install 'laps[spark]'") from None

    size = parse_size(generate)
    with err.status("measuring") as status:
        result = bench_plan.measure(size, rounds, status.update)
    if as_json:
        _print_line(json.dumps(bench_plan.as_mapping(result), indent=2))
    else:
        out.print(bench_plan.table(result))
    if not result.holds():
        raise typer.Exit(1)


def _quic_table(results: Sequence[bench_quic.Result]) -> Table:
    ours, *others = results[0].reached
    table = table_of_figures(
        "QUIC on loopback, server and client on a core each",
        "100 streams write 16 KiB each in turn; small writes are of 100 bytes, datagrams\n"
        "of 1,000. In brackets: the least ratio the project asks of itself.",
    )
    table.add_column("", no_wrap=True)
    for name in (ours, *others):
        table.add_column(name, justify="right", no_wrap=True)
    for name in others:
        table.add_column(f"{ours}/{name}", justify="right", no_wrap=True)
    for result in results:
        figures = [f"{figure:,.0f}" for figure in result.reached.values()]
        ratios = [_ratio(result, name) for name in others]
        table.add_row(f"{result.case.name}, {result.case.unit}", *figures, *ratios)
    return table


def _ratio(result: bench_quic.Result, name: str) -> str:
    ratio, least = result.ratio(name), result.case.wanted.get(name)
    text = "-" if ratio is None else f"{ratio:.2f}"
    return text if least is None else f"{text} ({least:g})"
