"""What a session writes of its runs beside their results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from builders.documents import document

from pytest_loadtest.fleet.outputs import Outputs
from pytest_loadtest.report import history


def outputs(root: Path, **more: Path) -> Outputs:
    options = SimpleNamespace(**{"baseline": None, "history": None, "omb_json": None} | more)
    return Outputs(options, root)  # type: ignore[arg-type]


def test_a_line_and_a_file_for_each_run(tmp_path: Path) -> None:
    """Where they were asked for; a broken run has a line and no file."""
    made = outputs(tmp_path, history=tmp_path / "h.jsonl", omb_json=tmp_path / "omb")
    made.measured([document()])
    made.ended([document()])
    assert (len(history.read_history(tmp_path / "h.jsonl")[0]), len(list((tmp_path / "omb").iterdir()))) == (2, 1)
    assert made.unwritten == []
    outputs(tmp_path).measured([document()])


def test_what_cannot_be_written_leaves_the_verdict_alone(tmp_path: Path) -> None:
    """It is said, once, with option, place and reason."""
    (file := tmp_path / "file").write_text("")
    made = outputs(tmp_path, history=tmp_path, omb_json=file)
    made.measured([document(), document()])
    assert made.unwritten == [
        f"WARNING: --load-history {tmp_path} cannot be written: Is a directory",
        f"WARNING: --load-omb-json {file} cannot be written: File exists",
    ]
