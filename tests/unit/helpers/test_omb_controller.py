"""The rule by which OpenMessaging Benchmark looks for the highest rate, held against what OMB publishes."""

from __future__ import annotations

import omb_controller
import pytest
from omb_controller import OmbController

from pytest_loadtest.values.quantities import SECOND


def test_omb_doubles_while_nothing_is_left_behind() -> None:
    """From 10 000 msg/s: 20 000, 40 000."""
    rule = OmbController()
    assert rule.next_rate(SECOND, 10_000, 10_000) == 20_000
    assert rule.next_rate(SECOND, 30_000, 30_000) == 40_000


@pytest.mark.parametrize(("published", "received"), [(30_000, 25_000), (25_000, 25_000)])
def test_omb_backs_off_from_a_backlog_of_more_than_a_thousand(published: int, received: int) -> None:
    """5 000 messages behind at 20 000 msg/s, be it in front of the broker or behind it: no faster than the last second went, half the ramp."""
    rule = OmbController()
    rule.next_rate(SECOND, 10_000, 10_000)
    assert rule.next_rate(SECOND, published, received) == 15_000
    assert rule.ramping == 0.5


def test_omb_does_not_see_a_thousand_messages() -> None:
    """A backlog at the limit is none."""
    rule = OmbController()
    assert rule.next_rate(SECOND, 9_000, 8_000) == 20_000


def test_omb_never_ramps_by_less_than_a_hundredth() -> None:
    """However often it backs off."""
    rule = OmbController()
    for _ in range(20):
        rule.next_rate(SECOND, 2_000, 0)
    assert rule.ramping == omb_controller.MIN_RAMPING_FACTOR


def test_omb_does_not_come_back_from_zero() -> None:
    """A backlog of more than a period's messages takes the rate to 0, and 0 times anything stays 0."""
    rule = OmbController()
    assert rule.next_rate(SECOND, 30_000, 0) == 0
    assert rule.next_rate(SECOND, 30_000, 30_000) == 0
