"""The comparison of two runs: rows, findings, and runs that are not comparable."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest
from builders.documents import as_json, changed, document, from_json
from builders.measurements import MS
from builders.runs import run_of, wandering

from pytest_loadtest.metrics.clocks import HostTime
from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.comparison import (
    change_word,
    compare_runs,
    comparison_lines,
    missing_comparison,
)
from pytest_loadtest.report.document import results_schema
from pytest_loadtest.report.verdict_section import BlocksSection, TenthsSection, WindowsSection
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.verdict_section import ComparisonSection, FigureEntry

GATES = Slo.read({"regression": {"endToEndLatency.p99": "10%", "throughput": "5%"}}).gates
BASELINE, SAME, SLOWER = (
    run_of(wandering(1)),
    run_of(wandering(2)),
    run_of(wandering(3, factor=1.3)),
)


def rows(section: ComparisonSection) -> dict[str, FigureEntry]:
    return {row.name: row for row in section.rows}


def test_a_slower_run_misses_its_bound() -> None:
    """Finding and row agree; the figure that did not change is met."""
    section, findings = compare_runs(BASELINE, SLOWER, GATES)
    found = rows(section)
    assert [finding.outcome.value for finding in findings] == ["missed", "met"]
    assert [found[name].outcome for name in ("endToEndLatency.p99", "throughput")] == [
        "missed",
        "met",
    ]
    assert found["endToEndLatency.p99"].low > 0.1
    assert change_word(found["endToEndLatency.p50"]) == "worse"
    assert section.blocks == BlocksSection(length=5_000_000_000, baseline=12, now=12, level=0.95)
    assert (section.comparable, section.forced, section.differences) == (True, False, ())


def test_a_change_within_noise_is_met() -> None:
    section, findings = compare_runs(
        BASELINE, SAME, Slo.read({"regression": {"endToEndLatency.p50": "25%"}}).gates
    )
    row = rows(section)["endToEndLatency.p50"]
    assert (
        row.low is not None
        and row.change is not None
        and row.high is not None
        and row.low < row.change < row.high
    )
    assert findings[0].outcome.value == "met"


def test_a_document_with_a_comparison_obeys_the_schema() -> None:
    """The findings are in its verdict."""
    for found in (
        compare_runs(BASELINE, SLOWER, GATES),
        missing_comparison(GATES, "none is there"),
        compare_runs(BASELINE, document(), ()),
    ):
        whole = with_comparison(SLOWER, found.section, found.findings)
        jsonschema.Draft202012Validator(results_schema()).validate(as_json(whole))
        assert len(whole.verdict.findings) == len(SLOWER.verdict.findings) + len(found.findings)
    assert (
        with_comparison(SLOWER, *compare_runs(BASELINE, SLOWER, GATES)).verdict.outcome == "missed"
    )


def test_the_verdict_is_the_worst_of_run_and_comparison() -> None:
    """With the reason of findings without data."""
    section, (finding, other) = compare_runs(BASELINE, SAME, GATES)
    no_data = replace(other, outcome=Outcome.NO_DATA, text="why")
    alone = SAME.verdict
    assert with_comparison(SAME, section, ()).verdict == alone
    unknown = with_comparison(SAME, section, (finding, no_data)).verdict
    assert (unknown.outcome, unknown.reasons) == (Outcome.NO_DATA, (*alone.reasons, "why"))
    assert len(unknown.findings) == len(alone.findings) + 2


def test_incomparable_runs_are_judged_only_if_forced() -> None:
    other = replace(BASELINE, machine={"cores": 64})
    section, findings = compare_runs(other, SLOWER, GATES)
    assert {finding.outcome.value for finding in findings} == {"no data"}
    assert findings[0].text == (
        "regression.endToEndLatency.p99: not comparable: machine.cores 64 → 2 (--load-baseline-force judges anyway)"
    )
    assert rows(section)["endToEndLatency.p99"].low is not None
    section, findings = compare_runs(other, SLOWER, GATES, force=True)
    assert (section.comparable, section.forced) == (False, True)
    assert findings[0].outcome.value == "missed"
    assert findings[0].text.endswith("; forced, the runs are not comparable")


@pytest.mark.parametrize("which", ["baseline", "run"])
def test_a_run_without_a_valid_outcome_is_not_compared(which: str) -> None:
    """It is neither a baseline nor judged against one, forced or not."""
    verdict = replace(
        BASELINE.verdict, outcome=Outcome.GENERATOR_LIMITED, reasons=("a worker was late",)
    )
    silent = replace(BASELINE, verdict=verdict)
    pair = (silent, SLOWER) if which == "baseline" else (BASELINE, silent)
    section, findings = compare_runs(*pair, GATES, force=True)
    assert {finding.outcome.value for finding in findings} == {"no data"}
    assert section.notes == (f"the {which} is generator-limited",)


def test_a_run_with_no_data_by_comparison_only_is_compared_again() -> None:
    untold = with_comparison(SLOWER, *missing_comparison(GATES, "none is there"))
    assert untold.verdict.outcome == "no data"
    assert [
        finding.outcome.value for finding in compare_runs(BASELINE, untold, GATES).findings
    ] == ["missed", "met"]


def test_a_short_run_has_figures_and_no_intervals() -> None:
    """A bound is not judged on it, and the text has the reason."""
    short = run_of(wandering(1, seconds=10))
    section, findings = compare_runs(short, short, GATES)
    assert section.blocks is None
    assert rows(section)["endToEndLatency.p99"].change == 0
    assert (
        findings[0].text
        == "regression.endToEndLatency.p99: noise is known from 20 s of measured phase on, this run has 10 s"
    )


def test_results_without_blocks_have_no_interval_of_latency() -> None:
    """Throughput has an interval: its series is in all results."""
    older = changed(BASELINE, "measurements/overTime", None)
    section, findings = compare_runs(older, SLOWER, GATES)
    assert rows(section)["endToEndLatency.p99"].low is None
    assert [finding.outcome.value for finding in findings] == ["no data", "met"]


def test_a_percentile_that_became_never_is_missed() -> None:
    """2 % of the messages did not come; the other way round there is nothing to compare with."""
    n = 12_000
    all_came = {"offered": n, "sent": n, "sent_in_time": n, "acked": n, "received": n}
    some_lost = all_came | {"received": n - 240, "received_in_time": n - 240, "lost": 240}
    slo = {"loss": "5%"}
    complete = run_of(wandering(1), slo, counts=all_came | {"received_in_time": n, "lost": 0})
    lossy = run_of(wandering(2), slo, counts=some_lost)
    assert complete.measurements is not None
    gates = GATES[:1]
    missed = compare_runs(complete, lossy, gates).findings[0]
    assert missed.outcome is Outcome.MISSED
    assert missed.text.endswith("never > 10 %: too many never came (63.7 ms → never)")
    unknown = compare_runs(lossy, complete, gates).findings[0]
    assert unknown.outcome is Outcome.NO_DATA
    assert "never in the baseline" in unknown.text


def test_values_in_different_units_are_not_compared() -> None:
    """The profile bounded a number of messages once, and a share of them now: neither is a change of the other."""
    before, now = (
        run_of(wandering(1), {"duplicates": bound}, counts={"duplicates": 5})
        for bound in (10, "1%")
    )
    section, _ = compare_runs(before, now)
    row = rows(section)["duplicates"]
    assert section.comparable
    assert (row.unit, row.baseline, row.now, row.change) == ("ratio", None, 5e-5, None)


def test_a_change_of_the_generators_own_delay_is_not_judged() -> None:
    """It differs by more than the bound."""
    late = changed(
        SLOWER,
        "measurements/latencies/ownSendDelay",
        as_json(SLOWER)["measurements"]["latencies"]["endToEnd"],
    )
    found = compare_runs(BASELINE, late, GATES).findings[0]
    assert found.outcome.value == "no data"
    assert "the generator's own send delay went from" in found.text


def on_hosts(error: int, factor: float = 1.0) -> RunDocument:
    """Return a run on two hosts whose clocks are related with this error, ns."""
    clock = HostTime(host="h2", error=error, round_trip=MS, holds=True)
    seed = 1 if factor == 1.0 else 3
    return run_of(wandering(seed, factor=factor), clocks=(clock,))


@pytest.mark.parametrize(
    ("before", "after", "bound", "outcome"),
    [
        (3, 3, "10%", "missed"),  # from 50 ms to 65 ms: (65 - 3) / (50 + 3) is 17 % more
        (8, 8, "10%", "no data"),  # (65 - 8) / (50 + 8) is less
        (0, 16, "10%", "no data"),
        (16, 0, "10%", "no data"),
        (8, 8, "100%", "met"),  # at most (65 + 8) / (50 - 8), 74 % more
        (60, 0, "100%", "no data"),  # the baseline was at least 0
    ],
)
def test_the_clocks_error_of_both_runs_is_part_of_a_change(
    before: int, after: int, bound: str, outcome: str
) -> None:
    gates = Slo.read({"regression": {"endToEndLatency.p50": bound, "throughput": "5%"}}).gates
    baseline = on_hosts(before * MS)
    slower = on_hosts(after * MS, 1.3)
    section, findings = compare_runs(baseline, slower, gates)
    assert [finding.outcome.value for finding in findings] == [outcome, "met"]
    row = rows(section)["endToEndLatency.p50"]
    assert (change_word(row) == "worse") == (outcome == "missed")
    largest = format_duration(max(before, after) * MS)
    named = f"the error of the clocks between hosts, {largest}"
    assert (named in findings[0].text) == (outcome == "no data")
    assert ("or more)" in findings[0].text) == (before == 60)
    jsonschema.Draft202012Validator(results_schema()).validate(
        as_json(with_comparison(slower, section, findings))
    )


@pytest.mark.parametrize(
    ("complete", "outcome"), [(None, "missed"), (True, "missed"), (False, "no data")]
)
def test_the_error_of_clocks_in_older_results_is_unknown_between_hosts(
    complete: bool | None, outcome: str
) -> None:
    """It is 0 on one host, and if all deliveries are within one. Throughput has no such error."""
    older = as_json(BASELINE)
    del older["measurements"]["clockError"]
    if complete is not None:
        within = {"deliveries": 1, "share": 1.0, "complete": complete}
        older["measurements"]["withinHosts"] = within
    latency, throughput = compare_runs(from_json(older), SLOWER, GATES).findings
    assert [latency.outcome.value, throughput.outcome.value] == [outcome, "met"]
    assert ("error of the clocks between its hosts" in latency.text) == (outcome == "no data")


def test_a_percentile_that_results_do_not_list_is_read_from_the_histogram() -> None:
    section, findings = compare_runs(
        BASELINE, SLOWER, Slo.read({"regression": {"endToEndLatency.p97": "10%"}}).gates
    )
    assert findings[0].outcome.value == "missed"
    assert rows(section)["endToEndLatency.p97"].now == pytest.approx(1.3 * 50e6 * 1.2, rel=0.2)


def test_the_text_has_baseline_differences_and_figures() -> None:
    other = replace(BASELINE, machine={"cores": 64}, versions={**BASELINE.versions, "numpy": "3"})
    text = "\n".join(comparison_lines(compare_runs(other, SLOWER, GATES, force=True).section))
    assert "  baseline   .loadtest/1/test_smoke/1/smoke (2026-11-21T03:00:00+00:00, met)" in text
    assert "NOT COMPARABLE  deciding facts differ; judged anyway (--load-baseline-force):" in text
    assert "decides  machine.cores: 64 → 2" in text
    assert "other    versions.numpy: 3 → -" in text
    assert "✗ endToEndLatency.p99" in text
    assert list(comparison_lines(None)) == []
    assert list(comparison_lines(missing_comparison((), "none is there").section)) == [
        "  baseline   none: none is there"
    ]


def test_values_of_windows_and_tenths_are_no_figures_of_the_run() -> None:
    """The run's own percentile is compared under the same name, and so is a bound on the whole run."""

    windows = WindowsSection(
        width=1, violations=0, number=1, missed=0, generator_limited=0, no_data=0, listed=()
    )
    tenths = TenthsSection(unit="ns", first=1.0, last=1.0)

    def windowed(run: RunDocument) -> RunDocument:
        assert run.measurements is not None
        most = run.measurements.latencies["endToEnd"]
        assert most is not None
        finding = replace(
            run.verdict.findings[0],
            observed=1.0,
            implicit=False,
            metric="endToEndLatency",
            unit="ns",
        )
        in_windows = replace(finding, name="endToEndLatency.p50", windows=windows)
        drifted = replace(finding, name="drift.endToEndLatency.p50", tenths=tenths)
        whole = replace(finding, name="whole.endToEndLatency.p99", observed=most.maximum)
        return replace(run, verdict=replace(run.verdict, findings=(in_windows, drifted, whole)))

    plain = rows(compare_runs(BASELINE, SLOWER, GATES).section)
    found = rows(compare_runs(windowed(BASELINE), windowed(SLOWER), GATES).section)
    assert found["endToEndLatency.p50"] == plain["endToEndLatency.p50"]
    assert (
        found["endToEndLatency.p99"].now
        == as_json(SLOWER)["measurements"]["latencies"]["endToEnd"]["maximum"]
    )
    assert not any(name.startswith(("whole.", "drift.")) for name in found)
