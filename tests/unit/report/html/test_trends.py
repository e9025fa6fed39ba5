"""How figures went from run to run, on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders.documents import FACTS, document
from builders.measurements import spread
from builders.results import Page, put

from pytest_loadtest.report.history import append_history, history_line
from pytest_loadtest.report.html import page
from pytest_loadtest.report.html.trends import MOST


def past(root: Path, days: int, **last: Any) -> Path:
    """A history of one test by the day, and one run of another test."""
    file = root / "history.jsonl"
    runs = [document(facts={"started": f"2026-10-{day:02d}T03:00:00+00:00"}, end_to_end=spread(1, 10 + day)) for day in range(1, days)]
    runs.append(document(facts={"started": "2026-11-21T03:00:00+00:00"}, **last))
    append_history(file, [history_line(run) for run in (*runs, document(facts={"test": "other.py::test_other"}))])
    return file


def read(root: Path, history: Path | None) -> Page:
    page.write_page([root / "monday"], root / "report.html", history)
    return Page((root / "report.html").read_text(encoding="utf-8"))


def test_a_chart_of_each_figure(tmp_path: Path) -> None:
    """With the bound and the runs that missed it; of the page's own tests alone."""
    put(tmp_path, document())
    found = read(tmp_path, past(tmp_path, 4, end_to_end=spread(1, 40)))
    charts = [chart for name, chart in found.data["charts"].items() if name.startswith("trend-")]
    p99 = next(chart for chart in charts if chart["title"] == "endToEndLatency.p99 from run to run")
    assert p99["xs"] == [1, 2, 3, 4]
    assert p99["series"][0]["values"] == sorted(p99["series"][0]["values"])
    assert [one["y"] for one in p99["bounds"]] == [15e6]
    assert [(one["x"], one["outcome"]) for one in p99["marks"]] == [(4, "missed")]
    assert f"{FACTS.test} · profile smoke: 4 runs, 2026-10-01 03:00:00 UTC to 2026-11-21 03:00:00 UTC." in found.words
    assert not any("test_other" in word for word in found.words)


def test_without_a_history_there_is_no_chapter(tmp_path: Path) -> None:
    """Nor where it has nothing of the page's tests."""
    put(tmp_path, document(facts={"test": "new.py::test_new"}))
    for history in (None, past(tmp_path, 2)):
        assert "From run to run" not in read(tmp_path, history).words


def test_one_run_is_no_trend(tmp_path: Path) -> None:
    """Its figures are told, and nothing is drawn; changes of what decides comparability are named."""
    put(tmp_path, document())
    file = tmp_path / "history.jsonl"
    append_history(file, [history_line(document())])
    alone = read(tmp_path, file)
    assert "From run to run" in alone.words
    assert not any(name.startswith("trend-") for name in alone.data["charts"])
    append_history(
        file, [history_line(document(facts={"started": "2026-11-22T03:00:00+00:00", "broker": {**FACTS.broker, "version": "4.3.0"}}))]
    )
    assert "run 2: the broker Pulsar 4.2.4 → Pulsar 4.3.0" in read(tmp_path, file).words


def test_the_newest_of_a_long_history(tmp_path: Path) -> None:
    """A page of years does not grow without end."""
    put(tmp_path, document())
    file, first = tmp_path / "history.jsonl", history_line(document())
    append_history(file, [{**first, "started": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}"} for n in range(MOST + 5)])
    charts = read(tmp_path, file).data["charts"]
    assert {len(chart["xs"]) for name, chart in charts.items() if name.startswith("trend-")} == {MOST}
