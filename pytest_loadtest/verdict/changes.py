"""What a bound on regression comes to: two runs' figures × how far each can be trusted → findings.

*Missed* is a figure that is worse by more than its bound with the whole interval of its change, *met* one whose whole interval lies within.
In between nobody can tell change from noise, and it is *no data*: a gate is not opened by a run that was too short or too noisy to be
asked, nor is a release blamed for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.finding import show
from pytest_loadtest.verdict.grammar import REGRESSION, THROUGHPUT, regression_bounds
from pytest_loadtest.verdict.objectives import Objective
from pytest_loadtest.verdict.slo import Finding, Outcome, Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.metrics.resampled import RelativeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One figure of two runs. :param interval: None where its change has none, and ``why`` says why."""

    unit: str
    baseline: float | None
    now: float | None
    samples: int = 0
    interval: RelativeChange | None = None
    why: str = ""


def gates(section: Mapping[str, object]) -> tuple[Objective, ...]:
    """Return the regression objectives of a valid section: ``maximum`` is the share by which a figure may be worse than the baseline."""
    found = regression_bounds(section[REGRESSION], []) if REGRESSION in section else ()
    return tuple(Objective(metric=REGRESSION, statistic=name, minimum=None, maximum=share, unit="ratio") for name, share in found)


def judge(gate: Objective, changed: Changed | None) -> Finding:
    """One bound on what may be worse, held against two runs. :param changed: None where there is no baseline to compare with."""
    interval = None if changed is None else changed.interval
    if changed is None or interval is None:
        return _untold(gate, "nothing to compare with" if changed is None else changed.why, changed)
    worse, least, most = worsening(gate.statistic, interval)
    bound = gate.maximum or 0.0
    if least <= bound < most:
        text = f"{in_words(interval)} is neither within {format_value(bound, 'ratio')} nor beyond it: change cannot be told from noise"
        return _untold(gate, text, changed)
    shown = show(gate, worse)
    figures = " → ".join(format_value(value or 0.0, changed.unit) for value in (changed.baseline, changed.now))
    text = f"{gate.name} {shown.comparison} ({figures}, {in_words(interval)})"
    outcome = Outcome.MISSED if least > bound else Outcome.MET
    return Finding(objective=gate, outcome=outcome, observed=worse, samples=changed.samples, text=text)


def _untold(gate: Objective, why: str, changed: Changed | None) -> Finding:
    samples = 0 if changed is None else changed.samples
    return Finding(objective=gate, outcome=Outcome.NO_DATA, observed=None, samples=samples, text=f"{gate.name}: {why}")


def worsening(name: str, interval: RelativeChange) -> tuple[float, float, float]:
    """How much worse, and the ends of that: less throughput is worse, and so is more latency."""
    if name == THROUGHPUT:
        return -interval.change, -interval.high, -interval.low
    return interval.change, interval.low, interval.high


def in_words(interval: RelativeChange) -> str:
    """``+18 % (+12 % to +25 %)``."""
    change, low, high = (percent(value) for value in interval)
    return f"{change} ({low} to {high})"


def percent(ratio: float) -> str:
    """``+18 %``, ``-0.4 %``; two digits, three from 100 % on."""
    value = ratio * 100
    return f"{value:+.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"


def judged(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """A verdict with what the comparison came to."""
    outcome = worst([verdict.outcome, *(finding.outcome for finding in findings)])
    reasons = tuple(finding.text for finding in findings if finding.outcome is Outcome.NO_DATA)
    return replace(verdict, outcome=outcome, findings=(*verdict.findings, *findings), reasons=(*verdict.reasons, *reasons))
