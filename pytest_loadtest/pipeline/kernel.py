"""Reduce a block of rows to small tables of counts. numpy only; no Spark, no files.

This is the fast twin of the definitions in :mod:`pytest_loadtest.metrics.stats` for counts and
latencies; deliveries are counted with bitmaps (:mod:`pytest_loadtest.pipeline.bitmaps`). Each row
is read a few times while it is in the cache, and costs some hundred nanoseconds in all.
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
from pytest_loadtest.metrics.sliced_counts import late_by_generator
from pytest_loadtest.metrics.stats import sent_late_by_us
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
_WITH_OWN_PART: Final = ("end_to_end", "lateness")
FIRST_COPY_KINDS: Final = (
    *("end_to_end", "receive_lag", "lateness", "earliness"),
    *(name(kind) for kind in _WITH_OWN_PART for name in (with_own, without_own)),
)
# first_copy_tables counts these kinds. They are replaced by the third scan if deliveries came more
# than once (decision 024), so a kind that is missing here would be counted twice.
MANY = np.iinfo(np.int64).max


def sent_tables(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a block of sent rows, by name. :param rows: ``SENT_COLUMNS``."""
    rows = measured(rows, run)
    if not len(rows["seq"]):
        return
    # The second of the intended time is a key of several tables: one
    # division for each row, not one for each table.
    rows = {**rows, "second": run.seconds(rows["intended"])}
    out, acks = rows["sent"] > 0, rows["status"] == int(Status.ACKED)
    groups = Groups({name: rows[name] for name in ("topic", "bucket", "status")})
    in_time = out & (rows["sent"] < run.start + run.duration)
    own_late = out & sent_late_by_us(rows, run)
    sums = {"bytes": rows["size"], "in_time": in_time, "own_late": own_late}
    high, low = _halves(groups, rows["blocked"])
    counted = {"n": groups.n, **{name: groups.sum(column) for name, column in sums.items()}}
    yield "sent", groups.keys | counted | {"blocked_high": high, "blocked_low": low}
    yield from _by_second(OFFERED, rows["second"])
    went, acked = take(rows, out), take(rows, acks)
    yield from _by_second(SENT, run.seconds(went["sent"]))
    yield from _by_second(ACKED, run.seconds(acked["acked"]))
    yield from _by_second(KEPT, acked["second"])
    yield from _offers(rows, run)
    yield from _blocked(take(rows, rows["blocked"] > 0), run)
    yield from _full_windows(take(rows, rows["status"] == int(Status.BLOCKED)))
    yield from _own_late(went, run)
    # Most blocks have no blocked message: then both delays are one
    # array, whose buckets are computed once.
    delay = went["sent"] - went["intended"]
    own = np.maximum(delay - went["blocked"], 0)
    yield from latency_tables(
        {"send_delay": delay, "own_send_delay": delay if (own == delay).all() else own}, went, run
    )
    if run.pauses and own.any():
        yield from own_part_tables("send_delay", delay, of_sends(went), went, run)
    if run.publish_acks and len(acked["acked"]):
        published = acked["acked"] - acked["intended"]
        yield from latency_tables({"publish": published}, acked, run)
        if run.pauses:
            yield from own_part_tables(
                "publish", published, of_acknowledgements(acked, run), acked, run
            )


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
    yield "received", groups.keys | {"n": groups.n}
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
    latency, second = copies["received"] - copies["intended"], run.seconds(copies["intended"])
    index = hdr_index(latency)
    rows = {**copies, "second": second}
    yield from latency_tables({"end_to_end": latency}, rows, run, index)
    part = of_copies(copies, run) if run.pauses else None
    if part is not None:
        yield from own_part_tables("end_to_end", latency, part, rows, run)
    known = copies["lag"] >= 0
    if known.any():
        stamped = rows if known.all() else take(rows, known)
        yield from latency_tables(
            {"receive_lag": stamped["lag"] * np.int64(MICROSECOND)}, stamped, run
        )
    if run.delays is not None:
        late = run.lateness(copies)
        for kind, side, values in (("lateness", late >= 0, late), ("earliness", late < 0, -late)):
            yield from latency_tables({kind: values[side]}, {"second": second[side]}, run)
        if run.pauses:
            after = {"second": second[late >= 0]}
            own_part = of_copies(copies, run, copies["received"] - late)[late >= 0]
            yield from own_part_tables("lateness", late[late >= 0], own_part, after, run)
        yield from _by_second(UNDUE, second[copies["flags"] & int(Flag.UNDUE) != 0])
    if run.stream_hosts is not None:
        # Only their sum is needed. A table that the third scan
        # replaces anyway has it without one more table.
        yield from _by_second(WITHIN, second[run.within_host(copies)])
    due = Groups({"second": second})
    # Percentiles of a second come from buckets of seven bits,
    # which are limited by its exact extremes.
    yield (
        "extremes",
        due.keys
        | {
            "minimum": due.minimum(latency),
            "maximum": due.maximum(latency),
            "lag": due.maximum(copies["lag"]),
        },
    )
    cells = Groups({"second": second, "index": _coarser(index)})
    yield "due", cells.keys | {"n": cells.n}
    yield "gaps", _filled_cells(gap_times(copies, run), copies, run)
    if part is not None and run.stalled:
        earlier = {**copies, "received": copies["received"] - part}
        yield "gaps_without_own", _filled_cells(gap_times(earlier, run), copies, run)


def _filled_cells(times: NDArray[np.int64], copies: Rows, run: Expected) -> Table:
    """Return the number of receipts, the earliest and the latest one of each cell.

    :param times: see ``gap_times``.
    """
    filled = Groups(
        {
            "subscription": copies["subscription"],
            "topic": copies["topic"],
            "cell": gap_cells(times, run),
        }
    )
    return filled.keys | {
        "first": filled.minimum(times),
        "last": filled.maximum(times),
        "n": filled.n,
    }


def own_part_tables(
    kind: str, values: NDArray[np.int64], part: NDArray[np.int64], rows: Rows, run: Expected
) -> Iterator[tuple[str, Table]]:
    """Yield the histograms of the latencies that the generator's own delays lengthened, as they are and without that part.

    :param part: ns, of each value.
    :param rows: see :func:`latency_tables`.
    """
    affected = np.flatnonzero(part)
    # Fast path: no message of most blocks was delayed by a pause.
    if not len(affected):
        return
    values = values[affected]
    used = {name: rows[name][affected] for name in ("second", "bucket") if name in rows}
    yield from latency_tables(
        {with_own(kind): values, without_own(kind): values - part[affected]}, used, run
    )


def later_copy_tables(copies: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """Yield the tables of copies that are not the first of their delivery."""
    second = run.seconds(copies["intended"])
    yield from _by_second(AGAIN, second)
    yield from latency_tables(
        {"later_copies": copies["received"] - copies["intended"]}, {**copies, "second": second}, run
    )


def _coarser(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bucket of ``SERIES_BITS`` that contains each HDR bucket."""
    # A lookup table: there are fewer buckets than rows.
    coarser: NDArray[np.int64] = hdr_index(midpoint(np.arange(index.max() + 1)), SERIES_BITS)[index]
    return coarser


def measured(rows: Rows, run: Expected) -> Rows:
    """Return the rows whose sequence belongs to the run, or stage."""
    stream, seq = rows["stream"], rows["seq"]
    # Fast path: no row belongs to a stage that lies at another time.
    if (
        not len(seq)
        or seq.min() >= run.end.max(initial=0)
        or seq.max() < run.first.min(initial=MANY)
    ):
        return {name: column[:0] for name, column in rows.items()}
    valid = stream.min() >= 0 and stream.max() < len(run.first)
    # Fast path: every row of most blocks belongs to the run, so nothing is looked up or copied.
    if valid and seq.min() >= run.first.max() and seq.max() < run.end.min():
        return rows
    rows = take(rows, (stream >= 0) & (stream < len(run.first)))
    stream, seq = rows["stream"], rows["seq"]
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
    return np.where(placed, np.where(corrupt, CORRUPT, COPY), MISPLACED)


def _by_second(what: int, second: NDArray[np.int64]) -> Iterator[tuple[str, Table]]:
    if len(second):
        groups = Groups({"second": second})
        yield "seconds", {"what": np.full(len(groups.n), what), **groups.keys, "n": groups.n}


def _blocked(waited: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """:param waited: rows of messages that waited for the target's full window."""
    if len(waited["sent"]):
        groups = Groups({"second": run.seconds(wait_end(waited))})
        yield (
            "seconds",
            {
                "what": np.full(len(groups.n), BLOCKED),
                **groups.keys,
                "n": groups.sum(waited["blocked"]),
            },
        )


def _full_windows(blocked: Rows) -> Iterator[tuple[str, Table]]:
    """:param blocked: rows of messages that were dropped before full windows."""
    if len(blocked["topic"]):
        groups = Groups({"topic": blocked["topic"]})
        first, last = (
            groups.minimum(blocked["intended"]),
            groups.maximum(blocked["intended"] + blocked["blocked"]),
        )
        yield "full_windows", groups.keys | {"n": groups.n, "first": first, "last": last}


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
    yield "offers", groups.keys | {"n": groups.n, "bytes": groups.sum(rows["size"])}


def _own_late(out: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """:param out: rows of sent messages."""
    late = late_by_generator(out, run)
    # Fast path: most runs have no windows, and few messages are late.
    if run.slice_cut is not None and any(mask.any() for mask in late.values()):
        groups = Groups({"piece": run.slice_cut.of(out["second"])})
        none = np.zeros(len(out["seq"]), np.bool_)
        yield (
            "own_late",
            groups.keys
            | {
                name: groups.sum(late.get(name, none))
                for name in ("windows_own_late", "tenths_own_late")
            },
        )


def latency_tables(
    kinds: Mapping[str, NDArray[np.int64]],
    rows: Rows,
    run: Expected,
    index: NDArray[np.int64] | None = None,
) -> Iterator[tuple[str, Table]]:
    """Yield the histograms of latencies, with every breakdown that the catalogue of metrics demands for a kind.

    :param kinds: by kind, a latency of each row.
    :param rows: ``second``, that of the intended time, and ``topic``, ``bucket`` and
        ``worker`` if a kind is broken down by them.
    :param index: the HDR buckets of the first kind's values, if the caller has computed them.
    """
    piece: NDArray[np.int64] | None = None
    # The values that ``index`` belongs to. Computing buckets costs more than counting them, so
    # kinds that share an array share its buckets.
    counted: NDArray[np.int64] | None = None
    for kind, values in kinds.items():
        if index is None or (counted is not None and counted is not values):
            index = hdr_index(values)
        counted, metric = values, COUNTED_LATENCIES[kind]
        by: dict[int, NDArray[Any]] = {TOPIC: rows["topic"]} if metric.per_topic else {}
        by |= (
            {BUCKET: rows["bucket"]}
            if metric.per_bucket
            else {WHOLE: np.zeros(len(values), np.int8)}
        )
        by |= {WORKER: rows["worker"]} if metric.per_worker and run.workers else {}
        if run.cut is not None and run.slices(metric):
            piece = run.cut.of(rows["second"]) if piece is None else piece
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
    # Many blocks have one topic, one size bucket or one piece of the
    # phase: such keys share one count over all rows.
    whole: Groups | None = None
    for kind, group in by.items():
        name, groups = "counts", Groups({"group": group})
        if len(groups.n) == 1:
            cells = whole = whole or Groups({"index": index})
            keys = {"group": np.full(len(cells.n), groups.keys["group"][0]), **cells.keys}
        else:
            cells = Groups({"group": group, "index": index})
            keys = cells.keys
        same, also = (
            {"what": np.full(len(each.n), what), "by": np.full(len(each.n), kind)}
            for each in (groups, cells)
        )
        if kind == SPAN:
            name, also, keys = (
                "spans",
                {"what": also["what"]},
                {"piece": keys["group"], "index": keys["index"]},
            )
        high, low = _halves(groups, values)
        yield "histograms", same | groups.keys | {
            "negative": groups.sum(values < 0), "high": high, "low": low,
            "minimum": groups.minimum(values), "maximum": groups.maximum(values),
        }  # fmt: skip
        yield name, also | keys | {"n": cells.n}


def _halves(
    groups: Groups, values: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sum in each group as ``(high << HALF) + low``."""
    lowest = (1 << HALF) - 1
    # Fast path: a sum that cannot overflow takes one pass instead of two. The results are the same
    # sum, split in another place.
    if len(values) * max(abs(int(values.min())), abs(int(values.max()))) < 1 << 63:
        total = groups.sum(values)
        return total >> HALF, total & lowest
    return groups.sum(values >> HALF), groups.sum(values & lowest)
