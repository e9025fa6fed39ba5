"""One time slice of a run: its moments, and the generator's own share in its throughput."""

from __future__ import annotations

import pytest

from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slices import late_sends, moment


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (730, "0:12:10"), (86_400, "24:00:00")]
)
def test_a_moment_is_a_time_since_the_start(seconds: int, text: str) -> None:
    """Hours, minutes, seconds."""
    assert moment(seconds * SECOND) == text


@pytest.mark.parametrize(
    ("bound", "late", "came", "excused"),
    [
        (0.95, 50, 50, True),
        (0.95, 49, 50, False),
        (0.95, 50, 49, False),
        (0.9, 50, 50, False),
        (None, 50, 50, False),
    ],
    ids=["enough", "few late", "few came", "met", "no bound"],
)
def test_late_sends_excuse_a_throughput_that_would_hold_with_them(
    bound: float | None, late: int, came: int, excused: bool
) -> None:
    """900 of 1 000 messages were in time; only what was late by the generator, and came, counts."""
    why = late_sends(0.9, bound, late, came, 1000)
    assert (why is not None) is excused
