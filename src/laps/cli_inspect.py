"""`laps show`, `laps explain` and `laps trace`: look into relays over their admin API."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
import uvloop
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from laps import units
from laps.errors import ConfigError
from laps.inspect import show as showing
from laps.inspect.columns import VIEWS
from laps.inspect.drawing import draw_path, draw_track
from laps.inspect.explain import explain_track, find_track
from laps.inspect.names import is_nodes, node_text, track_of
from laps.inspect.paths import explain_path
from laps.inspect.relays import Where, opened
from laps.inspect.trace import Tracer, Until
from laps.token_files import ADMIN_HELP, METAVAR, read_admin_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from rich.console import RenderableType

    from laps.inspect.relays import Relays
    from laps.inspect.trace import Collector, Traced
    from laps.inspect.trees import PathStory, TrackStory

T = TypeVar("T")

# Where the output is no terminal, tables are as wide as a page.
PAGE_WIDTH: Final = 100

# Between two answers that a rate is made of.
SAMPLE_S: Final = 1.0

AdminUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--admin",
        envvar="LAPS_ADMIN",
        metavar="URL",
        help="The admin API of a relay. Repeatable. Without it: the relays of this machine.",
    ),
]
Token = Annotated[
    str | None, typer.Option("--token", metavar=METAVAR, help=ADMIN_HELP, show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(
        "show",
        epilog="Example: laps show\n\nExample: laps show peers 1:2 --watch\n\n"
        "Example: laps show tracks --filter demo/ --rates",
    )(show)
    app.command(
        "explain",
        epilog="Example: laps explain demo/camera video\n\nExample: laps explain 1:1 2:1",
    )(explain)
    app.command("trace", epilog="Example: laps trace demo/camera video --seconds 10")(trace)


def _console() -> Console:
    """Standard output: as wide as the terminal, or as a page."""
    return Console() if sys.stdout.isatty() else Console(width=PAGE_WIDTH)


def _where(admin: list[str] | None, token: str | None) -> Where:
    # An environment variable has several with spaces or commas between them.
    urls = [part for text in admin or () for part in text.replace(",", " ").split()]
    return Where(tuple(urls), read_admin_option(token))


def _run(work: Coroutine[Any, Any, T]) -> T | None:
    """Run it; a reader that leaves, or presses Ctrl-C, has seen enough."""
    try:
        return uvloop.run(work)
    except KeyboardInterrupt:
        return None
    except BrokenPipeError:
        # Nothing more is to be written, not even when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None


def _warn(relays: Relays) -> None:
    for words in relays.silent.values():
        typer.echo(f"laps: {words}", err=True)


# -- laps show -------------------------------------------------------------------------------------


def show(
    view: Annotated[
        str | None, typer.Argument(metavar="[VIEW]", help=f"{', '.join(VIEWS)}.")
    ] = None,
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Of this relay; else of all.")
    ] = None,
    admin: AdminUrls = None,
    token: Token = None,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="So many rows at most; 0 for all.")
    ] = None,
    text: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Rows that contain a text.")
    ] = "",
    rates: Annotated[
        bool, typer.Option("--rates", help="Amounts a second, from two looks a second apart.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again each second, with rates, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what relays know: one table of one relay, or of all that are found.

    Without a view: the network in a few figures. Amounts are since the relay, the link or the
    client began, unless rates are asked for.
    """
    if view is not None and view not in VIEWS:
        raise ConfigError(f'there is no view "{view}": it is one of {", ".join(VIEWS)}')
    wanted = None if node is None else node_text(node)
    where = _where(admin, token)
    _run(_show(where, view, wanted, limit, text, rates, watch, as_json))


async def _show(
    where: Where,
    name: str | None,
    node: str | None,
    limit: int | None,
    text: str,
    rates: bool,
    watch: bool,
    as_json: bool,
) -> None:
    console = _console()
    async with opened(where) as relays:
        _warn(relays)
        asked = relays if node is None else relays.only(node)
        if name is None:
            await _again(console, watch, as_json, lambda: _overview(asked, as_json))
            return
        view = VIEWS[name]
        rows = showing.PEOPLE_ROWS if limit is None else limit
        before: list[showing.Shown] = []

        async def look() -> RenderableType:
            shown = await showing.ask(asked, view, limit if as_json else rows, text)
            if before:
                shown, before[0] = showing.with_rates(shown, before[0]), shown
            elif rates or watch:
                before.append(shown)
                if not watch:
                    await asyncio.sleep(SAMPLE_S)
                    return await look()
            if as_json:
                return json.dumps(shown.to_mapping())
            said = [Text(note, "dim") for note in showing.notes(shown, rows)]
            return Group(showing.table(shown, rows), *said) if shown.rows else Group(*said)

        await _again(console, watch, as_json, look)


async def _overview(relays: Relays, as_json: bool) -> RenderableType:
    seen = await showing.overview(relays)
    if as_json:
        return json.dumps(seen.to_mapping())
    return Group(Text(seen.words()), Text(), seen.table())


async def _again(
    console: Console, watch: bool, as_json: bool, look: Callable[[], Awaitable[RenderableType]]
) -> None:
    """Once, or each second in place of the last."""
    if as_json or not watch or not sys.stdout.isatty():
        while True:
            seen = await look()
            typer.echo(seen) if as_json else console.print(seen)
            if not watch:
                return
            sys.stdout.flush()
            await asyncio.sleep(SAMPLE_S)
    with Live(await look(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(SAMPLE_S)
            live.update(await look(), refresh=True)


# -- laps explain ----------------------------------------------------------------------------------


def explain(
    what: Annotated[
        list[str],
        typer.Argument(metavar="TRACK | NODE NODE", help="NAMESPACE NAME, a hash, or two nodes."),
    ],
    admin: AdminUrls = None,
    token: Token = None,
    rate: Annotated[
        bool, typer.Option("--rate/--no-rate", help="Look twice, to tell how much flows.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Say which way data takes now, hop by hop, and why each hop was chosen over the others.

    Of a track: the tree from its publisher's relay to every relay with subscribers. Of two nodes:
    the path from the first to the second. Exit status 1 if something is seen that must never be,
    like a loop.
    """
    where = _where(admin, token)
    story = _run(_explain(where, what, 1.0 if rate else 0.0))
    if story is None:
        return
    if as_json:
        typer.echo(json.dumps(story.to_mapping(), indent=2))
    else:
        console = _console()
        drawn = draw_path(story) if hasattr(story, "steps") else draw_track(story)
        for part in drawn:
            console.print(part, highlight=False)
    if story.defects:
        raise typer.Exit(1)


async def _explain(where: Where, words: list[str], rate_s: float) -> Any:
    track = None if is_nodes(words) else track_of(words)
    async with opened(where) as relays:
        _warn(relays)
        story: TrackStory | PathStory
        if track is None:
            source, target = (node_text(word) for word in words)
            story = await explain_path(relays, source, target)
        else:
            story = await explain_track(relays, track, rate_s)
        return story


# -- laps trace ------------------------------------------------------------------------------------


def trace(
    what: Annotated[
        list[str], typer.Argument(metavar="TRACK", help="NAMESPACE NAME, or the hash.")
    ],
    seconds: Annotated[
        float | None, typer.Option(min=0.1, metavar="S", help="End after this long.")
    ] = None,
    objects: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many objects.")
    ] = None,
    idle: Annotated[
        float, typer.Option(min=0.5, metavar="S", help="End when nothing came for this long.")
    ] = 10.0,
    admin: AdminUrls = None,
    token: Token = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="The summary alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow live objects of a track at all relays, and show the delay that each hop adds.

    A delay is the difference between the times at which an object began to arrive at one relay and
    at the next, by their own clocks. Ends when the track does; Ctrl-C ends it with the summary.
    """
    wanted = track_of(what)
    until = Until(seconds, objects, idle)
    _run(_trace(_where(admin, token), wanted, until, quiet, as_json))


async def _trace(where: Where, wanted: Any, until: Until, quiet: bool, as_json: bool) -> None:
    console = _console()

    def tell(words: str) -> None:
        typer.echo(f"laps: {words}", err=True)

    def present(traced: Traced) -> None:
        if as_json:
            typer.echo(json.dumps(traced.to_mapping(tracer.collector.above)))
        elif not quiet:
            console.print(_line(traced, tracer.collector), highlight=False, soft_wrap=True)

    async with opened(where) as relays:
        _warn(relays)
        wanted, _ = await find_track(relays, wanted)
        if not as_json:
            console.print(f"following {wanted} at {' '.join(relays.apis)}", highlight=False)
            if words := _clocks(relays):
                console.print(Text(words, "yellow"))
        tracer = Tracer(relays, where, wanted, present, tell)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, tracer.stop)
        ended = await tracer.run(until)
    if as_json:
        typer.echo(json.dumps({"summary": {**tracer.collector.summary(), "ended": ended}}))
    else:
        console.print(ended, highlight=False)
        for part in _summary(tracer.collector):
            console.print(part, highlight=False)


def _line(traced: Traced, collector: Collector) -> Text:
    group, subgroup, number = traced.place
    kind = " datagram" if subgroup < 0 else f" subgroup {subgroup}" if subgroup else ""
    text = Text(f"{group}/{number}{kind}  {units.size(traced.size)}")
    if traced.status:
        text.append(f"  status {traced.status:#x}", "dim")
    passed = traced.passages(collector.above)
    for hop in passed:
        text.append(f"  {'→'.join(hop.link)} ")
        if hop.delay_us < 0:
            text.append(f"{units.delay(hop.delay_us)} (clocks differ)", "yellow")
        else:
            text.append(units.delay(hop.delay_us), "bold")
    if not passed:
        text.append(f"  at {' '.join(traced.arrivals)} only", "dim")
    for link in traced.again:
        text.append(f"  again {link[0]}→{link[1]}", "red")
    return text


def _clocks(relays: Relays) -> str:
    """What is assumed of clocks, where relays may have several."""
    hosts = {api.host for api in relays.apis.values()}
    if len(hosts) < 2:
        return ""
    return (
        f"the relays have {len(hosts)} addresses, so perhaps several clocks: a delay between two "
        "of them is right as far as their clocks agree"
    )


def _summary(collector: Collector) -> list[RenderableType]:
    summary = collector.summary()
    drawn: list[RenderableType] = []
    if summary["hops"]:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("hop")
        for head in ("objects", "p50", "p99", "most", "unseen"):
            table.add_column(head, justify="right")
        between = any("through" in hop for hop in summary["hops"])
        for kind in ("hops", "ends"):
            for hop in summary[kind]:
                way = [hop["from"], *hop.get("through", ()), hop["to"]]
                table.add_row(
                    (" → " if kind == "hops" else " ⇒ ").join(way),
                    units.number(hop["objects"]),
                    *(units.delay(hop[key]) for key in ("p50_us", "p99_us", "most_us")),
                    units.number(hop.get("unseen")),
                )
        drawn.append(table)
        if between:
            words = "a hop over several: a Via tells of streams that began after the trace did"
            drawn.append(Text(words, "dim"))
    else:
        drawn.append(Text(f"{units.number(summary['objects'])} objects, and no hop between relays"))
    negative = sum(hop["negative"] for hop in summary["hops"])
    if negative:
        drawn.append(
            Text(f"{negative} delays are below zero: the clocks of those relays differ", "yellow")
        )
    for node, missed in summary["missed"].items():
        drawn.append(Text(f"{node} saw {missed} more, faster than they were read", "yellow"))
    for link, times in collector.again.items():
        words = f"{times} objects came to {link[1]} again, from {link[0]}"
        drawn.append(Text(words, "red"))
    return drawn
