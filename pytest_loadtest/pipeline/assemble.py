"""From the small tables that Spark returns to measurements: arithmetic on at most some thousand rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.hdr import join_total, midpoint
from pytest_loadtest.measurements import Breakdown, Counts, Histogram, Lost, Measurements, Series
from pytest_loadtest.samples import Status
from pytest_loadtest.stats import LOST_RANGES, SERIES_BITS, SERIES_PERCENTILES, Recorded, Run, series

if TYPE_CHECKING:
    from numpy.typing import NDArray

Table = Mapping[str, "NDArray[np.int64]"]
COPY, CORRUPT, MISPLACED, OTHER = 0, 1, 2, 3  # what a received row counts as; the last is not measured
UNBLOCKED, BLOCKED, OWN = 0, 1, 2  # whose send delay, or own send delay


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The answers of :mod:`pytest_loadtest.pipeline.transforms`, one each; columns are int64, null is -1.

    :param publish: None where acknowledgement is not applicable. :param publish_topics: and :param latency_topics: None where the
        topics are columns of the histogram itself. :param edges: None where nothing was lost.
        :param duplicates: None where there are none.
    """

    sent: Table
    received: Table
    deliveries: Table
    sent_seconds: Table
    received_seconds: Table
    delay: Table
    latency: Table
    latency_topics: Table | None
    publish: Table | None
    publish_topics: Table | None
    edges: Table | None
    duplicates: Table | None

    def measured(self) -> Table:
        """The totals of measured sent rows."""
        return _take(self.sent, self.sent["measured"] == 1)

    def copies(self) -> Table:
        """The totals of received rows that are copies."""
        return _take(self.received, self.received["fate"] == COPY)


def assemble(run: Run, recorded: Recorded, tables: Tables) -> Measurements:
    """Put the answers together."""
    sent, received = tables.measured(), tables.copies()
    acked = _take(sent, sent["status"] == Status.ACKED)
    delay, own = _take(tables.delay, tables.delay["kind"] != OWN), _own(_take(tables.delay, tables.delay["kind"] != BLOCKED))
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        counts=_counts(run, recorded, tables),
        bytes_sent=_sum(sent["bytes"][sent["status"] != Status.DROPPED]),
        publish=_histogram(tables.publish, "n", acked, "publish") if tables.publish is not None else None,
        end_to_end=latency_histogram(tables.latency, received),
        send_delay=_histogram(delay, "n", delay, "delay"),
        own_send_delay=_histogram(own, "n", own, "delay"),
        blocked=_sum(sent["blocked"]),
        series=_series(run, tables),
        topics=_topics(run, tables, acked, received),
        buckets=_buckets(run, tables, acked, received),
        workers=recorded.workers,
        lost=_lost(tables.edges) if tables.edges is not None else (),
    )


def latency_histogram(latency: Table, totals: Table) -> Histogram | None:
    """The end-to-end histogram of all copies, from its bucket counts and the totals of the copies."""
    return _histogram(latency, "n", totals, "latency")


def _take(table: Table, pick: NDArray[np.generic]) -> Table:
    return {name: column[pick] for name, column in table.items()}


def _sum(values: NDArray[np.int64]) -> int:
    return int(values.sum())


def _histogram(counts: Table, column: str, totals: Table, name: str) -> Histogram | None:
    """:param column: of ``counts`` to read. :param totals: rows whose minimum, maximum and sums complete the histogram."""
    present = np.flatnonzero(counts[column])
    if len(present) == 0:
        return None
    index, count = counts["index"][present], counts[column][present]
    folded = _fold(index, count)
    return Histogram(
        index=folded["index"],
        count=folded["n"],
        minimum=int(totals[f"{name}_min"].min()),
        maximum=int(totals[f"{name}_max"].max()),
        total=join_total(_sum(totals[f"{name}_high"]), _sum(totals[f"{name}_low"])),
        negative=_sum(count[index < 0]),
    )


def _fold(index: NDArray[np.int64], count: NDArray[np.int64]) -> Table:
    """One ascending row per bucket; negative values, which Spark counts at -1, belong to bucket 0."""
    known, place = np.unique(np.maximum(index, 0), return_inverse=True)
    n = np.zeros(len(known), np.int64)
    np.add.at(n, place, count)
    return {"index": known, "n": n}


def _own(delay: Table) -> Table:
    """Own send delays: those of blocked messages as they are, the others with everything below zero raised to it."""
    positive = delay["index"] >= 0
    changed = {"index": np.maximum(delay["index"], 0)}
    changed |= {f"delay_{name}": np.where(positive, delay[f"delay_{name}"], 0) for name in ("min", "max", "high", "low")}
    return {**delay, **changed}


def _counts(run: Run, recorded: Recorded, tables: Tables) -> Counts:
    sent, deliveries, received = tables.measured(), tables.deliveries, tables.received
    status = {member: _sum(sent["n"][sent["status"] == member]) for member in Status}
    fate = {kind: _sum(received["n"][received["fate"] == kind]) for kind in (COPY, CORRUPT, MISPLACED)}
    return Counts(
        offered=_sum(sent["n"]),
        sent=status[Status.ACKED] + status[Status.FAILED] + status[Status.UNKNOWN],
        sent_in_time=_sum(sent["in_time"][sent["out"] == 1]),
        acked=status[Status.ACKED],
        failed=status[Status.FAILED],
        dropped=status[Status.DROPPED],
        unknown=status[Status.UNKNOWN],
        received=_sum(deliveries["received"]),
        received_in_time=_sum(deliveries["received_in_time"]),
        lost=_sum(deliveries["lost"]),
        duplicates=_sum(deliveries["copies"]) - _sum(deliveries["received"]),
        out_of_order=_sum(deliveries["late"]) if run.ordered else None,
        foreign=recorded.foreign + fate[MISPLACED],
        corrupt=recorded.corrupt + fate[CORRUPT],
    )


def _by_key(table: Table, key: str, n: int) -> list[Table]:
    """The rows of each key 0 … n-1."""
    order = np.argsort(table[key], kind="stable")
    edges = np.searchsorted(table[key][order], np.arange(n + 1))
    return [_take(table, order[low:high]) for low, high in itertools.pairwise(edges)]


def _breakdown(
    names: tuple[str, ...], sent: list[Table], acked: list[Table], received: list[int],
    end_to_end: list[Histogram | None], publish: list[Histogram | None],
) -> tuple[Breakdown, ...]:  # fmt: skip
    parts = []
    for i, name in enumerate(names):
        out = sent[i]["status"] != Status.DROPPED
        parts.append(
            Breakdown(
                name=name, sent=_sum(sent[i]["n"][out]), acked=_sum(acked[i]["n"]), received=received[i],
                bytes_sent=_sum(sent[i]["bytes"][out]), end_to_end=end_to_end[i], publish=publish[i],
            )
        )  # fmt: skip
    return tuple(parts)


def _topics(run: Run, tables: Tables, acked: Table, received: Table) -> tuple[Breakdown, ...]:
    totals, acks = _by_key(received, "topic", run.topics), _by_key(acked, "topic", run.topics)
    first = np.zeros(run.topics, np.int64)
    np.add.at(first, run.stream_topics[tables.deliveries["stream"]], tables.deliveries["received"])

    def histograms(whole: Table | None, long: Table | None, parts: list[Table], name: str) -> list[Histogram | None]:
        if long is not None:
            return [_histogram(table, "n", parts[i], name) for i, table in enumerate(_by_key(long, "topic", run.topics))]
        return [None if whole is None else _histogram(whole, f"topic_{i}", parts[i], name) for i in range(run.topics)]

    end_to_end = histograms(tables.latency, tables.latency_topics, totals, "latency")
    publish = histograms(tables.publish, tables.publish_topics, acks, "publish")
    return _breakdown(run.topic_names(), _by_key(tables.measured(), "topic", run.topics), acks, first.tolist(), end_to_end, publish)


def _buckets(run: Run, tables: Tables, acked: Table, received: Table) -> tuple[Breakdown, ...]:
    n = len(run.buckets)
    totals, acks = _by_key(received, "bucket", n), _by_key(acked, "bucket", n)
    first = [_sum(part["n"]) for part in totals]
    if tables.duplicates is not None:
        first = [n - _sum(part["duplicates"]) for n, part in zip(first, _by_key(tables.duplicates, "bucket", n), strict=True)]
    end_to_end = [_histogram(tables.latency, f"bucket_{i}", totals[i], "latency") for i in range(n)]
    published = tables.publish
    publish = [None if published is None else _histogram(published, f"bucket_{i}", acks[i], "publish") for i in range(n)]
    return _breakdown(run.buckets, _by_key(tables.measured(), "bucket", n), acks, first, end_to_end, publish)


def _series(run: Run, tables: Tables) -> Series:
    def by_second(second: NDArray[np.int64], n: NDArray[np.int64]) -> NDArray[np.int64]:
        known = second >= 0
        counted = np.zeros(int(second.max(initial=-1)) + 1, np.int64)
        np.add.at(counted, second[known], n[known])
        return counted

    sent, seconds = tables.sent_seconds, tables.received_seconds
    received, latency = (_take(seconds, seconds["due"] == due) for due in (0, 1))
    counted = [by_second(sent[name], sent["n"]) for name in ("offered", "sent", "acked")]
    percentiles = [
        np.clip(midpoint(np.maximum(latency[f"p{p}"], 0), SERIES_BITS), latency["minimum"], latency["maximum"]) for p in SERIES_PERCENTILES
    ]
    times = np.stack([*percentiles, latency["maximum"]], axis=1).astype(np.float64)
    return series(run, [*counted, by_second(received["second"], received["n"])], latency["second"], times)


def _lost(edges: Table) -> tuple[Lost, ...]:
    """Pair the beginnings with the ends of ranges."""
    order = np.lexsort([edges[name] for name in ("word", "stream", "subscription", "topic")])
    edges = _take(edges, order)
    (rows, first), (_, last) = (_set_bits(edges["word"], edges[name]) for name in ("first", "last"))
    return tuple(
        Lost(
            topic=int(edges["topic"][row]), subscription=int(edges["subscription"][row]), stream=int(edges["stream"][row]),
            first=int(begin), last=int(end),
        )
        for row, begin, end in zip(rows[:LOST_RANGES], first[:LOST_RANGES], last[:LOST_RANGES], strict=False)
    )  # fmt: skip


def _set_bits(word: NDArray[np.int64], mask: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and sequence of every set bit, in the order of rows and bits."""
    bits = np.unpackbits(mask.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    row, bit = np.nonzero(bits)
    return row, (word[row] << 6) + bit
