"""Pause and recovery, of made-up times."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_loadtest.metrics.series import QUIET, Recovery, is_first, ranks_of_equal, recovery
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

AT = 10 * SECOND


def column(*seconds: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([round(one * SECOND) for one in seconds], np.int64)


def streams(*numbers: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(numbers, np.int64)


EVEN = np.arange(0, 20 * SECOND, 100 * MILLISECOND)


def test_a_series_without_a_fault_has_its_usual_pause() -> None:
    """The longest time between two answers is the usual one."""
    zeros = np.zeros(len(EVEN), np.int64)
    found = recovery(AT, (zeros, EVEN), (zeros, EVEN), (zeros, EVEN, EVEN + MILLISECOND))
    assert found == Recovery(100 * MILLISECOND, 0)


def test_the_pause_is_that_of_the_worst_stream() -> None:
    """The order of answers does not matter; a gap that ended before does not count, one that began
    before does.
    """
    answered = streams(0, 1, 0, 1, 0, 0), column(13, 10.5, 9, 9.5, 1, 13.5)
    found = recovery(AT, answered, answered, (streams(0), column(1), column(1.1)))
    assert found.pause == 4 * SECOND


def test_recovered_with_the_last_message_that_is_slower_than_any_before() -> None:
    """The stream that takes longest decides; much later slow messages have another cause."""
    stream = streams(0, 0, 0, 0, 1, 0, 0)
    intended, received = column(1, 9, 9.9, 10, 11, 15, 17), column(1.2, 9.1, 12, 12.5, 14, 15.1, 19)
    assert QUIET == SECOND
    found = recovery(AT, (stream, intended), (stream, received), (stream, intended, received))
    assert found.recovered == 4 * SECOND


@pytest.mark.parametrize(
    ("latencies", "recovered"),
    [
        ((0.5, 0.6, 0.7), 6.7),  # due at 12, 14 and 16 s: slow until the last one came
        ((0.5, 0.1, 0.7), 2.5),  # the one at 14 s was fast: that at 16 s has another cause
    ],
)
def test_a_stream_of_less_than_a_message_a_second_has_recovered_with_a_fast_message(
    latencies: tuple[float, ...], recovered: float
) -> None:
    """The time between two slow messages in a row is no recovery, however long it is."""
    stream = streams(0, 0, 0, 0)
    intended = column(2, 12, 14, 16)
    received = intended + column(0.1, *latencies)
    found = recovery(AT, (stream, intended), (stream, received), (stream, intended, received))
    assert found.recovered == recovered * SECOND


def outage(*, until: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Return intended times and arrivals: what is due in an outage from ``AT`` comes at its end."""
    received = EVEN + 5 * MILLISECOND
    held = (EVEN >= AT) & (until > EVEN)
    received[held] = until + np.arange(held.sum())
    return EVEN, received


def test_silence_in_an_outage_is_no_recovery() -> None:
    """A slow message was in flight at the disturbance; nothing came for six seconds after it."""
    intended, received = outage(until=16 * SECOND)
    received[intended == AT - 100 * MILLISECOND] = AT + 30 * MILLISECOND
    zeros = np.zeros(len(intended), np.int64)
    found = recovery(AT, (zeros, intended), (zeros, received), (zeros, intended, received))
    assert found.recovered == 6 * SECOND + 59


def test_messages_that_never_came_are_no_recovery() -> None:
    """After a slow message in flight, those of an outage are lost; one that comes later is slow."""
    late = np.where(EVEN == 16 * SECOND, 800, np.where(EVEN == AT - 100 * MILLISECOND, 130, 1))
    came = (EVEN < AT) | (EVEN >= 16 * SECOND)
    zeros = np.zeros(len(EVEN), np.int64)
    received = EVEN + late * MILLISECOND
    arrived = (zeros[came], EVEN[came], received[came])
    found = recovery(AT, (zeros, EVEN), (zeros[came], received[came]), arrived)
    assert found.recovered == 6800 * MILLISECOND


@pytest.mark.parametrize(("stream", "subscription"), [(1, 0), (1, 1)])
@pytest.mark.parametrize("slow", [0, 1])
def test_what_gets_nothing_any_more_has_not_recovered(
    stream: int, subscription: int, slow: int
) -> None:
    """A subscription of one of two streams that a restart forgot, with and without a slow message."""
    subscriptions = 1 + subscription
    dead = stream * subscriptions + subscription
    places = np.repeat(np.arange(2 * subscriptions), len(EVEN))
    intended = np.tile(EVEN, 2 * subscriptions)
    received = intended + MILLISECOND
    received[(places == dead) & (intended == AT)] += 50 * MILLISECOND
    came = (places != dead) | (intended < AT + slow)
    due = np.repeat([0, 1], len(EVEN)), np.tile(EVEN, 2)
    arrived = places[came], intended[came], received[came]
    found = recovery(AT, due, due, arrived, subscriptions)
    assert found.recovered == EVEN[-1] - AT


def test_a_slow_message_that_overtook_another_does_not_end_the_recovery() -> None:
    """The one sent at 10 s came last, after one of a later cause."""
    stream = streams(0, 0, 0, 0)
    intended, received = column(1, 9.9, 14, 10), column(1.2, 11, 15, 16)
    found = recovery(AT, (stream, intended), (stream, received), (stream, intended, received))
    assert found.recovered == 6 * SECOND


@pytest.mark.parametrize(
    ("last", "pause"), [(9, None), (10.1, None), (19.7, None), (19.8, 110), (19.9, 110)]
)
def test_the_pause_of_a_stream_that_is_not_answered_again_is_unknown(
    last: float, pause: int | None
) -> None:
    """It has no end. Without an answer to its last message alone it is no longer than another."""
    zeros = np.zeros(len(EVEN), np.int64)
    answers = EVEN + np.where(EVEN == 15 * SECOND, 15, 5) * MILLISECOND
    got_answer = round(last * SECOND) >= EVEN
    due = np.append(zeros, zeros + 1), np.append(EVEN, EVEN)
    answered = np.append(zeros, zeros[got_answer] + 1), np.append(answers, answers[got_answer])
    found = recovery(AT, due, answered, (zeros, EVEN, answers))
    assert found.pause == (None if pause is None else pause * MILLISECOND)


def test_the_pause_of_a_stream_that_was_never_answered_is_unknown() -> None:
    zeros = np.zeros(len(EVEN), np.int64)
    due = np.append(zeros, zeros + 1), np.append(EVEN, EVEN)
    found = recovery(AT, due, (zeros, EVEN), (zeros, EVEN, EVEN))
    assert found.pause is None


@pytest.mark.parametrize(
    "received", [column(10, 11), column()], ids=["nothing before", "nothing at all"]
)
def test_unknown_is_not_zero(received: np.ndarray) -> None:  # type: ignore[type-arg]
    """Without anything before nobody knows what is slow, without answers nobody knows of a pause."""
    stream = np.arange(len(received))
    both = (stream, received)
    assert recovery(AT, both, both, (*both, received)) == Recovery(None, None)


def test_what_came_before_the_restart_and_again_after_it_is_not_slow() -> None:
    """The copy of each delivery that was received first counts, at any position in the rows."""
    subscription, stream, seq = (
        streams(0, 0, 1, 0, 0),
        streams(3, 3, 3, 4, 3),
        streams(7, 7, 7, 7, 8),
    )
    assert is_first(subscription, stream, seq, column(12, 9, 12, 12, 12)).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert is_first(*(streams(),) * 4).tolist() == []


def test_ranks_count_equal_values_before() -> None:
    assert ranks_of_equal(np.array([4, 4, 5, 8, 8, 8])).tolist() == [0, 1, 0, 0, 1, 2]
    assert ranks_of_equal(np.zeros(0, np.int64)).tolist() == []
