"""How long a thread has had the processor, and waited for it."""

from __future__ import annotations

from pathlib import Path
from time import thread_time

import pytest

from laps.net.processor import SCHEDSTAT, Processor


def test_processor_tells_how_long_a_thread_has_waited_for_it(tmp_path: Path) -> None:
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("7000000000 2500000000 12\n")
    processor = Processor(str(schedstat))
    before = thread_time()
    assert processor.waited_s() == 2.5
    schedstat.write_text("7000000000 4500000000 12\n")
    assert processor.waited_s() == 4.5
    assert before <= processor.ran_s() <= thread_time()
    processor.close()


def test_processor_knows_of_no_waiting_where_the_system_does_not_tell() -> None:
    processor = Processor("/no/such/file")
    before = thread_time()
    assert before <= processor.ran_s() <= thread_time()
    assert processor.waited_s() == 0.0
    processor.close()


@pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the system does not say it")
def test_processor_reads_how_long_this_thread_has_waited() -> None:
    processor = Processor()
    assert waited_s() <= processor.waited_s() <= waited_s()
    processor.close()


def waited_s() -> float:
    """What the system says."""
    return int(Path(SCHEDSTAT).read_text().split()[1]) / 1e9
