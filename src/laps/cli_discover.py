"""`laps discover`: the relays that mDNS finds, for people and for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from laps.client.nearest import DISCOVER_S, measure
from laps.errors import LapsError
from laps.net.discovery import discover as find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laps.net.discovery import Found

out = Console()
err = Console(stderr=True)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("discover", epilog="Example: laps discover --json --timeout 5")(discover)


def discover(
    timeout: Annotated[
        float, typer.Option(min=0.1, max=60, metavar="S", help="Listen for so many seconds.")
    ] = DISCOVER_S,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """List the relays on this machine and in this network, the nearest first.

    They are found by mDNS and dialled once each, to tell how far away they are. Exit status 1 if
    there are none.
    """
    with err.status("looking for relays"):
        found = uvloop.run(_find(timeout))
    if as_json:
        out.print_json(json.dumps([as_mapping(relay) for relay in found]))
    elif found:
        out.print(table(found))
    if not found:
        raise LapsError(
            f"no relay was found by mDNS within {timeout:g} s: start one with `laps relay`, or "
            "ask whoever runs one for its URL (one that was started with --no-discovery, or is in "
            "another network, is not found)"
        )


async def _find(timeout_s: float) -> list[Found]:
    return await measure(await find(timeout_s))


def as_mapping(relay: Found) -> dict[str, Any]:
    """A relay for a program; null stands for what it did not say, and where it does not answer."""
    return {
        "node": relay.node or None,
        "role": relay.role or None,
        "url": relay.url,
        "host": relay.host,
        "port": relay.port,
        "protocols": list(relay.alpns),
        "region": relay.region or None,
        "sha256": relay.fingerprint,
        "rtt_us": relay.rtt_us,
    }


def table(found: Sequence[Found]) -> Table:
    """The relays for people."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("node", "role", "address"):
        shown.add_column(name, no_wrap=True)
    for name in ("region", "protocols"):
        shown.add_column(name, overflow="fold")
    shown.add_column("round trip", justify="right", no_wrap=True)
    for relay in found:
        distance = "no answer" if relay.rtt_us is None else f"{relay.rtt_us / 1000:.1f} ms"
        said = (relay.node, relay.role, str(relay.address), relay.region, " ".join(relay.alpns))
        # As text: what a stranger says is no markup.
        shown.add_row(*(Text(words or "-") for words in said), distance)
    return shown
