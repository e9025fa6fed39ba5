"""The rig: bursts that are offered in parts, and the clock."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from null_driver import NullDriver

from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.testing import FakeClock, Subject, rig
from pytest_loadtest.testing.rig import FIRST_ROW, select_messages

SUBJECT = Subject(
    driver=partial(NullDriver, window=3),
    target=TargetAddress(url="null://"),
    settings=None,
    window=3,
)


def test_a_burst_is_offered_until_all_of_it_is_taken() -> None:
    """A window of 3 takes 10 messages of each stream in several parts; each is answered once, under its own row."""
    with rig(SUBJECT, streams=2) as r:
        burst = r.burst(10)
        left = r.offer(burst)
        assert left.tolist() == list(range(6, 20)), "the driver took a window of each stream"
        assert burst.row.tolist() == list(range(FIRST_ROW, FIRST_ROW + 20)), (
            "the driver's copy is overwritten, not the burst"
        )
        r.finish(burst)
        r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
        assert [r.answers(stream).seq.tolist() for stream in (0, 1)] == [list(range(10))] * 2
        assert sorted(r.heads(0).seq.tolist()) == sorted(list(range(10)) * 2)


def test_messages_are_selected_by_position_or_mask() -> None:
    with rig(SUBJECT, streams=2) as r:
        burst = r.burst(3)
        by_mask, by_position = (
            select_messages(burst, burst.stream == 1),
            select_messages(burst, np.array([1, 3, 5])),
        )
        assert (
            by_mask.row.tolist()
            == by_position.row.tolist()
            == [FIRST_ROW + 1, FIRST_ROW + 3, FIRST_ROW + 5]
        )
        assert by_mask.key is None


def test_a_fake_clock_moves_only_when_it_is_advanced() -> None:
    """Reading it does not move it; sleep and advance do, exactly."""
    clock = FakeClock(5)
    assert [clock(), clock()] == [5, 5]
    clock.sleep(10)
    clock.advance(1)
    assert clock() == 16
    with pytest.raises(ValueError, match="ns=-1"):
        clock.advance(-1)
