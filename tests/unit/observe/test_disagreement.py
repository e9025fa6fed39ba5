"""The broker's count of what it dropped against ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders.measurements import made_counts

from pytest_loadtest.observe.disagreement import Disagreement, disagreement
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry


def counted(*dropped: float) -> Telemetry:
    """The broker's counter, second by second."""
    return Telemetry(time=np.arange(len(dropped)), columns={"sys.dropped": np.array(dropped, np.float64)})


def test_more_than_we_found_is_told() -> None:
    """What it had dropped before is no matter."""
    assert disagreement(counted(math.nan, 1000, 1000, 1150), made_counts(lost=30), 1) == Disagreement(
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


def totals(taken: float, given: float, continuous: float = math.nan) -> Telemetry:
    """What the broker counted in and out, told at the end; and whether the times at which topics were loaded show that it counted on."""
    columns = {
        "sys.totalIn": np.array([math.nan, taken]),
        "sys.totalOut": np.array([math.nan, given]),
        "sys.continuous": np.array([1.0, continuous]),
    }
    return Telemetry(time=np.arange(2), columns=columns)


def test_fewer_than_we_had_confirmed_or_received_is_told() -> None:
    counts = made_counts(acked=1000, received=1900, duplicates=100)
    assert disagreement(totals(999, 2000), counts, 2) == Disagreement(
        "the broker took 999 messages (pulsar_in_messages_total), and 1 000 were acknowledged to us by our count: one of the two is wrong"
    )
    assert disagreement(totals(1000, 1999), counts, 2) == Disagreement(
        "the broker gave out 1 999 messages (pulsar_out_messages_total), and 2 000 were received by our count: one of the two is wrong"
    )


@pytest.mark.parametrize(("taken", "given"), [(1000, 2000), (9000, 9000), (math.nan, math.nan), (math.nan, 2000)])
def test_it_may_have_counted_more(taken: float, given: float) -> None:
    """Chunks, what was sent again, what others sent; and what it does not tell is no error."""
    assert disagreement(totals(taken, given), made_counts(acked=1000, received=1900, duplicates=100), 2) is None


@pytest.mark.parametrize(("continuous", "certain"), [(1.0, True), (0.0, False), (math.nan, False)])
def test_a_shared_broker_that_took_fewer_is_an_error_where_its_counters_cannot_have_begun_anew(continuous: float, certain: bool) -> None:
    """Others can only raise its number; a topic that was loaded anew begins at 0."""
    counts = made_counts(acked=1000, received=1900, duplicates=100)
    for found in (totals(999, 2000, continuous), totals(1000, 1999, continuous)):
        told = disagreement(found, counts, 2, shared=True)
        assert told is not None
        assert told.certain == certain


def test_an_uncertain_shortfall_names_the_other_explanation() -> None:
    told = disagreement(totals(999, 2000, 0.0), made_counts(acked=1000), 2, shared=True)
    assert told == Disagreement(
        "the broker took 999 messages (pulsar_in_messages_total), and 1 000 were acknowledged to us by our count: one of the two is wrong,"
        " or it began to count anew when it loaded a topic again",
        certain=False,
    )


def test_drops_at_a_shared_broker_may_be_another_clients() -> None:
    told = disagreement(counted(1000, 1150), made_counts(lost=30), 1, shared=True)
    assert told is not None
    assert not told.certain


def test_a_certain_disagreement_goes_before_a_possible_one() -> None:
    """What may be another client's loss does not hide what cannot be."""
    both = Telemetry(time=np.arange(2), columns={**counted(1000, 1150).columns, **totals(999, 2000, 1.0).columns})
    told = disagreement(both, made_counts(acked=1000, received=2000), 2, shared=True)
    assert told is not None
    assert told.certain
    assert "took 999 messages" in told.text


def test_a_total_that_falls_is_compared_with_nothing() -> None:
    fell = Telemetry(time=np.arange(2), columns={"sys.totalIn": np.array([900.0, 10.0])})
    assert disagreement(fell, made_counts(acked=1000), 1) is None


def test_drops_after_the_brokers_clock_began_anew_are_compared_with_nothing() -> None:
    """It was restarted, and dropped more since then than it had before."""
    columns = {"sys.dropped": np.array([7.0, 1150.0]), "sys.uptime": np.array([500.0, 3.0])}
    assert disagreement(Telemetry(time=np.arange(2), columns=columns), made_counts(), 1) is None


def lost(*continuous: float, dropped: float = math.nan) -> Telemetry:
    """The source of the broker's counters ended; what it told before, besides something that is always there."""
    n = len(continuous)
    columns = {"sys.heap": np.full(n, 1.0), "sys.continuous": np.array(continuous), "sys.dropped": np.full(n, dropped)}
    return Telemetry(time=np.arange(n), columns=columns, lost={COUNTERS: "broker's own counters: KeyError: 'x', 12 s into the phase"})


@pytest.mark.parametrize(
    ("telemetry", "shared", "certain"),
    [
        (lost(1.0, 1.0), True, True),
        (lost(1.0, 0.0), True, False),
        (lost(1.0, 0.0), False, True),
        (lost(math.nan, dropped=0), False, True),
        (lost(math.nan, dropped=0), True, False),
    ],
)
def test_counts_that_were_being_compared_and_are_lost_are_no_data_where_a_contradiction_would_be(
    telemetry: Telemetry, shared: bool, certain: bool
) -> None:
    assert disagreement(telemetry, made_counts(), 1, shared=shared) == Disagreement(
        "broker's own counters: KeyError: 'x', 12 s into the phase: the broker's counts cannot be compared with ours",
        certain=certain,
        compared=False,
    )


@pytest.mark.parametrize("telemetry", [lost(1.0, math.nan), lost()])
def test_counts_that_could_not_be_compared_are_no_loss(telemetry: Telemetry) -> None:
    """They had begun anew before, or were never told."""
    assert disagreement(telemetry, made_counts(), 1) is None


def test_a_restart_on_purpose_ends_the_comparison() -> None:
    assert disagreement(lost(math.nan, dropped=0), made_counts(), 1, restarted=True) is None
