"""Percentile curves: what latency is at every percentile, to five nines, with the objectives drawn in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.report.distribution import latency_distribution, percentile_at, percentile_position
from pytest_loadtest.report.html.charts import Axis, Line, chart_bound, make_chart
from pytest_loadtest.report.terminal import ROWS
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.report.distribution import Distribution
    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.charts import Chart

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
    values = [f"p{p:g} {_word(value)}" for p, value in told]
    return f"{name} {', '.join([*values, f'max {format_duration(found.maximum)}'])}"


def _word(value: float) -> str:
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
