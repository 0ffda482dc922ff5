"""`laps dashboard`: the network on a page of the browser."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from laps.token_files import ADMIN_HELP, METAVAR, read_admin_option

if TYPE_CHECKING:
    from laps.dashboard.network import Address

PORT = 33437


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "dashboard",
        epilog="Example: laps dashboard --admin http://127.0.0.1:33436 --open\n\n"
        "Example: laps dashboard --admin http://192.0.2.7:33436 --token @admin.token",
    )(dashboard)


def dashboard(
    admin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="The admin API of a relay. Repeatable. Default: all relays on this machine.",
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(metavar=METAVAR, help=ADMIN_HELP, show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Where the page is served.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Its port; any free one where it is taken, or for 0."),
    ] = PORT,
    viewer_token: Annotated[
        str,
        typer.Option(
            envvar="LAPS_VIEWER_TOKEN",
            metavar="TOKEN",
            help="What viewers open the page with, as ?token=; needed off loopback.",
        ),
    ] = "",
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Show relays, tracks and what happens to them on one live page, until stopped (Ctrl-C).

    One line on standard output says where it is.
    """
    import uvloop

    from laps.admin.client import admin_url
    from laps.dashboard.network import Address, Network, nobody
    from laps.dashboard.serving import listen, serve, url_of

    shown = read_admin_option(token)
    named = [Address(admin_url(text), shown) for text in admin or ()]
    network = Network(named, nobody if named else lambda: _on_this_machine(shown))
    sock, moved = listen(host, port, viewer_token)
    url = url_of(sock)
    if moved:
        typer.echo(f"laps: port {port} is taken; the dashboard is on {url}", err=True)

    def ready() -> None:
        typer.echo(f"dashboard {url}")
        if open_browser:
            webbrowser.open(f"{url}?token={viewer_token}" if viewer_token else url)

    uvloop.run(serve(network, sock, viewer_token, ready))


def _on_this_machine(token: str) -> list[Address]:
    """The relays that have left word of themselves here, as they come and go."""
    from laps.admin.client import urls_of_this_machine
    from laps.dashboard.network import Address

    return [Address(url, token) for url in urls_of_this_machine()]
