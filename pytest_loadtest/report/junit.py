"""Return a run's results as JUnit properties: numbers with their unit in the name, so that tools need not parse text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report import bottleneck
from pytest_loadtest.report.bottleneck import bottleneck_text
from pytest_loadtest.report.sections import answer, only_connects, short_scale
from pytest_loadtest.values.wording import with_version
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import MeasurementsSection


_NO_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain. pytest replaces them in the values of properties, not in their names."""


def junit_properties(document: RunDocument) -> list[tuple[str, str]]:
    """Return the properties for ``record_property``, without values that were not measured."""
    broker, scale, measured = document.broker, document.scale, document.measurements
    properties = [
        ("load.outcome", document.verdict.outcome.value),
        ("load.profile", document.profile.name),
        ("load.seed", str(document.seed)),
        (
            "load.scaled",
            "no"
            if scale is None
            else f"{short_scale(scale.factor)}: says nothing about the full load",
        ),
    ]
    if document.workload is not None:
        properties.append(("load.workload", document.workload))
    if broker:
        properties.append(
            (
                "load.broker",
                f"{with_version(str(broker.get('name')), str(broker.get('version')))} ({broker.get('mode')})",
            )
        )
    properties += [("load.reason", reason) for reason in document.verdict.reasons]
    findings = document.verdict.findings
    explicit = {finding.name for finding in findings if not finding.implicit}
    for finding in findings:  # throughput can have an implicit share and an explicit rate
        name = (
            f"{finding.name}.implicit"
            if finding.implicit and finding.name in explicit
            else finding.name
        )
        properties.append((f"load.objective.{name}", f"{finding.outcome}: {finding.text}"))
    if document.bottleneck is not None:
        properties.append(("load.bottleneck", bottleneck_text(document.bottleneck)))
    properties += bottleneck.broker_properties(document.bottleneck)
    if (lost := document.driver.get("losses")) is not None:
        properties.append(("load.connections.lost", str(lost)))
    if (clock := document.driver.get("stamps")) is not None:
        properties.append(("load.clock", clock))
    properties += _parts(document)
    if measured is not None:
        properties += _numbers(measured)
    named = (
        (_NO_XML.sub(lambda character: f"#x{ord(character[0]):02X}", name), value)
        for name, value in properties
    )
    return [*named, ("load.results", document.results)]


def _parts(document: RunDocument) -> list[tuple[str, str]]:
    """Return the properties of the peak, the stages and the backlog."""
    properties = []
    peak, backlog = document.peak, document.backlog
    if peak is not None:
        unit = "bytes_per_s" if peak.unit == "B/s" else "msg_per_s"
        properties += [
            ("load.peak", f"{answer(peak)} (limit: {peak.limit})"),
            ("load.peak.at_least", str(peak.at_least).lower()),
        ]
        ends = {"": peak.rate, ".high": peak.high}
        properties += [
            (f"load.peak{end}.{unit}", f"{rate:.1f}")
            for end, rate in ends.items()
            if rate is not None
        ]
        properties += (
            [("load.peak.broke_first", peak.broke_first)] if peak.broke_first is not None else []
        )
    for stage in document.stages:
        missed = [
            finding.text for finding in stage.verdict.findings if finding.outcome is Outcome.MISSED
        ]
        properties.append(
            (
                f"load.stage.{stage.name}",
                ": ".join([stage.verdict.outcome.value, *filter(None, ["; ".join(missed)])]),
            )
        )
    if backlog is not None:
        times = {"build": backlog.build, "drain": backlog.drain}
        properties += [
            (f"load.backlog.{name}.s", f"{ns / 1e9:.3f}")
            for name, ns in times.items()
            if ns is not None
        ]
        properties += (
            [("load.backlog.waited.s", f"{backlog.waited / 1e9:.3f}")]
            if backlog.waited is not None
            else []
        )
        properties += (
            [("load.backlog.drained", str(backlog.drained).lower())]
            if backlog.drained is not None
            else []
        )
        rate = backlog.drain_rate
        properties += (
            [("load.backlog.drain_rate.msg_per_s", f"{rate:.1f}")] if rate is not None else []
        )
    return properties


def _numbers(measured: MeasurementsSection) -> list[tuple[str, str]]:
    opening, connects = measured.opening, only_connects(measured)
    properties = [] if connects else [("load.rate.msg_per_s", f"{measured.rate:.1f}")]
    if opening is not None:
        rates = {"asked": opening.rate, "achieved": opening.achieved}
        properties += [("load.connections", str(opening.connections))]
        properties += [
            (f"load.connections.{name}.per_s", f"{rate:.1f}")
            for name, rate in rates.items()
            if rate is not None
        ]
    if measured.throughput is not None:
        properties.append(("load.throughput.msg_per_s", f"{measured.throughput:.1f}"))
    for name, metric in LATENCIES.items():
        latency = measured.latencies.get(metric.key) if metric.exported else None
        if latency is not None and not latency.clocks_disagree:
            values = {**latency.percentiles, "max": latency.maximum, "mean": latency.mean}
            properties += [
                (f"load.{name}.{statistic}.ms", f"{ns / 1e6:.3f}")
                for statistic, ns in values.items()
                if ns is not None
            ]
    for name, custom in measured.custom.items():
        ending, factor = {"ns": (".ms", 1e6), "msg/s": (".msg_per_s", 1)}.get(custom.unit, ("", 1))
        properties += (
            [(f"load.custom.{name}{ending}", f"{custom.value / factor:.6g}")]
            if custom.value is not None
            else []
        )
    if connects:
        return properties
    if (index := measured.delayed_index) is not None:
        properties.append(
            ("load.delayed_index.bytes_per_message", f"{index.bytes_per_message:.3f}")
        )
    counts = measured.counts
    shown = (
        [row.key for row in COUNTS if row.exported]
        + (["resent", "duplicatesOfResent"] if counts["resent"] else [])
        + ["outOfDueOrder"]
    )
    return properties + [
        (f"load.{name}", str(counts[name])) for name in shown if counts.get(name) is not None
    ]
