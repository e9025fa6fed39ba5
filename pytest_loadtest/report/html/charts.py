"""The content of charts as plain values for the script that draws them. Times on an axis are seconds, latencies ns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.report.hdr import latency_distribution, percentile_at, percentile_position
from pytest_loadtest.report.terminal import ROWS
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.report.hdr import Distribution
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry

    Values = Sequence[float | None]


Chart = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Axis:
    """:param unit: ``s``, ``ns``, ``msg/s``, ``B/s``, ``count``, ``share``, ``B``, ``cores`` or nothing. :param scale: ``linear``,
    ``log``, or ``percentile``: 1/(1 − q) on a log axis, with labels for q.
    """

    label: str
    unit: str
    scale: str = "linear"

    def document(self) -> dict[str, str]:
        """Return the axis as JSON values."""
        return {"label": self.label, "unit": self.unit, "scale": self.scale}


TIME: Final = Axis("time since the start of the measured phase", "s")
LATENCY: Final = Axis("end-to-end latency", "ns", "log")


@dataclass(frozen=True, slots=True)
class Line:
    """:param role: determines colour and dashes. :param values: one for each x; None: not measured."""

    label: str
    role: str
    values: Values

    @property
    def known(self) -> list[float]:
        """The values that were measured."""
        return [value for value in self.values if value is not None]


def make_chart(
    kind: str, title: str, run: str | None, summary: str, x: Axis, y: Axis, xs: Sequence[float], lines: Sequence[Line], *,
    bounds: Sequence[dict[str, Any]] = (), marks: Sequence[dict[str, Any]] = (),
) -> Chart | None:  # fmt: skip
    """Return lines, bars or curves over common ``xs``; None if none of them has a value. Long ones are reduced to their extremes."""
    shown = [line for line in lines if line.known]
    if not shown:
        return None
    return {
        "kind": kind, "title": title, "run": run, "summary": summary, "x": x.document(), "y": y.document(),
        "xs": [_plain(xs[first]) for first, _ in even_spans(len(xs))], "series": [_reduced(line) for line in shown],
        "bounds": list(bounds), "marks": list(marks),
    }  # fmt: skip


def _reduced(line: Line) -> dict[str, Any]:
    high, low = span_extremes(line.values)
    reduced = {"label": line.label, "role": line.role, "values": [_plain(value) for value in high]}
    return (
        reduced
        if len(high) == len(line.values)
        else reduced | {"low": [_plain(value) for value in low]}
    )


def _plain(value: float | None) -> float | None:
    """Shorten a value: whole numbers without a point, others with as many digits as a chart can show."""
    return value if value is None else int(value) if value == int(value) else float(f"{value:.7g}")


def chart_mark(
    label: str, outcome: str, *, x: float | None = None, y: float | None = None
) -> dict[str, Any]:
    """Return a labelled mark, of an objective or a step of a search: a line at x or y, a point if both are given."""
    return {"label": label, "x": x, "y": y, "outcome": outcome}


def latency_levels(findings: Iterable[FindingEntry]) -> list[dict[str, Any]]:
    """Return the upper bounds on end-to-end latency as levels over time. A bound on drift is a share, so it has no level."""
    return [
        chart_mark(f"{finding.statistic} {finding.shown.bound}", finding.outcome, y=finding.maximum)
        for finding in findings
        if (finding.metric, finding.unit) == ("endToEndLatency", "ns")
        and finding.maximum is not None
        and not finding.bucket
    ]


# Long runs are drawn with fewer points: each has the largest and the smallest value of its seconds, and nothing is averaged.

POINTS: Final = 1200
"""The largest number of points in a series; a screen has fewer columns."""


def even_spans(length: int, most: int = POINTS) -> list[tuple[int, int]]:
    """Split a list into equally long parts: (first, one past last); the last may be shorter. If all entries fit, each is a part."""
    width = max(-(-length // most), 1)
    return [(first, min(first + width, length)) for first in range(0, length, width)]


def span_extremes(
    values: Values, most: int = POINTS
) -> tuple[list[float | None], list[float | None]]:
    """Return the largest and the smallest known value of each part; None where none is known."""
    known = [
        [value for value in values[first:last] if value is not None]
        for first, last in even_spans(len(values), most)
    ]
    return [max(group, default=None) for group in known], [
        min(group, default=None) for group in known
    ]


# Percentile curves: the latency at every percentile up to five nines, with the objectives as marks.

TITLES: Final = ROWS | {
    metric.key: metric.label for metric in LATENCIES.values() if metric.row.startswith(" ")
}
"""The labels of lines: as in the tables, but the whole label for those that a table indents below another row."""
METRICS: Final = {metric.key: metric.name for metric in LATENCIES.values() if metric.name}
GRID: Final = sorted({round(10 ** (step / 40), 6) for step in range(201)} | {2.0, 4.0, 20.0})
"""Values of 1/(1 − q) up to five nines, including the percentiles of the results."""
ROLES: Final = "abcdefgh"
"""Roles of lines that differ only by their order; more lines than these could not be distinguished."""
QUANTILE: Final = Axis("percentile", "", "percentile")


def curve_chart(
    title: str,
    run: str,
    named: Mapping[str, Distribution | None],
    bounds: Sequence[dict[str, Any]] = (),
) -> Chart | None:
    """Draw a curve for each distribution. :param named: by label; unknown ones are left out."""
    known = {name: distribution for name, distribution in named.items() if distribution is not None}
    lines = [
        Line(name, role, _values(distribution))
        for role, (name, distribution) in zip(ROLES, known.items(), strict=False)
    ]
    texts = [_curve_text(name, distribution) for name, distribution in known.items()]
    summary = f"{'; '.join(texts)}. A line ends where fewer than ten messages lie beyond, or where messages never came."
    return make_chart(
        "curve",
        title,
        run,
        summary,
        QUANTILE,
        Axis("latency", "ns", "log"),
        GRID,
        lines,
        bounds=bounds,
    )


def _values(distribution: Distribution) -> list[float | None]:
    values = [
        distribution.percentile(p) if distribution.proves(p) else math.inf
        for p in map(percentile_at, GRID)
    ]
    return [value if math.isfinite(value) else None for value in values]


def _curve_text(name: str, distribution: Distribution) -> str:
    proven = [p for p in (50, 99, 99.9, 99.99, 99.999) if distribution.proves(p)]
    values = [f"p{p:g} {_percentile_text(distribution.percentile(p))}" for p in proven]
    top = format_duration(distribution.maximum) if distribution.complete else "never"
    return f"{name} {', '.join([*values, f'max {top}'])}"


def _percentile_text(value: float) -> str:
    return (
        format_duration(value) if math.isfinite(value) else "never" if value > 0 else "before due"
    )


def latency_curves(
    measured: MeasurementsSection,
    findings: Iterable[FindingEntry],
    run: str,
    kinds: Sequence[str],
    title: str,
) -> Chart | None:
    """Draw these kinds of a run's latencies, with their objectives."""
    named = {TITLES[kind]: latency_distribution(measured.latencies.get(kind)) for kind in kinds}
    return curve_chart(
        title,
        run,
        named,
        objective_points(findings, {METRICS[kind] for kind in kinds if kind in METRICS}),
    )


def objective_points(
    findings: Iterable[FindingEntry], metrics: set[str], *, buckets: bool = False
) -> list[dict[str, Any]]:
    """Return a point for each bound on a percentile, a level for each bound on a maximum or minimum.

    Bounds in windows do not apply to the curve of the whole run, nor do those on drift, which are shares.

    :param buckets: return the bounds of size buckets; otherwise those of the whole run.
    """
    points = []
    for finding in findings:
        statistic = finding.statistic or ""
        if (
            finding.metric not in metrics
            or bool(finding.bucket) is not buckets
            or statistic == "mean"
        ):
            continue
        if finding.unit != "ns" or finding.windows:
            continue
        x = percentile_position(float(statistic[1:])) if statistic.startswith("p") else None
        points += [{**level, "x": x} for level in objective_levels(finding)]
    return points


def objective_levels(finding: FindingEntry) -> list[dict[str, Any]]:
    """Return the upper and the lower bound of an objective, if it has them."""
    sides = (("<=", finding.maximum), (">=", finding.minimum))
    return [
        chart_mark(
            f"{finding.name} {sign} {format_value(level, finding.unit)}", finding.outcome, y=level
        )
        for sign, level in sides
        if level is not None
    ]
