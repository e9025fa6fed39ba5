"""Assemble measurements from the small tables that Spark returns.

The rule: a metric of :mod:`pytest_loadtest.metrics.stats`, computed from merged counts instead of
rows, is equal to the bit. It is arithmetic on at most some thousand rows of each table;
:mod:`pytest_loadtest.pipeline.aggregate` calls it in the controller's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.message.broadcast import bits
from pytest_loadtest.message.samples import NEVER_SENT, WIDTH, Status
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES, LATENCIES
from pytest_loadtest.metrics.expected import Expected, Recorded, with_latencies
from pytest_loadtest.metrics.full_windows import FullWindows, full_windows
from pytest_loadtest.metrics.gaps import DeliveryGaps, gap_latencies
from pytest_loadtest.metrics.histogram import Histogram, join_total, midpoint
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Lost, Measurements, Series
from pytest_loadtest.metrics.offering import OfferedWindow, offered_windows
from pytest_loadtest.metrics.series import SERIES_BITS, SERIES_PERCENTILES, largest_lag
from pytest_loadtest.metrics.signed import Lateness, with_lateness
from pytest_loadtest.metrics.silent import answered_of, heard_of, marked, silence, unheard_pairs
from pytest_loadtest.metrics.sliced_counts import intervals, sliced_stats
from pytest_loadtest.metrics.stats import LOST_RANGES
from pytest_loadtest.metrics.time_slices import (
    Histograms,
    OverTime,
    block_seconds,
    histograms,
    over_time,
)
from pytest_loadtest.pipeline import tables as t
from pytest_loadtest.pipeline.spool import Packed, Spans, StoredCells
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    sent = answers.tables["sent"]
    sliced = _by_piece(run, answers)
    seconds = _by_second(run, answers.due, answers.tables["extremes"])
    series = _series(run, answers.tables, seconds)
    own_late = _counts_by_piece(run, answers.tables["own_late"])
    counted = _counts_by_piece(run, answers.pieces) | own_late
    counts = _counts(run, recorded, answers)
    deliveries = answers.deliveries
    lost = _sums(deliveries["subscription"], deliveries["lost"], max(run.subscriptions, 1))
    answered = answered_of(run, lost[: run.subscriptions], counts.acked)
    heard = _heard(run, answers)
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        outputs=run.outputs,
        answered=answered,
        tapped=run.tapped,
        counts=counts,
        bytes_sent=_sum(sent["bytes"][~_is_dropped(sent)]),
        latencies={
            **latencies_by_kind(answers.tables),
            **gap_latencies(answers.gaps, answers.gaps_without_own),
            **recorded.latencies,
        },
        blocked=join_total(_sum(sent["blocked_high"]), _sum(sent["blocked_low"])),
        in_time_without_own=_sum(answers.deliveries["in_time_without_own"]),
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
        lost=() if answers.edges is None or run.selective else _lost(answers.edges),
        broadcasts=run.broadcasts,
        opening=recorded.opening,
        clocks=recorded.clocks,
        strays=recorded.strays,
        within_hosts=run.count_within_hosts(
            lambda: _sum(_where(answers.tables["seconds"], "what", t.WITHIN)["n"])
        ),
        silent=silence(run, heard, _arrived(run, answers), answered),
        unheard=unheard_pairs(run, heard),
        pauses_known=bool(run.pauses),
        offering=_offering(run, answers.tables["offers"]),
    )


def latencies_by_kind(
    tables: Mapping[str, t.Table], kinds: Iterable[str] = COUNTED_LATENCIES
) -> dict[str, Histogram | Lateness]:
    """Return the latencies of the whole run by kind; kinds without values are missing."""
    latencies = {}
    for kind in kinds:
        histogram = _whole(tables, kind)
        if histogram is not None:
            latencies[kind] = histogram
    return with_lateness(latencies)


def _offering(run: Expected, offers: t.Table) -> tuple[OfferedWindow, ...]:
    windows = len(run.planned_windows)
    n = _sums(offers["window"], offers["n"], windows)
    size = _sums(offers["window"], offers["bytes"], windows)
    return offered_windows(run.planned, run.planned_windows, n.tolist(), size.tolist())


def _whole(tables: Mapping[str, t.Table], kind: str) -> Histogram | None:
    """Return all groups of a kind as one histogram."""
    by = t.BUCKET if COUNTED_LATENCIES[kind].per_bucket else t.WHOLE
    counts = _of_kind(tables["counts"], kind, by)
    # The groups of a breakdown, such as size buckets, add up to the whole run.
    index, place = np.unique(counts["index"], return_inverse=True)
    merged = {"index": index, "n": _sums(place, counts["n"], len(index))}
    return _histogram(merged, _of_kind(tables["histograms"], kind, by))


def _histograms(
    tables: Mapping[str, t.Table], kind: str, by: int, n: int
) -> list[Histogram | None]:
    """Return one histogram for each group 0 … n-1."""
    counts = _by_key(_of_kind(tables["counts"], kind, by), "group", n)
    whole = _by_key(_of_kind(tables["histograms"], kind, by), "group", n)
    return [_histogram(*of_group) for of_group in zip(counts, whole, strict=True)]


def _by_worker(run: Expected, tables: Mapping[str, t.Table]) -> dict[str, dict[str, Histogram]]:
    """Return the latencies of each worker."""
    by_kind = {
        kind: _histograms(tables, kind, t.WORKER, len(run.workers))
        for kind, metric in LATENCIES.items()
        if metric.per_worker
    }
    return {name: _of_group(by_kind, number) for number, name in enumerate(run.workers)}


def _of_group(
    by_kind: Mapping[str, Sequence[Histogram | None]], number: int
) -> dict[str, Histogram]:
    """Return the latencies of one group; kinds without values are missing."""
    latencies = {}
    for kind, histograms_of_kind in by_kind.items():
        histogram = histograms_of_kind[number]
        if histogram is not None:
            latencies[kind] = histogram
    return latencies


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


def _of_kind(table: t.Table, kind: str, by: int) -> t.Table:
    return t.take(table, (table["what"] == t.KINDS[kind]) & (table["by"] == by))


def _where(table: t.Table, key: str, value: int) -> t.Table:
    return t.take(table, table[key] == value)


def _sum(values: NDArray[np.int64]) -> int:
    return int(values.sum())


def _sums(index: NDArray[np.int64], values: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the sum of the values of each index 0 … n-1: 5, 0, 13 of 5, 6, 7 at 0, 2, 2."""
    sums = np.zeros(n, np.int64)
    np.add.at(sums, index, values)
    return sums


def _by_key(table: t.Table, key: str, n: int) -> list[t.Table]:
    """Return the rows of each key 0 … n-1, in their order."""
    # One sort for all groups; a mask for each would read the table once for every topic.
    order = np.argsort(table[key], kind="stable")
    edges = np.searchsorted(table[key][order], np.arange(n + 1))
    return [t.rows_at(table, part) for part in np.split(order, edges)[1:-1]]


def _counts(run: Expected, recorded: Recorded, answers: Answers) -> Counts:
    sent = answers.tables["sent"]
    received = answers.tables["received"]
    deliveries = answers.deliveries
    status = {member: _sum(_where(sent, "status", member)["n"]) for member in Status}
    foreign = recorded.foreign
    if foreign is not None:
        foreign += _sum(_where(received, "fate", t.MISPLACED)["n"])
    out_of_order = None
    if run.ordered:
        out_of_order = _sum(deliveries["late"])
    lost = None
    if not run.selective:
        lost = _sum(deliveries["lost"])
    out_of_due_order = None
    if run.delays:
        out_of_due_order = _sum(_where(answers.tables["seconds"], "what", t.UNDUE)["n"])
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
        lost=lost,
        duplicates=_sum(deliveries["copies"]) - _sum(deliveries["received"]),
        out_of_order=out_of_order,
        foreign=foreign,
        corrupt=recorded.corrupt + _sum(_where(received, "fate", t.CORRUPT)["n"]),
        corrupt_heads=recorded.corrupt,
        # Each subscription repeats the number of resent messages: it is counted once.
        resent=_sum(_where(deliveries, "subscription", 0)["resent"]),
        duplicates_of_resent=_sum(deliveries["duplicates_of_resent"]),
        out_of_due_order=out_of_due_order,
    )


def _is_dropped(sent: t.Table) -> NDArray[np.bool_]:
    return np.isin(sent["status"], NEVER_SENT)


def _full_windows(run: Expected, blocked: t.Table, topics: t.Table) -> FullWindows | None:
    """:param blocked: rows of ``sent`` for messages that were dropped before full windows."""
    waited = join_total(_sum(blocked["blocked_high"]), _sum(blocked["blocked_low"]))
    return full_windows(run, waited, topics["topic"], topics["n"], topics["first"], topics["last"])


def _heard(run: Expected, answers: Answers) -> NDArray[np.bool_]:
    """Return the pairs of subscription and topic that got something."""
    deliveries = answers.deliveries
    if run.broadcasts:  # the table of deliveries has no single subscriptions
        row, bit = bits(answers.reached["mask"])
        topic = answers.reached["topic"][row]
        subscription = answers.reached["group"][row] * WIDTH + bit
    else:
        got = t.take(deliveries, deliveries["received"] > 0)
        topic = run.stream_topics[got["stream"]]
        subscription = got["subscription"]
    return heard_of(run, subscription, topic)


def _arrived(run: Expected, answers: Answers) -> NDArray[np.bool_]:
    """Return the streams of which something came."""
    deliveries = answers.deliveries
    # Without subscriptions a stream is silent if none of its messages was acknowledged.
    arrived = deliveries["received" if run.subscriptions else "acked"] > 0
    return marked(run, deliveries["stream"][arrived])


def _by_piece(run: Expected, answers: Answers) -> dict[str, Histograms]:
    """Return the latencies of each piece of the cut phase, by kind."""
    by_kind: dict[str, Histograms] = {}
    if run.cut is None:
        return by_kind
    pieces = len(run.cut.starts)
    for kind, metric in COUNTED_LATENCIES.items():
        if not run.slices(metric):
            continue
        whole = _of_kind(answers.tables["histograms"], kind, t.SPAN)
        cells = StoredCells(pieces, answers.spans, t.KINDS[kind])
        of_pieces = histograms(pieces, cells, {**whole, "piece": whole["group"]})
        if of_pieces is not None:
            by_kind[kind] = of_pieces
    return by_kind


def _counts_by_piece(run: Expected, counted: t.Table) -> dict[str, NDArray[np.int64]]:
    """Return the counts of a table by piece of ``run.slice_cut``; 0 for pieces without any."""
    if run.slice_cut is None:
        return {}
    pieces = len(run.slice_cut.starts)
    return {
        name: _sums(counted["piece"], column, pieces)
        for name, column in counted.items()
        if name != "piece"
    }


def _topics(run: Expected, answers: Answers) -> tuple[Breakdown, ...]:
    topic = run.stream_topics[answers.deliveries["stream"]]
    deliveries = _summed(answers.deliveries, topic, run.topics)
    return _breakdown(
        run.topic_names(), "topic", answers.tables, deliveries, selective=run.selective
    )


def _buckets(run: Expected, answers: Answers) -> tuple[Breakdown, ...]:
    deliveries = _summed(answers.buckets, answers.buckets["bucket"], len(run.buckets))
    return _breakdown(run.buckets, "bucket", answers.tables, deliveries, selective=run.selective)


def _summed(deliveries: t.Table, group: NDArray[np.int64], n: int) -> dict[str, NDArray[np.int64]]:
    """Return the sums of deliveries of each group 0 … n-1."""
    names = ("received", "received_in_time", "in_time_without_own", "lost")
    return {name: _sums(group, deliveries[name], n) for name in names}


def _breakdown(
    names: tuple[str, ...],
    key: str,
    tables: Mapping[str, t.Table],
    deliveries: Mapping[str, NDArray[np.int64]],
    *,
    selective: bool,
) -> tuple[Breakdown, ...]:
    """:param key: ``topic`` or ``bucket``."""
    by = t.TOPIC if key == "topic" else t.BUCKET
    by_kind = {
        kind: _histograms(tables, kind, by, len(names))
        for kind, metric in COUNTED_LATENCIES.items()
        if getattr(metric, f"per_{key}")
    }
    parts = []
    for number, offered in enumerate(_by_key(tables["sent"], key, len(names))):
        sent = t.take(offered, ~_is_dropped(offered))
        breakdown = Breakdown(
            name=names[number],
            offered=_sum(offered["n"]),
            sent=_sum(sent["n"]),
            acked=_sum(_where(offered, "status", Status.ACKED)["n"]),
            received=int(deliveries["received"][number]),
            received_in_time=int(deliveries["received_in_time"][number]),
            in_time_without_own=int(deliveries["in_time_without_own"][number]),
            lost=None if selective else int(deliveries["lost"][number]),
            bytes_sent=_sum(sent["bytes"]),
            latencies=_of_group(by_kind, number),
        )
        parts.append(breakdown)
    return tuple(parts)


@dataclass(frozen=True, kw_only=True)
class _Seconds:
    """End-to-end latencies of first copies by the second of their intended time.

    :param first_copies: int64, in each second.
    :param percentiles: int64, one row for each of the seconds with latencies.
    """

    first_copies: NDArray[np.int64]
    percentiles: NDArray[np.int64]
    over_time: OverTime | None


def _by_second(run: Expected, shards: Sequence[Packed], extremes: t.Table) -> _Seconds:
    """Read the table ``due`` shard by shard: that of a day has some ten million rows."""
    length = block_seconds(run.duration)
    first_copies = np.zeros(int(extremes["second"].max(initial=-1)) + 1, np.int64)
    percentiles = [np.zeros((0, len(SERIES_PERCENTILES)), np.int64)]
    blocks = [t.merge_rows("due", ())]
    for shard in shards:
        due = {name: column.astype(np.int64) for name, column in shard.table().items()}
        np.add.at(first_copies, due["second"], due["n"])
        seconds = np.unique(due["second"])
        buckets = [
            midpoint(_nearest_rank(due, seconds, p), SERIES_BITS) for p in SERIES_PERCENTILES
        ]
        percentiles.append(np.stack(buckets, axis=1))
        blocks.append(t.merge_rows("due", [due | {"second": due["second"] // length * length}]))
    every = np.concatenate(percentiles)
    least = extremes["minimum"][:, None]
    most = extremes["maximum"][:, None]
    rows = t.merge_rows("due", blocks)
    return _Seconds(
        first_copies=first_copies,
        percentiles=np.clip(every, least, most),
        over_time=over_time(rows["second"], rows["index"], rows["n"]),
    )


def _series(run: Expected, tables: Mapping[str, t.Table], latencies: _Seconds) -> Series:
    def by_second(what: int, least: int = 0) -> NDArray[np.int64]:
        happened = _where(tables["seconds"], "what", what)
        seconds = int(happened["second"].max(initial=-1)) + 1
        return _sums(happened["second"], happened["n"], max(seconds, least))

    # Copies by intended second: first ones are in the table of latencies. A later copy has the
    # intended second of its first one, so no copy lies beyond the end of the column.
    copies = latencies.first_copies + by_second(t.AGAIN, len(latencies.first_copies))
    counted = [*map(by_second, (t.OFFERED, t.SENT, t.ACKED, t.RECEIVED, t.BLOCKED, t.KEPT)), copies]
    extremes = tables["extremes"]
    columns = [
        latencies.percentiles,
        extremes["maximum"][:, None],
        largest_lag(extremes["lag"])[:, None],
    ]
    times = np.concatenate(columns, axis=1).astype(np.float64)
    planned = -(-run.duration // SECOND)
    return Series.padded(planned, counted, extremes["second"], times, run.known_fan_out)


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
    # Both lists are in one order, and beginnings and ends alternate, so the
    # n-th beginning belongs to the n-th end.
    order = np.lexsort((edges["word"], edges["stream"], edges["subscription"], edges["topic"]))
    edges = t.rows_at(edges, order)
    rows, first = _set_bits(edges["word"], edges["first"])
    last = _set_bits(edges["word"], edges["last"])[1]
    lost = []
    for row, begin, end in islice(zip(rows, first, last, strict=False), LOST_RANGES):
        lost.append(
            Lost(
                topic=int(edges["topic"][row]),
                subscription=int(edges["subscription"][row]),
                stream=int(edges["stream"][row]),
                first=int(begin),
                last=int(end),
            )
        )
    return tuple(lost)


def _set_bits(
    word: NDArray[np.int64], mask: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and sequence of every set bit, in the order of rows and bits."""
    row, bit = bits(mask)
    return row, (word[row] << 6) + bit
