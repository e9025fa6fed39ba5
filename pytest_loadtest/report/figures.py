"""The figures of one run that are held against another's, read from its document; each with its noise where the run's course shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_loadtest.metrics.catalogue import OBJECTIVES
from pytest_loadtest.report.hdr import decode_counts, latency_distribution
from pytest_loadtest.report.measured import finite
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.grammar import LATENCY, THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import Document

_STATISTICS = {LATENCY: ("p50", "p90", "p99", "p99.9", "maximum", "mean"), "publishLatency": ("p50", "p99")}
_WORDS = {"maximum": "max"}


class Figure(NamedTuple):
    """One number of a run. :param unit: as of objectives; ``cores`` too. :param more: whether more of it is better."""

    value: float | None
    unit: str
    more: bool = False


class Noise(NamedTuple):
    """Of the figures that have one. :param errors: by name, standard errors of logarithms. :param blocks: they rest on so many.

    :param length: of a block, ns. :param why: what a figure without one lacks.
    """

    errors: Mapping[str, float]
    blocks: int
    length: int
    why: str


def figures(document: Document, wanted: Sequence[str] = ()) -> dict[str, Figure]:
    """By name, objectives of the profile first. :param wanted: percentiles that must be among them, ``endToEndLatency.p99.5``."""
    measured = document["measurements"]
    if measured is None:
        return {}
    found = dict(_objectives(document))
    for name, figure in (*_latencies(measured, wanted), *_rates(document, measured), *_cores(document, measured)):
        found.setdefault(name, figure)
    return found


def measure_noise(document: Document, wanted: Sequence[str]) -> Noise:
    """How far the figures of a run can be trusted. :param wanted: percentiles of the end-to-end latency, by name; throughput always is."""
    from pytest_loadtest.metrics.resampled import FEWEST, SHORTEST, length, rate_error

    measured = document["measurements"]
    if measured is None:
        return Noise({}, 0, 0, "nothing was measured")
    rate, blocks = rate_error(_by_second(measured))
    errors = {THROUGHPUT: rate} | _latency_errors(measured, wanted)
    short = f"noise is told from {FEWEST * SHORTEST // SECOND} s of measured phase on, here are {measured['duration'] / SECOND:.3g} s"
    why = short if blocks < FEWEST else "its noise is not known: of older results, or so much never came"
    return Noise({name: error for name, error in errors.items() if error is not None}, blocks, length(measured["duration"]), why)


def _by_second(measured: Document) -> list[int]:
    """What came in each second of the measured phase. It begins later than what was sent, and ends so much later: by the median latency.

    What came in that time after the end is counted where it is missing, at the beginning.
    """
    seconds, latency = measured["duration"] // SECOND, measured["latencies"]["endToEnd"]
    received: list[int] = measured["series"]["received"]
    later = 0 if latency is None else -(-(latency["percentiles"]["p50"] or 0) // SECOND)
    found = received[:seconds]
    for at, count in enumerate(received[seconds : seconds + min(later, seconds)]):
        found[at] += count
    return found


def _latency_errors(measured: Document, wanted: Sequence[str]) -> dict[str, float | None]:
    from pytest_loadtest.metrics.resampled import latency_errors

    over_time, latency = measured.get("overTime"), measured["latencies"]["endToEnd"]
    if over_time is None or latency is None:
        return {}
    blocks = [None if text is None else decode_counts(text) for text in over_time["endToEnd"][: measured["duration"] // over_time["block"]]]
    found, _ = latency_errors(blocks, over_time["block"], [float(name.partition(".p")[2]) for name in wanted], latency["neverCame"])
    return dict(zip(wanted, found, strict=True))


def latency_percentiles(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the end-to-end latency."""
    return tuple(name for name in names if name.startswith(f"{LATENCY}.p"))


def own_delay(document: Document, name: str) -> float | None:
    """The generator's own send delay at the percentile of ``endToEndLatency.p99``, ns."""
    latency = document["measurements"]["latencies"]["ownSendDelay"]
    return None if latency is None else _statistic(latency, name.partition(".")[2])


def _objectives(document: Document) -> Iterator[tuple[str, Figure]]:
    """What the profile bounds over the whole run: of windows and tenths the worst is told, which is no figure of the run.

    Throughput is a share where its bound is one: what was delivered stands below, as a rate.
    """
    for finding in document["verdict"]["findings"]:
        part = finding.get("windows") or finding.get("tenths")  # older results have neither
        if not part and not finding["implicit"] and finding["metric"] not in ("regression", THROUGHPUT):
            floor = finding["minimum"] is not None and finding["maximum"] is None
            yield finding["name"].removeprefix("whole."), Figure(finding["observed"], finding["unit"], floor)


def _latencies(measured: Document, wanted: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    for metric, statistics in _STATISTICS.items():
        found = measured["latencies"].get(OBJECTIVES[metric].key)
        if found is None:
            continue
        asked = [name.partition(".")[2] for name in latency_percentiles(wanted)] if metric == LATENCY else []
        for statistic in dict.fromkeys((*asked, *statistics)):
            yield f"{metric}.{_WORDS.get(statistic, statistic)}", Figure(_statistic(found, statistic), "ns")


def _statistic(latency: Document, statistic: str) -> float | None:
    if not statistic.startswith("p"):
        value: float | None = latency[statistic]
        return value
    if statistic in latency["percentiles"]:
        known: float | None = latency["percentiles"][statistic]
        return known
    return _percentile(latency, float(statistic[1:]))


def _percentile(latency: Document, percentile: float) -> float | None:
    """One that the document does not list; None where too few samples, or too many that never came, or clocks stand behind it."""
    found = latency_distribution(latency)
    return finite(found.percentile(percentile)) if found is not None and found.proves(percentile) else None


def _rates(document: Document, measured: Document) -> Iterator[tuple[str, Figure]]:
    peak = document["peak"]
    if peak is not None:
        yield "peak", Figure(peak["rate"], peak["unit"], more=True)
    yield THROUGHPUT, Figure(measured["throughput"], "msg/s", more=True)
    yield "published", Figure(measured["publishRate"], "msg/s", more=True)
    yield "lost", Figure(measured["counts"]["lost"] if measured["subscriptions"] else None, "messages")


def _cores(document: Document, measured: Document) -> Iterator[tuple[str, Figure]]:
    yield "brokerCpu", Figure(broker_cores(document), "cores")
    yield "generatorCpu", Figure(sum(worker["cpu"] for worker in measured["workers"]) if measured["workers"] else None, "cores")


def broker_cores(document: Document) -> float | None:
    """Its mean over the samples of the measured phase; None where the broker was not sampled."""
    section: dict[str, Any] = document.get("bottleneck") or {}
    columns = section.get("columns", {})
    sampled = columns.get("broker.cpu") or columns.get("sys.cpu") or ()
    duration = document["measurements"]["duration"]
    values = [value for at, value in zip(section.get("time", ()), sampled, strict=False) if value is not None and 0 <= at <= duration]
    return sum(values) / len(values) if values else None
