"""Samples reach the disk whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pytest_loadtest.engine import recorder as module
from pytest_loadtest.engine.blocks import Block
from pytest_loadtest.engine.consume import Rows
from pytest_loadtest.engine.recorder import CHUNK_NS, Recorder
from pytest_loadtest.errors import NoData
from pytest_loadtest.samples import KINDS
from pytest_loadtest.topology import ProducerSpec, TopicSpec

from .rig import make_pool

SPEC = ProducerSpec(stream=3, topic=TopicSpec(index=1))


def block(first: int, size: int) -> Block:
    seq = np.arange(first, first + size, dtype=np.int64)
    return Block(first, seq, seq * 10, np.zeros(size, np.uint16), None)


def arrivals(n: int, consumer: int = 0) -> Rows:
    columns = {"stream": np.zeros(n, np.int64), "bucket": np.zeros(n, np.int16), "size": np.full(n, 64, np.int32), "flags": np.zeros(n, np.int8),
               "seq": np.arange(n), "intended": np.arange(n), "received": np.arange(n)}  # fmt: skip
    return Rows({"consumer": consumer, "subscription": 0, "topic": 0}, columns, n)


def test_manifest_says_what_there_is(tmp_path: Path) -> None:
    """Rows, files and each stream's first and last sequence, as they lie on disk, with the schema of every column."""
    recorder = Recorder(tmp_path, "gw0", make_pool())
    recorder.flush_if_due(0)
    recorder.sent(SPEC, block(10, 5))
    recorder.received(arrivals(4))
    recorder.flush_if_due(CHUNK_NS)
    recorder.sent(SPEC, block(15, 2))
    recorder.received(arrivals(3, consumer=2))
    recorder.close({"nonce": 7, "foreign": 1})
    manifest = json.loads((tmp_path / "gw0.manifest.json").read_text())
    assert (manifest["worker"], manifest["clean"], manifest["nonce"], manifest["foreign"]) == ("gw0", True, 7, 1)
    assert manifest["sent"] == {
        "rows": 7, "files": [{"name": "gw0-000001.parquet", "rows": 5}, {"name": "gw0-000002.parquet", "rows": 2}], "streams": {"3": [10, 16, 7]},
    }  # fmt: skip
    assert manifest["received"]["rows"] == 7
    for kind in KINDS:
        for file in manifest[kind]["files"]:
            table = pq.read_table(tmp_path / kind / file["name"])
            assert table.num_rows == file["rows"]
            assert [(field.name, str(field.type)) for field in table.schema] == [(column.name, column.type) for column in KINDS[kind]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gw0.manifest.json", "received", "sent"]


def test_a_chunk_is_closed_by_age(tmp_path: Path) -> None:
    """Young and small chunks stay in memory, the first too: its age counts from the first look, whatever the clock says then."""
    recorder = Recorder(tmp_path, "gw0", make_pool())
    recorder.received(arrivals(4))
    recorder.flush_if_due(CHUNK_NS)
    assert recorder._rows["received"]
    recorder.flush_if_due(2 * CHUNK_NS - 1)
    assert recorder._rows["received"]
    recorder.flush_if_due(2 * CHUNK_NS)
    assert not recorder._rows["received"]
    recorder.abandon()


def test_a_chunk_is_closed_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded whatever the rate."""
    monkeypatch.setattr(module, "CHUNK_ROWS", 100)
    recorder = Recorder(tmp_path, "gw0", make_pool())
    recorder.flush_if_due(CHUNK_NS)
    recorder.received(arrivals(100))
    recorder.flush_if_due(CHUNK_NS + 1)
    assert not recorder._rows["received"]
    recorder.abandon()


def test_abandoned_samples_are_kept_without_a_manifest(tmp_path: Path) -> None:
    """What was gathered is readable; nobody can take it for a complete run."""
    recorder = Recorder(tmp_path, "gw0", make_pool())
    recorder.sent(SPEC, block(0, 5))
    recorder.abandon()
    recorder.abandon()
    assert pq.read_table(tmp_path / "sent").num_rows == 5
    assert not list(tmp_path.glob("*.json"))


def test_what_cannot_be_written_is_no_data(tmp_path: Path) -> None:
    """A disk that refuses breaks the run and names worker and folder."""
    recorder = Recorder(tmp_path, "gw0", make_pool())
    recorder.sent(SPEC, block(0, 5))
    (tmp_path / "sent").rmdir()
    with pytest.raises(NoData, match="worker gw0 could not write samples below"):
        recorder.close({})
    recorder.abandon()
    assert not list(tmp_path.glob("*.json"))


def test_a_crash_leaves_only_a_dot_file(tmp_path: Path) -> None:
    """A worker that dies while it writes leaves no file that anybody would read."""
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import pyarrow.parquet as pq
from pathlib import Path
from pytest_loadtest.engine import recorder
from engine.rig import make_pool
from engine.test_recorder import arrivals
write = pq.write_table
def dying(*args, **options):
    write(*args, **options)
    os._exit(9)
pq.write_table = dying
r = recorder.Recorder(Path({str(tmp_path)!r}), "gw0", make_pool())
r.received(arrivals(4))
r.close({{}})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, env=dict(os.environ)).returncode == 9
    assert [path.name for path in (tmp_path / "received").iterdir()] == [".gw0-000001.parquet.tmp"]
    assert not list(tmp_path.glob("*.json"))
