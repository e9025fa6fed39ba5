"""JUnit properties."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
from builders.documents import BACKLOG, BOTTLENECK, FACTS, PEAK, document, opening_document, stage
from builders.measurements import lateness

from pytest_loadtest.metrics.measurements import DelayedIndex
from pytest_loadtest.report import junit
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.junit import junit_properties
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.values.units import Rate, ms
from pytest_loadtest.verdict.slo import Outcome, Verdict


def test_numbers_have_their_unit_in_the_name() -> None:
    found = dict(junit_properties(document()))
    assert found["load.end_to_end.max.ms"] == "20.000"
    assert found["load.throughput.msg_per_s"] == "10000.0"
    assert found["load.lost"] == "0"
    assert found["load.outcome"] == "missed"
    assert found["load.objective.endToEndLatency.p99"].startswith(
        "missed: endToEndLatency.p99 19.8 ms > 15.0 ms"
    )


def test_the_properties_tell_if_a_run_was_scaled() -> None:
    assert dict(junit_properties(document()))["load.scaled"] == "no"
    assert (
        dict(junit_properties(document(facts={"scale": 0.001})))["load.scaled"]
        == "×0.001: says nothing about the full load"
    )


def test_missing_values_have_no_property() -> None:
    found = dict(junit_properties(document(publish=None, counts={"out_of_order": None})))
    assert not any(name.startswith("load.publish") for name in found)
    assert "load.outOfOrder" not in found
    verdict = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))
    broken = dict(junit_properties(build_document(FACTS, verdict, None)))
    assert broken["load.reason"] == "worker gw1 died"
    assert "load.lost" not in broken


def test_resent_messages_have_properties_if_there_are_any() -> None:
    found = dict(
        junit_properties(
            document(counts={"duplicates": 5, "resent": 40, "duplicates_of_resent": 3})
        )
    )
    assert (found["load.duplicates"], found["load.resent"], found["load.duplicatesOfResent"]) == (
        "5",
        "40",
        "3",
    )
    assert not any(
        "esent" in name for name, _ in junit_properties(document(counts={"duplicates": 5}))
    )


def test_all_properties_are_text() -> None:
    assert all(
        isinstance(name, str) and isinstance(value, str)
        for name, value in junit_properties(document())
    )


def test_peak_stages_backlog_and_workload_have_properties() -> None:
    parts = {
        "stages": (stage("ramp", {"loss": 0}), stage("spike")),
        "peak": PEAK,
        "backlog": BACKLOG,
    }
    found = dict(junit_properties(document(facts={"workload": "files"}, parts=parts)))
    assert found["load.workload"] == "files"
    assert (
        found["load.peak"]
        == "19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed (limit: target)"
    )
    assert (
        found["load.peak.msg_per_s"],
        found["load.peak.high.msg_per_s"],
        found["load.peak.at_least"],
    ) == ("19843.0", "20240.0", "false")
    assert found["load.peak.broke_first"] == "endToEndLatency.p99"
    assert found["load.stage.ramp"] == "met"
    assert found["load.stage.spike"].startswith("missed: endToEndLatency.p99 19.8 ms > 15.0 ms")
    assert (
        found["load.backlog.build.s"],
        found["load.backlog.drain.s"],
        found["load.backlog.drained"],
    ) == ("32.000", "8.000", "true")


def test_a_peak_that_was_not_found_has_no_number() -> None:
    none = replace(PEAK, rate=None, low=None, high=None, limit="none", broke_first=None)
    found = dict(junit_properties(document(parts={"peak": none})))
    assert found["load.peak"] == "none: no rate held (limit: none)"
    assert [name for name in found if name.startswith("load.peak")] == [
        "load.peak",
        "load.peak.at_least",
    ]


def test_custom_metrics_have_their_unit_in_the_name() -> None:
    """A missing value has no property."""
    found = dict(
        junit_properties(
            document(custom={"gold.p99": ms(3.25), "rate": Rate(500), "skew": -0.25, "none": None})
        )
    )
    assert {name: value for name, value in found.items() if name.startswith("load.custom")} == {
        "load.custom.gold.p99.ms": "3.25", "load.custom.rate.msg_per_s": "500", "load.custom.skew": "-0.25",
    }  # fmt: skip


def test_the_bottleneck_is_one_property() -> None:
    found = dict(junit_properties(document(parts={"bottleneck": BOTTLENECK})))
    assert (
        found["load.bottleneck"]
        == "broker CPU: mosquitto's busiest thread used 0.97 of a core, in 9 of 10 samples"
    )
    assert "load.bottleneck" not in dict(junit_properties(document()))


def test_implicit_and_explicit_objectives_have_separate_properties() -> None:
    """Readers that keep one value for each name would lose one of two outcomes."""
    found = document()
    twin = replace(found.verdict.findings[0], implicit=True, outcome=Outcome.NO_DATA)
    found = replace(found, verdict=replace(found.verdict, findings=(*found.verdict.findings, twin)))
    names = [name for name, _ in junit_properties(found)]
    assert f"load.objective.{twin.name}.implicit" in names
    assert len(names) == len(set(names))


def test_unknown_values_of_a_backlog_have_no_property() -> None:
    """Second copies leave them open."""
    unknown = replace(
        BACKLOG,
        drain=None,
        drained=None,
        left=None,
        drain_rate=None,
        between=(8_000_000_000, None),
        uncounted=6000,
    )
    found = dict(junit_properties(document(parts={"backlog": unknown})))
    assert [name for name in found if name.startswith("load.backlog")] == ["load.backlog.build.s"]


def test_a_drain_that_was_given_up_has_the_time_of_the_wait_only() -> None:
    stuck = replace(BACKLOG, drain=math.inf, drained=False, left=2_000_000, waited=15_063_000_000)
    found = dict(junit_properties(document(parts={"backlog": stuck})))
    assert "load.backlog.drain.s" not in found
    assert (found["load.backlog.waited.s"], found["load.backlog.drained"]) == ("15.063", "false")


def test_connections_have_properties_and_no_counts_of_messages() -> None:
    found = dict(junit_properties(opening_document(losses=2)))
    assert (found["load.connections"], found["load.connections.lost"]) == ("1000", "2")
    assert (found["load.connections.asked.per_s"], found["load.connections.achieved.per_s"]) == (
        "100.0",
        "100.0",
    )
    assert float(found["load.connect.mean.ms"]) > 1
    assert not {"load.offered", "load.lost", "load.rate.msg_per_s"} & found.keys()
    assert "load.connections.asked.per_s" not in dict(
        junit_properties(opening_document(losses=None, rate=None))
    )
    beside = dict(junit_properties(opening_document(alone=False)))
    assert (beside["load.connections"], beside["load.offered"]) == ("1000", "100000")


VALUES = np.arange(-2000, 8000) * MILLISECOND // 10  # a fifth is early, by 200 ms at most


DELAYED: dict[str, Any] = {
    "lateness": lateness(VALUES), "counts": {"out_of_due_order": 7}, "delayed_index": DelayedIndex(bytes=2500, messages=1000),
}  # fmt: skip


def test_delayed_messages_have_properties() -> None:
    found = dict(junit.junit_properties(document(**DELAYED)))
    assert found["load.delayed_index.bytes_per_message"] == "2.500"
    assert found["load.earliness.max.ms"] == "200.000"
    assert found["load.outOfDueOrder"] == "7"
    assert not [
        name
        for name, _ in junit.junit_properties(document())
        if "lateness" in name or "due" in name.lower()
    ]


def test_no_name_makes_the_file_invalid() -> None:
    """pytest escapes the values of properties, not their names. One character that XML does not have spoils the file of the session."""
    run = document(
        parts={"stages": (stage("bell \x07 \x1b[31m \ud800 \x00 end", {"loss": 0}),)},
        custom={"\x01": 3},
    )
    names = [name for name, _ in junit_properties(run)]
    assert "load.stage.bell #x07 #x1B[31m #xD800 #x00 end" in names
    for name in names:
        element = ElementTree.Element("property", name=name)
        assert ElementTree.fromstring(ElementTree.tostring(element)).get("name") == name
