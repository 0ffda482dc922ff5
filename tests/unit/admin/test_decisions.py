"""What a relay shows of what it decides: policy, probes, sessions on demand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from laps.admin.rows import decisions, network, tracks
from laps.admin.rows.relay import Wall
from laps.inspect.columns import VIEWS
from laps.policy import policy_from_mapping
from laps.relay.on_demand import AGAIN_FIRST_S, Need
from laps.relay.probing import LOST_S
from laps.relay.roles import Role
from laps.relay.settings import DemandSettings, ProbeSettings
from laps.types import parse_node_id
from support.relays import App, Net, track_hash

if TYPE_CHECKING:
    from laps.admin.rows.table import RowT, Table

KEY = track_hash("clinic/pulse").full_name_hash
POLICY = policy_from_mapping(
    {
        "plan": {"default_class": "silver"},
        "rule": [
            {"tracks": "clinic/*", "class": "gold", "inside": ["east"], "told": ["east", "west"]},
            {"tracks": "gov/*", "avoid": ["ca"], "fan_out_per_region": 4},
        ],
        "way": [{"vias": ["3:1", "3:2"], "class": "gold", "to": ["eu"]}],
        "node": [{"nodes": ["1:1"], "region": "east"}, {"nodes": ["1:2"], "region": "west"}],
        "link": [{"between": ["east", "west"], "transits": ["ca"], "closed": True}],
        "peering": [{"between": ["9:*", "*"], "allow": False}],
        "vias": {"nodes": ["3:*"]},
    },
    "a test",
)


def rows(table: Table[RowT]) -> list[RowT]:
    return [row for key in table.keys if (row := table.row(key)) is not None]


class Later(Wall):
    """A billion seconds later than the relay's clock."""

    def __call__(self, at: float) -> float:
        return at + 1e9


later = Later()


class Pair:
    """A publisher's relay and a subscriber's, with a policy between them."""

    def __init__(self) -> None:
        self.net, self.pub, self.sub = Net(), App(), App()
        self.origin, self.edge = self.net.relay("1:1"), self.net.relay("1:2")
        self.net.wire(self.origin, self.edge, 10, extended=True)
        self.net.settle()
        self.net.announce(self.origin, self.pub, "clinic")
        self.net.subscribe(self.edge, self.sub, "clinic/pulse")


def test_each_line_of_a_policy_says_what_holds() -> None:
    pair = Pair()
    assert rows(decisions.policy_lines(pair.origin)) == []
    pair.origin.follow_policy(POLICY, pair.net.now)
    said = {
        (line.kind, line.what): line.holds for line in rows(decisions.policy_lines(pair.origin))
    }
    assert said["plan", "all tracks"] == "class silver, fan-out 2 a region"
    assert said["class", "gold"].startswith("order 0; at most 1.2 times the fastest way and 5 ms")
    assert said["rule", "clinic/*"] == "class gold, inside east, told in east or west"
    assert said["rule", "gov/*"] == "stays out of ca, fan-out 4 a region"
    assert said["way", "class gold, to eu"] == "by 3:1 3:2"
    assert said["node", "1:2"] == "in west"
    assert said["link", "east west"] == "passes ca, closed"
    assert said["peering", "9:* *"] == "may not peer"
    assert said["vias", "all tracks"] == "may pass data on: 3:*"


def test_the_page_says_which_policy_it_is() -> None:
    pair = Pair()
    runner: Any = SimpleNamespace(relay=pair.origin, policies=SimpleNamespace(source="p.toml"))
    assert decisions.policy(runner, later).digest == ""
    pair.origin.follow_policy(POLICY, pair.net.now)
    page = decisions.policy(runner, later)
    assert (page.source, page.digest) == ("p.toml", POLICY.digest)


def test_what_is_refused_now_is_a_line_with_its_reason() -> None:
    pair = Pair()
    pair.origin.follow_policy(POLICY, pair.net.now)
    pair.net.run(5.0)
    (line,) = [it for it in rows(decisions.policy_lines(pair.origin)) if it.kind == "refused"]
    assert line.what == "clinic pulse to 1:2"
    assert "1:2 is in west, and the track stays inside east" in line.holds
    (heard,) = [it for it in rows(decisions.policy_lines(pair.edge)) if it.kind == "refused_by"]
    assert heard.what == "clinic pulse of 1:1"
    assert heard.holds == line.holds
    row = tracks.track(pair.origin, KEY)
    assert row is not None
    assert row.service == "gold"


def test_a_session_says_why_it_is_there_and_one_that_waits_why_it_does() -> None:
    pair = Pair()
    sessions, now = pair.origin.demand.sessions, pair.net.now
    sessions.configure(DemandSettings(sessions=2), now)
    needs = (
        Need(
            "2.example:1",
            parse_node_id("2:9"),
            "4 copies into east where 2 may go",
            4,
            at_once=True,
        ),
        Need("3.example:1", None, "1:7 leaves, and names it", 1, at_once=True),
    )
    sessions.needs({need.contact: need for need in needs}, now)
    up, waiting = rows(decisions.decisions(pair.origin, later))
    assert (up.kind, up.node, up.state, up.flows) == ("session", "2:9", "dialling", 4)
    assert up.why == "4 copies into east where 2 may go"
    assert (waiting.node, waiting.contact) == ("", "3.example:1")
    sessions.ended("3.example:1", "refused", now)
    _, waiting = rows(decisions.decisions(pair.origin, later))
    assert (waiting.state, waiting.why) == (
        "waiting",
        "refused; it was for: 1:7 leaves, and names it",
    )
    assert waiting.again_at == later(now + AGAIN_FIRST_S)
    page = decisions.demand(pair.origin, later)
    assert (page.sessions, page.most_sessions) == (0, 2)


def test_a_peer_says_why_it_was_dialled_if_nobody_configured_it() -> None:
    pair = Pair()
    origin, now = pair.origin, pair.net.now
    runner: Any = SimpleNamespace(relay=origin, links={})
    (row,) = rows(network.peers(runner, later))
    assert row.on_demand == ""
    sessions = origin.demand.sessions
    sessions.configure(DemandSettings(sessions=2), now)
    need = Need(
        "2.example:1", parse_node_id("1:2"), "60 ms to it, and 20 would do", 1, at_once=True
    )
    sessions.needs({need.contact: need}, now)
    (link,) = next(iter(origin.peers.values())).links
    sessions.opened(need.contact, link, now)
    (row,) = rows(network.peers(runner, later))
    assert row.on_demand == "60 ms to it, and 20 would do"


def test_a_candidate_says_what_probes_found_and_what_coordinates_expect() -> None:
    net = Net()
    here, via, far = net.relay("1:1"), net.relay("2:1", Role.VIA), net.relay("1:2")
    net.wire(here, via, 10)
    net.wire(via, far, 10)
    net.settle()
    assert decisions.probes(here, later).place is None
    here.probing.configure(ProbeSettings(enabled=True), net.now)
    here.probing.tick(net.now)
    (row,) = rows(decisions.probe_rows(here, later))
    assert (row.node, row.role, row.rtt_us, row.probed_at) == ("1:2", "edge", None, None)
    (train,) = here.probing.outgoing
    here.probing.sent(train, net.now)
    for number in list(train.numbers)[:-1]:
        here.probing.answered(number, net.now + 0.03)
    here.places.tick(net.now + LOST_S + 1)
    (row,) = rows(decisions.probe_rows(here, later))
    assert (row.rtt_us, row.loss) == (30_000, 0.25)
    assert row.probed_at == later(net.now)


@pytest.mark.parametrize("name", ["policy", "probes", "demand"])
def test_each_is_a_view_of_laps_show(name: str) -> None:
    assert VIEWS[name].page.path == f"/v1/{name}"
