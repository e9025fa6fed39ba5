"""What an executor makes of a block of rows: small tables of counts. numpy only; no Spark, no files.

Each row is read a few times while it is in the cache, and costs some hundred nanoseconds in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.metrics.histogram import HALF, hdr_index, midpoint
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.pipeline.tables import (
    ACKED,
    AGAIN,
    BLOCKED,
    BUCKET,
    COPY,
    CORRUPT,
    DELAY,
    EARLY,
    KEPT,
    LATE,
    LATENCY,
    LATER,
    MISPLACED,
    OFFERED,
    OWN,
    PUBLISH,
    RECEIVED,
    SENT,
    SPAN,
    TOPIC,
    UNDUE,
    WHOLE,
    Groups,
    Table,
    take,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

    Rows = Mapping[str, NDArray[Any]]

SENT_COLUMNS = ("stream", "topic", "bucket", "size", "status", "seq", "intended", "sent", "acked", "blocked")
RECEIVED_COLUMNS = ("subscription", "stream", "topic", "bucket", "flags", "seq", "intended", "received")
MANY = np.iinfo(np.int64).max


def sent_tables(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """The tables of a block of sent rows, by name. :param rows: ``SENT_COLUMNS``."""
    rows = measured(rows, run)
    if not len(rows["seq"]):
        return
    out, acks = rows["sent"] > 0, rows["status"] == int(Status.ACKED)
    groups = Groups({name: rows[name] for name in ("topic", "bucket", "status")})
    in_time = out & (rows["sent"] < run.start + run.duration)
    sums = {"bytes": rows["size"], "in_time": in_time, "blocked": rows["blocked"]}
    yield "sent", groups.keys | {"n": groups.n} | {name: groups.sum(column) for name, column in sums.items()}
    yield from _happened(OFFERED, rows["intended"], run)
    went, acked = take(rows, out), take(rows, acks)
    yield from _happened(SENT, went["sent"], run)
    yield from _happened(ACKED, acked["acked"], run)
    yield from _happened(KEPT, acked["intended"], run)
    yield from _blocked(take(went, went["blocked"] > 0), run)
    yield from _delays(went, run)
    if run.publish_acks:
        publish = acked["acked"] - acked["intended"]
        by = {TOPIC: acked["topic"], BUCKET: acked["bucket"], **_span(acked["intended"], run)}
        yield from times(PUBLISH, publish, hdr_index(publish), by)


def _span(intended: NDArray[np.int64], run: Expected) -> dict[int, NDArray[np.int64]]:
    """The piece of the phase that each message belongs to, where it is cut."""
    return {SPAN: run.cut.of(run.seconds(intended))} if run.cut is not None else {}


def _delays(went: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    delay, whole = went["sent"] - went["intended"], {WHOLE: np.zeros(len(went["sent"]), np.int8)}
    bucket = {BUCKET: went["bucket"]}
    own = np.maximum(delay - went["blocked"], 0)
    index, span = hdr_index(delay), _span(went["intended"], run)
    yield from times(DELAY, delay, index, whole | span)
    yield from times(OWN, own, index if (own == delay).all() else hdr_index(own), bucket | (span if run.spans else {}))


def received_tables(rows: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """The tables of a block of received rows, by name; latencies as if each copy were the first of its delivery.

    :param rows: ``RECEIVED_COLUMNS``.
    """
    rows = measured(rows, run)
    if not len(rows["seq"]):
        return
    fate = fates(rows, run)
    groups = Groups({"fate": fate})
    yield "received", groups.keys | {"n": groups.n}
    copies = take(rows, fate == COPY)
    yield from _happened(RECEIVED, copies["received"], run)
    yield from first_copy_tables(copies, run)


def first_copy_tables(copies: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """The tables of latencies. :param copies: measured ones, each the first of its delivery; ``RECEIVED_COLUMNS`` but ``subscription``."""
    if not len(copies["seq"]):
        return
    latency, second = copies["received"] - copies["intended"], run.seconds(copies["intended"])
    index = hdr_index(latency)
    yield from times(LATENCY, latency, index, {TOPIC: copies["topic"], BUCKET: copies["bucket"], **_span(copies["intended"], run)})
    if run.delays is not None:
        yield from _lateness(run.lateness(copies), copies["intended"], run)
        yield from _happened(UNDUE, copies["intended"][copies["flags"] & int(Flag.UNDUE) != 0], run)
    due = Groups({"second": second})
    yield "extremes", due.keys | {"minimum": due.minimum(latency), "maximum": due.maximum(latency)}
    cells = Groups({"second": second, "index": _coarser(index)})
    yield "due", cells.keys | {"n": cells.n}


def later_copy_tables(copies: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """The tables of copies that are not the first of their delivery."""
    yield from _happened(AGAIN, copies["intended"], run)
    latency = copies["received"] - copies["intended"]
    yield from times(LATER, latency, hdr_index(latency), {WHOLE: np.zeros(len(latency), np.int8)})


def _lateness(late: NDArray[np.int64], intended: NDArray[np.int64], run: Expected) -> Iterator[tuple[str, Table]]:
    """Both sides of due, apart."""
    for what, side, lateness in ((LATE, late >= 0, late), (EARLY, late < 0, -late)):
        values = lateness[side]
        by: dict[int, NDArray[Any]] = {WHOLE: np.zeros(len(values), np.int8), **(_span(intended[side], run) if run.spans else {})}
        yield from times(what, values, hdr_index(values), by)


def _coarser(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of ``SERIES_BITS`` that each HDR bucket lies in, looked up: there are fewer buckets than rows."""
    coarser: NDArray[np.int64] = hdr_index(midpoint(np.arange(index.max() + 1)), SERIES_BITS)[index]
    return coarser


def measured(rows: Rows, run: Expected) -> Rows:
    """The rows whose sequence belongs to the run, or stage."""
    stream, seq = rows["stream"], rows["seq"]
    if (
        not len(seq) or seq.min() >= run.end.max(initial=0) or seq.max() < run.first.min(initial=MANY)
    ):  # none is in it: a stage at another time
        return {name: column[:0] for name, column in rows.items()}
    known = stream.min() >= 0 and stream.max() < len(run.first)
    if known and seq.min() >= run.first.max() and seq.max() < run.end.min():  # all are in it, as in most blocks
        return rows
    rows = take(rows, (stream >= 0) & (stream < len(run.first)))
    stream, seq = rows["stream"], rows["seq"]
    return take(rows, (seq >= run.first[stream]) & (seq < run.end[stream]))


def copies_of(rows: Rows, run: Expected) -> Rows:
    """The measured received rows that are whole and where they belong."""
    rows = measured(rows, run)
    return take(rows, fates(rows, run) == COPY)


def fates(rows: Rows, run: Expected) -> NDArray[np.int64]:
    """What each measured received row counts as."""
    subscription = rows["subscription"]
    placed = (rows["topic"] == run.stream_topics[rows["stream"]]) & (subscription >= 0) & (subscription < run.subscriptions)
    corrupt = rows["flags"] & int(Flag.CORRUPT) != 0
    return np.where(placed, np.where(corrupt, CORRUPT, COPY), MISPLACED)


def _happened(what: int, times: NDArray[np.int64], run: Expected) -> Iterator[tuple[str, Table]]:
    if len(times):
        groups = Groups({"second": run.seconds(times)})
        yield "seconds", {"what": np.full(len(groups.n), what), **groups.keys, "n": groups.n}


def _blocked(held: Rows, run: Expected) -> Iterator[tuple[str, Table]]:
    """:param held: those that waited before the target's full window."""
    if len(held["sent"]):
        groups = Groups({"second": run.seconds(held["sent"])})
        yield "seconds", {"what": np.full(len(groups.n), BLOCKED), **groups.keys, "n": groups.sum(held["blocked"])}


def times(what: int, values: NDArray[np.int64], index: NDArray[np.int64], by: Mapping[int, NDArray[Any]]) -> Iterator[tuple[str, Table]]:
    """Histograms of values by each of the keys. :param index: the HDR buckets of the values."""
    if not len(values):
        return
    whole: Groups | None = None  # the counts of all rows, shared by the keys that have one value in all of them
    for kind, group in by.items():
        name, groups = "counts", Groups({"group": group})
        if len(groups.n) == 1:
            cells = whole = whole or Groups({"index": index})
            keys = {"group": np.full(len(cells.n), groups.keys["group"][0]), **cells.keys}
        else:
            cells = Groups({"group": group, "index": index})
            keys = cells.keys
        same, also = ({"what": np.full(len(each.n), what), "by": np.full(len(each.n), kind)} for each in (groups, cells))
        if kind == SPAN:
            name, also, keys = "spans", {"what": also["what"]}, {"piece": keys["group"], "index": keys["index"]}
        high, low = _halves(groups, values)
        yield "histograms", same | groups.keys | {
            "negative": groups.sum(values < 0), "high": high, "low": low,
            "minimum": groups.minimum(values), "maximum": groups.maximum(values),
        }  # fmt: skip
        yield name, also | keys | {"n": cells.n}


def _halves(groups: Groups, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sum in each group as ``(high << HALF) + low``, in one step where it cannot overflow."""
    lowest = (1 << HALF) - 1
    if len(values) * max(abs(int(values.min())), abs(int(values.max()))) < 1 << 63:
        total = groups.sum(values)
        return total >> HALF, total & lowest
    return groups.sum(values >> HALF), groups.sum(values & lowest)
