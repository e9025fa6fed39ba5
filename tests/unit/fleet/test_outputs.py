"""Files that a session writes in addition to its results."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from builders.documents import document
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.fleet.outputs import Outputs, safe_name, session_folder, workload_folder
from pytest_loadtest.report import history


def outputs(root: Path, **more: Path) -> Outputs:
    options = SimpleNamespace(**{"baseline": None, "history": None, "omb_json": None} | more)
    return Outputs(options, root)  # type: ignore[arg-type]


def test_each_run_adds_a_line_to_the_history_and_a_file(tmp_path: Path) -> None:
    """If requested; a broken run has a line but no file."""
    made = outputs(tmp_path, history=tmp_path / "h.jsonl", omb_json=tmp_path / "omb")
    made.write_results([document()])
    made.add_to_history([document()])
    assert (
        len(history.read_history(tmp_path / "h.jsonl")[0]),
        len(list((tmp_path / "omb").iterdir())),
    ) == (2, 1)
    assert made.unwritten == []
    outputs(tmp_path).write_results([document()])


def test_results_of_a_broken_run_that_cannot_be_written_are_a_warning(tmp_path: Path) -> None:
    """The reason why the run broke is still reported."""
    made = outputs(tmp_path)
    made.write_broken(tmp_path, lambda: tmp_path.write_text(""))
    assert made.unwritten == [
        f"WARNING: the results in {tmp_path} cannot be written: Is a directory"
    ]


def test_a_file_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    """With option, path and reason; it changes no verdict."""
    (file := tmp_path / "file").write_text("")
    made = outputs(tmp_path, history=tmp_path, omb_json=file)
    made.write_results([document(), document()])
    assert made.unwritten == [
        f"WARNING: --load-history {tmp_path} cannot be written: Is a directory",
        f"WARNING: --load-omb-json {file} cannot be written: File exists",
    ]


def test_the_folder_of_a_workload_is_below_session_test_and_attempt() -> None:
    """Its name is readable; nothing is created."""
    folder = workload_folder(
        Path("s"), "loadtests/test_a.py::test_b[x/y]", 2, "Production load test - 2M msg/s"
    )
    assert re.fullmatch(
        r"s/loadtests-test_a\.py-test_b-x-y-[0-9a-f]{6}/2/Production-load-test---2M-msg-s-[0-9a-f]{6}",
        str(folder),
    )
    assert not folder.exists()
    assert session_folder(Path("r")).parent == Path("r")


@given(st.text(min_size=1, max_size=300))
def test_folder_names_are_safe(text: str) -> None:
    """Without characters for shell, glob or parent folder, short enough for every file system, never empty."""
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name)
    assert len(name) <= 90


@given(st.lists(st.text(min_size=1, max_size=100), unique=True, min_size=2, max_size=2))
def test_names_of_different_texts_differ(texts: list[str]) -> None:
    """Two tests never share a folder."""
    assert safe_name(texts[0]) != safe_name(texts[1])
