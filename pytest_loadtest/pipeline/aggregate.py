"""The actions: a run folder in, measurements out. Every frame that is collected here is a small table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.expected import Recorded
from pytest_loadtest.metrics.stats import LOST_RANGES, median_shift
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.assemble import Answers, assemble, latencies_by_kind
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.executor import unpack
from pytest_loadtest.pipeline.kernel import FIRST_COPY_KINDS
from pytest_loadtest.pipeline.tables import KINDS, TABLES, UNDUE, Table, first_edges, joined, merged, take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.measurements import Measurements

_DAMAGED = re.compile(r"ValueError: (\S+ is damaged: .*)")
_CONDITION = re.compile(r"\[[A-Z_]+(\.[A-Z_]+)*\] .*")


def aggregate(spark: SparkSession, run_dir: Path) -> Measurements:
    """Measure one run.

    :raises NoData: the folder is incomplete or disagrees with itself or with the plan, or Spark could not read it; names worker or file.
    """
    folder = read.load_run(run_dir)
    return _measure(spark, folder, [folder.run], [folder.recorded])[0]


def aggregate_with_stages(spark: SparkSession, run_dir: Path) -> tuple[Measurements, tuple[tuple[str, Measurements], ...]]:
    """Measure one run and every stage of it, all from the same scans. Raises as :func:`aggregate` does."""
    folder = read.load_run(run_dir)
    whole, *stages = _measure(spark, folder, [folder.run, *folder.stages.values()], [folder.recorded, *_of_stages(folder)])
    return whole, tuple(zip(folder.stages, stages, strict=True))


def _of_stages(folder: read.RunFolder) -> list[Recorded]:
    """Workers counted foreign messages and damaged heads over the whole run; of which stage those were nobody knows."""
    run, workers, clocks = folder.run, folder.recorded.workers, folder.recorded.clocks
    return [
        Recorded(
            foreign=None,
            clocks=clocks,
            workers=tuple(worker.during(stage.start - run.start, stage.duration, run.duration) for worker in workers),
        )
        for stage in folder.stages.values()
    ]


def _measure(spark: SparkSession, folder: read.RunFolder, parts: list[Expected], recorded: list[Recorded]) -> list[Measurements]:
    """Measure the run or stages of it."""
    try:
        with T.for_workers():
            answers = _ask(spark, folder, parts)
    except (PySparkException, Py4JError) as error:
        raise NoData(f"{folder.path}: Spark could not aggregate the samples: {_cause(error)}") from error
    for part, answer in zip(parts, answers, strict=True):
        once = answer.deliveries["subscription"] == 0
        folder.check_offered(part, read.Offered(*(answer.deliveries[name][once] for name in ("stream", "offered", "distinct"))))
    return [assemble(*of_part) for of_part in zip(parts, recorded, answers, strict=True)]


def _ask(spark: SparkSession, folder: read.RunFolder, parts: list[Expected]) -> list[Answers]:
    """Two scans: what is in time, in the second, depends on the median latency, which comes of the first.

    Latencies are those of first copies. The first scan takes each copy for one; the second tells which deliveries came more than once. Most
    runs have none, and all is said. Otherwise a third scan makes the tables of latencies anew, and the second is repeated where the median
    is another.
    """
    for part in parts:
        words_of(part)  # or there are too many
    tasks = read.tasks(folder)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    found = _tables(T.file_tables(numbers, tasks, parts), len(parts))
    begins = _begins(parts, found)
    slots = _slots(T.deliveries(numbers, tasks, parts, begins, LOST_RANGES), len(parts))
    repeated = [_repeated(of_part) for of_part in slots]
    if any(ranges is not None for ranges in repeated):
        firsts = _tables(T.first_copies(numbers, tasks, parts, repeated), len(parts))
        found = [
            tables if ranges is None else _of_first_copies(tables, first)
            for tables, ranges, first in zip(found, repeated, firsts, strict=True)
        ]
        if (moved := _begins(parts, found)) != begins:
            slots = _slots(T.deliveries(numbers, tasks, parts, moved, LOST_RANGES), len(parts))
    return [_answers(*of_part) for of_part in zip(found, slots, strict=True)]


def _slots(frame: DataFrame, parts: int) -> list[dict[str, list[Table]]]:
    """By part, what the words of every slot tell, by name of the table."""
    found = _found(frame)
    return [{name: tables for (part, name), tables in found.items() if part == number} for number in range(parts)]


def _repeated(slots: Mapping[str, list[Table]]) -> Table | None:
    """The ranges of words with deliveries that came more than once, in order; None where none did."""
    found = sorted((ranges for ranges in slots.get("repeated", ()) if len(ranges["low"])), key=lambda ranges: int(ranges["low"][0]))
    return joined(found) if found else None


def _of_first_copies(tables: Mapping[str, Table], first: Mapping[str, Table]) -> dict[str, Table]:
    """Tables of all copies with latencies of first ones. :param first: as :func:`~pytest_loadtest.pipeline.transforms.first_copies`."""
    found = {**tables, "due": first["due"], "extremes": first["extremes"]}
    for name in ("counts", "histograms", "spans", "seconds"):
        of_copies = [UNDUE] if name == "seconds" else [KINDS[kind] for kind in FIRST_COPY_KINDS]
        others = take(tables[name], ~np.isin(tables[name]["what"], of_copies))
        found[name] = merged(name, [others, first[name]])
    return found


def _answers(tables: Mapping[str, Table], slots: Mapping[str, list[Table]]) -> Answers:
    """:param slots: of every slot what its words told, by name of the table."""
    deliveries, buckets, reached, pieces = (merged(name, slots.get(name, ())) for name in ("deliveries", "buckets", "reached", "pieces"))
    further = ("counts", "histograms", "spans")
    return Answers(
        tables={**tables, **{name: merged(name, [tables[name], *slots[name]]) for name in further if name in slots}},
        deliveries=deliveries,
        buckets=buckets,
        reached=reached,
        pieces=pieces,
        edges=first_edges(slots["edges"], LOST_RANGES) if deliveries["lost"].any() else None,
    )


def _begins(parts: list[Expected], found: list[Mapping[str, Table]]) -> list[int]:
    """When the span begins in which a copy must arrive to count as in time, ns: the phase's start plus the median latency."""
    return [part.start + median_shift(latencies_by_kind(tables, FIRST_COPY_KINDS)) for part, tables in zip(parts, found, strict=True)]


def _tables(frame: DataFrame, parts: int) -> list[Mapping[str, Table]]:
    """Every table of every part; one that no row was counted for is empty, not missing."""
    found: list[dict[str, list[Table]]] = [{} for _ in range(parts)]
    for (part, name), tables in sorted(_found(frame).items(), key=_shard):
        found[part].setdefault(name.partition(" ")[0], []).extend(tables)
    return [{name: joined(tables[name]) if name in tables else merged(name, ()) for name in TABLES} for tables in found]


def _shard(entry: tuple[tuple[int, str], list[Table]]) -> int:
    """Which part of a large table it is, as :func:`~pytest_loadtest.pipeline.executor.shards` numbers them."""
    return int(entry[0][1].partition(" ")[2] or 0)


def _found(frame: DataFrame) -> dict[tuple[int, str], list[Table]]:
    """The tables of a frame by part and name."""
    found: dict[tuple[int, str], list[Table]] = {}
    for row in frame.toArrow().to_pylist():
        found.setdefault((row["part"], row["name"]), []).append(unpack(row["content"]))
    return found


def _cause(error: Exception) -> str:
    """The one line of a Java stack trace that tells people what is wrong.

    That is a worker's sentence about a damaged file; else the line that begins with Spark's own name for an error, ``[LIKE_THIS]``; else
    the first line.
    """
    lines = str(error).strip().splitlines()
    damaged, found = _DAMAGED.search(str(error)), _CONDITION.search(str(error))
    if damaged:
        return damaged[1]
    return found[0] if found else (lines or [type(error).__name__])[0]
