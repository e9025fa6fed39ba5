"""Single steps on tiny frames."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F
from runs import START, make_run

from pytest_loadtest import hdr
from pytest_loadtest.pipeline import aggregate, read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.assemble import COPY
from pytest_loadtest.quantities import SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def column(spark: SparkSession, values: list[int], step: Column) -> list[int | None]:
    """What ``step``, on a column ``v``, makes of the values."""
    frame = spark.createDataFrame([(value,) for value in values], "v bigint").coalesce(1)
    return [row[0] for row in frame.select(step).collect()]


@pytest.mark.parametrize("bits", [7, 10])
def test_hdr_index_is_its_numpy_twin(spark: SparkSession, bits: int) -> None:
    """At every power of two and beside it, and at random; below zero it is told apart."""
    edges = [(1 << k) + near for k in range(1, 62) for near in (-2, -1, 0, 1, 2)]
    some = np.random.default_rng(bits).integers(0, 1 << 40, 2000).tolist()
    values = [-7, 0, 1, *edges, *some]
    assert column(spark, values, T.hdr_index("v", bits)) == [-1, *hdr.hdr_index(np.array(values[1:]), bits).tolist()]


def test_seconds_begin_at_the_start_and_never_before(spark: SparkSession) -> None:
    """What a clock error puts before the start belongs to second 0."""
    times = [START - SECOND - 1, START - 1, START, START + SECOND - 1, START + SECOND]
    assert column(spark, times, T.second(F.col("v"), make_run())) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("values", "expected"), [([5, 6, 7], [None, 5, 6, 7, None]), ([5, 5, 5], [None, 5, 5, 5, None]), ([], [None, 0, None, None, None])]
)
def test_a_value_per_stream_is_null_for_strangers(spark: SparkSession, values: list[int], expected: list[int | None]) -> None:
    """Streams -1 … 3 of a run that has three, or none."""
    frame = spark.createDataFrame([(stream,) for stream in range(-1, 4)], "stream int").coalesce(1)
    assert [row[0] for row in frame.select(T.per_stream(np.array(values, np.int64))).collect()] == expected


def test_words_hold_every_bit_with_its_sign(spark: SparkSession) -> None:
    """Sequence 63 makes a word negative; 64 begins the next one."""
    frame = spark.createDataFrame([(0, 0), (0, 63), (0, 63), (0, 64)], "stream int, seq bigint").coalesce(1)
    found = T.words(frame, ["stream"], {"all": None, "high": F.col("seq") > 63}).orderBy("word").collect()
    assert [(row["word"], row["rows"], row["all"], row["high"]) for row in found] == [(0, 3, -(1 << 63) + 1, 0), (1, 1, 1, 1)]


def test_nothing_is_used_that_spark_connect_lacks() -> None:
    """The same code runs on a remote server: no RDD, no JVM, no context."""
    source = "".join(inspect.getsource(module) for module in (T, aggregate, read))
    assert re.findall(r"\.rdd\b|_jvm|_jdf|sparkContext|SparkContext|toPandas|percentile_approx", source) == []


def test_the_frequent_steps_never_sort(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows go into hash tables; sorting them would cost more than everything else."""
    run = make_run()
    schema = "stream int, subscription int, topic int, bucket smallint, flags tinyint, seq bigint, intended bigint, received bigint"
    copies = T.with_latency(spark.createDataFrame([], schema)).where(T.fate(run) == COPY)
    T.histogram(copies, "latency", {"a": "topic = 0"}).explain()
    T.copy_words(copies, 0, 1).explain()
    T.received_totals(copies, run).explain()
    plans = capsys.readouterr().out
    assert plans.count("HashAggregate") >= 6 and "Sort" not in plans
