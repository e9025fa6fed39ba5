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


def totals(taken: float, given: float) -> Telemetry:
    """What the broker counted in and out, told at the end."""
    columns = {"sys.totalIn": np.array([math.nan, taken]), "sys.totalOut": np.array([math.nan, given])}
    return Telemetry(time=np.arange(2), columns=columns)


def test_fewer_than_we_had_confirmed_or_received_is_told() -> None:
    counts = made_counts(acked=1000, received=1900, duplicates=100)
    assert disagreement(totals(999, 2000), counts, 2) == (
        "the broker took 999 messages (pulsar_in_messages_total), and 1 000 were acknowledged to us by our count: one of the two is wrong"
    )
    assert disagreement(totals(1000, 1999), counts, 2) == (
        "the broker gave out 1 999 messages (pulsar_out_messages_total), and 2 000 were received by our count: one of the two is wrong"
    )


@pytest.mark.parametrize(("taken", "given"), [(1000, 2000), (9000, 9000), (math.nan, math.nan), (math.nan, 2000)])
def test_it_may_have_counted_more(taken: float, given: float) -> None:
    """Chunks, what was sent again, what others sent; and what it does not tell is no error."""
    assert disagreement(totals(taken, given), made_counts(acked=1000, received=1900, duplicates=100), 2) is None
