"""The comparison of a judged run with its baseline: regression objectives, and the best of earlier
runs.

Called by :func:`~pytest_loadtest.fleet.judge.conclude_run` with the run's results document. A run
without a verdict of its own keeps its outcome: a comparison cannot prove anything about it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.comparison import VALID, compare_runs, missing_comparison
from pytest_loadtest.report.figures import figures
from pytest_loadtest.verdict.grammar import THROUGHPUT
from pytest_loadtest.verdict.slo import Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.baseline import Baseline
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.verdict.objectives import Objective


def compare_with_baseline(
    results: RunDocument, gates: Sequence[Objective], baseline: Baseline | None
) -> tuple[RunDocument, tuple[Finding, ...]]:
    """Return the document with its section ``comparison``, and the additional findings.

    Without a baseline the bounds on regression do not apply, which is noted.
    """
    if baseline is None:
        if not gates:
            return results, ()
        names = ", ".join(gate.statistic for gate in gates)
        note = f"regression of {names} is not judged: no baseline was given (--load-baseline)"
        return replace(results, notes=(*results.notes, note)), ()
    earlier = baseline.find(results)
    if isinstance(earlier, str):
        comparison = missing_comparison(gates, earlier)
    else:
        comparison = compare_runs(earlier, results, gates, force=baseline.force)
    findings: tuple[Finding, ...] = ()
    best: tuple[str, ...] = ()
    if results.verdict.outcome in VALID:
        # A run without a verdict proves nothing in a comparison either.
        runs = baseline.earlier(results)
        findings, best = _compare_with_best(comparison.findings, runs, results)
    return with_comparison(results, replace(comparison.section, best=best), findings), findings


def _compare_with_best(
    findings: Sequence[Finding], earlier: Sequence[RunDocument], results: RunDocument
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return the findings, and the folders of the best earlier runs.

    A finding is replaced if the run certainly misses its bound against the best earlier run. Only
    certain misses count here: the best of several runs is partly the luckiest, so "cannot be
    told from noise" would be frequent.
    """
    kept = []
    best: dict[str, None] = {}
    for finding in findings:
        gate = finding.objective
        values = []
        for run in earlier:
            figure = figures(run, (gate.statistic,)).get(gate.statistic)
            if figure is not None and figure.value is not None:
                values.append((figure.value, run))
        if finding.outcome is Outcome.MISSED or not values:
            kept.append(finding)
            continue
        best_of = max if gate.statistic == THROUGHPUT else min
        _, best_run = best_of(values, key=lambda pair: pair[0])
        (compared,) = compare_runs(best_run, results, (gate,)).findings
        if compared.outcome is Outcome.MISSED:
            text = (
                f"{compared.text}; compared with the best of the last {len(earlier) + 1} runs that "
                f"were met, {best_run.results}"
            )
            kept.append(replace(compared, text=text))
        else:
            kept.append(finding)
        best |= {best_run.results: None}
    return tuple(kept), tuple(best)
