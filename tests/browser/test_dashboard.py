"""The dashboard in a real Chromium, on real relays that carry real tracks.

1:1 edge ── 1:2 via ── 1:3 edge        demo/<b> clock: published at 1:1, read at 1:3
               └────── 1:4 edge        demo <script>…: published and read at 1:4
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import laps
from support.chromium import driven_chromium
from support.dashboards import dashboard_process
from support.programs import ANY, RelayProcess, relay_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
WAIT_MS = 15_000
SCRIPT = "<script>alert(1)</script>"
PLACES = {
    "1:1": ("--latitude", "50.1", "--longitude", "8.7"),
    "1:2": ("--latitude", "51.5", "--longitude", "-0.1"),
    "1:3": ("--latitude", "39.0", "--longitude", "-77.5"),
    "1:4": ("--latitude", "39.0", "--longitude", "-77.5"),
    "1:5": ("--latitude", "35.7", "--longitude", "139.7"),
}


@dataclass(frozen=True)
class Scene:
    relays: dict[str, RelayProcess]
    url: str
    "The dashboard's."
    logs: Path


@contextmanager
def relay(logs: Path, node: str, *args: str) -> Iterator[RelayProcess]:
    given = ("--node-id", node, "--admin", ANY, "--no-discovery", *PLACES[node], *args)
    if (config := logs / "relay.toml").exists():
        given = ("--config", str(config), *given)
    with relay_process(logs / f"{node}.log", *given) as process:
        yield process


@contextmanager
def talking(relays: dict[str, RelayProcess]) -> Iterator[None]:
    """A publisher and a subscriber of each track, in a thread: Playwright has this one's loop."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_talk(relays, stop)))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def _talk(relays: dict[str, RelayProcess], stop: threading.Event) -> None:
    there = asyncio.Semaphore(0)

    async def publish(node: str, namespace: str, name: str) -> None:
        async with laps.connect(f"moqt://{relays[node].clients}") as session:
            track = await session.publish(namespace, name)
            there.release()
            while True:
                await track.write(bytes(2_000), new_group=True)
                await asyncio.sleep(0.05)

    async def subscribe(node: str, namespace: str, name: str) -> None:
        async with laps.connect(f"moqt://{relays[node].clients}") as session:
            async for _ in session.subscribe(namespace, name):
                pass

    tracks = [("1:1", "1:3", "demo/<b>", "clock"), ("1:4", "1:4", "demo", SCRIPT)]
    publishing = [asyncio.create_task(publish(at, space, name)) for at, _, space, name in tracks]
    for _ in publishing:
        await there.acquire()
    reading = [asyncio.create_task(subscribe(at, space, name)) for _, at, space, name in tracks]
    await asyncio.to_thread(stop.wait)
    for task in publishing + reading:
        task.cancel()
    await asyncio.gather(*publishing, *reading, return_exceptions=True)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    logs = tmp_path_factory.mktemp("dashboard")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        place = logs / "place"
        place.mkdir(mode=0o700)
        patch.setenv("LAPS_PLACE", str(place))
        (logs / "policy.toml").write_text('[[rule]]\ntracks = "demo/<b>/*"\nclass = "gold"\n')
        # On one machine the way by the Via may look long: nobody is to dial a shorter one.
        keeping = f'[policy]\nfile = "{logs / "policy.toml"}"\n[demand]\nsessions = 0\n'
        (logs / "relay.toml").write_text(keeping)
        relays: dict[str, RelayProcess] = {}
        relays["1:2"] = stack.enter_context(relay(logs, "1:2", "--type", "via", "--reflect"))
        for node in ("1:1", "1:3", "1:4"):
            made = relay(logs, node, "--peer", relays["1:2"].peers)
            relays[node] = stack.enter_context(made)
        with talking(relays), dashboard_process() as url:
            yield Scene(relays, url, logs)
        for process in relays.values():
            process.process.terminate()  # all at once: each takes its time to leave
        for process in relays.values():
            process.process.wait(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with driven_chromium() as browser:
        yield browser


@contextmanager
def opened(
    browser: Browser, url: str, size: tuple[int, int] = (1280, 720), *, dark: bool = False
) -> Iterator[Page]:
    """The page; it may say nothing on the console, whatever happens."""
    said: list[str] = []
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    assert said == []


@pytest.fixture
def page(scene: Scene, browser: Browser) -> Iterator[Page]:
    with opened(browser, scene.url) as page:
        see_all(page)
        yield page


def see_all(page: Page) -> None:
    """Wait until relays, links and tracks are there."""
    expect(page.locator("#topology .node.live")).to_have_count(4, timeout=WAIT_MS)
    expect(page.locator("#topology .link.live")).to_have_count(3, timeout=WAIT_MS)
    expect(page.locator("#tracks tr")).to_have_count(2, timeout=WAIT_MS)


def lit(page: Page) -> set[str | None]:
    """The links that the chosen track goes over."""
    return {link.get_attribute("data-link") for link in page.locator(".link.copies").all()}


def test_the_page_shows_relays_by_role_and_links_by_round_trip(page: Page) -> None:
    for node, role in (("1:1", "edge"), ("1:2", "via"), ("1:3", "edge"), ("1:4", "edge")):
        expect(page.locator(f'#topology [data-node="{node}"]')).to_have_class(
            re.compile(rf"\bnode live {role}\b")
        )
    expect(page.locator("#topology")).to_have_attribute("data-mode", "map")
    expect(page.locator("#figure-relays")).to_have_text("4 live")
    expect(page.locator("#topology .label").first).to_have_text(re.compile(r"^[\d.]+ ms$"))
    expect(page.locator("#problems")).to_be_hidden()
    expect(page.locator("#legend")).to_contain_text("EdgeViaStubControl")
    expect(page.locator("#incidents li").first).to_be_visible()
    expect(page.locator("#figure-delivered")).to_have_text(re.compile("kbit/s"), timeout=WAIT_MS)
    places = [box for node in PLACES if (box := box_of(page, node))]
    for index, one in enumerate(places):  # two of them stand in one town
        for other in places[index + 1 :]:
            assert max(abs(one[0] - other[0]), abs(one[1] - other[1])) > 20


def box_of(page: Page, node: str) -> tuple[float, float] | None:
    shape = page.locator(f'#topology [data-node="{node}"] .shape')
    box = shape.bounding_box() if shape.count() else None
    return None if box is None else (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_a_click_on_a_track_lights_its_tree_and_another_one_ends_it(page: Page) -> None:
    row = page.locator("#tracks tr", has_text="clock")
    row.click()
    expect(page.locator(".link.copies")).to_have_count(2)
    assert lit(page) == {"1:1 1:2", "1:2 1:3"}
    expect(page.locator(".link.copies").first).to_have_attribute("data-copies", "1")
    expect(page.locator("#topology .node.part")).to_have_count(3)
    expect(page.locator('#topology [data-node="1:1"]')).to_have_class(
        re.compile(r"\bpart origin\b")
    )
    expect(page.locator('#topology [data-node="1:1"] .words')).to_have_text("publisher")
    added = re.compile(r"^1 sub · \+[\d.]+ ms$")
    expect(page.locator('#topology [data-node="1:3"] .words')).to_have_text(added, timeout=WAIT_MS)
    expect(page.locator('#topology [data-node="1:4"]')).to_have_css("opacity", "0.22")
    expect(page.locator("#chosen-words")).to_contain_text("2 copies between 3 relays")
    row.click()
    expect(page.locator(".link.copies")).to_have_count(0)
    row.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".link.copies")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator(".link.copies")).to_have_count(0)
    expect(page.locator("#chosen")).to_be_hidden()


def test_a_track_has_its_class_and_its_tree_the_colour_of_it(page: Page) -> None:
    row = page.locator("#tracks tr", has_text="clock")
    expect(row.locator(".service")).to_have_text("gold", timeout=WAIT_MS)
    accent = "it => getComputedStyle(it).getPropertyValue('--accent').trim()"
    row.locator("button").click()
    expect(page.locator(".link.copies")).to_have_count(2, timeout=WAIT_MS)
    gold = page.locator("#topology").evaluate(accent)
    other = page.locator("#tracks tr", has_text="script")
    expect(other.locator(".service")).to_have_text("silver")
    other.locator("button").click()
    expect(page.locator("#topology")).to_have_attribute("data-service", "silver")
    assert page.locator("#topology").evaluate(accent) != gold
    page.keyboard.press("Escape")
    expect(page.locator("#topology")).to_have_attribute("data-service", "")


def test_a_track_that_goes_nowhere_lights_its_relay_alone(page: Page) -> None:
    page.locator("#tracks tr", has_text="script").click()
    expect(page.locator("#topology .node.part")).to_have_count(1)
    expect(page.locator('#topology [data-node="1:4"] .words')).to_have_text("publisher · 1 sub")
    assert lit(page) == set()


def test_what_relays_say_is_text_and_never_html(page: Page) -> None:
    row = page.locator("#tracks tr", has_text="script")
    expect(row.locator(".name")).to_have_text(SCRIPT)
    row.click()
    expect(page.locator("#chosen-name")).to_have_text(f"demo {SCRIPT}")
    page.locator('#topology [data-node="1:4"] .shape').click()
    page.get_by_role("tab", name="Tracks").last.click()
    expect(page.locator("#panel-body")).to_contain_text(SCRIPT)
    assert page.evaluate("document.scripts.length") == 1
    assert page.locator("main b", has_text="clock").count() == 0


def test_a_relay_opens_a_panel_with_its_tables(page: Page) -> None:
    page.locator('#topology [data-node="1:2"] .shape').click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading")).to_have_text("1:2")
    expect(panel.locator("tbody tr")).to_have_count(3)
    seen = {
        "Nodes": "only path",
        "Tracks": "1:3",
        "Clients": "It has no clients.",
        "Counters": "control sent",
        "Closes": "No connection has ended.",
        "About": "127.0.0.1",
    }
    for tab, words in seen.items():
        panel.get_by_role("tab", name=tab).click()
        expect(page.locator("#panel-body")).to_contain_text(words)
    panel.get_by_role("tab", name="Peers").click()
    expect(panel.locator("tbody tr", has_text="1:1")).to_contain_text("kbit/s", timeout=WAIT_MS)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.locator('#topology [data-node="1:3"]').focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading")).to_have_text("1:3")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()


def test_the_lists_are_searched_and_turned(page: Page) -> None:
    page.fill("#search", "CLOCK demo")
    expect(page.locator("#tracks tr")).to_have_count(1)
    page.fill("#search", "no such")
    expect(page.locator("#tracks-more")).to_have_text("None of 2 tracks has “no such” in its name.")
    page.fill("#search", "")
    page.check("#own")
    expect(page.locator("#tracks tr", has_text="laps/telemetry/1:1").first).to_be_visible()
    page.get_by_role("tab", name="Relays").click()
    expect(page.locator("#relays tr")).to_have_count(4)
    page.locator("#relays").get_by_role("button", name="1:4").click()
    expect(page.locator("#panel-title")).to_have_text("1:4")


def test_map_or_graph_and_light_or_dark_are_a_click_away(page: Page) -> None:
    before = box_of(page, "1:1")
    page.get_by_role("button", name="Graph").click()
    expect(page.locator("#topology")).to_have_attribute("data-mode", "graph")
    assert box_of(page, "1:1") != before
    expect(page.locator("#topology .label")).to_have_count(3)
    page.get_by_role("button", name="Map").click()
    expect(page.locator("#topology")).to_have_attribute("data-mode", "map")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    see_all(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_a_page_that_is_opened_later_has_the_past_too(page: Page) -> None:
    asked = (
        "fetch('api/picture').then((answer) => answer.json()).then((seen) => seen.samples.length)"
    )
    page.wait_for_function(f"async () => await {asked} > 3")
    page.reload()
    see_all(page)
    drawn = "document.querySelector('#plot-latency .bold').getAttribute('d').match(/[ML]/g).length"
    assert page.evaluate(drawn) > 2
    page.hover("#plot-rate svg", position={"x": 250, "y": 40})
    expect(page.locator("#plot-rate .tip")).to_contain_text("1:1")


def test_screenshots_are_kept_and_a_phone_needs_no_sideways_scrolling(
    scene: Scene, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    looks = [
        ("light", (1280, 720), False),
        ("dark", (1280, 720), True),
        ("phone", (390, 844), False),
    ]
    for name, size, dark in looks:
        with opened(browser, scene.url, size, dark=dark) as page:
            see_all(page)
            overflow = (
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            wide, shown = page.evaluate(overflow)
            assert wide <= shown == size[0]
            page.screenshot(path=SCREENSHOTS / f"dashboard-{name}.png", full_page=name == "phone")
            page.locator("#tracks tr", has_text="clock").click()
            expect(page.locator(".link.copies")).to_have_count(2)
            expect(page.locator('#topology [data-node="1:3"] .words')).to_contain_text("+")
            page.locator("#network").scroll_into_view_if_needed()
            page.screenshot(path=SCREENSHOTS / f"dashboard-{name}-tree.png")
    with capsys.disabled():
        sys.stdout.write(f"\nscreenshots: {SCREENSHOTS}\n")


def test_a_relay_that_is_killed_turns_grey_and_lives_again(
    scene: Scene, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(browser, scene.url) as page, ExitStack() as stack:
        see_all(page)
        peer = ("--peer", scene.relays["1:2"].peers)
        doomed = stack.enter_context(relay(scene.logs, "1:5", *peer))
        node = page.locator('#topology [data-node="1:5"]')
        link = page.locator('#topology [data-link="1:2 1:5"].link')
        expect(node).to_have_class(re.compile(r"\blive\b"), timeout=WAIT_MS)
        expect(link).to_have_class(re.compile(r"\blive\b"), timeout=WAIT_MS)
        began = time.monotonic()
        doomed.kill()
        expect(node).to_have_class(re.compile(r"\bdead\b"), timeout=9_000)
        took = time.monotonic() - began
        expect(link).to_have_class(re.compile(r"\bdead\b"))
        expect(link.locator(".line")).to_have_css("stroke-dasharray", "5px, 5px")
        expect(node.locator(".words")).to_have_text(re.compile(r"^gone \d\d:\d\d:\d\d$"))
        expect(page.locator("#problems")).to_contain_text("1:5 (http://127.0.0.1:")
        expect(page.locator("#problems")).to_contain_text("cannot be reached")
        expect(page.locator("#figure-relays")).to_have_text("4 live, 1 gone")
        incident = page.locator("#incidents > li", has_text="1:5 is gone")
        expect(incident).to_have_count(1)
        incident.locator("summary").click()
        expect(incident.locator("ol li", has_text="unreachable 1:5")).to_be_visible()
        expect(page.locator("#figure-lost")).to_have_text("0")
        page.screenshot(path=SCREENSHOTS / "dashboard-killed.png")
        stack.enter_context(relay(scene.logs, "1:5", *peer))  # at another port: it is found
        expect(node).to_have_class(re.compile(r"\blive\b"), timeout=WAIT_MS)
        expect(page.locator("#problems")).to_be_hidden()
    with capsys.disabled():
        sys.stdout.write(f"\na killed relay is grey after {took:.1f} s\n")


def test_what_is_wrong_is_said_in_words(browser: Browser, tmp_path: Path) -> None:
    nowhere = ("--admin", "127.0.0.1:1", "--admin", "http://127.0.0.1:2/")
    with dashboard_process(*nowhere) as url, opened(browser, url) as page:
        problems = page.locator("#problems")
        expect(problems).to_contain_text("None of the 2 relays answers.", timeout=WAIT_MS)
        expect(problems).to_contain_text("http://127.0.0.1:1 cannot be reached", timeout=WAIT_MS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPS_PLACE", str(tmp_path))
        with dashboard_process() as url, opened(browser, url) as page:
            expect(page.locator("#problems")).to_contain_text("No relay was found on this machine")
