"""How long a thread has needed the processor, whether it had it or not."""

from __future__ import annotations

from pathlib import Path
from time import thread_time

import pytest

from laps.net.processor import SCHEDSTAT, Processor


def test_processor_is_needed_while_a_thread_waits_for_it(tmp_path: Path) -> None:
    schedstat = tmp_path / "schedstat"
    schedstat.write_text("7000000000 2500000000 12\n")
    processor = Processor(str(schedstat))
    before = thread_time()
    assert before + 2.5 <= processor.needed_s() <= thread_time() + 2.5
    schedstat.write_text("7000000000 4500000000 12\n")
    assert processor.needed_s() >= before + 4.5
    assert processor.waited_s() == 4.5
    processor.close()


def test_processor_is_needed_while_a_thread_runs_where_the_system_tells_no_more() -> None:
    processor = Processor("/no/such/file")
    before = thread_time()
    assert before <= processor.needed_s() <= thread_time()
    assert processor.waited_s() == 0.0
    processor.close()


@pytest.mark.skipif(not Path(SCHEDSTAT).exists(), reason="the system does not say it")
def test_processor_reads_how_long_this_thread_has_waited() -> None:
    processor = Processor()
    began, ran_before = waited_s(), thread_time()
    needed_s = processor.needed_s()
    assert began + ran_before <= needed_s <= waited_s() + thread_time()
    processor.close()


def waited_s() -> float:
    """What the system says."""
    return int(Path(SCHEDSTAT).read_text().split()[1]) / 1e9
