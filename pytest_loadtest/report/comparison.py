"""Compare a run with a baseline: the section ``comparison`` of its document, its lines, and the findings of objectives on regression."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.report.comparable import differences
from pytest_loadtest.report.figures import (
    Figure,
    figures,
    latency_percentiles,
    measure_noise,
    own_delay,
)
from pytest_loadtest.report.sections import aligned, format_figure, mark
from pytest_loadtest.report.verdict_section import (
    BaselineSection,
    BlocksSection,
    ComparisonSection,
    FigureEntry,
)
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.changes import Changed, judge_change, percent
from pytest_loadtest.verdict.grammar import LATENCY, REGRESSION, THROUGHPUT
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.metrics.resampled import RelativeChange
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.verdict_section import DifferenceEntry
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import Finding

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
    """Compare a run with a baseline. :param force: judge the gates also if the two are not comparable."""
    percentiles = latency_percentiles(dict.fromkeys((*(gate.statistic for gate in gates), *SHOWN)))
    differing = differences(baseline, now)
    notes = [
        f"the {which} is {run.verdict.outcome}"
        for which, run in (("baseline", baseline), ("run", now))
        if not _is_valid(run)
    ]
    why = _incomparable(differing, notes)
    own_figures = figures(now, percentiles)
    changed, blocks = _changed(baseline, now, own_figures, percentiles)
    judged = not why or (force and not notes)
    findings = tuple(
        judge_change(
            gate,
            _targets_change(gate, changed.get(gate.statistic), baseline, now)
            if judged
            else _unknown(why),
        )
        for gate in gates
    )
    if why and force:
        findings = tuple(
            replace(finding, text=f"{finding.text}; forced, the runs are not comparable")
            for finding in findings
        )
    section = ComparisonSection(
        baseline=_baseline_section(baseline),
        comparable=not why,
        forced=bool(why) and force,
        differences=tuple(differing),
        blocks=blocks,
        rows=tuple(
            _row(name, figure, changed[name], findings) for name, figure in own_figures.items()
        ),
        notes=tuple(notes),
    )
    return Comparison(section, findings)


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
    """The section has the histogram, so that both curves can be drawn when the baseline's folder is gone."""
    latency = None if baseline.measurements is None else baseline.measurements.latencies["endToEnd"]
    return BaselineSection(
        test=baseline.test, results=baseline.results, started=baseline.started, outcome=baseline.verdict.outcome,
        histogram=None if latency is None else latency.histogram,
    )  # fmt: skip


def _is_valid(run: RunDocument) -> bool:
    """Return True if the run has an outcome of its own: *no data* only because of its own comparison does not count against it."""
    verdict = run.verdict
    untold = {finding.text for finding in verdict.findings if finding.metric == REGRESSION}
    return run.measurements is not None and (
        verdict.outcome in VALID or (bool(verdict.reasons) and untold.issuperset(verdict.reasons))
    )


def _incomparable(differing: Sequence[DifferenceEntry], notes: Sequence[str]) -> str:
    """Return why the two runs cannot be compared; empty if they can."""
    deciding = [f"{fact.name} {fact.baseline} → {fact.now}" for fact in differing if fact.decides]
    if not deciding:
        return "; ".join(notes)
    more = f" and {len(deciding) - 3} more" if len(deciding) > 3 else ""
    return "; ".join(
        [
            f"not comparable: {', '.join(deciding[:3])}{more} (--load-baseline-force judges anyway)",
            *notes,
        ]
    )


def _changed(
    baseline: RunDocument, now: RunDocument, after: Mapping[str, Figure], percentiles: Sequence[str]
) -> tuple[dict[str, Changed], BlocksSection | None]:
    """Return the change of each figure that either run has, and the blocks that intervals rest on. :param after: the figures of ``now``."""
    # A profile may bound a number of messages in one run and a share of them in the other; neither is a change of the other.
    before = {
        name: old
        for name, old in figures(baseline, percentiles).items()
        if name not in after or after[name].unit == old.unit
    }
    noises = [measure_noise(run, percentiles) for run in (baseline, now)]
    samples = _samples(now)
    changed = {}
    for name in dict.fromkeys((*after, *before)):
        values = [of.get(name, Figure(None, "")).value for of in (before, after)]
        unit = (after.get(name) or before[name]).unit
        interval, why = _interval(
            values, [noise.errors.get(name) for noise in noises], [noise.blocks for noise in noises]
        )
        if why == "" and interval is None:
            why = next((noise.why for noise in noises if name not in noise.errors), "")
        changed[name] = Changed(
            unit=unit,
            baseline=values[0],
            now=values[1],
            samples=samples,
            interval=interval,
            why=why,
        )
    if not all(noise.errors for noise in noises):
        return changed, None
    from pytest_loadtest.metrics.resampled import LEVEL

    return changed, BlocksSection(
        length=noises[1].length, baseline=noises[0].blocks, now=noises[1].blocks, level=LEVEL
    )


def _samples(run: RunDocument) -> int:
    latency = None if run.measurements is None else run.measurements.latencies["endToEnd"]
    return 0 if latency is None else latency.samples


def _interval(
    values: Sequence[float | None], errors: Sequence[float | None], blocks: Sequence[int]
) -> tuple[RelativeChange | None, str]:
    """Return the interval, or None and the reason; the reason is empty if the noise is unknown."""
    from pytest_loadtest.metrics.resampled import Estimate, between

    (before, after), (error_before, error_after) = values, errors
    if not before or not after:
        return (
            None,
            f"not measured in the {'baseline' if not before else 'run'}, or on too few samples",
        )
    if error_before is None or error_after is None:
        return None, ""
    return between(
        Estimate(before, error_before, blocks[0]), Estimate(after, error_after, blocks[1])
    ), ""


def _unknown(why: str) -> Changed:
    return Changed(unit="", baseline=None, now=None, why=why)


def _targets_change(
    gate: Objective, changed: Changed | None, baseline: RunDocument, now: RunDocument
) -> Changed:
    """Return the change that a gate judges.

    It is unknown if the generator's own delay differs between the runs by more than the gate allows: that lasts for a whole run, so no
    interval shows it.
    """
    if changed is None:
        return _unknown("measured in neither run")
    if changed.interval is None or gate.statistic == THROUGHPUT:
        return changed
    own = [own_delay(run, gate.statistic) for run in (baseline, now)]
    allowed = (gate.maximum or 0.0) * (changed.baseline or 0.0)
    if own[0] is None or own[1] is None or abs(own[1] - own[0]) <= allowed:
        return changed
    before, after, most = (format_duration(value) for value in (own[0], own[1], allowed))
    name = gate.statistic.partition(".")[2]
    return _unknown(
        f"the generator's own send delay went from {before} to {after} ({name}), which is more than the allowed {most}"
    )


def _row(name: str, figure: Figure, changed: Changed, findings: Iterable[Finding]) -> FigureEntry:
    before, after, interval = changed.baseline, changed.now, changed.interval
    plain = None if before is None or after is None or not before else after / before - 1
    return FigureEntry(
        name=name,
        unit=figure.unit,
        better="more" if figure.more else "less",
        baseline=before,
        now=after,
        change=plain if interval is None else interval.change,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        outcome=next(
            (finding.outcome for finding in findings if finding.objective.statistic == name), None
        ),
    )


# The section ``comparison`` of a run's document as lines of the terminal.

MOST_DIFFERENCES = 8


def comparison_lines(section: ComparisonSection | None, *, unicode: bool = True) -> Iterable[str]:
    """Yield the baseline, the differences, then a row for each figure; nothing if there was no comparison."""
    if section is None:
        return
    yield from _baseline_lines(section)
    yield from _difference_lines(section)
    yield from (f"             {note}" for note in section.notes if section.baseline is not None)
    if section.rows:
        yield from _figure_rows(section.rows, unicode)


def _baseline_lines(section: ComparisonSection) -> Iterable[str]:
    baseline, blocks = section.baseline, section.blocks
    if baseline is None:
        yield f"  baseline   none: {'; '.join(section.notes)}"
        return
    yield f"  baseline   {baseline.results} ({baseline.started or 'never began'}, {baseline.outcome})"
    if blocks is None:
        yield "             no interval: noise is known from 20 s of measured phase on, in both runs, and not in older results"
    else:
        many = f"{blocks.baseline} and {blocks.now} blocks of {blocks.length // SECOND} s"
        yield f"             intervals of {blocks.level * 100:.0f} % from {many}: noise within the runs, not from run to run"


def _difference_lines(section: ComparisonSection) -> Iterable[str]:
    deciding = [difference for difference in section.differences if difference.decides]
    others = [difference for difference in section.differences if not difference.decides]
    if deciding:
        forced = "; judged anyway (--load-baseline-force)" if section.forced else ""
        yield f"  NOT COMPARABLE  deciding facts differ{forced}:"
    for many, kind in ((deciding, "decides"), (others, "other")):
        shown = many[:MOST_DIFFERENCES]
        yield from (
            f"             {kind:<8} {one.name}: {one.baseline} → {one.now}" for one in shown
        )
        if len(many) > len(shown):
            yield f"             {kind:<8} … and {len(many) - len(shown)} more in results.json"


def _figure_rows(rows: Sequence[FigureEntry], unicode: bool) -> Iterable[str]:
    cells = [("compared", "baseline", "now", "change", "interval", "")]
    cells += [
        (
            row.name,
            format_figure(row.baseline, row.unit),
            format_figure(row.now, row.unit),
            *_change_cells(row),
        )
        for row in rows
    ]
    marks = [" ", *(mark(row.outcome, unicode) if row.outcome else " " for row in rows)]
    width = max(map(len, marks))
    yield from (
        f"  {sign:<{width}} {line}"
        for sign, line in zip(marks, aligned(cells, "<>>>><"), strict=True)
    )


def _change_cells(row: FigureEntry) -> tuple[str, str, str]:
    if row.change is None:
        return "-", "-", ""
    if row.low is None or row.high is None:
        return percent(row.change), "-", ""
    return percent(row.change), f"{percent(row.low)} to {percent(row.high)}", change_word(row)


def change_word(row: FigureEntry) -> str:
    """Return ``worse`` or ``better`` if the whole interval agrees, ``within noise`` if it contains no change; empty without an interval."""
    if row.low is None or row.high is None:
        return ""
    if row.low <= 0 <= row.high:
        return "within noise"
    return "better" if (row.low > 0) == (row.better == "more") else "worse"
