"""The overview of all runs of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.documents import FACTS, document
from builders.measurements import spread
from builders.results import run, shown

from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.find_results import ResultSet
from pytest_loadtest.report.html import overview
from pytest_loadtest.report.html.blocks import Fold
from pytest_loadtest.report.tables import Table
from pytest_loadtest.verdict.slo import Outcome, Verdict

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


LOOSE = {"endToEndLatency": {"p99": "1s"}}


def broken(outcome: Outcome, *reasons: str) -> RunDocument:
    """Return the document of a run that was given up."""
    return build_document(FACTS, Verdict(outcome=outcome, findings=(), reasons=reasons), None)


BROKEN = broken(Outcome.NO_DATA, "worker gw1 died")


@pytest.mark.parametrize(
    ("made", "outcome", "words"),
    [
        (document(LOOSE), "met", ["endToEndLatency.p99", "19.8 ms", "<= 1.00 s", "100 000"]),
        (document(), "missed", ["endToEndLatency.p99 19.8 ms > 15.0 ms: over by 32 %"]),
        (
            document(end_to_end=spread(1, 20, 5)),
            "no data",
            ["p99 needs 1 000 samples, there are 5", "not known", "too few"],
        ),
        (
            broken(Outcome.GENERATOR_LIMITED, "the generator", "lower the rate"),
            "generator-limited",
            ["Because the generator Remedy: lower the rate", "the generator; and 1 more"],
        ),
        (
            BROKEN,
            "no data",
            [
                "worker gw1 died",
                "the run broke before anything could be measured",
                "rates and latencies: not measured",
            ],
        ),
    ],
)
def test_the_outcome_is_in_overview_contents_and_run(
    made: RunDocument, outcome: str, words: list[str]
) -> None:
    found = shown(run(made))
    assert next(row[1] for row in found.rows if row[0] == made.test) == outcome
    assert f"1 run: 1 {outcome}." in found.reads
    assert sum(attributes.get("data-outcome") == outcome for _, attributes in found.tags) >= 3
    assert [word for word in words if word not in found.reads] == []


def test_a_page_without_readable_results_says_so() -> None:
    found = shown(unreadable=("x/results.json: cannot be read",))
    assert "0 runs: none that can be read." in found.words
    assert found.charts == {}


def test_a_scaled_run_is_marked_in_overview_and_run() -> None:
    found = shown(run(document(facts={"scale": 0.001, "scaling": {"rate": "10 M → 10 k msg/s"}})))
    assert found.reads.count("says nothing about the full load") >= 2
    assert found.rows[1][3] == "×0.001"
    assert "SCALED ×0.001 (rate 10 M → 10 k msg/s)" in found.reads


def test_titles_distinguish_attempts_and_workloads() -> None:
    found = shown(run(document(), attempt=2), run(document(facts={"workload": "telemetry"})))
    assert f"{FACTS.test} · attempt 2" in found.words
    assert f"{FACTS.test} · workload telemetry" in found.words


def test_unreadable_results_are_listed() -> None:
    assert (
        "Results that cannot be read x/results.json: cannot be read"
        in shown(run(document()), unreadable=("x/results.json: cannot be read",)).reads
    )


def test_implicit_objectives_that_were_met_are_shown_on_demand() -> None:
    """Every run has seven of them; between them a user would look for the objectives of the profile. An implicit miss is with the others."""
    chapter = overview.overview_chapters(
        ResultSet(
            runs=[run(document({"loss": 0, "sent": "100%"}, counts={"corrupt": 1}))], unreadable=[]
        ),
        ["run-1"],
    )[1]
    table, fold = chapter.blocks
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["corrupt (implicit)", "loss", "sent"]
    assert isinstance(fold, Fold)
    (usual,) = fold.blocks
    assert isinstance(usual, Table)
    assert fold.title == f"{len(usual.rows)} implicit objectives that were met"
    assert "dropped (implicit)" in [row[1] for row in usual.rows]


def test_facts_are_written_for_people() -> None:
    """Neither bytes of memory nor fifteen digits; and nothing that only a program needs."""
    machine, plan = (
        {"memory": 25_276_502_016, "cores": 2},
        {"topics": 4, "meanSize": 627.1999999999999, "rate": 2500000.0},
    )
    broker = {**FACTS.broker, "adminUrl": None, "evidence": True}
    found = shown(run(document(facts={"machine": machine, "plan": plan, "broker": broker})))
    facts = dict(row for row in found.rows if len(row) == 2)
    assert (facts["memory"], facts["meanSize"], facts["rate"]) == ("23.5 GiB", "627.2", "2 500 000")
    assert not {"adminUrl", "evidence"} & set(facts)
