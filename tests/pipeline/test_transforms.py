"""The plans that Spark gets."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from runs import make_run

from pytest_loadtest.metrics.in_time import Begins
from pytest_loadtest.pipeline import aggregate, read
from pytest_loadtest.pipeline import transforms as T

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_nothing_is_used_that_spark_connect_lacks() -> None:
    """No RDD, no JVM and no context: the code also runs on a remote server."""
    source = "".join(inspect.getsource(module) for module in (T, aggregate, read))
    assert (
        re.findall(
            r"\.rdd\b|_jvm|_jdf|sparkContext|SparkContext|toPandas|percentile_approx", source
        )
        == []
    )


def test_words_are_never_rows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """They go from worker to worker by the slot, and once."""
    T.deliveries(spark.range(1), [[]], [make_run()], [Begins(0)], 1).explain()
    plan = capsys.readouterr().out
    assert (
        plan.count("Exchange") == 1
        and "Aggregate" not in plan
        and "slot" in plan
        and "word" not in plan
    )


def test_functions_reach_workers_as_code(spark: SparkSession) -> None:
    """A cluster's workers need not have the package installed: here its name leads nowhere."""

    def hidden(batches: object) -> object:
        import sys

        assert not [name for name in sys.modules if name.startswith("pytest_loadtest")], (
            "the package was imported"
        )
        return batches

    with T.for_workers():
        frame = T.file_tables(spark.range(1), [[]], [make_run()]).select(
            F.lit(1).cast("bigint").alias("one")
        )
        assert frame.mapInArrow(hidden, "one bigint").collect() == []  # type: ignore[arg-type]
