"""A run folder that disagrees with itself is no data, and says which worker or file is to blame."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from runs import generate, make_pauses, make_recorded, make_run, write_run

from pytest_loadtest.engine.sample_files import arrow_schema
from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
from pytest_loadtest.metrics.histogram import document, histogram
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline.run_file import RunClock, RunFile, write_columns


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
        read.load_run(folder)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_whole_run_is_read(folder: Path) -> None:
    """Plan, evidence and who sent what."""
    whole, run = read.load_run(folder), make_run()
    assert whole.recorded == make_recorded(2)
    assert np.array_equal(whole.run.end, run.end) and whole.run.buckets == run.buckets
    assert np.array_equal(whole.run.first, run.first) and np.array_equal(
        whole.run.stream_topics, run.stream_topics
    )
    assert whole.senders == {"gw0": range(0, 4, 2), "gw1": range(1, 4, 2)}


def test_the_first_foreign_and_corrupt_messages_are_those_of_all_workers(folder: Path) -> None:
    """Workers note instants of the clock; a manifest of an earlier release has none of them."""
    start = make_run().start

    def stray(kind: str, at: int) -> dict[str, Any]:
        return {"kind": kind, "at": start + at, "topic": "t", "size": 9, "beginning": "hello"}

    firsts = [stray("foreign", at) for at in (-3, 8, 9)]
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.update(strays=firsts))
    others = [stray("foreign", 7), stray("corrupt", 1)]
    edit(folder / "gw1.manifest.json", lambda manifest: manifest.update(strays=others))
    found = read.load_run(folder).recorded.strays
    assert [(stray.kind, stray.at) for stray in found] == [
        ("foreign", -3), ("foreign", 7), ("foreign", 8), ("corrupt", 1)
    ]  # fmt: skip
    assert found[0].beginning == "hello"
    firsts[0].pop("topic")
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.update(strays=firsts))
    assert_no_data(folder, "gw0.manifest.json", "topic")


def test_a_file_being_written_is_ignored(folder: Path) -> None:
    """A killed worker leaves one; whether its samples are complete is the manifest's to say."""
    before = read.tasks(read.load_run(folder))
    (folder / "sent" / ".gw0-000009.parquet.tmp").write_bytes(b"half")
    assert read.tasks(read.load_run(folder)) == before


def test_a_folder_without_run_json_is_no_run(folder: Path) -> None:
    """A folder without run.json is no run."""
    (folder / "run.json").unlink()
    assert_no_data(folder, "run.json", "missing")


def test_how_long_opening_took_is_of_all_workers(tmp_path: Path) -> None:
    """Each counted its own connections; who tells nothing leaves nothing."""
    run = make_run(messages=5)
    folder = write_run(tmp_path / "run", run, *generate(run, 0))
    for i, times in enumerate(([5, 7], [900])):
        path = folder / f"gw{i}.manifest.json"
        found = histogram(np.array(times))
        assert found is not None
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"opening": {"connect": document(found)}})
        )
    latencies = read.load_run(folder).recorded.latencies
    assert [*latencies] == ["connect"]
    assert (latencies["connect"].n, latencies["connect"].minimum, latencies["connect"].maximum) == (
        3,
        5,
        900,
    )


@pytest.mark.parametrize("name", ["run.json", "gw1.manifest.json"])
def test_a_document_that_is_cut_off_is_no_data(folder: Path, name: str) -> None:
    """Cut off in the middle."""
    text = (folder / name).read_text()
    (folder / name).write_text(text[: len(text) // 2])
    assert_no_data(folder, name, "not whole")


def test_a_worker_without_manifest_is_no_data(folder: Path) -> None:
    """It was killed."""
    (folder / "gw1.manifest.json").unlink()
    assert_no_data(folder, "gw1.manifest.json", "worker gw1 died")


def test_a_worker_that_did_not_end_cleanly_is_no_data(folder: Path) -> None:
    """Its manifest has the flag."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.update(clean=False))
    assert_no_data(folder, "gw0", "cleanly")


def test_a_manifest_of_an_unknown_worker_is_no_data(folder: Path) -> None:
    """Its samples would be counted or left out wrongly."""
    edit(folder / "run.json", lambda run: run.update(workers=["gw0"]))
    assert_no_data(folder, "gw1.manifest.json", "not one of the run's")


def test_a_manifest_of_another_run_is_no_data(folder: Path) -> None:
    """The nonce differs."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.update(nonce=5))
    assert_no_data(folder, "gw0.manifest.json", "of run 5")


@pytest.mark.parametrize("name", ["run.json", "gw0.manifest.json"])
def test_an_unknown_version_is_no_data(folder: Path, name: str) -> None:
    """Written by a later release."""
    edit(folder / name, lambda document: document.update(version=9))
    assert_no_data(folder, name, "version 9")


@pytest.mark.parametrize("key", ["nonce", "evidence", "foreign", "received", "clean"])
def test_a_manifest_that_lacks_a_key_is_no_data(folder: Path, key: str) -> None:
    """The error names the key."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest.pop(key))
    assert_no_data(folder, "gw0.manifest.json", key)


@pytest.mark.parametrize("key", ["streams", "start", "buckets", "workers"])
def test_a_run_file_that_lacks_a_key_is_no_data(folder: Path, key: str) -> None:
    """The error names the key."""
    edit(folder / "run.json", lambda run: run.pop(key))
    assert_no_data(folder, "run.json", key)


def columns(folder: Path) -> dict[str, Any]:
    """Return the columns of ``streams.npz``."""
    with np.load(folder / "streams.npz") as archive:
        return dict(archive)


@pytest.mark.parametrize("name", ["first", "end"])
def test_columns_that_do_not_match_the_streams_are_no_data(folder: Path, name: str) -> None:
    """Every stream has a range."""
    found = columns(folder)
    write_columns(folder, [*(found | {name: found[name][1:]}).items()])
    assert_no_data(
        folder, "streams.npz", f"column '{name}' is int64 (3,)", "run.json has 4 streams"
    )
    write_columns(folder, [*(found | {name: found[name].astype(np.float64)}).items()])
    assert_no_data(folder, "streams.npz", f"column '{name}' is float64 (4,)")
    del found[name]
    write_columns(folder, [*found.items()])
    assert_no_data(folder, "streams.npz", f"no column '{name}'")


def test_a_run_without_columns_is_no_data(folder: Path) -> None:
    """They are written when the load has come to its end."""
    (folder / "streams.npz").unlink()
    assert_no_data(folder, "streams.npz", "is missing")


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_columns_that_are_cut_off_are_no_data(folder: Path, kept: float) -> None:
    """A full disk does that."""
    content = (folder / "streams.npz").read_bytes()
    (folder / "streams.npz").write_bytes(content[: int(len(content) * kept)])
    assert_no_data(folder, "streams.npz", "is not whole")


def test_damaged_columns_are_no_data(folder: Path) -> None:
    """Each has a checksum; and the file may be another kind of file altogether."""
    content = bytearray((folder / "streams.npz").read_bytes())
    content[60] ^= 0xFF
    (folder / "streams.npz").write_bytes(content)
    assert_no_data(folder, "streams.npz", "is not whole")
    np.save(folder / "streams.npy", np.zeros(4))
    (folder / "streams.npy").rename(folder / "streams.npz")
    assert_no_data(folder, "streams.npz", "is not whole")


def test_topics_that_streams_cannot_be_dealt_over(folder: Path) -> None:
    """A stream goes to the topic of its number modulo their number."""
    edit(folder / "run.json", lambda run: run.update(topics=0))
    assert_no_data(folder, "run.json", "topics must be at least 1, not 0")


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A run with two stages, each of all its messages."""
    run = make_run()
    return write_run(tmp_path / "run", run, *generate(run, 1), stages={"up": run, "later": run})


def test_stages_are_read(staged: Path) -> None:
    """Each has its name and its own columns."""
    found = columns(staged)
    write_columns(
        staged, [*(found | {"first_1": found["first"] + 50, "end_1": found["end"] - 10}).items()]
    )
    stages = read.load_run(staged).stages
    assert [*stages] == ["up", "later"]
    assert [(stage.first.tolist(), stage.end.tolist()) for stage in stages.values()] == [
        ([0] * 4, [100, 101, 100, 101]), ([50] * 4, [90, 91, 90, 91]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "file", "words"),
    [
        ({"first_1": [0]}, "streams.npz", "column 'first_1' is int64 (1,), run.json has 4 streams"),
        (
            {"end_1": [100, 102, 100, 101]},
            "run.json",
            "stage 'later' has messages that are not the run's",
        ),
        ({"end_1": None}, "streams.npz", "no column 'end_1'"),
    ],
)
def test_stages_that_are_not_the_runs(
    staged: Path, changes: dict[str, Any], file: str, words: str
) -> None:
    """Each has some of the run's messages, and says which."""
    found = columns(staged) | changes
    write_columns(
        staged, [(name, np.array(column)) for name, column in found.items() if column is not None]
    )
    assert_no_data(staged, file, words)


def test_two_stages_of_one_name_are_no_data(staged: Path) -> None:
    """They could not be distinguished."""
    edit(staged / "run.json", lambda run: run["stages"][1].update(name="up"))
    assert_no_data(staged, "run.json", "stage 'up' is there twice")


def test_files_are_shared_out_evenly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file goes to one task, and no task has a whole file more or less than its part; few rows are one task."""
    whole = read.load_run(folder)
    assert len(read.tasks(whole)) == 1
    monkeypatch.setattr(read, "TASK_ROWS", 200)
    tasks = read.tasks(whole)
    assert sorted(file.path for task in tasks for file in task) == sorted(
        str(folder.resolve() / file) for file in whole.files
    )
    loads = [
        sum(whole.files[str(Path(file.path).relative_to(folder.resolve()))] for file in task)
        for task in tasks
    ]
    assert max(abs(load - sum(loads) / len(loads)) for load in loads) <= 150 and len(tasks) == -(
        -sum(loads) // 200
    )


def test_pauses_are_those_of_all_workers_or_unknown(folder: Path) -> None:
    """Samples of older releases have none."""
    run = read.load_run(folder).run
    assert [pauses.begin.tolist() for pauses in run.pauses] == [
        make_pauses(i).begin.tolist() for i in range(2)
    ]
    assert run.stream_workers is not None
    assert run.stream_workers.tolist() == [0, 1, 0, 1]
    edit(folder / "gw1.manifest.json", lambda manifest: manifest["evidence"]["pauses"]["end"].pop())
    assert_no_data(folder, "gw1.manifest.json", "pauses have columns of different lengths")
    edit(folder / "gw1.manifest.json", lambda manifest: manifest["evidence"].pop("pauses"))
    assert read.load_run(folder).run.pauses == ()


def test_a_bound_on_throughput_is_found_wherever_it_is(folder: Path) -> None:
    bound = {"throughput": "99%"}
    parts: list[dict[str, Any]] = [{"drift": bound}, {"buckets": {"64": bound}}, {"whole": bound}]
    parts.append({"whole": {"buckets": {"64": bound}}})
    for slo in (bound, *parts):
        replace(RunFile.read(folder), profile={"slo": slo}).write(folder)
        assert read.load_run(folder).run.bounds_throughput
    replace(RunFile.read(folder), profile={"slo": {"loss": 0}}).write(folder)
    assert not read.load_run(folder).run.bounds_throughput


@pytest.mark.parametrize(
    "profile",
    [
        {"slo": {"deliveryGap": {"max": "1s"}}},
        {"slo": {"window": "1s", "whole": {"deliveryGap": {"max": "1s"}}}},
        {"stages": [{"name": "a"}, {"name": "b", "slo": {"deliveryGap": {"max": "1s"}}}]},
        {"slo": {"loss": 0}, "scaled": {"slo": {"deliveryGap": {"max": "1s"}}}},
    ],
)
def test_a_bound_on_gaps_is_found_wherever_it_is(folder: Path, profile: dict[str, Any]) -> None:
    """Gaps are then measured without our own delays too, in runs whose workers paused for milliseconds only."""
    assert not read.load_run(folder).run.bounds_gaps
    replace(RunFile.read(folder), profile=profile).write(folder)
    run = read.load_run(folder).run
    assert run.bounds_gaps
    assert run.explains_gaps == bool(run.pauses)


def test_hosts_of_streams_follow_from_manifests_and_clocks(folder: Path) -> None:
    """One worker lists its streams, as with paired consumers, and one that the run does not have; without clocks there is one host."""
    assert (read.load_run(folder).hosts, read.load_run(folder).run.stream_hosts) == ({}, None)
    edit(
        folder / "gw1.manifest.json",
        lambda manifest: manifest["sent"].update(streams={"numbers": [1, 3, 9]}),
    )
    line = ClockLine(at=0, offset=0)
    fit = ClockFit(line=line, error=1, round_trip=2, exchanges=1, holds=True)
    replace(
        RunFile.read(folder), clocks=(RunClock(worker="gw1", host="h1", used=line, fit=fit),)
    ).write(folder)
    whole = read.load_run(folder)
    assert whole.hosts == {"gw0": 0, "gw1": 1}
    assert whole.run.stream_hosts is not None
    assert whole.run.stream_hosts.tolist() == [0, 1, 0, 1]
    assert {file.host for task in read.tasks(whole) for file in task} == {0, 1}
    replace(RunFile.read(folder), within_hosts=True).write(folder)
    assert read.load_run(folder).corrections == {}


@pytest.mark.parametrize("kind", ["sent", "received"])
def test_a_truncated_file_is_no_data(folder: Path, kind: str) -> None:
    """A Parquet file ends in its table of contents."""
    file = folder / kind / "gw1-000001.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    assert_no_data(folder, str(file), "gw1")


def test_a_missing_file_is_no_data(folder: Path) -> None:
    """The manifest names it."""
    (folder / "received" / "gw0-000001.parquet").unlink()
    assert_no_data(folder, "received/gw0-000001.parquet", "gw0")


def test_a_file_that_no_manifest_names_is_no_data(folder: Path) -> None:
    """Left over from something else."""
    file = folder / "sent" / "gw0-000001.parquet"
    (folder / "sent" / "gw7-000001.parquet").write_bytes(file.read_bytes())
    assert_no_data(folder, "sent/gw7-000001.parquet", "no worker's manifest")


def test_a_file_with_fewer_rows_than_in_its_manifest_is_no_data(folder: Path) -> None:
    """The error has both numbers."""
    file = folder / "received" / "gw0-000001.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    assert_no_data(folder, "received/gw0-000001.parquet", "149 rows", "says 150")


def test_a_file_with_other_columns_is_no_data(folder: Path) -> None:
    """Name, type and order must be the expected ones."""
    file = folder / "received" / "gw0-000001.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["flags"]), file)
    assert_no_data(folder, "received/gw0-000001.parquet", "columns")


def test_a_manifest_that_disagrees_with_itself_is_no_data(folder: Path) -> None:
    """The sum of its files, and the number of streams, must fit."""
    edit(folder / "gw0.manifest.json", lambda manifest: manifest["received"].update(rows=1))
    assert_no_data(folder, "gw0.manifest.json", "received has 1 rows")
    edit(
        folder / "gw0.manifest.json",
        lambda manifest: manifest["received"].update(
            rows=sum(f["rows"] for f in manifest["received"]["files"])
        ),
    )
    edit(folder / "gw1.manifest.json", lambda manifest: manifest["sent"]["streams"].pop())
    assert_no_data(folder, "gw1.manifest.json", "streams of sent")


def offered_of(rows: dict[int, tuple[int, int]]) -> read.Offered:
    """Return sent rows and distinct sequences by stream."""
    return read.Offered(
        *np.array([(stream, *counts) for stream, counts in rows.items()], np.int64).reshape(-1, 3).T
    )


def test_sent_rows_that_are_the_plan(folder: Path) -> None:
    """The order of streams does not matter; one missing message of any stream does."""
    rows = {3: (101, 101), 0: (100, 100), 2: (100, 100), 1: (101, 101)}
    read.load_run(folder).check_offered(make_run(), offered_of(rows))
    for stream, (n, distinct) in rows.items():
        with pytest.raises(
            NoData, match=rf"stream {stream} .* of {distinct - 1} messages, the plan has {n}"
        ):
            read.load_run(folder).check_offered(
                make_run(), offered_of(rows | {stream: (n, distinct - 1)})
            )


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        ({}, r"stream 0 \(gw0\) has 0 sent rows of 0 messages, the plan has 100"),
        (
            {0: (100, 100), 1: (102, 101)},
            r"stream 1 \(gw1\) has 102 sent rows of 101 messages, the plan has 101",
        ),
        ({0: (100, 99)}, r"stream 0 .* of 99 messages"),
    ],
)
def test_sent_rows_that_are_not_the_plan(
    folder: Path, offered: dict[int, tuple[int, int]], words: str
) -> None:
    """Every planned message has exactly one row."""
    with pytest.raises(NoData, match=words):
        read.load_run(folder).check_offered(make_run(), offered_of(offered))


def test_a_stream_without_a_worker_is_named_in_the_error(folder: Path) -> None:
    """No worker can be named, and that is said."""
    edit(folder / "run.json", lambda run: run["streams"].update(count=5))
    write_columns(folder, [("first", np.zeros(5, np.int64)), ("end", np.array([0] * 4 + [9]))])
    whole = read.load_run(folder)
    with pytest.raises(
        NoData, match=re.escape("stream 4 (no worker's manifest names it) has 0 sent rows")
    ):
        whole.check_offered(whole.run, offered_of({}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_has_the_columns_of_the_table(kind: str) -> None:
    """Same names, same widths, same order."""
    columns = [(column.name, column.type) for column in KINDS[kind]]
    assert [(field.name, str(field.type)) for field in arrow_schema(kind)] == columns
