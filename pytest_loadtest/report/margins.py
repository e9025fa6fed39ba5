"""The share of what an objective allows that a run used, and what was left of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.document import MISSES_FIRST, RunDocument
from pytest_loadtest.report.sections import all_findings, cause, has_number
from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.verdict_section import FindingEntry

Judged = tuple[str, "FindingEntry"]
"""A finding with the prefix of its name: ``stage ramp: ``, or nothing."""
TIGHT: Final = 0.8
"""An objective that used a larger share of what it allows is tight."""


def used_share(finding: FindingEntry) -> float | None:
    """Return the share of what an objective allows that was used: 1 at the bound.

    It is None if there is no number, and infinite where a bound of 0 does not hold.
    """
    windows = finding.windows
    if not has_number(finding):
        return None
    if finding.observed is None:
        return math.inf
    if windows is not None and windows.violations and windows.missed:
        return windows.missed / (windows.number * windows.violations)
    shares = [_share(*sides) for sides in _sides(finding, finding.observed)]
    return max([0.0, *shares])


def _sides(finding: FindingEntry, observed: float) -> Iterator[tuple[float, float]]:
    """Yield what each bound of an objective saw used, and what it allows."""
    if finding.maximum is not None:
        yield observed, finding.maximum
    if finding.minimum is not None and finding.tenths is not None:
        # A change of at least -20 % allows a fall of 20 %.
        yield -observed, -finding.minimum
    elif finding.minimum is not None and finding.unit == "ratio":
        # A minimum of 95 % allows 5 %.
        yield 1 - observed, 1 - finding.minimum
    elif finding.minimum is not None:
        yield finding.minimum, observed


def _share(used: float, allowed: float) -> float:
    if allowed > 0:
        return used / allowed
    return math.inf if used > allowed else 0.0


def bound_text(judged: Judged) -> str:
    """Return an objective with its observed value: ``endToEndLatency.p99 12.0 ms <= 50.0 ms``."""
    prefix, finding = judged
    return f"{prefix}{finding.name} {finding.shown.observed} {finding.shown.bound}"


def margin_text(finding: FindingEntry) -> str:
    """Return what is left of what an objective allows, by how much it was missed, or the cause.

    It is empty where the bound is 0: such an objective has no margin.
    """
    share = used_share(finding)
    if share is None:
        return cause(finding)
    has_margin = any(allowed > 0 for _, allowed in _sides(finding, finding.observed or 0.0))
    if finding.shown.over or share > 1 or not has_margin:
        return finding.shown.over
    return f"{format_value(1 - share, 'ratio', 2)} to spare"


def tightest_first(document: RunDocument) -> list[Judged]:
    """Return all findings: misses, those without a result, those met; the tightest of each first.

    Of equally tight ones those of the profile come first, and those with a number.
    """
    return sorted(all_findings(document), key=_tightness)


def _tightness(judged: Judged) -> tuple[int, float, bool, bool]:
    _, finding = judged
    outcome = MISSES_FIRST.index(finding.outcome)
    return outcome, -(used_share(finding) or 0), finding.observed is None, finding.implicit


def is_comfortable(finding: FindingEntry) -> bool:
    """Return True if an objective was met, and is implicit or far from its bound."""
    tight = (used_share(finding) or 0) > TIGHT
    return finding.outcome is Outcome.MET and (finding.implicit or not tight)
