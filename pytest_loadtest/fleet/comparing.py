"""A judged run beside its baseline: what differs, and what the profile says of that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.comparison import TELLING, compare_runs, missing_comparison
from pytest_loadtest.report.figures import figures
from pytest_loadtest.verdict.regression import THROUGHPUT
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.baseline import Baseline
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import Finding

Document = dict[str, Any]


def beside(results: Document, gates: Sequence[Objective], baseline: Baseline | None) -> tuple[Document, tuple[Finding, ...]]:
    """The document with its section ``comparison``, and the findings that its verdict has more by it.

    Without a baseline the bounds on regression do not apply, which is noted: nothing was held against anything.
    """
    if baseline is None:
        if not gates:
            return results, ()
        names = ", ".join(gate.statistic for gate in gates)
        return results | {"notes": [*results["notes"], f"regression of {names} is not judged: no baseline was given (--load-baseline)"]}, ()
    found = baseline.find(results)
    comparison = missing_comparison(gates, found) if isinstance(found, str) else compare_runs(found, results, gates, force=baseline.force)
    tells = results["verdict"]["outcome"] in TELLING  # a run that says nothing by itself says nothing beside another either
    findings, best = _beside_best(comparison.findings, baseline.earlier(results), results) if tells else ((), [])
    return with_comparison(results, comparison.section | {"best": best}, findings), findings


def _beside_best(findings: Sequence[Finding], earlier: Sequence[Document], results: Document) -> tuple[tuple[Finding, ...], list[str]]:
    """The findings, each replaced where the run is certainly worse than its bound beside the best of the earlier runs; and their folders.

    Only certainty counts there: the best of several runs is partly the luckiest, so that "cannot be told from noise" would be frequent.
    """
    kept, best = [], dict[str, None]()
    for finding in findings:
        gate = finding.objective
        known = [(value, run) for run in earlier if (value := _figure(run, gate)) is not None]
        if finding.outcome is Outcome.MISSED or not known:
            kept.append(finding)
            continue
        _, run = (max if gate.statistic == THROUGHPUT else min)(known, key=lambda one: one[0])
        (beside_it,) = compare_runs(run, results, (gate,)).findings
        missed = beside_it.outcome is Outcome.MISSED
        where = f"; beside the best of the last {len(earlier) + 1} runs that were met, {run['results']}"
        kept.append(replace(beside_it, text=beside_it.text + where) if missed else finding)
        best |= {run["results"]: None}
    return tuple(kept), list(best)


def _figure(run: Document, gate: Objective) -> float | None:
    found = figures(run, (gate.statistic,)).get(gate.statistic)
    return None if found is None else found.value
