"""What a chart shows, as plain values for the script that draws it. Times on an axis are seconds, latencies ns."""

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
    from collections.abc import Iterable, Sequence

    Values = Sequence[float | None]
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.hdr import Distribution


Chart = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Axis:
    """:param unit: ``s``, ``ns``, ``msg/s``, ``B/s``, ``count``, ``share``, ``B``, ``cores`` or nothing. :param scale: ``linear``,
    ``log``, or ``percentile``: 1/(1 − q) on a log axis, told as q.
    """

    label: str
    unit: str
    scale: str = "linear"

    def document(self) -> dict[str, str]:
        """As JSON values."""
        return {"label": self.label, "unit": self.unit, "scale": self.scale}


TIME: Final = Axis("time since the start of the measured phase", "s")
LATENCY: Final = Axis("end-to-end latency", "ns", "log")


@dataclass(frozen=True, slots=True)
class Line:
    """:param role: decides colour and dashes. :param values: one for each x; None: not measured."""

    label: str
    role: str
    values: Values

    @property
    def known(self) -> list[float]:
        """The values that there are."""
        return [value for value in self.values if value is not None]


def make_chart(
    kind: str, title: str, run: str | None, summary: str, x: Axis, y: Axis, xs: Sequence[float], lines: Sequence[Line], *,
    bounds: Sequence[dict[str, Any]] = (), marks: Sequence[dict[str, Any]] = (),
) -> Chart | None:  # fmt: skip
    """Lines, bars or curves over common ``xs``; None where none of them has a value. Long ones are reduced to their extremes."""
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
    found = {"label": line.label, "role": line.role, "values": [_plain(value) for value in high]}
    return found if len(high) == len(line.values) else found | {"low": [_plain(value) for value in low]}


def _plain(value: float | None) -> float | None:
    """Whole numbers without a point; others with as many digits as a chart can tell."""
    return value if value is None else int(value) if value == int(value) else float(f"{value:.7g}")


def chart_bound(label: str, outcome: str, *, x: float | None = None, y: float | None = None) -> dict[str, Any]:
    """An objective: a line at x or y, a point where both are given."""
    return {"label": label, "x": x, "y": y, "outcome": outcome}


def chart_mark(label: str, outcome: str, *, x: float, y: float | None) -> dict[str, Any]:
    """One thing among the lines, as a step of a search."""
    return {"label": label, "x": x, "y": y, "outcome": outcome}


def latency_levels(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bounds of end-to-end latency, over time: levels, for a single block is not judged. A bound on drift is none: it is a share."""
    return [
        chart_bound(f"{finding['statistic']} {finding['shown']['bound']}", finding["outcome"], y=finding["maximum"])
        for finding in findings
        if (finding["metric"], finding["unit"]) == ("endToEndLatency", "ns") and finding["maximum"] is not None and not finding["bucket"]
    ]


# Fewer points for long runs: each keeps the largest and the smallest value of what it stands for, and nothing is averaged.

POINTS: Final = 1200
"""Of a series; more than a screen has columns for."""


def even_spans(length: int, most: int = POINTS) -> list[tuple[int, int]]:
    """Neighbouring, equally long parts of a list, first and one past last; the last may be shorter. One for each entry where all fit."""
    width = max(-(-length // most), 1)
    return [(first, min(first + width, length)) for first in range(0, length, width)]


def span_extremes(values: Values, most: int = POINTS) -> tuple[list[float | None], list[float | None]]:
    """Largest and smallest known value of each span; None where none is known."""
    known = [[value for value in values[first:last] if value is not None] for first, last in even_spans(len(values), most)]
    return [max(group, default=None) for group in known], [min(group, default=None) for group in known]


# Percentile curves: what latency is at every percentile, to five nines, with the objectives drawn in.

TITLES: Final = ROWS | {metric.key: metric.label for metric in LATENCIES.values() if metric.row.startswith(" ")}
"""What a line is called: as in a table, but those that a table indents below another row by their whole label."""
METRICS: Final = {metric.key: metric.name for metric in LATENCIES.values() if metric.name}
GRID: Final = sorted({round(10 ** (step / 40), 6) for step in range(201)} | {2.0, 4.0, 20.0})
"""1/(1 − q) from 0 to five nines; the percentiles of the results among them."""
ROLES: Final = "abcdefgh"
"""Of lines that are told apart by their order alone; more than these would not be."""
QUANTILE: Final = Axis("percentile", "", "percentile")


def curve_chart(title: str, run: str, named: Mapping[str, Distribution | None], bounds: Sequence[dict[str, Any]] = ()) -> Chart | None:
    """:param named: by what they are called; those that are not known are left out."""
    known = {name: found for name, found in named.items() if found is not None}
    lines = [Line(name, role, _values(found)) for role, (name, found) in zip(ROLES, known.items(), strict=False)]
    said = [_said(name, found) for name, found in known.items()]
    summary = f"{'; '.join(said)}. A line ends where fewer than ten messages lie beyond, or where messages never came."
    return make_chart("curve", title, run, summary, QUANTILE, Axis("latency", "ns", "log"), GRID, lines, bounds=bounds)


def _values(found: Distribution) -> list[float | None]:
    values = [found.percentile(p) if found.proves(p) else math.inf for p in map(percentile_at, GRID)]
    return [value if math.isfinite(value) else None for value in values]


def _said(name: str, found: Distribution) -> str:
    told = [(p, found.percentile(p)) for p in (50, 99, 99.9, 99.99, 99.999) if found.proves(p)]
    values = [f"p{p:g} {_percentile_text(value)}" for p, value in told]
    return f"{name} {', '.join([*values, f'max {format_duration(found.maximum)}'])}"


def _percentile_text(value: float) -> str:
    return format_duration(value) if math.isfinite(value) else "never" if value > 0 else "before due"


def latency_curves(measured: Document, findings: Iterable[Document], run: str, kinds: Sequence[str], title: str) -> Chart | None:
    """Those kinds of a run's latencies, with their objectives."""
    named = {TITLES[kind]: latency_distribution(measured["latencies"].get(kind)) for kind in kinds}
    return curve_chart(title, run, named, objective_points(findings, {METRICS[kind] for kind in kinds if kind in METRICS}))


def objective_points(findings: Iterable[Document], metrics: set[str], *, buckets: bool = False) -> list[dict[str, Any]]:
    """A point for each bound of a percentile, a level for those of a maximum or minimum.

    A bound in windows is none on the curve of the whole run, nor is one on drift, which is a share.

    :param buckets: those of size buckets; otherwise those of the whole run.
    """
    found = []
    for finding in findings:
        statistic = finding["statistic"] or ""
        if finding["metric"] not in metrics or bool(finding["bucket"]) is not buckets or statistic == "mean":
            continue
        if finding["unit"] != "ns" or finding.get("windows"):  # older results have no windows
            continue
        x = percentile_position(float(statistic[1:])) if statistic.startswith("p") else None
        found += [{**level, "x": x} for level in objective_levels(finding)]
    return found


def objective_levels(finding: Document) -> list[dict[str, Any]]:
    """Both bounds of an objective, or the one that it has."""
    sides = ((sign, finding[side]) for side, sign in (("maximum", "<="), ("minimum", ">=")))
    return [
        chart_bound(f"{finding['name']} {sign} {format_value(level, finding['unit'])}", finding["outcome"], y=level)
        for sign, level in sides
        if level is not None
    ]
