"""A run's document as OpenMessaging Benchmark's TestResult, for the charts and tables that people have for it already.

Field names and units are those of ``TestResult.java``: rates in messages per second, publish and end-to-end latencies in ms, publish
delays in µs, lists with one entry per 10 s. What OMB gets wrong carries the true number instead, and what was not measured is null;
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
from pytest_loadtest.report.hdr import decode_histogram
from pytest_loadtest.values.wording import scale_word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_loadtest.report.document import Document

SAMPLE = 10
"""Seconds of one entry in the lists."""
PERCENTILES = {"50pct": "p50", "75pct": "p75", "95pct": "p95", "99pct": "p99", "999pct": "p99.9", "9999pct": "p99.99"}
TICKS = 100
"""Points of a quantile curve for every halving of what lies above it."""
MILLISECONDS, MICROSECONDS = 1e6, 1e3
UNITS = {"publishDelayLatency": MICROSECONDS}
"""Of the latencies that OMB does not have in milliseconds."""


def test_result(document: Document) -> dict[str, Any]:
    """The TestResult of a run.

    :raises NoData: the run broke before anything was measured.
    """
    measured = document["measurements"]
    if measured is None:
        raise NoData(f"{document['test']}: nothing was measured, so there is no OMB result of this run")
    return {**_facts(document), **_rates(measured), **_latencies(measured)}


def write_test_result(document: Document, folder: Path) -> Path:
    """Write the TestResult as ``<workload>-<driver>-<yyyy-MM-dd-HH-mm-ss>.json`` (UTC); a name that is taken gets a number.

    :returns: the file. :raises NoData: the run broke before anything was measured.
    """
    text = json.dumps(test_result(document), indent=2, allow_nan=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    started = datetime.fromisoformat(document["started"])
    stem = re.sub(r"[^\w.@=+-]+", "-", f"{_workload(document)}-{_driver(document)}") + f"{started:-%Y-%m-%d-%H-%M-%S}"
    for number in itertools.count(1):
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}.json"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers never end")


def _workload(document: Document) -> str:
    return str(document["workload"] or document["profile"]["name"])


def _driver(document: Document) -> str:
    return str(document["profile"]["document"]["driver"]["name"])


def _facts(document: Document) -> dict[str, Any]:
    """Counts are those of the plan, as it ran. A run that proves nothing says so where a chart names its line."""
    plan, measured = document["plan"], document["measurements"]
    sent, outcome = measured["counts"]["sent"], document["verdict"]["outcome"]
    doubts = [outcome] if outcome in ("no data", "generator-limited") else []
    doubts += [scale_word(document["scale"]["factor"]).replace("×", "x")] if document["scale"] is not None else []
    return {
        "workload": _workload(document),
        "driver": f"{_driver(document)} ({', '.join(doubts)})" if doubts else _driver(document),
        "messageSize": round(measured["bytesSent"] / sent) if sent else None,
        "topics": plan["topics"],
        "partitions": plan["partitions"],
        "producersPerTopic": plan["producers"] // plan["topics"],
        "consumersPerTopic": plan["consumers"] // plan["topics"],
    }


def _rates(measured: Document) -> dict[str, list[float | None]]:
    series, counts = measured["series"], measured["counts"]
    samples = list(_samples(measured))
    spans = [min(end, measured["duration"] / 1e9) - start for start, end in samples]
    acked, received = ([sum(series[name][start:end]) for start, end in samples] for name in ("acked", "received"))
    in_all = zip(itertools.accumulate(acked), itertools.accumulate(received), strict=True)
    backlog = [max(out * measured["subscriptions"] - came, 0) for out, came in in_all]
    return {
        "publishRate": [n / span for n, span in zip(acked, spans, strict=True)],
        "publishErrorRate": [None if counts["failed"] + counts["unknown"] else 0.0 for _ in samples],
        "consumeRate": [n / span for n, span in zip(received, spans, strict=True)],
        # where messages came twice the backlog is unknown: arrivals by second do not tell first copies from duplicates
        "backlog": [None if counts["duplicates"] else n for n in backlog],
    }


def _samples(measured: Document) -> Iterator[tuple[int, int]]:
    """First second and end of each sample; the last may be shorter. Part of a second at the end is left out, and so is the drain."""
    seconds = max(measured["duration"] // 10**9, 1)
    return ((start, min(start + SAMPLE, seconds)) for start in range(0, seconds, SAMPLE))


def _latencies(measured: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in LATENCIES.values():
        name, kind, unit = metric.omb, metric.key, UNITS.get(metric.omb, MILLISECONDS)
        if not name:
            continue
        latency = measured["latencies"][kind]
        if latency is not None and latency["negative"]:
            latency = None  # the clocks of sender and receiver disagree
        whole = _statistics(latency, unit)
        aggregated = f"aggregated{name[0].upper()}{name[1:]}"
        found |= {f"{name}{statistic}": values for statistic, values in _lists(whole, kind, unit, measured).items()}
        found |= {f"{aggregated}{statistic}": value for statistic, value in whole.items()}
        found[f"{aggregated}Quantiles"] = {} if latency is None else dict(_quantiles(latency, unit))
    return found


def _statistics(latency: Document | None, unit: float) -> dict[str, float | None]:
    """Null where the kind was not measured, or a percentile rests on too few messages."""
    if latency is None:
        return dict.fromkeys(("Avg", *PERCENTILES, "Max"))
    percentiles = {name: latency["percentiles"][p] for name, p in PERCENTILES.items()}
    converted = {name: None if ns is None else _convert(ns, unit) for name, ns in percentiles.items()}
    return {"Avg": latency["mean"] / unit, **converted, "Max": _convert(latency["maximum"], unit)}


def _lists(whole: dict[str, float | None], kind: str, unit: float, measured: Document) -> dict[str, list[float | None]]:
    """Statistics of each sample, for a line over time: percentiles however few messages they rest on."""
    known = whole["Avg"] is not None
    parts = [_statistics(part[kind] if known else None, unit) for part, _ in zip(measured["intervals"], _samples(measured), strict=False)]
    return {statistic: [part[statistic] for part in parts] for statistic in whole}


def _quantiles(latency: Document, unit: float) -> Iterator[tuple[str, float]]:
    """``(per cent of all values, highest value of the bucket that they end in)``, closer together towards the tail, up to 100."""
    histogram = decode_histogram(latency["histogram"])
    below = list(itertools.accumulate(count for _, count in histogram))
    level = 0.0
    for (index, _), n in zip(histogram, below, strict=True):
        percent = 100 * n / below[-1]
        if percent >= level or n == below[-1]:
            low, width = bucket_bounds(index)
            yield repr(percent), _convert(min(low + width - 1, latency["maximum"]), unit)
            level = percent + _step(percent)


def _step(percent: float) -> float:
    """A hundredth of what lies above, in powers of two, as HdrHistogram's own iteration goes."""
    return 100 / (TICKS * 2 ** (math.floor(math.log2(100 / (100 - percent))) + 1)) if percent < 100 else 0.0


def _convert(ns: int, unit: float) -> float:
    """OMB has whole microseconds, and milliseconds with decimals."""
    return round(ns / unit) if unit == MICROSECONDS else ns / unit
