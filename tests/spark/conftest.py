import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import laps.spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests, on the wheel's Java: the machine's own is out of sight."""
    place = tmp_path_factory.mktemp("no java here")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", "")
        environment.setenv("PATH", str(path_without_java(place / "bin")))
        environment.setenv("XDG_CACHE_HOME", str(place))
        session = laps.spark.session("local[2]", name="laps tests")
        yield session
        session.stop()


def path_without_java(directory: Path) -> Path:
    """Fill `directory` with every program on the path except `java`."""
    directory.mkdir()
    for place in os.get_exec_path():
        for program in Path(place).glob("*"):
            link = directory / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return directory
