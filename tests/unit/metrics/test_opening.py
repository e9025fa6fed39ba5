"""How many connections a second came up."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.metrics.opening import Opening
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


def opening(**changed: Any) -> Opening:
    every: dict[str, Any] = {"alone": True, "connections": 100, "rate": 50.0, "took": 1985 * MILLISECOND, "busiest": "gw0", "cpu": 0.1}
    return Opening(**{**every, "begun_late": MILLISECOND, "in_time": 100, **changed})


@pytest.mark.parametrize(
    ("changed", "achieved"),
    [({}, 50), ({"took": 4 * SECOND}, 25), ({"rate": None, "took": SECOND // 2}, 200), ({"connections": 1, "took": MILLISECOND}, 50)],
)
def test_an_even_train_lasts_as_long_as_it_was_planned(changed: dict[str, Any], achieved: float) -> None:
    """Connections that all come in time are as many a second as were asked for; the moment of the last one makes them no more."""
    assert opening(**changed).achieved == pytest.approx(achieved)
