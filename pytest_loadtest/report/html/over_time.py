"""Charts over the time of a run: rates, latencies, lost and duplicate messages, and the events that are shaded in them."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.hdr import counts_distribution, decode_counts
from pytest_loadtest.report.html.blocks import Table
from pytest_loadtest.report.html.charts import (
    LATENCY,
    TIME,
    Axis,
    Line,
    even_spans,
    latency_levels,
    make_chart,
)
from pytest_loadtest.report.sections import restart_text
from pytest_loadtest.values.quantities import SECOND, format_duration, format_rate
from pytest_loadtest.values.wording import counted, exact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_loadtest.brokers.base import Restart
    from pytest_loadtest.report.document import BottleneckSection, RunDocument
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.measurements_section import MeasurementsSection, SeriesSection
    from pytest_loadtest.report.verdict_section import FindingEntry


def rate_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw offered, sent, acked and received messages, each in the second of the event."""
    series, fan = measured.series, measured.subscriptions
    received = "received" if fan == 1 else f"received, all {fan} subscriptions"
    lines = [
        Line("offered", "offered", series.offered),
        Line("sent", "sent", series.sent),
        Line("acked", "acked", series.acked),
    ]
    lines += [Line(received, "received", series.received)] if fan else []
    whole = measured.duration // SECOND or None  # the seconds of the drain have no rate
    ranges = [
        f"{line.label} {_range(line.known[:whole], format_rate)}" for line in lines if line.known
    ]
    drain = (
        f" The drain begins at {format_duration(measured.duration)}."
        if len(series.offered) * SECOND > measured.duration
        else ""
    )
    return make_chart(
        "lines",
        "Messages per second",
        run,
        _sentence(ranges) + drain,
        TIME,
        Axis("rate", "msg/s"),
        _seconds(series),
        lines,
    )


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
    title, summary = "End-to-end latency of each second", _sentence(_duration_ranges(lines))
    return make_chart(
        "lines",
        title,
        run,
        summary,
        TIME,
        LATENCY,
        _seconds(series),
        lines,
        bounds=latency_levels(findings),
    )


def loss_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw missing and duplicate deliveries of each second; None if there are none, or their time is unknown."""
    series = measured.series
    missing = series.missing or ()
    lines = [
        Line("missing", "lost", [max(count, 0) for count in missing]),
        Line("too many", "duplicates", [max(-count, 0) for count in missing]),
    ]
    shown = [line for line in lines if any(line.known)]
    sums = [
        f"{line.label} {exact(sum(line.known))} in {counted(sum(map(bool, line.known)), 'second')}"
        for line in shown
    ]
    summary = f"{_sentence(sums)} Deliveries of the messages due in each second; lost and duplicate ones of one second cancel out."
    count = Axis("deliveries", "count")
    return make_chart(
        "bars", "Lost and duplicates", run, summary, TIME, count, _seconds(series), shown
    )


def blocked_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw the time of waiting for the target's full window; None if there is none, or its time is unknown."""
    series = measured.series
    line = Line("blocked", "blocked", series.blocked or ())
    if not any(line.known):
        return None
    title = "Blocked before the target's full window, summed over messages"
    total, most = format_duration(sum(line.known)), format_duration(max(line.known))
    summary = f"{total} in {counted(sum(map(bool, line.known)), 'second')}; up to {most} in one."
    return make_chart(
        "bars", title, run, summary, TIME, Axis("blocked", "ns"), _seconds(series), [line]
    )


def lag_chart(measured: MeasurementsSection, run: str) -> Chart | None:
    """Draw the largest receive lag of the messages due in each second; None if it is unknown."""
    series = measured.series
    lines = [Line("max", "max", series.receive_lag_max or ())]
    if not lines[0].known:
        return None
    title, summary = "Largest receive lag of each second", _sentence(_duration_ranges(lines))
    return make_chart(
        "lines",
        title,
        run,
        summary,
        TIME,
        Axis("receive lag", "ns", "log"),
        _seconds(series),
        lines,
    )


def _seconds(series: SeriesSection) -> range:
    return range(len(series.offered))


def _range(known: Sequence[float], formatted: Callable[[float], str]) -> str:
    return f"{formatted(min(known))} to {formatted(max(known))}"


def _duration_ranges(lines: Sequence[Line]) -> list[str]:
    return [f"{line.label} {_range(line.known, format_duration)}" for line in lines if line.known]


def _sentence(parts: Sequence[str]) -> str:
    return f"{'; '.join(parts)}."


def interval_charts(measured: MeasurementsSection, run: str) -> Iterator[tuple[str, Chart]]:
    """Draw publish latency, send delay and receive lag of each ten seconds: they are not kept for each second."""
    intervals = measured.intervals
    if len(intervals) < 2:
        return
    xs = [number * 10 for number in range(len(intervals))]
    kinds = {
        "publish": ("Publish latency", [interval["publish"] for interval in intervals]),
        "sendDelay": ("Send delay", [interval["sendDelay"] for interval in intervals]),
        "receiveLag": ("Receive lag", [interval.get("receiveLag") for interval in intervals]),
    }
    for kind, (title, latencies) in kinds.items():
        lines = [
            Line(
                "max",
                "max",
                [None if latency is None else latency.maximum for latency in latencies],
            ),
            *(
                Line(
                    p,
                    p,
                    [None if latency is None else latency.percentiles[p] for latency in latencies],
                )
                for p in ("p50", "p99", "p99.9")
            ),
        ]
        axis, summary = Axis(title.lower(), "ns", "log"), _sentence(_duration_ranges(lines))
        chart = make_chart(
            "lines", f"{title} of each ten seconds", run, summary, TIME, axis, xs, lines
        )
        if chart is not None:
            yield kind, chart


# Latency over time from the histograms of its blocks: a heat map, and the percentiles of each block.

COLUMNS: Final = 360
"""The largest number of columns in a heat map; in longer runs neighbouring blocks are added up."""
HEAT_BITS: Final = 3
"""Significant bits of a row of a heat map: eight rows to an octave."""
PERCENTILES: Final = (50, 90, 99, 99.9)


def time_blocks(measured: MeasurementsSection) -> list[dict[int, int]]:
    """Return the counts by bucket of each block, ascending; empty if the results do not have them."""
    over_time = measured.over_time
    return [] if over_time is None else [decode_counts(text) for text in over_time.end_to_end]


def blocks_are_seconds(measured: MeasurementsSection) -> bool:
    """Return True if the blocks are seconds, so that the series of seconds add nothing to them."""
    return measured.over_time is not None and measured.over_time.block == SECOND


def heat_map(
    counted: Sequence[dict[int, int]], measured: MeasurementsSection, run: str
) -> Chart | None:
    """Draw the number of copies by latency and block; None if it is unknown. :param counted: from :func:`time_blocks`."""
    over_time = measured.over_time
    if over_time is None or not any(counted):
        return None
    block, parts = over_time.block, even_spans(len(counted), COLUMNS)
    columns = [_heat_rows(counted[first:last]) for first, last in parts]
    used = [row for column in columns for row in column]
    low, high = min(used), max(used)
    fullest = max(count for column in columns for count in column.values())
    step = (parts[0][1] - parts[0][0]) * block
    return {
        "kind": "heat", "title": "End-to-end latency over time, as a heat map", "run": run,
        "summary": f"Number of copies by latency, for each {format_duration(step)}; up to {exact(fullest)} in one cell.",
        "x": TIME.document(), "y": LATENCY.document(), "xs": [first * block / SECOND for first, _ in parts], "step": step / SECOND,
        "ys": [bucket_bounds(row, HEAT_BITS)[0] for row in range(low, high + 2)],
        "cells": [[x, row - low, count] for x, column in enumerate(columns) for row, count in sorted(column.items())],
        "series": [], "bounds": [], "marks": [],
    }  # fmt: skip


def _heat_rows(counted: Sequence[dict[int, int]]) -> dict[int, int]:
    """Return counts by bucket of :data:`HEAT_BITS` bits; each finer bucket lies within one of them."""
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
    """Draw percentiles and the largest latency of the messages due in each block, however few; None if they are unknown."""
    over_time, maxima = measured.over_time, measured.series.end_to_end_max
    if over_time is None or not counted:
        return None
    block, length = over_time.block, over_time.block // SECOND
    tops = [
        max(
            (int(top) for top in maxima[at * length : (at + 1) * length] if top is not None),
            default=None,
        )
        for at in range(len(counted))
    ]
    distributions = [
        counts_distribution(counts, top) for counts, top in zip(counted, tops, strict=True)
    ]
    xs = [number * block / SECOND for number in range(len(distributions))]
    lines = [
        Line(
            f"p{p:g}",
            f"p{p:g}",
            [None if one is None else one.percentile(p) for one in distributions],
        )
        for p in PERCENTILES
    ]
    if blocks_are_seconds(measured):
        lines.append(Line("max", "max", maxima[: len(xs)]))
    each = "second" if blocks_are_seconds(measured) else format_duration(block)
    summary = f"{_sentence(_duration_ranges(lines))} Messages that never came are not included."
    title = f"Percentiles of end-to-end latency, each {each}"
    return make_chart(
        "lines", title, run, summary, TIME, LATENCY, xs, lines, bounds=latency_levels(findings)
    )


# Events during the load: time slices that are shaded in every chart of a run, and listed.

Band = dict[str, Any]
MOST_BANDS: Final = 200
"""The largest number of bands of one kind, the longest ones: more of them cover the chart."""
KINDS: Final = {
    "stage": "stage", "change": "change", "restart": "outage", "move": "topics moved", "stall": "generator stalled",
    "blocked": "blocked", "lost": "lost",
}  # fmt: skip


def find_bands(document: RunDocument) -> list[Band]:
    """Return all bands of a run, by kind and then by time; seconds since the start of the measured phase."""
    measured, timeline = document.measurements, document.timeline
    end = (
        0 if measured is None else max(measured.duration, len(measured.series.offered) * SECOND)
    )  # the drain is shown, too
    bands = [
        *(
            _band("stage", one.start, one.end, one.name)
            for one in (timeline.stages if timeline else ())
        ),
        *(
            _band("change", one.at, one.at, one.text)
            for one in (timeline.changes if timeline else ())
        ),
        *_restart_bands(timeline.restarts if timeline else document.restarts, end),
        *(_move_bands(document.bottleneck) if document.bottleneck else ()),
        *(
            _band("stall", one.start, one.end, f"worker {one.worker}")
            for one in (timeline.stalls if timeline else ())
        ),
        *(
            _band("blocked", one.start, one.end, "the target's window was full")
            for one in (timeline.blocked if timeline else ())
        ),
    ]
    return bands + list(_loss_bands(() if measured is None else measured.series.missing or ()))


def _band(kind: str, start: float, end: float, label: str) -> Band:
    return {"kind": kind, "from": start / SECOND, "to": end / SECOND, "label": label}


def _restart_bands(restarts: Sequence[Restart], end: int) -> Iterator[Band]:
    for restart in restarts:
        until = max(end, restart.down) if restart.ready is None else restart.ready
        yield _band(
            "restart", restart.down, until, f"{restart.node} {restart_text(restart)}".strip()
        )


# By the last part of the column's name.
_MOVES: Final = {
    "gained": "{more} to {broker}",
    "reopened": "{more} closed and opened again",
    "bundles": "bundles {before} → {after}",
}


def _move_bands(section: BottleneckSection) -> Iterator[Band]:
    """Yield the changes of brokers and bundles of the run's topics, each between the two samples that differ."""
    for name, column in section.columns.items():
        broker, _, what = name.rpartition(".")
        known = [
            (at, round(value))
            for at, value in zip(section.time, column, strict=True)
            if value is not None and what in _MOVES
        ]
        # Counts begin at zero with the phase; the number of bundles does not.
        for (start, before), (end, after) in pairwise(
            known if what == "bundles" else [(0, 0), *known]
        ):
            if before != after:
                yield _band(
                    "move",
                    start,
                    end,
                    _MOVES[what].format(
                        broker=broker, more=after - before, before=before, after=after
                    ),
                )


def _loss_bands(missing: Sequence[int]) -> Iterator[Band]:
    """Join neighbouring seconds with missing deliveries."""
    start, total = 0, 0
    for second, count in enumerate([*missing, 0]):
        if count > 0:
            start, total = (start if total else second), total + count
        elif total:
            yield _band(
                "lost",
                start * SECOND,
                second * SECOND,
                f"{counted(total, 'delivery', 'deliveries')} missing of those due here",
            )
            total = 0


def drawn_bands(bands: Sequence[Band]) -> list[Band]:
    """Return the bands that a chart can show, by kind and then by time: the longest if there are too many of one kind."""
    drawn: list[Band] = []
    for kind in KINDS:
        longest = sorted(
            (band for band in bands if band["kind"] == kind),
            key=lambda band: band["from"] - band["to"],
        )[:MOST_BANDS]
        drawn += sorted(longest, key=lambda band: (band["from"], band["to"]))
    return drawn


def events_table(bands: Sequence[Band]) -> Table | None:
    """Return the bands as a table, in order of time; None if there are none."""
    shown = drawn_bands(bands)
    rows = [
        (
            _start(band["from"]),
            _length(band["to"] - band["from"]),
            KINDS[band["kind"]],
            band["label"],
        )
        for band in sorted(shown, key=lambda band: (band["from"], band["to"]))
    ]
    more = (
        f"; {exact(len(bands) - len(shown))} shorter ones are left out"
        if len(bands) > len(shown)
        else ""
    )
    caption = f"Events during the load, by time since the start of the measured phase{more}"
    head = ("at", "for", "what", "")
    return Table(caption=caption, head=head, rows=rows, numbers=frozenset((0, 1))) if rows else None


def _length(seconds: float) -> str:
    return format_duration(seconds * SECOND) if seconds else "an instant"


def _start(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 120 else format_duration(seconds * SECOND)
