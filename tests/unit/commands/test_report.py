"""``python -m pytest_loadtest report``."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.documents import document
from builders.results import Page, put

from pytest_loadtest.commands import cli


def test_a_sessions_report_goes_into_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints its path and size."""
    put(tmp_path, document())
    assert cli.main(["report", str(tmp_path / "monday")]) == cli.OK
    file = tmp_path / "monday" / "report.html"
    assert capsys.readouterr().out.startswith(f"{file} written, ")
    assert "Load tests · monday" in Page(file.read_text(encoding="utf-8")).words


def test_a_report_of_several_sessions_names_the_session_of_each_run(tmp_path: Path) -> None:
    for session in ("monday", "tuesday"):
        put(tmp_path, document(), session=session)
    both = [str(tmp_path / session) for session in ("monday", "tuesday")]
    assert cli.main(["report", *both, "--output", str(tmp_path / "new" / "both.html")]) == cli.OK
    found = Page((tmp_path / "new" / "both.html").read_text(encoding="utf-8"))
    assert "Load tests · 2 sessions" in found.words
    assert {row[-1] for row in found.rows[1:3]} == {"monday", "tuesday"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "nowhere: no results.json here or below"),
        (["results", "results"], "several folders given: name the report with --output FILE"),
        (
            ["results", "--output", "results/monday/test_smoke"],
            "cannot write results/monday/test_smoke",
        ),
        (["results", "--output", "file/report.html"], "cannot write file/report.html"),
        (["results", "--history", "gone"], "gone cannot be read"),
        (
            ["results", "--history", "notes"],
            "notes has no line of a history, or those of a later version",
        ),
    ],
)
def test_an_impossible_report_is_a_usage_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
) -> None:
    """The error names the problem, and no file is written."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "results", document())
    (tmp_path / "file").touch()
    (tmp_path / "notes").write_text("to do\n", encoding="utf-8")
    assert cli.main(["report", *arguments]) == cli.USAGE
    assert text in capsys.readouterr().err
    assert list(tmp_path.rglob("*.html")) == []
