"""A run folder that disagrees with itself is no data, and says which worker or file is to blame."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from runs import generate, make_recorded, make_run, write_run

from pytest_loadtest.errors import NoData
from pytest_loadtest.pipeline import read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole run of two workers, several files each."""
    run = make_run()
    return write_run(tmp_path / "run", run, *generate(run, 1))


def edit(file: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def assert_no_data(folder: Path, *words: str) -> None:
    with pytest.raises(NoData) as caught:
        read.load(folder)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_whole_run_is_read(folder: Path) -> None:
    """Plan, evidence and who sent what."""
    whole, run = read.load(folder), make_run()
    assert whole.recorded == make_recorded(2)
    assert np.array_equal(whole.run.end, run.end) and whole.run.buckets == run.buckets
    assert whole.senders == {0: ("gw0",), 1: ("gw1",), 2: ("gw0",), 3: ("gw1",)}


def test_a_file_being_written_is_ignored(folder: Path) -> None:
    """A killed worker leaves one; whether its samples are complete is the manifest's to say."""
    (folder / "sent" / ".gw0-000009.parquet.tmp").write_bytes(b"half")
    read.load(folder)


def test_no_plan(folder: Path) -> None:
    """A folder without run.json is no run."""
    (folder / "run.json").unlink()
    assert_no_data(folder, "run.json", "missing")


@pytest.mark.parametrize("name", ["run.json", "gw1.manifest.json"])
def test_half_a_document(folder: Path, name: str) -> None:
    """Cut off in the middle."""
    text = (folder / name).read_text()
    (folder / name).write_text(text[: len(text) // 2])
    assert_no_data(folder, name, "not whole")


def test_a_worker_without_manifest(folder: Path) -> None:
    """It was killed."""
    (folder / "gw1.manifest.json").unlink()
    assert_no_data(folder, "gw1.manifest.json", "worker gw1 died")


def test_a_worker_that_did_not_end_cleanly(folder: Path) -> None:
    """It says so itself."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.update(clean=False))
    assert_no_data(folder, "gw0", "cleanly")


def test_a_worker_that_the_run_does_not_know(folder: Path) -> None:
    """Its samples would be counted or left out wrongly."""
    edit(folder / "run.json", lambda run: run.update(workers=["gw0"]))
    assert_no_data(folder, "gw1.manifest.json", "not one of the run's")


def test_a_manifest_of_another_run(folder: Path) -> None:
    """The nonce tells."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.update(nonce=5))
    assert_no_data(folder, "gw0.manifest.json", "of run 5")


@pytest.mark.parametrize("name", ["run.json", "gw0.manifest.json"])
def test_an_unknown_version(folder: Path, name: str) -> None:
    """Written by a later release."""
    edit(folder / name, lambda document: document.update(version=2))
    assert_no_data(folder, name, "version 2")


@pytest.mark.parametrize("key", ["nonce", "evidence", "foreign", "received", "clean"])
def test_a_manifest_that_lacks_something(folder: Path, key: str) -> None:
    """The message says what."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.pop(key))
    assert_no_data(folder, "gw0.manifest.json", key)


@pytest.mark.parametrize("key", ["streams", "start", "buckets", "workers"])
def test_a_plan_that_lacks_something(folder: Path, key: str) -> None:
    """The message says what."""
    edit(folder / "run.json", lambda run: run.pop(key))
    assert_no_data(folder, "run.json", key)


def test_a_plan_whose_streams_do_not_match(folder: Path) -> None:
    """Every stream has a topic and a range."""
    edit(folder / "run.json", lambda run: run["streams"]["first"].pop())
    assert_no_data(folder, "run.json", "count")


def edit_stage(folder: Path, **changes: object) -> None:
    edit(folder / "run.json", lambda run: run["stages"].append({**run["stages"][0], "name": "later", **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "up"}, "stage 'up' is there twice"),
        ({"first": [0]}, "stage 'later': first and end must have one entry per stream, 4"),
        ({"end": [100, 102, 100, 101]}, "stage 'later' has messages that are not the run's"),
    ],
)
def test_stages_that_are_not_the_runs(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Each has a name of its own, and some of the run's messages."""
    run = make_run()
    folder = write_run(tmp_path / "run", run, *generate(run, 1), stages={"up": run})
    edit_stage(folder, **changes)
    assert_no_data(folder, "run.json", words)


def test_files_are_shared_out_evenly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file goes to one task, and no task has much more than another; few rows are one task."""
    whole = read.load(folder)
    assert len(read.tasks(whole)) == 1
    monkeypatch.setattr(read, "TASK_ROWS", 200)
    tasks = read.tasks(whole)
    assert sorted(path for task in tasks for path in task) == sorted(str(folder.resolve() / file) for file in whole.files)
    loads = [sum(whole.files[str(Path(path).relative_to(folder.resolve()))] for path in task) for task in tasks]
    assert max(loads) - min(loads) <= 150 and len(tasks) == -(-sum(loads) // 200)


@pytest.mark.parametrize("kind", ["sent", "received"])
def test_a_truncated_file(folder: Path, kind: str) -> None:
    """A Parquet file ends in its table of contents."""
    file = folder / kind / "gw1-000001.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    assert_no_data(folder, str(file), "gw1")


def test_a_missing_file(folder: Path) -> None:
    """The manifest names it."""
    (folder / "received" / "gw0-000001.parquet").unlink()
    assert_no_data(folder, "received/gw0-000001.parquet", "gw0")


def test_a_file_that_no_manifest_names(folder: Path) -> None:
    """Left over from something else."""
    file = folder / "sent" / "gw0-000001.parquet"
    (folder / "sent" / "gw7-000001.parquet").write_bytes(file.read_bytes())
    assert_no_data(folder, "sent/gw7-000001.parquet", "no worker's manifest")


def test_a_file_with_fewer_rows_than_its_manifest_says(folder: Path) -> None:
    """Both numbers are told."""
    file = folder / "received" / "gw0-000001.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    assert_no_data(folder, "received/gw0-000001.parquet", "149 rows", "says 150")


def test_a_file_with_other_columns(folder: Path) -> None:
    """By name, type and order."""
    file = folder / "received" / "gw0-000001.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["flags"]), file)
    assert_no_data(folder, "received/gw0-000001.parquet", "columns")


def test_a_manifest_that_disagrees_with_itself(folder: Path) -> None:
    """Sum of its files, sum of its streams."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest["received"].update(rows=1))
    assert_no_data(folder, "gw0.manifest.json", "received has 1 rows")
    edit(folder / "gw1.manifest.json", lambda manifest: manifest["sent"]["streams"].pop("3"))
    assert_no_data(folder, "gw1.manifest.json", "streams")


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        ({}, r"stream 0 \(gw0\) has 0 sent rows"),
        ({0: (100, 100), 1: (102, 101)}, r"stream 1 \(gw1\) has 102 sent rows of 101 messages, the plan has 101"),
        ({0: (100, 99)}, r"stream 0 .* of 99 messages"),
    ],
)
def test_sent_rows_that_are_not_the_plan(folder: Path, offered: dict[int, tuple[int, int]], words: str) -> None:
    """Every planned message has exactly one row."""
    with pytest.raises(NoData, match=words):
        read.load(folder).check_offered(make_run(), offered)


def test_a_stream_that_nobody_sent(folder: Path) -> None:
    """No worker can be named, and that is said."""
    edit(folder / "run.json", lambda run: run["streams"].update(count=5, topics=[0] * 5, first=[0] * 5, end=[0] * 4 + [9]))
    whole = read.load(folder)
    with pytest.raises(NoData, match=re.escape("stream 4 (no worker's manifest names it) has 0 sent rows")):
        whole.check_offered(whole.run, {})
