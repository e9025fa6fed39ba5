"""The numbers of a run as JSON values: the sections ``measurements`` of its document."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES, Need
from pytest_loadtest.metrics.signed import Lateness
from pytest_loadtest.report.hdr import encode_coarse_counts, encode_histogram
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, ByteRate, format_rate
from pytest_loadtest.values.units import Duration, Rate
from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.observations import blocked_share, unfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.catalogue import Metric
    from pytest_loadtest.metrics.expected import Opening
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Breakdown, Counts, CustomValue, DelayedIndex, Measurements, Series
    from pytest_loadtest.metrics.silent import Silent
    from pytest_loadtest.metrics.time_slices import OverTime
    from pytest_loadtest.pipeline.run_file import RunChange, RunFile


PERCENTILES: Final = (50, 75, 90, 95, 99, 99.9, 99.99)
TOPICS: Final = 100
"""A run of more topics has the histograms of none: a file with thousands of them is too large to be read, and samples have it all."""


def measurements_section(measurements: Measurements, *, over_time: bool = True) -> dict[str, Any]:
    """The section ``measurements`` of a run or a stage. :param over_time: with its latencies by the second."""
    m = measurements
    return {
        "duration": m.duration,
        "rate": m.rate,
        "subscriptions": m.subscriptions,
        "throughput": m.throughput if m.counts.received else None,
        "publishRate": m.publish_rate,
        "bytesSent": m.bytes_sent,
        "blocked": m.blocked,
        "blockedShare": blocked_share(m),
        "counts": _counts(m.counts),
        "latencies": _latencies(m),
        "delayedIndex": None if m.delayed_index is None else _index(m.delayed_index),
        "opening": None if m.opening is None else _opening(m.opening),
        "silent": None if m.silent is None else _silent(m.silent),
        "series": _series(m.series),
        "overTime": _over_time(m.over_time, m.duration) if over_time and m.over_time is not None else None,
        "intervals": [
            {metric.key: latency_section(part.get(kind), whole=False) for kind, metric in LATENCIES.items() if metric.per_interval}
            for part in m.intervals or [m.latencies]
        ],
        "topics": [_breakdown(topic, m, buckets=len(m.topics) <= TOPICS) for topic in m.topics],
        "buckets": [_breakdown(bucket, m) for bucket in m.buckets],
        "workers": [
            {"worker": w.worker, "cpu": w.cpu, "stalled": w.stalled, "longestStall": w.longest_stall, "gc": w.gc} for w in m.workers
        ],
        "custom": {name: _custom(value) for name, value in m.custom.items()},
        "lost": [{"topic": r.topic, "subscription": r.subscription, "stream": r.stream, "first": r.first, "last": r.last} for r in m.lost],
    }


def _custom(value: CustomValue) -> dict[str, Any]:
    """With its unit; text of its own, as people read it."""
    number, unit = (value.ns, "ns") if isinstance(value, Duration) else (value, "msg/s" if isinstance(value, Rate) else "number")
    return {"value": number, "unit": unit, "shown": "nothing to tell" if number is None else format_value(number, unit)}


def _counts(counts: Counts) -> dict[str, Any]:
    return {row.key: getattr(counts, row.attribute) for row in COUNTS}


def _latencies(m: Measurements) -> dict[str, Any]:
    """Every latency that the run could have; null where nothing was measured of it.

    The histogram of lateness is that of what did not come early; how early the rest came is earliness.
    """
    found = {}
    for attribute, metric in LATENCIES.items():
        histogram = m.latencies.get(attribute)
        if metric.always or histogram is not None or _applies(metric, m):
            found[metric.key] = latency_section(histogram, m.never_came(attribute) if metric.never_came else 0)
    return found


def _applies(metric: Metric, m: Measurements) -> bool:
    """Whether a latency that only some runs have is one of this run's, measured or not."""
    return (Need.BROADCAST in metric.needs and m.broadcasts) or (Need.DELAYS in metric.needs and m.counts.out_of_due_order is not None)


def _index(index: DelayedIndex) -> dict[str, Any]:
    return {"bytes": index.bytes, "messages": index.messages, "bytesPerMessage": index.bytes_per_message}


def _silent(silent: Silent) -> dict[str, Any]:
    return {
        "pairs": silent.pairs,
        "pairsDue": silent.pairs_due,
        "streams": silent.streams,
        "streamsDue": silent.streams_due,
        "firstPairs": [{"topic": topic, "subscription": subscription} for topic, subscription in silent.first_pairs],
        "firstStreams": [{"stream": stream, "topic": topic} for stream, topic in silent.first_streams],
    }


def _opening(opening: Opening) -> dict[str, Any]:
    return {
        "alone": opening.alone,
        "connections": opening.connections,
        "rate": opening.rate,
        "achieved": opening.achieved,
        "took": opening.took,
        "busiest": opening.busiest,
        "cpu": opening.cpu,
        "begunLate": opening.begun_late,
        "inTime": opening.in_time,
    }


def latency_section(
    histogram: Histogram | Lateness | None, never_came: int = 0, *, whole: bool = True, buckets: bool = True
) -> dict[str, Any] | None:
    """Percentiles that rest on too few samples are null, and those that lie among what never came.

    :param never_came: of how many more that were due there is no latency; percentiles rank over them too.
    :param whole: of the whole run. The entries of a list over time prove nothing by themselves, so those have all percentiles, however
        few samples they rest on, and no histogram. :param buckets: whether a whole one has its histogram.
    """
    if histogram is None or not histogram.n:
        return None
    found = {
        "samples": histogram.n,
        "neverCame": never_came,
        "minimum": histogram.minimum,
        "maximum": histogram.maximum,
        "mean": histogram.mean,
        "total": histogram.total,
        "negative": histogram.negative,
        "percentiles": {
            f"p{p:g}": None if whole and unfit(histogram, p, never_came) else finite(histogram.percentile_of_due(p, never_came))
            for p in PERCENTILES
        },
    }
    shape = histogram.late if isinstance(histogram, Lateness) else histogram
    return found | ({"histogram": encode_histogram(shape) if buckets and shape is not None else None} if whole else {})


def _series(series: Series) -> dict[str, Any]:
    return {
        "offered": series.offered.tolist(),
        "sent": series.sent.tolist(),
        "acked": series.acked.tolist(),
        "received": series.received.tolist(),
        "endToEndP50": _numbers(series.end_to_end_p50),
        "endToEndP99": _numbers(series.end_to_end_p99),
        "endToEndMax": _numbers(series.end_to_end_max),
        "missing": None if series.missing is None else series.missing.tolist(),
        "blocked": None if series.blocked is None else series.blocked.tolist(),
    }


def _over_time(latencies: OverTime, duration: int) -> dict[str, Any]:
    length, blocks = latencies.blocks(duration)
    return {"block": length, "endToEnd": [encode_coarse_counts(block) if block else None for block in blocks]}


def _numbers(values: NDArray[np.float64]) -> Sequence[float | None]:
    return [finite(value) for value in values.tolist()]


def finite(value: float | None) -> float | None:
    """None for what never came, or was not measured: JSON has neither infinity nor NaN."""
    return value if value is not None and math.isfinite(value) else None


def _breakdown(part: Breakdown, whole: Measurements, *, buckets: bool = True) -> dict[str, Any]:
    return {
        "name": part.name,
        "offered": part.offered,
        "sent": part.sent,
        "acked": part.acked,
        "received": part.received,
        "receivedInTime": part.received_in_time,
        "lost": part.lost,
        "bytesSent": part.bytes_sent,
        **{
            metric.key: latency_section(part.latencies.get(kind), whole.never_came(kind, part), buckets=buckets)
            for kind, metric in reversed(LATENCIES.items())  # end-to-end comes first here
            if metric.per_topic
        },
    }


# What else happened while a run was measured, and when: what a chart shades. Times are ns since the start of the measured phase.

MOST_SPANS: Final = 500
"""Spans of a kind. Where there are more, those with the smallest gaps between them become one."""
STALLED: Final = 50 * MILLISECOND
"""A worker stalled in a second that has this much of it, ns: as much as one late wake-up that counts."""
BLOCKED: Final = MILLISECOND
"""Messages were blocked in a second in which each of them waited so long on the average, ns."""


def timeline_section(run: RunFile, measurements: Measurements | None) -> dict[str, Any]:
    """Return the section ``timeline`` of a run's document. :param measurements: None if nothing was measured."""
    return {
        "stages": [
            {"name": stage.name, "start": stage.start - run.start, "end": stage.start - run.start + stage.duration} for stage in run.stages
        ],
        "changes": [{"at": change.at, "text": _change_text(change)} for change in run.changes],
        "restarts": [{"down": one["down"], "ready": one["ready"]} for one in run.facts.broker.get("restarts") or ()],
        "stalls": [] if measurements is None else _stalls(measurements),
        "blocked": [] if measurements is None else _blocked(measurements),
    }


def _change_text(change: RunChange) -> str:
    said = []
    if change.rate is not None:
        said.append(f"rate {format_rate(ByteRate(change.rate) if change.bytes else change.rate)}")
    if change.paused is not None:
        said.append("consumers paused" if change.paused else "consumers go on")
    if change.consumers is not None:
        said.append(f"{change.consumers} consumers of each subscription")
    if change.distribution:
        said.append("payload mix")
    if change.end:
        lost = f"ended: {change.foregone} could no longer hold" if change.foregone else "ended"
        said.append(change.aborted or lost)
    return ", ".join(said)


def _stalls(measurements: Measurements) -> list[dict[str, Any]]:
    return [
        {"worker": worker.worker, "start": start, "end": end}
        for worker in measurements.workers
        for start, end in second_spans(worker.seconds[:, 1] >= STALLED, measurements.duration)
    ]


def _blocked(measurements: Measurements) -> list[dict[str, Any]]:
    series = measurements.series
    if series.blocked is None:
        return []
    waited = series.blocked >= BLOCKED * np.maximum(series.sent, 1)
    return [{"start": start, "end": end} for start, end in second_spans(waited, len(waited) * SECOND)]


def second_spans(seconds: NDArray[np.bool_], until: int) -> list[tuple[int, int]]:
    """Seconds in a row as spans, ns; at most :data:`MOST_SPANS`. :param until: where the last second ends, ns."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seconds, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    gaps = starts[1:] - ends[:-1]
    if len(starts) > MOST_SPANS:
        kept = np.sort(np.argsort(gaps, kind="stable")[len(starts) - MOST_SPANS :])
        starts, ends = np.concatenate([starts[:1], starts[1:][kept]]), np.concatenate([ends[:-1][kept], ends[-1:]])
    return [(start * SECOND, min(end * SECOND, until)) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
