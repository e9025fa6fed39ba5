"""The overview of all runs of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.documents import FACTS, document
from builders.kinds import KINDS
from builders.measurements import spread
from builders.results import run, shown

from pytest_loadtest.report.build import build_document
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
            ["Because the generator Remedy: lower the rate", "No verdict: generator-limited."],
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
    assert found.rows[1][:2] == ["test_smoke", outcome]
    assert f"1 {outcome} of 1 run" in found.words
    assert sum(attributes.get("data-outcome") == outcome for _, attributes in found.tags) >= 3
    assert [word for word in words if word not in found.reads] == []


def test_a_page_without_readable_results_says_so() -> None:
    found = shown(unreadable=("x/results.json: cannot be read",))
    assert "none that can be read of 0 runs" in found.words
    assert found.charts == {}


def test_a_scaled_run_is_marked_in_overview_and_run() -> None:
    found = shown(run(document(facts={"scale": 0.001, "scaling": {"rate": "10 M → 10 k msg/s"}})))
    assert found.reads.count("says nothing about the full load") >= 2
    assert found.rows[1][0] == "test_smoke ×0.001"
    assert "1 of 1 run scaled or shortened: " in found.reads
    assert "SCALED ×0.001 (rate 10 M → 10 k msg/s)" in found.reads


def test_titles_distinguish_attempts_and_workloads() -> None:
    found = shown(run(document(), attempt=2), run(document(facts={"workload": "telemetry"})))
    assert [row[0] for row in found.rows[1:3]] == [
        "test_smoke · attempt 2",
        "test_smoke · workload telemetry",
    ]


def test_tests_of_several_files_have_their_file_below_their_name() -> None:
    tests = ("a/test_x.py::test_it", "b/test_x.py::test_it")
    found = shown(*(run(document(facts={"test": test})) for test in tests))
    assert [row[0] for row in found.rows[1:3]] == ["test_it a/test_x.py", "test_it b/test_x.py"]


def test_unreadable_results_are_listed() -> None:
    assert (
        "Results that cannot be read x/results.json: cannot be read"
        in shown(run(document()), unreadable=("x/results.json: cannot be read",)).reads
    )


def test_the_row_of_a_run_has_its_tightest_objective_and_its_figures() -> None:
    """The test's file is on hover: the name is short."""
    counts = {"lost": 3, "received": 99_997, "duplicates": 2}
    found = shown(run(document({"loss": 0, "endToEndLatency": {"p99": "15ms"}}, counts=counts)))
    assert found.rows[1][2:] == [
        "loss 3 <= 0 3 too many; and 1 more missed",
        "10.0 k msg/s of 10.0 k msg/s offered",
        "19.8 ms",
        "3",
        "2",
    ]
    link = next(attributes for tag, attributes in found.tags if "title" in attributes)
    assert (link["href"], link["title"]) == ("#run-1", FACTS.test)


def test_what_a_run_could_not_apply_is_in_its_row_and_never_folded() -> None:
    driver = {"not_applied": {"tcpNoDelay": "always on"}}
    found = shown(run(document(facts={"driver": driver, "notes": ("Spark started again",)})))
    assert found.rows[1][0] == "test_smoke 1 note not set: tcpNoDelay"
    before, _, _ = found.reads.partition("Objectives, misses and tight ones first")
    assert "Notes Spark started again Not set tcpNoDelay: always on" in before


def test_the_change_against_the_baseline_is_an_arrow_with_its_interval() -> None:
    """A session without a comparison has no such column."""
    found = shown(run(KINDS["compared"]()), run(document()))
    assert found.rows[0][-1] == "p99, against the baseline"
    assert found.rows[1][-1] == "▲ +31 % +28 % to +34 %, worse"
    assert found.rows[2][-1] == "none"
    assert "against the baseline" not in " ".join(shown(run(document())).rows[0])


def test_facts_are_written_for_people() -> None:
    """Neither bytes of memory nor fifteen digits; and nothing that only a program needs."""
    machine, plan = (
        {"memory": 25_276_502_016, "cores": 2},
        {"topics": 4, "meanSize": 627.1999999999999, "rate": 2500000.0},
    )
    broker = {**FACTS.broker, "adminUrl": None, "evidence": True}
    found = shown(run(document(facts={"machine": machine, "plan": plan, "broker": broker})))
    facts = dict(row for row in found.rows if len(row) == 2)
    assert "Plan of all runs" in found.words
    assert (facts["memory"], facts["meanSize"], facts["rate"]) == ("23.5 GiB", "627.2", "2 500 000")
    assert not {"adminUrl", "evidence"} & set(facts)


def test_identical_environments_are_shown_once() -> None:
    """Facts that differ name the runs that they apply to."""
    other = document(facts={"test": "a.py::test_other", "machine": {"cores": 64}})
    found = shown(run(document()), run(other))
    assert found.words.count("Versions of all runs") == 2, "the title and the caption"
    assert {"Machine of test_smoke", "Machine of test_other"} <= set(found.words)
