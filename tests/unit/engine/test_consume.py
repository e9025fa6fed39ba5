"""What arrives in a run that sends nothing itself: other people's messages, of which only a count is known."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_loadtest.drivers._base import Received
from pytest_loadtest.engine.consume import Arrivals
from pytest_loadtest.quantities import MILLISECOND, SECOND

START = 7_000 * SECOND


def received(*offsets: int) -> Received:
    n = len(offsets)
    return Received(
        heads=np.zeros((n, 32), np.uint8), size=np.ones(n, np.int32), time=START + np.array(offsets, np.int64), order=np.zeros(n, np.int64),
        flags=np.zeros(n, np.int8),
    )  # fmt: skip


def test_only_what_comes_within_the_phase_is_counted() -> None:
    """A phase of 4.5 seconds ends in the middle of its fifth: what came in the rest of that second would raise the rate."""
    arrivals = Arrivals(START, 4500 * MILLISECOND)
    arrivals.add(received(-1, 0, SECOND - 1, SECOND, 4 * SECOND))
    arrivals.add(received(4500 * MILLISECOND - 1, 4500 * MILLISECOND, 4900 * MILLISECOND, 6 * SECOND))
    assert arrivals.seconds == {0: 2, 1: 1, 4: 2}


def test_a_phase_that_is_stopped_counts_to_its_end() -> None:
    """The end is agreed before it comes."""
    arrivals = Arrivals(START, 60 * SECOND)
    arrivals.add(received(SECOND))
    arrivals.duration = 1500 * MILLISECOND
    arrivals.add(received(1500 * MILLISECOND - 1, 1500 * MILLISECOND))
    assert arrivals.seconds == {1: 2}


@pytest.mark.parametrize("offsets", [(), (-5, -3), (2 * SECOND,)])
def test_nothing_within_the_phase(offsets: tuple[int, ...]) -> None:
    """No second is listed for it."""
    arrivals = Arrivals(START, 2 * SECOND)
    arrivals.add(received(*offsets))
    assert not arrivals.seconds
