"""What the repository says about itself is true."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from laps.config import Config, OriginConfig, load_config, override

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MAKE = re.compile(r"\bmake ([a-z]+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Where somebody's home directory begins, on any machine.
HOME = re.compile(r"(?<![\w.])/(?:root|home|Users)/")


# Keys of the configuration that the example shows in comments.
WITHOUT_DEFAULT = {
    "auth": {"keys", "revoked"},
    "admin": {"listen", "token_file", "read_token_file"},
    "plan": {"file"},
    "policy": {"file", "kept"},
    "clients": {"advertise", "redirect"},
    "peering": {"authorities", "key", "keys", "require_auth"},
    "tls": {"certificate", "key", "self_signed"},
}


def files() -> list[Path]:
    """Every file that is, or is about to be, under version control."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: which files belong to it cannot be told")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def code(page: Path) -> str:
    """What a page shows as code, in line or in blocks."""
    text = page.read_text()
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


def anchors(page: Path) -> set[str]:
    """The fragments that a page's headings can be linked by."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def locked(name: str) -> dict[str, str]:
    """Package names and versions of a lock; where versions differ by Python, the oldest."""
    text = (ROOT / "requirements" / name).read_text()
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in reversed(pins)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(MAKE.findall(code(page)))
    assert named <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_every_make_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert re.findall(r"^([a-z]+):.* ## ", makefile, re.MULTILINE) == phony.split()
    contributing = set(MAKE.findall((ROOT / "CONTRIBUTING.md").read_text()))
    assert set(phony.split()) - {"help"} <= contributing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_names_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    documents = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in LINK.findall(index) if "/" not in name} == documents


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("README.md", "make lab"),
        ("LICENSE", "BSD 2-Clause License"),
        ("CONTRIBUTING.md", "make setup"),
        ("CHANGELOG.md", "## [Unreleased]"),
    ],
)
def test_what_people_look_for_is_there(name: str, says: str) -> None:
    assert says in (ROOT / name).read_text()


@pytest.mark.parametrize("name", [".ci/run", "scripts/lock", "scripts/setup"])
def test_scripts_run_and_stop_at_the_first_failure(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    assert "\nset -euo pipefail\n" in (ROOT / name).read_text()


def test_no_file_names_a_place_on_one_machine() -> None:
    here = re.compile(rf"(?<![\w.]){re.escape(str(ROOT))}\b")
    found = []
    for path in files():
        text = path.read_bytes().decode(errors="replace")
        if HOME.search(text) or here.search(text):
            found.append(path.name)
    assert not found


def test_the_locks_name_no_index() -> None:
    for name in ["build.txt", "lock.txt"]:
        text = (ROOT / "requirements" / name).read_text()
        assert not re.search(r"://|^-", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("lock", "declared"),
    [
        ("build.txt", PROJECT["dependency-groups"]["build"]),
        ("lock.txt", PROJECT["project"]["dependencies"]),
        ("lock.txt", PROJECT["project"]["optional-dependencies"]["spark"]),
        ("lock.txt", PROJECT["dependency-groups"]["dev"]),
    ],
    ids=["build", "base", "spark", "dev"],
)
def test_what_is_declared_is_locked(lock: str, declared: list[str]) -> None:
    pins = locked(lock)
    for requirement in map(Requirement, declared):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked: make lock"
        assert version in requirement.specifier, f"{requirement} is locked at {version}: make lock"


def test_every_dependency_is_explained() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    extras = PROJECT["project"]["optional-dependencies"]
    groups = PROJECT["dependency-groups"]
    for text in [*PROJECT["project"]["dependencies"], *extras["spark"], *groups["dev"]]:
        assert f"\n| {Requirement(text).name} | " in page, text


def test_every_test_that_a_document_names_exists() -> None:
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"def (test_\w+)", written))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert name in known, f"{page.name} names {name}"


def test_the_example_configuration_has_every_key_and_is_what_a_relay_does_without_one() -> None:
    config = load_config(ROOT / "examples" / "relay.toml")
    written = tomllib.loads((ROOT / "examples" / "relay.toml").read_text())
    default = Config()
    example = (ROOT / "examples" / "relay.toml").read_text()
    for key in OriginConfig.__struct_fields__:
        assert f"\n# {key} = " in example.partition("# [[origins]]")[2].partition("\n[")[0]
    for section in [name for name in Config.__struct_fields__ if name != "origins"]:
        keys = set(getattr(default, section).__struct_fields__)
        assert set(written[section]) == keys - WITHOUT_DEFAULT.get(section, set())
    assert config == override(default, {"node.id": "1.2:1234"}, "test")
