"""The parts of the way through a service, on messages few enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pytest_loadtest.metrics.expected import Expected
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.metrics.tapped import tapped_latencies, tapped_rows

RUN = Expected(
    start=0, duration=10, rate=1, topics=1, subscriptions=2, ordered=True, publish_acks=True, buckets=("all",),
    stream_topics=np.zeros(1, np.int64), first=np.zeros(1, np.int64), end=np.full(1, 4), tapped=True,
)  # fmt: skip


def rows(**columns: Any) -> dict[str, Any]:
    return {name: np.array(column, np.int64) for name, column in columns.items()}


def parts(first: dict[str, Any], taps: dict[str, Any], run: Expected = RUN) -> dict[str, list[int]]:
    found = tapped_latencies(first, taps, run)
    return {kind: values.tolist() for kind, values in found.items()}


def test_parts_add_up_over_the_messages_that_both_received() -> None:
    """The tap lost message 1, the service lost 2, and the tap received 3 twice."""
    first = rows(number=[3, 0, 1], intended=[300, 0, 100], received=[330, 25, 110])
    taps = rows(number=[0, 2, 3, 3], received=[5, 205, 312, 310])
    assert parts(first, taps) == {
        "to_tap": [10, 5],
        "after_tap": [20, 20],
        "past_tap": [30, 25],
    }


def test_a_tap_that_was_late_itself_leaves_nothing_for_the_service() -> None:
    """The output came before the tap had its input: a part below zero would be a clock error."""
    found = parts(rows(number=[0], intended=[0], received=[25]), rows(number=[0], received=[40]))
    assert (found["to_tap"], found["after_tap"]) == ([25], [0])


def test_without_rows_there_are_no_values() -> None:
    nothing = rows(number=[], intended=[], received=[])
    one = rows(number=[0], intended=[0], received=[25])
    assert parts(nothing, one)["past_tap"] == []
    assert parts(one, nothing)["past_tap"] == []


def test_own_delays_are_those_of_the_copies() -> None:
    """The worker that took the copy stood still from 20 to 80 ms."""
    ms = 1_000_000
    instants = {
        name: np.array([at * ms])
        for name, at in {"begin": 20, "end": 80, "since": 20, "until": 80}.items()
    }
    none = np.zeros(0, np.int64)
    pauses = (Pauses(**instants, exact=False, due=none, sent=none),)
    run = replace(RUN, workers=("gw0",), pauses=pauses, stream_workers=np.zeros(1, np.int64))
    copy = rows(number=[0], stream=[0], intended=[0], received=[70 * ms], lag=[-1], worker=[0])
    assert parts(copy, rows(number=[0], received=[5 * ms]), run)["own_past_tap"] == [50 * ms]


def test_each_subscription_has_the_parts_of_a_message() -> None:
    """Message 1 of four came to both subscriptions, message 2 to the second one."""
    first = rows(subscription=[0, 1, 1], intended=[100, 100, 200], received=[120, 130, 240])
    taps = rows(received=[210, 104])
    numbers = np.array([1, 1, 2]), np.array([2, 1])
    found = tapped_rows(first, taps, numbers, RUN)
    assert found["to_tap"][1].tolist() == [4, 4, 10]
    assert found["after_tap"][1].tolist() == [16, 26, 30]
