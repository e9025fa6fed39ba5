"""Samples that are not in the run's folder: what is compared with the manifests, and how Spark's workers read them."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from runs import NONCE, differences, generate, make_run, make_stages, write_run
from s3_server import Bucket, s3_bucket

from pytest_loadtest.engine import sample_files
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.measured_run import measure_run
from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline import transforms as T
from pytest_loadtest.pipeline.aggregate import aggregate_with_stages
from pytest_loadtest.pipeline.executor import COUNTED_SCHEMA
from pytest_loadtest.pipeline.run_file import RunFile
from pytest_loadtest.pipeline.samples import SampleFiles, Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

URI = "s3://loadtest/p/run"


@pytest.mark.parametrize(
    ("nonce", "why"),
    [
        (NONCE, None),
        (NONCE + 1, r"received/gw0-000001.parquet \(worker gw0\) belongs to another run"),
    ],
)
def test_a_sample_file_of_another_run_is_no_data(
    tmp_path: Path, nonce: int, why: str | None
) -> None:
    """It has the same streams, sequences and number of rows; its times would be taken for latencies."""
    run = make_run()
    folder = write_run(tmp_path / "run", run, *generate(run, 1))
    file = folder / "received/gw0-000001.parquet"
    pq.write_table(
        pq.read_table(file).replace_schema_metadata({sample_files.NONCE: str(nonce)}), file
    )
    with pytest.raises(NoData, match=why) if why else nullcontext():
        read.load_run(folder)


def move(folder: Path, location: str, write: Callable[[str, bytes], object]) -> Path:
    """Move manifests and sample files out of a run's folder, as workers with ``--load-samples`` do."""
    for path in sorted(folder.glob("*/*.parquet")):
        write(path.relative_to(folder).as_posix(), path.read_bytes())
    for path in folder.glob("*.manifest.json"):
        manifest = json.loads(path.read_text())
        for kind in KINDS:
            for file in manifest[kind]["files"]:
                content = (folder / kind / file["name"]).read_bytes()
                file.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        write(path.name, json.dumps(manifest).encode())
        path.unlink()
    for kind in KINDS:
        shutil.rmtree(folder / kind, ignore_errors=True)
    replace(RunFile.read(folder), samples=location).write(folder)
    return folder


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A run whose samples are in the folder ``shared``."""
    run = make_run()

    def write(name: str, content: bytes) -> None:
        path = tmp_path / "shared" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return move(
        write_run(tmp_path / "run", run, *generate(run, 1)), str(tmp_path / "shared"), write
    )


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """A bucket for all tests of this file."""
    with s3_bucket() as made:
        yield made


@pytest.fixture
def reachable(bucket: Bucket, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The bucket with the environment to reach it, here and in Spark's Python workers, which were given theirs earlier."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return bucket


def assert_no_data(folder: Path, *words: str) -> None:
    with pytest.raises(NoData) as caught:
        read.load_run(folder)
    assert [word for word in words if word not in str(caught.value)] == []


def test_files_are_found_where_run_json_says(shared: Path, tmp_path: Path) -> None:
    found = read.load_run(shared)
    assert sum(found.files.values()) > 0
    assert {
        file.path.rpartition("/sent/")[0]
        for task in read.tasks(found)
        for file in task
        if "/sent/" in file.path
    } == {str(tmp_path / "shared")}


def test_a_size_that_differs_from_the_manifest_is_no_data(shared: Path, tmp_path: Path) -> None:
    """It is compared before any file is opened, so a cut file is named with both sizes."""
    file = tmp_path / "shared/sent/gw0-000001.parquet"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-7])
    assert_no_data(shared, f"{file} (worker gw0) has {size - 7} bytes, its manifest says {size}")


def test_a_file_of_the_same_size_with_other_rows_is_no_data(shared: Path, tmp_path: Path) -> None:
    """The footer decides; without a size in the manifest it is the only check."""
    for path in (tmp_path / "shared").glob("*.manifest.json"):
        manifest = json.loads(path.read_text())
        for kind in KINDS:
            for file in manifest[kind]["files"]:
                del file["size"], file["sha256"]
        path.write_text(json.dumps(manifest))
    read.load_run(shared)
    one, other = (tmp_path / f"shared/sent/gw0-00000{number}.parquet" for number in (1, 2))
    one.write_bytes(b"PAR1" + bytes(100))
    assert_no_data(shared, f"{one} (worker gw0) is cut off or damaged")
    one.write_bytes((tmp_path / "shared/received/gw0-000001.parquet").read_bytes())
    assert_no_data(shared, f"{one} (worker gw0) does not have the columns of sent samples")
    assert other.exists()


def test_samples_that_are_gone_are_no_data(shared: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "shared")
    assert_no_data(shared, str(tmp_path / "shared/gw0.manifest.json"), "is missing")


def test_a_store_that_cannot_be_reached_is_no_data(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    replace(RunFile.read(shared), samples=URI).write(shared)
    assert_no_data(shared, f"the samples in {URI} cannot be read: ", "Could not connect")


@pytest.mark.slow
def test_workers_of_spark_read_objects(
    spark: SparkSession, reachable: Bucket, tmp_path: Path
) -> None:
    """Counts, latencies and stages are those of the same samples in a folder; hooks and test bodies read the same rows."""
    run = make_run(messages=300)
    rows, stages = generate(run, 3), make_stages(run, 1)
    here = write_run(tmp_path / "here", run, *rows, stages=stages)
    files = SampleFiles(here, ("sent", "received"))
    there = move(
        write_run(tmp_path / "there", run, *rows, stages=stages),
        URI,
        lambda name, content: reachable.write(f"p/run/{name}", content),
    )
    expected, found = aggregate_with_stages(spark, here), aggregate_with_stages(spark, there)
    assert differences(found[0], expected[0]) == []
    assert [name for name, _ in found[1]] == [name for name, _ in expected[1]]

    def hook(_: SparkSession, __: object, samples: Samples) -> dict[str, float]:
        (row,) = samples.received.agg(F.count("*").alias("n"), F.sum("seq").alias("seq")).collect()
        return {"n": row["n"], "seq": row["seq"]}

    custom: Any = hook
    measured = measure_run(spark, there, custom)
    table = files.received.to_table()
    assert measured.failure == ""
    assert measured.measurements.custom == {
        "n": table.num_rows,
        "seq": sum(table["seq"].to_pylist()),
    }
    assert measured.files.received.to_table().num_rows == table.num_rows
    assert Samples(spark, measured.files).sent.columns == [column.name for column in KINDS["sent"]]


def test_a_cluster_needs_no_package_to_read_objects(
    spark: SparkSession, reachable: Bucket, tmp_path: Path
) -> None:
    """The code that reads them travels with the query."""
    run = make_run(messages=20)
    location = f"{URI}-2"
    folder = move(
        write_run(tmp_path / "run", run, *generate(run, 0)),
        location,
        lambda name, content: reachable.write(f"p/run-2/{name}", content),
    )

    def hidden(batches: object) -> Iterator[Any]:
        import sys

        yield from batches  # type: ignore[attr-defined]
        assert not [name for name in sys.modules if name.startswith("pytest_loadtest")], (
            "the package was imported"
        )

    with T.for_workers():
        found = T.file_tables(spark.range(1), read.tasks(read.load_run(folder)), [run]).mapInArrow(
            hidden, COUNTED_SCHEMA
        )  # type: ignore[arg-type]
        assert found.count() > 0


def test_an_object_that_spark_cannot_read_is_named(
    spark: SparkSession, reachable: Bucket, tmp_path: Path
) -> None:
    """Its footer is whole, so only the workers notice."""
    run = make_run(messages=300)
    folder = move(
        write_run(tmp_path / "run", run, *generate(run, 1)),
        URI,
        lambda name, content: reachable.write(f"p/run/{name}", content),
    )
    content = bytearray(reachable.read("p/run/sent/gw0-000001.parquet"))
    content[4:200] = bytes(196)
    reachable.write("p/run/sent/gw0-000001.parquet", bytes(content))
    with pytest.raises(NoData, match=rf"{URI}/sent/gw0-000001.parquet cannot be read: "):
        aggregate_with_stages(spark, folder)
