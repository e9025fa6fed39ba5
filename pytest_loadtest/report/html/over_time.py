"""Charts over the time of a run: rates, latencies, lost and duplicate messages.

Events during the load are shaded in them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.document import BottleneckSection, RunDocument, TimelineSection
from pytest_loadtest.report.hdr import counts_distribution, decode_counts
from pytest_loadtest.report.html.charts import (
    LATENCY,
    TIME,
    Axis,
    Chart,
    Line,
    even_spans,
    latency_levels,
    latency_lines,
    make_chart,
)
from pytest_loadtest.report.sections import known_of, restart_text
from pytest_loadtest.report.tables import Table
from pytest_loadtest.values.quantities import SECOND, format_duration, format_rate
from pytest_loadtest.values.wording import counted, exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_loadtest.brokers.base import Restart
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry


RATE: Final = Axis("rate", "msg/s")


def rate_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw offered, sent, acked and received messages, each in the second of the event."""
    series = measured.series
    lines = [
        Line("offered", "offered", series.offered),
        Line("sent", "sent", series.sent),
        Line("acked", "acked", series.acked),
    ]
    if measured.subscriptions:
        received = "received"
        if measured.subscriptions > 1:
            received += f", all {measured.subscriptions} subscriptions"
        if measured.outputs > 1:
            received += f", {measured.outputs} outputs each"
        lines.append(Line(received, "received", series.received))
    # The seconds of the drain have no rate.
    seconds = measured.duration // SECOND or None
    ranges = []
    for line in lines:
        if line.known:
            ranges.append(f"{line.label} {_range(line.known[:seconds], format_rate)}")
    summary = _sentence(ranges)
    if len(series.offered) * SECOND > measured.duration:
        summary += f" The drain begins at {format_duration(measured.duration)}."
    return _by_second("lines", "Messages per second", run, summary, RATE, measured, lines)


def latency_chart(
    measured: MeasurementsSection, findings: Sequence[FindingEntry], run: str
) -> Chart | None:
    """Draw median, 99th percentile and maximum of each second."""
    series = measured.series
    lines = [
        Line("p50", "p50", series.end_to_end_p50),
        Line("p99", "p99", series.end_to_end_p99),
        Line("max", "max", series.end_to_end_max),
    ]
    title = "End-to-end latency of each second"
    levels = latency_levels(findings)
    summary = _sentence(_duration_ranges(lines))
    return _by_second("lines", title, run, summary, LATENCY, measured, lines, levels)


def loss_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw missing and duplicate deliveries of each second.

    There is no chart if there are none, or their time is unknown.
    """
    lost = []
    duplicates = []
    for count in measured.series.missing or ():
        lost.append(max(count, 0))
        duplicates.append(max(-count, 0))
    lines = [Line("missing", "lost", lost), Line("too many", "duplicates", duplicates)]
    shown = [line for line in lines if any(line.known)]
    sums = [f"{line.label} {exact(sum(line.known))} in {_seconds_of(line)}" for line in shown]
    meaning = "Deliveries of the messages due in each second"
    summary = f"{_sentence(sums)} {meaning}; lost and duplicate ones of one second cancel out."
    axis = Axis("deliveries", "count")
    return _by_second("bars", "Lost and duplicates", run, summary, axis, measured, shown)


def blocked_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw the time of waiting for the target's full window.

    There is no chart if nothing waited, or the time is unknown.
    """
    line = Line("blocked", "blocked", measured.series.blocked or ())
    if not any(line.known):
        return None
    title = "Blocked before the target's full window, summed over messages"
    total = f"{format_duration(sum(line.known))} in {_seconds_of(line)}"
    summary = f"{total}; up to {format_duration(max(line.known))} in one."
    return _by_second("bars", title, run, summary, Axis("blocked", "ns"), measured, [line])


def lag_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw the largest receive lag of the messages due in each second; None if it is unknown."""
    lines = [Line("max", "max", measured.series.receive_lag_max or ())]
    if not lines[0].known:
        return None
    title = "Largest receive lag of each second"
    axis = Axis("receive lag", "ns", "log")
    summary = _sentence(_duration_ranges(lines))
    return _by_second("lines", title, run, summary, axis, measured, lines)


def _by_second(
    kind: str,
    title: str,
    run: str,
    summary: str,
    axis: Axis,
    measured: MeasurementsSection,
    lines: Sequence[Line],
    levels: Sequence[dict[str, Any]] = (),
) -> Chart | None:
    seconds = range(len(measured.series.offered))
    return make_chart(kind, title, run, summary, TIME, axis, seconds, lines, bounds=levels)


def _seconds_of(line: Line) -> str:
    return counted(sum(map(bool, line.known)), "second")


def _range(known: Sequence[float], formatted: Callable[[float], str]) -> str:
    return f"{formatted(min(known))} to {formatted(max(known))}"


def _duration_ranges(lines: Sequence[Line]) -> list[str]:
    return [f"{line.label} {_range(line.known, format_duration)}" for line in lines if line.known]


def _sentence(parts: Sequence[str]) -> str:
    return f"{'; '.join(parts)}."


_KINDS: Final = {
    "publish": "Publish latency",
    "sendDelay": "Send delay",
    "receiveLag": "Receive lag",
}


def interval_charts(measured: MeasurementsSection, run: str) -> Iterator[tuple[str, Chart | None]]:
    """Draw latencies of each ten seconds that are not kept for each second."""
    intervals = measured.intervals
    if len(intervals) < 2:
        return
    xs = range(0, 10 * len(intervals), 10)
    for kind, title in _KINDS.items():
        latencies = [interval.get(kind) for interval in intervals]
        *percentiles, largest = latency_lines(latencies, ("p50", "p99", "p99.9"))
        lines = [largest, *percentiles]
        summary = _sentence(_duration_ranges(lines))
        axis = Axis(title.lower(), "ns", "log")
        whole_title = f"{title} of each ten seconds"
        yield kind, make_chart("lines", whole_title, run, summary, TIME, axis, xs, lines)


# Latency over time from the histograms of its blocks: a heat map, and the percentiles of each
# block.

COLUMNS: Final = 360
"""The largest number of columns in a heat map; in longer runs neighbouring blocks are added up."""
HEAT_BITS: Final = 3
"""Significant bits of a row of a heat map: eight rows to an octave."""
PERCENTILES: Final = (50, 90, 99, 99.9)


def time_blocks(measured: MeasurementsSection) -> list[dict[int, int]]:
    """Return the counts by bucket of each block, ascending; empty if the results have none."""
    over_time = measured.over_time
    return [] if over_time is None else list(map(decode_counts, over_time.end_to_end))


def blocks_are_seconds(measured: MeasurementsSection) -> bool:
    """Return True if the blocks are seconds, so that the series of seconds add nothing to them."""
    return measured.over_time is not None and measured.over_time.block == SECOND


def heat_map(
    counted: Sequence[dict[int, int]], measured: MeasurementsSection, run: str
) -> Chart | None:
    """Draw the number of copies by latency and block; None if it is unknown.

    :param counted: from :func:`time_blocks`.
    """
    over_time = measured.over_time
    if over_time is None or not any(counted):
        return None
    block = over_time.block
    parts = even_spans(len(counted), COLUMNS)
    cells = []
    xs = []
    for x, (first, last) in enumerate(parts):
        xs.append(first * block / SECOND)
        for row, count in sorted(_heat_rows(counted[first:last]).items()):
            cells.append([x, row, count])
    _, rows, counts = zip(*cells, strict=True)
    lowest = min(rows)
    for cell in cells:
        cell[1] -= lowest
    length = (parts[0][1] - parts[0][0]) * block
    each = f"for each {format_duration(length)}; up to {exact(max(counts))} in one cell"
    return {
        "kind": "heat",
        "title": "End-to-end latency over time, as a heat map",
        "run": run,
        "summary": f"Number of copies by latency, {each}.",
        "x": TIME.document(),
        "y": LATENCY.document(),
        "xs": xs,
        "step": length / SECOND,
        "ys": [bucket_bounds(row, HEAT_BITS)[0] for row in range(lowest, max(rows) + 2)],
        "cells": cells,
        "series": [],
        "bounds": [],
        "marks": [],
    }


def _heat_rows(counted: Sequence[dict[int, int]]) -> dict[int, int]:
    """Return counts by bucket of :data:`HEAT_BITS` bits; each finer bucket lies within one."""
    rows: dict[int, int] = {}
    for block in counted:
        for index, count in block.items():
            row = _heat_row(index)
            rows[row] = rows.get(row, 0) + count
    return rows


@cache
def _heat_row(index: int) -> int:
    low, _ = bucket_bounds(index, SERIES_BITS)
    shift = max(low.bit_length() - 1 - HEAT_BITS, 0)
    return (shift << HEAT_BITS) + (low >> shift)


def percentile_chart(
    counted: Sequence[dict[int, int]],
    measured: MeasurementsSection,
    findings: Sequence[FindingEntry],
    run: str,
) -> Chart | None:
    """Draw percentiles and the largest latency of the messages due in each block, however few.

    The chart is None if they are unknown.
    """
    over_time = measured.over_time
    if over_time is None or not counted:
        return None
    maxima = measured.series.end_to_end_max
    seconds = over_time.block // SECOND
    distributions = []
    for at, counts in enumerate(counted):
        known = known_of(maxima[at * seconds : (at + 1) * seconds])
        top = int(max(known)) if known else None
        distributions.append(counts_distribution(counts, top))
    xs = [number * over_time.block / SECOND for number in range(len(distributions))]
    lines = []
    for p in PERCENTILES:
        values = []
        for distribution in distributions:
            values.append(None if distribution is None else distribution.percentile(p))
        lines.append(Line(f"p{p:g}", f"p{p:g}", values))
    each = format_duration(over_time.block)
    if blocks_are_seconds(measured):
        lines.append(Line("max", "max", maxima[: len(xs)]))
        each = "second"
    title = f"Percentiles of end-to-end latency, each {each}"
    summary = f"{_sentence(_duration_ranges(lines))} Messages that never came are not included."
    levels = latency_levels(findings)
    return make_chart("lines", title, run, summary, TIME, LATENCY, xs, lines, bounds=levels)


# Events during the load: time slices that are shaded in every chart of a run, and listed.

Band = dict[str, Any]
NO_EVENTS: Final = TimelineSection(stages=(), changes=(), restarts=(), stalls=(), blocked=())
MOST_BANDS: Final = 200
"""The largest number of bands of one kind, the longest ones: more of them cover the chart."""
KINDS: Final = {
    "stage": "stage", "change": "change", "restart": "outage", "move": "topics moved",
    "stall": "generator stalled", "blocked": "blocked", "lost": "lost",
}  # fmt: skip


def find_bands(document: RunDocument) -> list[Band]:
    """Return all bands of a run, by kind and then by time.

    Times are seconds since the start of the measured phase.
    """
    measured = document.measurements
    end = 0
    missing: Sequence[int] = ()
    if measured is not None:
        # The drain is shown, too.
        end = max(measured.duration, len(measured.series.offered) * SECOND)
        missing = measured.series.missing or ()
    timeline = document.timeline or replace(NO_EVENTS, restarts=document.restarts)
    bands = [_band("stage", stage.start, stage.end, stage.name) for stage in timeline.stages]
    for change in timeline.changes:
        bands.append(_band("change", change.at, change.at, change.text))
    bands += _restart_bands(timeline.restarts, end)
    if document.bottleneck is not None:
        bands += _move_bands(document.bottleneck)
    for stall in timeline.stalls:
        bands.append(_band("stall", stall.start, stall.end, f"worker {stall.worker}"))
    for span in timeline.blocked:
        bands.append(_band("blocked", span.start, span.end, "the target's window was full"))
    return [*bands, *_loss_bands(missing)]


def _band(kind: str, start: float, end: float, label: str) -> Band:
    return {"kind": kind, "from": start / SECOND, "to": end / SECOND, "label": label}


def _restart_bands(restarts: Sequence[Restart], end: int) -> Iterator[Band]:
    for restart in restarts:
        until = restart.ready
        if until is None:
            until = max(end, restart.down)
        label = f"{restart.node} {restart_text(restart)}".strip()
        yield _band("restart", restart.down, until, label)


# By the last part of the column's name.
_MOVES: Final = {
    "gained": "{more} to {broker}",
    "reopened": "{more} closed and opened again",
    "bundles": "bundles {before} → {after}",
}


def _move_bands(section: BottleneckSection) -> Iterator[Band]:
    """Yield the changes of brokers and bundles of the run's topics.

    Each is between the two samples that differ.
    """
    for name, column in section.columns.items():
        broker, _, what = name.rpartition(".")
        if what not in _MOVES:
            continue
        # Counts begin at zero with the phase; the number of bundles does not.
        known = [] if what == "bundles" else [(0, 0)]
        for at, value in zip(section.time, column, strict=True):
            if value is not None:
                known.append((at, round(value)))
        for (start, before), (end, after) in pairwise(known):
            if before != after:
                facts = {"more": after - before, "before": before, "after": after}
                label = _MOVES[what].format(broker=broker, **facts)
                yield _band("move", start, end, label)


def _loss_bands(missing: Sequence[int]) -> Iterator[Band]:
    """Join neighbouring seconds with missing deliveries."""
    start = 0
    total = 0
    for second, count in enumerate([*missing, 0]):
        if count > 0:
            if not total:
                start = second
            total += count
        elif total:
            label = f"{counted(total, 'delivery', 'deliveries')} missing of those due here"
            yield _band("lost", start * SECOND, second * SECOND, label)
            total = 0


def drawn_bands(bands: Sequence[Band]) -> list[Band]:
    """Return the bands that a chart can show, by kind and then by time.

    If there are too many of one kind, they are its longest ones.
    """
    drawn = []
    for kind in KINDS:
        bands_of_kind = [band for band in bands if band["kind"] == kind]
        bands_of_kind.sort(key=lambda band: band["from"] - band["to"])
        drawn += sorted(bands_of_kind[:MOST_BANDS], key=_span)
    return drawn


def events_table(bands: Sequence[Band]) -> Table | None:
    """Return the bands as a table, in order of time; None if there are none."""
    shown = drawn_bands(bands)
    if not shown:
        return None
    rows = []
    for band in sorted(shown, key=_span):
        length = _length(band["to"] - band["from"])
        rows.append((_start(band["from"]), length, KINDS[band["kind"]], band["label"]))
    caption = "Events during the load, by time since the start of the measured phase"
    if len(bands) > len(shown):
        caption += f"; {exact(len(bands) - len(shown))} shorter ones are left out"
    return Table(caption=caption, head=("at", "for", "what", "details"), align=">><<", rows=rows)


def _span(band: Band) -> tuple[float, float]:
    return band["from"], band["to"]


def _length(seconds: float) -> str:
    return format_duration(seconds * SECOND) if seconds else "an instant"


def _start(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 120 else format_duration(seconds * SECOND)
