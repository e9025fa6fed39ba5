"""The runs of two results folders, paired and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders.documents import document
from builders.results import put

from pytest_loadtest.report.compared import compare_results

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pair_has_both_runs_and_a_single_run_has_its_side(tmp_path: Path) -> None:
    """The command's tests compare the texts."""
    other = document(facts={"test": "loadtests/test_other.py::test_other"})
    put(tmp_path / "a", document())
    put(tmp_path / "b", document({"loss": 0}))
    put(tmp_path / "b", other, "test_other")
    compared, unreadable = compare_results(tmp_path / "a", tmp_path / "b")
    by_test = {test.name.partition("::")[2].partition(" ")[0]: test for test in compared}
    assert unreadable == []
    both = by_test["test_smoke"]
    assert [run.verdict.outcome.value for run in both.documents] == ["missed", "met"]
    assert both.section is not None
    alone = by_test["test_other"]
    assert (alone.was, alone.section) == (None, None)
    assert [run.test for run in alone.documents] == [other.test]
