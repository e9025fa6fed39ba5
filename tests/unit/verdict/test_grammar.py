"""``slo: {regression: …}``: valid and invalid bounds."""

from __future__ import annotations

from typing import Any

import pytest
from builders.objectives import InvalidSlo, parse_slo

from pytest_loadtest.verdict.objectives import Slo

BOTH = {"regression": {"endToEndLatency.p99": "10%", "throughput": "5 %"}}


def test_a_regression_bound_is_a_share() -> None:
    """p99.90 is p99.9, and latency may be worse by more than 100 %."""
    found = Slo.read({"regression": {"endToEndLatency.p99.90": "150%", "throughput": "5 %"}}).gates
    assert [(gate.name, gate.maximum, gate.unit) for gate in found] == [
        ("regression.endToEndLatency.p99.9", 1.5, "ratio"),
        ("regression.throughput", 0.05, "ratio"),
    ]


def test_regression_bounds_are_not_objectives_of_the_run() -> None:
    assert all(one.implicit for one in parse_slo(BOTH))
    assert Slo.read({"throughput": "99%"}).gates == ()
    assert [gate.statistic for gate in Slo.read(BOTH).gates] == [
        "endToEndLatency.p99",
        "throughput",
    ]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "regression: bounds no figure (write regression: {endToEndLatency.p99: 10%})"),
        (None, "regression: bounds no figure (write regression: {endToEndLatency.p99: 10%})"),
        ({"endToEndLatency.p99": None}, "regression.endToEndLatency.p99: has no value (write 10%)"),
        ({"endToEndLatency.p99": "10ms"}, "regression.endToEndLatency.p99: '10ms' is not a percentage (write 10%)"),
        ({"endToEndLatency.p99": {"max": "10%"}}, "regression.endToEndLatency.p99: {'max': '10%'} is not a percentage (write 10%)"),
        ({"endToEndLatency.p99": 0.1}, "regression.endToEndLatency.p99: 0.1 is not a percentage (write 10%)"),
        ({"endToEndLatency.p99": "0%"}, "regression.endToEndLatency.p99: '0%' would fail every run: two runs always differ by noise (write 5%)"),
        ({"throughput": "100%"}, "regression.throughput: '100%' allows any drop (write 5%)"),
        ({"endToEndLatency.p101": "5%"}, "regression.endToEndLatency.p101: percentile 101 is out of range: write one above 0 and below 100"),
        ({"thruput": "5%"}, "regression.thruput: 'thruput' is not a figure that can be compared with a baseline (did you mean throughput?)"),
        ({"publishLatency": "5%"}, "regression.publishLatency: 'publishLatency' is not a figure that can be compared with a baseline (known: throughput, endToEndLatency.p50, endToEndLatency.p90, endToEndLatency.p99, endToEndLatency.p99.9)"),
        ({"endToEndLatency.max": "5%"}, "regression.endToEndLatency.max: 'endToEndLatency.max' is not a figure that can be compared with a baseline (did you mean endToEndLatency.p99 or endToEndLatency.p90?)"),
        ({"endToEndLatency.p50": "5%", "endToEndLatency.p50.0": "6%"}, "regression.endToEndLatency.p50.0: 'endToEndLatency.p50.0' is the same percentile as one before it (remove one)"),
    ],
)  # fmt: skip
def test_a_wrong_regression_bound_is_a_problem(section: Any, said: str) -> None:
    """With what to write."""
    with pytest.raises(InvalidSlo) as raised:
        parse_slo({"regression": section})
    assert str(raised.value) == said
