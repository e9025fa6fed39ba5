"""Measure the samples of a run folder with Spark.

The rule: samples are counted by Spark's workers, in two scans or more, and every frame that is
collected here is a small table. :mod:`pytest_loadtest.fleet` calls it in the controller's process,
in the thread that waits for the run's measurements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.expected import Recorded
from pytest_loadtest.metrics.gaps import gaps_of_cells, longest_gaps
from pytest_loadtest.metrics.in_time import begins_in_time
from pytest_loadtest.metrics.stats import LOST_RANGES
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.assemble import Answers, assemble, latencies_by_kind
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.collect import Collector, Counted
from pytest_loadtest.pipeline.executor import unpack
from pytest_loadtest.pipeline.gap_receipts import INSIDE, SuspectCells, suspects_of
from pytest_loadtest.pipeline.kernel import FIRST_COPY_KINDS
from pytest_loadtest.pipeline.spool import Spool, joined_spans, spool_spans
from pytest_loadtest.pipeline.tables import (
    KINDS,
    UNDUE,
    WITHIN,
    Table,
    first_edges,
    joined,
    merge_rows,
    take,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.gaps import DeliveryGaps
    from pytest_loadtest.metrics.in_time import Begins
    from pytest_loadtest.metrics.measurements import Measurements

# Names of tables.
_GAPS = "gaps"
_GAPS_WITHOUT_OWN = "gaps_without_own"
_DAMAGED = re.compile(r"ValueError: (\S+ (?:is damaged|cannot be read): .*)")
_CONDITION = re.compile(r"\[[A-Z_]+(\.[A-Z_]+)*\] .*")


def aggregate(spark: SparkSession, run_dir: Path) -> Measurements:
    """Measure one run.

    :raises NoData: the folder is incomplete or inconsistent, or differs from the plan, or Spark
        could not read it; names worker or file.
    """
    folder = read.load_run(run_dir)
    return _measure(spark, folder, [folder.run], [folder.recorded])[0]


def aggregate_with_stages(
    spark: SparkSession, run_dir: Path
) -> tuple[Measurements, tuple[tuple[str, Measurements], ...]]:
    """Measure one run and all its stages in the same scans.

    :raises NoData: see :func:`aggregate`.
    """
    folder = read.load_run(run_dir)
    parts = [folder.run, *folder.stages.values()]
    recorded = [folder.recorded, *_of_stages(folder)]
    whole, *stages = _measure(spark, folder, parts, recorded)
    return whole, tuple(zip(folder.stages, stages, strict=True))


def _of_stages(folder: read.RunFolder) -> list[Recorded]:
    """Return the records of each stage.

    They lack foreign messages and damaged heads, whose time is unknown.
    """
    run = folder.run
    workers = folder.recorded.workers
    stages = []
    for stage in folder.stages.values():
        begin = stage.start - run.start
        during = tuple(worker.during(begin, stage.duration, run.duration) for worker in workers)
        stages.append(Recorded(foreign=None, clocks=folder.recorded.clocks, workers=during))
    return stages


def _measure(
    spark: SparkSession, folder: read.RunFolder, parts: list[Expected], recorded: list[Recorded]
) -> list[Measurements]:
    try:
        with T.for_workers():
            answers = _ask(spark, folder, parts)
    except (PySparkException, Py4JError) as error:
        raise NoData(
            f"{folder.path}: Spark could not aggregate the samples: {_cause(error)}"
        ) from error

    for part, answer in zip(parts, answers, strict=True):
        # Every subscription repeats what was sent, so that of one is compared with the plan.
        once = take(answer.deliveries, answer.deliveries["subscription"] == 0)
        offered = read.Offered(once["stream"], once["offered"], once["distinct"])
        folder.check_offered(part, offered)

    every_part = zip(parts, recorded, answers, strict=True)
    measured = [assemble(*of_part) for of_part in every_part]
    for measurements in measured:
        # Times that no relation of clocks has corrected can be compared within one host only.
        between = measurements.counts.received
        if measurements.within_hosts:
            between -= measurements.within_hosts.deliveries
        if measurements.one_clock and between:
            raise NoData(
                f"{folder.path}: {between} deliveries crossed hosts,"
                " but the plan keeps each within one host"
            )
    return measured


def _ask(spark: SparkSession, folder: read.RunFolder, parts: list[Expected]) -> list[Answers]:
    """Count the samples in two scans.

    Deliveries in time, counted by the second, depend on the median latency, a result of the first.

    Latencies are those of first copies. The first scan counts every copy as one; the second finds
    the deliveries that came more than once. Most runs have none. Otherwise a third scan counts the
    latencies again, and the second is repeated if the median has changed (decision 024). A last one
    measures delivery gaps that are shorter than the cells of the first (decision 036). A run with a
    tap has one more, for the latencies past it.
    """
    for part in parts:
        # It raises NoData if there are more words than can be numbered, before anything is read.
        words_of(part)
    # A row of the range is one task; each is a partition of its own, so that Spark runs them in
    # parallel.
    tasks = read.tasks(folder)
    numbers = _numbered(spark, tasks)
    collector = Collector(Spool(folder.path), parts, sum(folder.files.values()))
    counted = collector.tables(T.file_tables(numbers, tasks, parts))
    begins = _begins(parts, counted)
    slots = _slots(T.deliveries(numbers, tasks, parts, begins, LOST_RANGES), len(parts))

    repeated = list(map(_repeated, slots))
    if any(repeated):
        firsts = collector.tables(T.first_copies(numbers, tasks, parts, repeated))
        for number, ranges in enumerate(repeated):
            if ranges is not None:
                counted[number] = _of_first_copies(counted[number], firsts[number])
        shifted = _begins(parts, counted)
        if shifted != begins:
            slots = _slots(T.deliveries(numbers, tasks, parts, shifted, LOST_RANGES), len(parts))

    gaps = _delivery_gaps(numbers, tasks, parts, repeated, counted)
    if folder.run.tapped:
        tasks = read.tasks(folder, read.TAPPED)
        tapped = _slots(T.tapped(_numbered(spark, tasks), tasks, parts), len(parts))
        for of_part, latencies in zip(slots, tapped, strict=True):
            of_part.update(latencies)
    return [
        _answers(collector.spool, *of_part) for of_part in zip(counted, slots, gaps, strict=True)
    ]


def _numbered(spark: SparkSession, tasks: T.Tasks) -> DataFrame:
    return spark.range(0, len(tasks), 1, len(tasks))


def _delivery_gaps(
    numbers: DataFrame,
    tasks: T.Tasks,
    parts: Sequence[Expected],
    repeated: Sequence[Table | None],
    counted: Sequence[Counted],
) -> list[tuple[DeliveryGaps, DeliveryGaps | None]]:
    """Return the longest gap of each pair of each part.

    The second one is without the generator's own delays; None in parts that need none.
    """
    # The parts that need both are counted twice in the same scan, the second time without the
    # generator's own delays.
    places = [(number, _GAPS) for number in range(len(parts))]
    places += [
        (number, _GAPS_WITHOUT_OWN) for number, part in enumerate(parts) if part.explains_gaps
    ]
    runs = []
    ranges = []
    cells = []
    suspects = []
    for number, name in places:
        run = parts[number]
        of_run = counted[number].tables[name]
        runs.append(run)
        ranges.append(repeated[number])
        cells.append(of_run)
        suspects.append(suspects_of(run, of_run, without_own=name == _GAPS_WITHOUT_OWN))

    inside: list[list[Table]] = [[] for _ in places]
    if any(suspects):
        frame = T.gap_receipts(numbers, tasks, runs, ranges, suspects)
        inside = [of_run.get(INSIDE, []) for of_run in _slots(frame, len(runs))]
    every_run = zip(runs, cells, suspects, inside, strict=True)
    longest = [_gaps(*of_run) for of_run in every_run]
    gaps = dict(zip(places, longest, strict=True))
    return [
        (gaps[number, _GAPS], gaps.get((number, _GAPS_WITHOUT_OWN))) for number in range(len(parts))
    ]


def _gaps(
    run: Expected, cells: Table, suspects: SuspectCells | None, inside: Sequence[Table]
) -> DeliveryGaps:
    """Return the longest gap of each pair.

    :param cells: the table ``gaps``, or ``gaps_without_own``.
    :param inside: the longest gap inside each suspect cell, see ``gap_receipts.longest_inside``.
    """
    gaps = [gaps_of_cells(run, cells)]
    if suspects is not None:
        gaps += map(suspects.of_pairs, inside)
    return longest_gaps(run, joined(gaps))


def _slots(frame: DataFrame, parts: int) -> list[dict[str, list[Table]]]:
    """Return the tables of every slot by name, for each part."""
    slots: list[dict[str, list[Table]]] = [{} for _ in range(parts)]
    for row in frame.toArrow().to_pylist():
        slots[row["part"]].setdefault(row["name"], []).append(unpack(row["content"]))
    return slots


def _repeated(slots: Mapping[str, list[Table]]) -> Table | None:
    """Return the ranges of words with deliveries that came more than once, in order.

    None without any.
    """
    repeated = [ranges for ranges in slots.get("repeated", ()) if len(ranges["low"])]
    if not repeated:
        return None
    repeated.sort(key=lambda ranges: int(ranges["low"][0]))
    return joined(repeated)


def _of_first_copies(counted: Counted, first: Counted) -> Counted:
    """Replace the latencies of all copies by those of first copies.

    :param first: the tables of the third scan.
    """
    tables = dict(counted.tables)
    for name in ("extremes", _GAPS, _GAPS_WITHOUT_OWN):
        tables[name] = first.tables[name]
    kinds = [KINDS[kind] for kind in FIRST_COPY_KINDS]
    of_copies = {"counts": kinds, "histograms": kinds, "seconds": [UNDUE, WITHIN]}
    for name, replaced in of_copies.items():
        others = take(tables[name], ~np.isin(tables[name]["what"], replaced))
        tables[name] = merge_rows(name, [others, first.tables[name]])

    spans = {}
    for (kind, shard), packed in counted.spans.items():
        if kind not in kinds:
            spans[kind, shard] = packed
    return Counted(tables=tables, spans=joined_spans(spans, first.spans), due=first.due)


def _answers(
    spool: Spool,
    counted: Counted,
    slots: Mapping[str, list[Table]],
    gaps: tuple[DeliveryGaps, DeliveryGaps | None],
) -> Answers:
    """:param counted: in the first or third scan.

    :param slots: the tables of every slot of words, by name.
    :param gaps: see :func:`_delivery_gaps`.
    """

    def merged(name: str) -> Table:
        return merge_rows(name, slots.get(name, ()))

    tables = dict(counted.tables)
    for name in ("counts", "histograms"):
        if name in slots:  # of broadcasts, or past a tap
            tables[name] = merge_rows(name, [tables[name], *slots[name]])
    deliveries = merged("deliveries")
    edges = None
    if deliveries["lost"].any():
        edges = first_edges(slots["edges"], LOST_RANGES)
    return Answers(
        tables=tables,
        spans=joined_spans(counted.spans, spool_spans(spool, slots.get("spans", ()))),
        due=counted.due,
        deliveries=deliveries,
        buckets=merged("buckets"),
        reached=merged("reached"),
        pieces=merged("pieces"),
        edges=edges,
        gaps=gaps[0],
        gaps_without_own=gaps[1],
    )


def _begins(parts: list[Expected], counted: list[Counted]) -> list[Begins]:
    """Return for each part when the times begin in which a copy is in time."""
    begins = []
    for part, of_part in zip(parts, counted, strict=True):
        latencies = latencies_by_kind(of_part.tables, FIRST_COPY_KINDS)
        sent = of_part.tables["sent"]
        intended = np.append(sent["first"], sent["last"])
        begins.append(begins_in_time(latencies, intended, int(sent["n"].sum()), part))
    return begins


def _cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause.

    It is a worker's message about a damaged file; otherwise the line that begins with Spark's error
    condition, ``[LIKE_THIS]``; otherwise the first line.
    """
    trace = str(error).strip()
    damaged = _DAMAGED.search(trace)
    if damaged:
        return damaged[1]
    condition = _CONDITION.search(trace)
    if condition:
        return condition[0]
    return trace.splitlines()[0] if trace else type(error).__name__
