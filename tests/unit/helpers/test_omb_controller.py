"""The rule with which OpenMessaging Benchmark searches for the highest rate, compared with its published behaviour."""

from __future__ import annotations

import omb_controller
import pytest
from omb_controller import OmbController

from pytest_loadtest.values.quantities import SECOND


def test_omb_doubles_the_rate_without_a_backlog() -> None:
    """It goes from 10 000 msg/s to 20 000 and 40 000."""
    rule = OmbController()
    assert rule.next_rate(SECOND, 10_000, 10_000) == 20_000
    assert rule.next_rate(SECOND, 30_000, 30_000) == 40_000


@pytest.mark.parametrize(("published", "received"), [(30_000, 25_000), (25_000, 25_000)])
def test_omb_backs_off_after_a_backlog_of_more_than_a_thousand(
    published: int, received: int
) -> None:
    """With 5 000 messages waiting at 20 000 msg/s, before or after the broker, it uses the last second's rate and halves the ramp."""
    rule = OmbController()
    rule.next_rate(SECOND, 10_000, 10_000)
    assert rule.next_rate(SECOND, published, received) == 15_000
    assert rule.ramping == 0.5


def test_omb_ignores_a_backlog_of_a_thousand_messages() -> None:
    rule = OmbController()
    assert rule.next_rate(SECOND, 9_000, 8_000) == 20_000


def test_omb_never_ramps_by_less_than_a_hundredth() -> None:
    rule = OmbController()
    for _ in range(20):
        rule.next_rate(SECOND, 2_000, 0)
    assert rule.ramping == omb_controller.MIN_RAMPING_FACTOR


def test_omb_stays_at_rate_0() -> None:
    """A backlog of more than a period's messages sets the rate to 0, and multiplying 0 never raises it."""
    rule = OmbController()
    assert rule.next_rate(SECOND, 30_000, 0) == 0
    assert rule.next_rate(SECOND, 30_000, 30_000) == 0
