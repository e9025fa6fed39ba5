"""Findings that windows or the tenths of a run make, as JSON values of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.measured import finite
from pytest_loadtest.verdict.finding import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.verdict.finding import Finding

MOST: Final = 1000
"""Windows that are listed; of more, those that are not met, the first of them."""


def windows_section(finding: Finding) -> dict[str, Any] | None:
    """The windows of a finding that has some: how many there are of each outcome, and a list of at most ``MOST``."""
    windows = finding.windows
    if not windows:
        return None
    listed = windows if len(windows) <= MOST else [window for window in windows if window.outcome is not Outcome.MET][:MOST]
    count = {outcome: sum(window.outcome is outcome for window in windows) for outcome in Outcome}
    return {
        "width": finding.objective.window,
        "violations": finding.objective.violations,
        "number": len(windows),
        "missed": count[Outcome.MISSED],
        "generatorLimited": count[Outcome.GENERATOR_LIMITED],
        "noData": count[Outcome.NO_DATA],
        "listed": [
            {"start": window.start, "end": window.end, "observed": finite(window.observed), "outcome": window.outcome.value}
            for window in listed
        ],
    }


def tenths_section(finding: Finding) -> dict[str, Any] | None:
    """Of a finding on drift what was observed in the first tenth and in the last."""
    if finding.tenths is None:
        return None
    first, last = finding.tenths
    return {"unit": "ratio" if finding.objective.metric == "throughput" else "ns", "first": finite(first), "last": finite(last)}
