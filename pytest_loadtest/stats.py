"""The definitions: what is counted, and how. Plain numpy over all rows at once; whatever else measures a run must agree to the bit.

A row is *measured* when its sequence lies in its stream's ``[first, end)``; all other rows are ignored. A *delivery* is one message to one
subscription of its stream's topic. Of the measured received rows

- *misplaced* ones, which a subscription got that does not subscribe to the message's topic, count as foreign;
- *corrupt* ones (``Flag.CORRUPT``) count as corrupt, together with the damaged heads that the manifests count, and as nothing else;
- the others are *copies*. A delivery is received when it has a copy, whatever became of the send; further copies are duplicates.

A delivery is *lost* when the message was acked and has no copy, *out of order* when all its copies are ``Flag.LATE``, *in time* when a copy
came within the measured phase, moved as a whole by the median end-to-end latency. Latencies count every copy. Topic and size bucket of a
message are the same in its sent row and in all its copies; by them, deliveries are broken down.

A *stage* is measured like a run: the same samples, its own start, duration, rate, and ``[first, end)`` of each stream. Without
subscriptions there are no deliveries, and whatever is received is foreign.

Seconds are whole ones since the start; what has an earlier time counts in second 0. A message is offered in the second of its intended
time; sent, acked and received (every copy) in the seconds in which that happened; its end-to-end latency belongs to the second of its
*intended* time, so that a stall shows where it began. The two percentiles of a second come from HDR buckets with seven bits (at most 0.4 %
off), nearest rank, within that second's exact minimum and maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.hdr import hdr_index, histogram, midpoint
from pytest_loadtest.measurements import Breakdown, Counts, Histogram, Interval, Lost, Measurements, Series, WorkerEvidence
from pytest_loadtest.quantities import SECOND
from pytest_loadtest.samples import Flag, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

SERIES_BITS: Final = 7
LOST_RANGES: Final = 10_000
SERIES_PERCENTILES: Final = (50, 99)
INTERVAL: Final = 10 * SECOND

Columns = Mapping[str, "NDArray[np.int64]"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What was asked for: the plan's side of the accounting.

    :param start: ns, intended time of the first measured message. :param duration: ns. :param rate: offered msg/s.
    :param topics: number of topics. :param subscriptions: per topic; 0 when nothing consumes. :param ordered: whether order is judged.
    :param publish_acks: whether an acknowledgement means that the target has the message.
    :param buckets: names of the size buckets.
    :param stream_topics: int64 ``(P,)``, topic of each stream.
    :param first: int64 ``(P,)``, first measured sequence of each stream. :param end: int64 ``(P,)``, one past the last.
    """

    start: int
    duration: int
    rate: float
    topics: int
    subscriptions: int
    ordered: bool
    publish_acks: bool
    buckets: tuple[str, ...]
    stream_topics: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def intervals(self) -> int:
        """Stretches of ten seconds in the measured phase; a single one is the whole and not told apart, so it counts as none."""
        number = -(-self.duration // INTERVAL)
        return number if number > 1 else 0

    def interval(self, intended: NDArray[np.int64]) -> NDArray[np.int64]:
        """In which of them messages were due."""
        return np.clip((intended - self.start) // INTERVAL, 0, max(self.intervals - 1, 0))

    def topic_names(self) -> tuple[str, ...]:
        """How topics are called in a breakdown: by index."""
        return tuple(f"topic {i}" for i in range(self.topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the workers counted themselves: foreign messages, damaged heads, and how they fared."""

    foreign: int = 0
    corrupt: int = 0
    workers: tuple[WorkerEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Deliveries:
    """One entry per planned delivery, ``subscription × offered + number of the message``: its copies, and copies with a property."""

    copies: NDArray[np.int64]
    punctual: NDArray[np.int64]
    in_time: NDArray[np.int64]
    lost: NDArray[np.bool_]


def measure(sent: Columns, received: Columns, run: Run, recorded: Recorded) -> Measurements:
    """Measure a run whose every planned message has exactly one sent row.

    :param sent: the columns of ``samples.SENT``. :param received: the columns of ``samples.RECEIVED``.
    """
    sent, received = _measured(sent, run), _measured(received, run)
    misplaced = (received["topic"] != run.stream_topics[received["stream"]]) | ~_within(received["subscription"], run.subscriptions)
    damaged = ~misplaced & (received["flags"] & Flag.CORRUPT != 0)
    copies = _take(received, ~misplaced & ~damaged)
    acked, out = _take(sent, sent["status"] == Status.ACKED), _take(sent, sent["sent"] > 0)
    end_to_end = copies["received"] - copies["intended"]
    delay = out["sent"] - out["intended"]
    latency = histogram(end_to_end)
    deliveries = _deliveries(acked, copies, run, latency)
    foreign, corrupt = recorded.foreign + int(misplaced.sum()), recorded.corrupt + int(damaged.sum())
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        counts=_counts(sent, deliveries, run, foreign, corrupt),
        bytes_sent=int(sent["size"][sent["status"] != Status.DROPPED].sum()),
        publish=histogram(acked["acked"] - acked["intended"]) if run.publish_acks else None,
        end_to_end=latency,
        send_delay=histogram(delay),
        own_send_delay=histogram(np.maximum(delay - out["blocked"], 0)),
        blocked=int(sent["blocked"].sum()),
        series=_series(sent, out, acked, copies, run),
        intervals=_intervals(out, acked, copies, run),
        topics=_breakdown("topic", run.topic_names(), sent, acked, copies, deliveries, run),
        buckets=_breakdown("bucket", run.buckets, sent, acked, copies, deliveries, run),
        workers=recorded.workers,
        lost=_lost(deliveries.lost, run),
    )


def _intervals(out: Columns, acked: Columns, copies: Columns, run: Run) -> tuple[Interval, ...]:
    def of(number: int, rows: Columns, until: str) -> Histogram | None:
        mine = _take(rows, run.interval(rows["intended"]) == number)
        return histogram(mine[until] - mine["intended"])

    return tuple(
        Interval(
            publish=of(number, acked, "acked") if run.publish_acks else None, end_to_end=of(number, copies, "received"),
            send_delay=of(number, out, "sent"),
        )
        for number in range(run.intervals)
    )  # fmt: skip


def _take(rows: Columns, pick: NDArray[np.bool_]) -> Columns:
    return {name: column[pick] for name, column in rows.items()}


def _within(values: NDArray[np.int64], end: int) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (values >= 0) & (values < end)
    return inside


def _measured(rows: Columns, run: Run) -> Columns:
    rows = {name: column.astype(np.int64) for name, column in rows.items()}
    rows = _take(rows, _within(rows["stream"], len(run.first)))
    return _take(rows, (rows["seq"] >= run.first[rows["stream"]]) & (rows["seq"] < run.end[rows["stream"]]))


def _numbers(rows: Columns, run: Run) -> NDArray[np.int64]:
    """Number of each row's message, from 0 over all streams."""
    before: NDArray[np.int64] = np.cumsum(run.end - run.first) - (run.end - run.first)
    numbers: NDArray[np.int64] = before[rows["stream"]] + rows["seq"] - run.first[rows["stream"]]
    return numbers


def _deliveries(acked: Columns, copies: Columns, run: Run, latency: Histogram | None) -> Deliveries:
    offered = int((run.end - run.first).sum())
    place = copies["subscription"] * offered + _numbers(copies, run)
    size = run.subscriptions * offered
    begin = run.start + (latency.percentile(50) if latency else 0)
    in_time = (copies["received"] >= begin) & (copies["received"] < begin + run.duration)
    expected = np.zeros(offered, np.bool_)
    expected[_numbers(acked, run)] = True
    count = np.bincount(place, minlength=size)
    return Deliveries(
        copies=count,
        punctual=np.bincount(place[copies["flags"] & Flag.LATE == 0], minlength=size),
        in_time=np.bincount(place[in_time], minlength=size),
        lost=np.tile(expected, run.subscriptions) & (count == 0),
    )


def _counts(sent: Columns, deliveries: Deliveries, run: Run, foreign: int, corrupt: int) -> Counts:
    status = {member: int((sent["status"] == member).sum()) for member in Status}
    received = deliveries.copies > 0
    return Counts(
        offered=len(sent["seq"]),
        sent=status[Status.ACKED] + status[Status.FAILED] + status[Status.UNKNOWN],
        sent_in_time=int(((sent["sent"] > 0) & (sent["sent"] < run.start + run.duration)).sum()),
        acked=status[Status.ACKED],
        failed=status[Status.FAILED],
        dropped=status[Status.DROPPED],
        unknown=status[Status.UNKNOWN],
        received=int(received.sum()),
        received_in_time=int((deliveries.in_time > 0).sum()),
        lost=int(deliveries.lost.sum()),
        duplicates=int(deliveries.copies.sum() - received.sum()),
        out_of_order=int((received & (deliveries.punctual == 0)).sum()) if run.ordered else None,
        foreign=foreign,
        corrupt=corrupt,
    )


def _breakdown(
    key: str, names: tuple[str, ...], sent: Columns, acked: Columns, copies: Columns, deliveries: Deliveries, run: Run
) -> tuple[Breakdown, ...]:
    offered = int((run.end - run.first).sum())
    first = _take(copies, np.zeros(len(copies["seq"]), np.bool_))
    if len(copies["seq"]):
        first = _take(copies, np.unique(copies["subscription"] * offered + _numbers(copies, run), return_index=True)[1])
    key_of = np.zeros(offered, np.int64)
    key_of[_numbers(sent, run)] = sent[key]
    lost = np.tile(key_of, run.subscriptions)[deliveries.lost]
    parts = []
    for i, name in enumerate(names):
        part_sent, part_acked, part_copies = (_take(rows, rows[key] == i) for rows in (sent, acked, copies))
        out = part_sent["status"] != Status.DROPPED
        parts.append(
            Breakdown(
                name=name,
                offered=len(part_sent["seq"]),
                sent=int(out.sum()),
                acked=len(part_acked["seq"]),
                received=int((first[key] == i).sum()),
                lost=int((lost == i).sum()),
                bytes_sent=int(part_sent["size"][out].sum()),
                end_to_end=histogram(part_copies["received"] - part_copies["intended"]),
                publish=histogram(part_acked["acked"] - part_acked["intended"]) if run.publish_acks else None,
            )
        )
    return tuple(parts)


def _series(sent: Columns, out: Columns, acked: Columns, copies: Columns, run: Run) -> Series:
    counted = [np.bincount(second) for second in (
        _second(sent["intended"], run), _second(out["sent"], run), _second(acked["acked"], run), _second(copies["received"], run)
    )]  # fmt: skip
    second = _second(copies["intended"], run)
    latency = copies["received"] - copies["intended"]
    seconds = np.unique(second)
    rows = [_one_second(latency[second == s]) for s in seconds]
    return series(run, counted, seconds, np.array(rows, np.float64).reshape(-1, 3))


def _second(times: NDArray[np.int64], run: Run) -> NDArray[np.int64]:
    seconds: NDArray[np.int64] = np.maximum((times - run.start) // SECOND, 0)
    return seconds


def _one_second(latency: NDArray[np.int64]) -> list[float]:
    index = np.sort(hdr_index(latency, SERIES_BITS))
    ranks = [-(-p * len(index) // 100) for p in SERIES_PERCENTILES]
    middles = midpoint(index[[rank - 1 for rank in ranks]], SERIES_BITS)
    return [*np.clip(middles, latency.min(), latency.max()).tolist(), float(latency.max())]


def series(run: Run, counted: list[NDArray[np.int64]], seconds: NDArray[np.int64], latency: NDArray[np.float64]) -> Series:
    """Bring the columns of a series to one length: the planned seconds, or as long as anything happened.

    :param counted: offered, sent, acked, received, each by second from 0. :param seconds: ``(k,)``, seconds that have latencies.
    :param latency: ``(k, 3)``, their p50, p99 and maximum in ns.
    """
    planned = -(-run.duration // SECOND)
    length = max(planned, int(seconds.max(initial=-1)) + 1, *(len(column) for column in counted))
    offered, sent, acked, received = (np.pad(column, (0, length - len(column))) for column in counted)
    times = np.full((length, 3), np.nan)
    times[seconds] = latency
    return Series(
        offered=offered, sent=sent, acked=acked, received=received,
        end_to_end_p50=times[:, 0], end_to_end_p99=times[:, 1], end_to_end_max=times[:, 2],
    )  # fmt: skip


def _lost(lost: NDArray[np.bool_], run: Run) -> tuple[Lost, ...]:
    """The ranges of lost messages by topic, subscription, stream and sequence; the first 10 000 of them."""
    ranges = []
    after = np.cumsum(run.end - run.first)
    by_subscription = lost.reshape(run.subscriptions, int((run.end - run.first).sum()))
    for stream in range(len(run.first)):
        start, stop = int(after[stream] - run.end[stream] + run.first[stream]), int(after[stream])
        for subscription in range(run.subscriptions):
            edges = np.diff(np.concatenate([[0], by_subscription[subscription, start:stop].astype(np.int8), [0]]))
            firsts, lasts = np.flatnonzero(edges == 1) + run.first[stream], np.flatnonzero(edges == -1) + run.first[stream] - 1
            topic = int(run.stream_topics[stream])
            ranges += [
                Lost(topic=topic, subscription=subscription, stream=stream, first=int(first), last=int(last))
                for first, last in zip(firsts, lasts, strict=True)
            ]
    return tuple(sorted(ranges, key=lambda lost: (lost.topic, lost.subscription, lost.stream, lost.first))[:LOST_RANGES])
