"""Chaos for somebody: lines as it happens, tables or JSON at the end."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from laps.errors import LapsError
from laps.lab.chaos.network import chaos_network
from laps.lab.chaos.report import as_mapping, problems, tables, verdict
from laps.lab.chaos.running import CHAOS_SETTINGS, Chaos
from laps.lab.running import Lab


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """What a person asks of `laps lab chaos`."""

    seed: int
    minutes: float
    regions: int
    keep: bool
    as_json: bool


async def show_chaos(options: ChaosOptions) -> bool:
    """Run it; whether nothing was lost or came twice, and memory is flat."""
    folder = Path(tempfile.mkdtemp(prefix="laps-chaos-"))
    kept = True
    try:
        well = await _run(folder, options)
        kept = options.keep or not well
    except asyncio.CancelledError:
        well = False
        kept = options.keep
    except LapsError as error:
        raise type(error)(f"{error} (logs in {folder})") from None
    finally:
        if kept:
            sys.stderr.write(f"laps: the relays' configurations and logs are in {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return well


async def _run(folder: Path, options: ChaosOptions) -> bool:
    out, err = Console(), Console(stderr=True)

    def say(words: str) -> None:
        (err if options.as_json else out).print(
            words, markup=False, highlight=False, soft_wrap=True
        )

    lab = Lab(chaos_network(options.regions), folder, settings=CHAOS_SETTINGS)
    stop = asyncio.Event()
    _listen(stop)
    try:
        say(f"seed {options.seed}: {len(lab.relays)} relays start")
        if not await _started(lab, stop):
            return True  # it was stopped before anything counted
        chaos = Chaos(lab, options.seed, say)
        say(f"objects flow to {len(lab.readers)} subscribers; Ctrl-C ends it in good order")
        await chaos.run(60 * options.minutes, stop)
    finally:
        await lab.close()
    if options.as_json:
        sys.stdout.write(json.dumps(as_mapping(chaos), indent=2) + "\n")
    else:
        out.print(tables(chaos))
        for problem in problems(chaos):
            say(problem)
    say(verdict(chaos))
    return not problems(chaos)


def _listen(stop: asyncio.Event) -> None:
    """The first signal ends it in good order, the second at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def heard() -> None:
        if not stop.is_set():
            stop.set()
        elif task is not None and not task.cancelling():
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, heard)


async def _started(lab: Lab, stop: asyncio.Event) -> bool:
    """Start it all; False if it was stopped meanwhile."""
    starting = asyncio.ensure_future(lab.start(dashboard=False, watch=False))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
        return starting.done()
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
