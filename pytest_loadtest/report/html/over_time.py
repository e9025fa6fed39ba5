"""Charts over the time of a run: rates, latencies, what was lost and doubled."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report.hdr import counts_distribution, decode_counts
from pytest_loadtest.report.html.blocks import Table
from pytest_loadtest.report.html.charts import LATENCY, TIME, Axis, Line, even_spans, latency_levels, make_chart
from pytest_loadtest.values.quantities import SECOND, format_duration, format_rate
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.charts import Chart


RATES = ("offered", "sent", "acked", "received")
PER_SECOND = {"endToEndP50": "p50", "endToEndP99": "p99", "endToEndMax": "max"}


def rate_chart(measured: Document, run: str) -> Chart | None:
    """Offered, sent, acked and received, each in the second in which it happened."""
    series, fan = measured["series"], measured["subscriptions"]
    words = {"received": "received" if fan == 1 else f"received, all {fan} subscriptions"}
    lines = [Line(words.get(name, name), name, series[name]) for name in RATES if name != "received" or fan]
    whole = measured["duration"] // SECOND or None  # the drain is no second of the rate
    said = [f"{line.label} {_range(line.known[:whole], format_rate)}" for line in lines if line.known]
    rate = Axis("rate", "msg/s")
    return make_chart("lines", "Messages per second", run, _sentence(said), TIME, rate, _seconds(series), lines)


def latency_chart(measured: Document, findings: Sequence[Document], run: str) -> Chart | None:
    """Median, 99th percentile and maximum of each second."""
    series = measured["series"]
    lines = [Line(name, name, series[key]) for key, name in PER_SECOND.items()]
    said = [f"{line.label} {_range(line.known, format_duration)}" for line in lines if line.known]
    title = "End-to-end latency of each second"
    return make_chart("lines", title, run, _sentence(said), TIME, LATENCY, _seconds(series), lines, bounds=latency_levels(findings))


def loss_chart(measured: Document, run: str) -> Chart | None:
    """What is missing of each second's deliveries, and what came too often; None where there was none, or it is not known when."""
    series = measured["series"]
    missing = series.get("missing") or []  # older results have none
    lines = [
        Line("missing", "lost", [max(count, 0) for count in missing]),
        Line("too many", "duplicates", [max(-count, 0) for count in missing]),
    ]
    shown = [line for line in lines if any(line.known)]
    said = [f"{line.label} {exact(sum(line.known))} in {sum(map(bool, line.known))} seconds" for line in shown]
    summary = f"{_sentence(said)} Deliveries of the messages due in each second; what is lost and doubled in one second cancels out here."
    count = Axis("deliveries", "count")
    return make_chart("bars", "Lost and duplicates", run, summary, TIME, count, _seconds(series), shown)


def blocked_chart(measured: Document, run: str) -> Chart | None:
    """Time before the target's full window; None where there was none, or it is not known when."""
    series = measured["series"]
    line = Line("blocked", "blocked", series.get("blocked") or [])
    if not any(line.known):
        return None
    title = "Blocked before the target's full window, summed over messages"
    said = f"{format_duration(sum(line.known))} in {sum(map(bool, line.known))} seconds; up to {format_duration(max(line.known))} in one."
    return make_chart("bars", title, run, said, TIME, Axis("blocked", "ns"), _seconds(series), [line])


def _seconds(series: Document) -> range:
    return range(len(series["offered"]))


def _range(known: Sequence[float], worded: Any) -> str:
    return f"{worded(min(known))} to {worded(max(known))}"


def _sentence(parts: Sequence[str]) -> str:
    return f"{'; '.join(parts)}."


def interval_charts(measured: Document, run: str) -> Iterator[tuple[str, Chart]]:
    """Publish latency and send delay of every ten seconds, which are not known by the second."""
    parts = measured["intervals"]
    if len(parts) < 2:
        return
    xs = [number * 10 for number in range(len(parts))]
    for kind, title in (("publish", "Publish latency"), ("sendDelay", "Send delay")):
        lines = [Line("max", "max", [part[kind] and part[kind]["maximum"] for part in parts])]
        lines += [Line(name, name, [part[kind] and part[kind]["percentiles"][name] for part in parts]) for name in ("p50", "p99", "p99.9")]
        said = _sentence([f"{line.label} {_range(line.known, format_duration)}" for line in lines if line.known])
        axis = Axis(title.lower(), "ns", "log")
        found = make_chart("lines", f"{title} of each ten seconds", run, said, TIME, axis, xs, lines)
        if found is not None:
            yield kind, found


# Latency over time from the histograms of its blocks: a heat map, and the percentiles of each block.

COLUMNS: Final = 360
"""Of a heat map at most; of a longer run neighbouring blocks are added up."""
HEAT_BITS: Final = 3
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
    columns = [_heat_rows(counted[first:last]) for first, last in parts]
    used = [row for column in columns for row in column]
    low, high = min(used), max(used)
    fullest = max(count for column in columns for count in column.values())
    step = (parts[0][1] - parts[0][0]) * block
    return {
        "kind": "heat", "title": "End-to-end latency over time, as a heat map", "run": run,
        "summary": f"How many copies had which latency, each {format_duration(step)}; up to {exact(fullest)} in one cell.",
        "x": TIME.document(), "y": LATENCY.document(), "xs": [first * block / SECOND for first, _ in parts], "step": step / SECOND,
        "ys": [bucket_bounds(row, HEAT_BITS)[0] for row in range(low, high + 2)],
        "cells": [[x, row - low, count] for x, column in enumerate(columns) for row, count in sorted(column.items())],
        "series": [], "bounds": [], "marks": [],
    }  # fmt: skip


def _heat_rows(counted: Sequence[dict[int, int]]) -> dict[int, int]:
    """Counts by bucket of :data:`HEAT_BITS` bits, into which whole finer buckets fall."""
    found: dict[int, int] = {}
    for block in counted:
        for index, count in block.items():
            row = _heat_row(index)
            found[row] = found.get(row, 0) + count
    return found


@cache
def _heat_row(index: int) -> int:
    low, _ = bucket_bounds(index, SERIES_BITS)
    shift = max(low.bit_length() - 1 - HEAT_BITS, 0)
    return (shift << HEAT_BITS) + (low >> shift)


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


# What happened beside the load and when: spans of time that are shaded over every chart of a run, and listed.

Band = dict[str, Any]
MOST_BANDS: Final = 200
"""Of one kind that are shown: more of them cover the chart. The longest are."""
KINDS: Final = {
    "stage": "stage", "change": "change", "restart": "broker restart", "stall": "generator stalled", "blocked": "blocked", "lost": "lost",
}  # fmt: skip


def find_bands(document: Document) -> list[Band]:
    """All of a run, by kind and then by time; seconds since the start of the measured phase."""
    measured = document["measurements"]
    line = document.get("timeline") or {}  # older results have none, nor do broken runs
    end = _end_of_time(document)
    found = [
        *(_band("stage", one["start"], one["end"], one["name"]) for one in line.get("stages", ())),
        *(_band("change", one["at"], one["at"], one["text"]) for one in line.get("changes", ())),
        *_restarts(line.get("restarts", document["broker"].get("restarts", ())), end),
        *(_band("stall", one["start"], one["end"], f"worker {one['worker']}") for one in line.get("stalls", ())),
        *(_band("blocked", one["start"], one["end"], "the target's window was full") for one in line.get("blocked", ())),
    ]
    return found + list(_loss_bands((measured or {}).get("series", {}).get("missing") or ()))


def _end_of_time(document: Document) -> int:
    """Where the time line ends, ns: the drain belongs to it."""
    measured = document["measurements"]
    return 0 if measured is None else max(measured["duration"], len(measured["series"]["offered"]) * SECOND)


def _band(kind: str, start: float, end: float, label: str) -> Band:
    return {"kind": kind, "from": start / SECOND, "to": end / SECOND, "label": label}


def _restarts(restarts: Sequence[Document], end: int) -> Iterator[Band]:
    for one in restarts:
        ready = one["ready"]
        took = "not ready again" if ready is None else f"ready {format_duration(ready - one['down'])} later"
        yield _band("restart", one["down"], max(end, one["down"]) if ready is None else ready, took)


def _loss_bands(missing: Sequence[int]) -> Iterator[Band]:
    """Neighbouring seconds of which deliveries are missing are one span."""
    start, total = 0, 0
    for second, count in enumerate([*missing, 0]):
        if count > 0:
            start, total = (start if total else second), total + count
        elif total:
            yield _band("lost", start * SECOND, second * SECOND, f"{exact(total)} deliveries of those due here are missing")
            total = 0


def drawn_bands(found: Sequence[Band]) -> list[Band]:
    """Those that a chart can show, by kind and then by time: of too many of one kind the longest."""
    kept: list[Band] = []
    for kind in KINDS:
        longest = sorted((band for band in found if band["kind"] == kind), key=lambda band: band["from"] - band["to"])[:MOST_BANDS]
        kept += sorted(longest, key=lambda band: (band["from"], band["to"]))
    return kept


def events_table(found: Sequence[Band]) -> Table | None:
    """Those as a table, in order of time; None where there are none."""
    shown = drawn_bands(found)
    rows = [
        (_at(band["from"]), _long(band["to"] - band["from"]), KINDS[band["kind"]], band["label"])
        for band in sorted(shown, key=lambda band: (band["from"], band["to"]))
    ]
    more = f"; {exact(len(found) - len(shown))} shorter ones are left out" if len(found) > len(shown) else ""
    caption = f"What happened beside the load, by time since the start of the measured phase{more}"
    head = ("at", "for", "what", "")
    return Table(caption=caption, head=head, rows=rows, numbers=frozenset((0, 1))) if rows else None


def _long(seconds: float) -> str:
    return format_duration(seconds * SECOND) if seconds else "an instant"


def _at(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 120 else format_duration(seconds * SECOND)
