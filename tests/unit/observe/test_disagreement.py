"""The broker's count of what it dropped against ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_measurements import made_counts

from pytest_loadtest.observe.disagreement import disagreement
from pytest_loadtest.observe.telemetry import Telemetry


def counted(*dropped: float) -> Telemetry:
    """The broker's counter, second by second."""
    return Telemetry(time=np.arange(len(dropped)), columns={"sys.dropped": np.array(dropped, np.float64)})


def test_more_than_we_found_is_told() -> None:
    """What it had dropped before is no matter."""
    assert disagreement(counted(math.nan, 1000, 1000, 1150), made_counts(lost=30), 1) == (
        "the broker dropped 150 messages ($SYS/broker/publish/messages/dropped), and 30 are missing by our count:"
        " another client of it missed the others, or a count is wrong"
    )


@pytest.mark.parametrize(
    ("counts", "subscriptions"),
    [({"lost": 150}, 1), ({"lost": 4000}, 1), ({"lost": 50, "unknown": 50}, 2), ({"failed": 150}, 1)],
)  # fmt: skip
def test_ours_may_be_more(counts: dict[str, int], subscriptions: int) -> None:
    """A lost connection costs messages that the broker never dropped; one that it did not acknowledge may be one that it dropped."""
    assert disagreement(counted(1000, 1150), made_counts(**counts), subscriptions) is None


@pytest.mark.parametrize("dropped", [(), (7,), (math.nan, math.nan), (900, 3, 1150)])
def test_what_is_not_known_is_no_error(dropped: tuple[float, ...]) -> None:
    """Not published, published once, or counted anew after a restart."""
    assert disagreement(counted(*dropped), made_counts(), 1) is None
