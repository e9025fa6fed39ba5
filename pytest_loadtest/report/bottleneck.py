"""The side that limited a run: the section of its document and its lines of the summary."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from pytest_loadtest.report.document import BottleneckSection, SampledHostEntry, SaturationEntry
from pytest_loadtest.report.sections import precise
from pytest_loadtest.values.quantities import format_duration, format_size
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_loadtest.observe.conclusion import Bottleneck
    from pytest_loadtest.observe.telemetry import Telemetry
    from pytest_loadtest.report.sections import Labelled
    from pytest_loadtest.report.verdict_section import PeakSection


def bottleneck_section(bottleneck: Bottleneck, telemetry: Telemetry) -> BottleneckSection:
    """Build the section ``bottleneck``, with everything that was sampled."""
    sampled = telemetry.document()
    return BottleneckSection(
        conclusion=bottleneck.conclusion,
        evidence=bottleneck.evidence,
        also=tuple(
            SaturationEntry(conclusion=side.conclusion, evidence=side.evidence)
            for side in bottleneck.also
        ),
        missing=bottleneck.missing,
        cost=sampled["cost"],
        time=tuple(sampled["time"]),
        columns={name: tuple(column) for name, column in sampled["columns"].items()},
        hosts=tuple(SampledHostEntry(**host) for host in sampled.get("hosts", ())),
    )


def peak_bottleneck(
    peak: PeakSection, of_step: Callable[[int], BottleneckSection | None]
) -> BottleneckSection | None:
    """Return the bottleneck of a search: that of the step that was missed just above the peak; None if no such step has one.

    :param of_step: returns the section of the step with this number.
    """
    for step in reversed(peak.steps):
        if step.rate == peak.high and step.outcome is Outcome.MISSED:
            section = of_step(step.number)
            if section is not None and section.conclusion is not None:
                return replace(
                    section,
                    evidence=f"at {precise(step.rate, peak.unit)}, which was missed: {section.evidence}",
                )
    return None


def bottleneck_text(section: BottleneckSection) -> str:
    """Return for example ``broker CPU: mosquitto's busiest thread used 0.97 of a core, in 10 of 10 samples``."""
    return f"{section.conclusion or 'unknown'}: {section.evidence}"


def bottleneck_lines(section: BottleneckSection | None) -> Iterable[str]:
    """Return the lines of the summary: the conclusion, what else was saturated, and what was not sampled."""
    if section is None:
        return
    yield f"  bottleneck {bottleneck_text(section)}"
    yield from (f"             also {side.conclusion}: {side.evidence}" for side in section.also)
    yield from (f"             not sampled: {missing}" for missing in section.missing)


# The broker's own numbers during the load: one line of the summary, some JUnit properties.

_COUNTED = {"in": "sys.totalIn", "out": "sys.totalOut"}
_LATENCIES = {
    "publish": "sys.publishLatency",
    "write": "sys.writeLatency",
    "ledger": "sys.ledgerLatency",
}


def known_values(section: BottleneckSection, column: str) -> list[float]:
    """Return the values of a sampled column without those that are unknown; empty if there is no such column."""
    return [value for value in section.columns.get(column, ()) if value is not None]


def broker_facts(section: BottleneckSection | None) -> Iterator[Labelled]:
    """Return ``broker counted 6 000 in, 12 000 out; publish 2.10 ms, write 1.88 ms; 0.44 cores``: totals, and medians of its samples."""
    if section is None:
        return
    counted = [
        f"{exact(int(values[-1]))} {way}"
        for way, column in _COUNTED.items()
        if (values := known_values(section, column))
    ]
    took = [
        f"{name} {format_duration(median(values))}"
        for name, column in _LATENCIES.items()
        if (values := known_values(section, column))
    ]
    uses = [f"{median(values):.2f} cores"] if (values := known_values(section, "sys.cpu")) else []
    for what, column in (("heap", "sys.heap"), ("direct memory", "sys.direct")):
        values = known_values(section, column)
        uses += [f"{what} up to {format_size(max(values))}"] if values and uses else []
    parts = [f"counted {', '.join(counted)}"] if counted else []
    parts += [part for part in (", ".join(took), ", ".join(uses)) if part]
    if parts:
        yield "broker", "; ".join(parts)


def broker_properties(section: BottleneckSection | None) -> list[tuple[str, str]]:
    """Return the same numbers as JUnit properties; those that the broker did not report are left out."""
    if section is None:
        return []
    properties = [
        (f"load.broker.counted.{way}", str(int(values[-1])))
        for way, column in _COUNTED.items()
        if (values := known_values(section, column))
    ]
    properties += [
        (f"load.broker.{name}.ms", f"{median(values) / 1e6:.3f}")
        for name, column in _LATENCIES.items()
        if (values := known_values(section, column))
    ]
    return properties + (
        [("load.broker.cores", f"{median(values):.3f}")]
        if (values := known_values(section, "sys.cpu"))
        else []
    )
