"""A judged run beside its baseline: what differs, and what the profile says of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report import document
from pytest_loadtest.report.comparison import TELLING, compare, missing

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
    comparison = missing(gates, found) if isinstance(found, str) else compare(found, results, gates, force=baseline.force)
    tells = results["verdict"]["outcome"] in TELLING  # a run that says nothing by itself says nothing beside another either
    findings = comparison.findings if tells else ()
    return document.beside(results, comparison.section, findings), findings
