"""The figures of one run that are compared with another's, read from its document.

They come with their noise if the run is long enough.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.metrics.catalogue import OBJECTIVES
from pytest_loadtest.report.hdr import decode_counts, latency_distribution
from pytest_loadtest.report.measured import finite
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.grammar import LATENCY, REGRESSION, THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import LatencySection, MeasurementsSection

_STATISTICS = {
    LATENCY: ("p50", "p90", "p99", "p99.9", "maximum", "mean"),
    "publishLatency": ("p50", "p99"),
}
_WORDS = {"maximum": "max"}


class Figure(NamedTuple):
    """One number of a run.

    :param unit: as in objectives, or ``cores``. :param more: a larger value is better.
    """

    value: float | None
    unit: str
    more: bool = False


class Noise(NamedTuple):
    """The noise of a run's figures.

    :param errors: standard errors of logarithms by name. :param blocks: number of blocks they rest
        on. :param length: of a block, ns. :param why: why other figures have no error.
    :param clock_error: bound on the error of a latency by the clocks between hosts, ns; it lasts
        for the whole run.
    """

    errors: Mapping[str, float]
    blocks: int
    length: int
    why: str
    clock_error: int = 0


def figures(document: RunDocument, percentiles: Sequence[str] = ()) -> dict[str, Figure]:
    """Return the figures by name, objectives of the profile first.

    :param percentiles: further ones, ``endToEndLatency.p99.5``.
    """
    measured = document.measurements
    if measured is None:
        return {}
    named = dict(_objectives(document))
    for name, figure in (
        *_latencies(measured, percentiles),
        *_rates(document, measured),
    ):
        named.setdefault(name, figure)
    return named


def measure_noise(document: RunDocument, percentiles: Sequence[str]) -> Noise:
    """Measure the noise within a run.

    :param percentiles: of the end-to-end latency, by name; throughput is always included.
    """
    from pytest_loadtest.metrics.resampled import FEWEST, SHORTEST, length, rate_error

    measured = document.measurements
    if measured is None:
        return Noise({}, 0, 0, "nothing was measured")
    rate, blocks = rate_error(_by_second(measured))
    errors = {THROUGHPUT: rate} | _latency_errors(measured, percentiles)
    why = "its noise is unknown: older results, or too many messages never came"
    if blocks < FEWEST:
        needed = f"{FEWEST * SHORTEST // SECOND} s of measured phase"
        why = f"noise is known from {needed} on, this run has {measured.duration / SECOND:.3g} s"
    clock_error = measured.clock_error
    if clock_error is None:  # older results
        clock_error = 0
        if measured.within_hosts is not None and not measured.within_hosts.complete:
            errors = {THROUGHPUT: rate}
            why = "the error of the clocks between its hosts is unknown: older results"
    known = {name: error for name, error in errors.items() if error is not None}
    return Noise(known, blocks, length(measured.duration), why, clock_error)


def _by_second(measured: MeasurementsSection) -> list[int]:
    """Return the number of messages received in each second of the measured phase.

    Messages arrive later than they are sent, by the median latency: what was received in that time
    after the end of the phase is counted at its beginning, where it is missing.
    """
    seconds = measured.duration // SECOND
    latency = measured.latencies["endToEnd"]
    later = 0
    if latency is not None:
        later = -(-(latency.percentiles["p50"] or 0) // SECOND)
    received = measured.series.received
    counts = list(received[:seconds])
    for at, count in enumerate(received[seconds : seconds + min(later, seconds)]):
        counts[at] += count
    return counts


def _latency_errors(
    measured: MeasurementsSection, percentiles: Sequence[str]
) -> dict[str, float | None]:
    from pytest_loadtest.metrics.resampled import latency_errors

    over_time = measured.over_time
    latency = measured.latencies["endToEnd"]
    if over_time is None or latency is None:
        return {}
    blocks = []
    for text in over_time.end_to_end[: measured.duration // over_time.block]:
        blocks.append(None if text is None else decode_counts(text))
    levels = [float(name.partition(".p")[2]) for name in percentiles]
    errors, _ = latency_errors(blocks, over_time.block, levels, latency.never_came)
    return dict(zip(percentiles, errors, strict=True))


def latency_percentiles(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are percentiles of the end-to-end latency."""
    return tuple(name for name in names if name.startswith(f"{LATENCY}.p"))


def latency_of(document: RunDocument, key: str) -> LatencySection | None:
    """Return the latencies of a kind that every run has; None if nothing was measured."""
    return None if document.measurements is None else document.measurements.latencies[key]


def own_delay(document: RunDocument, name: str) -> float | None:
    """Return the generator's own send delay at the percentile of ``endToEndLatency.p99``, ns.

    It is None if nothing was measured.
    """
    latency = latency_of(document, "ownSendDelay")
    return None if latency is None else _statistic(latency, name.partition(".")[2])


def _objectives(document: RunDocument) -> Iterator[tuple[str, Figure]]:
    """Yield the metrics that the profile bounds over the whole run.

    An objective in windows or tenths has the worst of them, which is no figure of the run.
    Throughput may be a share here: it follows later, as a rate.
    """
    for finding in document.verdict.findings:
        part = finding.windows or finding.tenths
        if not part and not finding.implicit and finding.metric not in (REGRESSION, THROUGHPUT):
            floor = finding.minimum is not None and finding.maximum is None
            yield finding.name.removeprefix("whole."), Figure(finding.observed, finding.unit, floor)


def _latencies(
    measured: MeasurementsSection, percentiles: Sequence[str]
) -> Iterator[tuple[str, Figure]]:
    more = [name.partition(".")[2] for name in latency_percentiles(percentiles)]
    for metric, usual in _STATISTICS.items():
        latency = measured.latencies.get(OBJECTIVES[metric].key)
        if latency is None:
            continue
        statistics = dict.fromkeys((*more, *usual)) if metric == LATENCY else usual
        for statistic in statistics:
            name = f"{metric}.{_WORDS.get(statistic, statistic)}"
            yield name, Figure(_statistic(latency, statistic), "ns")


def _statistic(latency: LatencySection, statistic: str) -> float | None:
    if latency.clocks_disagree:
        return None
    match statistic:
        case "maximum":
            return latency.maximum
        case "mean":
            return latency.mean
    if statistic in latency.percentiles:
        return latency.percentiles[statistic]
    # The document does not list it: it is unknown with too few samples, too many messages that
    # never came, or wrong clocks.
    return finite(_percentile(latency, statistic))


def _percentile(latency: LatencySection, statistic: str) -> float | None:
    """Return a percentile, infinite if too many messages never came; None if it is unknown."""
    distribution = latency_distribution(latency)
    percentile = float(statistic[1:])
    if latency.clocks_disagree or distribution is None or not distribution.proves(percentile):
        return None
    return distribution.percentile(percentile)


def is_never(document: RunDocument, name: str) -> bool:
    """Return whether a percentile of latency is *never*: too many messages did not come.

    :param name: ``endToEndLatency.p99``.
    """
    latency = latency_of(document, "endToEnd")
    return latency is not None and _percentile(latency, name.partition(".")[2]) == math.inf


def _rates(document: RunDocument, measured: MeasurementsSection) -> Iterator[tuple[str, Figure]]:
    if document.peak is not None:
        yield "peak", Figure(document.peak.rate, document.peak.unit, more=True)
    yield THROUGHPUT, Figure(measured.throughput, "msg/s", more=True)
    yield "published", Figure(measured.publish_rate, "msg/s", more=True)
    yield "lost", Figure(measured.applicable_count("lost"), "messages")
    yield "brokerCpu", Figure(broker_cores(document), "cores")
    yield "generatorCpu", Figure(generator_cores(measured), "cores")


def generator_cores(measured: MeasurementsSection) -> float | None:
    """Return the cores that all workers used together; None if there is no evidence of them."""
    if not measured.workers:
        return None
    return sum(worker.cpu for worker in measured.workers)


def broker_cores(document: RunDocument) -> float | None:
    """Return the mean of the cores that the broker used in the measured phase.

    It is None if they were not sampled.
    """
    section = document.bottleneck
    measured = document.measurements
    if section is None or measured is None:
        return None
    sampled = section.columns.get("broker.cpu") or section.columns.get("sys.cpu") or ()
    values = []
    for at, value in zip(section.time, sampled, strict=False):
        if value is not None and 0 <= at <= measured.duration:
            values.append(value)
    return sum(values) / len(values) if values else None
