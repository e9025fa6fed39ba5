"""Deliveries that would be in time without the generator's own delays, against the sentence that defines them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.samples import RECEIVED, SENT, Status
from pytest_loadtest.metrics.expected import Expected, Recorded
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.metrics.in_time import Begins, begins_in_time, masks_in_time
from pytest_loadtest.metrics.own_delays import of_copies
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.metrics.stats import measure
from pytest_loadtest.values.quantities import MILLISECOND as MS
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.measurements import Measurements

PHASE = 2000
"""ms of the measured phase; a message is due every 20 ms."""
Copy = tuple[int, int, int]
"""Message, ms after it was due, and the worker that took it."""


def paused(*spans: tuple[int, int]) -> Pauses:
    """Pauses of a loop from begin to end, ms, that delayed no send."""
    begin, end = (np.array([span[side] for span in spans], np.int64) * MS for side in (0, 1))
    return Pauses(begin=begin, end=end, since=begin, until=end, exact=False)


def plan(*pauses: Pauses, **changes: Any) -> Expected:
    zero = np.zeros(1, np.int64)
    end = zero + PHASE // 20
    run = Expected(
        start=0, duration=PHASE * MS, rate=50.0, topics=1, subscriptions=1, ordered=True, publish_acks=True, buckets=("small", "large"),
        stream_topics=zero, first=zero, end=end, workers=("gw0", "gw1"), pauses=pauses, stream_workers=zero,
    )  # fmt: skip
    return replace(run, **changes)


def measured(run: Expected, copies: list[Copy]) -> Measurements:
    """Every second message is in the second size bucket."""
    seq = np.arange(run.end[0])
    number, late, worker = (np.array(column, np.int64) for column in zip(*copies, strict=True))
    columns = {
        "seq": seq, "bucket": seq % 2, "status": int(Status.ACKED), "size": 100, "intended": seq * 20 * MS, "sent": seq * 20 * MS + 1,
        "acked": seq * 20 * MS + 2,
    }  # fmt: skip
    sent = {
        name: np.broadcast_to(columns.get(name, 0), len(seq)).astype(np.int64)
        for name in (*(column.name for column in SENT), "worker")
    }
    columns = {
        "seq": number, "bucket": number % 2, "size": 100, "intended": number * 20 * MS, "received": (number * 20 + late) * MS,
        "lag": -1, "worker": worker,
    }  # fmt: skip
    received = {
        name: np.broadcast_to(columns.get(name, 0), len(number)).astype(np.int64)
        for name in (*(column.name for column in RECEIVED), "worker")
    }
    return measure(sent, received, run, Recorded())


def by_definition(run: Expected, copies: list[Copy]) -> tuple[int, list[int], int]:
    """Return the deliveries that would be in time had each copy come earlier by its part: of the run, by bucket, and in the first window."""
    arrivals: dict[int, list[tuple[int, int, int]]] = {}
    for number, late, worker in copies:
        due = number * 20 * MS
        row = {
            "stream": 0,
            "intended": due,
            "received": due + late * MS,
            "lag": -1,
            "worker": worker,
        }
        (part,) = of_copies({name: np.array([value]) for name, value in row.items()}, run).tolist()
        arrivals.setdefault(number, []).append((due + late * MS, worker, due + late * MS - part))
    firsts = [min(of_one)[2] - number * 20 * MS for number, of_one in arrivals.items()]
    counted = histogram(np.array(firsts, np.int64))
    assert counted is not None
    shift = counted.percentile(50)
    whole, in_first = [], 0
    for number, of_one in arrivals.items():
        earlier = [arrival - shift for *_, arrival in of_one]
        # The last message is due 20 ms before the end: the phase is moved by half of that.
        whole += [number] if any(0 <= at + 10 * MS < PHASE * MS for at in earlier) else []
        in_first += number < 50 and min(earlier) < SECOND
    return len(whole), [sum(number % 2 == side for number in whole) for side in (0, 1)], in_first


COPIES = st.lists(
    st.tuples(st.integers(0, 99), st.sampled_from([0, 1, 30, 400, 900]), st.integers(0, 1)),
    min_size=1,
    max_size=120,
    unique=True,
)


@given(
    copies=COPIES,
    begin=st.sampled_from([0, 500, 1200, 1900]),
    length=st.sampled_from([3, 60, 400, 1500]),
)
def test_what_would_be_in_time_is_counted_as_it_is_defined(
    copies: list[Copy], begin: int, length: int
) -> None:
    """Any copy counts, both ends of the phase move by the median without own parts, and windows have only an end, which nothing else moves."""
    run = plan(
        paused(),
        paused((begin, begin + length)),
        bounds_throughput=True,
        window=SECOND,
    )
    found = measured(run, copies)
    assert found.windows is not None
    counted = (
        found.in_time_without_own,
        [bucket.in_time_without_own for bucket in found.buckets],
        int(found.windows.in_time_without_own[0]),
    )
    is_counted = "end_to_end_with_own" in found.latencies
    assert counted == (by_definition(run, copies) if is_counted else (0, [0, 0], 0))


EVERY = [(0, 2, 1), *((number, 1, 1) for number in range(1, 90))]
"""The first copy is a little late: the median of a histogram may be above that of equal latencies."""


def test_what_a_stall_held_back_until_after_the_end_would_be_in_time() -> None:
    stalled = [(number, 2101 - number * 20, 1) for number in range(90, 100)]
    found = measured(plan(paused(), paused((1790, 2100))), EVERY + stalled)
    assert (found.counts.received_in_time, found.in_time_without_own) == (90, 100)


def test_what_the_target_held_back_would_not_be_in_time() -> None:
    """The copies came long after the stall, or the messages never came."""
    run = plan(paused(), paused((1790, 2100)))
    slow = [(number, 2900 - number * 20, 1) for number in range(95, 100)]
    found = measured(run, [*EVERY, (90, 301, 1), *slow])
    assert (found.counts.received_in_time, found.in_time_without_own) == (90, 91)


@pytest.mark.parametrize(
    ("length", "is_bounded", "counted"), [(40, False, 0), (40, True, 91), (60, False, 91)]
)
def test_it_is_counted_after_a_stall_or_if_throughput_is_bounded(
    length: int, is_bounded: bool, counted: int
) -> None:
    """Each run has pauses of milliseconds, and an implicit bound."""
    end = PHASE - 10 + length
    copies = [*EVERY, (99, end + 1 - 1980, 1)]
    run = plan(paused(), paused((PHASE - 10, end)), bounds_throughput=is_bounded)
    assert measured(run, copies).in_time_without_own == counted


def test_a_run_without_own_parts_looks_up_no_copy() -> None:
    """Its workers stalled when nothing came."""
    run = plan(paused(), paused((1900, 2000)))
    found = measured(run, EVERY)
    none = np.zeros(0, np.int64)
    assert begins_in_time(found.latencies, none, 0, run).without_own is None
    assert list(masks_in_time({}, none, Begins(0), run)) == ["in_time"]


def perfect(
    due: NDArray[np.int64], duration: int, late: NDArray[np.int64], *pauses: Pauses
) -> Measurements:
    """Return a run that sent each message when it was due; the copies came so much later, ns."""
    n = len(due)
    run = plan(*pauses, duration=duration, end=np.array([n]), bounds_throughput=bool(pauses))
    columns = {"seq": np.arange(n), "intended": due, "sent": due, "acked": due, "lag": -1}
    columns |= {"received": due + late, "worker": 1}
    sent, received = (
        {
            name: np.broadcast_to(columns.get(name, 0), n).astype(np.int64)
            for name in (*(column.name for column in kind), "worker")
        }
        for kind in (SENT, RECEIVED)
    )
    return measure(sent, received, run, Recorded())


def even(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.arange(n) * SECOND


def even_from_its_middle_on(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A stage may begin right after a message is due, and end right after one."""
    return (np.arange(n) + 1) * SECOND - 100_000


def random_times(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.integers(0, n * SECOND, n))


def a_burst(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.repeat(rng.integers(0, n * SECOND, 1), n)


def two_bursts(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Some messages are due at the start, the others 2 ms before the end."""
    at_end = np.arange(n) >= rng.integers(0, n + 1)
    return at_end * (n * SECOND - 2 * MS)


TRAINS = [even, even_from_its_middle_on, random_times, a_burst, two_bursts]


@pytest.mark.parametrize("train", TRAINS)
@pytest.mark.parametrize("n", [1, 2, 5, 19, 20, 30])
def test_a_perfect_target_delivers_everything_in_time_however_few_messages_are_due(
    n: int, train: Callable[[int, np.random.Generator], NDArray[np.int64]]
) -> None:
    """Half of all latencies are below the median, and half of them above; none differs from it by
    as much as the last message has room.
    """
    rng = np.random.default_rng(n)
    for _ in range(20):
        late = rng.integers(9 * MS // 2, 11 * MS // 2, n)
        found = perfect(train(n, rng), n * SECOND, late)
        assert found.counts.received_in_time == n


def test_a_target_that_is_too_slow_for_a_burst_gains_no_time_by_a_pause_before_it() -> None:
    """In half a mean interval, 5 ms, a burst of 10 000 messages a second has 50 messages."""
    due = 9900 * MS + np.arange(1000) * MS // 10
    arrived = 9900 * MS + (np.arange(1000) * MS / 10 / 0.85).astype(np.int64)
    assert perfect(due, 10 * SECOND, arrived - due).counts.received_in_time < 930


def test_the_first_of_few_messages_would_be_in_time_without_a_stall() -> None:
    """Without own delays the phase has the same room at both ends."""
    late = np.array([4, 5, 6, 7, 1100]) * MS
    stall = paused(), paused((4001, 5100))
    found = perfect(even(5, np.random.default_rng()), 5 * SECOND, late, *stall)
    assert (found.counts.received_in_time, found.in_time_without_own) == (4, 5)


@pytest.mark.parametrize("train", [even, even_from_its_middle_on])
@pytest.mark.parametrize("number", [0, 5, 9])
def test_one_of_ten_messages_that_comes_after_the_end_is_not_in_time(
    number: int, train: Callable[[int, np.random.Generator], NDArray[np.int64]]
) -> None:
    due = train(10, np.random.default_rng())
    late = np.full(10, 5 * MS)
    late[number] = 10 * SECOND + 600 * MS - due[number]
    assert perfect(due, 10 * SECOND, late).counts.received_in_time == 9


@given(share=st.floats(0.1, 1), latency=st.integers(0, 5000))
def test_of_many_messages_the_same_room_moves_one_at_most(share: float, latency: int) -> None:
    """The target delivers a share of the rate, each message as soon as it can."""
    n = 1000
    duration = n * 20 * MS
    due = np.arange(n) * 20 * MS
    arrived = latency * MS + (np.arange(n) * (20 * MS / share)).astype(np.int64)
    counted = histogram(arrived - due)
    assert counted is not None
    elapsed = arrived - counted.percentile(50)
    plain = int(((elapsed >= 0) & (elapsed < duration)).sum())
    found = perfect(due, duration, arrived - due)
    assert abs(found.counts.received_in_time - plain) <= 1


@pytest.mark.parametrize(
    ("intended", "earlier"),
    [
        ([], 0),
        ([0], PHASE // 2),
        ([PHASE - 1], 1 - PHASE // 2),
        ([PHASE - 20, PHASE - 10], 0),
        ([100, PHASE - 300], 100),
        ([300, PHASE - 100], -100),
        ([0, 0], PHASE // 4),
    ],
)
def test_the_phase_begins_so_that_first_and_last_message_have_the_same_room(
    intended: list[int], earlier: int
) -> None:
    """By half a mean interval at most."""
    times = np.array(intended, np.int64) * MS
    begins = begins_in_time({}, times, len(times), plan())
    assert begins.earlier // MS == earlier
