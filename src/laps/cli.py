"""The command line: arguments and words only; what they ask for is done elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

# What only one command needs is imported for that command: a relay at rest is to be small.
import typer
import uvloop
from rich import box
from rich.console import Console
from rich.table import Table

from laps.config import Config, load_config, override
from laps.errors import ConfigError, LapsError, ListenError
from laps.net.runner import Runner
from laps.types import format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laps.bench import quic as bench_quic

# What a person, or a script, got wrong; 1 is for what went wrong by itself.
EXIT_USAGE = 2

app = typer.Typer(
    name="laps",
    help="A network of relays that carries live tracks from publishers to subscribers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
bench = typer.Typer(help="Measure this machine; every figure beside its peers in one run.")
app.add_typer(bench, name="bench", no_args_is_help=True)

out = Console()
err = Console(stderr=True)


def main() -> NoReturn:
    """The program `laps`: errors are one line on standard error, and an exit status."""
    try:
        _complete()
        app()
    except (ConfigError, ListenError) as error:
        err.print(f"laps: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(EXIT_USAGE)
    except LapsError as error:
        err.print(f"laps: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    sys.exit(0)


def _complete() -> None:
    """Add the commands of clients, unless it is a relay that starts."""
    if sys.argv[1:2] == ["relay"]:
        return
    from laps import cli_client, cli_discover

    cli_client.register(app)
    cli_discover.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"laps {version('laps')}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop."),
    ] = False,
) -> None:
    pass


ConfigPath = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML; flags go over it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")]


@app.command(
    epilog="Example: laps relay --node-id 1:2 --listen 127.0.0.1:4443 "
    "--peer-listen 127.0.0.1:4444 --peer 127.0.0.1:33434",
)
def relay(
    config: ConfigPath = None,
    role: Annotated[
        str | None, typer.Option("--type", metavar="ROLE", help="edge, via, stub or control.")
    ] = None,
    node_id: Annotated[
        str | None,
        typer.Option(metavar="HIGH:LOW", help="Like 1.2:1234; made from host and port if absent."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients connect. Port 0: any free one."),
    ] = None,
    peer_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where other relays dial in. Port 0: any free one."),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A relay to dial. Repeatable.")
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A control server to dial. Repeatable."),
    ] = None,
    draft: Annotated[
        list[int] | None,
        typer.Option(metavar="14|16", help="A draft of MoQT to offer clients. Repeatable."),
    ] = None,
    reflect: Annotated[
        bool | None,
        typer.Option("--reflect", help="As a via, keep subscribes for peers that come later."),
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate, PEM.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None,
    tls_self_signed: Annotated[
        bool | None, typer.Option("--tls-self-signed", help="Make a certificate on the spot.")
    ] = None,
    discovery: Annotated[
        bool | None,
        typer.Option("--discovery/--no-discovery", help="Whether clients find it by mDNS."),
    ] = None,
    latitude: Annotated[float | None, typer.Option(help="Where the relay stands.")] = None,
    longitude: Annotated[float | None, typer.Option(help="Where the relay stands.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run one relay until it is stopped (Ctrl-C or SIGTERM).

    One line on standard output says when it listens, and where. SIGHUP makes it read its
    configuration again: certificate and peers count at once.
    """
    flags: dict[str, dict[str, Any]] = {
        "--type": {"node.type": role},
        "--node-id": {"node.id": node_id},
        "--latitude": {"node.latitude": latitude},
        "--longitude": {"node.longitude": longitude},
        "--listen": {"clients.listen": listen},
        "--draft": {"clients.drafts": draft or None},
        "--peer-listen": {"peering.listen": peer_listen},
        "--peer": {"peering.peers": peer or None},
        "--control": {"peering.control": control or None},
        "--reflect": {"relay.reflect": reflect},
        "--discovery": {"discovery.enabled": discovery},
        "--tls-cert, --tls-key, --tls-self-signed": {
            "tls.certificate": tls_cert,
            "tls.key": tls_key,
            "tls.self_signed": tls_self_signed,
        },
    }
    settings = _configured(config, flags)
    _log(verbose)
    uvloop.run(_run_relay(settings, None, _say_ready, lambda: _configured(config, flags)))


@app.command(epilog="Example: laps lab --seconds 10")
def lab(
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop by itself after this long.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """See it work on this machine, with nothing configured: for now, one Edge relay.

    It makes its certificate on the spot and says where it listens.
    """
    _log(verbose)
    settings = override(Config(), {"node.id": "1:1"}, "laps lab")
    try:
        uvloop.run(_run_relay(settings, seconds, _say_lab))
    except ListenError as error:
        err.print(f"laps: {error}; taking any free port", highlight=False, soft_wrap=True)
        free = {"peering.listen": "127.0.0.1:0", "clients.listen": "127.0.0.1:0"}
        settings = override(settings, free, "laps lab")
        uvloop.run(_run_relay(settings, seconds, _say_lab))


async def _run_relay(
    config: Config,
    seconds: float | None,
    say: Callable[[Runner], None],
    read_again: Callable[[], Config] | None = None,
) -> None:
    runner = Runner(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if read_again is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, runner, read_again)
    try:
        say(runner)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
    finally:
        await runner.close()


def _reload(runner: Runner, read_again: Callable[[], Config]) -> None:
    try:
        runner.reload(read_again())
    except LapsError as error:
        logging.getLogger("laps").error("the configuration stays as it is: %s", error)


def _say_ready(runner: Runner) -> None:
    _print_line(
        f"ready node={format_node_id(runner.relay.id)} "
        f"clients={runner.client_address or 'none'} "
        f"peers={runner.peer_address or 'none'} "
        f"sha256={runner.identity.fingerprint}"
    )


def _say_lab(runner: Runner) -> None:
    node = format_node_id(runner.relay.id)
    _print_line(
        f"An Edge relay, node {node}, listens for clients on {runner.client_address} and for peers "
        f"on {runner.peer_address} (QUIC)."
    )
    _print_line(f"Its certificate was made just now: sha256 {runner.identity.fingerprint}")
    _print_line("In two other terminals, a clock that is published, and one who reads it:")
    url = f"moqt://{runner.client_address}"
    _print_line(f"    while date; do sleep 1; done | .venv/bin/laps pub {url} demo clock")
    _print_line(f"    .venv/bin/laps sub {url} demo clock")
    _print_line("And a second relay that peers with it:")
    _print_line(
        "    .venv/bin/laps relay -v --listen 127.0.0.1:0 --peer-listen 127.0.0.1:0 "
        f"--peer {runner.peer_address}"
    )
    _print_line("Ctrl-C stops it.")


def _print_line(line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def _configured(path: Path | None, flags: dict[str, dict[str, Any]]) -> Config:
    """The file's settings, with each flag that was given laid over them."""
    config = Config() if path is None else load_config(path)
    for flag, values in flags.items():
        given = {key: value for key, value in values.items() if value is not None}
        config = override(config, given, flag)
    return config


def _log(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


# -- laps sim --------------------------------------------------------------------------------------


@app.command(
    epilog="Example: laps sim examples/sim/two-regions.toml --seed 7 "
    "--faults crash:1:1@5,restart:1:1@15,random:3",
)
def sim(
    topology: Annotated[
        Path, typer.Argument(metavar="TOPOLOGY.TOML", help="Nodes, links, publishers, subscribers.")
    ],
    seed: Annotated[int, typer.Option(help="The same seed replays the same run.")] = 1,
    faults: Annotated[
        str,
        typer.Option(
            help="Joined by commas, with seconds after the first rest: crash:NODE@S, stop:NODE@S, "
            "restart:NODE@S, cut:A-B@S, heal:A-B@S, flap:A-B@S, delay:A-B=MS@S, random:N[@S]."
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=1, help="Virtual time after the network is at rest first.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Ask "what if" of a network: the same relays without sockets, under a seeded clock.

    Prints how long it took to converge, what was said, copies per link and objects lost. Exit
    status 1 if something does not hold that ought to.
    """
    from laps.sim.report import run as simulate
    from laps.sim.topology import load_topology

    with err.status("simulating"):
        report = simulate(load_topology(topology), seed=seed, faults=faults, seconds=seconds)
    if as_json:
        _print_line(json.dumps(report.to_mapping(), indent=2))
    else:
        out.print(report.render())
    if report.violations:
        raise typer.Exit(1)


# -- laps bench ------------------------------------------------------------------------------------


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
        typer.Option(min=1, metavar="N", help="So many subscribes. Repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What subscribe information costs in one relay, from ten thousand to four million entries.

    Exit status 1 if a million of them take more than 400 MB or 15 s.
    """
    from laps.bench import infobase as bench_infobase

    with err.status("measuring") as status:
        counts = tuple(count) if count else bench_infobase.COUNTS
        results = bench_infobase.measure(counts, progress=status.update)
    if as_json:
        _print_line(json.dumps(bench_infobase.as_mapping(results), indent=2))
    else:
        out.print(bench_infobase.table(results))
    if not bench_infobase.holds(results):
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
        _print_line(json.dumps(bench_relay.as_mapping(figures), indent=2))
    else:
        out.print(bench_relay.table(figures))
    if not bench_relay.holds(figures):
        raise typer.Exit(1)


def _quic_table(results: Sequence[bench_quic.Result]) -> Table:
    ours, *others = results[0].reached
    table = Table(
        title="QUIC on loopback, server and client on a core each",
        caption="100 streams write 16 KiB each in turn; small writes are of 100 bytes, datagrams\n"
        "of 1,000. In brackets: the least ratio the project asks of itself.",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
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
