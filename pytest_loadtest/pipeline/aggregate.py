"""Measure the samples of a run folder with Spark. Every frame that is collected here is a small table."""

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
from pytest_loadtest.pipeline.tables import KINDS, TABLES, UNDUE, WITHIN, Table, first_edges, joined, merge_rows, take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.measurements import Measurements

_DAMAGED = re.compile(r"ValueError: (\S+ (?:is damaged|cannot be read): .*)")
_CONDITION = re.compile(r"\[[A-Z_]+(\.[A-Z_]+)*\] .*")


def aggregate(spark: SparkSession, run_dir: Path) -> Measurements:
    """Measure one run.

    :raises NoData: the folder is incomplete or inconsistent, or differs from the plan, or Spark could not read it; names worker or file.
    """
    folder = read.load_run(run_dir)
    return _measure(spark, folder, [folder.run], [folder.recorded])[0]


def aggregate_with_stages(spark: SparkSession, run_dir: Path) -> tuple[Measurements, tuple[tuple[str, Measurements], ...]]:
    """Measure one run and all its stages in the same scans.

    :raises NoData: see :func:`aggregate`.
    """
    folder = read.load_run(run_dir)
    whole, *stages = _measure(spark, folder, [folder.run, *folder.stages.values()], [folder.recorded, *_of_stages(folder)])
    return whole, tuple(zip(folder.stages, stages, strict=True))


def _of_stages(folder: read.RunFolder) -> list[Recorded]:
    """Return the records of each stage, without foreign messages and damaged heads: their time is unknown."""
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
    try:
        with T.for_workers():
            answers = _ask(spark, folder, parts)
    except (PySparkException, Py4JError) as error:
        raise NoData(f"{folder.path}: Spark could not aggregate the samples: {_cause(error)}") from error
    for part, answer in zip(parts, answers, strict=True):
        # Every subscription repeats what was sent, so that of one is compared with the plan.
        once = answer.deliveries["subscription"] == 0
        folder.check_offered(part, read.Offered(*(answer.deliveries[name][once] for name in ("stream", "offered", "distinct"))))
    measured = [assemble(*of_part) for of_part in zip(parts, recorded, answers, strict=True)]
    for each in measured:
        # Times that no relation of clocks has corrected can be compared within one host only.
        between = each.counts.received - (each.within_hosts.deliveries if each.within_hosts else 0)
        if each.one_clock and between:
            raise NoData(f"{folder.path}: {between} deliveries are between two hosts, the plan has none")
    return measured


def _ask(spark: SparkSession, folder: read.RunFolder, parts: list[Expected]) -> list[Answers]:
    """Count the samples in two scans: deliveries in time, counted by the second, depend on the median latency, a result of the first.

    Latencies are those of first copies. The first scan counts every copy as one; the second finds the deliveries that came more than once.
    Most runs have none. Otherwise a third scan counts the latencies again, and the second is repeated if the median has changed (decision
    024).
    """
    for part in parts:
        words_of(part)  # raises NoData if there are more words than can be numbered, before anything is read
    # A row of the range is one task; each is a partition of its own, so that Spark runs them in parallel.
    tasks = read.tasks(folder)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    counted = _tables(T.file_tables(numbers, tasks, parts), len(parts))
    begins = _begins(parts, counted)
    slots = _slots(T.deliveries(numbers, tasks, parts, begins, LOST_RANGES), len(parts))
    repeated = [_repeated(of_part) for of_part in slots]
    if any(ranges is not None for ranges in repeated):
        firsts = _tables(T.first_copies(numbers, tasks, parts, repeated), len(parts))
        counted = [
            tables if ranges is None else _of_first_copies(tables, first)
            for tables, ranges, first in zip(counted, repeated, firsts, strict=True)
        ]
        if (shifted := _begins(parts, counted)) != begins:
            slots = _slots(T.deliveries(numbers, tasks, parts, shifted, LOST_RANGES), len(parts))
    return [_answers(*of_part) for of_part in zip(counted, slots, strict=True)]


def _slots(frame: DataFrame, parts: int) -> list[dict[str, list[Table]]]:
    """Return the tables of every slot by name, for each part."""
    collected = _collected(frame)
    return [{name: tables for (part, name), tables in collected.items() if part == number} for number in range(parts)]


def _repeated(slots: Mapping[str, list[Table]]) -> Table | None:
    """Return the ranges of words with deliveries that came more than once, in order; None without any."""
    repeated = sorted((ranges for ranges in slots.get("repeated", ()) if len(ranges["low"])), key=lambda ranges: int(ranges["low"][0]))
    return joined(repeated) if repeated else None


def _of_first_copies(tables: Mapping[str, Table], first: Mapping[str, Table]) -> dict[str, Table]:
    """Replace the latencies of all copies by those of first copies. :param first: the tables of the third scan."""
    replaced = {**tables, **{name: first[name] for name in ("due", "extremes", "gaps", "gaps_without_own")}}
    for name in ("counts", "histograms", "spans", "seconds"):
        of_copies = [UNDUE, WITHIN] if name == "seconds" else [KINDS[kind] for kind in FIRST_COPY_KINDS]
        others = take(tables[name], ~np.isin(tables[name]["what"], of_copies))
        replaced[name] = merge_rows(name, [others, first[name]])
    return replaced


def _answers(tables: Mapping[str, Table], slots: Mapping[str, list[Table]]) -> Answers:
    """:param tables: of the first or third scan. :param slots: the tables of every slot of words, by name."""
    deliveries, buckets, reached, pieces = (
        merge_rows(name, slots.get(name, ())) for name in ("deliveries", "buckets", "reached", "pieces")
    )
    further = [name for name in ("counts", "histograms", "spans") if name in slots]  # of broadcasts
    return Answers(
        tables={**tables, **{name: merge_rows(name, [tables[name], *slots[name]]) for name in further}},
        deliveries=deliveries,
        buckets=buckets,
        reached=reached,
        pieces=pieces,
        edges=first_edges(slots["edges"], LOST_RANGES) if deliveries["lost"].any() else None,
    )


def _begins(parts: list[Expected], counted: list[Mapping[str, Table]]) -> list[int]:
    """Return the start of the time in which a copy is in time, ns, for each part: the phase's start plus the median latency."""
    return [part.start + median_shift(latencies_by_kind(tables, FIRST_COPY_KINDS)) for part, tables in zip(parts, counted, strict=True)]


def _tables(frame: DataFrame, parts: int) -> list[Mapping[str, Table]]:
    """Return every table of every part; a table without rows is empty, not missing."""
    collected: list[dict[str, list[Table]]] = [{} for _ in range(parts)]
    for (part, name), tables in sorted(_collected(frame).items(), key=_shard):
        collected[part].setdefault(name.partition(" ")[0], []).extend(tables)
    return [{name: joined(tables[name]) if name in tables else merge_rows(name, ()) for name in TABLES} for tables in collected]


def _shard(entry: tuple[tuple[int, str], list[Table]]) -> int:
    """Return the number of a shard of a large table, see :func:`~pytest_loadtest.pipeline.executor.shards`."""
    return int(entry[0][1].partition(" ")[2] or 0)


def _collected(frame: DataFrame) -> dict[tuple[int, str], list[Table]]:
    """Return the tables of a frame by part and name."""
    collected: dict[tuple[int, str], list[Table]] = {}
    for row in frame.toArrow().to_pylist():
        collected.setdefault((row["part"], row["name"]), []).append(unpack(row["content"]))
    return collected


def _cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause.

    It is a worker's message about a damaged file; otherwise the line that begins with Spark's error condition, ``[LIKE_THIS]``; otherwise
    the first line.
    """
    lines = str(error).strip().splitlines()
    damaged, condition = _DAMAGED.search(str(error)), _CONDITION.search(str(error))
    if damaged:
        return damaged[1]
    return condition[0] if condition else (lines or [type(error).__name__])[0]
