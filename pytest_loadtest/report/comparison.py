"""Compare a run with a baseline: the section ``comparison`` of its document, and its lines.

The findings of objectives on regression are made here, too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.report.comparable import differences
from pytest_loadtest.report.figures import (
    Figure,
    Noise,
    figures,
    is_never,
    latency_of,
    latency_percentiles,
    measure_noise,
    own_delay,
)
from pytest_loadtest.report.measured import finite, section_of
from pytest_loadtest.report.sections import format_figure, mark
from pytest_loadtest.report.tables import Table, terminal_lines
from pytest_loadtest.report.verdict_section import (
    BaselineSection,
    BlocksSection,
    ComparisonSection,
    DifferenceEntry,
    FigureEntry,
)
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.changes import Changed, judge_change, percent
from pytest_loadtest.verdict.grammar import LATENCY, REGRESSION, THROUGHPUT
from pytest_loadtest.verdict.slo import Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.verdict.objectives import Objective

SHOWN = tuple(f"{LATENCY}.{statistic}" for statistic in ("p50", "p90", "p99", "p99.9"))
"""Percentiles that every comparison has."""
VALID = (Outcome.MET, Outcome.MISSED)
"""Outcomes of runs whose figures can be compared."""


class Comparison(NamedTuple):
    """The section of the document, and the findings of the objectives on regression."""

    section: ComparisonSection
    findings: tuple[Finding, ...]


def compare_runs(
    baseline: RunDocument, now: RunDocument, gates: Sequence[Objective] = (), *, force: bool = False
) -> Comparison:
    """Compare a run with a baseline.

    :param force: judge the gates also if the two are not comparable.
    """
    percentiles = latency_percentiles(dict.fromkeys((*(gate.statistic for gate in gates), *SHOWN)))
    differing = differences(baseline, now)
    notes = []
    for role, run in (("baseline", baseline), ("run", now)):
        if not _is_valid(run):
            notes.append(f"the {role} is {run.verdict.outcome}")
    obstacle = _incomparable(differing, notes)
    own_figures = figures(now, percentiles)
    changed, blocks = _changed(baseline, now, own_figures, percentiles)
    findings = []
    for gate in gates:
        change = _unknown(obstacle)
        if not obstacle or (force and not notes):
            change = _targets_change(gate, changed.get(gate.statistic), baseline, now)
        finding = judge_change(gate, change)
        if obstacle and force:
            text = f"{finding.text}; forced, the runs are not comparable"
            finding = replace(finding, text=text)
        findings.append(finding)
    rows = [_row(name, figure, changed[name], findings) for name, figure in own_figures.items()]
    section = ComparisonSection(
        baseline=_baseline_section(baseline),
        comparable=not obstacle,
        forced=bool(obstacle) and force,
        differences=tuple(differing),
        blocks=blocks,
        rows=tuple(rows),
        notes=tuple(notes),
    )
    return Comparison(section, tuple(findings))


def missing_comparison(gates: Sequence[Objective], why: str) -> Comparison:
    """Return the comparison of a run for which no baseline was found."""
    findings = tuple(judge_change(gate, _unknown(why)) for gate in gates)
    section = ComparisonSection(
        baseline=None,
        comparable=False,
        forced=False,
        differences=(),
        blocks=None,
        rows=(),
        notes=(why,),
    )
    return Comparison(section, findings)


def _baseline_section(baseline: RunDocument) -> BaselineSection:
    """Return the section of a baseline.

    It has the histogram, so that both curves can be drawn when the baseline's folder is gone.
    """
    latency = latency_of(baseline, "endToEnd")
    return section_of(
        BaselineSection,
        baseline,
        outcome=baseline.verdict.outcome,
        histogram=latency and latency.histogram,
    )


def _is_valid(run: RunDocument) -> bool:
    """Return True if the run has an outcome of its own.

    *No data* only because of its own comparison does not count against it.
    """
    verdict = run.verdict
    if run.measurements is None:
        return False
    if verdict.outcome in VALID:
        return True
    unjudged = {finding.text for finding in verdict.findings if finding.metric == REGRESSION}
    return bool(verdict.reasons) and unjudged.issuperset(verdict.reasons)


def _incomparable(differing: Sequence[DifferenceEntry], notes: Sequence[str]) -> str:
    """Return why the two runs cannot be compared; empty if they can."""
    deciding = [f"{fact.name} {fact.baseline} → {fact.now}" for fact in differing if fact.decides]
    if not deciding:
        return "; ".join(notes)
    text = f"not comparable: {', '.join(deciding[:3])}"
    if len(deciding) > 3:
        text += f" and {len(deciding) - 3} more"
    return "; ".join([f"{text} (--load-baseline-force judges anyway)", *notes])


def _changed(
    baseline: RunDocument, now: RunDocument, after: Mapping[str, Figure], percentiles: Sequence[str]
) -> tuple[dict[str, Changed], BlocksSection | None]:
    """Return the change of each figure that either run has, and the blocks of the intervals.

    :param after: the figures of ``now``.
    """
    from pytest_loadtest.metrics.resampled import LEVEL

    before = figures(baseline, percentiles)
    noises = (measure_noise(baseline, percentiles), measure_noise(now, percentiles))
    latency = latency_of(now, "endToEnd")
    changed = {}
    for name in dict.fromkeys((*after, *before)):
        new = after.get(name)
        old = before.get(name)
        if new and old and new.unit != old.unit:
            # A profile may bound a number of messages in one run and a share of them in the
            # other; neither is a change of the other.
            old = None
        values = Changed(
            unit=(new or before[name]).unit,
            baseline=old.value if old else None,
            now=new.value if new else None,
            samples=0 if latency is None else latency.samples,
        )
        changed[name] = _with_interval(name, values, noises)
    blocks = None
    if all(noise.errors for noise in noises):
        blocks = BlocksSection(
            length=noises[1].length,
            baseline=noises[0].blocks,
            now=noises[1].blocks,
            level=LEVEL,
        )
    return changed, blocks


def _with_interval(name: str, changed: Changed, noises: tuple[Noise, Noise]) -> Changed:
    """Return the change of a figure with its interval, or with the reason why it has none.

    :param noises: of the baseline and of the run.
    """
    from pytest_loadtest.metrics.resampled import Estimate, between

    before = changed.baseline
    after = changed.now
    if not before or not after:
        side = "run" if before else "baseline"
        return replace(changed, why=f"not measured in the {side}, or on too few samples")
    unknown = [noise.why for noise in noises if name not in noise.errors]
    if unknown:
        return replace(changed, why=unknown[0])
    earlier, later = noises
    interval = between(
        Estimate(before, earlier.errors[name], earlier.blocks),
        Estimate(after, later.errors[name], later.blocks),
    )
    error = max(earlier.clock_error, later.clock_error)
    if name == THROUGHPUT or not error:
        return replace(changed, interval=interval)
    # Each latency may be off by its run's error in either direction, for the whole run, so no
    # noise within the run shows it.
    off_before = earlier.clock_error / before
    off_after = later.clock_error / after
    least = (1 + interval.low) * max(1 - off_after, 0) / (1 + off_before)
    most = math.inf
    if off_before < 1:
        most = (1 + interval.high) * (1 + off_after) / (1 - off_before)
    return replace(
        changed,
        interval=interval._replace(low=least - 1, high=most - 1),
        doubt=f"noise and the error of the clocks between hosts, {format_duration(error)}",
    )


def _unknown(why: str) -> Changed:
    return Changed(unit="", baseline=None, now=None, why=why)


def _targets_change(
    gate: Objective, changed: Changed | None, baseline: RunDocument, now: RunDocument
) -> Changed:
    """Return the change that a gate judges.

    It is unknown if the generator's own delay differs between the runs by more than the gate
    allows: that lasts for a whole run, so no interval shows it.
    """
    if changed is None:
        return _unknown("measured in neither run")
    if gate.statistic == THROUGHPUT:
        return changed
    if changed.interval is None:
        # The latency may be *never* in one of the runs.
        if is_never(baseline, gate.statistic):
            return _unknown("never in the baseline, where too many messages did not come")
        if changed.baseline and is_never(now, gate.statistic):
            changed = replace(changed, now=math.inf)
        return changed
    before = own_delay(baseline, gate.statistic)
    after = own_delay(now, gate.statistic)
    allowed = (gate.maximum or 0.0) * (changed.baseline or 0.0)
    if before is None or after is None or abs(after - before) <= allowed:
        return changed
    name = gate.statistic.partition(".")[2]
    delays = f"from {format_duration(before)} to {format_duration(after)} ({name})"
    excess = f"which is more than the allowed {format_duration(allowed)}"
    return _unknown(f"the generator's own send delay went {delays}, {excess}")


def _row(name: str, figure: Figure, changed: Changed, findings: Sequence[Finding]) -> FigureEntry:
    before = changed.baseline
    after = changed.now
    change = low = high = None
    if changed.interval is not None:
        change, low, high = changed.interval
    elif before and after is not None:
        change = after / before - 1
    outcomes = {finding.objective.statistic: finding.outcome for finding in reversed(findings)}
    return FigureEntry(
        name=name,
        unit=figure.unit,
        better="more" if figure.more else "less",
        baseline=before,
        now=after,
        change=change,
        low=low,
        high=finite(high),
        outcome=outcomes.get(name),
    )


# The section ``comparison`` of a run's document as lines of the terminal.

MOST_DIFFERENCES = 8


def comparison_lines(section: ComparisonSection | None, *, unicode: bool = True) -> Iterable[str]:
    """Yield the baseline, the differences, then a row for each figure.

    Nothing is yielded if there was no comparison.
    """
    if section is None:
        return
    yield from _baseline_lines(section)
    yield from _difference_lines(section)
    if section.baseline is not None:
        for note in section.notes:
            yield f"             {note}"
    if section.rows:
        yield from _figure_rows(section.rows, unicode)


def _baseline_lines(section: ComparisonSection) -> Iterable[str]:
    baseline = section.baseline
    if baseline is None:
        yield f"  baseline   none: {'; '.join(section.notes)}"
        return
    started = baseline.started or "never began"
    yield f"  baseline   {baseline.results} ({started}, {baseline.outcome})"
    yield f"             {noise_text(section.blocks)}"


def noise_text(blocks: BlocksSection | None) -> str:
    """Return what the intervals are made from, or why there is none."""
    if blocks is None:
        known = "noise is known from 20 s of measured phase on, in both runs"
        return f"no interval: {known}, and not in older results"
    level = f"intervals of {blocks.level * 100:.0f} %"
    many = f"{blocks.baseline} and {blocks.now} blocks of {blocks.length // SECOND} s"
    return f"{level} from {many}: noise within the runs, not from run to run"


def _difference_lines(section: ComparisonSection) -> Iterable[str]:
    deciding = [difference for difference in section.differences if difference.decides]
    others = [difference for difference in section.differences if not difference.decides]
    if deciding:
        forced = "; judged anyway (--load-baseline-force)" if section.forced else ""
        yield f"  NOT COMPARABLE  deciding facts differ{forced}:"
    for differences_of_kind, kind in ((deciding, "decides"), (others, "other")):
        for fact in differences_of_kind[:MOST_DIFFERENCES]:
            yield f"             {kind:<8} {fact.name}: {fact.baseline} → {fact.now}"
        more = len(differences_of_kind) - MOST_DIFFERENCES
        if more > 0:
            yield f"             {kind:<8} … and {more} more in results.json"


def _figure_rows(rows: Sequence[FigureEntry], unicode: bool) -> Iterable[str]:
    marks = [mark(row.outcome, unicode) if row.outcome else " " for row in rows]
    head = ("compared", "baseline", "now", "change", "interval", "")
    table = Table(head=head, align="<>>>><", rows=list(map(figure_cells, rows)))
    yield from terminal_lines(table, marks)


def figure_cells(row: FigureEntry, absent: str = "-") -> tuple[str, str, str, str, str, str]:
    """Return a figure's name, both values, the change, its interval, and its word.

    :param absent: the text of what is unknown.
    """
    before = format_figure(row.baseline, row.unit, absent)
    after = format_figure(row.now, row.unit, absent)
    change = absent if row.change is None else percent(row.change)
    interval = absent
    if row.low is not None and row.high is not None:
        interval = f"{percent(row.low)} to {percent(row.high)}"
    return row.name, before, after, change, interval, change_word(row)


def change_word(row: FigureEntry) -> str:
    """Return ``worse`` or ``better`` if the whole interval agrees, else ``within noise``.

    The word is empty without an interval.
    """
    if row.low is None or row.high is None:
        return ""
    if row.low <= 0 <= row.high:
        return "within noise"
    return "better" if (row.low > 0) == (row.better == "more") else "worse"
