"""What a policy may say, what holds for which track, and how it is refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from laps.errors import ConfigError
from laps.policy import Policy, Profile, load_policy, policy_from_mapping

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan" / "policy.toml"


def read(text: str) -> Policy:
    return policy_from_mapping(tomllib.loads(text), "policy.toml")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith("policy.toml: ")
    assert len(message.splitlines()) == 1
    return message.removeprefix("policy.toml: ")


def test_an_empty_policy_has_three_classes_and_a_fan_out_of_two() -> None:
    policy = read("")
    assert policy.goals.fan_out_per_region == 2
    assert policy.goals.candidates == 3
    assert list(policy.services) == ["gold", "silver", "bronze"]
    assert policy.profile_of("demo/clock") == Profile("silver", 1.5, 20_000, 2)


def test_the_first_rule_that_matches_a_track_counts() -> None:
    policy = read("""
        [[rule]]
        tracks = "clinic/*/vitals"
        class = "gold"
        inside = ["eu", "uk"]
        fan_out_per_region = 4
        [[rule]]
        tracks = "clinic/*"
        avoid = ["ca"]
    """)
    assert policy.profile_of("clinic/a/b/vitals") == Profile("gold", 1.2, 5000, 4, ("eu", "uk"), ())
    assert policy.profile_of("clinic/a/audio") == Profile("silver", 1.5, 20_000, 2, (), ("ca",))
    assert policy.profile_of("clinics/a") == Profile("silver", 1.5, 20_000, 2)


def test_a_rule_without_a_class_leaves_the_class_that_came_with_the_track() -> None:
    policy = read("""
        [plan]
        default_class = "bronze"
        [[rule]]
        tracks = "a/*"
        avoid = ["ca"]
        [[rule]]
        tracks = "b/*"
        class = "gold"
    """)
    assert policy.profile_of("a/x", "gold").service == "gold"
    assert policy.profile_of("a/x").service == "bronze"
    assert policy.profile_of("b/x", "silver").service == "gold"
    assert policy.profile_of("c/x", "silver").service == "silver"


def test_every_profile_that_a_track_can_have_has_a_number_and_the_default_is_the_first() -> None:
    policy = read("""
        [plan]
        default_class = "live"
        [class.live]
        stretch = 1.1
        [[rule]]
        tracks = "a/*"
        avoid = ["ca", "ca"]
        [[rule]]
        tracks = "b/*"
        class = "gold"
        [[rule]]
        tracks = "c/*"
        avoid = ["ca"]
        class = "gold"
    """)
    profiles = policy.profiles
    assert profiles[0] == policy.profile_of("z/x")
    assert len(set(profiles)) == len(profiles) == 8
    for label in ("a/x", "b/x", "c/x", "z/x"):
        for service in (None, *policy.services):
            assert policy.profile_of(label, service) in profiles


def test_a_class_can_be_changed_or_added_key_by_key() -> None:
    policy = read("""
        [class.gold]
        stretch = 1.05
        [class.film]
        slack_ms = 250
    """)
    assert policy.profile_of("a/x", "gold") == Profile("gold", 1.05, 0, 2)
    assert policy.profile_of("a/x", "film") == Profile("film", 1.5, 250_000, 2)
    assert policy.profile_of("a/x", "silver").slack_us == 20_000


def test_the_digest_tells_policies_apart_and_not_how_they_are_written() -> None:
    assert read("").digest == read("[plan]\nfan_out_per_region = 2 # as ever").digest
    assert read("").digest != read("[plan]\nfan_out_per_region = 3").digest
    assert read("").digest.startswith("sha256:")


def test_a_policy_survives_being_written_as_json() -> None:
    policy = load_policy(EXAMPLE)
    assert policy.rules
    again = policy_from_mapping(json.loads(json.dumps(policy.to_mapping())), "policy.json")
    assert again == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[plans]",
            (
                "plans = {}: unknown table, did you mean plan? "
                "known: plan, class, rule, way, node, link, peering, vias"
            ),
        ),
        ("plan = 3", "[plan] = 3: must be a table"),
        (
            "[plan]\nfan_out_region = 2",
            (
                "[plan]: fan_out_region = 2: unknown key, did you mean fan_out_per_region? known: "
                "fan_out_per_region, long_haul_weight, origin_egress_weight, candidates, "
                "default_class"
            ),
        ),
        (
            "[plan]\nfan_out_per_region = -1",
            (
                "[plan]: fan_out_per_region = -1: must be a whole number from 0 (always a Via) to "
                "1000000"
            ),
        ),
        (
            "[plan]\nfan_out_per_region = 2.5",
            (
                "[plan]: fan_out_per_region = 2.5: must be a whole number from 0 (always a Via) to "
                "1000000"
            ),
        ),
        ("[plan]\ncandidates = 8", "[plan]: candidates = 8: must be a whole number from 1 to 7"),
        (
            "[plan]\nlong_haul_weight = 0\norigin_egress_weight = 0.0001",
            (
                "[plan]: long_haul_weight = 0.0: both weights are 0: give one of them, or there is "
                "nothing to minimise"
            ),
        ),
        (
            '[plan]\ndefault_class = "golden"',
            (
                '[plan]: default_class = "golden": is no class, did you mean gold? known: '
                "gold, silver, bronze"
            ),
        ),
        (
            "[class.gold]\nstretch = 0.9",
            "[class.gold]: stretch = 0.9: must be a number from 1 to 1000",
        ),
        (
            "[class.gold]\nslack_ms = -1",
            "[class.gold]: slack_ms = -1: must be a number from 0 to 60000",
        ),
        ("[class]\ngold = 1", "[class.gold] = 1: must be a table"),
        ("class = 1", "class = 1: must be tables: [class.gold]"),
        ("rule = 1", "rule = 1: must be tables: [[rule]]"),
        (
            '[[rule]]\nclass = "gold"',
            'rule[1]: tracks is missing: give a pattern for namespace/name, like "clinic/*"',
        ),
        (
            '[[rule]]\ntracks = "a/*"\nclass = "platin"',
            'rule[1]: class = "platin": is no class; known: gold, silver, bronze',
        ),
        (
            '[[rule]]\ntracks = "a/*"\ninside = "eu"',
            'rule[1]: inside = "eu": must be a list of up to 64 regions, like ["eu", "us"]',
        ),
        (
            '[[rule]]\ntracks = "a/*"\ninside = ["eu"]\navoid = ["ca", "eu"]',
            (
                'rule[1]: avoid = ["ca", "eu"]: "eu" is in inside too: a track cannot '
                "stay in it and out of it"
            ),
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_the_way_out(text: str, words: str) -> None:
    assert refusal(text) == words


@pytest.mark.parametrize(("key", "table"), [("inside", "rule"), ("avoid", "rule"), ("vias", "way")])
def test_more_than_other_relays_can_be_told_is_refused(key: str, table: str) -> None:
    most = 32 if key == "vias" else 64
    many = {"tracks": "a/*", key: [f"1:{number}" for number in range(most + 1)]}
    with pytest.raises(ConfigError, match=rf"{key} = \[.*: must be a list of up to {most} "):
        policy_from_mapping({table: [many]}, "policy.toml")
    most_of_it = {"tracks": "a/*", key: [f"1:{number}" for number in range(most)]}
    policy_from_mapping({table: [most_of_it]}, "policy.toml")


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (f'[[rule]]\ntracks = "a/*"\ninside = ["eu", "{"ü" * 33}"]', "rule[1]: inside = "),
        (f'[[rule]]\ntracks = "a/*"\navoid = ["{"x" * 65}"]', "rule[1]: avoid = "),
        (f"[class.{'c' * 65}]", "[class]: class = "),
    ],
)
def test_a_name_that_other_relays_cannot_be_told_is_refused(text: str, begins: str) -> None:
    assert refusal(text).startswith(begins)
    assert refusal(text).endswith(": must be UTF-8 of at most 64 bytes")
    assert read(text.replace("ü" * 33, "ü" * 32).replace("x" * 65, "x").replace("c" * 65, "c"))


def test_a_region_that_is_half_a_character_is_refused() -> None:
    rule = {"tracks": "a/*", "inside": ["\ud800"]}
    with pytest.raises(ConfigError, match="must be UTF-8"):
        policy_from_mapping({"rule": [rule]}, "policy.json")


def test_more_profiles_than_a_table_can_tell_apart_are_refused() -> None:
    rules = "".join(
        f'[[rule]]\ntracks = "{n}/*"\nfan_out_per_region = {n + 3}\n' for n in range(50)
    )
    assert refusal(rules) == (
        "rules and classes make 153 combinations: there can be 127; give more rules a class, or "
        "the same one"
    )


def test_a_region_that_nobody_is_in_is_named() -> None:
    policy = read('[[rule]]\ntracks = "a/*"\navoid = ["europe", "us"]')
    policy.require_regions({"europe", "us"}, "policy.toml")
    with pytest.raises(ConfigError) as caught:
        policy.require_regions({"eu", "us", ""}, "policy.toml")
    assert str(caught.value) == (
        'policy.toml: rule[1]: avoid = ["europe", "us"]: "europe" is no region of the network: no '
        "node is in it and no link transits it; known: eu, us"
    )


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.toml: cannot be read: No such file"):
        load_policy(tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_text("[plan")
    with pytest.raises(ConfigError, match=r"policy\.toml: not TOML: "):
        load_policy(tmp_path / "policy.toml")
    (tmp_path / "policy.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"policy\.json: "):
        load_policy(tmp_path / "policy.json")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bytes\.toml: not TOML: not UTF-8 at byte 0"):
        load_policy(tmp_path / "bytes.toml")
