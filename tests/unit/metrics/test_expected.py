"""The evidence of a worker for one time slice of the phase."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.expected import Opening, WorkerEvidence
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

ROWS = st.lists(st.tuples(*[st.integers(0, SECOND)] * 4), min_size=1, max_size=6)


def evidence(rows: list[tuple[int, int, int, int]]) -> WorkerEvidence:
    return WorkerEvidence(
        worker="gw0",
        cpu=9.0,
        stalled=9,
        longest_stall=9,
        gc=9,
        seconds=np.array(rows, np.int64).reshape(-1, 4),
    )


@given(
    rows=ROWS, last=st.integers(1, 1000), start=st.integers(0, 6000), length=st.integers(1, 6000)
)
def test_a_time_slice_has_its_share_of_each_second(
    rows: list[tuple[int, int, int, int]], last: int, start: int, length: int
) -> None:
    """A second in which it begins or ends counts in proportion; the last second can be short."""
    phase = (len(rows) - 1) * SECOND + last * MILLISECOND
    begin, end = start * MILLISECOND, (start + length) * MILLISECOND
    shares = []
    for second in range(len(rows)):
        low, high = second * SECOND, min((second + 1) * SECOND, phase)
        shares.append(Fraction(max(min(end, high) - max(begin, low), 0), high - low))
    found = evidence(rows).during(begin, end - begin, phase)
    cpu, stalled, gc = (
        float(sum(row[i] * share for row, share in zip(rows, shares, strict=True)))
        for i in (0, 1, 3)
    )
    assert found.cpu == pytest.approx(cpu / (end - begin))
    assert (found.stalled, found.gc) == (pytest.approx(stalled, abs=1), pytest.approx(gc, abs=1))
    assert found.longest_stall == max(
        (row[2] for row, share in zip(rows, shares, strict=True) if share), default=0
    )
    assert (found.worker, found.seconds.shape) == ("gw0", (0, 4))


def test_a_time_slice_without_evidence_by_second_has_none() -> None:
    """Without evidence by second, a time slice has none."""
    found = WorkerEvidence(worker="a", cpu=0.5, stalled=1, longest_stall=1, gc=1).during(
        0, SECOND, 2 * SECOND
    )
    assert (found.cpu, found.stalled, found.longest_stall, found.gc) == (0.0, 0, 0, 0)


def opening(**changed: Any) -> Opening:
    every: dict[str, Any] = {
        "alone": True,
        "connections": 100,
        "rate": 50.0,
        "took": 1985 * MILLISECOND,
        "busiest": "gw0",
        "cpu": 0.1,
    }
    return Opening(**{**every, "begun_late": MILLISECOND, "in_time": 100, **changed})


@pytest.mark.parametrize(
    ("changed", "achieved"),
    [
        ({}, 50),
        ({"took": 4 * SECOND}, 25),
        ({"rate": None, "took": SECOND // 2}, 200),
        ({"connections": 1, "took": MILLISECOND}, 50),
    ],
)
def test_an_even_train_lasts_as_long_as_it_was_planned(
    changed: dict[str, Any], achieved: float
) -> None:
    """Connections that all come in time are as many a second as were asked for; the moment of the
    last one makes them no more.
    """
    assert opening(**changed).achieved == pytest.approx(achieved)
