"""The pauses of a worker's loop, and the stamps that they can have made late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_loadtest.metrics.clocks import ClockLine, Correction
from pytest_loadtest.metrics.pauses import SHORTEST, STALL, Pauses
from pytest_loadtest.values.quantities import MILLISECOND as MS
from pytest_loadtest.values.quantities import SECOND


def pauses(*ends: tuple[int, int], exact: bool = False) -> Pauses:
    """Pauses from begin to end, ms."""
    begin, end = (np.array(side, np.int64) * MS for side in zip(*ends, strict=True))
    return Pauses(begin=begin, end=end, since=begin, until=end, exact=exact)


def waited(paused: Pauses, at: float, floor: float, lag: float = -1) -> float:
    """The part of one stamp, all ms; a lag below 0 is unknown."""
    known = -1 if lag < 0 else int(lag * MS)
    (part,) = paused.waited(*(np.array([int(ns)]) for ns in (at * MS, floor * MS, known)))
    return float(part / MS)


@pytest.mark.parametrize(
    ("at", "floor", "part"),
    [
        (990, 900, 0),  # before the pause
        (2001, 900, 1000),  # there before the pause began, at the latest
        (2001, 1700, 301),  # sent in the pause
        (2001, 2000, 1),
        (2900, 1700, 1000),  # worked off after the stall, or held back by the target until then
        (3001, 1700, 0),  # as long again as the stall took
    ],
)
def test_a_stamp_of_the_client_is_late_by_the_stall_at_most(
    at: float, floor: float, part: float
) -> None:
    assert waited(pauses((1000, 2000)), at, floor) == part


def test_a_short_pause_has_no_consequences() -> None:
    """Nothing waits for a client that takes no longer than usual."""
    assert waited(pauses((1000, 1040)), 1041, 900) == 40
    assert waited(pauses((1000, 1040)), 1043, 900) == 0


def test_a_stamp_of_the_kernel_is_late_by_what_its_lag_has_beyond_the_pause() -> None:
    """A copy with a stamp of its own in a stall came then: the target was slow."""
    assert (
        waited(pauses((1000, 2000)), 1800, 1000, lag=210) == 10
    )  # it was taken 10 ms after the stall
    assert waited(pauses((1000, 2000)), 1800, 1000, lag=200 + 500) == 500  # merged with a later one
    assert waited(pauses((1000, 2000)), 1800, 1700, lag=200 + 500) == 100


def test_a_later_short_pause_does_not_hide_a_stall() -> None:
    assert waited(pauses((1000, 2000), (2010, 2015)), 2100, 900) == 1000


@pytest.mark.parametrize(
    ("later", "at", "lag", "part"),
    [
        ((1030, 2000), 1100, 0, 1000),  # stamped by the kernel within the later one
        ((1030, 2000), 1100, -1, 1000),
        ((1300, 1800), 1900, -1, 1000),  # after both, of which the first has the longer effect
        ((1300, 1800), 2100, -1, 500),
        ((1300, 1800), 2400, -1, 0),
    ],
)
def test_a_later_stall_does_not_hide_an_earlier_one(
    later: tuple[int, int], at: int, lag: int, part: int
) -> None:
    assert waited(pauses((0, 1000), later), at, 50, lag) == part


def test_threads_of_a_client_that_went_on_were_not_delayed() -> None:
    """The loop stood still for a second, and its client took something every 20 ms."""
    begin, end = np.array([1000 * MS]), np.array([2000 * MS])
    went_on = Pauses(
        begin=begin, end=end, since=np.array([1500 * MS]), until=np.array([1520 * MS]), exact=False
    )
    assert waited(went_on, 2001, 900) == 0
    assert waited(went_on, 1520, 900) == 20
    assert went_on.stalled


spans = st.lists(st.tuples(st.integers(0, 100), st.integers(3, 400)), min_size=1, max_size=8)


@given(gaps=spans, at=st.integers(0, 6000), took=st.integers(0, 3000), lag=st.integers(-1, 1000))
def test_a_part_is_never_more_than_the_pauses_or_the_time_itself(
    gaps: list[tuple[int, int]], at: int, took: int, lag: int
) -> None:
    edges = np.cumsum(np.array(gaps).ravel()).reshape(-1, 2)
    paused = pauses(*((int(begin), int(end)) for begin, end in edges))
    part = waited(paused, at, at - took, lag)
    begun = edges[edges[:, 0] < at]
    assert 0 <= part <= took
    assert part <= (begun[:, 1] - begun[:, 0]).max(initial=0)
    assert not part or any(
        at <= 2 * end - begin or at <= end + SHORTEST // MS for begin, end in begun
    )


@given(
    gaps=spans,
    more=st.integers(0, 7),
    at=st.integers(0, 6000),
    took=st.integers(0, 3000),
    lag=st.integers(-1, 1000),
)
def test_one_more_pause_excuses_no_less_of_what_came_outside_of_it(
    gaps: list[tuple[int, int]], more: int, at: int, took: int, lag: int
) -> None:
    edges = np.cumsum(np.array(gaps).ravel()).reshape(-1, 2)
    more %= len(edges)
    begin, end = edges[more]
    assume(len(edges) > 1 and not begin < at <= end)
    all_pauses = [(int(begin), int(end)) for begin, end in edges]
    others = all_pauses[:more] + all_pauses[more + 1 :]
    known = waited(pauses(*others), at, at - took, lag)
    assert waited(pauses(*all_pauses), at, at - took, lag) >= known


def test_a_manifests_pauses_are_read_with_the_correction_of_the_clock() -> None:
    document: dict[str, Any] = {
        "begin": [SECOND],
        "end": [2 * SECOND],
        "since": [SECOND],
        "until": [2 * SECOND],
        "exact": True,
        "late": {"due": [SECOND], "sent": [2 * SECOND]},
    }
    better = Correction(
        used=ClockLine(at=0, offset=0, drift=0.0), better=ClockLine(at=0, offset=-5, drift=0.0)
    )
    assert Pauses.of_document(document, better).begin.tolist() == [SECOND + 5]
    with pytest.raises(ValueError, match="pauses have columns of different lengths"):
        Pauses.of_document({**document, "end": []})
    with pytest.raises(ValueError, match="late sends have columns of different lengths"):
        Pauses.of_document({**document, "late": {"due": [], "sent": [0]}})
    with pytest.raises(ValueError, match="late sends are not in the order of time"):
        Pauses.of_document({**document, "late": {"due": [1, 0], "sent": [3, 3]}})
    with pytest.raises(ValueError, match="pauses are not in the order of time"):
        Pauses.of_document({**document, "end": [0]})


def test_the_time_of_a_late_send_is_corrected_and_the_intended_time_is_that_of_the_plan() -> None:
    """A host's clock was 5 ns behind; sent rows are corrected alike."""
    document: dict[str, Any] = {
        "begin": [],
        "end": [],
        "since": [],
        "until": [],
        "exact": True,
        "late": {"due": [100], "sent": [200]},
    }
    better = Correction(
        used=ClockLine(at=0, offset=0, drift=0.0), better=ClockLine(at=0, offset=-5, drift=0.0)
    )
    assert Pauses.of_document(document, better).until_sent(
        np.array([99, 100, 150, 300])
    ).tolist() == [0, 105, 55, 0]


def test_a_worker_without_pauses_delays_nothing() -> None:
    none = Pauses.of_document(
        {
            "begin": [],
            "end": [],
            "since": [],
            "until": [],
            "exact": False,
            "late": {"due": [], "sent": []},
        }
    )
    assert not none.stalled
    assert pauses((0, STALL // MS + 1)).stalled
    assert not pauses((0, STALL // MS)).stalled
