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
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop

from laps.client import connect
from laps.client.names import track_of
from laps.client.stdio import Input, Output
from laps.errors import ConfigError, LapsError
from laps.wire.moqt.objects import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from laps.client import Connecting, Location, Object, Subscription, Track

# A group is where others can join, and a stream: lines and blocks share one, files do not.
GROUP_OF_LINES = 100

# How often the line on a terminal is renewed.
PROGRESS_S = 0.2

# As a shell has it for what was stopped by Ctrl-C.
EXIT_INTERRUPTED = 130

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="moqt://HOST:PORT, or https://HOST:PORT for WebTransport."),
]
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Like demo/clock.")]
Name = Annotated[str, typer.Argument(metavar="TRACK", help="The track's name in it.")]
Draft = Annotated[int | None, typer.Option(metavar="14|16", help="Speak this draft of MoQT only.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Take any certificate.")]
Fingerprint = Annotated[
    str | None,
    typer.Option(metavar="SHA256", help="Take this certificate, as the relay's ready line has it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")]


class From(StrEnum):
    """Where a subscription begins."""

    START = "start"
    CURRENT = "current"
    NEXT = "next"
    LATEST = "latest"


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(
        "pub",
        epilog="Example: laps pub moqt://127.0.0.1:33435 demo/notes lines < notes.txt",
    )(pub)
    app.command(
        "sub",
        epilog="Example: laps sub moqt://127.0.0.1:33435 demo/notes lines --from start",
    )(sub)


# -- laps pub --------------------------------------------------------------------------------------


def pub(
    url: Url,
    namespace: Namespace,
    track: Name,
    block: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_PAYLOAD_BYTES, metavar="BYTES", help="Blocks, not lines."),
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
    track_of(namespace, track)
    _log(verbose)
    every = group_every or (1 if file else GROUP_OF_LINES)

    async def run() -> None:
        progress = Progress("sent")
        async with _session(url, draft, insecure, fingerprint) as session:
            published = await session.publish(
                namespace, track, priority=priority, first_group=first_group, push=not wait
            )
            objects = _objects(block, file or [])
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


async def _objects(block: int | None, files: list[Path]) -> AsyncIterator[bytes]:
    for path in files:
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise ConfigError(f"--file {path}: cannot be read: {error.strerror}") from None
        if len(data) > MAX_PAYLOAD_BYTES:
            problem = f"{len(data)} bytes are more than an object may have, {MAX_PAYLOAD_BYTES}"
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
        pieces = source.lines(MAX_PAYLOAD_BYTES) if block is None else source.blocks(block)
        async for piece in pieces:
            yield piece
    except ValueError as error:
        raise ConfigError(f"standard input: {error}: publish it with --block") from None


# -- laps sub --------------------------------------------------------------------------------------


def sub(
    url: Url,
    namespace: Namespace,
    track: Name,
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
    draft: Draft = None,
    insecure: Insecure = False,
    fingerprint: Fingerprint = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Subscribe to a track: each object is a line of standard output.

    It goes on until the track ends. With --json each line says where an object lies in the track,
    and has its payload as text or in base64.
    """
    if raw and as_json:
        raise ConfigError("--raw and --json exclude each other: give one of them")
    track_of(namespace, track)
    _log(verbose)

    async def run() -> None:
        output = Output(sys.stdout.fileno())
        progress = Progress("received", shown=not sys.stdout.isatty())
        form = _json_line if as_json else _raw if raw else _line
        async with _session(url, draft, insecure, fingerprint) as session:
            objects = session.subscribe(namespace, track, start=begin.value, wait=wait)
            output.broken.add_done_callback(lambda _: objects.close())
            while count is None or progress.objects < count:
                item = await _next(objects, timeout)
                if item is None:
                    break
                await output.write(form(item))
                progress.count(item.payload, item.location)
            objects.close()
            await output.drain()
        progress.close()

    try:
        _run(run())
    except BrokenPipeError:
        sys.stderr.close()  # nor does anybody read that we stop
        raise typer.Exit(0) from None


async def _next(objects: Subscription, patience_s: float | None) -> Object | None:
    """The next object; None at the end of the track."""
    try:
        async with asyncio.timeout(patience_s):
            return await anext(objects, None)
    except TimeoutError:
        problem = f"no object came for {patience_s:g} s: is somebody publishing this track?"
        raise LapsError(problem) from None


def _line(item: Object) -> bytes:
    try:
        item.payload.decode()
    except UnicodeDecodeError:
        return b"<%d bytes, not text>\n" % len(item.payload)
    return item.payload + b"\n"


def _raw(item: Object) -> bytes:
    return item.payload


def _json_line(item: Object) -> bytes:
    mapping: dict[str, Any] = {
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


def _session(url: str, draft: int | None, insecure: bool, fingerprint: str | None) -> Connecting:
    drafts = (16, 14) if draft is None else (draft,)
    return connect(url, drafts=drafts, insecure=insecure, fingerprint=fingerprint)


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
