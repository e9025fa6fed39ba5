"""Small steps from frame to frame: no action, no session, nothing that Spark Connect cannot carry.

Rows leave the samples only as tables and as words of 64 sequences (:mod:`pytest_loadtest.pipeline.kernel`), so that a message costs no row
of its own; Spark spreads the files, and merges and joins what comes of them.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql import Window
from pyspark.sql import functions as F

from pytest_loadtest.pipeline.executor import (
    TABLE_SCHEMA,
    WORD_KEYS,
    WORD_MASKS,
    WORD_SUMS,
    TablesOfFiles,
    WordsOfFiles,
    merge_tables,
    planes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from pytest_loadtest.stats import Run

    Tasks = Sequence[Sequence[str]]


def file_tables(numbers: DataFrame, tasks: Tasks, parts: Sequence[Run]) -> DataFrame:
    """``part, name, content``: every table of every part, whole. :param numbers: of the tasks, each in a partition of its own."""
    with _for_workers():
        parted = numbers.mapInArrow(TablesOfFiles(tasks, parts), TABLE_SCHEMA)
        return parted.groupBy("part", "name").applyInArrow(merge_tables, TABLE_SCHEMA)


@contextlib.contextmanager
def _for_workers() -> Iterator[None]:
    """Functions travel to the workers as code, not as the name of a module that these may not have. That pyspark warns of any pandas later
    than 2 is not for the user's eyes: no row ever goes through pandas."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__.partition(".")[0]])  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def deliveries(numbers: DataFrame, tasks: Tasks, parts: Sequence[Run], begins: Sequence[int]) -> DataFrame:
    """Per part, subscription, stream and word of 64 sequences: rows sent (``offered_rows``) and got (``copies``), and as bitmaps the
    messages ``offered, acked, got, punctual, in_time``, the bits of their size buckets, and ``missing``, those acked and not got.

    Bitmaps are combined by ``bit_or`` alone: bit 63 makes a word negative, so neither maximum nor sum would do.
    """
    words = WordsOfFiles(tasks, parts, begins)
    sums = [F.sum(name).alias(name) for name in WORD_SUMS]
    masks = [F.bit_or(name).alias(name) for name in (*WORD_MASKS, *planes(parts))]
    with _for_workers():
        found = numbers.mapInArrow(words, words.schema)
    merged = found.groupBy("part", *WORD_KEYS).agg(*sums, *masks)
    return merged.withColumn("missing", F.col("acked").bitwiseAND(F.bitwise_not("got")))


def delivery_totals(deliveries: DataFrame) -> DataFrame:
    """Per part, subscription and stream: messages with each property."""
    late = F.col("got").bitwiseAND(F.bitwise_not("punctual"))
    masks: dict[str, Column | str] = {
        "distinct": "offered",
        "received": "got",
        "received_in_time": "in_time",
        "lost": "missing",
        "late": late,
    }
    counted = [F.sum(F.bit_count(mask)).alias(name) for name, mask in masks.items()]
    rows = [F.sum("offered_rows").alias("offered"), F.sum("copies").alias("copies")]
    return deliveries.groupBy("part", "subscription", "stream").agg(*rows, *counted)


def bucket_totals(deliveries: DataFrame, buckets: int) -> DataFrame:
    """Per part: deliveries ``received_i`` and ``lost_i`` of each size bucket. Of interest where any was lost or came twice."""
    bits = [name for name in deliveries.columns if name.startswith("plane_")]
    counted = []
    for bucket in range(buckets):
        own = F.lit(-1).cast("bigint")
        for place, name in enumerate(bits):
            own = own.bitwiseAND(F.col(name) if bucket >> place & 1 else F.bitwise_not(name))
        for count, mask in (("received", "got"), ("lost", "missing")):
            counted.append(F.sum(F.bit_count(F.col(mask).bitwiseAND(own))).alias(f"{count}_{bucket}"))
    return deliveries.groupBy("part").agg(F.count("*").alias("words"), *counted)


def per_stream(values: NDArray[np.int64]) -> Column:
    """A value by the row's stream."""
    return F.get(F.split(F.lit(",".join(map(str, values.tolist()))), ",").cast("array<bigint>"), F.col("stream").cast("int"))


def lost_edges(deliveries: DataFrame, stream_topics: NDArray[np.int64], ranges: int) -> DataFrame:
    """Where ranges of missing messages begin and end, as bits of their words: per part the first ones, in the order of topic, subscription,
    stream, word.

    Every row holds an edge, and beginnings and ends alternate, so twice ``ranges`` rows hold the first ``ranges`` ranges.
    """
    in_order = Window.partitionBy("part", "subscription", "stream").orderBy("word")
    missing, word = F.col("missing"), F.col("word")
    before = F.when(F.lag("word").over(in_order) == word - 1, F.lag("missing").over(in_order)).otherwise(F.lit(0))
    after = F.when(F.lead("word").over(in_order) == word + 1, F.lead("missing").over(in_order)).otherwise(F.lit(0))
    begun = F.shiftleft(missing, 1).bitwiseOR(F.shiftrightunsigned(before, 63))
    going_on = F.shiftrightunsigned(missing, 1).bitwiseOR(F.shiftleft(after, 63))
    edges = deliveries.where(missing != 0).select(
        "part", per_stream(stream_topics).alias("topic"), "subscription", "stream", "word",
        missing.bitwiseAND(F.bitwise_not(begun)).alias("first"), missing.bitwiseAND(F.bitwise_not(going_on)).alias("last"),
    )  # fmt: skip
    first_ones = Window.partitionBy("part").orderBy("topic", "subscription", "stream", "word")
    found = edges.where((F.col("first") != 0) | (F.col("last") != 0)).withColumn("place", F.row_number().over(first_ones))
    return found.where(F.col("place") <= 2 * ranges).drop("place")
