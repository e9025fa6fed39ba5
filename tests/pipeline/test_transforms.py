"""Single steps on tiny frames."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F
from runs import make_run

from pytest_loadtest.pipeline import aggregate, executor, read
from pytest_loadtest.pipeline import transforms as T

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import DataFrame, SparkSession


def words(spark: SparkSession, *rows: dict[str, int]) -> DataFrame:
    """Words of deliveries; what is not given is 0."""
    columns = ("part", *executor.WORD_KEYS, *executor.WORD_SUMS, *executor.WORD_MASKS, "plane_0", "plane_1", "missing")
    schema = ", ".join(f"{name} bigint" for name in columns)
    return spark.createDataFrame([tuple(row.get(name, 0) for name in columns) for row in rows], schema).coalesce(1)


def test_a_value_per_stream(spark: SparkSession) -> None:
    """As the run has them."""
    frame = spark.createDataFrame([(stream,) for stream in (2, 0, 1)], "stream bigint").coalesce(1)
    assert [row[0] for row in frame.select(T.per_stream(np.array([5, 6, 7]))).collect()] == [7, 5, 6]


def test_deliveries_are_counted_by_their_bits(spark: SparkSession) -> None:
    """Late are those got and not punctual; sequence 63 makes a word negative and is a message like any."""
    high = -(1 << 63)
    one = {"offered_rows": 3, "offered": high | 3, "acked": high | 1, "copies": 3, "got": 3, "punctual": 1, "in_time": 2, "missing": high}
    (found,) = T.delivery_totals(words(spark, one, {**one, "word": 1})).collect()
    assert found.asDict() == {
        "part": 0, "subscription": 0, "stream": 0, "offered": 6, "copies": 6, "distinct": 6, "received": 4, "received_in_time": 2,
        "lost": 2, "late": 2,
    }  # fmt: skip


def test_deliveries_are_shared_out_to_buckets_by_the_bits_of_their_numbers(spark: SparkSession) -> None:
    """Messages 0 to 3 are of the buckets 0 to 3, of which the run has three."""
    (found,) = T.bucket_totals(words(spark, {"got": 0b1101, "missing": 0b0010, "plane_0": 0b1010, "plane_1": 0b1100}), 3).collect()
    assert [(found[f"received_{i}"], found[f"lost_{i}"]) for i in range(3)] == [(1, 0), (0, 1), (1, 0)]


def test_the_first_ranges_of_every_part_are_found(spark: SparkSession) -> None:
    """In the order of topic, subscription, stream, word; a range may go over words."""
    rows = [{"part": part, "stream": stream, "word": word, "missing": -1} for part in (0, 1) for stream in (1, 0) for word in (4, 5, 9)]
    found = T.lost_edges(words(spark, *rows), np.array([1, 0]), 1).orderBy("part", "word").collect()
    edges = [(row["part"], row["topic"], row["stream"], row["word"], row["first"], row["last"]) for row in found]
    assert edges == [(part, 0, 1, *edge) for part in (0, 1) for edge in ((4, 1, 0), (5, 0, -(1 << 63)))]


def test_nothing_is_used_that_spark_connect_lacks() -> None:
    """The same code runs on a remote server: no RDD, no JVM, no context."""
    source = "".join(inspect.getsource(module) for module in (T, aggregate, read))
    assert re.findall(r"\.rdd\b|_jvm|_jdf|sparkContext|SparkContext|toPandas|percentile_approx", source) == []


def test_words_are_merged_without_sorting(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """They go into hash tables; and their totals are read from what is kept of them."""
    merged = T.deliveries(spark.range(1), [[]], [make_run()], [0])
    T.delivery_totals(merged).explain()
    plan = capsys.readouterr().out
    assert plan.count("HashAggregate") >= 4 and "Sort" not in plan
    assert [name for name in merged.columns if name.startswith("plane_")] == ["plane_0", "plane_1"]


def test_functions_reach_workers_as_code(spark: SparkSession) -> None:
    """A cluster's workers need not have the package installed: here its name leads nowhere."""

    def hidden(batches: object) -> object:
        import sys

        assert not [name for name in sys.modules if name.startswith("pytest_loadtest")], "the package was imported"
        return batches

    with T._for_workers():
        frame = T.file_tables(spark.range(1), [[]], [make_run()]).select(F.lit(1).cast("bigint").alias("one"))
        assert frame.mapInArrow(hidden, "one bigint").collect() == []  # type: ignore[arg-type]
