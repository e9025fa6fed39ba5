"""The comparison of the broker's counts with ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders.measurements import OTHERS_SEND, made_counts

from pytest_loadtest.observe.disagreement import Disagreement, disagreement
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry


def counted(*dropped: float) -> Telemetry:
    """Return samples of the broker's counter, one a second."""
    return Telemetry(
        time=np.arange(len(dropped)), columns={"sys.dropped": np.array(dropped, np.float64)}
    )


def test_more_drops_than_missing_messages_is_a_contradiction() -> None:
    """Drops before the run do not count."""
    assert disagreement(
        counted(math.nan, 1000, 1000, 1150), made_counts(lost=30), 1
    ) == Disagreement(
        "the broker dropped 150 messages ($SYS/broker/publish/messages/dropped), and 30 are missing by the run's count:"
        " another client missed the others, or a count is wrong"
    )


@pytest.mark.parametrize(
    ("counts", "subscriptions"),
    [
        ({"lost": 150}, 1), ({"lost": 4000}, 1), ({"lost": 50, "unknown": 50}, 2), ({"failed": 150}, 1),
    ],
)  # fmt: skip
def test_more_missing_messages_than_drops_is_no_contradiction(
    counts: dict[str, int], subscriptions: int
) -> None:
    """Messages lost with a connection are no drops; unacknowledged ones may be drops."""
    assert disagreement(counted(1000, 1150), made_counts(**counts), subscriptions) is None


def test_drops_are_not_compared_with_a_loss_that_nobody_counted() -> None:
    """A run that only receives does not know what others lost."""
    assert disagreement(counted(1000, 1150), made_counts(**OTHERS_SEND), 1) is None


@pytest.mark.parametrize("dropped", [(), (7,), (math.nan, math.nan), (900, 3, 1150)])
def test_an_unusable_counter_is_no_contradiction(dropped: tuple[float, ...]) -> None:
    """It is missing, was read once, or began again after a restart."""
    assert disagreement(counted(*dropped), made_counts(), 1) is None


def totals(taken: float, given: float, continuous: float = math.nan) -> Telemetry:
    """Return samples with the broker's totals at the end. :param continuous: 1 if the load times of the topics prove that no counter was reset."""
    columns = {
        "sys.totalIn": np.array([math.nan, taken]),
        "sys.totalOut": np.array([math.nan, given]),
        "sys.continuous": np.array([1.0, continuous]),
    }
    return Telemetry(time=np.arange(2), columns=columns)


def test_a_count_of_the_broker_below_ours_is_a_contradiction() -> None:
    counts = made_counts(acked=1000, received=1900, duplicates=100)
    assert disagreement(totals(999, 2000), counts, 2) == Disagreement(
        "the broker received 999 messages (pulsar_in_messages_total), and 1 000 were acknowledged by the run's count: one of the two is wrong"
    )
    assert disagreement(totals(1000, 1999), counts, 2) == Disagreement(
        "the broker delivered 1 999 messages (pulsar_out_messages_total), and 2 000 were received by the run's count: one of the two is wrong"
    )


@pytest.mark.parametrize(
    ("taken", "given"), [(1000, 2000), (9000, 9000), (math.nan, math.nan), (math.nan, 2000)]
)
def test_a_count_of_the_broker_above_ours_is_no_contradiction(taken: float, given: float) -> None:
    """It counts chunks, resent messages and messages of others; an unknown count is no contradiction either."""
    assert (
        disagreement(
            totals(taken, given), made_counts(acked=1000, received=1900, duplicates=100), 2
        )
        is None
    )


@pytest.mark.parametrize(("continuous", "certain"), [(1.0, True), (0.0, False), (math.nan, False)])
def test_a_low_count_of_a_shared_broker_is_certain_only_if_no_counter_was_reset(
    continuous: float, certain: bool
) -> None:
    """Other clients can only raise its count; a topic that is loaded again begins at 0."""
    counts = made_counts(acked=1000, received=1900, duplicates=100)
    for found in (totals(999, 2000, continuous), totals(1000, 1999, continuous)):
        result = disagreement(found, counts, 2, shared=True)
        assert result is not None
        assert result.certain == certain


def test_an_uncertain_shortfall_names_the_other_explanation() -> None:
    result = disagreement(totals(999, 2000, 0.0), made_counts(acked=1000), 2, shared=True)
    assert result == Disagreement(
        "the broker received 999 messages (pulsar_in_messages_total), and 1 000 were acknowledged by the run's count: one of the two is wrong,"
        " or its counter was reset when it loaded a topic again",
        certain=False,
    )


def test_drops_of_a_shared_broker_are_uncertain() -> None:
    result = disagreement(counted(1000, 1150), made_counts(lost=30), 1, shared=True)
    assert result is not None
    assert not result.certain


def test_drops_beside_messages_that_were_sent_again_are_uncertain() -> None:
    """Each may have been sent again many times, and all copies but the first dropped."""
    result = disagreement(counted(1000, 1150), made_counts(lost=50, resent=1), 1)
    assert result is not None
    assert not result.certain


def test_other_workloads_make_drops_uncertain_and_no_other_count() -> None:
    """They share the broker's counter of drops, but not the topics."""
    counts = made_counts(acked=1000)
    for telemetry, certain in (
        (counted(1000, 1150), False),
        (lost(math.nan, dropped=0), False),
        (totals(999, 2000), True),
        (lost(1.0, 0.0), True),
    ):
        result = disagreement(telemetry, counts, 1, others=True)
        assert result is not None
        assert result.certain == certain


def test_a_certain_contradiction_comes_before_an_uncertain_one() -> None:
    """Drops may be another client's; a low count may not."""
    both = Telemetry(
        time=np.arange(2), columns={**counted(1000, 1150).columns, **totals(999, 2000, 1.0).columns}
    )
    result = disagreement(both, made_counts(acked=1000, received=2000), 2, shared=True)
    assert result is not None
    assert result.certain
    assert "received 999 messages" in result.text


def test_a_total_that_decreased_is_not_compared() -> None:
    fell = Telemetry(time=np.arange(2), columns={"sys.totalIn": np.array([900.0, 10.0])})
    assert disagreement(fell, made_counts(acked=1000), 1) is None


def test_drops_of_a_restarted_broker_are_not_compared() -> None:
    """It dropped more since then than before, so only its uptime shows the restart."""
    columns = {"sys.dropped": np.array([7.0, 1150.0]), "sys.uptime": np.array([500.0, 3.0])}
    assert disagreement(Telemetry(time=np.arange(2), columns=columns), made_counts(), 1) is None


def lost(*continuous: float, dropped: float = math.nan) -> Telemetry:
    """Return samples of a source of the broker's counters that was lost."""
    n = len(continuous)
    columns = {
        "sys.heap": np.full(n, 1.0),
        "sys.continuous": np.array(continuous),
        "sys.dropped": np.full(n, dropped),
    }
    return Telemetry(
        time=np.arange(n),
        columns=columns,
        lost={COUNTERS: "broker's own counters: KeyError: 'x', 12 s into the phase"},
    )


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
def test_losing_comparable_counts_is_as_certain_as_a_contradiction_would_be(
    telemetry: Telemetry, shared: bool, certain: bool
) -> None:
    assert disagreement(telemetry, made_counts(), 1, shared=shared) == Disagreement(
        "broker's own counters: KeyError: 'x', 12 s into the phase: the broker's counts cannot be compared with ours",
        certain=certain,
        compared=False,
    )


@pytest.mark.parametrize("telemetry", [lost(1.0, math.nan), lost()])
def test_losing_counts_that_could_not_be_compared_is_no_disagreement(telemetry: Telemetry) -> None:
    """They were reset before, or never known."""
    assert disagreement(telemetry, made_counts(), 1) is None


def test_a_restart_on_purpose_ends_the_comparison() -> None:
    assert disagreement(lost(math.nan, dropped=0), made_counts(), 1, restarted=True) is None
