"""The results of a run as JUnit properties.

Numbers have their unit in the name, so that tools need not parse text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report import bottleneck
from pytest_loadtest.report.bottleneck import bottleneck_text
from pytest_loadtest.report.sections import answer, only_connects, short_scale, version_text
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import MeasurementsSection


Property = tuple[str, str]
_ENDINGS: Final = {"ns": (".ms", 1e6), "msg/s": (".msg_per_s", 1)}
"""Endings of the names of users' own metrics by unit, and what their values are divided by."""
_NO_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain.

pytest replaces them in the values of properties, not in their names.
"""


def junit_properties(document: RunDocument) -> list[Property]:
    """Return the properties for ``record_property``, without values that were not measured."""
    scaled = "no"
    if document.scale is not None:
        scaled = f"{short_scale(document.scale.factor)}: says nothing about the full load"
    properties = [
        ("load.outcome", document.verdict.outcome.value),
        ("load.profile", document.profile.name),
        ("load.seed", str(document.seed)),
        ("load.scaled", scaled),
    ]
    if document.workload is not None:
        properties.append(("load.workload", document.workload))
    broker = document.broker
    if broker:
        properties.append(("load.broker", f"{version_text(broker)} ({broker.get('mode')})"))
    if document.profile.route is not None:
        properties.append(("load.route", document.profile.route))
    for reason in document.verdict.reasons:
        properties.append(("load.reason", reason))
    properties += _objectives(document)
    if document.bottleneck is not None:
        properties.append(("load.bottleneck", bottleneck_text(document.bottleneck)))
    properties += bottleneck.broker_properties(document.bottleneck)
    if (lost := document.driver.get("losses")) is not None:
        properties.append(("load.connections.lost", str(lost)))
    if (clock := document.driver.get("stamps")) is not None:
        properties.append(("load.clock", clock))
    properties += _parts(document)
    if document.measurements is not None:
        properties += _numbers(document.measurements)
    named = [
        (_NO_XML.sub(lambda found: f"#x{ord(found[0]):02X}", name), value)
        for name, value in properties
    ]
    return [*named, ("load.results", document.results)]


def _objectives(document: RunDocument) -> Iterator[Property]:
    findings = document.verdict.findings
    explicit = {finding.name for finding in findings if not finding.implicit}
    for finding in findings:
        name = f"load.objective.{finding.name}"
        # Throughput can have an implicit share and an explicit rate.
        if finding.implicit and finding.name in explicit:
            name += ".implicit"
        yield name, f"{finding.outcome}: {finding.text}"


def _known(form: str, values: Mapping[str, float | None], factor: float = 1) -> list[Property]:
    """Return the values that are known, with three decimals if they have a factor, else one.

    :param form: the name of the property, with ``{}`` for the key.
    """
    digits = 1 if factor == 1 else 3
    return [
        (form.format(name), f"{value / factor:.{digits}f}")
        for name, value in values.items()
        if value is not None
    ]


def _parts(document: RunDocument) -> list[Property]:
    """Return the properties of the peak, the stages and the backlog."""
    properties = []
    peak = document.peak
    if peak is not None:
        properties.append(("load.peak", f"{answer(peak)} (limit: {peak.limit})"))
        properties.append(("load.peak.at_least", str(peak.at_least).lower()))
        unit = "bytes_per_s" if peak.unit == "B/s" else "msg_per_s"
        properties += _known(f"load.peak{{}}.{unit}", {"": peak.rate, ".high": peak.high})
        if peak.broke_first is not None:
            properties.append(("load.peak.broke_first", peak.broke_first))
    for stage in document.stages:
        text = stage.verdict.outcome.value
        missed = [
            finding.text for finding in stage.verdict.findings if finding.outcome is Outcome.MISSED
        ]
        if missed:
            text += f": {'; '.join(missed)}"
        properties.append((f"load.stage.{stage.name}", text))
    backlog = document.backlog
    if backlog is not None:
        times = {"build": backlog.build, "drain": backlog.drain, "waited": backlog.waited}
        properties += _known("load.backlog.{}.s", times, 1e9)
        if backlog.drained is not None:
            properties.append(("load.backlog.drained", str(backlog.drained).lower()))
        properties += _known("load.backlog.{}.msg_per_s", {"drain_rate": backlog.drain_rate})
    return properties


def _numbers(measured: MeasurementsSection) -> list[Property]:
    properties = []
    connects = only_connects(measured)
    if not connects:
        properties += _known("load.{}.msg_per_s", {"rate": measured.rate})
    opening = measured.opening
    if opening is not None:
        properties.append(("load.connections", str(opening.connections)))
        rates = {"asked": opening.rate, "achieved": opening.achieved}
        properties += _known("load.connections.{}.per_s", rates)
    properties += _known("load.{}.msg_per_s", {"throughput": measured.throughput})
    for name, metric in LATENCIES.items():
        latency = measured.latencies.get(metric.key)
        if latency is not None and metric.exported and not latency.clocks_disagree:
            values = {**latency.percentiles, "max": latency.maximum, "mean": latency.mean}
            properties += _known(f"load.{name}.{{}}.ms", values, 1e6)
    for name, custom in measured.custom.items():
        ending, factor = _ENDINGS.get(custom.unit, ("", 1))
        if custom.value is not None:
            properties.append((f"load.custom.{name}{ending}", f"{custom.value / factor:.6g}"))
    if connects:
        return properties
    if (index := measured.delayed_index) is not None:
        size = f"{index.bytes_per_message:.3f}"
        properties.append(("load.delayed_index.bytes_per_message", size))
    keys = [row.key for row in COUNTS if row.exported]
    if measured.counts["resent"]:
        keys += ["resent", "duplicatesOfResent"]
    for key in (*keys, "outOfDueOrder"):
        if (count := measured.applicable_count(key)) is not None:
            properties.append((f"load.{key}", str(count)))
    return properties
