"""Foreign clients at work: whatever they run in, they say what happens to them in JSON lines.

A publisher announces its namespace, says `demand` when somebody subscribes and writes a group
each time it is told `go`; told `finish` it ends the track, told `close` it withdraws the
namespace. A subscriber says `subscribed`, then every object as it comes, then `end`.
"""

from __future__ import annotations

import http.server
import json
import queue
import reprlib
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from interop.environments import DRIVERS
from support.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# How long a client may be silent. Nothing here takes so long: it only bounds a failure.
PATIENCE_S = 10

Event = dict[str, Any]


class Client:
    """What a foreign client said so far, and a way to tell it to go on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self._said: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.heard: list[Event] = []

    def say(self, event: Event | None) -> None:
        """None: it will say nothing more."""
        self._said.put(event)

    def until(self, name: str) -> Event:
        """The next event of this name; what comes ahead of it is passed over, but for errors."""
        while True:
            try:
                event = self._said.get(timeout=PATIENCE_S)
            except queue.Empty:
                event = None
            assert event is not None, f"no {name!r}, only {reprlib.repr(self.heard)}"
            self.heard.append(event)
            assert event["event"] != "error", event
            if event["event"] == name:
                return event


class Start(Protocol):
    """Starts a client in a role: `publish` or `subscribe`."""

    def __call__(self, role: str, url: str, **settings: str) -> Client: ...


@contextmanager
def program(python: Path, driver: str) -> Iterator[Start]:
    """Runs a driver with the interpreter of its environment, as often as it is asked for."""
    running: list[subprocess.Popen[str]] = []

    def start(role: str, url: str, **settings: str) -> Client:
        process = subprocess.Popen(
            [str(python), str(DRIVERS / driver), role, url, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # they log at length, and of nothing that is wrong
            text=True,
        )
        running.append(process)

        def tell(word: str) -> None:
            assert process.stdin is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()

        client = Client(tell)
        threading.Thread(target=_listen, args=(process, client), daemon=True).start()
        return client

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _listen(process: subprocess.Popen[str], client: Client) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        client.say(json.loads(line))
    client.say(None)


@contextmanager
def browser(bundle: Path, profiles: Path) -> Iterator[Start]:
    """Opens a page in a Chromium of its own, as often as it is asked for."""
    with _PageServer(bundle.read_bytes()) as server:
        opened: list[Any] = []

        def start(role: str, url: str, **settings: str) -> Client:
            words: queue.SimpleQueue[str] = queue.SimpleQueue()
            client = Client(words.put)
            number = str(len(server.pages))
            server.pages[number] = client, words
            ask = urlencode({"page": number, "role": role, "url": url, **settings})
            page = chromium(f"http://127.0.0.1:{server.server_port}/?{ask}", profiles / number)
            page.__enter__()
            opened.append(page)
            return client

        try:
            yield start
        finally:
            for page in opened:
                page.__exit__(None, None, None)
            for _, words in server.pages.values():
                words.put("")  # nobody waits for a word any more


class _PageServer(http.server.ThreadingHTTPServer):
    """Serves the page and its script; the page posts what happens, and asks for the next word."""

    def __init__(self, script: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.script = script
        self.pages: dict[str, tuple[Client, queue.SimpleQueue[str]]] = {}

    def __enter__(self) -> _PageServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _PageHandler(http.server.BaseHTTPRequestHandler):
    server: _PageServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/word/"):
            _, words = self.server.pages[path.removeprefix("/word/")]
            if word := words.get():
                self._answer("text/plain", word.encode())
        elif path == "/bundle.js":
            self._answer("text/javascript", self.server.script)
        else:
            self._answer("text/html", b'<!doctype html><script src="/bundle.js"></script>')

    def do_POST(self) -> None:
        client, _ = self.server.pages[self.path.removeprefix("/say/")]
        client.say(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer("text/plain", b"")

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
