"""``slo: {custom: …}``: bounds on the values of ``pytest_loadtest_aggregate``."""

from __future__ import annotations

from typing import Any

import pytest
from builders.measurements import Limits, made
from builders.objectives import InvalidSlo, parse_slo

from pytest_loadtest.values.units import Duration, Rate, ms
from pytest_loadtest.verdict.objectives import explicit, scale_objectives
from pytest_loadtest.verdict.slo import Outcome, evaluate


def judged(bound: Any, custom: dict[str, Any]) -> tuple[Outcome, str]:
    """The finding on ``gold.p99``."""
    (found,) = [one for one in evaluate(parse_slo({"custom": {"gold.p99": bound}}), made(custom=custom), Limits()).findings if one.objective.metric == "custom"]  # fmt: skip
    assert found.objective.name == "custom.gold.p99"
    return found.outcome, found.text


@pytest.mark.parametrize(
    ("bound", "value", "outcome", "text"),
    [
        ("50ms", ms(12), Outcome.MET, "12.0 ms <= 50.0 ms"),
        ("50ms", ms(83), Outcome.MISSED, "83.0 ms > 50.0 ms: over by 66 %"),
        ({"min": "50ms"}, ms(12), Outcome.MISSED, "12.0 ms < 50.0 ms: short by 76 %"),
        ({"min": "500/s"}, Rate(499), Outcome.MISSED, "499 msg/s < 500 msg/s: short by 0.2 %"),
        (
            {"min": "500 msg/s", "max": "600/s"},
            500,
            Outcome.MET,
            "500 msg/s >= 500 msg/s and <= 600 msg/s",
        ),
        ("30%", 0.25, Outcome.MET, "25 % <= 30 %"),
        (0.3, 0.25, Outcome.MET, "0.25 <= 0.3"),
        ("1e3", 1001.0, Outcome.MISSED, "1001 > 1000: over by 0.1 %"),
        (0, 0.5, Outcome.MISSED, "0.5 > 0: over by 0.5"),
        ({"min": -2}, -2.5, Outcome.MISSED, "-2.5 < -2: short by 0.5"),
    ],
)
def test_a_single_bound_is_an_upper_bound(
    bound: Any, value: Any, outcome: Outcome, text: str
) -> None:
    """Durations, rates, shares and plain numbers."""
    assert judged(bound, {"gold.p99": value}) == (
        outcome,
        f"custom.gold.p99 {text} (returned by pytest_loadtest_aggregate)",
    )


@pytest.mark.parametrize(
    ("bound", "custom", "why"),
    [
        (
            "50ms",
            {},
            "pytest_loadtest_aggregate did not return it; nothing implements the hook, or it returned nothing",
        ),
        (
            "50ms",
            {"gold.p9": ms(1), "b": 1.0},
            "pytest_loadtest_aggregate did not return it; it returned b, gold.p9",
        ),
        ("50ms", {"gold.p99": None}, "pytest_loadtest_aggregate returned None for it"),
        (
            "50ms",
            {"gold.p99": 12.0},
            "the value (12.0) has no unit but the bound is a duration: return ms(…)",
        ),
        (
            50,
            {"gold.p99": ms(12)},
            "the value is a duration (12.0 ms) but the bound has no unit: write e.g. 50ms",
        ),
    ],
)
def test_a_missing_value_or_another_unit_is_no_data(
    bound: Any, custom: dict[str, Any], why: str
) -> None:
    assert judged(bound, custom) == (Outcome.NO_DATA, f"custom.gold.p99: {why}")


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        (None, (), "bounds no metric"),
        ({}, (), "bounds no metric"),
        ({"a": "5 parsecs"}, ("a",), "'5 parsecs' is not a bound"),
        ({"a": True}, ("a",), "True is not a bound"),
        ({"a": None}, ("a",), "has no bound"),
        ({"a": {}}, ("a",), "has no bound"),
        ({"a": float("nan")}, ("a",), "nan is not a bound"),
        ({"a": "200MB/s"}, ("a",), "'200MB/s' is not a bound"),
        ({"a": {"min": "5 parsecs"}}, ("a", "min"), "'5 parsecs' is not a bound"),
        ({"a": {"least": 1}}, ("a", "least"), "'least' is not a bound"),
        ({"a": {"min": "1ms", "max": 5}}, ("a",), "min and max have different units"),
        ({"a": {"min": 5, "max": 1}}, ("a",), "min is above max"),
        ({7: 1}, (7,), "7 is not a name"),
    ],
)
def test_a_wrong_bound_is_a_problem_at_its_path(
    section: Any, path: tuple[Any, ...], message: str
) -> None:
    """With all other problems of the section."""
    with pytest.raises(InvalidSlo) as caught:
        parse_slo({"custom": section, "loss": -1})
    messages = {problem.path: problem.message for problem in caught.value.problems}
    assert messages["custom", *path] == message
    assert ("loss",) in messages


def test_custom_objectives_are_explicit_objectives() -> None:
    """Rates shrink with the load, other bounds do not; none is a percentile."""
    found = explicit(parse_slo({"custom": {"p99": "50ms", "rate": {"min": "500/s"}, "share": 0.3}}))
    assert [one.percentile for one in found] == [None] * 3
    assert [(one.minimum, one.maximum) for one in scale_objectives(found, 0.1, 0.5)] == [
        (None, 50e6),
        (50, None),
        (None, 0.3),
    ]
    assert Duration(50e6) == ms(50)
