"""Samples for users' own questions."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders.run_file import made_run_file
from pyspark import cloudpickle
from pyspark.sql import functions as F
from runs import empty, generate, make_run, make_stages, write_run

from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.pipeline.aggregate import aggregate
from pytest_loadtest.pipeline.run_file import RunFile, RunStreams
from pytest_loadtest.pipeline.samples import SampledRun, SampleFiles, Samples, kinds_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_each_kind_is_read_lazily_with_the_documented_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark and pyarrow read the same rows, even if the path looks like a pattern, and none if nothing was received."""
    run = make_run(messages=50)
    sent, _ = generate(run, 3)
    folder = write_run(tmp_path / "a[b]{c}*é ?" / "run", run, sent, empty("received"))
    files = SampleFiles(folder, ("sent", "received"))
    samples = Samples(spark, files)
    for kind in files.kinds:
        assert (
            getattr(samples, kind).columns
            == getattr(files, kind).schema.names
            == [column.name for column in KINDS[kind]]
        )
    (total,) = samples.sent.agg(
        F.count("*").alias("n"), F.sum("seq").alias("sum"), F.max("acked").alias("last")
    ).collect()
    assert total.asDict() == {
        "n": len(sent["seq"]),
        "sum": sent["seq"].sum(),
        "last": sent["acked"].max(),
    }
    table = pickle.loads(pickle.dumps(files)).sent.to_table()
    assert (table.num_rows, sum(table["seq"].to_pylist())) == (total.n, total.sum)
    assert (samples.received.count(), files.received.count_rows()) == (0, 0)


def test_broadcast_rows_are_received_rows_too(spark: SparkSession, tmp_path: Path) -> None:
    """A hook gets each copy as a row, as from a run of few subscriptions; pyarrow gets the broadcast rows."""
    run = make_run(subscriptions=100, messages=20, broadcasts=True)
    sent, received = generate(run, 3)
    received["consumer"] = received["topic"] * 100 + received["subscription"]
    folder = write_run(tmp_path / "run", run, sent, received)
    files = SampleFiles(folder, ("sent", "broadcast"), 100)
    found = Samples(spark, files).received
    columns = [column.name for column in KINDS["received"]]
    assert found.columns == columns
    assert [field.dataType.simpleString() for field in found.schema] == [
        *["int"] * 4,
        "smallint",
        "int",
        "tinyint",
        *["bigint"] * 3,
        "int",
    ]
    rows = sorted(zip(*(received[name].tolist() for name in columns), strict=True))
    assert sorted(map(tuple, found.collect())) == rows
    assert (
        sum(map(len, files.broadcast.to_table()["after"].to_pylist())) == len(rows) == found.count()
    )
    with pytest.raises(AttributeError, match="there are: sent, broadcast"):
        _ = files.received


@pytest.mark.parametrize(("has", "there"), [((), "none at all"), (("sent",), "sent")])
def test_a_kind_that_the_run_has_not_is_an_error_that_names_what_there_is(
    tmp_path: Path, has: tuple[str, ...], there: str
) -> None:
    """It is not an empty result."""
    files = SampleFiles(tmp_path, has)
    for samples in (files, Samples(None, files)):  # type: ignore[arg-type]
        with pytest.raises(
            AttributeError, match=rf"{tmp_path} has no samples 'received'; there are: {there}$"
        ):
            _ = samples.received
        assert not hasattr(samples, "broadcast")


@pytest.mark.parametrize(
    ("streams", "subscriptions", "kinds"),
    [(4, 1, ("sent", "received")), (4, 0, ("sent",)), (0, 1, ()), (4, 64, ("sent", "broadcast"))],
)
def test_the_kinds_of_a_run(streams: int, subscriptions: int, kinds: tuple[str, ...]) -> None:
    """Nobody subscribes, or nobody of ours sends: other people's messages have no samples."""
    run = made_run_file(
        streams=RunStreams(count=streams, file=""),
        subscriptions=subscriptions,
        broadcasts=subscriptions >= 64,
    )
    assert kinds_of(run) == kinds
    assert kinds_of(replace(run, connects_only=True)) == ()


def test_a_hook_gets_the_run_in_times_of_its_samples(tmp_path: Path) -> None:
    """The times are those of ``run.json``."""
    run = make_run(messages=20)
    folder = write_run(tmp_path / "run", run, *generate(run, 1), stages=make_stages(run, 1))
    told = SampledRun.of(RunFile.read(folder), folder)
    assert (told.test, told.profile, told.workload, told.start, told.buckets) == (
        "t.py::test",
        "p",
        "",
        run.start,
        run.buckets,
    )
    assert told.stages["down"] == (run.start + run.duration // 4, run.start + run.duration // 2)


def test_nothing_stays_registered_for_pickling(spark: SparkSession, tmp_path: Path) -> None:
    """The registry is the whole process's: the user's own Spark code is pickled as before."""
    run = make_run(messages=5)
    aggregate(spark, write_run(tmp_path / "run", run, *generate(run, 1)))
    assert "pytest_loadtest" not in cloudpickle.list_registry_pickle_by_value()


def test_a_result_crosses_processes_without_imports() -> None:
    """The lead unpickles it before its body runs: what reads samples is imported by whoever reads some."""
    code = (
        "import pickle, sys\nfrom pathlib import Path\nfrom pytest_loadtest.pipeline.samples import SampleFiles\n"
        "print(pickle.loads(pickle.dumps(SampleFiles(Path('run'), ('sent',)))).kinds, 'pyarrow.dataset' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "('sent',) False\n"
