"""Pause and recovery, of made-up times."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_loadtest.metrics.series import QUIET, Recovery, is_first, ranks_of_equal, recovery
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

AT = 10 * SECOND


def column(*seconds: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([round(one * SECOND) for one in seconds], np.int64)


def streams(*numbers: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(numbers, np.int64)


EVEN = np.arange(0, 20 * SECOND, 100 * MILLISECOND)


def test_a_series_without_a_fault_has_its_usual_pause() -> None:
    """The longest time between two answers is the usual one."""
    zeros = np.zeros(len(EVEN), np.int64)
    found = recovery(AT, (zeros, EVEN), (zeros, EVEN, EVEN + MILLISECOND))
    assert found == Recovery(100 * MILLISECOND, 0)


def test_the_pause_is_that_of_the_worst_stream() -> None:
    """The order of answers does not matter; a gap that ended before does not count, one that began
    before does.
    """
    answered = streams(0, 1, 0, 1, 0, 0), column(13, 10.5, 9, 9.5, 1, 13.5)
    found = recovery(AT, answered, (streams(0), column(1), column(1.1)))
    assert found.pause == 4 * SECOND


def test_recovered_with_the_last_message_that_is_slower_than_any_before() -> None:
    """The stream that takes longest decides; much later slow messages have another cause."""
    stream = streams(0, 0, 0, 0, 1, 0)
    intended, received = column(1, 9, 9.9, 10, 11, 17), column(1.2, 9.1, 12, 12.5, 14, 19)
    assert QUIET == SECOND
    assert recovery(AT, (stream, received), (stream, intended, received)).recovered == 4 * SECOND


@pytest.mark.parametrize(
    "received", [column(10, 11), column()], ids=["nothing before", "nothing at all"]
)
def test_unknown_is_not_zero(received: np.ndarray) -> None:  # type: ignore[type-arg]
    """Without anything before nobody knows what is slow, without answers nobody knows of a pause."""
    stream = np.arange(len(received))
    assert recovery(AT, (stream, received), (stream, received, received)) == Recovery(None, None)


def test_what_came_before_the_restart_and_again_after_it_is_not_slow() -> None:
    """The copy of each delivery that was received first counts, at any position in the rows."""
    subscription, stream, seq = (
        streams(0, 0, 1, 0, 0),
        streams(3, 3, 3, 4, 3),
        streams(7, 7, 7, 7, 8),
    )
    assert is_first(subscription, stream, seq, column(12, 9, 12, 12, 12)).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert is_first(*(streams(),) * 4).tolist() == []


def test_ranks_count_equal_values_before() -> None:
    assert ranks_of_equal(np.array([4, 4, 5, 8, 8, 8])).tolist() == [0, 1, 0, 0, 1, 2]
    assert ranks_of_equal(np.zeros(0, np.int64)).tolist() == []
