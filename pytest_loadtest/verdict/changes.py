"""The judgement of bounds on regression: how much worse than a baseline a run may be.

The rule: a figure is *missed* if the whole interval of its change is worse than the bound, and
*met* if the whole interval is within it. Otherwise change cannot be told from noise, or from the
error of the clocks between hosts, and the finding is *no data*: a run that was too short or too
noisy neither passes nor blames a release.

:mod:`pytest_loadtest.fleet.judge` adds its findings to the verdict, in the controller's thread that
judges a run, and in the command ``aggregate``; the command ``compare`` writes the changes of two
runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_loadtest.values.records import record
from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.finding import no_data, show
from pytest_loadtest.verdict.grammar import THROUGHPUT
from pytest_loadtest.verdict.slo import Finding, Outcome, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.resampled import RelativeChange
    from pytest_loadtest.verdict.objectives import Objective


@record
class Changed:
    """One figure of two runs.

    :param now: infinite if so many messages did not come that it is *never*.
    :param interval: None if the change has none; ``why`` then says why. Its upper end is infinite
        if the clocks leave open how small the baseline was.
    :param doubt: what the interval is made of.
    """

    unit: str
    baseline: float | None
    now: float | None
    samples: int = 0
    interval: RelativeChange | None = None
    why: str = ""
    doubt: str = "noise"


def judge_change(gate: Objective, changed: Changed) -> Finding:
    """Judge one bound on regression."""
    if changed.now == math.inf:
        before = format_value(changed.baseline or 0.0, changed.unit)
        return Finding(
            objective=gate,
            outcome=Outcome.MISSED,
            observed=math.inf,
            samples=changed.samples,
            text=f"{gate.name} {show(gate, math.inf).comparison} ({before} → never)",
        )
    interval = changed.interval
    if interval is None:
        return no_data(gate, changed.why, changed.samples)
    worse, least, most = worsening(gate.statistic, interval)
    bound = gate.maximum or 0.0
    change = interval_text(interval)
    if least <= bound < most:
        limit = format_value(bound, "ratio")
        open_question = f"{change} is neither within {limit} nor beyond it"
        why = f"{open_question}: change cannot be told from {changed.doubt}"
        return no_data(gate, why, changed.samples)
    before = format_value(changed.baseline or 0.0, changed.unit)
    after = format_value(changed.now or 0.0, changed.unit)
    return Finding(
        objective=gate,
        outcome=Outcome.MISSED if least > bound else Outcome.MET,
        observed=worse,
        samples=changed.samples,
        text=f"{gate.name} {show(gate, worse).comparison} ({before} → {after}, {change})",
    )


def worsening(name: str, interval: RelativeChange) -> tuple[float, float, float]:
    """Return how much worse a figure is, and the ends of the interval.

    Less throughput is worse, and so is more latency.
    """
    if name == THROUGHPUT:
        return -interval.change, -interval.high, -interval.low
    return interval.change, interval.low, interval.high


def interval_text(interval: RelativeChange) -> str:
    """Write a change: ``+18 % (+12 % to +25 %)``."""
    change, low, high = (percent(value) for value in interval)
    end = "or more" if interval.high == math.inf else f"to {high}"
    return f"{change} ({low} {end})"


def percent(ratio: float) -> str:
    """Write a share with its sign: ``+18 %``, ``-0.4 %``; two digits, three from 100 % on."""
    value = ratio * 100
    return f"{value:+.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"


def with_changes(
    outcome: Outcome, reasons: tuple[str, ...], findings: Sequence[Finding]
) -> tuple[Outcome, tuple[str, ...]]:
    """Return outcome and reasons of a verdict together with the findings of its comparison."""
    unknown = [finding.text for finding in findings if finding.outcome is Outcome.NO_DATA]
    outcomes = [finding.outcome for finding in findings]
    return worst([outcome, *outcomes]), (*reasons, *unknown)
