"""The chapters on windows, the baseline and the trend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from builders.documents import FACTS, as_json, document, from_json
from builders.measurements import spread
from builders.results import Page, put, run, shown

from pytest_loadtest.report.history import append_history, history_line
from pytest_loadtest.report.html import page
from pytest_loadtest.report.html.comparison import MOST

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


S, MS = 1_000_000_000, 1_000_000


def in_windows(*, listed: int = 6, number: int = 6) -> RunDocument:
    """Return a run with a bound on p99 in windows of a second: the third missed, the last has no data."""
    made = as_json(document({"endToEndLatency": {"p99": "15ms"}}))
    (finding,) = [one for one in made["verdict"]["findings"] if one["metric"] == "endToEndLatency"]
    seen = [
        (5 * MS, "met"),
        (6 * MS, "met"),
        (40 * MS, "missed"),
        (7 * MS, "met"),
        (5 * MS, "met"),
        (None, "no data"),
    ][:listed]
    finding["windows"] = {
        "width": S, "violations": 0.01, "number": number, "missed": 1, "generatorLimited": 0, "noData": 1,
        "listed": [{"start": at * S, "end": (at + 1) * S, "observed": value, "outcome": outcome} for at, (value, outcome) in enumerate(seen)],
    }  # fmt: skip
    return from_json(made)


def test_each_window_is_a_point_with_the_bound_as_a_level() -> None:
    """Windows that were not met have marks and rows."""
    found = shown(run(in_windows()))
    chart = found.charts["windows-1"]
    assert (chart["xs"], chart["series"][0]["values"]) == (
        [0, 1, 2, 3, 4, 5],
        [5 * MS, 6 * MS, 40 * MS, 7 * MS, 5 * MS, None],
    )
    assert [(mark["x"], mark["outcome"]) for mark in chart["marks"]] == [
        (2, "missed"),
        (5, "no data"),
    ]
    assert [(bound["label"], bound["x"], bound["y"]) for bound in chart["bounds"]] == [
        ("endToEndLatency.p99 <= 15.0 ms", None, 15 * MS)
    ]
    assert chart["summary"] == "6 windows of 1.00 s: 1 missed, 1 no data; 1 % of them may miss."
    assert ["2.00 s", "3.00 s", "40.0 ms", "missed"] in found.rows
    assert ["5.00 s", "6.00 s", "not known", "no data"] in found.rows


def test_a_chart_tells_that_windows_are_left_out() -> None:
    """Results list at most a thousand of them."""
    assert (
        "; only those that were not met are shown."
        in shown(run(in_windows(number=5000))).charts["windows-1"]["summary"]
    )


def compared(**changed: Any) -> RunDocument:
    """Return a run that was compared with another of the same kind."""
    made = as_json(document())
    p99 = {
        "name": "endToEndLatency.p99",
        "unit": "ns",
        "better": "less",
        "baseline": 10 * MS,
        "now": 12 * MS,
    }
    made["comparison"] = {
        "baseline": {
            "test": FACTS.test, "results": ".loadtest/0", "started": None, "outcome": "met",
            "histogram": made["measurements"]["latencies"]["endToEnd"]["histogram"],
        },
        "comparable": True, "forced": False, "differences": [], "notes": [], "blocks": {"length": S, "baseline": 10, "now": 10, "level": 0.99},
        "rows": [
            {**p99, "change": 0.2, "low": 0.15, "high": 0.25, "outcome": "missed"},
            {"name": "CPU of the broker", "unit": "cores", "better": "less", "baseline": None, "now": 0.5, "change": None, "low": None, "high": None, "outcome": None},
        ],
        **changed,
    }  # fmt: skip
    return from_json(made)


def test_both_runs_have_figures_and_curves() -> None:
    """The figures have the interval of the change."""
    found = shown(run(compared()))
    assert [
        "endToEndLatency.p99",
        "10.0 ms",
        "12.0 ms",
        "+20 %",
        "+15 % to +25 %",
        "worse",
        "missed",
    ] in found.rows
    assert [
        "CPU of the broker",
        "not known",
        "0.50 cores",
        "not known",
        "not known",
        "",
        "not judged",
    ] in found.rows
    baseline, now = found.charts["baseline"]["series"]
    assert [line["label"] for line in (baseline, now)] == ["baseline", "now"]
    assert (
        baseline["values"][1:] == now["values"][1:]
    )  # the exact minimum of the baseline is not known


def test_differences_of_incomparable_runs_are_listed() -> None:
    """They are listed also if the comparison was forced."""
    differs = [
        {"name": "cores", "baseline": "2", "now": "16", "decides": True},
        {"name": "seed", "baseline": "1", "now": "2", "decides": False},
    ]
    found = shown(run(compared(comparable=False, forced=True, differences=differs, blocks=None)))
    assert "The two runs are not comparable; judged anyway, as requested." in found.words
    assert ["cores", "2", "16", "yes"] in found.rows
    assert "Figures of both runs; noise is unknown" in found.words


def test_a_missing_baseline_has_a_reason() -> None:
    found = shown(
        run(
            compared(
                baseline=None,
                comparable=False,
                rows=[],
                blocks=None,
                notes=["no run of this test was met before"],
            )
        )
    )
    assert "the baseline: not measured" in found.reads
    assert "no run of this test was met before" in found.words
    assert "baseline" not in found.charts


def past(root: Path, days: int, **last: Any) -> Path:
    """Write a history with daily runs of one test, and one run of another test."""
    file = root / "history.jsonl"
    runs = [
        document(
            facts={"started": f"2026-10-{day:02d}T03:00:00+00:00"}, end_to_end=spread(1, 10 + day)
        )
        for day in range(1, days)
    ]
    runs.append(document(facts={"started": "2026-11-21T03:00:00+00:00"}, **last))
    append_history(
        file,
        [history_line(run) for run in (*runs, document(facts={"test": "other.py::test_other"}))],
    )
    return file


def read(root: Path, history: Path | None) -> Page:
    page.write_page([root / "monday"], root / "report.html", history)
    return Page((root / "report.html").read_text(encoding="utf-8"))


def test_each_figure_of_a_test_has_a_trend(tmp_path: Path) -> None:
    """The chart has the bound and marks the runs that missed it; other tests in the history are ignored."""
    put(tmp_path, document())
    found = read(tmp_path, past(tmp_path, 4, end_to_end=spread(1, 40)))
    charts = [chart for name, chart in found.data["charts"].items() if name.startswith("trend-")]
    p99 = next(chart for chart in charts if chart["title"] == "endToEndLatency.p99 from run to run")
    assert p99["xs"] == [1, 2, 3, 4]
    assert p99["series"][0]["values"] == sorted(p99["series"][0]["values"])
    assert [one["y"] for one in p99["bounds"]] == [15e6]
    assert [(one["x"], one["outcome"]) for one in p99["marks"]] == [(4, "missed")]
    assert (
        f"{FACTS.test} · profile smoke: 4 runs, 2026-10-01 03:00:00 UTC to 2026-11-21 03:00:00 UTC."
        in found.words
    )
    assert not any("test_other" in word for word in found.words)


def test_a_figure_that_the_newest_run_lacks_has_no_newest_value(tmp_path: Path) -> None:
    """The value of an earlier run is not the newest one's; the table beside the chart agrees."""
    put(tmp_path, document())
    charts = read(tmp_path, past(tmp_path, 4, end_to_end=None)).data["charts"].values()
    p99 = next(chart for chart in charts if chart["title"] == "endToEndLatency.p99 from run to run")
    assert p99["summary"].startswith("newest -, lowest ")


def test_without_a_history_there_is_no_chapter(tmp_path: Path) -> None:
    """The same applies to a history without the page's tests."""
    put(tmp_path, document(facts={"test": "new.py::test_new"}))
    for history in (None, past(tmp_path, 2)):
        assert "From run to run" not in read(tmp_path, history).words


def test_lines_of_a_history_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    put(tmp_path, document())
    file = tmp_path / "history.jsonl"
    file.write_text('no history\n{"version": 99}\n', encoding="utf-8")
    append_history(file, [history_line(document())])
    assert "From run to run 2 lines of the history left out" in read(tmp_path, file).reads


def test_one_run_is_no_trend(tmp_path: Path) -> None:
    """A second run that is not comparable is named."""
    put(tmp_path, document())
    file = tmp_path / "history.jsonl"
    append_history(file, [history_line(document())])
    alone = read(tmp_path, file)
    assert "profile smoke: 1 run, 2026-11-21 03:00:00 UTC; a trend needs two." in alone.reads
    assert "Figures of" not in alone.reads
    assert not any(name.startswith("trend-") for name in alone.data["charts"])
    append_history(
        file,
        [
            history_line(
                document(
                    facts={
                        "started": "2026-11-22T03:00:00+00:00",
                        "broker": {**FACTS.broker, "version": "4.3.0"},
                    }
                )
            )
        ],
    )
    assert "run 2: the broker Pulsar 4.2.4 → Pulsar 4.3.0" in read(tmp_path, file).words


def test_only_the_newest_runs_of_a_long_history_are_drawn(tmp_path: Path) -> None:
    put(tmp_path, document())
    file, first = tmp_path / "history.jsonl", history_line(document())
    append_history(
        file,
        [
            {**first, "started": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}"}
            for n in range(MOST + 5)
        ],
    )
    charts = read(tmp_path, file).data["charts"]
    assert {len(chart["xs"]) for name, chart in charts.items() if name.startswith("trend-")} == {
        MOST
    }
