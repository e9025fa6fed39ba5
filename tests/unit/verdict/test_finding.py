"""Observed values next to their bounds."""

from __future__ import annotations

from typing import Any

import pytest
from builders.objectives import parse_slo

from pytest_loadtest.verdict.finding import show


def test_a_bound_that_holds_shows_no_distance() -> None:
    """Both bounds are next to the value."""
    (objective, *_) = parse_slo({"publishLatency": {"p99": {"min": "1ms", "max": "50ms"}}})
    assert show(objective, 2e6).comparison == "2.00 ms >= 1.00 ms and <= 50.0 ms"
    assert show(objective, 0.5e6).comparison == "500 µs < 1.00 ms: short by 50 %"


@pytest.mark.parametrize(
    ("section", "value", "text"),
    [
        ({"publishLatency": {"p99": "50ms"}}, 50e6, "50.0 ms <= 50.0 ms"),
        ({"publishLatency": {"p99": "50ms"}}, 83e6, "83.0 ms > 50.0 ms: over by 66 %"),
        (
            {"publishLatency": {"p99": "50ms"}},
            50e6 * (1 + 1e-9),
            "50.00000005 ms > 50 ms: over by 0.0000001 %",
        ),
        ({"publishLatency": {"p99": {"min": "1ms"}}}, 1e6, "1.00 ms >= 1.00 ms"),
        ({"throughput": "99%"}, 0.99 * (1 - 1e-10), "99 % >= 99 %"),
        ({"throughput": "99%"}, 0.98, "98 % < 99 %: short by 1 %"),
        ({"throughput": {"max": "100/s"}}, 100 * (1 + 1e-10), "100.0 msg/s <= 100 msg/s"),
        ({"throughput": {"max": "100/s"}}, 150.0, "150 msg/s > 100 msg/s: over by 50 %"),
        ({"loss": {"min": 3, "max": 5}}, 2, "2 < 3: 1 too few"),
        ({"loss": {"min": 3, "max": 5}}, 5, "5 >= 3 and <= 5"),
    ],
)
def test_bounds_are_inclusive_and_allow_for_rounding(
    section: dict[str, Any], value: float, text: str
) -> None:
    assert show(parse_slo(section)[0], value).comparison == text
