"""Running a lab for somebody: on the terminal, in lines or as JSON, until it is over."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live

from laps.errors import LapsError
from laps.lab.running import Lab
from laps.lab.screen import Screen, closing
from laps.lab.summary import summary

if TYPE_CHECKING:
    from laps.lab.network import Network

log = logging.getLogger(__name__)

# How often the picture is drawn, and lines are written where there is no terminal.
PICTURE_S: Final = 0.5
LINES_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a person asks of `laps lab` beside the network."""

    seconds: float | None = None
    port: int = 0
    dashboard: bool = True
    keep: bool = False
    as_json: bool = False
    policy: Path | None = None


async def show(network: Network, options: Options) -> bool:
    """Run a lab until it is stopped; whether every subscriber received every object."""
    folder = Path(tempfile.mkdtemp(prefix="laps-lab-"))
    failed = True
    try:
        well = await _run(network, folder, options)
        failed = False
    except asyncio.CancelledError:
        well = failed = False
    except LapsError as error:
        raise type(error)(f"{error} (logs in {folder})") from None
    finally:
        if options.keep:
            sys.stderr.write(f"laps: the lab's configurations and logs are in {folder}\n")
        elif not failed:
            shutil.rmtree(folder, ignore_errors=True)
    return well


async def _run(network: Network, folder: Path, options: Options) -> bool:
    lab = Lab(network, folder, options.port, policy=options.policy)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stop, stop, asyncio.current_task())
    drawing = asyncio.ensure_future(_draw(lab, options))
    try:
        starting = asyncio.ensure_future(lab.start(dashboard=options.dashboard))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            await starting
            with suppress(TimeoutError):
                async with asyncio.timeout(options.seconds):
                    await stop.wait()
            await lab.end()
            await lab.watch.look()
        else:  # before anything flowed: there is nothing to account for
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
    finally:
        drawing.cancel()
        (failure,) = await asyncio.gather(drawing, return_exceptions=True)
        if isinstance(failure, Exception):
            log.error("the picture could not be drawn", exc_info=failure)
        found = summary(lab)
        await lab.close()
    if options.as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    elif lab.over:
        Console().print(closing(lab))
    return not found["problems"]


def _stop(stop: asyncio.Event, task: asyncio.Task[bool] | None) -> None:
    """End in order; who asks again does not want to wait for the last objects."""
    if not stop.is_set():
        stop.set()
    elif task is not None and not task.cancelling():
        task.cancel()


async def _draw(lab: Lab, options: Options) -> None:
    screen = Screen(lab)
    console = Console()
    if options.as_json:
        return
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                live.update(screen.render(), refresh=True)
                await asyncio.sleep(PICTURE_S)
    console.print(f"clients {lab.url}")
    told = False
    while True:
        if lab.dashboard and not told:
            told = True
            console.print(f"dashboard {lab.dashboard}")
        for line in screen.lines():
            console.print(line, highlight=False, soft_wrap=True)
        await asyncio.sleep(LINES_S)
