"""The metrics information base: the last words of each node about itself."""

import pytest

from laps.infobase.metrics import Metrics, MetricsChange
from laps.types import NodeId, NodeMetrics

NEAR, FAR = NodeId(1), NodeId(2)


def metrics(sequence: int, source: NodeId = NEAR, load: float = 0.5) -> NodeMetrics:
    return NodeMetrics(sequence, source, load, 1000, 10)


def test_the_newest_word_holds() -> None:
    base = Metrics()
    old, new = metrics(1), metrics(2, load=0.6)
    assert base.add(old) == MetricsChange(NEAR, None, old)
    assert base.add(new) == MetricsChange(NEAR, old, new)
    assert (base.get(NEAR), len(base)) == (new, 1)


def test_an_old_word_or_the_same_is_no_news() -> None:
    base = Metrics()
    base.add(metrics(5))
    assert base.add(metrics(5, load=0.9)) is None
    assert base.add(metrics(4, load=0.9)) is None
    assert base.counters.duplicates == 2
    assert base.get(NEAR) == metrics(5)


@pytest.mark.parametrize(("held", "arrives", "taken"), [(65535, 0, True), (0x8000, 0, False)])
def test_sequences_wrap(held: int, arrives: int, taken: bool) -> None:
    base = Metrics()
    base.add(metrics(held))
    assert (base.add(metrics(arrives)) is not None) is taken


def test_each_node_has_its_own() -> None:
    base = Metrics()
    base.add(metrics(9))
    base.add(metrics(1, FAR))
    assert list(base) == [metrics(9), metrics(1, FAR)]


def test_a_node_that_is_gone_starts_anew() -> None:
    base = Metrics()
    base.add(metrics(9))
    assert base.purge_source(NEAR) == MetricsChange(NEAR, metrics(9), None)
    assert base.purge_source(NEAR) is None
    assert (len(base), base.get(NEAR)) == (0, None)
    assert base.add(metrics(1)) is not None
