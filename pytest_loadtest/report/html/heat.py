"""Latency over time from the histograms of its blocks: a heat map, and the percentiles of each block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.html.charts import TIME, Axis, Line, chart, levels
from pytest_loadtest.report.html.distribution import add, decoded, distribution
from pytest_loadtest.report.html.reduce import spans
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.html.distribution import Distribution

COLUMNS: Final = 360
"""Of a heat map at most; of a longer run neighbouring blocks are added up."""
ROWS: Final = 3
"""Significant bits of a row of a heat map: eight to an octave."""
PERCENTILES: Final = (50, 90, 99, 99.9)


def heat(measured: Document, run: str) -> Chart | None:
    """How many copies came with which latency in each block; None where results do not hold it."""
    over_time = measured.get("overTime")  # older results have none
    if over_time is None:
        return None
    blocks = [_rows(text) for text in over_time["endToEnd"]]
    if not any(blocks):
        return None
    parts = spans(len(blocks), COLUMNS)
    columns = [add(blocks[first:last]) for first, last in parts]
    used = [row for column in columns for row in column]
    low, high = min(used), max(used)
    fullest = max(count for column in columns for count in column.values())
    step = (parts[0][1] - parts[0][0]) * over_time["block"]
    return {
        "kind": "heat", "title": "End-to-end latency over time, as a heat map", "run": run,
        "summary": f"How many messages had which latency, each {format_duration(step)}; up to {exact(fullest)} in one cell.",
        "x": TIME.document(), "y": Axis("end-to-end latency, by intended time", "ns", "log").document(),
        "xs": [first * over_time["block"] / SECOND for first, _ in parts], "step": step / SECOND,
        "ys": [bucket_bounds(row, ROWS)[0] for row in range(low, high + 2)],
        "cells": [[x, row - low, count] for x, column in enumerate(columns) for row, count in sorted(column.items())],
        "series": [], "bounds": [], "marks": [],
    }  # fmt: skip


def _rows(text: str | None) -> dict[int, int]:
    """Counts by bucket of :data:`ROWS` bits, into which whole finer buckets fall."""
    found: dict[int, int] = {}
    for index, count in decoded(text).items():
        low, _ = bucket_bounds(index, SERIES_BITS)
        shift = max(low.bit_length() - 1 - ROWS, 0)
        row = (shift << ROWS) + (low >> shift)
        found[row] = found.get(row, 0) + count
    return found


def by_second(measured: Document) -> bool:
    """Whether the blocks are seconds, so that they tell all that the series of seconds tell."""
    over_time = measured.get("overTime")
    return over_time is not None and over_time["block"] == SECOND


def percentiles(measured: Document, findings: Sequence[Document], run: str) -> Chart | None:
    """Of all copies of the messages due in each block, however few they are; None where results do not hold it."""
    over_time = measured.get("overTime")
    if over_time is None:
        return None
    blocks = [distribution([text]) for text in over_time["endToEnd"]]
    xs = [number * over_time["block"] / SECOND for number in range(len(blocks))]
    lines = [Line(f"p{p:g}", f"p{p:g}", [_at(found, p) for found in blocks]) for p in PERCENTILES]
    if by_second(measured):
        lines.append(Line("max", "max", measured["series"]["endToEndMax"][: len(xs)]))
    each = "second" if over_time["block"] == SECOND else format_duration(over_time["block"])
    said = [f"{line.label} {format_duration(min(line.known))} to {format_duration(max(line.known))}" for line in lines if line.known]
    summary = f"{'; '.join(said)}. Of what came; what never came is not part of it."
    axis = Axis("end-to-end latency, by intended time", "ns", "log")
    return chart("lines", f"Percentiles of end-to-end latency, each {each}", run, summary, TIME, axis, xs, lines, bounds=levels(findings))


def _at(found: Distribution | None, p: float) -> float | None:
    return None if found is None else found.percentile(p)
