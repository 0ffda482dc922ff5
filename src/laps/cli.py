"""The command line: arguments and words only; what they ask for is done elsewhere."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

# What only one command needs is imported for that command: a relay at rest is to be small, and who
# subscribes does not wait for a relay to be loaded.
import typer
import uvloop
from msgspec import structs

from laps.config import Config, load_config, override
from laps.errors import ConfigError, LapsError, ListenError
from laps.names import visible
from laps.types import Address, format_node_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from laps.admin.server import Admin, Controls
    from laps.net.runner import Runner
    from laps.steering import KeepingTo, Steering

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


def main() -> NoReturn:
    """The program `laps`: errors are one line on standard error, and an exit status."""
    try:
        _complete()
        app()
    except (ConfigError, ListenError) as error:
        typer.echo(f"laps: {visible(str(error))}", err=True)
        sys.exit(EXIT_USAGE)
    except LapsError as error:
        typer.echo(f"laps: {visible(str(error))}", err=True)
        sys.exit(1)
    sys.exit(0)


def _complete() -> None:
    """Add the other commands, unless it is one that should start quickly and needs none of them."""
    command = sys.argv[1:2]
    if command == ["relay"]:
        return
    if command == ["token"]:
        from laps import cli_token

        cli_token.register(app)
        return
    from laps import cli_client

    cli_client.register(app)
    if command in (["pub"], ["sub"]):
        return
    from laps import (
        cli_bench,
        cli_dashboard,
        cli_discover,
        cli_inspect,
        cli_lab,
        cli_pipeline,
        cli_plan,
        cli_policy,
        cli_sim,
        cli_token,
    )

    app.add_typer(cli_bench.bench, name="bench", no_args_is_help=True)
    cli_dashboard.register(app)
    cli_discover.register(app)
    cli_lab.register(app)
    cli_inspect.register(app)
    cli_pipeline.register(app)
    cli_plan.register(app)
    cli_policy.register(app)
    cli_sim.register(app)
    cli_token.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        _print_line(f"laps {version('laps')}")
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
    auth: Annotated[
        str | None,
        typer.Option(
            metavar="KEYS",
            help="Let in who shows a token that one of these keys has signed: a file or a folder, "
            "see `laps token`. Without it, everybody is let in.",
        ),
    ] = None,
    peer_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where other relays dial in. Port 0: any free one."),
    ] = None,
    peer_key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The key to prove to other relays with who this one is."),
    ] = None,
    peer_keys: Annotated[
        str | None, typer.Option(metavar="PATH", help="A file or folder of their public keys.")
    ] = None,
    peer_auth: Annotated[
        bool | None,
        typer.Option("--peer-auth/--no-peer-auth", help="Whether they have to prove who they are."),
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
    admin: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where it is looked into. Port 0: any free one."),
    ] = None,
    no_admin: Annotated[
        bool, typer.Option("--no-admin", help="Let nobody look into it over HTTP.")
    ] = False,
    latitude: Annotated[float | None, typer.Option(help="Where the relay stands.")] = None,
    longitude: Annotated[float | None, typer.Option(help="Where the relay stands.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run one relay until it is stopped (Ctrl-C or SIGTERM).

    One line on standard output says when it listens, and where. SIGHUP makes it read its
    configuration again: certificate and peers count at once, and with another type it begins again.
    """
    flags: dict[str, dict[str, Any]] = {
        "--type": {"node.type": role},
        "--node-id": {"node.id": node_id},
        "--latitude": {"node.latitude": latitude},
        "--longitude": {"node.longitude": longitude},
        "--listen": {"clients.listen": listen},
        "--draft": {"clients.drafts": draft or None},
        "--auth": {"auth.keys": auth},
        "--peer-listen, --peer-key, --peer-keys, --peer-auth": {
            "peering.listen": peer_listen,
            "peering.key": peer_key,
            "peering.keys": peer_keys,
            "peering.require_auth": peer_auth,
        },
        "--peer": {"peering.peers": peer or None},
        "--control": {"peering.control": control or None},
        "--reflect": {"relay.reflect": reflect},
        "--discovery": {"discovery.enabled": discovery},
        "--admin": {"admin.listen": admin},
        "--no-admin": {"admin.enabled": False if no_admin else None},
        "--tls-cert, --tls-key, --tls-self-signed": {
            "tls.certificate": tls_cert,
            "tls.key": tls_key,
            "tls.self_signed": tls_self_signed,
        },
    }
    settings = _configured(config, flags)
    _log(verbose)
    uvloop.run(_run_relay(settings, lambda: _configured(config, flags)))


async def _run_relay(
    config: Config,
    read_again: Callable[[], Config],
) -> None:
    from laps.admin.server import Controls
    from laps.net.begin_again import Reloading, begin_again
    from laps.net.collector import Collector
    from laps.net.runner import Runner

    runner = Runner(config)
    collecting = asyncio.ensure_future(Collector().run())
    wake, stops = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stops.set()
        wake.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    admin_port = 0
    while True:
        reloading = Reloading(runner, read_again, wake)
        loop.add_signal_handler(signal.SIGHUP, reloading.read)
        controls = Controls(reloading.read, stop)
        admin_port = await _serve(runner, wake, admin_port, controls)
        if reloading.following is None or stops.is_set():
            collecting.cancel()
            return
        wake.clear()
        runner = await begin_again(runner, reloading.following)


async def _serve(runner: Runner, wake: asyncio.Event, admin_port: int, controls: Controls) -> int:
    """Run a relay until it is woken; the port of the admin API, for it to be the same again."""
    heard: list[Steering | KeepingTo] = []
    admin = None
    try:
        _follow(runner, heard)
        admin = _admin(runner, admin_port, controls)
        _say_ready(runner, admin)
        await wake.wait()
    finally:
        for hearing in heard:
            await hearing.close()
        await runner.close()
        if admin is not None:  # the last to go: whoever looks sees the relay leave
            await admin.close()
    return admin_port if admin is None else admin.address.port


def _follow(runner: Runner, heard: list[Steering | KeepingTo]) -> None:
    """Hear policies where a key is named, and plans where clients, so publishers, can come."""
    config = runner.config
    hears_plans = bool(config.plan.key) and runner.client_address is not None
    if not (hears_plans or config.policy.key):
        return
    from laps.steering import KeepingTo, Steering

    # What is allowed first: a plan is followed within it.
    if config.policy.key:
        heard.append(KeepingTo(runner, config.policy))
    if hears_plans:
        heard.append(Steering(runner, config.plan))


def _admin(runner: Runner, port: int, controls: Controls) -> Admin | None:
    """What shows the relay over HTTP, unless its operator does not want it."""
    config = runner.config.admin
    if not config.enabled:
        return None
    from laps.admin.server import Admin

    if port and config.listen is not None and not config.listen.port:
        config = structs.replace(config, listen=Address(config.listen.host, port))
    return Admin(runner, config, controls)


def _say_ready(runner: Runner, admin: Admin | None) -> None:
    _print_line(
        f"ready node={format_node_id(runner.relay.id)} "
        f"clients={runner.client_address or 'none'} "
        f"peers={runner.peer_address or 'none'} "
        f"sha256={runner.identity.fingerprint} "
        f"admin={'none' if admin is None else admin.address} "
        f"auth={_who_decides(runner.config)}"
    )


def _who_decides(config: Config) -> str:
    """Who may say what clients do: everybody, the keys of the relay, or origins for their names."""
    by = [] if config.auth.keys is None else ["keys"]
    return ",".join(by + ["origins"] * bool(config.origins)) or "everybody"


def _print_line(line: str) -> None:
    typer.echo(line)


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
