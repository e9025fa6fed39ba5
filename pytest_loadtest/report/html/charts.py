"""The content of charts as plain values for the script that draws them.

Times on an axis are seconds, latencies ns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.report.hdr import (
    Distribution,
    latency_distribution,
    percentile_at,
    percentile_position,
)
from pytest_loadtest.report.measured import finite
from pytest_loadtest.report.sections import known_of
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.records import immutable
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.report.measurements_section import MeasurementsSection, PartLatency
    from pytest_loadtest.report.verdict_section import FindingEntry

    Values = Sequence[float | None]


Chart = dict[str, Any]


@immutable
class Axis:
    """An axis of a chart.

    :param unit: ``s``, ``ns``, ``msg/s``, ``B/s``, ``count``, ``share``, ``B``, ``cores`` or empty.
    :param scale: ``linear``, ``log``, or ``percentile``: 1/(1 − q) on a log axis, with labels for
        q.
    """

    label: str
    unit: str
    scale: str = "linear"

    def document(self) -> dict[str, str]:
        """Return the axis as JSON values."""
        return {"label": self.label, "unit": self.unit, "scale": self.scale}


TIME: Final = Axis("time since the start of the measured phase", "s")
LATENCY: Final = Axis("end-to-end latency", "ns", "log")


@immutable
class Line:
    """A line of a chart.

    :param role: determines colour and dashes.
    :param values: one for each x; None: not measured.
    """

    label: str
    role: str
    values: Values

    @property
    def known(self) -> list[float]:
        """The values that were measured."""
        return known_of(self.values)


def latency_lines(latencies: Sequence[PartLatency | None], names: Sequence[str]) -> list[Line]:
    """Return a line for each of these percentiles, and one for the largest value."""
    lines = []
    for name in (*names, "max"):
        values = []
        for latency in latencies:
            statistics: Mapping[str, int | None] = {}
            if latency is not None:
                statistics = {**latency.percentiles, "max": latency.maximum}
            values.append(statistics.get(name))
        lines.append(Line(name, name, values))
    return lines


def make_chart(
    kind: str,
    title: str,
    run: str | None,
    summary: str,
    x: Axis,
    y: Axis,
    xs: Sequence[float],
    lines: Sequence[Line],
    *,
    bounds: Sequence[dict[str, Any]] = (),
    marks: Sequence[dict[str, Any]] = (),
) -> Chart | None:
    """Return lines, bars or curves over common ``xs``; None if none of them has a value.

    Long ones are reduced to their extremes.
    """
    shown = [line for line in lines if line.known]
    if not shown:
        return None
    return {
        "kind": kind,
        "title": title,
        "run": run,
        "summary": summary,
        "x": x.document(),
        "y": y.document(),
        "xs": [_plain(xs[first]) for first, _ in even_spans(len(xs))],
        "series": list(map(_reduced, shown)),
        "bounds": list(bounds),
        "marks": list(marks),
    }


def _reduced(line: Line) -> dict[str, Any]:
    high, low = span_extremes(line.values)
    reduced = {"label": line.label, "role": line.role, "values": list(map(_plain, high))}
    if len(high) < len(line.values):
        reduced["low"] = list(map(_plain, low))
    return reduced


def _plain(value: float | None) -> float | None:
    """Shorten a value: whole numbers without a point, others with the digits a chart can show."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.7g}")


def chart_mark(
    label: str, outcome: str, *, x: float | None = None, y: float | None = None
) -> dict[str, Any]:
    """Return a labelled mark of an objective or of a step of a search.

    It is a line at x or y, and a point if both are given.
    """
    return {"label": label, "x": x, "y": y, "outcome": outcome}


def latency_levels(findings: Iterable[FindingEntry]) -> list[dict[str, Any]]:
    """Return the upper bounds on end-to-end latency as levels over time.

    A bound on drift is a share, so it has no level.
    """
    levels = []
    for finding in findings:
        if (finding.metric, finding.unit, finding.bucket) != ("endToEndLatency", "ns", None):
            continue
        if finding.maximum is not None:
            label = f"{finding.statistic} {finding.shown.bound}"
            levels.append(chart_mark(label, finding.outcome, y=finding.maximum))
    return levels


# Long runs are drawn with fewer points: each has the largest and the smallest value of its
# seconds, and nothing is averaged.

POINTS: Final = 1200
"""The largest number of points in a series; a screen has fewer columns."""


def even_spans(length: int, most: int = POINTS) -> list[tuple[int, int]]:
    """Split a list into equally long parts: (first, one past last); the last may be shorter.

    If all entries fit, each is a part.
    """
    width = max(-(-length // most), 1)
    return [(first, min(first + width, length)) for first in range(0, length, width)]


def span_extremes(
    values: Values, most: int = POINTS
) -> tuple[list[float | None], list[float | None]]:
    """Return the largest and the smallest known value of each part; None where none is known."""
    highest = []
    lowest = []
    for first, last in even_spans(len(values), most):
        known = known_of(values[first:last])
        highest.append(max(known, default=None))
        lowest.append(min(known, default=None))
    return highest, lowest


# Percentile curves: the latency at every percentile up to five nines, with the objectives as marks.

TITLES: Final = {metric.key: metric.label for metric in LATENCIES.values()}
"""The labels of lines."""
METRICS: Final = {metric.key: metric.name for metric in LATENCIES.values() if metric.name}
GRID: Final = sorted({round(10 ** (step / 40), 6) for step in range(201)} | {2.0, 4.0, 20.0})
"""Values of 1/(1 − q) up to five nines, including the percentiles of the results."""
ROLES: Final = "abcdefgh"
"""Roles of lines that differ only by their order; more lines than these could not be
distinguished."""
QUANTILE: Final = Axis("percentile", "", "percentile")


def curve_chart(
    title: str,
    run: str,
    named: Mapping[str, Distribution | None],
    bounds: Sequence[dict[str, Any]] = (),
) -> Chart | None:
    """Draw a curve for each distribution. :param named: by label; unknown ones are left out."""
    lines: list[Line] = []
    texts = []
    for name, distribution in named.items():
        if distribution is None:
            continue
        if len(lines) < len(ROLES):
            lines.append(Line(name, ROLES[len(lines)], _values(distribution)))
        texts.append(_curve_text(name, distribution))
    ends = "A line ends where fewer than ten messages lie beyond, or where messages never came."
    return make_chart(
        "curve",
        title,
        run,
        f"{'; '.join(texts)}. {ends}",
        QUANTILE,
        Axis("latency", "ns", "log"),
        GRID,
        lines,
        bounds=bounds,
    )


def _values(distribution: Distribution) -> list[float | None]:
    values = []
    for p in map(percentile_at, GRID):
        value = distribution.percentile(p) if distribution.proves(p) else None
        values.append(finite(value))
    return values


def _curve_text(name: str, distribution: Distribution) -> str:
    texts = []
    for p in (50, 99, 99.9, 99.99, 99.999):
        if distribution.proves(p):
            texts.append(f"p{p:g} {_percentile_text(distribution.percentile(p))}")
    top = format_duration(distribution.maximum) if distribution.complete else "never"
    return f"{name} {', '.join([*texts, f'max {top}'])}"


def _percentile_text(value: float) -> str:
    if math.isfinite(value):
        return format_duration(value)
    return "never" if value > 0 else "before due"


def latency_curves(
    measured: MeasurementsSection,
    findings: Iterable[FindingEntry],
    run: str,
    kinds: Sequence[str],
    title: str,
) -> Chart | None:
    """Draw these kinds of a run's latencies, with their objectives."""
    named = {TITLES[kind]: latency_distribution(measured.latencies.get(kind)) for kind in kinds}
    metrics = {METRICS[kind] for kind in kinds if kind in METRICS}
    return curve_chart(title, run, named, objective_points(findings, metrics))


def objective_points(
    findings: Iterable[FindingEntry], metrics: set[str], *, buckets: bool = False
) -> list[dict[str, Any]]:
    """Return a point for each bound on a percentile, a level for one on a maximum or minimum.

    Bounds in windows do not apply to the curve of the whole run, nor do those on drift, which are
    shares.

    :param buckets: return the bounds of size buckets; otherwise those of the whole run.
    """
    points = []
    for finding in findings:
        statistic = finding.statistic or ""
        if finding.metric not in metrics or bool(finding.bucket) is not buckets:
            continue
        if statistic == "mean" or finding.unit != "ns" or finding.windows:
            continue
        x = percentile_position(float(statistic[1:])) if statistic.startswith("p") else None
        points += [{**level, "x": x} for level in objective_levels(finding)]
    return points


def objective_levels(finding: FindingEntry) -> list[dict[str, Any]]:
    """Return the upper and the lower bound of an objective, if it has them."""
    levels = []
    for sign, bound in (("<=", finding.maximum), (">=", finding.minimum)):
        if bound is not None:
            label = f"{finding.name} {sign} {format_value(bound, finding.unit)}"
            levels.append(chart_mark(label, finding.outcome, y=bound))
    return levels
