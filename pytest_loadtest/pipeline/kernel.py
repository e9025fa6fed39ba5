"""Reduce a block of rows to small tables of counts. numpy only; no Spark, no files.

The rule: this is the fast twin of the definitions in :mod:`pytest_loadtest.metrics.stats` for
counts and latencies, and must agree with them to the bit; deliveries are counted with bitmaps
(:mod:`pytest_loadtest.pipeline.bitmaps`). Each row is read a few times while it is in the cache,
and costs some hundred nanoseconds in all.

Spark's workers (:mod:`pytest_loadtest.pipeline.executor`) call it in their processes for each block
of the files that they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES, with_own, without_own
from pytest_loadtest.metrics.gaps import gap_cells, gap_times
from pytest_loadtest.metrics.histogram import HALF, hdr_index, midpoint
from pytest_loadtest.metrics.offering import window_of
from pytest_loadtest.metrics.own_delays import of_acknowledgements, of_copies, of_sends
from pytest_loadtest.metrics.series import SERIES_BITS, wait_end
from pytest_loadtest.metrics.sliced_counts import late_by_generator, sent_late_by_us
from pytest_loadtest.pipeline.tables import (
    ACKED,
    AGAIN,
    BLOCKED,
    BUCKET,
    COPY,
    CORRUPT,
    KEPT,
    KINDS,
    MISPLACED,
    OFFERED,
    RECEIVED,
    SENT,
    SPAN,
    TOPIC,
    UNDUE,
    WHOLE,
    WITHIN,
    WORKER,
    Groups,
    Table,
    rows_at,
    select,
    take,
)
from pytest_loadtest.values.quantities import MICROSECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

    Rows = Mapping[str, NDArray[Any]]

# The columns that the tables need; Parquet reads no others.
SENT_COLUMNS = (
    "stream",
    "topic",
    "bucket",
    "size",
    "status",
    "seq",
    "intended",
    "sent",
    "acked",
    "blocked",
)
RECEIVED_COLUMNS = (
    "subscription",
    "stream",
    "topic",
    "bucket",
    "flags",
    "seq",
    "intended",
    "received",
    "lag",
)
# The kinds that first_copy_tables counts. They are replaced by the third scan if deliveries came
# more than once (decision 024), so a kind that is missing here would be counted twice.
FIRST_COPY_KINDS: Final = (
    "end_to_end",
    "receive_lag",
    "lateness",
    "earliness",
    with_own("end_to_end"),
    without_own("end_to_end"),
    with_own("lateness"),
    without_own("lateness"),
)
# Later than every time.
MANY = np.iinfo(np.int64).max


def sent_tables(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a block of sent rows, by name.

    :param rows: ``SENT_COLUMNS``.
    """
    rows = measured(rows, run)
    if not len(rows["seq"]):
        return
    # The second of the intended time is a key of several tables:
    # one division for each row, not one for each table.
    rows = {**rows, "second": run.seconds(rows["intended"])}
    out = rows["sent"] > 0
    went = take(rows, out)
    acked = take(rows, rows["status"] == int(Status.ACKED))

    groups = Groups(select(rows, ("topic", "bucket", "status")))
    totals = groups.totals(
        {
            "bytes": rows["size"],
            "in_time": out & (rows["sent"] < run.start + run.duration),
            "own_late": out & sent_late_by_us(rows, run),
        }
    )
    high, low = _halves(groups, rows["blocked"])
    intended = rows["intended"]
    totals |= {"first": groups.minimum(intended), "last": groups.maximum(intended)}
    yield "sent", totals | {"n": groups.n, "blocked_high": high, "blocked_low": low}

    waited = take(rows, rows["blocked"] > 0)
    yield from _by_second(OFFERED, rows["second"])
    yield from _by_second(SENT, run.seconds(went["sent"]))
    yield from _by_second(ACKED, run.seconds(acked["acked"]))
    yield from _by_second(KEPT, acked["second"])
    yield from _by_second(BLOCKED, run.seconds(wait_end(waited)), waited["blocked"])
    yield from _offers(rows, run)
    yield from _full_windows(take(rows, rows["status"] == int(Status.BLOCKED)))
    yield from _own_late(went, run)
    yield from _sender_latencies(went, acked, run)


def _sender_latencies(went: Rows, acked: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """:param went: rows of sent messages. :param acked: those of acknowledged ones."""
    delay = went["sent"] - went["intended"]
    own_delay = np.maximum(delay - went["blocked"], 0)
    # Most blocks have no blocked message: then both delays are one array, whose buckets are
    # computed once.
    if (own_delay == delay).all():
        own_delay = delay
    yield from latency_tables({"send_delay": delay, "own_send_delay": own_delay}, went, run)
    if run.pauses and own_delay.any():
        yield from own_part_tables("send_delay", delay, of_sends(went), went, run)

    if not run.publish_acks or not len(acked["acked"]):
        return
    published = acked["acked"] - acked["intended"]
    yield from latency_tables({"publish": published}, acked, run)
    if run.pauses:
        own_part = of_acknowledgements(acked, run)
        yield from own_part_tables("publish", published, own_part, acked, run)


def received_tables(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a block of received rows, by name.

    Each copy is counted as the first of its delivery.

    :param rows: ``RECEIVED_COLUMNS``.
    """
    rows = measured(rows, run)
    if not len(rows["seq"]):
        return
    fate = fates(rows, run)
    groups = Groups({"fate": fate})
    yield "received", groups.counted()
    copies = take(rows, fate == COPY)
    yield from _by_second(RECEIVED, run.seconds(copies["received"]))
    yield from first_copy_tables(copies, run)


def first_copy_tables(copies: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of latencies.

    :param copies: each the first of its delivery; ``RECEIVED_COLUMNS``, ``worker`` if the run names
        workers, ``host`` if it has several.
    """
    if not len(copies["seq"]):
        return
    latency = copies["received"] - copies["intended"]
    second = run.seconds(copies["intended"])
    index = hdr_index(latency)
    rows = {**copies, "second": second}
    yield from latency_tables({"end_to_end": latency}, rows, run, index)
    own_part = None
    if run.pauses:
        own_part = of_copies(copies, run)
        yield from own_part_tables("end_to_end", latency, own_part, rows, run)

    stamped = take(rows, copies["lag"] >= 0)
    if len(stamped["lag"]):
        lag = stamped["lag"] * np.int64(MICROSECOND)
        yield from latency_tables({"receive_lag": lag}, stamped, run)

    if run.delays is not None:
        yield from _lateness_tables(rows, run)
    if run.stream_hosts is not None:
        # Only their sum is needed. A table that the third scan replaces
        # anyway has it without one more table.
        yield from _by_second(WITHIN, second[run.within_host(copies)])

    # Percentiles of a second come from buckets of seven bits, which are
    # limited by its exact extremes.
    due = Groups({"second": second})
    yield (
        "extremes",
        {
            **due.keys,
            "minimum": due.minimum(latency),
            "maximum": due.maximum(latency),
            "lag": due.maximum(copies["lag"]),
        },
    )
    yield "due", Groups({"second": second, "index": _coarser(index)}).counted()

    yield "gaps", _filled_cells(gap_times(copies, run), copies, run)
    if own_part is not None and run.explains_gaps:
        earlier = {**copies, "received": copies["received"] - own_part}
        yield "gaps_without_own", _filled_cells(gap_times(earlier, run), copies, run)


def _lateness_tables(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of delayed messages: each copy is counted on its side of due.

    :param rows: with ``second``.
    """
    lateness = run.lateness(rows)
    after = lateness >= 0
    late = lateness[after]
    seconds_after = {"second": rows["second"][after]}
    seconds_before = {"second": rows["second"][~after]}
    yield from latency_tables({"lateness": late}, seconds_after, run)
    yield from latency_tables({"earliness": -lateness[~after]}, seconds_before, run)
    if run.pauses:
        own_part = of_copies(rows, run, rows["received"] - lateness)[after]
        yield from own_part_tables("lateness", late, own_part, seconds_after, run)
    yield from _by_second(UNDUE, rows["second"][rows["flags"] & int(Flag.UNDUE) != 0])


def _filled_cells(times: NDArray[np.int64], copies: Rows, run: Expected) -> Table:
    """Return the number of receipts, the earliest and the latest one of each cell.

    :param times: see ``gap_times``.
    """
    keys = {**select(copies, ("subscription", "topic")), "cell": gap_cells(times, run)}
    filled = Groups(keys)
    ends = {"first": filled.minimum(times), "last": filled.maximum(times)}
    return filled.counted() | ends


def own_part_tables(
    kind: str, values: NDArray[np.int64], part: NDArray[np.int64], rows: Rows, run: Expected
) -> Iterator[tuple[str, Table]]:
    """Yield the histograms of the latencies that the generator's own delays lengthened.

    There are two: as the latencies are, and without that part.

    :param part: ns, of each value.
    :param rows: see :func:`latency_tables`.
    """
    # A value below 0, of a clock that was set, has no part.
    affected = np.flatnonzero(part > 0)
    # Fast path: no message of most blocks was delayed by a pause.
    if not len(affected):
        return
    values = values[affected]
    used = select(rows, {"second", "bucket"} & rows.keys())
    kinds = {with_own(kind): values, without_own(kind): values - part[affected]}
    yield from latency_tables(kinds, rows_at(used, affected), run)


def later_copy_tables(copies: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of copies that are not the first of their delivery."""
    latency = copies["received"] - copies["intended"]
    rows = {**copies, "second": run.seconds(copies["intended"])}
    yield from _by_second(AGAIN, rows["second"])
    yield from latency_tables({"later_copies": latency}, rows, run)


def _coarser(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bucket of ``SERIES_BITS`` that contains each HDR bucket."""
    # A lookup table: there are fewer buckets than rows.
    coarser: NDArray[np.int64] = hdr_index(midpoint(np.arange(index.max() + 1)), SERIES_BITS)[index]
    return coarser


def measured(rows: Rows, run: Expected) -> Rows:
    """Return the rows whose sequence belongs to the run, or stage."""
    stream = rows["stream"]
    seq = rows["seq"]
    # Fast path: no row belongs to a stage that lies at another time.
    if (
        not len(seq)
        or seq.min() >= run.end.max(initial=0)
        or seq.max() < run.first.min(initial=MANY)
    ):
        return rows_at(rows, slice(0))
    valid = stream.min() >= 0 and stream.max() < len(run.first)
    # Fast path: every row of most blocks belongs to the run, so nothing is looked up or copied.
    if valid and seq.min() >= run.first.max() and seq.max() < run.end.min():
        return rows
    rows = take(rows, (stream >= 0) & (stream < len(run.first)))
    stream = rows["stream"]
    seq = rows["seq"]
    return take(rows, (seq >= run.first[stream]) & (seq < run.end[stream]))


def copies_of(rows: Rows, run: Expected) -> Rows:
    """Return the measured received rows that are neither corrupt nor misplaced."""
    rows = measured(rows, run)
    return take(rows, fates(rows, run) == COPY)


def fates(rows: Rows, run: Expected) -> NDArray[np.int64]:
    """Return the fate of each measured received row: ``COPY``, ``CORRUPT`` or ``MISPLACED``."""
    subscription = rows["subscription"]
    placed = (
        (rows["topic"] == run.stream_topics[rows["stream"]])
        & (subscription >= 0)
        & (subscription < run.subscriptions)
    )
    corrupt = rows["flags"] & int(Flag.CORRUPT) != 0
    fate = np.where(corrupt, CORRUPT, COPY)
    fate[~placed] = MISPLACED
    return fate


def _by_second(
    what: int, second: NDArray[np.int64], amount: NDArray[np.int64] | None = None
) -> Iterator[tuple[str, Table]]:
    """Yield a table ``seconds``.

    :param amount: of each row, summed; None: rows are counted.
    """
    if not len(second):
        return
    groups = Groups({"second": second})
    n = groups.n
    if amount is not None:
        n = groups.sum(amount)
    yield "seconds", {"what": np.full(len(n), what), **groups.keys, "n": n}


def _full_windows(blocked: Rows) -> Iterator[tuple[str, Table]]:
    """:param blocked: rows of messages that were dropped before full windows."""
    if not len(blocked["topic"]):
        return
    groups = Groups({"topic": blocked["topic"]})
    first = groups.minimum(blocked["intended"])
    last = groups.maximum(blocked["intended"] + blocked["blocked"])
    yield "full_windows", groups.counted() | {"first": first, "last": last}


def _offers(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """:param rows: messages due."""
    if not run.planned_windows:
        return
    starts = np.array([window.start for window in run.planned_windows], np.int64)
    elapsed = rows["intended"] - run.start
    first, last = window_of(np.array([elapsed.min(), elapsed.max()]), starts)
    # Fast path: the rows of a block are neighbours in time, so most blocks are in one window.
    if first == last:
        size = rows["size"].sum(dtype=np.int64, keepdims=True)
        yield "offers", {"window": np.array([first]), "n": np.array([len(elapsed)]), "bytes": size}
        return
    groups = Groups({"window": window_of(elapsed, starts)})
    yield "offers", groups.counted() | {"bytes": groups.sum(rows["size"])}


def _own_late(out: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """:param out: rows of sent messages."""
    late = late_by_generator(out, run)
    # Fast path: most runs have no windows, and few messages are late.
    if run.slice_cut is None or not any(mask.any() for mask in late.values()):
        return
    none = np.zeros(len(out["seq"]), np.bool_)
    masks = dict.fromkeys(("windows_own_late", "tenths_own_late"), none) | late
    yield "own_late", Groups({"piece": run.slice_cut.of(out["second"])}).totals(masks)


def latency_tables(
    kinds: Mapping[str, NDArray[np.int64]],
    rows: Rows,
    run: Expected,
    index: NDArray[np.int64] | None = None,
) -> Iterator[tuple[str, Table]]:
    """Yield the histograms of latencies, with every breakdown that the catalogue demands of a kind.

    :param kinds: by kind, a latency of each row.
    :param rows: ``second``, that of the intended time, and ``topic``, ``bucket``
        and ``worker`` if a kind is broken down by them.
    :param index: the HDR buckets of the first kind's values, if the caller has computed them.
    """
    piece: NDArray[np.int64] | None = None
    # The values that ``index`` belongs to. Computing buckets costs more than
    # counting them, so kinds that share an array share its buckets.
    counted: NDArray[np.int64] | None = None
    for kind, values in kinds.items():
        if index is None or (counted is not None and counted is not values):
            index = hdr_index(values)
        counted = values
        metric = COUNTED_LATENCIES[kind]
        by: dict[int, NDArray[Any]] = {}
        if metric.per_topic:
            by[TOPIC] = rows["topic"]
        if metric.per_bucket:
            by[BUCKET] = rows["bucket"]
        else:
            by[WHOLE] = np.zeros(len(values), np.int8)
        if metric.per_worker and run.workers:
            by[WORKER] = rows["worker"]
        if run.cut is not None and run.slices(metric):
            if piece is None:
                piece = run.cut.of(rows["second"])
            by[SPAN] = piece
        yield from _times(KINDS[kind], values, index, by)


def _times(
    what: int, values: NDArray[np.int64], index: NDArray[np.int64], by: Mapping[int, NDArray[Any]]
) -> Iterator[tuple[str, Table]]:
    """Yield histograms of values by each of the keys.

    :param index: the HDR buckets of the values.
    """
    if not len(values):
        return
    # Many blocks have one topic, one size bucket or one piece of the phase:
    # such keys share one count over all rows.
    whole: Groups | None = None
    for kind, group in by.items():
        groups = Groups({"group": group})
        high, low = _halves(groups, values)
        yield (
            "histograms",
            {
                "what": np.full(len(groups.n), what),
                "by": np.full(len(groups.n), kind),
                **groups.keys,
                "negative": groups.sum(values < 0),
                "high": high,
                "low": low,
                "minimum": groups.minimum(values),
                "maximum": groups.maximum(values),
            },
        )

        if len(groups.n) == 1:
            if whole is None:
                whole = Groups({"index": index})
            cells = whole.counted()
            cells["group"] = np.full(len(whole.n), groups.keys["group"][0])
        else:
            cells = Groups({"group": group, "index": index}).counted()
        cells["what"] = np.full(len(cells["n"]), what)
        if kind == SPAN:
            cells["piece"] = cells.pop("group")
            yield "spans", cells
        else:
            cells["by"] = np.full(len(cells["n"]), kind)
            yield "counts", cells


def _halves(
    groups: Groups, values: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sum in each group as ``(high << HALF) + low``."""
    lowest = (1 << HALF) - 1
    # Fast path: a sum that cannot overflow takes one pass instead of two.
    # The results are the same sum, split in another place.
    largest = max(abs(int(values.min())), abs(int(values.max())))
    if len(values) * largest < 1 << 63:
        total = groups.sum(values)
        return total >> HALF, total & lowest
    return groups.sum(values >> HALF), groups.sum(values & lowest)
