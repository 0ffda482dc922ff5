"""The player of examples/player in a real Chromium, against real relays."""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from laps.auth.issue import Terms, issue_jwt
from laps.auth.keys import write_jwk
from support.chromium import driven_chromium, folder_server
from support.programs import RelayProcess, relay_process
from support.tokens import key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from playwright.sync_api import Browser, BrowserContext, Page


pytestmark = pytest.mark.browser

PLAYER = Path(__file__).parents[2] / "examples" / "player"
WAIT_MS = 10_000
ROOMS = count(1)

# What every script below begins with: the session of the page, made when it is first asked for.
PRELUDE = """async ([url, sha256, namespace, ...args]) => {
  const { connect } = await import("./moqt.js");
  globalThis.session ??= await connect(url, { sha256 });
  const text = (bytes) => new TextDecoder().decode(bytes);
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with driven_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with folder_server(PLAYER) as url:
        yield url


@pytest.fixture(scope="module")
def frames() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_frames", PLAYER / "make_frames.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    with relay_process(tmp_path_factory.mktemp("relay") / "log") as relay:
        yield relay


class Stage:
    """Windows with the player in them, and a namespace of their own at the relay."""

    def __init__(self, browser: Browser, relay: RelayProcess, site: str) -> None:
        self.relay = relay
        self.room = f"room{next(ROOMS)}"
        self.contexts: list[BrowserContext] = []
        self.errors: list[str] = []
        self._browser = browser
        self._site = site

    def open(self, *, before: str = "", **fields: str) -> Page:
        """A window, since what is in the background is slowed down; its address fills the fields.

        The script `before` runs ahead of the page's own.
        """
        known = {"url": self.relay.url, "sha256": self.relay.sha256, "track": "t"}
        known["namespace"] = f"demo/{self.room}"
        context = self._browser.new_context()
        self.contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(before)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto(f"{self._site}?{urlencode(known | fields)}")
        return page

    def run(self, page: Page, script: str, *args: object) -> Any:
        """Run a script on a page, with a session that lasts as long as the page."""
        given = [self.relay.url, self.relay.sha256, ["demo", self.room], *args]
        return page.evaluate(PRELUDE + script + "}", given)


@pytest.fixture
def stage(browser: Browser, relay: RelayProcess, site: str) -> Iterator[Stage]:
    stage = Stage(browser, relay, site)
    yield stage
    for context in stage.contexts:
        context.close()
    assert not stage.errors


def pixel(page: Page, x: int, y: int) -> list[int]:
    script = """([x, y]) => [...document.querySelector("#canvas").getContext("2d")
      .getImageData(x, y, 1, 1).data.slice(0, 3)]"""
    colour: list[int] = page.evaluate(script, [x, y])
    return colour


def say(page: Page, line: str) -> None:
    page.fill("#writing input", line)
    page.press("#writing input", "Enter")


# --- the page as a person uses it ----------------------------------------------------------------


def test_text_goes_from_one_tab_to_another_and_a_late_one_has_all_of_it(stage: Stage) -> None:
    publisher = stage.open()
    publisher.click("button[name=text]")
    say(publisher, "first")
    viewer = stage.open()
    viewer.click("button[name=play]")
    expect(viewer.locator("#lines li")).to_have_text(["first"])
    say(publisher, "second, ü and 日本")
    expect(viewer.locator("#lines li")).to_have_text(["first", "second, ü and 日本"])
    late = stage.open(autoplay="1")
    expect(late.locator("#lines li")).to_have_text(["first", "second, ü and 日本"])
    assert late.text_content("#object") == "1"
    expect(late.locator("#status")).to_have_text(f"Playing demo/{stage.room} t.")

    publisher.click("button[name=stop]")
    for page in (viewer, late):
        expect(page.locator("#status")).to_have_text("The track has ended.")
        expect(page.locator("#error")).to_be_hidden()


def test_pictures_of_one_tab_move_in_another(stage: Stage) -> None:
    publisher = stage.open()
    publisher.click("button[name=pictures]")
    viewer = stage.open(autoplay="1")
    expect(viewer.locator("#canvas")).to_be_visible()
    first = viewer.evaluate("document.querySelector('#canvas').toDataURL()")
    moved = "(first) => document.querySelector('#canvas').toDataURL() !== first"
    viewer.wait_for_function(moved, arg=first)
    sky = pixel(viewer, 2, 2)
    assert all(abs(a - b) < 8 for a, b in zip(sky, (0x12, 0x30, 0x4F), strict=True))  # it is JPEG
    viewer.wait_for_function("Number(document.querySelector('#rate').textContent) > 0")

    viewer.click("button[name=stop]")
    expect(viewer.locator("#status")).to_have_text("Stopped.")
    expect(viewer.locator("button[name=play]")).to_be_enabled()


def test_a_picture_that_was_there_before_is_drawn_at_once_and_as_it_was(
    stage: Stage, frames: ModuleType
) -> None:
    publisher = stage.open()
    script = """
      globalThis.track ??= await session.publish(namespace, "t");
      const bytes = Uint8Array.from(atob(args[0]), (char) => char.charCodeAt(0));
      await track.write(bytes, { newGroup: true });
    """
    for number in range(3):
        stage.run(publisher, script, base64.b64encode(frames.picture(number)).decode())
    viewer = stage.open(autoplay="1")
    for number in (2, 40):
        if number > 2:
            stage.run(publisher, script, base64.b64encode(frames.picture(number)).decode())
        x, y = frames.ball(number)
        viewer.wait_for_function(
            """([x, y, red]) => document.querySelector("#canvas").getContext("2d")
              .getImageData(x, y, 1, 1).data[0] === red""",
            arg=[x, y, frames.BALL[0]],
        )
        assert pixel(viewer, x, y) == list(frames.BALL)
        assert pixel(viewer, x + frames.RADIUS + 1, y) == list(frames.SKY)
        assert viewer.evaluate("document.querySelector('#canvas').width") == frames.WIDTH
    assert viewer.text_content("#count") == "2"


def test_pictures_of_the_client_library_are_played(stage: Stage, frames: ModuleType) -> None:
    url, namespace = f"moqt://{stage.relay.clients}", f"demo/{stage.room}"
    command = [sys.executable, str(PLAYER / "make_frames.py"), url, namespace, "frames"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("publishing")
            viewer = stage.open(track="frames", autoplay="1")
            viewer.wait_for_function("Number(document.querySelector('#count').textContent) > 3")
            assert viewer.evaluate("document.querySelector('#canvas').width") == frames.WIDTH
        finally:
            process.terminate()


def test_what_is_neither_picture_nor_text_is_shown_by_its_first_bytes(stage: Stage) -> None:
    publisher = stage.open()
    script = """
      globalThis.track ??= await session.publish(namespace, "t");
      await track.write(new Uint8Array([0xff, 0, 1]));
      await track.write("");
      await track.write("text");
    """
    stage.run(publisher, script)
    viewer = stage.open(autoplay="1")
    expect(viewer.locator("#lines li")).to_have_text(["3 bytes: ff 00 01", "", "text"])


def test_tracks_are_listed_and_played_at_another_relay(stage: Stage, tmp_path: Path) -> None:
    with relay_process(tmp_path / "other.log", "--peer", stage.relay.peers) as other:
        publisher = stage.open()
        publisher.click("button[name=text]")
        say(publisher, "from afar")
        viewer = stage.open(url=other.url, sha256=other.sha256, namespace="demo", track="")
        viewer.click("button[name=list]")
        viewer.get_by_role("button", name=f"demo/{stage.room} t").click()
        expect(viewer.locator("#lines li")).to_have_text(["from afar"])
        say(publisher, "and on")
        expect(viewer.locator("#lines li")).to_have_text(["from afar", "and on"])
        assert viewer.input_value("input[name=namespace]") == f"demo/{stage.room}"
        viewer.close()


# --- errors that a person can read ---------------------------------------------------------------


def test_a_wrong_fingerprint_is_told_with_what_to_do(stage: Stage) -> None:
    page = stage.open(sha256="ab" * 32, autoplay="1")
    expect(page.locator("#error")).to_contain_text("SHA-256 abababab…: a relay makes a new one")
    expect(page.locator("#error")).to_contain_text("sha256= in its ready line")
    expect(page.locator("#status")).to_have_text("Stopped.")
    page.fill("input[name=sha256]", "abc")
    page.click("button[name=play]")
    expect(page.locator("#error")).to_contain_text("“abc” is no SHA-256")
    page.fill("input[name=sha256]", "")
    page.click("button[name=play]")
    expect(page.locator("#error")).to_contain_text("signed by nobody whom this browser trusts")


def test_a_relay_that_is_not_there_is_told_with_what_to_do(stage: Stage) -> None:
    page = stage.open(url="https://127.0.0.1:1/", autoplay="1")
    expect(page.locator("#error")).to_contain_text("No session with https://127.0.0.1:1/.")
    expect(page.locator("#error")).to_contain_text("No relay listens there")
    page.fill("input[name=url]", "nowhere")
    page.click("button[name=play]")
    expect(page.locator("#error")).to_contain_text("“nowhere” cannot be dialled")


def test_a_track_that_nobody_publishes_is_told(stage: Stage) -> None:
    page = stage.open(autoplay="1")
    expect(page.locator("#error")).to_have_text("nobody publishes this track (DOES_NOT_EXIST).")


def test_a_browser_without_webtransport_is_told(stage: Stage) -> None:
    page = stage.open(before="delete globalThis.WebTransport", autoplay="1")
    expect(page.locator("#error")).to_contain_text("This browser has no WebTransport:")


# --- what the page's own client and the relay make of each other ---------------------------------

READ = """
  const subscription = await session.subscribe(namespace, "many");
  globalThis.seen = [];
  globalThis.reading = (async () => {
    for await (const object of subscription) {
      seen.push({ ...object, payload: text(object.payload) });
    }
    return seen;
  })();
"""


def test_five_hundred_groups_arrive_once_each_and_the_end_is_told(stage: Stage) -> None:
    publisher, viewer = stage.open(), stage.open()
    track = 'globalThis.track = await session.publish(namespace, "many", { firstGroup: 0 });'
    stage.run(publisher, track)
    stage.run(viewer, READ)
    script = """
      for (let group = 0; group < 500; group++) {
        await track.write(`head ${group}`, { newGroup: true });
        await track.write(`tail ${group}`);
      }
      await track.end();
    """
    stage.run(publisher, script)
    seen = stage.run(viewer, "return reading;")
    assert sorted((item["group"], item["id"], item["payload"]) for item in seen) == sorted(
        (group, number, f"{word} {group}")
        for group in range(500)
        for number, word in enumerate(("head", "tail"))
    )
    assert not any(item.get("fetched") for item in seen)


def test_datagrams_go_through(stage: Stage) -> None:
    publisher, viewer = stage.open(), stage.open()
    stage.run(publisher, 'globalThis.track = await session.publish(namespace, "many");')
    stage.run(viewer, READ)
    for number in range(20):
        stage.run(publisher, "await track.datagram(`number ${args[0]}`);", number)
        viewer.wait_for_function(f"seen.length > {number}")
    seen = viewer.evaluate("seen")
    assert [item["payload"] for item in seen] == [f"number {number}" for number in range(20)]
    assert [item["id"] for item in seen] == list(range(20))
    assert all(item["datagram"] for item in seen)


def test_a_large_object_comes_whole(stage: Stage) -> None:
    publisher, viewer = stage.open(), stage.open()
    stage.run(publisher, 'globalThis.track = await session.publish(namespace, "many");')
    stage.run(viewer, READ)
    script = """
      await track.write("0123456789".repeat(300000));
      await track.end();
    """
    stage.run(publisher, script)
    script = """
      const [{ payload }] = await reading;
      return payload === "0123456789".repeat(300000);
    """
    assert stage.run(viewer, script)


def test_a_namespace_is_served_while_somebody_wants_it(stage: Stage) -> None:
    publisher, viewer, watcher = stage.open(), stage.open(), stage.open()
    script = """
      globalThis.told = [];
      await session.watch(namespace, (found) => told.push(found));
    """
    stage.run(watcher, script)
    script = """
      globalThis.asked = [];
      globalThis.announced = await session.announce(namespace, (name) => {
        asked.push(name);
        if (name !== "many") return null;
        return (track) => {
          globalThis.track = track;
          track.write("you asked");
        };
      });
    """
    stage.run(publisher, script)
    watcher.wait_for_function("told.length === 1")
    stage.run(viewer, READ + "globalThis.subscription = subscription;")
    viewer.wait_for_function("seen.length === 1")
    assert viewer.evaluate("seen[0].payload") == "you asked"
    refused = 'return session.subscribe(namespace, "other").catch((error) => error.message);'
    assert stage.run(viewer, refused) == "there is no track other here (DOES_NOT_EXIST)"

    stage.run(viewer, "await subscription.end(); await reading;")
    stage.run(publisher, "await track.closed; await announced.end();")
    watcher.wait_for_function("told.length === 2")
    told = {"namespace": ["demo", stage.room], "name": None}
    assert watcher.evaluate("told") == [told | {"gone": False}, told | {"gone": True}]
    assert publisher.evaluate("asked") == ["many", "other"]


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        # A message of a type that there is not.
        (
            """const w = bidi.writable.getWriter();
            await w.write(new Uint8Array([0x20, 0, 1, 0, 0x3f, 0, 0]));""",
            3,
        ),
        # A request with an id that is the relay's to use.
        (
            """const w = bidi.writable.getWriter();
            await w.write(new Uint8Array([0x20, 0, 1, 0, 0x06, 0, 5, 1, 1, 1, 97, 0]));""",
            4,
        ),
        # A stream, and a datagram, of types that there are not.
        (
            """await bidi.writable.getWriter().write(new Uint8Array([0x20, 0, 1, 0]));
            const w = (await transport.createUnidirectionalStream()).getWriter();
            await w.write(new Uint8Array([0x3f, 0, 0]));""",
            3,
        ),
        (
            """await bidi.writable.getWriter().write(new Uint8Array([0x20, 0, 1, 0]));
            await bidi.readable.getReader().read();
            const w = transport.datagrams.writable.getWriter();
            await w.write(new Uint8Array([0x3f, 0, 0]));""",
            3,
        ),
    ],
    ids=["message", "request id", "stream", "datagram"],
)
def test_mistakes_end_the_session_with_their_code(stage: Stage, mistake: str, code: int) -> None:
    script = """async ([url, sha256]) => {
      const value = Uint8Array.from(sha256.match(/../g), (digits) => parseInt(digits, 16));
      const transport = new WebTransport(url, {
        protocols: ["moqt-16"],
        serverCertificateHashes: [{ algorithm: "sha-256", value }],
      });
      await transport.ready;
      const bidi = await transport.createBidirectionalStream();
      MISTAKE
      const late = new Promise((_, reject) => setTimeout(reject, 10_000, "it stays open"));
      return Promise.race([transport.closed, late]);
    }"""
    page = stage.open()
    closed = page.evaluate(
        script.replace("MISTAKE", mistake), [stage.relay.url, stage.relay.sha256]
    )
    assert closed["closeCode"] == code
    assert closed["reason"]


def test_a_page_that_is_done_closes_with_code_0(stage: Stage) -> None:
    page = stage.open()
    stage.run(page, "")
    before = len(stage.relay.log.read_text())
    assert stage.run(page, "session.close(); return session.closed;") == {"code": 0, "reason": ""}
    while "closed by the peer: application error 0" not in stage.relay.log.read_text()[before:]:
        page.wait_for_timeout(10)


# --- at a relay with keys ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [write_jwk(key(), private=False)]}))
    with relay_process(folder / "log", "--auth", str(keys)) as relay:
        yield relay


@pytest.fixture
def guarded_stage(browser: Browser, guarded: RelayProcess, site: str) -> Iterator[Stage]:
    stage = Stage(browser, guarded, site)
    yield stage
    for context in stage.contexts:
        context.close()
    assert not stage.errors


def test_token_of_the_field_is_shown_to_the_relay_and_is_in_no_address(
    guarded_stage: Stage,
) -> None:
    stage = guarded_stage
    writes = issue_jwt(Terms(publish=((b"demo",),)), key())
    reads = issue_jwt(Terms(subscribe=((b"demo",),)), key())
    publisher, viewer = stage.open(), stage.open()
    asked: list[str] = []
    for page, token in ((publisher, writes), (viewer, reads)):
        page.on("request", lambda request: asked.append(request.url))
        page.fill("input[name=token]", token)
    publisher.click("button[name=text]")
    say(publisher, "first")
    viewer.click("button[name=play]")
    expect(viewer.locator("#lines li")).to_have_text(["first"])
    assert not any(token in url for token in (writes, reads) for url in (*asked, viewer.url))
    assert not any(token in stage.relay.log.read_text() for token in (writes, reads))


def test_token_that_is_missing_wrong_or_in_the_address_is_refused(guarded_stage: Stage) -> None:
    stage = guarded_stage
    reads = issue_jwt(Terms(subscribe=((b"demo",),)), key())
    without = stage.open(token=reads)
    without.click("button[name=play]")
    expect(without.locator("#error")).to_contain_text("a token is needed to connect")
    wrong = stage.open()
    wrong.fill("input[name=token]", "swordfish")
    wrong.click("button[name=play]")
    expect(wrong.locator("#error")).to_contain_text("the session has ended, with code 22")
    assert "swordfish" not in (wrong.text_content("body") or "")
    elsewhere = stage.open()
    elsewhere.fill("input[name=token]", reads)
    elsewhere.click("button[name=text]")
    expect(elsewhere.locator("#error")).to_contain_text("no token that was shown allows to publish")
