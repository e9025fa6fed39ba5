"""Build the sections ``measurements`` and ``timeline`` of a results document."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from pytest_loadtest.brokers.base import restarts_of
from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES, Metric, Need
from pytest_loadtest.metrics.signed import Lateness
from pytest_loadtest.report.document import (
    TimelineBlocked,
    TimelineChange,
    TimelineSection,
    TimelineStage,
    TimelineStall,
)
from pytest_loadtest.report.hdr import encode_coarse_counts, encode_histogram
from pytest_loadtest.report.measurements_section import (
    BreakdownEntry,
    CustomEntry,
    DelayedIndexSection,
    LatencySection,
    MeasurementsSection,
    OpeningSection,
    OverTimeSection,
    PartLatency,
    SeriesSection,
    WithinHostsSection,
    WorkerEntry,
)
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, ByteRate, format_rate
from pytest_loadtest.values.units import Duration, Rate
from pytest_loadtest.values.wording import counted, format_value
from pytest_loadtest.verdict.observations import Latencies, blocked_share, latencies_of, unfit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import DataclassInstance
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import WorkerEvidence
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import (
        Breakdown,
        CustomValue,
        Measurements,
        Series,
    )
    from pytest_loadtest.metrics.time_slices import OverTime
    from pytest_loadtest.pipeline.run_file import RunChange, RunFile
    from pytest_loadtest.verdict.objectives import Objective


S = TypeVar("S", bound="DataclassInstance")
PERCENTILES: Final = (50, 75, 90, 95, 99, 99.9, 99.99)
TOPICS: Final = 100
"""The largest number of topics with histograms.

Thousands of them would make the file too large to read. The samples have everything.
"""


def measurements_section(
    m: Measurements, *, tolerances: Sequence[Objective] = (), over_time: bool = True
) -> MeasurementsSection:
    """Build the section ``measurements`` of a run or a stage.

    :param tolerances: the bounds on messages that never come.
    :param over_time: include its latencies by blocks of the phase.
    """
    with_histogram = len(m.topics) <= TOPICS
    topics = [_breakdown(topic, m, tolerances, buckets=with_histogram) for topic in m.topics]
    buckets = [_breakdown(bucket, m, tolerances) for bucket in m.buckets]
    parts: Sequence[Mapping[str, Histogram | Lateness]] = m.intervals or [m.latencies]
    intervals = [_part_latencies(part, _PER_INTERVAL) for part in parts]
    blocks = None
    if over_time and m.over_time is not None:
        blocks = _over_time(m.over_time, m.duration)
    return section_of(
        MeasurementsSection,
        m,
        throughput=m.throughput if m.counts.received else None,
        blocked_share=blocked_share(m),
        answered=None if m.answered is None else sum(m.answered),
        counts={row.key: getattr(m.counts, row.attribute) for row in COUNTS},
        latencies=_latencies(m, tolerances),
        delayed_index=m.delayed_index and section_of(DelayedIndexSection, m.delayed_index),
        opening=m.opening and section_of(OpeningSection, m.opening),
        within_hosts=_within_hosts(m),
        series=_series(m.series),
        over_time=blocks,
        intervals=tuple(intervals),
        topics=tuple(topics),
        buckets=tuple(buckets),
        workers=tuple(map(_worker, m.workers)),
        custom=dict(zip(m.custom, map(_custom, m.custom.values()), strict=True)),
    )


_PER_INTERVAL: Final = [metric for metric in LATENCIES.values() if metric.per_interval]
_PER_WORKER: Final = [metric for metric in LATENCIES.values() if metric.per_worker]


def section_of(kind: type[S], fact: Any, **others: Any) -> S:
    """Return a section with the values that a measured or judged fact has under the same names.

    :param others: the fields that the fact does not have, or has in another form.
    """
    names = {field.name for field in fields(kind)} - others.keys()
    values = {name: getattr(fact, name) for name in names}
    return kind(**values, **others)


def _worker(evidence: WorkerEvidence) -> WorkerEntry:
    latencies = _part_latencies(evidence.latencies, _PER_WORKER)
    return section_of(WorkerEntry, evidence, latencies=latencies)


def _custom(value: CustomValue) -> CustomEntry:
    """Return a user's value with its unit; values that are text keep it as their text."""
    if isinstance(value, Duration):
        return CustomEntry(value=value.ns, unit="ns", shown=format_value(value.ns, "ns"))
    unit: Literal["msg/s", "number"] = "msg/s" if isinstance(value, Rate) else "number"
    shown = "no value" if value is None else format_value(value, unit)
    return CustomEntry(value=value, unit=unit, shown=shown)


def _latencies(
    m: Measurements, tolerances: Sequence[Objective]
) -> dict[str, LatencySection | None]:
    """Return every latency that applies to the run; None if nothing was measured.

    The histogram of lateness holds the messages that did not come early; earliness holds the
    others.
    """
    sections = {}
    for attribute, metric in LATENCIES.items():
        histogram = m.latencies.get(attribute)
        if metric.always or histogram is not None or _applies(metric, m):
            latencies = latencies_of(attribute, m, None, tolerances)
            sections[metric.key] = latency_section(latencies, error=m.clock_error)
    return sections


def _applies(metric: Metric, m: Measurements) -> bool:
    """Return True if a latency that only some runs have applies to this run, measured or not."""
    if (Need.BROADCAST in metric.needs and m.broadcasts) or (metric.route_part and m.tapped):
        return True
    return Need.DELAYS in metric.needs and m.counts.out_of_due_order is not None


def _within_hosts(m: Measurements) -> WithinHostsSection | None:
    within = m.within_hosts
    if within is None:
        return None
    received = m.counts.received
    share = within.deliveries / received if received else None
    return section_of(WithinHostsSection, within, share=share)


def latency_section(
    latencies: Latencies, *, buckets: bool = True, error: int = 0
) -> LatencySection | None:
    """Return the latencies of a whole run, topic or size bucket; None if nothing was measured.

    A percentile is None if it rests on too few samples, lies among messages that never came, or may
    lie among unknown values. The maximum is None if a value is unknown, or if a message never came
    that is not tolerated.

    :param buckets: include the histogram. :param error: of the clocks between hosts, ns.
    """
    histogram = latencies.histogram
    never_came = latencies.never_came
    unstamped = max(latencies.unstamped, 0)
    if histogram is None or not histogram.n:
        return None
    percentiles: dict[str, int | None] = {}
    for p in PERCENTILES:
        value = None
        if not unfit(histogram, p, never_came, error, unstamped):
            value = _percentile(histogram, p, never_came + unstamped)
        percentiles[f"p{p:g}"] = value
    statistics = _statistics(histogram)
    if unstamped or (never_came and not latencies.tolerated):
        statistics["maximum"] = None
    shape = histogram.late if isinstance(histogram, Lateness) else histogram
    encoded = None
    if buckets and shape is not None:
        encoded = encode_histogram(shape)
    return LatencySection(
        **statistics, never_came=never_came, percentiles=percentiles, histogram=encoded
    )


def part_latency(histogram: Histogram | Lateness | None) -> PartLatency | None:
    """Return the latencies of one part of a run.

    It proves nothing by itself, so it has all percentiles, however few its samples.
    """
    if histogram is None or not histogram.n:
        return None
    percentiles = {f"p{p:g}": _percentile(histogram, p) for p in PERCENTILES}
    return PartLatency(**_statistics(histogram), never_came=0, percentiles=percentiles)


def _part_latencies(
    latencies: Mapping[str, Histogram | Lateness], metrics: Sequence[Metric]
) -> dict[str, PartLatency | None]:
    """Return these kinds of latencies of one part of a run.

    Those that only some runs have are left out if they were not measured.
    """
    return {
        metric.key: part_latency(latencies.get(metric.attribute))
        for metric in metrics
        if metric.always or metric.attribute in latencies
    }


def _statistics(histogram: Histogram | Lateness) -> dict[str, Any]:
    return {
        "samples": histogram.n,
        "minimum": histogram.minimum,
        "maximum": histogram.maximum,
        "largest": histogram.maximum,
        "mean": histogram.mean,
        "total": histogram.total,
        "negative": histogram.negative,
    }


def _percentile(histogram: Histogram | Lateness, p: float, never_came: int = 0) -> int | None:
    value = histogram.percentile_of_due(p, never_came)
    return int(value) if math.isfinite(value) else None


def _series(series: Series) -> SeriesSection:
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(SeriesSection)):
        column = getattr(series, name)
        values[name] = None if column is None else tuple(map(finite, column.tolist()))
    return SeriesSection(**values)


def _over_time(latencies: OverTime, duration: int) -> OverTimeSection:
    length, blocks = latencies.blocks(duration)
    encoded = []
    for block in blocks:
        encoded.append(encode_coarse_counts(block) if block else None)
    return OverTimeSection(block=length, end_to_end=tuple(encoded))


def finite(value: float | None) -> float | None:
    """Return None for what never came or was not measured: JSON has neither infinity nor NaN."""
    return value if value is not None and math.isfinite(value) else None


def _breakdown(
    part: Breakdown, whole: Measurements, tolerances: Sequence[Objective], *, buckets: bool = True
) -> BreakdownEntry:
    latencies = {}
    for kind in ("end_to_end", "publish"):
        histogram = latencies_of(kind, whole, part, tolerances)
        latencies[kind] = latency_section(histogram, buckets=buckets, error=whole.clock_error)
    return section_of(BreakdownEntry, part, **latencies)


# Events during the measured phase, which charts shade. Times are ns since the start of the measured
# phase.

MOST_SPANS: Final = 500
"""The largest number of spans of one kind.

If there are more, those with the smallest gaps between them are joined.
"""
STALLED: Final = 50 * MILLISECOND
"""A worker stalled in a second that has at least this much of it, ns.

It is as much as one late wake-up that counts.
"""
BLOCKED: Final = MILLISECOND
"""Messages were blocked in a second in which each of them waited this long on average, ns."""


def timeline_section(run: RunFile, measurements: Measurements | None) -> TimelineSection:
    """Build the section ``timeline``. :param measurements: None if nothing was measured."""
    stages = []
    for stage in run.stages:
        start = stage.start - run.start
        stages.append(TimelineStage(name=stage.name, start=start, end=start + stage.duration))
    changes = [TimelineChange(at=change.at, text=_change_text(change)) for change in run.changes]
    stalls: tuple[TimelineStall, ...] = ()
    blocked: tuple[TimelineBlocked, ...] = ()
    if measurements is not None:
        stalls = _stalls(measurements)
        blocked = _blocked(measurements)
    return TimelineSection(
        stages=tuple(stages),
        changes=tuple(changes),
        restarts=restarts_of(run.facts.broker),
        stalls=stalls,
        blocked=blocked,
    )


def _change_text(change: RunChange) -> str:
    parts = []
    if change.rate is not None:
        rate = ByteRate(change.rate) if change.bytes else change.rate
        parts.append(f"rate {format_rate(rate)}")
    if change.paused is not None:
        parts.append("consumers paused" if change.paused else "consumers resumed")
    if change.consumers is not None:
        parts.append(f"{counted(change.consumers, 'consumer')} of each subscription")
    if change.distribution:
        parts.append("payload mix")
    if change.end:
        reason = "ended"
        if change.unattainable:
            reason += f": {change.unattainable} could no longer be met"
        parts.append(change.aborted or reason)
    return ", ".join(parts)


def _stalls(measurements: Measurements) -> tuple[TimelineStall, ...]:
    stalls = []
    for worker in measurements.workers:
        for start, end in second_spans(worker.seconds[:, 1] >= STALLED, measurements.duration):
            stalls.append(TimelineStall(worker=worker.worker, start=start, end=end))
    return tuple(stalls)


def _blocked(measurements: Measurements) -> tuple[TimelineBlocked, ...]:
    series = measurements.series
    if series.blocked is None:
        return ()
    waited = series.blocked >= BLOCKED * np.maximum(series.sent, 1)
    spans = second_spans(waited, len(waited) * SECOND)
    return tuple(TimelineBlocked(start=start, end=end) for start, end in spans)


def second_spans(seconds: NDArray[np.bool_], until: int) -> list[tuple[int, int]]:
    """Join seconds in a row to spans, ns; at most :data:`MOST_SPANS`.

    :param until: where the last second ends, ns.
    """
    # Seconds [0, 1, 1, 0, 1] rise at 1 and 4, and fall at 3 and 5: starts 1, 4 and ends 3, 5.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seconds, [False]]).astype(np.int8)))
    starts = edges[::2]
    ends = edges[1::2]
    if len(starts) > MOST_SPANS:
        gaps = starts[1:] - ends[:-1]
        kept = np.sort(np.argsort(gaps, kind="stable")[len(starts) - MOST_SPANS :])
        starts = np.concatenate([starts[:1], starts[1:][kept]])
        ends = np.concatenate([ends[:-1][kept], ends[-1:]])
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return [(start * SECOND, min(end * SECOND, until)) for start, end in spans]
