"""The record of a worker's pauses."""

from __future__ import annotations

import numpy as np

from pytest_loadtest.engine.pauses import PauseLog


def test_the_longest_pauses_are_kept_in_the_order_of_time() -> None:
    log = PauseLog(most=2)
    for begin, end in ((0, 10), (20, 25), (30, 50)):
        log.add(begin, end)
        log.took()
    assert log.document(exact=True) == {
        "begin": [0, 30],
        "end": [10, 50],
        "since": [0, 30],
        "until": [10, 50],
        "exact": True,
    }
    log.clear()
    assert log.document(exact=False)["begin"] == []


def test_a_client_that_took_copies_in_a_pause_was_silent_for_the_longest_time_between_two() -> None:
    """A process that was stopped has its stamps at the end; a loop alone that stood still has them
    all along.
    """
    log = PauseLog()
    log.add(0, 1000)
    log.took(np.array([990, 995, 1200]))
    log.add(2000, 3000)
    log.took(np.arange(2000, 3000, 100))
    log.add(4000, 5000)
    document = log.document(exact=False)
    assert list(zip(document["since"], document["until"], strict=True)) == [
        (0, 990),
        (2000, 2100),
        (4000, 5000),
    ]
    assert document["end"] == [1000, 3000, 5000]
