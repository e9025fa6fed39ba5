"""Windows of the plan, their amounts, and the messages offered in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.size_mix import SizeMix
from pytest_loadtest.metrics.offering import (
    PlannedLoad,
    PlannedSizes,
    PlannedStage,
    PlannedStep,
    count_offers,
    offered_windows,
)
from pytest_loadtest.values.quantities import SECOND

SMALL = SizeMix(mean=100.0, variance=0.0, smallest=100, largest=100)
LARGE = SizeMix(mean=900.0, variance=0.0, smallest=900, largest=900)


def load_of(
    *steps: tuple[int, float],
    stages: tuple[tuple[str, int], ...] = (),
    large_from: int | None = None,
) -> PlannedLoad:
    """Return a load.

    :param steps: seconds and rate.
    :param stages: names and seconds.
    :param large_from: ns, larger messages.
    """
    sizes = (
        PlannedSizes(at=0, mix=SMALL),
        *([] if large_from is None else [PlannedSizes(at=large_from, mix=LARGE)]),
    )
    return PlannedLoad(
        in_bytes=False,
        steps=tuple(PlannedStep(length=length * SECOND, rate=rate) for length, rate in steps),
        stages=tuple(PlannedStage(name=name, start=start * SECOND) for name, start in stages),
        sizes=sizes,
    )


@pytest.mark.parametrize(
    ("duration", "lengths"),
    [(4, [4]), (10, [10]), (13, [13]), (20, [10, 10]), (29, [10, 19]), (30, [10, 10, 10])],
)
def test_a_rest_that_is_shorter_than_ten_seconds_belongs_to_the_window_before_it(
    duration: int, lengths: list[int]
) -> None:
    windows = load_of((60, 100.0)).windows(duration * SECOND)
    assert [(window.end - window.start) // SECOND for window in windows] == lengths
    assert [window.amount for window in windows] == pytest.approx(
        [100.0 * length for length in lengths]
    )


def test_no_window_is_in_two_stages() -> None:
    """A stage that is shorter than ten seconds is a window; one that did not begin before the end
    is left out.
    """
    load = load_of(
        (12, 10.0),
        (3, 50.0),
        (40, 20.0),
        stages=(("low", 0), ("spike", 12), ("high", 15), ("never", 90)),
    )
    windows = load.windows(40 * SECOND)
    assert [(window.stage, window.start // SECOND, window.end // SECOND, round(window.amount)) for window in windows] == [
        ("low", 0, 12, 120), ("spike", 12, 15, 150), ("high", 15, 25, 200), ("high", 25, 40, 300),
    ]  # fmt: skip


def test_a_rate_that_is_changed_while_load_runs_counts_from_its_instant() -> None:
    load = load_of((5, 10.0), (5, 20.0)).changed(7 * SECOND, 0.0).changed(9 * SECOND, 100.0)
    instants = np.array([0, 5, 7, 9, 10, 20]) * SECOND
    assert load.amounts(instants).tolist() == pytest.approx([0, 50, 90, 90, 190, 1190])


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=5),
    st.integers(0, 300),
)
def test_the_amount_is_the_sum_of_the_seconds(steps: list[tuple[int, int]], until: int) -> None:
    each = [rate for length, rate in steps for _ in range(length)] + [steps[-1][1]] * 300
    assert load_of(*steps).amounts(np.array([until * SECOND]))[0] == pytest.approx(
        sum(each[:until])
    )


def test_the_sizes_of_a_window_are_unknown_if_they_change_in_it() -> None:
    windows = load_of((60, 1.0), large_from=15 * SECOND).windows(40 * SECOND)
    assert [window.mix for window in windows] == [SMALL, None, LARGE, LARGE]
    assert load_of((60, 1.0), large_from=15 * SECOND).largest == 900


def test_messages_are_offered_in_the_window_of_their_intended_time() -> None:
    """Those before the start and after the end belong to the first and the last one, so that none
    is overlooked.
    """
    load = load_of((60, 0.1))
    planned = load.windows(20 * SECOND)
    intended = np.array([-1, 0, 10 * SECOND - 1, 10 * SECOND, 25 * SECOND]) + 7
    counted = count_offers(
        {"intended": intended, "size": np.array([1, 2, 3, 10, 20], np.int32)}, 7, planned
    )
    assert counted == ([3, 2], [6, 30])
    first, _ = offered_windows(load, planned, *counted)
    assert (first.planned, first.messages, first.size, first.in_bytes, first.largest) == (
        planned[0],
        3,
        6,
        False,
        100,
    )


def test_without_a_plan_there_are_no_windows() -> None:
    """As in run folders of older releases."""
    one = np.array([5])
    assert offered_windows(None, (), *count_offers({"intended": one, "size": one}, 0, ())) == ()
