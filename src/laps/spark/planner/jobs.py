"""Work on Spark in tasks that read and write files themselves, and what is seen of it meanwhile."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import uuid
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark import InheritableThread

from laps.errors import LapsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

# How often a person, and the peak of memory, sees something new.
_LOOK_S: Final = 0.2


def run(
    spark: SparkSession,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    name: str,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """Do the work for each item in a task of its own, and return what comes of it, in order.

    `progress` is told how many are done. LapsError raised by the work is raised here.
    """
    if not items:
        return []
    context = spark.sparkContext
    group = f"laps-{uuid.uuid4()}"
    found: list[Result | LapsError] = []
    failed: list[BaseException] = []

    def collect() -> None:
        context.setJobGroup(group, name)
        try:
            tasks = context.parallelize(items, len(items))
            found.extend(tasks.map(lambda item: _or_error(work, item)).collect())
        except BaseException as error:
            failed.append(error)

    thread = InheritableThread(target=collect, name=name, daemon=True)
    # What goes wrong is raised here, in a line: Spark would tell of it too, in fifty.
    context.setLogLevel("OFF")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_S)
            progress(_done(spark, group))
    except BaseException:
        context.cancelJobGroup(group)
        thread.join()
        raise
    finally:
        context.setLogLevel("ERROR")
    if failed:
        raise LapsError(f"{name}: {_last_line(failed[0])}") from failed[0]
    results: list[Result] = []
    for result in found:
        if isinstance(result, LapsError):
            raise result
        results.append(result)
    return results


def _or_error(work: Callable[[Item], Result], item: Item) -> Result | LapsError:
    """What a person can mend is a result: to try it again, as Spark would, is no use."""
    _keep_memory()
    try:
        return work(item)
    except LapsError as error:
        return error
    except OSError as error:
        return LapsError(f"{error.filename or 'a file'}: {error.strerror or error}")
    except MemoryError as error:
        return LapsError(f"a worker has no memory left: give it more, or less to do ({error})")


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """Let a worker keep what it frees: the next bucket takes as much.

    Otherwise the C library gives it back after each array, and a quarter of the time is spent on
    being given it again.
    """
    with suppress(AttributeError, OSError):  # a C library that has no such thing
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        library.mallopt(_M_TRIM_THRESHOLD, 256 << 20)


# As malloc.h has them.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def _done(spark: SparkSession, group: str) -> int:
    tracker = spark.sparkContext.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            done += 0 if found is None else found.numCompletedTasks
    return done


def _last_line(error: BaseException) -> str:
    """What the worker said last, out of all that Spark says about it."""
    text = str(error)
    if raised := _RAISED.findall(text):
        return str(raised[-1])
    if died := _DIED.search(text):
        return f"a {died[0]}: it had no memory left, perhaps"
    return text.strip().partition("\n")[0] or type(error).__name__


# ValueError: as Python has it at the end of a trace, and not java.lang.RuntimeException: as Java.
_RAISED: Final = re.compile(r"^\w+(?:Error|Exception|Interrupt): .+$", re.MULTILINE)
_DIED: Final = re.compile(r"Python worker [\w ]+(?:\([\w ]+\))?")


class Peak:
    """The most memory that this process and all below it had together: Java and its workers too.

    Pages that several of them share count once. `None` where the system does not tell.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="laps-peak", daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            now = resident_bytes(os.getpid())
            if now is not None:
                self.bytes = max(self.bytes or 0, now)
            if self._stop.wait(_LOOK_S):
                return


def resident_bytes(pid: int) -> int | None:
    """What a process and all below it have in memory, shared pages in parts."""
    total, waiting = None, [pid]
    while waiting:
        place = Path("/proc") / str(waiting.pop())
        try:
            text = (place / "smaps_rollup").read_text()
            for children in place.glob("task/*/children"):
                waiting += map(int, children.read_text().split())
        except OSError:
            continue  # It is gone, or is not ours.
        line = next((line for line in text.splitlines() if line.startswith("Pss:")), None)
        if line is not None:
            total = (total or 0) + int(line.split()[1]) * 1024
    return total
