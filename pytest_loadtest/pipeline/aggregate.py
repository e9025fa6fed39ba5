"""The actions: a run folder in, measurements out. Every frame that is collected here is a small table."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pytest_loadtest.errors import NoData
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.assemble import Answers, assemble, histogram
from pytest_loadtest.pipeline.executor import unpack
from pytest_loadtest.pipeline.tables import BUCKET, LATENCY, TABLES, Table, merge, take
from pytest_loadtest.stats import LOST_RANGES, Recorded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytest_loadtest.measurements import Measurements
    from pytest_loadtest.stats import Run

_DAMAGED = re.compile(r"ValueError: (\S+ is damaged: .*)")
_CONDITION = re.compile(r"\[[A-Z_]+(\.[A-Z_]+)*\] .*")


def aggregate(spark: SparkSession, run_dir: Path) -> Measurements:
    """Measure one run.

    :raises NoData: the folder is incomplete or disagrees with itself or with the plan, or Spark could not read it; names worker or file.
    """
    folder = read.load(run_dir)
    return _measure(spark, folder, [folder.run], [folder.recorded])[0]


def aggregate_stages(spark: SparkSession, run_dir: Path) -> tuple[tuple[str, Measurements], ...]:
    """Measure every stage of one run, by name; none where it has none. Raises as :func:`aggregate` does."""
    folder = read.load(run_dir)
    if not folder.stages:
        return ()
    found = _measure(spark, folder, list(folder.stages.values()), _of_stages(folder))
    return tuple(zip(folder.stages, found, strict=True))


def aggregate_with_stages(spark: SparkSession, run_dir: Path) -> tuple[Measurements, tuple[tuple[str, Measurements], ...]]:
    """Measure one run and every stage of it, all from the same scans. Raises as :func:`aggregate` does."""
    folder = read.load(run_dir)
    whole, *stages = _measure(spark, folder, [folder.run, *folder.stages.values()], [folder.recorded, *_of_stages(folder)])
    return whole, tuple(zip(folder.stages, stages, strict=True))


def _of_stages(folder: read.RunFolder) -> list[Recorded]:
    """Workers counted foreign messages and damaged heads over the whole run; of which stage those were nobody knows."""
    return [Recorded(workers=folder.recorded.workers)] * len(folder.stages)


def _measure(spark: SparkSession, folder: read.RunFolder, parts: list[Run], recorded: list[Recorded]) -> list[Measurements]:
    """Measure the run or stages of it."""
    try:
        answers = _ask(spark, folder, parts)
    except (PySparkException, Py4JError) as error:
        raise NoData(f"{folder.path}: Spark could not aggregate the samples: {_cause(error)}") from error
    for part, answer in zip(parts, answers, strict=True):
        once = answer.deliveries["subscription"] == 0
        streams, offered, distinct = (answer.deliveries[name][once].tolist() for name in ("stream", "offered", "distinct"))
        folder.check_offered(part, dict(zip(streams, zip(offered, distinct, strict=True), strict=True)))
    return [assemble(*of_part) for of_part in zip(parts, recorded, answers, strict=True)]


def _ask(spark: SparkSession, folder: read.RunFolder, parts: list[Run]) -> list[Answers]:
    """Two scans: what is in time, in the second, depends on the median latency, which comes of the first."""
    tasks = read.tasks(folder)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    found = _tables(T.file_tables(numbers, tasks, parts), len(parts))
    begins = [_begin(part, of_part) for part, of_part in zip(parts, found, strict=True)]
    words = T.deliveries(numbers, tasks, parts, begins).persist()
    try:
        totals = _by_part(T.delivery_totals(words), range(len(parts)))
        lossy = [i for i, table in totals.items() if table["lost"].any()]
        doubled = [i for i, table in totals.items() if (table["copies"] > table["received"]).any()]
        buckets = _by_part(T.bucket_totals(words, len(folder.run.buckets)), {*lossy, *doubled})
        edges = _by_part(T.lost_edges(words, folder.run.stream_topics, LOST_RANGES), lossy)
    finally:
        words.unpersist()
    return [Answers(tables=found[i], deliveries=totals[i], buckets=buckets.get(i), edges=edges.get(i)) for i in range(len(parts))]


def _begin(part: Run, found: Mapping[str, Table]) -> int:
    """From when on a copy is in time."""
    latency = histogram(found, LATENCY, BUCKET)
    return part.start + (latency.percentile(50) if latency else 0)


def _tables(frame: DataFrame, parts: int) -> list[Mapping[str, Table]]:
    """Every table of every part, those that nothing is in, too."""
    rows = frame.toArrow().to_pylist()
    found = {(row["part"], row["name"]): unpack(row["content"]) for row in rows}
    return [{name: found.get((part, name)) or merge(name, ()) for name in TABLES} for part in range(parts)]


def _by_part(frame: DataFrame, parts: Collection[int]) -> dict[int, Table]:
    """The rows of these parts; nothing is computed for none."""
    if not parts:
        return {}
    table = frame.where(F.col("part").isin(*parts)).toArrow()
    columns = {name: table[name].cast(pa.int64()).to_numpy() for name in table.column_names}
    return {part: take(columns, columns["part"] == part) for part in parts}


def _cause(error: Exception) -> str:
    """What a worker says of a file; or the line that begins with Spark's own name for an error, ``[LIKE_THIS]``, out of a Java stack trace;
    else the first."""
    lines = str(error).strip().splitlines()
    damaged, found = _DAMAGED.search(str(error)), _CONDITION.search(str(error))
    if damaged:
        return damaged[1]
    return found[0] if found else (lines or [type(error).__name__])[0]
