"""Series by second: messages offered, sent, acknowledged and received, and latencies.

The definitions (:mod:`pytest_loadtest.metrics.stats`), Spark's workers and the controller, which
assembles their counts, share this code. A test's body asks it for the recovery of a load.

Seconds are whole seconds since the start; earlier times count in second 0. A message is offered in
the second of its intended time; sent, acknowledged and received (every copy) in the seconds in
which that happened. The end-to-end latency of a first copy belongs to the second of its *intended*
time, so that a stall is visible where it began. So does its receive lag, of which a second has the
largest. Missing deliveries are counted by intended time too: acknowledged messages times
deliveries due of each, less all copies. The two percentiles of a second come from HDR buckets of
seven bits (at most 0.4 % off), as nearest ranks within that second's exact minimum and maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.histogram import hdr_index, midpoint
from pytest_loadtest.metrics.measurements import Series
from pytest_loadtest.metrics.time_slices import OverTime, block_seconds, over_time
from pytest_loadtest.values.quantities import MICROSECOND, SECOND
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from pytest_loadtest.metrics.expected import Expected

    Columns = Mapping[str, NDArray[np.int64]]
    Column = NDArray[np.int64]


SERIES_BITS: Final = 7
SERIES_PERCENTILES: Final = (50, 99)


def by_second(
    sent: Columns, out: Columns, acked: Columns, received: tuple[Columns, Columns], run: Expected
) -> Series:
    """Return the series of a run. All columns are int64, times in ns.

    :param sent: messages due (``intended``, ``sent``, ``blocked``).
    :param out: messages sent (``sent``).
    :param acked: messages acknowledged (``intended``, ``acked``).
    :param received: all copies, and the first one of each delivery (both ``intended``,
        ``received``, the latter also ``lag``).
    """
    copies, first = received

    def count(times: Column) -> Column:
        return np.bincount(run.seconds(times))

    # Blocked time is summed in int64: the weights of bincount would be floats, which are not exact.
    waited = sent["blocked"] > 0
    ended = run.seconds(wait_end(sent))[waited]
    blocked = np.zeros(int(ended.max(initial=-1)) + 1, np.int64)
    np.add.at(blocked, ended, sent["blocked"][waited])

    # (seconds with latencies, 4): p50, p99 and maximum of end-to-end latency, largest receive lag
    latency = first["received"] - first["intended"]
    second = run.seconds(first["intended"])
    seconds = np.unique(second)
    latencies = np.empty((len(seconds), 4))
    for row, number in zip(latencies, seconds, strict=True):
        own = second == number
        row[:3] = _one_second(latency[own])
        row[3] = largest_lag(first["lag"][own].max())

    counted = [
        count(sent["intended"]),
        count(out["sent"]),
        count(acked["acked"]),
        count(copies["received"]),
        blocked,
        count(acked["intended"]),
        count(copies["intended"]),
    ]
    planned = -(-run.duration // SECOND)
    return Series.padded(planned, counted, seconds, latencies, run.known_fan_out)


def wait_end(rows: Mapping[str, NDArray[Any]]) -> Column:
    """Return when the wait of messages for a full window ended: when they were sent, or how long
    dropped ones had waited.
    """
    return np.where(rows["sent"] > 0, rows["sent"], rows["intended"] + rows["blocked"])


def largest_lag(lag: ArrayLike) -> NDArray[np.float64]:
    """Return the largest receive lag of each second, ns; NaN where all are unknown.

    :param lag: the largest recorded ones.
    """
    # Recorded in whole microseconds, -1 where it is unknown.
    recorded = np.asarray(lag, np.float64)
    return np.where(recorded < 0, np.nan, recorded * MICROSECOND)


def by_second_and_bucket(first: Columns, run: Expected) -> OverTime | None:
    """Return end-to-end latencies by blocks of seconds.

    :param first: the first copy of each delivery (``intended``, ``received``).
    """
    length = block_seconds(run.duration)
    begin = run.seconds(first["intended"]) // length * length
    return over_time(begin, hdr_index(first["received"] - first["intended"], SERIES_BITS))


def _one_second(latency: NDArray[np.int64]) -> list[float]:
    """Return the percentiles and the maximum of one second."""
    index = np.sort(hdr_index(latency, SERIES_BITS))
    # ⌈p·n / 100⌉: of 150 values the ranks 75 and 149, counted from 1
    ranks = -(-np.array(SERIES_PERCENTILES) * len(index) // 100)
    middles = midpoint(index[ranks - 1], SERIES_BITS)
    highest = latency.max()
    return [*np.clip(middles, latency.min(), highest).tolist(), float(highest)]


# A slow message that was due more than this time, ns, after all earlier slow ones of its stream had
# come has another cause if one due in between was not slow: the stream had recovered. Silence alone
# is no recovery, neither that of an outage nor that between two messages of a slow rate.
QUIET: Final = SECOND
_NOTHING: Final = (np.empty(0, np.bool_),) * 3


@immutable
class Recovery:
    """The recovery of a load after a disturbance of its target; times in ns.

    :param pause: the longest time of a stream without an answer, from the disturbance on; None if
        no message was answered after it, or if a stream had no answer to its last messages, and
        none for longer than that: the end of its pause is unknown.
    :param recovered: the time from the disturbance until the arrival of the last message that was
        slower than all before it, in the stream that took longest; 0 without such a message. Until
        the last one was due that never came, if that was later. None if nothing had arrived before,
        so that the usual latency is unknown.
    """

    pause: int | None
    recovered: int | None


def recovery(
    at: int,
    due: tuple[Column, Column],
    answered: tuple[Column, Column],
    arrived: tuple[Column, Column, Column],
    subscriptions: int = 1,
) -> Recovery:
    """Return the recovery after a disturbance.

    :param at: its instant, ns.
    :param due: stream and ``intended`` of every message.
    :param answered: stream and ``acked`` of every answer.
    :param arrived: place, ``intended`` and ``received`` of the first copy of each delivery; a place
        is ``stream * subscriptions + subscription``.
    """
    pause = _pause(at, due, *answered)
    place, intended, received = arrived
    latency = received - intended
    after = received >= at
    # Without an arrival before the disturbance the usual latency is unknown.
    if after.all():
        return Recovery(pause, None)

    # A message is slow if it took longer than every message that had arrived before the
    # disturbance.
    slow = after & (latency > latency[~after].max())
    arrivals = _grouped(place, intended, received, slow)
    due_stream, due_at = due
    later = due_at >= at
    recovered = at
    for stream, (disturbed,) in _grouped(due_stream[later], due_at[later]).items():
        for number in range(stream * subscriptions, (stream + 1) * subscriptions):
            arrived_due, arrived_at, is_slow = arrivals.get(number, _NOTHING)
            # A message that never came is slow from when it was due.
            missing = disturbed[~np.isin(disturbed, arrived_due)]
            starts = np.append(arrived_due[is_slow], missing)
            if len(starts):
                ends = np.append(arrived_at[is_slow], missing)
                recovered = max(recovered, _end(starts, ends, np.sort(arrived_due[~is_slow])))
    return Recovery(pause, recovered - at)


def _grouped(number: Column, *columns: NDArray[Any]) -> dict[int, tuple[NDArray[Any], ...]]:
    """Return the columns of the rows of each number."""
    order = np.argsort(number, kind="stable")
    numbers, starts = np.unique(number[order], return_index=True)
    parts = [np.split(column[order], starts[1:]) for column in columns]
    return dict(zip(numbers.tolist(), zip(*parts, strict=True), strict=True))


def ranks_of_equal(ordered: Column) -> Column:
    """Return the number of equal values before each one: 0, 1, 0, 0, 1, 2 of 4, 4, 5, 8, 8, 8.

    :param ordered: ascending, 0 or more.
    """
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(starts, append=len(ordered))
    return np.arange(len(ordered)) - np.repeat(starts, lengths)


def is_first(
    subscription: NDArray[np.integer[Any]],
    stream: NDArray[np.integer[Any]],
    seq: Column,
    received: Column,
) -> NDArray[np.bool_]:
    """Return a mask of the copies that are the first of their delivery: copies sent again after a
    restart are not slow messages.
    """
    # Sorted by delivery and then by arrival: a row with the key of the row before it is a later
    # copy.
    order = np.lexsort((received, seq, stream, subscription))
    is_later = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in (subscription, stream, seq):
        ordered = column[order]
        is_later &= ordered[1:] == ordered[:-1]
    mask = np.ones(len(order), np.bool_)
    mask[order[1:][is_later]] = False
    return mask


def _end(intended: Column, received: Column, fast: Column) -> int:
    """Return the end of the first group of slow messages.

    :param fast: the intended times of the other messages of the stream, ascending.
    """
    order = np.argsort(received)
    times = received[order]
    # The earliest intended time of what came later: 1 and 3 of the intended times 2, 1, 3.
    later = np.minimum.accumulate(intended[order][:0:-1])[::-1]
    had_fast = np.searchsorted(fast, later) > np.searchsorted(fast, times[:-1])
    is_quiet = (later - times[:-1] > QUIET) & had_fast
    # The first message before such a quiet time ends the group; the last message always does.
    return int(times[np.append(is_quiet, True).argmax()])


def _pause(at: int, due: tuple[Column, Column], stream: Column, acked: Column) -> int | None:
    """Return the longest time between two answers of a stream, the second of which came after
    ``at``.
    """
    order = np.lexsort((acked, stream))
    times = acked[order]
    # Differences across the boundary of two streams are no gaps.
    same_stream = np.diff(stream[order]) == 0
    gaps = np.diff(times)[same_stream & (times[1:] >= at)]
    if not len(gaps):
        return None

    due_stream, intended = due
    last_answer = np.full(int(due_stream.max()) + 1, at)
    np.maximum.at(last_answer, stream, acked)
    unanswered = intended - last_answer[due_stream]
    longest = int(gaps.max())
    return None if unanswered.max(initial=0) > longest else longest
