"""The actions: a run folder in, measurements out. Every frame that is collected here is a small table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pytest_loadtest.errors import NoData
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.assemble import COPY, Table, Tables, assemble, latency_histogram
from pytest_loadtest.samples import Status
from pytest_loadtest.stats import LOST_RANGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytest_loadtest.measurements import Measurements
    from pytest_loadtest.stats import Run

AT_ONCE = 4  # actions in flight: what one plans, another computes meanwhile
TOPIC_COLUMNS = 32  # beyond that, topics are rows of a table of their own
_CONDITION = re.compile(r"\[[A-Z_]+(\.[A-Z_]+)*\] .*")


def aggregate(spark: SparkSession, run_dir: Path) -> Measurements:
    """Measure one run.

    :raises NoData: the folder is incomplete or disagrees with itself or with the plan, or Spark could not read it; names worker or file.
    """
    folder = read.load(run_dir)
    try:
        tables = _collect_all(spark, folder)
    except (PySparkException, Py4JError) as error:
        raise NoData(f"{run_dir}: Spark could not aggregate the samples: {_cause(error)}") from error
    once = tables.deliveries["subscription"] == 0
    streams, offered, distinct = (tables.deliveries[name][once].tolist() for name in ("stream", "offered", "distinct"))
    folder.check_offered(dict(zip(streams, zip(offered, distinct, strict=True), strict=True)))
    return assemble(folder.run, folder.recorded, tables)


def _collect_all(spark: SparkSession, folder: read.RunFolder) -> Tables:
    run = folder.run
    sent = T.with_delays(read.rows(spark, folder, "sent"))
    received = T.with_latency(read.rows(spark, folder, "received"))
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="loadtest-spark") as pool:

        def table(frame: DataFrame) -> Future[Table]:
            return pool.submit(_collect, frame)

        sent_totals, received_totals = table(T.sent_totals(sent, run)), table(T.received_totals(received, run))
        if not sent_totals.result()["measured"].all():  # otherwise spare every other step the filter
            sent = sent.where(T.measured(run))
        copies = received.where(T.fate(run) == COPY) if received_totals.result()["fate"].any() else received
        acked = sent.where(F.col("status") == int(Status.ACKED))
        latency = table(T.histogram(copies, "latency", _parts(run)))
        publish = table(T.histogram(acked, "publish", _parts(run))) if run.publish_acks else None
        delay, sent_seconds, received_seconds = map(
            table, (T.delay_histograms(sent), T.sent_seconds(sent, run), T.received_seconds(copies, run))
        )
        many = run.topics > TOPIC_COLUMNS
        latency_topics = table(T.topic_histogram(copies, "latency")) if many else None
        publish_topics = table(T.topic_histogram(acked, "publish")) if many and run.publish_acks else None
        joined = _deliveries(sent, copies, run, latency.result(), received_totals.result())
        deliveries = _collect(T.delivery_totals(joined))
        edges = table(T.lost_edges(joined, run, LOST_RANGES)) if deliveries["lost"].any() else None
        duplicates = table(T.bucket_duplicates(copies)) if (deliveries["copies"] > deliveries["received"]).any() else None
        return Tables(
            sent=sent_totals.result(), received=received_totals.result(), deliveries=deliveries, sent_seconds=sent_seconds.result(),
            received_seconds=received_seconds.result(), delay=delay.result(), latency=latency.result(),
            latency_topics=_result(latency_topics), publish=_result(publish), publish_topics=_result(publish_topics), edges=_result(edges),
            duplicates=_result(duplicates),
        )  # fmt: skip


def _parts(run: Run) -> Mapping[str, str]:
    """The counting columns of a histogram."""
    topics = range(run.topics) if run.topics <= TOPIC_COLUMNS else ()
    return {f"topic_{i}": f"topic = {i}" for i in topics} | {f"bucket_{i}": f"bucket = {i}" for i in range(len(run.buckets))}


def _deliveries(sent: DataFrame, copies: DataFrame, run: Run, histogram: Table, totals: Table) -> DataFrame:
    whole = latency_histogram(histogram, {name: column[totals["fate"] == COPY] for name, column in totals.items()})
    begin = run.start + (whole.percentile(50) if whole else 0)
    return T.deliveries(T.sent_words(sent), T.copy_words(copies, begin, begin + run.duration), run.subscriptions)


def _collect(frame: DataFrame) -> Table:
    table = frame.toArrow()
    return {name: table[name].cast(pa.int64()).fill_null(-1).to_numpy() for name in table.column_names}


def _cause(error: Exception) -> str:
    """The line that begins with Spark's own name for an error, ``[LIKE_THIS]``, out of a Java stack trace; else the first."""
    lines = str(error).strip().splitlines()
    found = _CONDITION.search(str(error))
    return found[0] if found else (lines or [type(error).__name__])[0]


def _result(future: Future[Table] | None) -> Table | None:
    return None if future is None else future.result()
