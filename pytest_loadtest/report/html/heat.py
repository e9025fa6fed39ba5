"""Latency over time from the histograms of its blocks: a heat map, and the percentiles of each block."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.distribution import counts_distribution, decode_counts
from pytest_loadtest.report.html.charts import LATENCY, TIME, Line, latency_levels, make_chart
from pytest_loadtest.report.html.reduce import even_spans
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.charts import Chart

COLUMNS: Final = 360
"""Of a heat map at most; of a longer run neighbouring blocks are added up."""
ROWS: Final = 3
"""Significant bits of a row of a heat map: eight to an octave."""
PERCENTILES: Final = (50, 90, 99, 99.9)


def time_blocks(measured: Document) -> list[dict[int, int]]:
    """Counts by bucket of each block, ascending; none of older results, which do not hold them."""
    over_time = measured.get("overTime")
    return [] if over_time is None else [decode_counts(text) for text in over_time["endToEnd"]]


def blocks_are_seconds(measured: Document) -> bool:
    """Whether the blocks are seconds, so that they tell all that the series of seconds tell."""
    over_time = measured.get("overTime")
    return over_time is not None and over_time["block"] == SECOND


def heat_map(counted: Sequence[dict[int, int]], measured: Document, run: str) -> Chart | None:
    """How many copies came with which latency in each block; None where it is not known. :param counted: as from :func:`time_blocks`."""
    if not any(counted):
        return None
    block, parts = measured["overTime"]["block"], even_spans(len(counted), COLUMNS)
    columns = [_rows(counted[first:last]) for first, last in parts]
    used = [row for column in columns for row in column]
    low, high = min(used), max(used)
    fullest = max(count for column in columns for count in column.values())
    step = (parts[0][1] - parts[0][0]) * block
    return {
        "kind": "heat", "title": "End-to-end latency over time, as a heat map", "run": run,
        "summary": f"How many copies had which latency, each {format_duration(step)}; up to {exact(fullest)} in one cell.",
        "x": TIME.document(), "y": LATENCY.document(), "xs": [first * block / SECOND for first, _ in parts], "step": step / SECOND,
        "ys": [bucket_bounds(row, ROWS)[0] for row in range(low, high + 2)],
        "cells": [[x, row - low, count] for x, column in enumerate(columns) for row, count in sorted(column.items())],
        "series": [], "bounds": [], "marks": [],
    }  # fmt: skip


def _rows(counted: Sequence[dict[int, int]]) -> dict[int, int]:
    """Counts by bucket of :data:`ROWS` bits, into which whole finer buckets fall."""
    found: dict[int, int] = {}
    for block in counted:
        for index, count in block.items():
            row = _row(index)
            found[row] = found.get(row, 0) + count
    return found


@cache
def _row(index: int) -> int:
    low, _ = bucket_bounds(index, SERIES_BITS)
    shift = max(low.bit_length() - 1 - ROWS, 0)
    return (shift << ROWS) + (low >> shift)


def _tops(measured: Document, blocks: int) -> list[int | None]:
    """The exact maximum of each block, from those of its seconds."""
    length, series = measured["overTime"]["block"] // SECOND, measured["series"]["endToEndMax"]
    seconds = [[int(top) for top in series[at * length : (at + 1) * length] if top is not None] for at in range(blocks)]
    return [max(tops, default=None) for tops in seconds]


def percentile_chart(counted: Sequence[dict[int, int]], measured: Document, findings: Sequence[Document], run: str) -> Chart | None:
    """Percentiles and the largest latency of the messages due in each block, however few they are; None where they are not known."""
    if not counted:
        return None
    block = measured["overTime"]["block"]
    found = [counts_distribution(counts, top) for counts, top in zip(counted, _tops(measured, len(counted)), strict=True)]
    xs = [number * block / SECOND for number in range(len(found))]
    lines = [Line(f"p{p:g}", f"p{p:g}", [None if one is None else one.percentile(p) for one in found]) for p in PERCENTILES]
    if blocks_are_seconds(measured):
        lines.append(Line("max", "max", measured["series"]["endToEndMax"][: len(xs)]))
    each = "second" if blocks_are_seconds(measured) else format_duration(block)
    said = [f"{line.label} {format_duration(min(line.known))} to {format_duration(max(line.known))}" for line in lines if line.known]
    summary = f"{'; '.join(said)}. Of what came; what never came is not part of it."
    title = f"Percentiles of end-to-end latency, each {each}"
    return make_chart("lines", title, run, summary, TIME, LATENCY, xs, lines, bounds=latency_levels(findings))
