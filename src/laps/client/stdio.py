"""Standard input and output beside an event loop, for `laps pub` and `laps sub`.

Reading and writing may block for as long as whoever is at the other end likes, so each has a thread
of its own, with a bound on what waits. The threads are daemons: nobody waits for a read that never
returns.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHUNK_BYTES: Final = 64 * 1024

# What may wait for a slow reader of our output, or be read ahead of a slow relay.
WAITING_BYTES: Final = 1024 * 1024


class Input:
    """The bytes of a file descriptor, as they come."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._room = threading.Semaphore(WAITING_BYTES // CHUNK_BYTES)
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        data = b"?"
        while data:
            self._room.acquire()
            try:
                data = os.read(self._descriptor, CHUNK_BYTES)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._put, data)
            except RuntimeError:
                return  # the loop is closed: nobody wants it

    def _put(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
        else:
            self._ended = True
        self._arrived.set()

    def stop(self) -> None:
        """Act as if the input had ended here."""
        self._put(b"")

    async def chunks(self) -> AsyncIterator[bytes]:
        """What is read, up to the end."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._room.release()
                yield chunk
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()

    async def lines(self, longest: int) -> AsyncIterator[bytes]:
        """Lines without what ends them; a last one without end counts too."""
        held = bytearray()
        async for chunk in self.chunks():
            held += chunk
            *whole, rest = held.split(b"\n")
            held = rest
            for line in whole:
                yield bytes(line)
            if len(held) > longest:
                raise ValueError(f"a line is longer than {longest} bytes")
        if held:
            yield bytes(held)

    async def blocks(self, size: int) -> AsyncIterator[bytes]:
        """Blocks of a size; the last one may be shorter."""
        held = bytearray()
        async for chunk in self.chunks():
            held += chunk
            while len(held) >= size:
                yield bytes(held[:size])
                del held[:size]
        if held:
            yield bytes(held)


class Output:
    """A file descriptor that is written to; BrokenPipeError when nobody reads it any more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting = 0
        self._written = asyncio.Event()
        self._error: OSError | None = None
        self.broken: asyncio.Future[OSError] = self._loop.create_future()
        "Done when writing has failed."
        threading.Thread(target=self._work, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write behind all that was written before; waits while much of that still waits."""
        while self._waiting > WAITING_BYTES and self._error is None:
            self._written.clear()
            await self._written.wait()
        if self._error is not None:
            raise self._error
        self._waiting += len(data)
        self._queue.put(data)

    async def drain(self) -> None:
        """Wait until all is written."""
        while self._waiting and self._error is None:
            self._written.clear()
            await self._written.wait()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            data = self._queue.get()
            if data is None:
                return
            error: OSError | None = None
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError as problem:
                error = problem
            try:
                self._loop.call_soon_threadsafe(self._done, len(data), error)
            except RuntimeError:
                return  # the loop is closed
            if error is not None:
                return

    def _done(self, size: int, error: OSError | None) -> None:
        self._waiting -= size
        if error is not None:
            self._error = error
            if not self.broken.done():
                self.broken.set_result(error)
        self._written.set()
