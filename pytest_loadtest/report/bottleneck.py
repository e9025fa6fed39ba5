"""The side that limited a run: the section of its document and its lines of the summary."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from pytest_loadtest.report.document import BottleneckSection, SampledHostEntry, SaturationEntry
from pytest_loadtest.report.measured import section_of
from pytest_loadtest.report.sections import Labelled, known_of, precise
from pytest_loadtest.values.quantities import format_duration, format_size
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_loadtest.observe.conclusion import Bottleneck
    from pytest_loadtest.observe.telemetry import Telemetry
    from pytest_loadtest.report.verdict_section import PeakSection


def bottleneck_section(bottleneck: Bottleneck, telemetry: Telemetry) -> BottleneckSection:
    """Build the section ``bottleneck``, with everything that was sampled."""
    sampled = telemetry.document()
    also = [section_of(SaturationEntry, side) for side in bottleneck.also]
    hosts = [SampledHostEntry(**host) for host in sampled.get("hosts", ())]
    columns = {name: tuple(column) for name, column in sampled["columns"].items()}
    return section_of(
        BottleneckSection,
        bottleneck,
        also=tuple(also),
        cost=sampled["cost"],
        time=tuple(sampled["time"]),
        columns=columns,
        hosts=tuple(hosts),
    )


def peak_bottleneck(
    peak: PeakSection, of_step: Callable[[int], BottleneckSection | None]
) -> BottleneckSection | None:
    """Return the bottleneck of a search: that of the step that was missed just above the peak.

    It is None if no such step has one.

    :param of_step: returns the section of the step with this number.
    """
    for step in reversed(peak.steps):
        if step.rate == peak.high and step.outcome is Outcome.MISSED:
            section = of_step(step.number)
            if section is not None and section.conclusion is not None:
                rate = precise(step.rate, peak.unit)
                evidence = f"at {rate}, which was missed: {section.evidence}"
                return replace(section, evidence=evidence)
    return None


def bottleneck_text(section: BottleneckSection) -> str:
    """Return for example ``broker CPU: mosquitto's busiest thread used 0.97 of a core``."""
    return f"{section.conclusion or 'unknown'}: {section.evidence}"


def bottleneck_lines(section: BottleneckSection | None) -> Iterable[str]:
    """Return the lines of the summary: the conclusion, other sides, and what was not sampled."""
    if section is None:
        return
    yield f"  bottleneck {bottleneck_text(section)}"
    for side in section.also:
        yield f"             also {side.conclusion}: {side.evidence}"
    for missing in section.missing:
        yield f"             not sampled: {missing}"


# The broker's own numbers during the load: one line of the summary, some JUnit properties.

_COUNTED = {"in": "sys.totalIn", "out": "sys.totalOut"}
_LATENCIES = {
    "publish": "sys.publishLatency",
    "write": "sys.writeLatency",
    "ledger": "sys.ledgerLatency",
}


def known_values(section: BottleneckSection, column: str) -> list[float]:
    """Return the values of a sampled column without those that are unknown.

    They are empty if there is no such column.
    """
    return known_of(section.columns.get(column, ()))


def if_any(statistic: Callable[[list[float]], float], values: list[float]) -> float | None:
    """Return a statistic of the values; None if there are none."""
    return statistic(values) if values else None


def broker_facts(section: BottleneckSection | None) -> Iterator[Labelled]:
    """Return ``broker counted 6 000 in, 12 000 out; publish 2.10 ms, write 1.88 ms; 0.44 cores``.

    They are totals, and medians of its samples.
    """
    if section is None:
        return
    counted = [f"{exact(value)} {way}" for way, value in _last(section)]
    took = [f"{name} {format_duration(latency)}" for name, latency in _medians(section)]
    uses = []
    if cores := known_values(section, "sys.cpu"):
        uses.append(f"{median(cores):.2f} cores")
        for name, column in (("heap", "sys.heap"), ("direct memory", "sys.direct")):
            if sizes := known_values(section, column):
                uses.append(f"{name} up to {format_size(max(sizes))}")
    parts = [f"counted {', '.join(counted)}"] if counted else []
    parts += filter(None, (", ".join(took), ", ".join(uses)))
    if parts:
        yield "broker", "; ".join(parts)


def _last(section: BottleneckSection) -> Iterator[tuple[str, int]]:
    """Yield the number of messages that the broker counted by the last sample, each way."""
    for way, column in _COUNTED.items():
        if values := known_values(section, column):
            yield way, int(values[-1])


def _medians(section: BottleneckSection) -> Iterator[tuple[str, float]]:
    """Yield the median of each latency that the broker reports, ns."""
    for name, column in _LATENCIES.items():
        if values := known_values(section, column):
            yield name, median(values)


def broker_properties(section: BottleneckSection | None) -> list[tuple[str, str]]:
    """Return the same numbers as JUnit properties, without those not reported by the broker."""
    if section is None:
        return []
    properties = []
    for way, count in _last(section):
        properties.append((f"load.broker.counted.{way}", str(count)))
    for name, latency in _medians(section):
        properties.append((f"load.broker.{name}.ms", f"{latency / 1e6:.3f}"))
    if cores := known_values(section, "sys.cpu"):
        properties.append(("load.broker.cores", f"{median(cores):.3f}"))
    return properties
