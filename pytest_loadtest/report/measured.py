"""Build the parts of a results document that hold measurements: the sections ``measurements`` and ``timeline``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from pytest_loadtest.brokers.base import restarts_of
from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES, Need
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
from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.observations import blocked_share, latencies_of, unfit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.catalogue import Metric
    from pytest_loadtest.metrics.clocks import WithinHosts
    from pytest_loadtest.metrics.expected import Opening, WorkerEvidence
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import (
        Breakdown,
        CustomValue,
        DelayedIndex,
        Measurements,
        Series,
    )
    from pytest_loadtest.metrics.time_slices import OverTime
    from pytest_loadtest.pipeline.run_file import RunChange, RunFile
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.observations import Latencies


PERCENTILES: Final = (50, 75, 90, 95, 99, 99.9, 99.99)
TOPICS: Final = 100
"""The largest number of topics with histograms: thousands of them would make the file too large to read. The samples have everything."""


def measurements_section(
    m: Measurements, *, tolerances: Sequence[Objective] = (), over_time: bool = True
) -> MeasurementsSection:
    """Build the section ``measurements`` of a run or a stage.

    :param tolerances: the bounds on messages that never come. :param over_time: include its latencies by blocks of the phase.
    """
    parts: Sequence[Mapping[str, Histogram | Lateness]] = m.intervals or [m.latencies]
    return MeasurementsSection(
        duration=m.duration,
        rate=m.rate,
        subscriptions=m.subscriptions,
        throughput=m.throughput if m.counts.received else None,
        publish_rate=m.publish_rate,
        bytes_sent=m.bytes_sent,
        blocked=m.blocked,
        blocked_share=blocked_share(m),
        counts={row.key: getattr(m.counts, row.attribute) for row in COUNTS},
        latencies=_latencies(m, tolerances),
        delayed_index=None if m.delayed_index is None else _index(m.delayed_index),
        opening=None if m.opening is None else _opening(m.opening),
        silent=m.silent,
        full_windows=m.full_windows,
        within_hosts=None
        if m.within_hosts is None
        else _within_hosts(m.within_hosts, m.counts.received),
        series=_series(m.series),
        over_time=_over_time(m.over_time, m.duration)
        if over_time and m.over_time is not None
        else None,
        intervals=tuple(
            _part_latencies(part, [metric for metric in LATENCIES.values() if metric.per_interval])
            for part in parts
        ),
        topics=tuple(
            _breakdown(topic, m, tolerances, buckets=len(m.topics) <= TOPICS) for topic in m.topics
        ),
        buckets=tuple(_breakdown(bucket, m, tolerances) for bucket in m.buckets),
        workers=tuple(map(_worker, m.workers)),
        custom={name: _custom(value) for name, value in m.custom.items()},
        lost=m.lost,
    )


def _worker(evidence: WorkerEvidence) -> WorkerEntry:
    return WorkerEntry(
        worker=evidence.worker, cpu=evidence.cpu, stalled=evidence.stalled, longest_stall=evidence.longest_stall, gc=evidence.gc,
        latencies=_part_latencies(evidence.latencies, [metric for metric in LATENCIES.values() if metric.per_worker]),
    )  # fmt: skip


def _custom(value: CustomValue) -> CustomEntry:
    """Return a user's value with its unit; values that are text keep it as their text."""
    if isinstance(value, Duration):
        return CustomEntry(value=value.ns, unit="ns", shown=format_value(value.ns, "ns"))
    unit: Literal["msg/s", "number"] = "msg/s" if isinstance(value, Rate) else "number"
    return CustomEntry(
        value=value, unit=unit, shown="no value" if value is None else format_value(value, unit)
    )


def _latencies(
    m: Measurements, tolerances: Sequence[Objective]
) -> dict[str, LatencySection | None]:
    """Return every latency that applies to the run; None if nothing was measured.

    The histogram of lateness holds the messages that did not come early; earliness holds the others.
    """
    sections = {}
    for attribute, metric in LATENCIES.items():
        histogram = m.latencies.get(attribute)
        if metric.always or histogram is not None or _applies(metric, m):
            sections[metric.key] = latency_section(
                latencies_of(attribute, m, None, tolerances), error=m.clock_error
            )
    return sections


def _applies(metric: Metric, m: Measurements) -> bool:
    """Return True if a latency that only some runs have applies to this run, measured or not."""
    return (Need.BROADCAST in metric.needs and m.broadcasts) or (
        Need.DELAYS in metric.needs and m.counts.out_of_due_order is not None
    )


def _index(index: DelayedIndex) -> DelayedIndexSection:
    return DelayedIndexSection(
        bytes=index.bytes, messages=index.messages, bytes_per_message=index.bytes_per_message
    )


def _within_hosts(within: WithinHosts, received: int) -> WithinHostsSection:
    share = within.deliveries / received if received else None
    return WithinHostsSection(deliveries=within.deliveries, share=share, complete=within.complete)


def _opening(opening: Opening) -> OpeningSection:
    return OpeningSection(
        alone=opening.alone, connections=opening.connections, rate=opening.rate, achieved=opening.achieved, took=opening.took,
        busiest=opening.busiest, cpu=opening.cpu, begun_late=opening.begun_late, in_time=opening.in_time,
    )  # fmt: skip


def latency_section(
    latencies: Latencies, *, buckets: bool = True, error: int = 0
) -> LatencySection | None:
    """Return the latencies of a whole run, topic or size bucket; None if nothing was measured.

    Percentiles that rest on too few samples are None, and those that lie among messages that never came, as the maximum does if such
    messages are not tolerated.

    :param buckets: include the histogram. :param error: of the clocks between hosts, ns.
    """
    histogram, never_came = latencies.histogram, latencies.never_came
    if histogram is None or not histogram.n:
        return None
    shape = histogram.late if isinstance(histogram, Lateness) else histogram
    percentiles = {
        f"p{p:g}": None
        if unfit(histogram, p, never_came, error)
        else _percentile(histogram, p, never_came)
        for p in PERCENTILES
    }
    encoded = encode_histogram(shape) if buckets and shape is not None else None
    statistics = _statistics(histogram)
    if never_came and not latencies.tolerated:
        statistics["maximum"] = None
    return LatencySection(
        **statistics, never_came=never_came, percentiles=percentiles, histogram=encoded
    )


def part_latency(histogram: Histogram | Lateness | None) -> PartLatency | None:
    """Return the latencies of one part of a run. It proves nothing by itself, so it has all percentiles, however few its samples."""
    if histogram is None or not histogram.n:
        return None
    percentiles = {f"p{p:g}": _percentile(histogram, p) for p in PERCENTILES}
    return PartLatency(**_statistics(histogram), never_came=0, percentiles=percentiles)


def _part_latencies(
    latencies: Mapping[str, Histogram | Lateness], metrics: Sequence[Metric]
) -> dict[str, PartLatency | None]:
    """Return these kinds of latencies of one part of a run; those that only some runs have are left out if they were not measured."""
    return {
        metric.key: part_latency(latencies.get(metric.attribute))
        for metric in metrics
        if metric.always or metric.attribute in latencies
    }


def _statistics(histogram: Histogram | Lateness) -> dict[str, Any]:
    return {
        "samples": histogram.n, "minimum": histogram.minimum, "maximum": histogram.maximum, "largest": histogram.maximum,
        "mean": histogram.mean,
        "total": histogram.total, "negative": histogram.negative,
    }  # fmt: skip


def _percentile(histogram: Histogram | Lateness, p: float, never_came: int = 0) -> int | None:
    value = histogram.percentile_of_due(p, never_came)
    return int(value) if math.isfinite(value) else None


def _series(series: Series) -> SeriesSection:
    return SeriesSection(
        offered=tuple(series.offered.tolist()),
        sent=tuple(series.sent.tolist()),
        acked=tuple(series.acked.tolist()),
        received=tuple(series.received.tolist()),
        end_to_end_p50=tuple(map(finite, series.end_to_end_p50.tolist())),
        end_to_end_p99=tuple(map(finite, series.end_to_end_p99.tolist())),
        end_to_end_max=tuple(map(finite, series.end_to_end_max.tolist())),
        missing=None if series.missing is None else tuple(series.missing.tolist()),
        blocked=None if series.blocked is None else tuple(series.blocked.tolist()),
        receive_lag_max=None
        if series.receive_lag_max is None
        else tuple(map(finite, series.receive_lag_max.tolist())),
    )


def _over_time(latencies: OverTime, duration: int) -> OverTimeSection:
    length, blocks = latencies.blocks(duration)
    return OverTimeSection(
        block=length,
        end_to_end=tuple(encode_coarse_counts(block) if block else None for block in blocks),
    )


def finite(value: float | None) -> float | None:
    """Return None for what never came or was not measured: JSON has neither infinity nor NaN."""
    return value if value is not None and math.isfinite(value) else None


def _breakdown(
    part: Breakdown, whole: Measurements, tolerances: Sequence[Objective], *, buckets: bool = True
) -> BreakdownEntry:
    latencies = {
        kind: latency_section(
            latencies_of(kind, whole, part, tolerances), buckets=buckets, error=whole.clock_error
        )
        for kind in ("end_to_end", "publish")
    }
    return BreakdownEntry(
        name=part.name,
        offered=part.offered,
        sent=part.sent,
        acked=part.acked,
        received=part.received,
        received_in_time=part.received_in_time,
        lost=part.lost,
        bytes_sent=part.bytes_sent,
        end_to_end=latencies["end_to_end"],
        publish=latencies["publish"],
    )


# Events during the measured phase, which charts shade. Times are ns since the start of the measured phase.

MOST_SPANS: Final = 500
"""The largest number of spans of one kind. If there are more, those with the smallest gaps between them are joined."""
STALLED: Final = 50 * MILLISECOND
"""A worker stalled in a second that has at least this much of it, ns: as much as one late wake-up that counts."""
BLOCKED: Final = MILLISECOND
"""Messages were blocked in a second in which each of them waited at least this long on average, ns."""


def timeline_section(run: RunFile, measurements: Measurements | None) -> TimelineSection:
    """Build the section ``timeline``. :param measurements: None if nothing was measured."""
    return TimelineSection(
        stages=tuple(
            TimelineStage(
                name=stage.name,
                start=stage.start - run.start,
                end=stage.start - run.start + stage.duration,
            )
            for stage in run.stages
        ),
        changes=tuple(
            TimelineChange(at=change.at, text=_change_text(change)) for change in run.changes
        ),
        restarts=restarts_of(run.facts.broker),
        stalls=() if measurements is None else _stalls(measurements),
        blocked=() if measurements is None else _blocked(measurements),
    )


def _change_text(change: RunChange) -> str:
    parts = []
    if change.rate is not None:
        parts.append(f"rate {format_rate(ByteRate(change.rate) if change.bytes else change.rate)}")
    if change.paused is not None:
        parts.append("consumers paused" if change.paused else "consumers resumed")
    if change.consumers is not None:
        parts.append(f"{change.consumers} consumers of each subscription")
    if change.distribution:
        parts.append("payload mix")
    if change.end:
        lost = (
            f"ended: {change.unattainable} could no longer be met"
            if change.unattainable
            else "ended"
        )
        parts.append(change.aborted or lost)
    return ", ".join(parts)


def _stalls(measurements: Measurements) -> tuple[TimelineStall, ...]:
    return tuple(
        TimelineStall(worker=worker.worker, start=start, end=end)
        for worker in measurements.workers
        for start, end in second_spans(worker.seconds[:, 1] >= STALLED, measurements.duration)
    )


def _blocked(measurements: Measurements) -> tuple[TimelineBlocked, ...]:
    series = measurements.series
    if series.blocked is None:
        return ()
    waited = series.blocked >= BLOCKED * np.maximum(series.sent, 1)
    return tuple(
        TimelineBlocked(start=start, end=end)
        for start, end in second_spans(waited, len(waited) * SECOND)
    )


def second_spans(seconds: NDArray[np.bool_], until: int) -> list[tuple[int, int]]:
    """Join seconds in a row to spans, ns; at most :data:`MOST_SPANS`. :param until: where the last second ends, ns."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seconds, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    gaps = starts[1:] - ends[:-1]
    if len(starts) > MOST_SPANS:
        kept = np.sort(np.argsort(gaps, kind="stable")[len(starts) - MOST_SPANS :])
        starts, ends = (
            np.concatenate([starts[:1], starts[1:][kept]]),
            np.concatenate([ends[:-1][kept], ends[-1:]]),
        )
    return [
        (start * SECOND, min(end * SECOND, until))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
