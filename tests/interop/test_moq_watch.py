"""A camera in Chromium and its viewers, with npm's @moq/publish and @moq/watch: everybody sees it.

Every viewer is an element of one page, with a connection of its own. It sees the camera when its
canvas changes again and again, and hears it when bytes of sound arrive.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from interop.environments import bundle_of
from interop.relays import relay
from laps.net import tls
from support.chromium import chromium, driven_chromiums, script_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from interop.relays import Relay

pytestmark = pytest.mark.browser

# A camera of ten pictures a second, since all encoders and decoders share the machine.
FLAGS = (
    "--use-fake-device-for-media-stream=fps=10",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)
# How long anything may take; what it does take is a second. It only bounds a failure.
PATIENCE_S = 30
PICTURES = 3


@pytest.fixture(scope="session")
def page_url() -> Iterator[str]:
    with script_server(bundle_of("moq_watch").read_bytes()) as url:
        yield url


@pytest.fixture
def scene(page_url: str) -> Iterator[Scene]:
    with driven_chromiums(*FLAGS) as start:
        yield Scene(page_url, start)


class Scene:
    """A camera in a browser of its own, and viewers."""

    def __init__(self, page_url: str, start: Callable[[], Browser]) -> None:
        self._url = page_url
        self._start = start
        self._pages: dict[tuple[str, str], Page] = {}
        self._viewers: dict[str, Page] = {}

    def film(self, at: Relay, room: str, draft: str = "16") -> Page:
        """A camera."""
        page = self._open(at, draft)
        publish(page, at, room)
        return page

    def seat(self, viewer: str, at: Relay, room: str, draft: str = "16") -> None:
        """One more viewer; those of one relay and draft share a page."""
        page = self._pages.get((at.clients, draft))
        if page is None:
            page = self._pages[at.clients, draft] = self._open(at, draft)
        self._viewers[viewer] = page
        page.evaluate("([id, url, name]) => watch(id, url, name)", [viewer, at.web, room])

    def leave(self, viewer: str) -> None:
        self._viewers.pop(viewer).evaluate("(id) => unwatch(id)", viewer)

    def everybody_sees(self) -> None:
        """From now on the canvas of every viewer changes, and sound arrives."""
        until = time.monotonic() + PATIENCE_S
        before = {viewer: self._look(viewer) for viewer in self._viewers}
        pictures: dict[str, set[int]] = {viewer: {0, it[0]} for viewer, it in before.items()}
        heard: set[str] = set()
        while len(heard) < len(before) or any(len(it) < PICTURES + 2 for it in pictures.values()):
            seen = {viewer: len(found) for viewer, found in pictures.items()}
            assert time.monotonic() < until, f"pictures: {seen}, heard by {sorted(heard)}"
            for viewer, (_, sound) in before.items():
                picture, now = self._look(viewer)
                pictures[viewer].add(picture)
                if now not in (0, sound):
                    heard.add(viewer)
            time.sleep(0.05)

    def _look(self, viewer: str) -> tuple[int, int]:
        found = self._viewers[viewer].evaluate("(id) => look(id)", viewer)
        return found["picture"], found["sound"]

    def _open(self, at: Relay, draft: str) -> Page:
        page = self._start().new_page()
        page.goto(f"{self._url}?{urlencode({'fingerprint': at.fingerprint, 'draft': draft})}")
        return page


def certificate_files(folder: Path) -> list[str]:
    """Flags for a certificate that outlives the relay: pages know it by its fingerprint."""
    identity = tls.self_signed(["127.0.0.1"])
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(identity.certificate)
    key.write_bytes(identity.key)
    return ["--tls-cert", str(certificate), "--tls-key", str(key)]


def publish(page: Page, at: Relay, room: str) -> None:
    page.evaluate("([url, name]) => publish(url, name)", [at.web, room])


def test_every_viewer_sees_the_picture_also_after_the_page_was_reloaded(
    ends: tuple[Relay, Relay], room: str, scene: Scene
) -> None:
    near, far = ends
    camera = scene.film(near, room)
    for viewer in ("first", "second"):
        scene.seat(viewer, far, room)
        scene.everybody_sees()
    camera.reload()
    publish(camera, near, room)
    scene.everybody_sees()
    scene.seat("third", far, room)
    scene.everybody_sees()


@pytest.mark.nightly
@pytest.mark.parametrize("drafts", [("14", "16"), ("16", "14"), ("14", "14")], ids="-".join)
def test_drafts_are_mixed(
    ends: tuple[Relay, Relay], room: str, scene: Scene, drafts: tuple[str, str]
) -> None:
    scene.film(ends[0], room, drafts[0])
    for viewer in ("first", "second"):
        scene.seat(viewer, ends[1], room, drafts[1])
        scene.everybody_sees()


@pytest.mark.nightly
def test_viewers_come_and_go(ends: tuple[Relay, Relay], room: str, scene: Scene) -> None:
    near, far = ends
    scene.film(near, room)
    for number in range(8):
        scene.seat(f"viewer {number}", far if number % 3 else near, room)
        scene.everybody_sees()
        if number > 1:
            scene.leave(f"viewer {number - 2}")
    for number in range(8, 16):
        scene.seat(f"viewer {number}", far, room)
    scene.everybody_sees()  # ten at once


@pytest.mark.nightly
@pytest.mark.parametrize("pause_s", [0, 60])
def test_a_camera_whose_browser_was_killed_comes_back_under_its_name(
    ends: tuple[Relay, Relay],
    room: str,
    scene: Scene,
    page_url: str,
    tmp_path: Path,
    pause_s: float,
) -> None:
    near, far = ends
    asked = {"fingerprint": near.fingerprint, "draft": "16", "url": near.web, "name": room}
    with chromium(f"{page_url}?{urlencode(asked)}", tmp_path, *FLAGS):
        for viewer in ("first", "second"):
            scene.seat(viewer, far, room)
            scene.everybody_sees()
    time.sleep(pause_s)
    scene.film(near, room)
    scene.everybody_sees()
    scene.seat("third", far, room)
    scene.everybody_sees()


@pytest.mark.nightly
@pytest.mark.parametrize("restarted", ["of the camera", "of the viewers"])
def test_a_relay_is_restarted(room: str, scene: Scene, tmp_path: Path, restarted: str) -> None:
    certificate = certificate_files(tmp_path)
    with relay("--node-id", "1:7", *certificate) as stays:
        flags = ["--node-id", "1:8", "--peer", stays.peers, *certificate]
        with relay(*flags) as first:
            ends = (first, stays) if restarted == "of the camera" else (stays, first)
            scene.film(ends[0], room)
            scene.seat("first", ends[1], room)
            scene.everybody_sees()
        with relay(*flags, "--listen", first.clients):
            scene.everybody_sees()
            scene.seat("second", ends[1], room)
            scene.everybody_sees()
