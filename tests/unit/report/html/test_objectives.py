"""Objectives and their windows as tables."""

from __future__ import annotations

from typing import Any

from builders.documents import PEAK, SLO, as_json, document, from_json, stage
from builders.results import Page, run, shown

from pytest_loadtest.report.html.blocks import ChartFigure, Fold
from pytest_loadtest.report.html.objectives import windows_chapter
from pytest_loadtest.report.sections import missed_texts
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome


def windowed(*outcomes: str) -> Any:
    """Return a run with one window for each outcome."""
    run = as_json(document(SLO))
    listed = [
        {
            "start": at * SECOND,
            "end": (at + 1) * SECOND,
            "observed": 1e6 * (at + 1),
            "outcome": outcome,
        }
        for at, outcome in enumerate(outcomes)
    ]
    counts = {"missed": outcomes.count("missed"), "generatorLimited": 0, "noData": 0}
    finding = run["verdict"]["findings"][1]
    finding["windows"] = {
        "width": SECOND,
        "violations": 0.0,
        "number": len(listed),
        **counts,
        "listed": listed,
    }
    return from_json(run)


def objectives_of(found: Page) -> list[list[str]]:
    """Return the rows of the objectives, those on demand last."""
    return [row for row in found.rows if len(row) == 6 and row[1] in tuple(Outcome)]


def test_misses_come_before_objectives_that_were_met() -> None:
    slo = {"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}
    outcomes = [row[1] for row in objectives_of(shown(run(document(slo))))]
    assert outcomes == sorted(outcomes, key=lambda outcome: outcome == "met")
    assert outcomes[0] == "missed"


def test_an_objective_has_a_bar_that_ends_at_its_share_of_the_bound() -> None:
    """The bound is at 80; a bar beyond it ends at 100."""
    found = shown(run(document({"endToEndLatency": {"p50": "21ms", "p99": "15ms"}})))
    rows = {row[0]: row for row in objectives_of(found)}
    assert rows["endToEndLatency.p99"][4] == "over by 32 %"
    assert rows["endToEndLatency.p50"][4] == "50 % to spare"
    ends = [attributes["d"] for _, attributes in found.tags if attributes.get("class") == "used"]
    assert "M0 4H100.0" in ends
    assert "M0 4H39.99" in ends, "p50 is a bucket's middle"


def test_a_search_without_a_rate_is_not_described_as_met() -> None:
    """Its last step can hold every objective."""
    found = as_json(document({"endToEndLatency": {"p99": "25ms"}}, parts={"peak": PEAK}))
    found["verdict"]["outcome"] = "missed"
    found["peak"] |= {"rate": None, "low": None}
    text = shown(run(from_json(found))).text
    assert "Missed, although 8 objectives of the last step held; peak none: no rate held" in text
    assert "objectives met; the tightest" not in text


def test_a_met_run_shows_the_tightest_objectives_of_its_profile() -> None:
    """At most three; the others, and implicit ones, are shown on demand."""
    latency = {"p50": "1s", "p99": "1s", "max": "9s"}
    found = shown(run(document({"endToEndLatency": latency, "loss": 0})))
    rows = [row[0] for row in objectives_of(found)]
    assert rows[:4] == [
        "endToEndLatency.p99",
        "endToEndLatency.p50",
        "endToEndLatency.max",
        "loss",
    ]
    text = f"{len(rows) - 3} objectives that were met, implicit or with much to spare"
    assert text in found.reads


def test_the_miss_of_a_stage_names_the_stage() -> None:
    run = document({}, parts={"stages": (stage("ramp"),)})
    assert [
        text for text in missed_texts(run) if text.startswith("stage ramp: endToEndLatency.p99")
    ]


def test_windows_that_were_not_met_are_listed_with_their_time() -> None:
    chart, fold = windows_chapter("run-1", windowed("met", "missed", "met"))
    assert isinstance(chart, ChartFigure)
    assert isinstance(fold, Fold)
    assert fold.title.startswith("1 window of")
    assert [mark["x"] for mark in chart.chart["marks"]] == [1]


def test_a_run_whose_windows_were_all_met_lists_none() -> None:
    assert [type(block) for block in windows_chapter("run-1", windowed("met", "met"))] == [
        ChartFigure
    ]
