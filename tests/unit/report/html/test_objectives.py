"""Objectives and their windows as tables."""

from __future__ import annotations

from typing import Any

from builders.documents import SLO, as_json, document, from_json, stage

from pytest_loadtest.report.html.blocks import ChartFigure, Fold
from pytest_loadtest.report.html.objectives import objectives_table, windows_chapter
from pytest_loadtest.report.sections import missed_texts
from pytest_loadtest.report.tables import Cell
from pytest_loadtest.values.quantities import SECOND


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


def test_misses_come_before_objectives_that_were_met() -> None:
    table = objectives_table(document({"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}))
    assert table is not None
    outcomes = [cell.text for row in table.rows for cell in row if isinstance(cell, Cell)]
    assert outcomes == sorted(outcomes, key=lambda outcome: outcome == "met")
    assert outcomes[0] == "missed"


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
