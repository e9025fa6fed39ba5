"""Sample files are on the disk complete or not at all."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pytest_loadtest.engine import sample_files
from pytest_loadtest.engine.sample_files import (
    arrow_schema,
    is_full,
    replace,
    unwritten,
    write_samples,
)
from pytest_loadtest.message.samples import KINDS


def columns(kind: str, n: int) -> dict[str, np.ndarray]:
    """Return columns of a kind, each with its own numbers.

    A broadcast row ``i`` has the copies of its first ``i + 1`` subscriptions.
    """
    made = {
        column.name: np.arange(n, dtype=column.item or column.type) + i
        for i, column in enumerate(KINDS[kind])
    }
    if kind == "broadcast":
        made["got"] = (1 << np.arange(1, n + 1)) - 1
        made["after"] = np.arange(n * (n + 1) // 2, dtype=np.int32)
        made["lag"] = made["after"] + 7
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_has_every_column_with_its_type_and_values(tmp_path: Path, kind: str) -> None:
    written = columns(kind, 9)
    assert write_samples(tmp_path / "a.parquet", kind, written) == 9
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.equals(arrow_schema(kind))
    assert [(field.name, str(field.type)) for field in table.schema] == [
        (column.name, column.type) for column in KINDS[kind]
    ]
    for column in KINDS[kind]:
        values = table[column.name].to_pylist()
        assert (
            values if column.item is None else [number for numbers in values for number in numbers]
        ) == written[column.name].tolist()
    if kind == "broadcast":
        assert [len(after) for after in table["after"].to_pylist()] == list(range(1, 10))


def test_a_file_names_its_run(tmp_path: Path) -> None:
    """In its metadata, which readers of the columns do not see."""
    write_samples(tmp_path / "a.parquet", "sent", columns("sent", 3), nonce=77)
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.metadata == {sample_files.NONCE: b"77"}
    assert schema.equals(arrow_schema("sent"))


def test_a_crash_leaves_only_a_dot_file(tmp_path: Path) -> None:
    """A worker that dies while it writes leaves no file that anybody would read."""
    script = """
import os, sys
from pathlib import Path
import pyarrow.parquet as pq
from test_sample_files import columns, write_samples
write = pq.write_table
def dying(*args, **options):
    write(*args, **options)
    os._exit(9)
pq.write_table = dying
write_samples(Path(sys.argv[1], "gw0-000001.parquet"), "received", columns("received", 4))
"""
    assert run_python(script, tmp_path).returncode == 9
    assert [path.name for path in tmp_path.iterdir()] == [".gw0-000001.parquet.tmp"]


def run_python(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that can import this module."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_load_does_not_wait_for_pandas(tmp_path: Path) -> None:
    """Arrow imports it when asked to convert; while load runs that takes most of a second of a
    worker's one core.
    """
    code = """
from pathlib import Path
from test_sample_files import KINDS, columns, write_samples
for kind in KINDS:
    write_samples(Path(sys.argv[1], kind), kind, columns(kind, 4))
print("pandas" in sys.modules)
"""
    assert run_python(code, tmp_path).stdout == "False\n"


@pytest.mark.parametrize("target", ["file", "samples"])
def test_a_failed_write_leaves_nothing_and_an_older_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """On a full disk a partly written file would take the room that is missing."""
    path = tmp_path / "a"
    path.write_text("older")

    def full(*_: object, **__: object) -> None:
        (tmp_path / ".a.tmp").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sample_files.os, "fsync", full)
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space left") as caught:
        replace(path, b"newer") if target == "file" else write_samples(
            path, "sent", columns("sent", 3)
        )
    assert is_full(caught.value)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "older")]


def test_a_replaced_file_has_the_new_content_alone(tmp_path: Path) -> None:
    for content in (b"a longer one", b"short"):
        replace(tmp_path / "a", content)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"short")]


@pytest.mark.parametrize(
    ("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)]
)
def test_only_a_missing_room_is_a_full_disk(tmp_path: Path, number: int, full: bool) -> None:
    """The remedy is for a full disk alone; any other error has its own text."""
    error = OSError(number, "the system's words")
    assert is_full(error) is full
    text = str(unwritten("worker gw0", "samples", tmp_path, error, 3 << 20))
    assert text.startswith(f"worker gw0 could not write samples below {tmp_path}: ")
    assert (
        "the disk is full\n  the plan needs 3.00 MiB there for the samples of all workers, " in text
    ) is full
    assert ("the system's words" in text) is not full
    assert "the plan needs" not in str(unwritten("worker gw0", "samples", tmp_path, error, None))
