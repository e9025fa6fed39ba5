"""The limits of a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.peak import DEEPEST, Ask, Spec, Step, readable
from pytest_loadtest.verdict.slo import Outcome

SPEC = Spec(
    start=1000,
    maximum=None,
    hold=30 * SECOND,
    confirm=60 * SECOND,
    warmup=5 * SECOND,
    precision=0.02,
    repeats=2,
)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ({"start": 0}, {"start": 1e-9}, "search.start is 0: write a rate above 0"),
        ({"start": float("inf")}, {"start": 1e300}, "search.start is inf"),
        ({"maximum": 999}, {"maximum": 1000}, "search.max 999 is below search.start 1000"),
        ({"hold": 0}, {"hold": 1}, "search.hold is 0"),
        (
            {"confirm": 30 * SECOND - 1},
            {"confirm": 30 * SECOND},
            "is shorter than search.hold 30.0 s",
        ),
        ({"warmup": -1}, {"warmup": 0}, "search.warmup is negative"),
        ({"precision": 0.0009}, {"precision": 0.001}, "search.precision is 0.09%"),
        ({"precision": 1.0}, {"precision": 0.999}, "search.precision is 100.00%"),
        ({"repeats": -1}, {"repeats": 0}, "search.repeats is -1"),
        (
            {"maximum": 2000, "floor": 2001},
            {"maximum": 2000, "floor": 2000},
            "the percentiles need 2001/s",
        ),
    ],
)
def test_the_limits_of_a_search_are_inclusive(
    wrong: dict[str, Any], right: dict[str, Any], message: str
) -> None:
    """One step further is an error that names the key."""
    with pytest.raises(UsageError, match=message):
        replace(SPEC, **wrong)
    replace(SPEC, **right)


def test_no_rate_of_a_search_is_below_the_floor() -> None:
    """The default floor is 0."""
    assert (SPEC.first, SPEC.lowest, SPEC.floor) == (1000, readable(1000 / DEEPEST), 0.0)
    floored = replace(SPEC, floor=3000)
    assert (floored.first, floored.lowest) == (3000, 3000)
    assert DEEPEST == 1024


@pytest.mark.parametrize(
    ("rate", "shown"), [(123456.0, 123460.0), (0.0123456, 0.012346), (20000.4, 20000.0)]
)
def test_a_rate_is_rounded_to_five_digits(rate: float, shown: float) -> None:
    assert readable(rate) == shown


def test_a_step_ended_early_cannot_be_met() -> None:
    ask = Ask(number=1, rate=1.0, duration=1, warmup=0, purpose="bracket")
    assert not Step(ask=ask, outcome=Outcome.MET).early
    assert Step(ask=ask, outcome=Outcome.MISSED, early=True).early
    with pytest.raises(ValueError, match="step 1 was ended early"):
        Step(ask=ask, outcome=Outcome.MET, early=True)
