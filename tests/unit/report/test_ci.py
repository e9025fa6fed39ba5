"""The summary and annotations for GitHub Actions, and the metrics for GitLab."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from builders.documents import BOTTLENECK, FACTS, PEAK, document, stage
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.ci import (
    LIMIT,
    Location,
    github_summary,
    gitlab_metrics,
    workflow_commands,
)
from pytest_loadtest.verdict.slo import Outcome, Verdict

BROKEN = build_document(
    FACTS,
    Verdict(
        outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died: exit status -9", "gw2 too")
    ),
    None,
)
MISSED = document()
MET = document({"loss": 0}, facts={"test": "loadtests/test_calm.py::test_calm"})
PLACE = {FACTS.test: Location(file="loadtests/test_smoke.py", line=12, failed=True)}


def cells(line: str) -> list[str]:
    """Return the cells of a table row as GitHub reads them: a backslash escapes a bar."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def parsed(command: str) -> tuple[str, dict[str, str], str]:
    """Parse a workflow command as the runner does (``ActionCommand.cs``)."""
    found = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", command)
    assert found is not None, command

    def unescaped(text: str, names: dict[str, str]) -> str:
        for name, character in names.items():
            text = text.replace(name, character)
        return text

    data = {"%0D": "\r", "%0A": "\n"}
    pairs = (pair.partition("=") for pair in found[2].split(","))
    properties = {
        name: unescaped(value, {**data, "%3A": ":", "%2C": ",", "%25": "%"})
        for name, _, value in pairs
    }
    return found[1], properties, unescaped(found[3], {**data, "%25": "%"})


def test_the_worst_run_comes_first() -> None:
    """The head counts the outcomes."""
    found = github_summary([MET, MISSED, BROKEN])
    assert found.startswith("## Load tests: 1 no data, 1 missed, 1 met\n")
    rows = [cells(line) for line in found.splitlines() if line.startswith("|")][2:5]
    assert [(row[0], row[3]) for row in rows] == [
        ("?", "**no data**"),
        ("✗", "**missed**"),
        ("✓", "**met**"),
    ]
    assert [line[4] for line in found.splitlines() if line.startswith("###")] == ["?", "✗", "✓"]


def test_a_run_has_its_objectives_latencies_and_folder() -> None:
    """Misses come first."""
    found = github_summary([document(counts={"lost": 3, "received": 99_997})]).splitlines()
    rows = [cells(line) for line in found if line.startswith("|")]
    assert rows[2][4:] == ["10.0 k msg/s", "10.5 ms", "19.8 ms", "20.0 ms", "never"]
    misses = [row for row in rows[5:] if row[0] == "✗"]
    assert [row[1] for row in misses] == ["endToEndLatency.p99", "loss (implicit)"]
    assert misses[0][2:] == ["19.8 ms", r"\<= 15.0 ms", "100 000", "over by 32 %"]
    assert found[-1] == "Results: `.loadtest/1/test_smoke/1/smoke`"
    assert any(row[0] == "end-to-end" for row in rows)


def test_the_summary_marks_a_scaled_run() -> None:
    found = github_summary(
        [document(facts={"scale": 0.001, "scaling": {"rate": "2.50 M → 2 500 msg/s"}})]
    )
    assert "**missed (SCALED ×0.001)**" in found
    assert "SCALED ×0.001: says nothing about the full load (rate 2.50 M → 2 500 msg/s)" in found


def test_the_summary_names_settings_that_were_not_applied() -> None:
    """The terminal and the page do, too."""
    driver = {**FACTS.driver, "not_applied": {"ackTimeout": "no such setting"}}
    summary = github_summary([document(facts={"driver": driver})])
    assert "- not set: ackTimeout: no such setting\n" in summary


def test_the_summary_has_peak_stages_and_bottleneck() -> None:
    parts = {
        "stages": (stage("ramp", {"loss": 0}), stage("spike")),
        "peak": PEAK,
        "bottleneck": BOTTLENECK,
    }
    found = github_summary([document(parts=parts)])
    assert "- peak: 19 843 msg/s, held for 60.0 s" in found
    assert "- bottleneck: broker CPU: mosquitto's busiest thread" in found
    assert "| stage spike: endToEndLatency.p99 |" in found


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_no_name_breaks_the_table(name: str) -> None:
    """Each row has nine cells, and no other line is added, whatever the name of a test."""
    found = github_summary([replace(MISSED, test=name)])
    rows = [line for line in found.split("\n") if line.startswith("|")]
    assert len(cells(rows[2])) == 9
    assert len(found.split("\n")) == len(github_summary([MISSED]).split("\n"))


@given(st.integers(0, 40_000), st.integers(1, 12))
def test_the_summary_is_not_larger_than_allowed(room: int, runs: int) -> None:
    """It has a note on the omitted entries if there is room for it."""
    found = github_summary([MISSED] * runs, room)
    size = len(found.encode())
    assert size <= max(room, 60)
    if size < len(github_summary([MISSED] * runs).encode()) and room > 1000:
        assert re.search(r"… and \d+ more (rows|runs)", found)


def test_three_thousand_runs_fit_in_a_summary() -> None:
    """GitHub shows nothing of a summary above 1 MiB."""
    found = github_summary(
        [replace(MISSED, test=f"loadtests/test_it.py::test_{i}") for i in range(3000)]
    )
    assert LIMIT * 0.9 < len(found.encode()) <= LIMIT
    assert re.search(r"… and \d+ more runs: see the results folder\n$", found)


def test_an_annotation_is_an_error_at_the_tests_line() -> None:
    """It has every miss."""
    level, properties, data = parsed(
        workflow_commands([document(counts={"lost": 3, "received": 99_997})], PLACE)[0]
    )
    assert (level, properties["file"], properties["line"]) == (
        "error",
        "loadtests/test_smoke.py",
        "12",
    )
    assert properties["title"] == f"{FACTS.test}: missed"
    lines = data.split("\n")
    assert any(line.startswith("endToEndLatency.p99 19.8 ms > 15.0 ms") for line in lines)
    assert lines[-1] == "results: .loadtest/1/test_smoke/1/smoke"


def test_only_runs_that_were_not_met_have_an_annotation() -> None:
    """A broken run's annotation has its cause."""
    (only,) = workflow_commands([MET, BROKEN], PLACE)
    assert parsed(only)[2].split("\n")[:2] == ["worker gw1 died: exit status -9", "gw2 too"]


def test_a_missed_run_of_a_passed_test_is_a_warning() -> None:
    """``judge=False``, or an expected failure; the annotation for an unknown test has no place."""
    places = {FACTS.test: Location(file="a.py", line=1, failed=False)}
    assert parsed(workflow_commands([MISSED], places)[0])[0] == "warning"
    level, properties, _ = parsed(workflow_commands([MISSED], {})[0])
    assert (level, sorted(properties)) == ("error", ["title"])


@given(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
)
def test_special_characters_survive_the_escapes(reason: str, test: str) -> None:
    """The command is one line of output."""
    (command,) = workflow_commands(
        [replace(BROKEN, test=test, verdict=replace(BROKEN.verdict, reasons=(reason,)))],
        {test: Location(file=test, line=3, failed=True)},
    )
    assert "\n" not in command
    assert "\r" not in command
    _, properties, data = parsed(command)
    assert properties["file"] == test
    assert data.split("\nresults: ")[0] == reason


GITLAB_MISSED = document()
GITLAB_BROKEN = build_document(
    FACTS, Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",)), None
)


def of_gitlab(text: str) -> dict[str, str]:
    """Parse name with labels → value by the rules of GitLab's parser: ``line.gsub(/#.*$/, '').shellsplit``."""
    words = [shlex.split(line.partition("#")[0]) for line in text.split("\n")]
    return {name: value for name, value, *_ in filter(None, words)}


def of_openmetrics(text: str) -> dict[tuple[str, ...], float]:
    """Parse sample name and label values, by name → value."""
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for sample in samples
    }


def test_the_metrics_are_valid_openmetrics() -> None:
    found = of_openmetrics(gitlab_metrics([document(parts={"peak": PEAK})]))
    who = ("smoke", "", FACTS.test, "")
    assert found["loadtest_outcome", "missed", *who] == 1
    assert (
        found["loadtest_latency_seconds", "end-to-end", "smoke", "p99", "", FACTS.test, ""]
        == 0.0198
    )
    assert found["loadtest_messages", "lost", *who] == 0
    assert found["loadtest_peak_per_second", "smoke", "", FACTS.test, "messages", ""] == 19_800
    assert gitlab_metrics([GITLAB_MISSED]).endswith("# EOF\n")


def test_gitlab_reads_the_same_names_and_values() -> None:
    text = gitlab_metrics([GITLAB_MISSED, replace(GITLAB_MISSED, test="other")])
    found = of_gitlab(text)
    assert len(found) == len(of_openmetrics(text))
    assert (
        found[
            f"loadtest_outcome{{outcome=missed,profile=smoke,scale=,test={FACTS.test},workload=}}"
        ]
        == "1.0"
    )


def test_missing_values_are_left_out_of_the_metrics() -> None:
    # How many objectives a broken run would have missed is unknown, not 0.
    assert {name for name, *_ in of_openmetrics(gitlab_metrics([GITLAB_BROKEN]))} == {
        "loadtest_outcome"
    }
    without = of_openmetrics(
        gitlab_metrics([document(publish=None, counts={"out_of_order": None})])
    )
    assert not [labels for labels in without if "publish" in labels or "outOfOrder" in labels]


def test_the_last_of_several_attempts_counts() -> None:
    """Each name may occur once."""
    found = of_openmetrics(gitlab_metrics([GITLAB_BROKEN, GITLAB_MISSED]))
    assert [labels[1] for labels in found if labels[0] == "loadtest_outcome"] == ["missed"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=60))
def test_no_name_of_a_test_breaks_the_file(name: str) -> None:
    """The file stays valid for GitLab and for OpenMetrics."""
    text = gitlab_metrics([replace(GITLAB_MISSED, test=name)])
    assert len(of_gitlab(text)) == len(of_openmetrics(text))
