"""``compare`` and ``trend`` on results and history files made up for tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from builders.documents import document
from builders.measurements import spread
from builders.results import put

from pytest_loadtest.commands import cli
from pytest_loadtest.report.history import append_history, history_line

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_loadtest.report.document import RunDocument


def stored(root: Path, run: RunDocument) -> str:
    put(root, run)
    return str(root)


def test_a_comparison_shows_both_runs_of_a_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without regression objectives nothing is judged, and the status is 0."""
    folders = [stored(tmp_path / "a", document()), stored(tmp_path / "b", document(end_to_end=spread(0.5, 30)))]
    assert cli.main(["compare", *folders]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("loadtests/test_smoke.py::test_smoke")
    assert any("endToEndLatency.p99" in line for line in lines)


def test_a_test_in_one_folder_only_is_listed_and_has_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No test is in both folders, so there is no data."""
    other = document(facts={"test": "loadtests/test_other.py::test_other"})
    folders = [stored(tmp_path / "a", document()), stored(tmp_path / "b", other)]
    assert cli.main(["compare", *folders]) == cli.NO_DATA
    out = capsys.readouterr().out
    assert "only in the baseline: .loadtest/1/test_smoke" in out
    assert "only in the later results: .loadtest/1/test_smoke" in out
    assert cli.main(["compare", *folders, "--json"]) == cli.NO_DATA
    assert [test["comparison"] for test in json.loads(capsys.readouterr().out)] == [None, None]


def test_regression_objectives_of_an_unknown_grammar_are_not_judged(tmp_path: Path) -> None:
    """A later version may have written them."""
    profile = {"name": "smoke", "producerRate": 1, "driver": {"name": "pulsar"}, "slo": {"regression": {"vibes": "10%"}}}
    later = document(facts={"profile": profile})
    assert cli.main(["compare", stored(tmp_path / "a", document()), stored(tmp_path / "b", later)]) == cli.OK


def test_a_trend_skips_lines_of_other_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their number goes to standard error; a test without runs is a usage error."""
    file = tmp_path / "history.jsonl"
    append_history(file, [history_line(document())] * 2)
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"version": 99}\n')
    assert cli.main(["trend", str(file), "--test", "smoke"]) == cli.OK
    printed = capsys.readouterr()
    assert "2 runs" in printed.out
    assert "skipped 1 line:" in printed.err
    assert cli.main(["trend", str(file), "--json"]) == cli.OK
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert cli.main(["trend", str(file), "--test", "orders"]) == cli.USAGE
    assert "has no run of 'orders'" in capsys.readouterr().err
