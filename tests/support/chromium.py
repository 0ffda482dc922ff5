"""Debian's Chromium without a screen, on a page of ours."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import signal
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

FLAGS = (
    "--headless",
    "--no-sandbox",  # a container's root has no user namespaces to build one from
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@contextmanager
def page_server(page: str) -> Iterator[str]:
    """Serve one page on loopback, which a browser takes for a secure place; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with _serving(Handler) as url:
        yield url


@contextmanager
def script_server(script: bytes) -> Iterator[str]:
    """Serve a page that does nothing but run a script; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_script = self.path == "/script.js"
            body = (
                script if is_script else b'<!doctype html><body><script src="/script.js"></script>'
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript" if is_script else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with _serving(Handler) as url:
        yield url


@contextmanager
def folder_server(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback, as `python3 -m http.server` does; its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with _serving(functools.partial(Handler, directory=str(folder))) as url:
        yield url


@contextmanager
def _serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def is_installed() -> bool:
    """Whether there is one to drive."""
    return _found() is not None


def _found() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _program() -> str:
    program = _found()
    if program is None:
        pytest.skip("no chromium here: `apt install chromium`, or run `make test` as root")
    return program


@contextmanager
def chromium(url: str, profile: Path, *flags: str) -> Iterator[None]:
    """Open a page; the browser and all its processes are killed at the end."""
    process = subprocess.Popen(
        [
            _program(),
            *FLAGS,
            *flags,
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            url,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def driven_chromium() -> Iterator[Browser]:
    """The same browser, told by Playwright what to do.

    Playwright's event loop counts as running in this thread for as long: no asyncio beside it.
    """
    program = _program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def driven_chromiums(*flags: str) -> Iterator[Callable[[], Browser]]:
    """Any number of browsers beside each other; each call starts one."""
    program = _program()
    with sync_playwright() as playwright:
        started: list[Browser] = []

        def start() -> Browser:
            args = [*FLAGS, *flags]
            started.append(playwright.chromium.launch(executable_path=program, args=args))
            return started[-1]

        try:
            yield start
        finally:
            for browser in started:
                browser.close()
