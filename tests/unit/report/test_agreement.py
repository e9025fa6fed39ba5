"""Every report of a run has the same numbers: terminal, HTML, GitHub, JUnit, GitLab, OMB and Markdown, compared over the whole catalogue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.comparisons import comparisons
from builders.documents import document
from builders.measurements import MS, OTHERS_SEND, lateness, spread
from builders.report import of_each_outcome
from builders.results import run, shown
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.metrics.expected import Opening
from pytest_loadtest.report import omb
from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.ci import github_summary, gitlab_metrics
from pytest_loadtest.report.comparison import comparison_lines
from pytest_loadtest.report.comparison_markdown import comparison_markdown
from pytest_loadtest.report.html.charts import TITLES
from pytest_loadtest.report.junit import junit_properties
from pytest_loadtest.report.markdown import escaped
from pytest_loadtest.report.terminal import (
    ROWS,
    brief_lines,
    quiet_lines,
    session_line,
    summary_lines,
)
from pytest_loadtest.values.quantities import format_duration, format_rate
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import LatencySection, MeasurementsSection


SHOWN = ("p50", "p90", "p99", "p99.9")
"""Percentiles of the tables."""


def everything(**changed: Any) -> RunDocument:
    """Return a run with each latency and each count of the catalogue, no two of which are equal."""
    kinds = {
        attribute: spread(1 + number, 100 + 7 * number)
        for number, attribute in enumerate(LATENCIES)
    }
    signed = lateness(np.repeat(np.arange(-5, 90), 200) * MS)
    counts = {row.attribute: 90_000 - 7 * number for number, row in enumerate(COUNTS)}
    return document(
        **{
            **kinds,
            "lateness": signed,
            "earliness": spread(3, 11),
            "counts": counts,
            "broadcasts": True,
            **changed,
        }
    )


NOTHING = {row.attribute: 0 for row in COUNTS if not row.optional}
CONNECTIONS = document(
    rate=0.0, subscriptions=0, counts=NOTHING, end_to_end=None, publish=None, send_delay=None, own_send_delay=None, connect=spread(1, 20),
    opening=Opening(connections=1000, took=9_993 * MS, busiest="gw1", cpu=0.25, begun_late=MS, in_time=1000, alone=True, rate=100.0),
)  # fmt: skip
RUNS = {
    "everything": everything(),
    "unknown": everything(
        publish=None, receive_lag=None, counts={"out_of_order": None, "foreign": None}
    ),
    "too few": everything(end_to_end=spread(1, 20, 30), send_delay=spread(1, 2, 150)),
    "many never came": everything(
        counts={"lost": 60_000, "acked": 100_000, "received": 40_000},
        end_to_end=spread(1, 20, 40_000),
    ),
    "nothing received": document(
        end_to_end=None, counts={"received": 0, "received_in_time": 0, "lost": 100_000}
    ),
    "nothing subscribes": document(
        subscriptions=0, end_to_end=None, counts={"received": 0, "received_in_time": 0}
    ),
    "others send": document(
        rate=0.0,
        end_to_end=None,
        publish=None,
        send_delay=None,
        own_send_delay=None,
        counts=OTHERS_SEND,
    ),
    "connections": CONNECTIONS,
}


def measured(document: RunDocument) -> MeasurementsSection:
    assert document.measurements is not None
    return document.measurements


def rows_of_terminal(document: RunDocument) -> dict[str, list[str]]:
    """Return the table of latencies: cells by kind."""
    lines = summary_lines(document)
    first = next(at for at, line in enumerate(lines) if line.startswith("  latency "))
    by_name = {row.strip(): key for key, row in ROWS.items()}
    cells = [re.split(r" {2,}", line.strip()) for line in lines[first + 1 :]]
    return {
        by_name[row[0]]: row[1:-1]
        for row in cells
        if row[0] in by_name and len(row) == len(SHOWN) + 4
    }


def rows_of_html(document: RunDocument) -> dict[str, list[str]]:
    by_name = {title: key for key, title in TITLES.items()}
    rows = [
        row for row in shown(run(document)).rows if row[0] in by_name and len(row) == len(SHOWN) + 6
    ]
    return {by_name[row[0]]: [cell.strip() for cell in row[2 : len(SHOWN) + 4]] for row in rows}


def rows_of_github(document: RunDocument) -> dict[str, list[str]]:
    by_name = {row.strip(): key for key, row in ROWS.items()}
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in github_summary([document]).splitlines()
        if line.startswith("|")
    ]
    return {
        by_name[row[0]]: row[1:] for row in rows if row[0] in by_name and len(row) == len(SHOWN) + 2
    }


def values_of_gitlab(document: RunDocument) -> dict[tuple[str, ...], float]:
    """Return the values by metric and by the labels that tell its values apart."""
    names = ("kind", "quantile", "count", "outcome")
    samples = [
        sample
        for family in text_string_to_metric_families(gitlab_metrics([document]))
        for sample in family.samples
    ]
    return {
        (
            sample.name,
            *(sample.labels[name] for name in names if name in sample.labels),
        ): sample.value
        for sample in samples
    }


@pytest.mark.parametrize("name", RUNS)
def test_the_tables_of_latencies_agree(name: str) -> None:
    """Terminal, page and GitHub have the same rows; a cell is the number of the results, or a word that says why there is none."""
    document = RUNS[name]
    terminal, page, github = (
        rows_of_terminal(document),
        rows_of_html(document),
        rows_of_github(document),
    )
    assert terminal.keys() == page.keys() == github.keys()
    for key, cells in terminal.items():
        latency = measured(document).latencies.get(key)
        if latency is None:
            assert (set(cells), set(page[key]), set(github[key])) == (
                {"-"},
                {"not measured"},
                {"-"},
            )
            continue
        assert cells == page[key]
        assert cells[:-1] == github[key]
        beyond = "never" if latency.never_came else "unknown"
        top = beyond if latency.maximum is None else format_duration(latency.maximum)
        assert cells[-2:] == [top, format_duration(latency.mean)]
        for cell, percentile in zip(cells, SHOWN, strict=False):
            value = latency.percentiles[percentile]
            assert cell in (
                ("too few", "never", "unknown") if value is None else (format_duration(value),)
            )


def test_the_largest_latency_is_never_if_a_message_never_came() -> None:
    """In every table, and in the results; also where so few never came that each percentile is a number."""
    counts = {"offered": 100_000, "sent": 100_000, "acked": 100_000, "received": 99_999, "lost": 1}
    lost = document(
        {"loss": "0.01%", "endToEndLatency": {"p99": "1s"}},
        counts=counts,
        end_to_end=spread(1, 20, 99_999),
    )
    kept = document(
        {"loss": 0, "endToEndLatency": {"p99": "1s"}},
        counts=counts,
        end_to_end=spread(1, 20, 99_999),
    )
    for found, top, largest in ((lost, "20.0 ms", 20 * MS), (kept, "never", None)):
        tables = (
            rows_of_terminal(found)["endToEnd"],
            rows_of_html(found)["endToEnd"],
            rows_of_github(found)["endToEnd"] + ["mean"],
        )
        assert [cells[-2] for cells in tables] == [top] * 3
        latency = measured(found).latencies["endToEnd"]
        assert latency is not None
        assert (latency.maximum, latency.largest) == (largest, 20 * MS)
        assert ("load.end_to_end.max.ms" in dict(junit_properties(found))) == (largest is not None)
        assert omb.test_result(found)["aggregatedEndToEndLatencyMax"] == (
            None if largest is None else pytest.approx(20)
        )


@pytest.mark.parametrize("name", RUNS)
def test_junit_gitlab_and_omb_have_the_latencies_of_the_results(name: str) -> None:
    """A value that is unknown in the results is missing there, and never 0."""
    document = RUNS[name]
    junit, gitlab, results = (
        dict(junit_properties(document)),
        values_of_gitlab(document),
        omb.test_result(document),
    )
    for attribute, metric in LATENCIES.items():
        latency = measured(document).latencies.get(metric.key)
        values: dict[str, int | None] = {} if latency is None else dict(latency.percentiles)
        exported = {
            p: value for p, value in values.items() if value is not None and metric.exported
        }
        top = (
            {}
            if latency is None or latency.maximum is None or not metric.exported
            else {"max": latency.maximum}
        )
        found = {
            name.split(".", 2)[2][:-3]: float(value)
            for name, value in junit.items()
            if name.startswith((f"load.{attribute}.p", f"load.{attribute}.max"))
        }
        assert found == {
            p: pytest.approx(value / 1e6, abs=0.0005) for p, value in (exported | top).items()
        }
        found = {
            key[2]: value
            for key, value in gitlab.items()
            if key[:2] == ("loadtest_latency_seconds", metric.label)
        }
        assert found == {
            p: pytest.approx(exported[p] / 1e9, rel=0.005)
            for p in ("p50", "p99", "p99.9")
            if p in exported
        }
        if metric.omb:
            check_omb(results, metric.omb, latency)


def check_omb(results: dict[str, Any], prefix: str, latency: LatencySection | None) -> None:
    unit, name = (
        omb.UNITS.get(prefix, omb.MILLISECONDS),
        f"aggregated{prefix[0].upper()}{prefix[1:]}",
    )
    for statistic, p in omb.PERCENTILES.items():
        value = None if latency is None else latency.percentiles[p]
        assert results[f"{name}{statistic}"] == (
            None
            if value is None
            else pytest.approx(value / unit, abs=0.5 if unit == omb.MICROSECONDS else 0)
        )
    top = None if latency is None else latency.maximum
    assert results[f"{name}Max"] == (None if top is None else pytest.approx(top / unit, abs=0.5))


@pytest.mark.parametrize("name", RUNS)
def test_the_counts_and_rates_agree(name: str) -> None:
    """A run without messages has neither."""
    document = RUNS[name]
    section, junit, gitlab = (
        measured(document),
        dict(junit_properties(document)),
        values_of_gitlab(document),
    )
    text, rows = (
        "\n".join(summary_lines(document)),
        {row[0]: row[1] for row in shown(run(document)).rows if len(row) == 3},
    )
    messages = document is not CONNECTIONS
    for row in COUNTS:
        count = section.counts[row.key]
        applies = count is not None and (section.subscriptions or not row.inbound)
        exported = row.exported and applies and messages
        assert junit.get(f"load.{row.key}") == (
            str(count) if exported or (row.key in junit_extras(section) and messages) else None
        )
        assert gitlab.get(("loadtest_messages", row.key)) == (count if exported else None)
        if messages:
            assert rows[row.label] == (
                exact(count) if count is not None and applies else "not applicable"
            )
        if exported:
            assert re.search(rf"\b{row.label} {exact(count or 0)}\b", text)
    rates = {"rate": section.rate if messages else None, "throughput": section.throughput}
    for what, rate in rates.items():
        assert (
            (f"load.{what}.msg_per_s" in junit)
            == ((f"loadtest_{what}_per_second",) in gitlab)
            == (rate is not None)
        )
        if rate is not None:
            assert float(junit[f"load.{what}.msg_per_s"]) == pytest.approx(rate, abs=0.05)
            assert gitlab[f"loadtest_{what}_per_second",] == pytest.approx(rate, rel=0.005)
            assert format_rate(rate) in text


def junit_extras(section: MeasurementsSection) -> set[str]:
    """Return the counts that JUnit has only for the runs that have them."""
    extras = {key for key in ("outOfDueOrder",) if section.counts[key] is not None}
    return extras | ({"resent", "duplicatesOfResent"} if section.counts["resent"] else set())


@pytest.mark.parametrize("name", RUNS)
def test_the_verdict_has_the_same_words(name: str) -> None:
    """Each objective has one outcome, one observed value and one bound in all of them."""
    document = RUNS[name]
    outcome = document.verdict.outcome.value
    junit, page, github = (
        dict(junit_properties(document)),
        shown(run(document)),
        github_summary([document]),
    )
    assert junit["load.outcome"] == outcome
    assert ("loadtest_outcome", outcome) in values_of_gitlab(document)
    assert (
        summary_lines(document)[0]
        .partition(" · ")[2]
        .startswith(f"profile smoke · {outcome.upper()}")
    )
    assert f"1 {outcome} of 1 run" in page.words
    assert github.startswith(f"## Load tests: 1 {outcome}\n")
    for finding in document.verdict.findings:
        assert junit[f"load.objective.{finding.name}"].startswith(
            f"{finding.outcome.value}: {finding.name}"
        )
        label = finding.name + (" (implicit)" if finding.implicit else "")
        (row,) = (row for row in page.rows if row[0] == label and len(row) == 6)
        assert row[1] == finding.outcome.value
        if finding.observed is not None:
            assert (row[2], row[3]) == (finding.shown.observed, finding.shown.bound)


# The brief summary of the terminal: two lines of a met run, the causes of another one, and the line
# of the session.

ANY = {"throughput": "1%"}
"""Objectives that every run of :data:`BRIEF` meets, if it can be judged."""
BRIEF = {
    "met": document(ANY),
    "too few": document(ANY, end_to_end=spread(1, 20, 30)),
    "nothing subscribes": document(
        {"sent": "1%"}, subscriptions=0, end_to_end=None,
        counts={"received": 0, "received_in_time": 0},
    ),
    "second copies": document(ANY, counts={"duplicates": 0, "out_of_order": None}),
}  # fmt: skip
ENDED = {**RUNS, **of_each_outcome()}


def overview_of_github(made: RunDocument) -> list[str]:
    """Return the cells of a run's row in the summary's first table."""
    row = github_summary([made]).splitlines()[4]
    return [cell.strip() for cell in row.split("|")[1:-1]]


@pytest.mark.parametrize("name", BRIEF)
def test_the_two_lines_of_a_met_run_have_the_numbers_of_the_tables(name: str) -> None:
    """Rate, percentiles and losses are those of the complete summary, the page and GitHub."""
    made = BRIEF[name]
    title, figures = brief_lines(made)
    assert title.endswith(f"· {made.verdict.outcome.value.upper()}")
    key = "endToEnd" if measured(made).subscriptions else "publish"
    p50, _, p99, *_ = rows_of_terminal(made)[key]
    assert f"{ROWS[key].strip()} p50 {p50}, p99 {p99}, " in figures
    lost = measured(made).counts["lost"] if measured(made).subscriptions else None
    assert f", lost {'not applicable' if lost is None else exact(lost)} · " in figures
    delivered = overview_of_github(made)[4]
    if measured(made).subscriptions:
        assert figures.strip().startswith(f"{delivered}, ")
        assert rows_of_github(made)[key][0] == p50
    tightest = figures.partition("tightest ")[2]
    (finding,) = [
        finding for finding in made.verdict.findings if tightest.startswith(f"{finding.name} ")
    ]
    assert f"{finding.shown.observed} {finding.shown.bound}" in tightest
    assert [finding.name, "met", finding.shown.observed, finding.shown.bound] in [
        [row[0].removesuffix(" (implicit)"), *row[1:4]] for row in shown(run(made)).rows
    ]


@pytest.mark.parametrize("name", ENDED)
def test_the_brief_lines_are_lines_of_the_complete_summary(name: str) -> None:
    """But for the title with its sign, objectives that were not met, and the number of lines left out."""
    made = ENDED[name]
    if made.verdict.outcome == "met":
        return
    title, *lines = brief_lines(made)
    complete = summary_lines(made)
    assert title[2:] == complete[0]
    texts = [finding.text for finding in made.verdict.findings if finding.outcome != "met"]
    for line in lines:
        text = line[4:].strip()
        assert (
            line in complete or text in texts or re.fullmatch(r"  … \d+ more lines? with -v", line)
        ), line
    assert set(quiet_lines(made)) <= {title, *lines}


@pytest.mark.parametrize("name", ENDED)
def test_the_causes_of_the_brief_lines_are_those_of_every_report(name: str) -> None:
    made = ENDED[name]
    brief = " ".join(" ".join(brief_lines(made)).split())
    junit = dict(junit_properties(made))
    github = github_summary([made])
    page = shown(run(made))
    for reason in made.verdict.reasons:
        assert " ".join(reason.split()) in brief
        assert escaped(reason) in github
        assert " ".join(reason.split()) in page.reads
    for finding in made.verdict.findings:
        if finding.outcome == "missed":
            assert finding.text in brief
            assert junit[f"load.objective.{finding.name}"] == f"missed: {finding.text}"


def test_the_line_of_the_session_has_the_counts_of_github_and_of_the_page() -> None:
    runs = list(of_each_outcome().values())
    line = session_line((run.verdict.outcome for run in runs), 0)
    counts = line.removeprefix("load tests: ")
    assert github_summary(runs).startswith(f"## Load tests: {counts}\n")
    assert f"{counts} of {len(runs)} runs" in shown(*map(run, runs)).words


# Comparisons: terminal, page, GitHub's summary, and the comment on a pull request.

COMPARED = {name: test for name, test in comparisons().items() if test.section is not None}


def figures_of_markdown(text: str) -> dict[str, list[str]]:
    """Return the rows of figures by name, without their arrows."""
    found = {}
    for line in text.splitlines():
        row = [cell.strip().lstrip("↑↓ ") for cell in line.split("|")[1:-1]]
        if len(row) == 7 and row[0] not in ("figure", "---"):
            found[row[0]] = row[1:]
    return found


@pytest.mark.parametrize("name", COMPARED)
def test_the_figures_of_a_comparison_agree(name: str) -> None:
    """The word is left out in Markdown if the runs are not comparable; GitHub's summary has the same table."""
    test = COMPARED[name]
    section = test.section
    assert section is not None
    assert test.now is not None
    now = with_comparison(test.now, section, ())
    page = {row[0]: row[1:] for row in shown(run(now)).rows if len(row) == 7}
    markdown = figures_of_markdown(comparison_markdown([test]))
    assert markdown == figures_of_markdown(github_summary([now]))
    lines = [line[4:] for line in comparison_lines(section)]
    assert markdown.keys() == {row.name for row in section.rows}
    for row in section.rows:
        (line,) = [line for line in lines if line.startswith(f"{row.name} ")]
        cells = re.split(r" {2,}", line.strip())[1:]
        word = cells[4] if len(cells) == 5 else ""
        outcome = row.outcome.value if row.outcome else ""
        assert markdown[row.name][:4] == cells[:4]
        assert page[row.name][:4] == [
            cell.replace("-", "not known") if cell == "-" else cell for cell in cells[:4]
        ]
        assert page[row.name][4:] == [word, outcome or "not judged"]
        assert markdown[row.name][5].strip("*") == outcome
        if section.comparable and word:
            assert markdown[row.name][4] == word
        elif not section.comparable:
            assert markdown[row.name][4] == ""


@pytest.mark.parametrize("name", COMPARED)
def test_the_outcomes_of_a_comparison_agree(name: str) -> None:
    """Each bound has the outcome and the words of its finding; both runs have those of their results."""
    test = COMPARED[name]
    text = comparison_markdown([test])
    outcomes = dict.fromkeys(run.verdict.outcome.value for run in test.documents)
    assert f": {' → '.join(outcomes)}\n" in text
    for outcome, line in zip(test.outcomes, test.lines, strict=True):
        assert line.startswith(f"{outcome.value}: ")
        assert f"- {escaped(line)}\n" in text
