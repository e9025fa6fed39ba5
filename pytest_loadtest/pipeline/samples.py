"""Raw samples for users: as Spark DataFrames in a hook, as pyarrow datasets in a test's body.

The rule: both are lazy, so accessing a kind reads only the list of its files. The test's own thread
uses :class:`SampleFiles`; the hook gets :class:`Samples` in the thread in which the controller
aggregates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.message.samples import KINDS, Flag
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

    from pytest_loadtest.engine.sample_store import SampleStore
    from pytest_loadtest.pipeline.run_file import RunFile

# Spark's names of the columns' types.
_SPARK = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}


@record
class SampledRun:
    """The description of a run for a hook.

    :param test: its node id.
    :param profile: its name.
    :param workload: its name if several ran together; otherwise empty.
    :param folder: of the run's results, and of its samples unless
        ``--load-samples`` stored them elsewhere.
    :param start: of the measured phase on the clock of the samples, ns.
    :param started: the same instant as wall clock, seconds since the epoch.
    :param duration: of the measured phase, ns.
    :param rate: offered, msg/s.
    :param topics: their number.
    :param subscriptions: of each topic.
    :param buckets: names of the size buckets, in the order of the samples' ``bucket``.
    :param scale: factor of ``--load-scale``; None if the profile ran as written.
    :param stages: start and end of each stage by its name, ns on the samples' clock.
    """

    test: str
    profile: str
    workload: str
    folder: Path
    start: int
    started: float
    duration: int
    rate: float
    topics: int
    subscriptions: int
    buckets: tuple[str, ...]
    scale: float | None
    stages: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, run: RunFile, folder: Path) -> SampledRun:
        """Return the run for a hook."""
        assert run.started is not None, "the load of a run with samples has begun"
        stages = {stage.name: (stage.start, stage.start + stage.duration) for stage in run.stages}
        return cls(
            test=run.test,
            profile=run.profile["name"],
            workload=run.workload or "",
            folder=folder,
            start=run.start,
            started=run.started,
            duration=run.duration,
            rate=run.rate,
            topics=run.topics,
            subscriptions=run.subscriptions,
            buckets=run.buckets,
            scale=run.scale,
            stages=stages,
        )


def kinds_of(run: RunFile) -> tuple[str, ...]:
    """Return the kinds of samples that a run has; none if it sends nothing."""
    sends = run.streams.count > 0 and not run.connects_only
    copies = "broadcast" if run.broadcasts else "received"
    has = {"sent": sends, copies: sends and run.subscriptions > 0, "tap": run.tapped}
    return tuple(kind for kind in KINDS if has.get(kind))


class SampleFiles:
    """The samples of a run, ``load.samples`` in a test's body.

    Each kind is a ``pyarrow.dataset.Dataset``. A kind that the run does not have is an
    AttributeError that names the kinds it has.

    :param folder: of the run.
    :param kinds: of its samples.
    :param subscriptions: of each topic.
    :param location: the place of the samples if it is not the folder: a path, or a URI.
    """

    sent: Dataset
    """One row for each message due."""
    received: Dataset
    """One row for each copy that a consumer received."""
    broadcast: Dataset
    """One row for 64 subscriptions, instead of ``received``.

    Only if each message goes to 64 subscriptions or more of one consumer each."""
    tap: Dataset
    """One row for each message that the tap on the input of a route received."""

    def __init__(
        self,
        folder: Path,
        kinds: tuple[str, ...],
        subscriptions: int = 1,
        location: str | None = None,
    ) -> None:
        self.folder = folder
        self.kinds = kinds
        self.subscriptions = subscriptions
        self.location = location

    def __getattr__(self, kind: str) -> Dataset:
        # First: pickle looks up other names, which must not import pyarrow.
        folder = folder_of(self, kind)
        from pyarrow import dataset

        from pytest_loadtest.engine.sample_files import arrow_schema

        if self.location is not None:
            store, names = _stored(self.location, kind)
            paths = [f"{store.root}/{name}" for name in names]
            return dataset.dataset(
                paths, schema=arrow_schema(kind), format="parquet", filesystem=store.files
            )
        files = sorted(map(str, folder.glob("*.parquet")))
        return dataset.dataset(files, schema=arrow_schema(kind), format="parquet")


class Samples:
    """The samples of a run, for the hook ``pytest_loadtest_aggregate``.

    Each kind is a Spark DataFrame. A kind that the run does not have is an AttributeError that
    names the kinds it has.

    :param files: the same samples for pyarrow.
    """

    sent: DataFrame
    """One row for each message due."""
    received: DataFrame
    """One row for each copy that a consumer received.

    It is computed from broadcast rows if the run has those."""
    broadcast: DataFrame
    """One row for 64 subscriptions.

    Only if each message goes to 64 subscriptions or more of one consumer each."""
    tap: DataFrame
    """One row for each message that the tap on the input of a route received."""

    def __init__(self, spark: SparkSession, files: SampleFiles) -> None:
        self._spark = spark
        self.folder = files.folder
        self.kinds = files.kinds
        self._subscriptions = files.subscriptions
        self._location = files.location

    def __getattr__(self, kind: str) -> DataFrame:
        """Return a kind as a DataFrame.

        Its schema is explicit, so that Spark opens no file before an action.
        """
        if kind == "received" and "broadcast" in self.kinds:
            return _copies(self.broadcast, self._subscriptions)
        path = folder_of(self, kind).resolve()
        columns = []
        for column in KINDS[kind]:
            type_ = f"array<{_SPARK[column.item]}>" if column.item else _SPARK[column.type]
            columns.append(f"{column.name} {type_}")
        schema = ", ".join(columns)
        if self._location is not None:
            return _stored_frame(self._spark, self._location, kind, schema)
        # Spark takes a path for a glob pattern.
        plain = re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))
        return self._spark.read.schema(schema).parquet(f"file://{plain}")


def _stored(location: str, kind: str) -> tuple[SampleStore, list[str]]:
    """Return the place of samples that are not in the run's folder.

    The second value are the files of a kind there, by name.
    """
    from pytest_loadtest.engine.sample_store import SampleStore

    store = SampleStore(location)
    return store, sorted(
        name for name in store.sizes() if name.startswith(f"{kind}/") and name.endswith(".parquet")
    )


def _stored_frame(spark: SparkSession, location: str, kind: str, schema: str) -> DataFrame:
    """Return a kind of samples in a store as a DataFrame.

    Spark's own readers would need a connector for each kind of store.
    """
    from pytest_loadtest.pipeline.executor import RowsOfFiles

    _, names = _stored(location, kind)
    # Each file is a task.
    tasks = spark.range(0, len(names), 1, max(len(names), 1))
    return tasks.mapInArrow(RowsOfFiles(location, names), schema)


def _copies(rows: DataFrame, subscriptions: int) -> DataFrame:
    """Return broadcast rows as received rows."""
    flags = [
        f"(shiftright({name}, bit) & 1) * {int(flag)}"
        for name, flag in (
            ("redelivered", Flag.REDELIVERED),
            ("late", Flag.LATE),
            ("corrupt", Flag.CORRUPT),
        )
    ]
    computed = {
        "consumer": f"topic * {subscriptions} + base + bit",
        "subscription": "base + bit",
        "flags": " + ".join(flags),
        "received": "first + after[place]",
        "lag": "coalesce(lag[place], -1)",
    }
    columns = []
    for column in KINDS["received"]:
        value = computed.get(column.name, column.name)
        columns.append(f"cast({value} as {_SPARK[column.type]}) as {column.name}")
    copies = rows.selectExpr(
        "*", "posexplode(filter(sequence(0, 63), i -> shiftright(got, i) & 1 = 1)) as (place, bit)"
    )
    return copies.selectExpr(*columns)


def folder_of(samples: SampleFiles | Samples, kind: str) -> Path:
    """Return the folder of a kind's files.

    :raises AttributeError: the run does not have the kind; names the kinds it has.
    """
    if kind.startswith("_"):  # copy and pickle look up such names in any object
        raise AttributeError(kind)
    if kind not in samples.kinds:
        there = ", ".join(samples.kinds) or "none at all"
        raise AttributeError(
            f"the run in {samples.folder} has no samples {kind!r}; there are: {there}"
        )
    return samples.folder / kind
