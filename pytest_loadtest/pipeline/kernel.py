"""What an executor makes of a block of rows: small tables, and words of 64 sequences. numpy only; no Spark, no files.

Each row is read a few times while it is in the cache, and costs some hundred nanoseconds in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.hdr import HALF, hdr_index, midpoint
from pytest_loadtest.pipeline.tables import (
    ACKED,
    BUCKET,
    COPY,
    CORRUPT,
    DELAY,
    LATENCY,
    MISPLACED,
    OFFERED,
    OWN,
    PUBLISH,
    RECEIVED,
    SENT,
    SPAN,
    TOPIC,
    WHOLE,
    Groups,
    Table,
    take,
)
from pytest_loadtest.quantities import SECOND
from pytest_loadtest.samples import Flag, Status
from pytest_loadtest.stats import SERIES_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.stats import Run

    Rows = Mapping[str, NDArray[Any]]

SENT_COLUMNS = ("stream", "topic", "bucket", "size", "status", "seq", "intended", "sent", "acked", "blocked")
RECEIVED_COLUMNS = ("subscription", "stream", "topic", "bucket", "flags", "seq", "intended", "received")
SENT_WORD_COLUMNS = ("stream", "bucket", "status", "seq")
RECEIVED_WORD_COLUMNS = ("subscription", "stream", "topic", "flags", "seq", "received")
WORD_BITS = 6
WORD_SUMS = ("offered_rows", "copies")
WORD_MASKS = ("offered", "acked", "got", "punctual", "in_time")
SLOT_BITS = 17  # so many words are merged at once: 8 million messages, some 13 MB
MANY = np.iinfo(np.int64).max


def sent_tables(rows: Rows, run: Run) -> Iterator[tuple[str, Table]]:
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
    yield from _delays(went, run)
    if run.publish_acks:
        publish = acked["acked"] - acked["intended"]
        by = {TOPIC: acked["topic"], BUCKET: acked["bucket"], **_span(acked, run)}
        yield from _times(PUBLISH, publish, hdr_index(publish), by)


def _span(rows: Rows, run: Run) -> dict[int, NDArray[np.int64]]:
    """The interval of each row, where the run has several."""
    return {SPAN: run.interval(rows["intended"])} if run.intervals else {}


def _delays(went: Rows, run: Run) -> Iterator[tuple[str, Table]]:
    delay, whole = went["sent"] - went["intended"], {WHOLE: np.zeros(len(went["sent"]), np.int8)}
    own = np.maximum(delay - went["blocked"], 0)
    index = hdr_index(delay)
    yield from _times(DELAY, delay, index, whole | _span(went, run))
    yield from _times(OWN, own, index if (own == delay).all() else hdr_index(own), whole)


def received_tables(rows: Rows, run: Run) -> Iterator[tuple[str, Table]]:
    """The tables of a block of received rows, by name. :param rows: ``RECEIVED_COLUMNS``."""
    rows = measured(rows, run)
    if not len(rows["seq"]):
        return
    fate = fates(rows, run)
    groups = Groups({"fate": fate})
    yield "received", groups.keys | {"n": groups.n}
    copies = take(rows, fate == COPY)
    if not len(copies["seq"]):
        return
    latency, second = copies["received"] - copies["intended"], seconds(copies["intended"], run)
    index = hdr_index(latency)
    yield from _happened(RECEIVED, copies["received"], run)
    yield from _times(LATENCY, latency, index, {TOPIC: copies["topic"], BUCKET: copies["bucket"], **_span(copies, run)})
    due = Groups({"second": second})
    yield "extremes", due.keys | {"minimum": due.minimum(latency), "maximum": due.maximum(latency)}
    cells = Groups({"second": second, "index": _coarser(index)})
    yield "due", cells.keys | {"n": cells.n}


def _coarser(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The buckets of ``SERIES_BITS`` that HDR buckets lie in, by a table of them."""
    coarser: NDArray[np.int64] = hdr_index(midpoint(np.arange(index.max() + 1)), SERIES_BITS)[index]
    return coarser


def measured(rows: Rows, run: Run) -> Rows:
    """The rows whose sequence belongs to the run, or stage."""
    stream, seq = rows["stream"], rows["seq"]
    if not len(seq) or seq.min() >= run.end.max(initial=0) or seq.max() < run.first.min(initial=MANY):  # a stage at some other time
        return {name: column[:0] for name, column in rows.items()}
    known = stream.min() >= 0 and stream.max() < len(run.first)
    if known and seq.min() >= run.first.max() and seq.max() < run.end.min():  # in the midst of it for all streams, as most blocks are
        return rows
    rows = take(rows, (stream >= 0) & (stream < len(run.first)))
    stream, seq = rows["stream"], rows["seq"]
    return take(rows, (seq >= run.first[stream]) & (seq < run.end[stream]))


def fates(rows: Rows, run: Run) -> NDArray[np.int64]:
    """What each measured received row counts as."""
    subscription = rows["subscription"]
    placed = (rows["topic"] == run.stream_topics[rows["stream"]]) & (subscription >= 0) & (subscription < run.subscriptions)
    corrupt = rows["flags"] & int(Flag.CORRUPT) != 0
    return np.where(placed, np.where(corrupt, CORRUPT, COPY), MISPLACED)


def seconds(times: NDArray[np.int64], run: Run) -> NDArray[np.int64]:
    """Whole seconds since the start, from 0."""
    whole: NDArray[np.int64] = np.maximum((times - run.start) // SECOND, 0)
    return whole


def _happened(what: int, times: NDArray[np.int64], run: Run) -> Iterator[tuple[str, Table]]:
    if len(times):
        groups = Groups({"second": seconds(times, run)})
        yield "seconds", {"what": np.full(len(groups.n), what), **groups.keys, "n": groups.n}


def _times(what: int, values: NDArray[np.int64], index: NDArray[np.int64], by: Mapping[int, NDArray[Any]]) -> Iterator[tuple[str, Table]]:
    """Histograms of values by each of the keys. :param index: the HDR buckets of the values."""
    if not len(values):
        return
    whole: Groups | None = None  # counted once, for all keys of which there is one
    for kind, group in by.items():
        groups = Groups({"group": group})
        if len(groups.n) == 1:
            cells = whole = whole or Groups({"index": index})
            keys = {"group": np.full(len(cells.n), groups.keys["group"][0]), **cells.keys}
        else:
            cells = Groups({"group": group, "index": index})
            keys = cells.keys
        same, also = ({"what": np.full(len(each.n), what), "by": np.full(len(each.n), kind)} for each in (groups, cells))
        high, low = _halves(groups, values)
        yield "histograms", same | groups.keys | {
            "negative": groups.sum(values < 0), "high": high, "low": low,
            "minimum": groups.minimum(values), "maximum": groups.maximum(values),
        }  # fmt: skip
        yield "counts", also | keys | {"n": cells.n}


def _halves(groups: Groups, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sum in each group as ``(high << HALF) + low``, in one step where it cannot overflow."""
    lowest = (1 << HALF) - 1
    if len(values) * max(abs(int(values.min())), abs(int(values.max()))) < 1 << 63:
        total = groups.sum(values)
        return total >> HALF, total & lowest
    return groups.sum(values >> HALF), groups.sum(values & lowest)


class Words:
    """Words of 64 sequences, each of one stream and subscription: a message costs a bit.

    Every message of the run has a number, its own over all streams and subscriptions, of which 64 in a row make a word; ``_base`` is the
    number of the first word of each stream. Words in a row make a slot.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.planes = len(run.buckets).bit_length()
        self._first = run.first >> WORD_BITS
        lengths = np.where(run.end > run.first, (run.end - 1 >> WORD_BITS) - self._first + 1, 0)
        self._base = np.cumsum(lengths) - lengths
        self._words = int(lengths.sum())

    def sent(self, rows: Rows) -> Table:
        """What was offered, of every subscription: rows, the sequences, the acked ones, and the bits of the number of the size bucket.

        A number that is no size bucket of the run is given as one more than the last. Without subscriptions nothing is expected,
        and the words are those of a subscription that expects none.

        :param rows: ``SENT_WORD_COLUMNS``.
        """
        rows = measured(rows, self.run)
        many = len(self.run.buckets)
        bucket = np.where((rows["bucket"] >= 0) & (rows["bucket"] < many), rows["bucket"], many)
        planes = {f"plane_{i}": (bucket >> i & 1) != 0 for i in range(self.planes)}
        expected = (rows["status"] == int(Status.ACKED)) & (self.run.subscriptions > 0)
        once = words(self._number(rows), {"acked": expected} | planes, ("offered_rows", "offered"))
        times = max(self.run.subscriptions, 1)
        every = {name: np.tile(column, times) for name, column in once.items()}
        every["word"] += np.repeat(np.arange(times) * self._words, len(once["word"]))
        return every

    def copies(self, rows: Rows, begin: int, end: int) -> Table:
        """What each subscription got: rows, all sequences, those not late, those from ``begin`` until ``end``.

        :param rows: ``RECEIVED_WORD_COLUMNS``.
        """
        rows = measured(rows, self.run)
        rows = take(rows, fates(rows, self.run) == COPY)
        punctual = rows["flags"] & int(Flag.LATE) == 0
        in_time = (rows["received"] >= begin) & (rows["received"] < end)
        number = self._number(rows) + rows["subscription"] * (self._words << WORD_BITS)
        return words(number, {"punctual": punctual, "in_time": in_time}, ("copies", "got"))

    def _number(self, rows: Rows) -> NDArray[np.int64]:
        number: NDArray[np.int64] = ((self._base - self._first) << WORD_BITS)[rows["stream"]] + rows["seq"]
        return number

    def merge(self, parts: Sequence[Table]) -> Table:
        """All words of many tables, each once. What a table does not have is none."""
        word = np.concatenate([part["word"] for part in parts])
        order = np.argsort(word, kind="stable")
        starts = _starts(word[order])
        found = {"word": word[order][starts]}
        for name in (*WORD_SUMS, *WORD_MASKS, *(f"plane_{i}" for i in range(self.planes))):
            column = np.concatenate([part[name] if name in part else np.zeros_like(part["word"]) for part in parts])[order]
            found[name] = (np.add if name in WORD_SUMS else np.bitwise_or).reduceat(column, starts) if len(starts) else column
        return found

    def slots(self, table: Table) -> Iterator[tuple[int, Table]]:
        """The words of each slot, by its number. :param table: in the order of its words."""
        slot = table["word"] >> SLOT_BITS
        starts = _starts(slot)
        for number, low, high in zip(slot[starts].tolist(), starts, np.append(starts, len(slot))[1:], strict=True):
            yield number, {name: column[low:high] for name, column in table.items()}

    def named(self, table: Table) -> Table:
        """With subscription, stream and the stream's own number of the word."""
        subscription, word = np.divmod(table["word"], max(self._words, 1))
        stream = np.searchsorted(self._base, word, side="right") - 1
        own = word + (self._first - self._base)[stream]
        return {**table, "subscription": subscription, "stream": stream, "word": own}


def words(number: NDArray[np.int64], marks: Mapping[str, NDArray[np.bool_]], names: tuple[str, str]) -> dict[str, NDArray[np.int64]]:
    """Numbers as bitmaps: per ``word`` of 64 how many there are and which, and for every mark, which of them have it at least once.

    :param names: of the columns of how many and which.
    """
    varied = {name: mark for name, mark in marks.items() if mark.any() and not mark.all()}
    key = number << len(varied)
    for place, mark in enumerate(varied.values()):
        key |= mark.astype(np.int64) << place
    key.sort()
    number = key >> len(varied)
    word = number >> WORD_BITS
    starts = _starts(word)
    bit = np.left_shift(1, number & 63)
    which = _any(bit, starts)
    table = {"word": word[starts], names[0]: np.diff(starts, append=len(word)), names[1]: which}
    for name, mark in marks.items():
        table[name] = which if mark.all() else np.zeros_like(which)
    for place, name in enumerate(varied):
        table[name] = _any(bit * (key >> place & 1), starts)
    return table


def _starts(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of the values begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.zeros(0, np.int64)


def _any(bits: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.bitwise_or.reduceat(bits, starts) if len(starts) else bits[:0]
    return found
