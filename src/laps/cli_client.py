"""`laps pub` and `laps sub`: a track from standard input, and to standard output."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
import uvloop
from typer.core import TyperCommand

from laps.client import connect
from laps.client.nearest import nearby
from laps.client.quicr.gathering import Gathered
from laps.client.stdio import Input, Output
from laps.client.urls import parse_url
from laps.client.values import MAX_OBJECT_BYTES
from laps.errors import ConfigError, LapsError
from laps.names import namespace_of, namespace_text, track_of
from laps.token_files import HELP, METAVAR, STANDARD_INPUT, read_option
from laps.wire.quicr import fragments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from laps.client import Connecting, Location, Object, QuicrSession, Session, Subscription, Track
    from laps.client.quicr.subscription import Start
    from laps.client.tokens import TokenLike
    from laps.types import TrackName

# A group is where others can join, and a stream: lines and blocks share one, files do not.
GROUP_OF_LINES = 100

# A line without an end is not gathered for ever.
MAX_LINE_BYTES = 64 * 1024 * 1024

# How often the line on a terminal is renewed.
PROGRESS_S = 0.2

# How often it is looked whether objects are missing.
GAPS_S = 1.0

# As a shell has it for what was stopped by Ctrl-C.
EXIT_INTERRUPTED = 130

# In place of a track's name, where QUICR is spoken: all tracks below the namespace.
ALL = "*"

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="moqt://HOST:PORT, https://HOST:PORT for WebTransport, or quicr://HOST[:PORT]. Left "
        "out: the nearest relay that mDNS finds.",
        default_factory=str,
        show_default=False,
    ),
]
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Like demo/clock.")]
Name = Annotated[str, typer.Argument(metavar="TRACK", help="The track's name in it.")]
Draft = Annotated[int | None, typer.Option(metavar="14|16", help="Speak this draft of MoQT only.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Take any certificate.")]
Fingerprint = Annotated[
    str | None,
    typer.Option(metavar="SHA256", help="Take this certificate, as the relay's ready line has it."),
]
TokenOption = Annotated[str | None, typer.Option(metavar=METAVAR, help=HELP, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")]


class From(StrEnum):
    """Where a subscription begins."""

    START = "start"
    CURRENT = "current"
    NEXT = "next"
    LATEST = "latest"


class UrlFirst(TyperCommand):
    """A command whose first argument is a URL that may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As `Command`, with an empty URL ahead of arguments that are too few and begin with none.

        Options may stand anywhere between them, so they are parsed once to see.
        """
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        is_short = not isinstance(given.get("track"), str)
        if is_short and "://" not in str(given.get("url")):
            args = ["", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(
        "pub",
        cls=UrlFirst,
        epilog="Example: laps pub moqt://127.0.0.1:33435 demo/notes lines < notes.txt\n\n"
        "Example: laps pub quicr://127.0.0.1 demo/clock seconds --datagrams < ticks\n\n"
        "Example: laps pub https://relay.example demo/notes lines --token @pub.jwt < notes.txt",
    )(pub)
    app.command(
        "sub",
        cls=UrlFirst,
        epilog="Example: laps sub moqt://127.0.0.1:33435 demo/notes lines --from start\n\n"
        "Example: laps sub quicr://127.0.0.1 demo '*' --datagrams\n\n"
        "Example: laps sub https://relay.example demo/notes lines --token @sub.jwt",
    )(sub)


# -- laps pub --------------------------------------------------------------------------------------


def pub(
    url: Url,
    namespace: Namespace,
    track: Name,
    block: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_OBJECT_BYTES, metavar="BYTES", help="Blocks, not lines."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="An object for each file, not lines. Repeatable."),
    ] = None,
    group_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Objects in a group, where subscribers can join; 1 for files, else 100.",
        ),
    ] = None,
    first_group: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Count groups from N, not from the time of day."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="Objects in a second, at most.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Send nothing before somebody subscribes.")
    ] = False,
    datagrams: Annotated[
        bool, typer.Option("--datagrams", help="Objects in datagrams: fast, and some get lost.")
    ] = False,
    priority: Annotated[
        int, typer.Option(min=0, max=255, help="From 0, the most urgent, to 255.")
    ] = 128,
    draft: Draft = None,
    insecure: Insecure = False,
    fingerprint: Fingerprint = None,
    token: TokenOption = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Publish standard input as a track: each line is an object.

    It is sent at once, so that relays can keep it for who comes later. At the end of the input the
    track ends, and the program when the relay has all of it.

    Groups are numbered from the milliseconds since 1970, so that a later run goes on behind what
    relays have of this one.
    """
    if block is not None and file:
        raise ConfigError("--block and --file exclude each other: give one of them")
    quicr = _is_quicr(url)
    if quicr:
        _refuse("--draft", draft is not None)
        _refuse("--wait", wait, "its relays take what is published at once")
    limit = fragments.MAX_OBJECT_BYTES if quicr else MAX_OBJECT_BYTES
    if block is not None and block > limit:
        raise ConfigError(f"--block {block}: an object of QUICR may have {limit} bytes")
    track_of(namespace, track)
    if token == STANDARD_INPUT and not file:
        raise ConfigError(
            "--token -: standard input is the track: give --token @FILE or LAPS_TOKEN"
        )
    shown = read_option(token)
    _log(verbose)
    every = group_every or (1 if file else GROUP_OF_LINES)

    async def run() -> None:
        progress = Progress("sent")
        async with await _session(url, draft, insecure, fingerprint, shown) as session:
            published = await session.publish(
                namespace, track, priority=priority, first_group=first_group, push=not wait
            )
            objects = _objects(block, file or [], limit)
            if wait:
                await published.wait_wanted()
            await _send(published, objects, every, rate, datagrams, progress)
            await published.end()
        progress.close()
        if as_json:
            _print_json(progress.report())

    _run(run())


async def _send(
    track: Track,
    objects: AsyncIterator[bytes],
    every: int,
    rate: float | None,
    datagrams: bool,
    progress: Progress,
) -> None:
    write = track.datagram if datagrams else track.write
    began = time.monotonic()
    async for payload in objects:
        place = await write(payload, new_group=progress.objects % every == 0)
        progress.count(payload, place)
        if rate is not None:
            due = began + progress.objects / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _objects(block: int | None, files: list[Path], limit: int) -> AsyncIterator[bytes]:
    for path in files:
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise ConfigError(f"--file {path}: cannot be read: {error.strerror}") from None
        if len(data) > limit:
            problem = f"{len(data)} bytes are more than an object may have, {limit}"
            raise ConfigError(f"--file {path}: {problem}: publish it with --block < {path}")
        yield data
    if files:
        return
    source = Input(sys.stdin.fileno())
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        """The first time the track ends well; the second time the program just stops."""
        source.stop()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        lines = min(limit, MAX_LINE_BYTES)
        pieces = source.lines(lines) if block is None else source.blocks(block)
        async for piece in pieces:
            yield piece
    except ValueError as error:
        raise ConfigError(f"standard input: {error}: publish it with --block") from None


# -- laps sub --------------------------------------------------------------------------------------


def sub(
    url: Url,
    namespace: Namespace,
    track: Annotated[
        str,
        typer.Argument(
            metavar="TRACK",
            help="The track's name in it. With quicr:// * stands for all tracks below it.",
        ),
    ],
    begin: Annotated[
        From,
        typer.Option(
            "--from",
            help="All that relays have, the group that is being published, the next group, "
            "or what comes after the latest object.",
        ),
    ] = From.LATEST,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after so many objects.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="S", help="Give up when nothing came for so many seconds."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Bytes as they are, with nothing between objects.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Whether a publisher may come later.")
    ] = True,
    datagrams: Annotated[
        bool,
        typer.Option("--datagrams", help="With quicr://: in datagrams, of which some get lost."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop, and fail, at the first gap in the track.")
    ] = False,
    draft: Draft = None,
    insecure: Insecure = False,
    fingerprint: Fingerprint = None,
    token: TokenOption = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Subscribe to a track: each object is a line of standard output.

    It goes on until the track ends. What is missing of it is told on standard error. With --json
    each line says where an object lies in the track, and has its payload as text or in base64. With
    a TRACK of * each line begins with the name of the track, and a tab.
    """
    if raw and as_json:
        raise ConfigError("--raw and --json exclude each other: give one of them")
    quicr = _is_quicr(url)
    everything = quicr and track == ALL
    if quicr:
        _refuse("--draft", draft is not None)
        _refuse("--from current", begin is From.CURRENT, "give latest, next or start")
        _refuse("--no-wait", not wait, "give --timeout")
    elif datagrams:
        raise ConfigError(
            "--datagrams: with MoQT the publisher decides how objects travel: give a quicr:// URL"
        )
    if everything:
        namespace_of(namespace, prefix=True)
        if raw:
            raise ConfigError("--raw and a TRACK of * exclude each other: give --json")
        if strict:
            raise ConfigError("--strict and a TRACK of * exclude each other: name one track")
    else:
        track_of(namespace, track)
    shown = read_option(token)
    _log(verbose)

    async def run() -> None:
        output = Output(sys.stdout.fileno())
        progress = Progress("received", shown=not sys.stdout.isatty())
        form = _json_line if as_json else _raw if raw else _line
        async with await _session(url, draft, insecure, fingerprint, shown) as session:
            objects: Subscription | Gathered
            if everything:
                objects = _gather(session, namespace, begin, datagrams)
            else:
                only_quicr: dict[str, Any] = {"datagrams": datagrams} if quicr else {}
                objects = session.subscribe(
                    namespace, track, start=begin.value, wait=wait, strict=strict, **only_quicr
                )
            output.broken.add_done_callback(lambda _: objects.close())
            missing = _Missing(objects)
            while count is None or progress.objects < count:
                found = await _next(objects, timeout)
                if found is None:
                    break
                name, item = found
                await output.write(form(item, name))
                progress.count(item.payload, item.location)
                missing.look()
            missing.close()
            objects.close()
            await output.drain()
        progress.close()

    try:
        _run(run())
    except BrokenPipeError:
        sys.stderr.close()  # nor does anybody read that we stop
        raise typer.Exit(0) from None


class _Missing:
    """Tells on standard error what a subscription was not given."""

    def __init__(self, objects: Subscription | Gathered) -> None:
        self._objects = objects
        self._looked = time.monotonic()
        self._told: set[Location] = set()

    def look(self) -> None:
        """Tell what is new, now and then."""
        now = time.monotonic()
        if now - self._looked >= GAPS_S:
            self._looked = now
            self.close()

    def close(self) -> None:
        """Tell what was not told yet."""
        if isinstance(self._objects, Gathered):
            return  # each of its tracks has its own
        for gap in self._objects.gaps:
            if gap.start not in self._told:
                self._told.add(gap.start)
                sys.stderr.write(f"laps: missing: {gap}\n")


def _gather(session: Session, namespace: str, begin: From, datagrams: bool) -> Gathered:
    quicr = cast("QuicrSession", session)
    start = cast("Start", begin.value)
    return Gathered(quicr.subscribe_all(namespace, start=start, datagrams=datagrams))


async def _next(
    objects: Subscription | Gathered, patience_s: float | None
) -> tuple[str, Object] | None:
    """The next object, and its track where there are several; None at the end."""
    try:
        async with asyncio.timeout(patience_s):
            found: Object | tuple[TrackName, Object] | None = await anext(objects, None)
    except TimeoutError:
        problem = f"no object came for {patience_s:g} s: is somebody publishing this track?"
        raise LapsError(problem) from None
    if isinstance(found, tuple):
        track, item = found
        return namespace_text((*track.namespace, track.name)), item
    return None if found is None else ("", found)


def _line(item: Object, track: str) -> bytes:
    prefix = f"{track}\t".encode() if track else b""
    try:
        item.payload.decode()
    except UnicodeDecodeError:
        return b"%b<%d bytes, not text>\n" % (prefix, len(item.payload))
    return prefix + item.payload + b"\n"


def _raw(item: Object, track: str) -> bytes:
    return item.payload


def _json_line(item: Object, track: str) -> bytes:
    mapping: dict[str, Any] = {
        **({"track": track} if track else {}),
        "group": item.group,
        "object": item.id,
        "subgroup": item.subgroup,
        "bytes": len(item.payload),
    }
    if item.extensions:
        mapping["extensions"] = {
            str(kind): value if isinstance(value, int) else base64.b64encode(value).decode()
            for kind, value in item.extensions
        }
    try:
        mapping["text"] = item.payload.decode()
    except UnicodeDecodeError:
        mapping["base64"] = base64.b64encode(item.payload).decode()
    return json.dumps(mapping, ensure_ascii=False).encode() + b"\n"


# -- both ------------------------------------------------------------------------------------------


class Progress:
    """How much has passed: a line on a terminal, and a report at the end."""

    def __init__(self, verb: str, *, shown: bool = True) -> None:
        self.objects = 0
        self.bytes = 0
        self.first: Location | None = None
        self.last: Location | None = None
        self._verb = verb
        self._shown = shown and sys.stderr.isatty()
        self._began = time.monotonic()
        self._drawn = 0.0

    def count(self, payload: bytes, place: Location) -> None:
        """An object has passed."""
        self.objects += 1
        self.bytes += len(payload)
        self.first = self.first or place
        self.last = place
        now = time.monotonic()
        if self._shown and now - self._drawn >= PROGRESS_S:
            self._drawn = now
            self._draw("")

    def close(self) -> None:
        """Leave the last line where it is."""
        if self._shown:
            self._draw("\n")

    def _draw(self, end: str) -> None:
        seconds = max(time.monotonic() - self._began, 0.001)
        sys.stderr.write(
            f"\r\x1b[2K{self._verb} {self.objects:,} objects, {self.bytes:,} bytes, "
            f"{self.objects / seconds:,.0f} objects/s, {self.bytes * 8e-6 / seconds:,.1f} Mbit/s"
            f"{end}"
        )
        sys.stderr.flush()

    def report(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "objects": self.objects,
            "bytes": self.bytes,
            "seconds": round(time.monotonic() - self._began, 3),
            "first": self.first,
            "last": self.last,
        }


def _is_quicr(url: str) -> bool:
    return bool(url) and parse_url(url).quicr


def _refuse(option: str, given: bool, way: str = "") -> None:
    """ConfigError where an option was given that QUICR has no words for."""
    if given:
        raise ConfigError(f"{option}: QUICR has no such thing: {way}{way and ', or '}use moqt://")


async def _session(
    url: str,
    draft: int | None,
    insecure: bool,
    fingerprint: str | None,
    token: TokenLike | None,
) -> Connecting:
    drafts = (16, 14) if draft is None else (draft,)
    if not url:
        found = await nearby(drafts, fingerprint)
        sys.stderr.write(f"laps: by mDNS: node {found[0].node or '-'} at {found[0].url}\n")
        return connect(found, drafts=drafts, insecure=insecure, token=token)
    return connect(url, drafts=drafts, insecure=insecure, fingerprint=fingerprint, token=token)


def _print_json(mapping: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(mapping) + "\n")


def _log(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        uvloop.run(coroutine)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
