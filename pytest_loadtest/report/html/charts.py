"""What a chart shows, as plain values for the script that draws it. Times on an axis are seconds, latencies ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.html.reduce import even_spans, span_extremes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Values = Sequence[float | None]

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
