"""Convert a run's document to OpenMessaging Benchmark's TestResult, for existing charts and tables.

Field names and units are those of ``TestResult.java``: rates in messages per second, publish and
end-to-end latencies in ms, publish delays in µs, lists with one entry per 10 s. Fields that OMB
computes wrongly have the true number instead, and values that were not measured are null;
``docs/howto/omb-results.md`` lists both.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData
from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.report.hdr import decode_counts
from pytest_loadtest.values.wording import scale_word
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import (
        LatencySection,
        MeasurementsSection,
        PartLatency,
    )

SAMPLE = 10
"""Length of one entry in the lists, s."""
PERCENTILES = {
    "50pct": "p50",
    "75pct": "p75",
    "95pct": "p95",
    "99pct": "p99",
    "999pct": "p99.9",
    "9999pct": "p99.99",
}
TICKS = 100
"""Points of a quantile curve for every halving of the share above it."""
MILLISECONDS = 1e6
MICROSECONDS = 1e3
_LONGEST = 160  # bytes of a workload in a file name, which may have 255
UNITS = {"publishDelayLatency": MICROSECONDS}
"""Units of the latencies that OMB does not report in milliseconds."""


def test_result(document: RunDocument) -> dict[str, Any]:
    """Return the TestResult of a run.

    :raises NoData: the run broke before anything was measured.
    """
    measured = document.measurements
    if measured is None:
        raise NoData(
            f"{document.test}: nothing was measured, so there is no OMB result of this run"
        )
    return {**_facts(document, measured), **_rates(measured), **_latencies(measured)}


def write_test_result(document: RunDocument, folder: Path) -> Path:
    """Write the TestResult as ``<workload>-<driver>-<yyyy-MM-dd-HH-mm-ss>.json`` (UTC).

    A name that is taken gets a number.

    :returns: the file. :raises NoData: the run broke before anything was measured.
    """
    text = json.dumps(test_result(document), indent=2, allow_nan=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    assert document.started is not None, "measurements have a start"
    started = datetime.fromisoformat(document.started)
    workload = re.sub(r"[^\w.@=+-]+", "-", _workload(document))
    shortened = workload.encode()[:_LONGEST].decode(errors="ignore")
    stem = f"{shortened}-{_driver(document)}{started:-%Y-%m-%d-%H-%M-%S}"
    path = folder / f"{stem}.json"
    number = 1
    while True:
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            return path
        except FileExistsError:
            number += 1
            path = folder / f"{stem}-{number}.json"


def _workload(document: RunDocument) -> str:
    return str(document.workload or document.profile.name)


def _driver(document: RunDocument) -> str:
    return str(document.profile.document["driver"]["name"])


def _facts(document: RunDocument, measured: MeasurementsSection) -> dict[str, Any]:
    """Return the counts of the plan, as it ran.

    The driver's name, which charts show, tells if the run proves nothing.
    """
    plan = document.plan
    sent = measured.count("sent")
    doubts = []
    if document.verdict.outcome in (Outcome.NO_DATA, Outcome.GENERATOR_LIMITED):
        doubts.append(document.verdict.outcome.value)
    if document.scale is not None:
        doubts.append(scale_word(document.scale.factor).replace("×", "x"))
    driver = _driver(document)
    return {
        "workload": _workload(document),
        "driver": f"{driver} ({', '.join(doubts)})" if doubts else driver,
        "messageSize": round(measured.bytes_sent / sent) if sent else None,
        "topics": plan["topics"],
        "partitions": plan["partitions"],
        "producersPerTopic": plan["producers"] // plan["topics"],
        "consumersPerTopic": plan["consumers"] // plan["topics"],
    }


def _rates(measured: MeasurementsSection) -> dict[str, list[float | None]]:
    series = measured.series
    duplicates = measured.counts["duplicates"]
    unacknowledged = measured.count("failed") + measured.count("unknown")
    fields: dict[str, list[float | None]] = {
        "publishRate": [],
        "publishErrorRate": [],
        "consumeRate": [],
        "backlog": [],
    }
    waiting = 0
    for start, end in _samples(measured):
        length = min(end, measured.duration / 1e9) - start
        acked = sum(series.acked[start:end])
        received = sum(series.received[start:end])
        waiting += acked * measured.fan_out - received
        fields["publishRate"].append(acked / length)
        fields["publishErrorRate"].append(None if unacknowledged else 0.0)
        fields["consumeRate"].append(received / length)
        # The backlog is unknown if there are duplicates: arrivals by second do not distinguish
        # first copies from duplicates. It is also unknown if a service chooses what it sends, or
        # others send.
        unknown = duplicates != 0 or measured.answered is not None
        fields["backlog"].append(None if unknown else max(waiting, 0))
    return fields


def _samples(measured: MeasurementsSection) -> Iterator[tuple[int, int]]:
    """Return first second and end of each sample; the last may be shorter.

    A part of a second at the end, and the drain, are left out.
    """
    seconds = max(measured.duration // 10**9, 1)
    return ((start, min(start + SAMPLE, seconds)) for start in range(0, seconds, SAMPLE))


def _latencies(measured: MeasurementsSection) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for metric in LATENCIES.values():
        name = metric.omb
        if not name:
            continue
        unit = UNITS.get(name, MILLISECONDS)
        latency = measured.latencies[metric.key]
        if latency is not None and latency.clocks_disagree:
            latency = None
        # For a line over time, however few messages a sample has.
        intervals = []
        for interval, _ in zip(measured.intervals, _samples(measured), strict=False):
            part = None if latency is None else interval[metric.key]
            intervals.append(_statistics(part, unit))
        aggregated = f"aggregated{name[0].upper()}{name[1:]}"
        whole = _statistics(latency, unit)
        for statistic in whole:
            fields[f"{name}{statistic}"] = [interval[statistic] for interval in intervals]
        for statistic, value in whole.items():
            fields[f"{aggregated}{statistic}"] = value
        quantiles = {} if latency is None else dict(_quantiles(latency, unit))
        fields[f"{aggregated}Quantiles"] = quantiles
    return fields


def _statistics(latency: PartLatency | None, unit: float) -> dict[str, float | None]:
    """Return the statistics.

    They are None if the latency was not measured, or a percentile rests on too few messages.
    """
    if latency is None:
        return dict.fromkeys(("Avg", *PERCENTILES, "Max"))
    statistics: dict[str, float | None] = {"Avg": latency.mean / unit}
    for name, p in PERCENTILES.items():
        statistics[name] = _convert(latency.percentiles[p], unit)
    return statistics | {"Max": _convert(latency.maximum, unit)}


def _quantiles(latency: LatencySection, unit: float) -> Iterator[tuple[str, float | None]]:
    """Yield ``(per cent of all values, highest value of the bucket that they end in)``.

    The pairs are closer together towards the tail, up to 100.
    """
    histogram = decode_counts(latency.histogram).items()
    below = list(itertools.accumulate(count for _, count in histogram))
    level = 0.0
    for (index, _), n in zip(histogram, below, strict=True):
        percent = 100 * n / below[-1]
        if percent >= level or n == below[-1]:
            low, width = bucket_bounds(index)
            highest = min(low + width - 1, latency.largest_came)
            yield repr(percent), _convert(highest, unit)
            level = percent + _step(percent)


def _step(percent: float) -> float:
    """Return a hundredth of the share above, in powers of two, as HdrHistogram iterates."""
    if percent >= 100:
        return 0.0
    halvings = math.floor(math.log2(100 / (100 - percent))) + 1
    return 100 / (TICKS * 2.0**halvings)


def _convert(ns: int | None, unit: float) -> float | None:
    """Convert to the unit: OMB has whole microseconds, and milliseconds with decimals."""
    if ns is None:
        return None
    return round(ns / unit) if unit == MICROSECONDS else ns / unit
