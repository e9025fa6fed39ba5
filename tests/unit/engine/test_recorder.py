"""The recorder: samples are on the disk completely, or the run has no data."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders.plans import loopback, made
from engine_rig import make_pool

from pytest_loadtest.engine import recorder as module
from pytest_loadtest.engine.blocks import Block
from pytest_loadtest.engine.recorder import CHUNK_NS, Recorder
from pytest_loadtest.engine.sample_files import arrow_schema
from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import SECOND

TOPOLOGY = Topology(topics=3, partitions=1, producers=2, subscriptions=2, consumers=2)
STREAMS = range(1, 6, 2)


def make_recorder(folder: Path) -> Recorder:
    return Recorder(folder, "gw0", make_pool(), TOPOLOGY, STREAMS)


def block(first: int, size: int) -> Block:
    rows = np.arange(first, first + size, dtype=np.int64)
    return Block(
        first,
        np.array([1, 3, 5], np.int32)[rows % 3],
        rows // 3,
        rows * 10,
        np.zeros(size, np.uint16),
        None,
    )


def arrivals(n: int) -> dict[str, np.ndarray]:
    return {
        "consumer": np.arange(n, dtype=np.int32), "stream": np.zeros(n, np.int32), "bucket": np.zeros(n, np.int16),
        "size": np.full(n, 64, np.int32), "flags": np.zeros(n, np.int8), "seq": np.arange(n), "intended": np.arange(n), "received": np.arange(n),
        "lag": np.full(n, -1, np.int32),
    }  # fmt: skip


def test_the_manifest_lists_the_files_and_rows_on_the_disk(tmp_path: Path) -> None:
    """With the worker's streams."""
    tmp_path /= "attempt/step"  # made where it is not there
    recorder = make_recorder(tmp_path)
    recorder.flush_if_due(0)
    recorder.sent(block(10, 5))
    recorder.received(arrivals(4))
    recorder.flush_if_due(CHUNK_NS)
    recorder.sent(block(15, 2))
    recorder.received(arrivals(3))
    recorder.close({"nonce": 7, "foreign": 1})
    manifest = json.loads((tmp_path / "gw0.manifest.json").read_text())
    assert (manifest["worker"], manifest["clean"], manifest["nonce"], manifest["foreign"]) == (
        "gw0",
        True,
        7,
        1,
    )
    assert manifest["sent"] == {
        "rows": 7, "files": [{"name": "gw0-000001.parquet", "rows": 5}, {"name": "gw0-000002.parquet", "rows": 2}], "streams": [1, 6, 2],
    }  # fmt: skip
    assert manifest["received"]["rows"] == 7
    for kind in KINDS:
        for file in manifest[kind]["files"]:
            table = pq.read_table(tmp_path / kind / file["name"])
            assert table.num_rows == file["rows"]
            assert [(field.name, str(field.type)) for field in table.schema] == [
                (column.name, column.type) for column in KINDS[kind]
            ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gw0.manifest.json",
        "received",
        "sent",
    ]


def test_the_manifest_lists_streams_that_are_not_evenly_spaced(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "gw0", make_pool(), TOPOLOGY, np.array([0, 1, 5]))
    recorder.close({})
    assert json.loads((tmp_path / "gw0.manifest.json").read_text())["sent"]["streams"] == {
        "numbers": [0, 1, 5]
    }


def test_copies_of_broadcasts_are_recorded_64_to_a_row(tmp_path: Path) -> None:
    """The manifest has the rows of the file, and as many set bits as copies were received."""
    topology = Topology(topics=2, partitions=1, producers=1, subscriptions=100, consumers=1)
    recorder = Recorder(tmp_path, "gw0", make_pool(), topology, range(2))
    consumers = np.arange(200, dtype=np.int32)
    nothing = np.zeros(200, np.int64)
    recorder.received(
        {
            **arrivals(200),
            "consumer": consumers,
            "stream": consumers // 100,
            "seq": nothing,
            "intended": nothing,
        }
    )
    recorder.close({})
    manifest = json.loads((tmp_path / "gw0.manifest.json").read_text())
    assert (manifest["received"]["rows"], manifest["broadcast"]["rows"]) == (0, 4)
    table = pq.read_table(tmp_path / "broadcast")
    assert table.schema.equals(arrow_schema("broadcast"))
    assert int(np.bitwise_count(table["got"].to_numpy().view(np.uint64)).sum()) == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broadcast",
        "gw0.manifest.json",
        "sent",
    ]


def test_topics_and_subscriptions_follow_from_numbers(tmp_path: Path) -> None:
    """Streams are assigned to topics in round robin; consumers of a subscription are neighbours."""
    recorder = make_recorder(tmp_path)
    recorder.sent(block(0, 6))
    recorder.received(arrivals(12))
    recorder.close({})
    sent, received = (pq.read_table(tmp_path / kind).to_pydict() for kind in ("sent", "received"))
    assert sent["topic"] == [stream % 3 for stream in sent["stream"]]
    assert received["topic"] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert received["subscription"] == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]


def test_a_chunk_is_written_when_it_is_old(tmp_path: Path) -> None:
    """The first one's age counts from the first look, whatever the clock says."""
    recorder = make_recorder(tmp_path)
    recorder.received(arrivals(4))
    recorder.flush_if_due(CHUNK_NS)
    assert recorder._columns["received"]
    recorder.flush_if_due(2 * CHUNK_NS - 1)
    assert recorder._columns["received"]
    recorder.flush_if_due(2 * CHUNK_NS)
    assert not recorder._columns["received"]
    recorder.abandon()


def test_a_chunk_is_written_when_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded whatever the rate."""
    monkeypatch.setattr(module, "CHUNK_ROWS", 100)
    recorder = make_recorder(tmp_path)
    recorder.flush_if_due(CHUNK_NS)
    recorder.received(arrivals(99))
    recorder.flush_if_due(CHUNK_NS + 1)
    assert recorder._columns["received"]
    recorder.received(arrivals(9))
    recorder.flush_if_due(CHUNK_NS + 2)
    assert not recorder._columns["received"]
    recorder.received(arrivals(100))
    recorder.flush_if_due(CHUNK_NS + 3)
    assert not recorder._columns["received"]
    recorder.abandon()


def test_abandoned_samples_are_kept_without_a_manifest(tmp_path: Path) -> None:
    """They can be read, but are never taken for a complete run."""
    recorder = make_recorder(tmp_path)
    recorder.sent(block(0, 5))
    recorder.abandon()
    recorder.abandon()
    assert pq.read_table(tmp_path / "sent").num_rows == 5
    assert not list(tmp_path.glob("*.json"))


def test_a_failed_write_is_no_data(tmp_path: Path) -> None:
    """The error names worker and folder."""
    recorder = make_recorder(tmp_path)
    recorder.sent(block(0, 5))
    (tmp_path / "sent").rmdir()
    with pytest.raises(NoData, match="worker gw0 could not write samples below"):
        recorder.close({})
    recorder.abandon()
    assert not list(tmp_path.glob("*.json"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small file system to be had: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("workers", [1, 4])
def test_broadcasts_take_no_more_disk_than_planned(tmp_path: Path, workers: int) -> None:
    """Copies come in any order, within a tenth of a second."""
    messages, plan = (
        500,
        made(loopback(rate=500, subscriptions=100, duration="1s"), workers=workers),
    )
    after = np.random.default_rng(1).integers(0, SECOND // 10, (messages, 100))
    for rank, share in enumerate(plan.assignments):
        consumers = np.fromiter(share.consumers, np.int32, len(share.consumers))
        seq, which = np.divmod(np.arange(messages * len(consumers)), len(consumers))
        intended = seq * (SECOND // messages)
        recorder = Recorder(tmp_path, f"gw{rank}", make_pool(), plan.topology, range(0))
        recorder.received(arrivals(len(seq)) | {
            "consumer": consumers[which], "seq": seq, "intended": intended, "received": intended + after[seq, consumers[which]],
            "lag": after[seq, consumers[which]].astype(np.int32) // 10_000,
        })  # fmt: skip
        recorder.close({})
    written = sum(path.stat().st_size for path in (tmp_path / "broadcast").iterdir())
    assert 0.5 * plan.needs.disk < written < plan.needs.disk


def test_a_full_disk_is_no_data(small_disk: Path) -> None:
    """The error has the worker, the folder and the plan's need; no partly written file is left on
    the disk.
    """
    recorder = Recorder(small_disk, "gw0", make_pool(), TOPOLOGY, STREAMS, 3 << 20)
    columns = arrivals(100_000)
    columns["intended"] = np.random.default_rng(1).integers(0, 1 << 60, 100_000)
    recorder.received(columns)
    with pytest.raises(NoData) as full:
        recorder.close({})
    assert f"worker gw0 could not write samples below {small_disk}: the disk is full" in str(
        full.value
    )
    assert "the plan needs 3.00 MiB there for the samples of all workers" in str(full.value)
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("loadtest-recorder")
    ]


def test_samples_that_wait_for_a_slow_disk_end_the_run_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop does not wait, and the error names the cause."""
    monkeypatch.setattr(module, "MOST_WAITING", 20_000)
    release = threading.Event()
    write = module.write_samples
    monkeypatch.setattr(
        module, "write_samples", lambda *arguments: release.wait() and write(*arguments)
    )
    recorder = make_recorder(tmp_path)
    try:
        with pytest.raises(
            NoData,
            match=r"worker gw0: the disk does not keep up with the samples: \d+.* wait to be written to .*faster disk",
        ):
            for chunk in range(100):
                recorder.received(arrivals(100))
                recorder.flush_if_due(chunk * CHUNK_NS)
        assert 3 <= chunk <= 6  # 4 500 bytes each
    finally:
        release.set()
    recorder.abandon()
    assert not list(tmp_path.glob("*.manifest.json"))
