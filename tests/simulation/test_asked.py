"""The load that a profile asks for is the integral of its rate, and a message is due at each whole amount."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.asked import Due
from simulation.world import MS, SECOND


def due(*stages: dict[str, Any], **keys: Any) -> Due:
    return Due.of({"producerRate": 100, "stages": list(stages), **keys}, 2 * SECOND)


@pytest.mark.parametrize(
    ("rate", "messages"), [(100, 200), (99.6, 200), (0.5, 1), (33.3, 67), (0.001, 1)]
)
def test_the_first_message_is_due_at_once(rate: float, messages: int) -> None:
    assert due(producerRate=rate).messages(2 * SECOND) == messages


def test_a_stage_without_a_rate_has_that_of_the_profile() -> None:
    both = due({"name": "a", "duration": "1s"}, {"name": "b", "duration": "500ms", "rate": 10})
    assert both.length == 1_500 * MS
    assert both.amount(both.length) == 105
    assert both.messages(both.length) == 105
    assert both.messages(both.length - MS) == 105


def test_a_ramp_holds_each_rate_for_a_tenth_of_a_second() -> None:
    ramp = due({"name": "a", "duration": "2s", "rate": {"from": 0, "to": 100}})
    assert ramp.amount(50 * MS) == pytest.approx(0.125)
    assert ramp.amount(SECOND) == pytest.approx(25)
    assert ramp.amount(2 * SECOND) == pytest.approx(100)
    assert (ramp.messages(SECOND), ramp.messages(2 * SECOND)) == (25, 100)


def test_a_number_that_the_rounding_of_rates_decides_is_not_exact() -> None:
    level = {"replay": [10.0001, 10.0001]}
    assert due({"name": "a", "duration": "2s", "rate": level}).messages(2 * SECOND) is None


def test_a_spike_has_its_peak_for_its_time() -> None:
    spike = {"spike": {"base": 10, "peak": 100, "at": "500ms", "for": "200ms"}}
    assert due({"name": "a", "duration": "1s", "rate": spike}).amount(SECOND) == 28


def test_levels_of_a_replay_are_equally_long() -> None:
    levels = {"replay": [10, 20, 30]}
    assert due({"name": "a", "duration": "3s", "rate": levels}).amount(2 * SECOND) == 30


def test_a_period_of_a_sine_has_its_mean() -> None:
    sine = {"sine": {"mean": 50, "amplitude": 20, "period": "1s"}}
    wave = due({"name": "a", "duration": "2s", "rate": sine})
    assert wave.amount(SECOND) == pytest.approx(50, abs=0.1)
    assert wave.amount(SECOND // 2) > 30


def test_a_short_period_of_a_sine_has_ten_rates() -> None:
    sine = {"sine": {"mean": 50, "amplitude": 20, "period": "100ms"}}
    rates = [piece.rate for piece in due({"name": "a", "duration": "100ms", "rate": sine}).pieces]
    assert len(rates) == 10
    assert (max(rates), min(rates)) == (70, 30)


def test_bytes_are_counted_and_not_messages() -> None:
    bytes_due = due(producerRate="5000B/s")
    assert bytes_due.in_bytes
    assert bytes_due.amount(SECOND) == 5_000
    assert bytes_due.messages(SECOND) is None
