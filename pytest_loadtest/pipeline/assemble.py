"""Assemble measurements from the small tables that Spark returns: arithmetic on at most some thousand rows each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.message.broadcast import bits
from pytest_loadtest.message.samples import NEVER_SENT, WIDTH, Status
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES, LATENCIES
from pytest_loadtest.metrics.expected import with_latencies
from pytest_loadtest.metrics.full_windows import FullWindows, full_windows
from pytest_loadtest.metrics.gaps import gap_latencies
from pytest_loadtest.metrics.histogram import Histogram, join_total, midpoint
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Lost, Measurements, Series
from pytest_loadtest.metrics.offering import offered_windows
from pytest_loadtest.metrics.series import SERIES_BITS, SERIES_PERCENTILES, largest_lag
from pytest_loadtest.metrics.signed import with_lateness
from pytest_loadtest.metrics.silent import Silent, heard_of, marked, silence
from pytest_loadtest.metrics.sliced_counts import intervals, sliced_stats
from pytest_loadtest.metrics.stats import LOST_RANGES
from pytest_loadtest.metrics.time_slices import block_seconds, histograms, over_time
from pytest_loadtest.pipeline import tables as t
from pytest_loadtest.pipeline.spool import StoredCells
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected, Recorded
    from pytest_loadtest.metrics.gaps import DeliveryGaps
    from pytest_loadtest.metrics.offering import OfferedWindow
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.time_slices import Histograms, OverTime
    from pytest_loadtest.pipeline.spool import Packed, Spans


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The merged tables of one run or stage.

    :param tables: the tables of rows, by their name in ``tables.TABLES``.
    :param spans: and
    :param due: see :class:`~pytest_loadtest.pipeline.collect.Counted`.
    :param deliveries: see ``tables.delivery_totals``.
    :param buckets: see ``tables.bucket_totals``.
    :param reached: of a broadcast; otherwise empty.
    :param pieces: see ``tables.piece_totals``.
    :param edges: see ``tables.lost_edges``; None if nothing was lost.
    :param gaps: the longest time without delivery of each subscription of each topic.
    :param gaps_without_own: the same without the generator's own
        delays; None in a run without stalls.
    """

    tables: Mapping[str, t.Table]
    spans: Spans
    due: Sequence[Packed]
    deliveries: t.Table
    buckets: t.Table
    reached: t.Table
    pieces: t.Table
    edges: t.Table | None
    gaps: DeliveryGaps
    gaps_without_own: DeliveryGaps | None


def assemble(run: Expected, recorded: Recorded, answers: Answers) -> Measurements:
    """Return the measurements of a run or stage."""
    sent, sliced = answers.tables["sent"], _by_piece(run, answers)
    seconds = _by_second(run, answers.due, answers.tables["extremes"])
    series = _series(run, answers.tables, seconds)
    counted = {
        **_counts_by_piece(run, answers.pieces),
        **_counts_by_piece(run, answers.tables["own_late"]),
    }
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        counts=_counts(run, recorded, answers),
        bytes_sent=_sum(sent["bytes"][~_is_dropped(sent)]),
        latencies={
            **latencies_by_kind(answers.tables),
            **gap_latencies(answers.gaps, answers.gaps_without_own),
            **recorded.latencies,
        },
        blocked=join_total(_sum(sent["blocked_high"]), _sum(sent["blocked_low"])),
        own_late=_sum(sent["own_late"]),
        full_windows=_full_windows(
            run, _where(sent, "status", Status.BLOCKED), answers.tables["full_windows"]
        ),
        series=series,
        intervals=intervals(run, sliced),
        over_time=seconds.over_time,
        windows=sliced_stats(run, "windows", sliced, series.offered, counted),
        tenths=sliced_stats(run, "tenths", sliced, series.offered, counted),
        topics=_topics(run, answers),
        buckets=_buckets(run, answers),
        workers=with_latencies(recorded.workers, _by_worker(run, answers.tables)),
        lost=_lost(answers.edges) if answers.edges is not None else (),
        broadcasts=run.broadcasts,
        opening=recorded.opening,
        clocks=recorded.clocks,
        within_hosts=run.count_within_hosts(
            lambda: _sum(_where(answers.tables["seconds"], "what", t.WITHIN)["n"])
        ),
        silent=_silent(run, answers),
        pauses_known=bool(run.pauses),
        offering=_offering(run, answers.tables["offers"]),
    )


def latencies_by_kind(
    tables: Mapping[str, t.Table], kinds: Iterable[str] = COUNTED_LATENCIES
) -> dict[str, Histogram | Lateness]:
    """Return the latencies of the whole run by kind; kinds without values are missing."""
    return with_lateness(
        {kind: counted for kind in kinds if (counted := _whole(tables, kind)) is not None}
    )


def _offering(run: Expected, offers: t.Table) -> tuple[OfferedWindow, ...]:
    counted = {name: np.zeros(len(run.planned_windows), np.int64) for name in ("n", "bytes")}
    for name, column in counted.items():
        column[offers["window"]] = offers[name]
    return offered_windows(
        run.planned, run.planned_windows, counted["n"].tolist(), counted["bytes"].tolist()
    )


def _whole(tables: Mapping[str, t.Table], kind: str) -> Histogram | None:
    """Return all groups of a kind as one histogram."""
    by = t.BUCKET if COUNTED_LATENCIES[kind].per_bucket else t.WHOLE
    counts, whole = _of_kind(tables, kind, by)
    # The groups of a breakdown, such as size buckets, add up to the whole run.
    index, place = np.unique(counts["index"], return_inverse=True)
    count = np.zeros(len(index), np.int64)
    np.add.at(count, place, counts["n"])
    return _histogram({"index": index, "n": count}, whole)


def _histograms(
    tables: Mapping[str, t.Table], kind: str, by: int, n: int
) -> list[Histogram | None]:
    """Return one histogram for each group 0 … n-1."""
    counts, whole = _of_kind(tables, kind, by)
    return [
        _histogram(part, one)
        for part, one in zip(_by_key(counts, "group", n), _by_key(whole, "group", n), strict=True)
    ]


def _by_worker(run: Expected, tables: Mapping[str, t.Table]) -> dict[str, dict[str, Histogram]]:
    """Return the latencies of each worker."""
    by_kind = {
        kind: _histograms(tables, kind, t.WORKER, len(run.workers))
        for kind, metric in LATENCIES.items()
        if metric.per_worker
    }
    return {
        name: {
            kind: counted
            for kind, parts in by_kind.items()
            if (counted := parts[number]) is not None
        }
        for number, name in enumerate(run.workers)
    }


def _histogram(counts: t.Table, whole: t.Table) -> Histogram | None:
    if not len(counts["n"]):
        return None
    return Histogram(
        index=counts["index"],
        count=counts["n"],
        minimum=int(whole["minimum"].min()),
        maximum=int(whole["maximum"].max()),
        total=join_total(_sum(whole["high"]), _sum(whole["low"])),
        negative=_sum(whole["negative"]),
    )


def _of_kind(tables: Mapping[str, t.Table], kind: str, by: int) -> list[t.Table]:
    return [
        _where(_where(tables[name], "what", t.KINDS[kind]), "by", by)
        for name in ("counts", "histograms")
    ]


def _where(table: t.Table, key: str, value: int) -> t.Table:
    return t.take(table, table[key] == value)


def _sum(values: NDArray[np.int64]) -> int:
    return int(values.sum())


def _by_key(table: t.Table, key: str, n: int) -> list[t.Table]:
    """Return the rows of each key 0 … n-1, in their order."""
    # One sort for all groups; a mask for each would read the table once for every topic.
    order = np.argsort(table[key], kind="stable")
    edges = np.searchsorted(table[key][order], np.arange(n + 1))
    parts = np.split(order, edges)[1:-1]
    return [{name: column[part] for name, column in table.items()} for part in parts]


def _counts(run: Expected, recorded: Recorded, answers: Answers) -> Counts:
    sent, received, deliveries = (
        answers.tables["sent"],
        answers.tables["received"],
        answers.deliveries,
    )
    status = {member: _sum(sent["n"][sent["status"] == member]) for member in Status}
    fate = {
        kind: _sum(received["n"][received["fate"] == kind]) for kind in (t.CORRUPT, t.MISPLACED)
    }
    return Counts(
        offered=_sum(sent["n"]),
        sent=status[Status.ACKED] + status[Status.FAILED] + status[Status.UNKNOWN],
        sent_in_time=_sum(sent["in_time"]),
        acked=status[Status.ACKED],
        failed=status[Status.FAILED],
        dropped=sum(status[dropped] for dropped in NEVER_SENT),
        unknown=status[Status.UNKNOWN],
        received=_sum(deliveries["received"]),
        received_in_time=_sum(deliveries["received_in_time"]),
        lost=_sum(deliveries["lost"]),
        duplicates=_sum(deliveries["copies"]) - _sum(deliveries["received"]),
        out_of_order=_sum(deliveries["late"]) if run.ordered else None,
        foreign=None if recorded.foreign is None else recorded.foreign + fate[t.MISPLACED],
        corrupt=recorded.corrupt + fate[t.CORRUPT],
        corrupt_heads=recorded.corrupt,
        # Each subscription repeats the number of resent messages: it is counted once.
        resent=_sum(deliveries["resent"][deliveries["subscription"] == 0]),
        duplicates_of_resent=_sum(deliveries["duplicates_of_resent"]),
        out_of_due_order=_sum(_where(answers.tables["seconds"], "what", t.UNDUE)["n"])
        if run.delays
        else None,
    )


def _is_dropped(sent: t.Table) -> NDArray[np.bool_]:
    return np.isin(sent["status"], NEVER_SENT)


def _full_windows(run: Expected, blocked: t.Table, topics: t.Table) -> FullWindows | None:
    """:param blocked: the rows of the table ``sent`` for messages that were dropped before full windows."""
    waited = join_total(_sum(blocked["blocked_high"]), _sum(blocked["blocked_low"]))
    return full_windows(run, waited, *(topics[name] for name in ("topic", "n", "first", "last")))


def _silent(run: Expected, answers: Answers) -> Silent | None:
    deliveries = answers.deliveries
    if run.broadcasts:  # the table of deliveries has no single subscriptions
        row, bit = bits(answers.reached["mask"])
        subscription, topic = (
            answers.reached["group"][row] * WIDTH + bit,
            answers.reached["topic"][row],
        )
    else:
        got = t.take(deliveries, deliveries["received"] > 0)
        subscription, topic = got["subscription"], run.stream_topics[got["stream"]]
    # Without subscriptions a stream is silent if none of its messages was acknowledged.
    came = deliveries["received" if run.subscriptions else "acked"] > 0
    return silence(run, heard_of(run, subscription, topic), marked(run, deliveries["stream"][came]))


def _by_piece(run: Expected, answers: Answers) -> dict[str, Histograms]:
    """Return the latencies of each piece of the cut phase, by kind."""
    by_kind = {}
    for kind, metric in COUNTED_LATENCIES.items():
        if run.cut is None or not run.slices(metric):
            continue
        pieces, number = len(run.cut.starts), t.KINDS[kind]
        whole = dict(_where(_where(answers.tables["histograms"], "what", number), "by", t.SPAN))
        by_kind[kind] = histograms(
            pieces, StoredCells(pieces, answers.spans, number), whole | {"piece": whole["group"]}
        )
    return {kind: parts for kind, parts in by_kind.items() if parts is not None}


def _counts_by_piece(run: Expected, counted: t.Table) -> dict[str, NDArray[np.int64]]:
    """Return the counts of a table by piece of ``run.slice_cut``; 0 for pieces without any."""
    if run.slice_cut is None:
        return {}
    columns = {
        name: np.zeros(len(run.slice_cut.starts), np.int64) for name in counted if name != "piece"
    }
    for name, column in columns.items():
        column[counted["piece"]] = counted[name]
    return columns


def _topics(run: Expected, answers: Answers) -> tuple[Breakdown, ...]:
    topic = run.stream_topics[answers.deliveries["stream"]]
    return _breakdown(
        run.topic_names(), "topic", answers.tables, _summed(answers.deliveries, topic, run.topics)
    )


def _buckets(run: Expected, answers: Answers) -> tuple[Breakdown, ...]:
    return _breakdown(
        run.buckets,
        "bucket",
        answers.tables,
        _summed(answers.buckets, answers.buckets["bucket"], len(run.buckets)),
    )


def _summed(deliveries: t.Table, group: NDArray[np.int64], n: int) -> dict[str, NDArray[np.int64]]:
    """Return the sums of deliveries of each group 0 … n-1."""
    sums = {name: np.zeros(n, np.int64) for name in ("received", "received_in_time", "lost")}
    for name, total in sums.items():
        np.add.at(total, group, deliveries[name])
    return sums


def _breakdown(
    names: tuple[str, ...],
    key: str,
    tables: Mapping[str, t.Table],
    deliveries: Mapping[str, NDArray[np.int64]],
) -> tuple[Breakdown, ...]:
    n, by = len(names), t.TOPIC if key == "topic" else t.BUCKET
    kinds = {
        kind: _histograms(tables, kind, by, n)
        for kind, metric in COUNTED_LATENCIES.items()
        if getattr(metric, f"per_{key}")
    }
    parts = []
    for i, sent in enumerate(_by_key(tables["sent"], key, n)):
        out = ~_is_dropped(sent)
        parts.append(
            Breakdown(
                name=names[i], offered=_sum(sent["n"]), sent=_sum(sent["n"][out]), acked=_sum(sent["n"][sent["status"] == Status.ACKED]),
                received=int(deliveries["received"][i]), received_in_time=int(deliveries["received_in_time"][i]),
                lost=int(deliveries["lost"][i]), bytes_sent=_sum(sent["bytes"][out]),
                latencies={kind: counted for kind, parts_of in kinds.items() if (counted := parts_of[i]) is not None},
            )
        )  # fmt: skip
    return tuple(parts)


@dataclass(frozen=True, kw_only=True)
class _Seconds:
    """End-to-end latencies of first copies by the second of their intended time.

    :param came: int64, first copies in each second.
    :param percentiles: int64, one row for each of the seconds with latencies.
    """

    came: NDArray[np.int64]
    percentiles: NDArray[np.int64]
    over_time: OverTime | None


def _by_second(run: Expected, shards: Sequence[Packed], extremes: t.Table) -> _Seconds:
    """Read the table ``due`` shard by shard: that of a day has some ten million rows."""
    length = block_seconds(run.duration)
    came = np.zeros(int(extremes["second"].max(initial=-1)) + 1, np.int64)
    percentiles = [np.zeros((0, len(SERIES_PERCENTILES)), np.int64)]
    blocks = [t.merge_rows("due", ())]
    for shard in shards:
        due = {name: column.astype(np.int64) for name, column in shard.table().items()}
        np.add.at(came, due["second"], due["n"])
        seconds = np.unique(due["second"])
        buckets = [
            midpoint(_nearest_rank(due, seconds, p), SERIES_BITS) for p in SERIES_PERCENTILES
        ]
        percentiles.append(np.stack(buckets, axis=1))
        blocks.append(t.merge_rows("due", [due | {"second": due["second"] // length * length}]))
    every = np.concatenate(percentiles)
    limits = extremes["minimum"][:, None], extremes["maximum"][:, None]
    rows = t.merge_rows("due", blocks)
    return _Seconds(
        came=came,
        percentiles=np.clip(every, *limits),
        over_time=over_time(rows["second"], rows["index"], rows["n"]),
    )


def _series(run: Expected, tables: Mapping[str, t.Table], latencies: _Seconds) -> Series:
    def by_second(what: int, least: int = 0) -> NDArray[np.int64]:
        happened = _where(tables["seconds"], "what", what)
        counted = np.zeros(max(int(happened["second"].max(initial=-1)) + 1, least), np.int64)
        np.add.at(counted, happened["second"], happened["n"])
        return counted

    # Copies by intended second: first ones are in the table of latencies. A later copy has the
    # intended second of its first one, so no copy lies beyond the end of the column.
    came = latencies.came + by_second(t.AGAIN, len(latencies.came))
    counted = [
        *(by_second(what) for what in (t.OFFERED, t.SENT, t.ACKED, t.RECEIVED, t.BLOCKED, t.KEPT)),
        came,
    ]
    extremes = tables["extremes"]
    columns = [
        latencies.percentiles,
        extremes["maximum"][:, None],
        largest_lag(extremes["lag"])[:, None],
    ]
    times = np.concatenate(columns, axis=1).astype(np.float64)
    return Series.padded(
        -(-run.duration // SECOND), counted, extremes["second"], times, run.subscriptions
    )


def _nearest_rank(due: t.Table, seconds: NDArray[np.int64], p: int) -> NDArray[np.int64]:
    """Return the HDR bucket of each second's percentile.

    :param seconds: all seconds of ``due``, ascending; its rows are in order.
    """
    # One cumulative sum over all seconds: the rank within a second is
    # shifted by the values of all seconds before it.
    below = np.cumsum(due["n"])
    whole = below[np.searchsorted(due["second"], seconds, side="right") - 1]
    n = np.diff(whole, prepend=0)
    rank = whole - n + -(-n * p // 100)
    bucket: NDArray[np.int64] = due["index"][np.searchsorted(below, rank)]
    return bucket


def _lost(edges: t.Table) -> tuple[Lost, ...]:
    """Return the ranges between beginnings and ends."""
    # Both lists are in one order, and beginnings and ends alternate, so
    # the n-th beginning belongs to the n-th end.
    order = np.lexsort([edges[name] for name in ("word", "stream", "subscription", "topic")])
    edges = {name: column[order] for name, column in edges.items()}
    (rows, first), (_, last) = (_set_bits(edges["word"], edges[name]) for name in ("first", "last"))
    return tuple(
        Lost(
            topic=int(edges["topic"][row]), subscription=int(edges["subscription"][row]), stream=int(edges["stream"][row]),
            first=int(begin), last=int(end),
        )
        for row, begin, end in zip(rows[:LOST_RANGES], first[:LOST_RANGES], last[:LOST_RANGES], strict=False)
    )  # fmt: skip


def _set_bits(
    word: NDArray[np.int64], mask: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and sequence of every set bit, in the order of rows and bits."""
    row, bit = bits(mask)
    return row, (word[row] << 6) + bit
