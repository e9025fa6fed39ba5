"""``python -m pytest_loadtest report``."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.documents import document
from builders.results import Page, put

from pytest_loadtest.commands import cli


def test_a_sessions_report_goes_into_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is named with its size."""
    put(tmp_path, document())
    assert cli.main(["report", str(tmp_path / "monday")]) == cli.OK
    file = tmp_path / "monday" / "report.html"
    assert capsys.readouterr().out.startswith(f"{file} written, ")
    assert "Load tests · monday" in Page(file.read_text(encoding="utf-8")).words


def test_several_sessions_in_one_report(tmp_path: Path) -> None:
    """Each run says of which it is."""
    for session in ("monday", "tuesday"):
        put(tmp_path, document(), session=session)
    both = [str(tmp_path / session) for session in ("monday", "tuesday")]
    assert cli.main(["report", *both, "--output", str(tmp_path / "new" / "both.html")]) == cli.OK
    found = Page((tmp_path / "new" / "both.html").read_text(encoding="utf-8"))
    assert "Load tests · 2 sessions" in found.words
    assert {row[-1] for row in found.rows[1:3]} == {"monday", "tuesday"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: no results.json here or below"),
        (["results", "results"], "goes into none of them: write --output FILE"),
        (["results", "--output", "results/monday/test_smoke"], "results/monday/test_smoke cannot be written"),
        (["results", "--output", "file/report.html"], "file/report.html cannot be written"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """With what is wrong, and nothing written."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "results", document())
    (tmp_path / "file").touch()
    assert cli.main(["report", *arguments]) == cli.USAGE
    assert said in capsys.readouterr().err
    assert list(tmp_path.rglob("*.html")) == []
