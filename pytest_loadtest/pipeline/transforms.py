"""Small steps from frame to frame and from column to column: no action, no session, nothing that Spark Connect cannot carry.

Groups stay few: latencies are grouped by HDR bucket with one counting column per topic and size bucket, and sequences by words of 64, so
that a message costs no row of its own after the first step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pytest_loadtest.hdr import HALF
from pytest_loadtest.measurements import SUB_BITS
from pytest_loadtest.pipeline.assemble import BLOCKED, COPY, CORRUPT, MISPLACED, OTHER, OWN, UNBLOCKED
from pytest_loadtest.quantities import SECOND
from pytest_loadtest.samples import Flag, Status
from pytest_loadtest.stats import SERIES_BITS, SERIES_PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from pytest_loadtest.stats import Run

WORD_BITS = 6


def per_stream(values: NDArray[np.int64]) -> Column:
    """A value by the row's stream; null for a stream that the run does not have."""
    known = values.tolist() or [0]
    if min(known) == max(known):
        return F.when(F.col("stream").between(0, len(known) - 1), F.lit(known[0]))
    return F.get(F.split(F.lit(",".join(map(str, known))), ",").cast("array<bigint>"), F.col("stream"))


def measured(run: Run) -> Column:
    """Whether a row's sequence belongs to the measured phase."""
    inside = (F.col("seq") >= per_stream(run.first)) & (F.col("seq") < per_stream(run.end))
    return F.coalesce(inside, F.lit(False))


def fate(run: Run) -> Column:
    """What a received row counts as."""
    placed = (F.col("topic") == per_stream(run.stream_topics)) & F.col("subscription").between(0, run.subscriptions - 1)
    return F.when(~measured(run), OTHER).when(~placed, MISPLACED).when(_has(Flag.CORRUPT), CORRUPT).otherwise(COPY)


def _has(flag: Flag) -> Column:
    return F.col("flags").bitwiseAND(F.lit(int(flag))) != 0


def hdr_index(value: str, sub_bits: int = SUB_BITS) -> Column:
    """The HDR bucket of a column's values, as :func:`pytest_loadtest.hdr.hdr_index` has it, but -1 for values below zero.

    A binary search for the shift, written out: a third of the cost of a logarithm.
    """

    def below(low: int, high: int) -> str:
        if low == high:
            return f"shiftright({value}, {low}) + {low << sub_bits}"
        middle = (low + high) // 2
        return f"IF({value} < {1 << (sub_bits + 1 + middle)}L, {below(low, middle)}, {below(middle + 1, high)})"

    return F.expr(f"CAST(IF({value} < 0, -1, {below(0, 62 - sub_bits)}) AS INT)")


def second(time: Column, run: Run) -> Column:
    """Whole seconds since the start, from 0."""
    return F.greatest(F.call_function("div", time - F.lit(run.start), F.lit(SECOND)), F.lit(0)).cast("int")


def histogram(rows: DataFrame, value: str, parts: Mapping[str, str]) -> DataFrame:
    """``index, n`` and one count per part: how many values each HDR bucket holds, in all and where a condition holds."""
    counted = [F.expr(f"count_if({condition})").alias(name) for name, condition in parts.items()]
    return rows.groupBy(hdr_index(value).alias("index")).agg(F.count("*").alias("n"), *counted)


def topic_histogram(rows: DataFrame, value: str) -> DataFrame:
    """``topic, index, n``: for runs with more topics than a row should have columns."""
    return rows.groupBy("topic", hdr_index(value).alias("index")).agg(F.count("*").alias("n"))


def extremes(value: str, name: str) -> list[Column]:
    """Aggregates that, with the buckets, complete a histogram: minimum, maximum and the sum in two halves."""
    return [
        F.min(value).alias(f"{name}_min"),
        F.max(value).alias(f"{name}_max"),
        F.sum(F.shiftright(value, HALF)).alias(f"{name}_high"),
        F.sum(F.col(value).bitwiseAND(F.lit((1 << HALF) - 1))).alias(f"{name}_low"),
    ]


def with_delays(sent: DataFrame) -> DataFrame:
    """Add ``publish``, ``delay`` and ``own`` (send delay less the time blocked before the target's full window, at least 0), ns.

    What they mean for messages never sent or acked is for others to leave out.
    """
    delay = F.col("sent") - F.col("intended")
    own = F.greatest(delay - F.col("blocked"), F.lit(0))
    return sent.withColumns({"publish": F.col("acked") - F.col("intended"), "delay": delay, "own": own})


def with_latency(received: DataFrame) -> DataFrame:
    """Add ``latency``, ns."""
    return received.withColumn("latency", F.col("received") - F.col("intended"))


def words(rows: DataFrame, keys: list[str], masks: Mapping[str, Column | None]) -> DataFrame:
    """Sequences as bitmaps: per key and word of 64 sequences the number of rows, and one bit set of those where a condition holds.

    Masks are combined by ``bit_or`` alone: bit 63 makes a word negative, so neither maximum nor sum would do.
    """
    bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.col("seq").bitwiseAND(F.lit(63)).cast("int"))
    sets = [F.bit_or(bit if where is None else F.when(where, bit).otherwise(F.lit(0))).alias(name) for name, where in masks.items()]
    return rows.groupBy(*keys, F.shiftright("seq", WORD_BITS).alias("word")).agg(F.count("*").alias("rows"), *sets)


def sent_words(sent: DataFrame) -> DataFrame:
    """Words of what was offered: ``rows``, all sequences and the acked ones."""
    return words(sent, ["stream"], {"offered": None, "acked": F.col("status") == int(Status.ACKED)})


def copy_words(copies: DataFrame, begin: int, end: int) -> DataFrame:
    """Words of what each subscription got: all sequences, those not late, those from ``begin`` until ``end``."""
    in_time = (F.col("received") >= begin) & (F.col("received") < end)
    return words(copies, ["subscription", "stream"], {"got": None, "punctual": ~_has(Flag.LATE), "in_time": in_time})


def bucket_duplicates(copies: DataFrame) -> DataFrame:
    """``bucket, duplicates``: of interest only where there are any."""
    by_bucket = words(copies, ["subscription", "stream", "bucket"], {"got": None})
    return by_bucket.groupBy("bucket").agg(F.sum(F.col("rows") - F.bit_count("got")).alias("duplicates"))


def deliveries(sent: DataFrame, copies: DataFrame, subscriptions: int) -> DataFrame:
    """Words of sent messages, once per subscription, beside the words of what it got; ``missing`` holds the acked ones it did not get."""
    expected = sent.withColumnRenamed("rows", "offered_rows").withColumn(
        "subscription", F.explode(F.sequence(F.lit(0), F.lit(subscriptions - 1)))
    )
    joined = expected.join(copies, on=["subscription", "stream", "word"], how="left").fillna(0)
    return joined.withColumn("missing", F.col("acked").bitwiseAND(F.bitwise_not("got")))


def delivery_totals(joined: DataFrame) -> DataFrame:
    """Per subscription and stream: messages with each property."""
    late = F.col("got").bitwiseAND(F.bitwise_not("punctual"))
    masks: dict[str, Column | str] = {
        "distinct": "offered",
        "received": "got",
        "received_in_time": "in_time",
        "lost": "missing",
        "late": late,
    }
    counted = [F.sum(F.bit_count(mask)).alias(name) for name, mask in masks.items()]
    return joined.groupBy("subscription", "stream").agg(F.sum("offered_rows").alias("offered"), F.sum("rows").alias("copies"), *counted)


def lost_edges(joined: DataFrame, run: Run, ranges: int) -> DataFrame:
    """Where ranges of missing messages begin and end, as bits of their words, in the order of topic, subscription, stream, word.

    Every row holds an edge, and beginnings and ends alternate, so twice ``ranges`` rows hold the first ``ranges`` ranges.
    """
    in_order = Window.partitionBy("subscription", "stream").orderBy("word")
    missing, word = F.col("missing"), F.col("word")
    before = F.when(F.lag("word").over(in_order) == word - 1, F.lag("missing").over(in_order)).otherwise(F.lit(0))
    after = F.when(F.lead("word").over(in_order) == word + 1, F.lead("missing").over(in_order)).otherwise(F.lit(0))
    begun = F.shiftleft(missing, 1).bitwiseOR(F.shiftrightunsigned(before, 63))
    going_on = F.shiftrightunsigned(missing, 1).bitwiseOR(F.shiftleft(after, 63))
    return (
        joined.where(missing != 0)
        .select(
            per_stream(run.stream_topics).alias("topic"), "subscription", "stream", "word",
            missing.bitwiseAND(F.bitwise_not(begun)).alias("first"), missing.bitwiseAND(F.bitwise_not(going_on)).alias("last"),
        )
        .where((F.col("first") != 0) | (F.col("last") != 0))
        .orderBy("topic", "subscription", "stream", "word")
        .limit(2 * ranges)
    )  # fmt: skip


def sent_seconds(sent: DataFrame, run: Run) -> DataFrame:
    """Messages by the seconds in which they were due, sent and acked (null: never). Few groups: the three are close together."""
    return sent.groupBy(
        second(F.col("intended"), run).alias("offered"),
        F.when(F.col("sent") > 0, second(F.col("sent"), run)).alias("sent"),
        F.when(F.col("status") == int(Status.ACKED), second(F.col("acked"), run)).alias("acked"),
    ).agg(F.count("*").alias("n"))


def received_seconds(copies: DataFrame, run: Run) -> DataFrame:
    """Two tables in one, from one scan, both ``due, second, n, p50, p99, minimum, maximum``.

    Where ``due``, the second is that of the intended time, and the latency percentiles are given as HDR buckets; elsewhere it is the second
    of arrival. Both come from the same small groups, with the same columns, so that Spark computes those once.
    """
    intended, arrived = second(F.col("intended"), run), second(F.col("received"), run)
    groups = copies.groupBy(intended.alias("due"), arrived.alias("arrived"), hdr_index("latency", SERIES_BITS).alias("index")).agg(
        F.count("*").alias("n"), F.min("latency").alias("minimum"), F.max("latency").alias("maximum")
    )
    whole = Window.partitionBy("second")
    by_due = _regroup(groups, [F.col("due").alias("second"), F.col("index")])
    ranked = by_due.withColumns({"below": F.sum("n").over(whole.orderBy("index")), "all": F.sum("n").over(whole)})
    buckets = [F.min(F.when(F.col("below") * 100 >= F.col("all") * p, F.col("index"))).alias(f"p{p}") for p in SERIES_PERCENTILES]
    due = _regroup(ranked, [F.lit(True).alias("due"), F.col("second")], *buckets)
    return due.unionByName(_regroup(groups, [F.lit(False).alias("due"), F.col("arrived").alias("second")]), allowMissingColumns=True)


def _regroup(groups: DataFrame, keys: list[Column], *more: Column) -> DataFrame:
    merged = [F.sum("n").alias("n"), F.min("minimum").alias("minimum"), F.max("maximum").alias("maximum")]
    return groups.groupBy(*keys).agg(*merged, *more)


def sent_totals(sent: DataFrame, run: Run) -> DataFrame:
    """Of all sent rows, per topic, size bucket, status, whether they were handed over at all (``out``) and whether they are ``measured``:
    counts, bytes, and what completes the publish histograms."""
    return sent.groupBy("topic", "bucket", "status", (F.col("sent") > 0).alias("out"), measured(run).alias("measured")).agg(
        F.count("*").alias("n"),
        F.sum(F.col("size").cast("bigint")).alias("bytes"),
        F.count_if(F.col("sent") < run.start + run.duration).alias("in_time"),
        F.sum("blocked").alias("blocked"),
        *extremes("publish", "publish"),
    )


def delay_histograms(sent: DataFrame) -> DataFrame:
    """``kind, index, n`` and what completes the histograms: the send delays of messages that were not blocked, which are their own delays
    too; the send delays of blocked ones; and those ones' own delays. Usually only the first are there, and nothing else is read."""

    def of(kind: int, rows: DataFrame, value: str) -> DataFrame:
        counted = rows.groupBy(hdr_index(value).alias("index")).agg(F.count("*").alias("n"), *extremes(value, "delay"))
        return counted.select(F.lit(kind).alias("kind"), "*")

    out = sent.where(F.col("sent") > 0)
    blocked = out.where(F.col("blocked") != 0)
    return of(UNBLOCKED, out.where(F.col("blocked") == 0), "delay").union(of(BLOCKED, blocked, "delay")).union(of(OWN, blocked, "own"))


def received_totals(received: DataFrame, run: Run) -> DataFrame:
    """Of all received rows, per topic, size bucket and fate: how many, and what completes the end-to-end histograms."""
    return received.groupBy("topic", "bucket", fate(run).alias("fate")).agg(F.count("*").alias("n"), *extremes("latency", "latency"))
