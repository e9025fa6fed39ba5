"""Delayed messages in documents, on the terminal, in JUnit and in plans."""

from __future__ import annotations

from typing import Any

import jsonschema
import numpy as np
import pytest
from builders.documents import document
from builders.measurements import Limits, made
from builders.plans import HERE
from builders.plans import made as made_plan

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.metrics.delayed_index import DelayedIndex
from pytest_loadtest.metrics.signed import lateness
from pytest_loadtest.report import junit, plan, terminal
from pytest_loadtest.report.document import results_schema
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.verdict.slo import Outcome, evaluate, parse

VALUES = np.arange(-2000, 8000) * MILLISECOND // 10  # a fifth is early, by 200 ms at most
DELAYED: dict[str, Any] = {
    "lateness": lateness(VALUES), "counts": {"out_of_due_order": 7}, "delayed_index": DelayedIndex(bytes=2500, messages=1000),
}  # fmt: skip


def outcome(**section: Any) -> dict[str, str]:
    """Of each objective of the section."""
    found = evaluate(parse(section, implicit=()), made(**DELAYED), Limits())
    return {finding.objective.name: finding.outcome.value for finding in found.findings}


def test_objectives() -> None:
    """Both sides, and the index; a median may be below zero."""
    assert outcome(lateness={"p50": "301ms", "p99": "700ms"}) == {"lateness.p50": "met", "lateness.p99": "missed"}
    assert outcome(earliness={"max": "200ms", "p50": "1ms"}) == {"earliness.max": "met", "earliness.p50": "met"}
    assert outcome(earliness={"max": "0s"}) == {"earliness.max": "missed"}
    assert outcome(delayedIndexBytesPerMessage=2.5) == {"delayedIndexBytesPerMessage": "met"}
    assert outcome(delayedIndexBytesPerMessage=2.4) == {"delayedIndexBytesPerMessage": "missed"}


@pytest.mark.parametrize("section", [{"lateness": {"max": "1s"}}, {"earliness": {"max": "0s"}}, {"delayedIndexBytesPerMessage": 2.5}])
def test_nothing_measured_is_no_pass(section: dict[str, Any]) -> None:
    """A run whose messages were not delayed, or whose broker nobody asked."""
    assert evaluate(parse(section, implicit=()), made(), Limits()).outcome is Outcome.NO_DATA


def test_what_never_came_is_late() -> None:
    """It counts in percentiles of lateness, and in none of earliness."""
    measurements = made(**{**DELAYED, "counts": {"out_of_due_order": 0, "received": 90_000, "lost": 10_000}})
    found = evaluate(parse({"lateness": {"p99": "10s"}, "earliness": {"p99": "1s"}}, implicit=()), measurements, Limits())
    assert [finding.outcome for finding in found.findings] == [Outcome.MISSED, Outcome.MET]


def test_the_document() -> None:
    """As the schema has it; a run without delays has none of it."""
    found = document(**DELAYED)
    jsonschema.Draft202012Validator(results_schema()).validate(found)
    late, early = (found["measurements"]["latencies"][kind] for kind in ("lateness", "earliness"))
    assert (late["minimum"], early["maximum"]) == (-200 * MILLISECOND, 200 * MILLISECOND)
    assert (late["samples"], early["samples"]) == (10_000, 10_000)
    assert found["measurements"]["counts"]["outOfDueOrder"] == 7
    assert found["measurements"]["delayedIndex"] == {"bytes": 2500, "messages": 1000, "bytesPerMessage": 2.5}
    plain = document()["measurements"]
    assert "lateness" not in plain["latencies"]
    assert plain["delayedIndex"] is plain["counts"]["outOfDueOrder"] is None


def test_the_summary() -> None:
    """Rows of their own, with a sign."""
    text = "\n".join(terminal.summary_lines(document(**DELAYED)))
    assert "after due" in text and "before due" in text
    assert "7 copies after one that is due more than a tick later" in text
    assert "index      2.5 B a message, 2.44 KiB for 1 000 delayed" in text
    assert "due more than a tick" not in "\n".join(terminal.summary_lines(document()))


def test_junit() -> None:
    found = dict(junit.junit_properties(document(**DELAYED)))
    assert found["load.delayed_index.bytes_per_message"] == "2.500"
    assert found["load.earliness.max.ms"] == "200.000"
    assert found["load.outOfDueOrder"] == "7"
    assert not [name for name, _ in junit.junit_properties(document()) if "lateness" in name or "due" in name.lower()]


def lines(*more: str) -> list[str]:
    text = "name: p\nproducerRate: 20000\nmessageSize: 100\ntestDuration: 2h\ndriver: {name: pulsar, subscriptionType: Shared}\n"
    profile = profiles.loads(text + "".join(more), "p.yaml")
    made = made_plan(profile)
    return [line for line in plan.plan_table(made, DriverFacts(client="c", version="1"), HERE) if line.startswith(("delayed", "WARNING"))]


def test_the_plan() -> None:
    """What will be pending and what it takes; a warning where a broker of the run's own has less."""
    (short,) = lines("deliverAfter: 10s\n")
    assert short.startswith("delayed      10.0 s each; about 200 k messages pending, an entry each")
    assert "4.58 MiB as a heap" in short
    hour, warning = lines("deliverAfter: 1h\n")
    assert "72.0 M messages pending" in hour
    assert warning.startswith("WARNING      the broker is given 1.00 GiB, the index needs 1.61 GiB as a heap: shorten the delay")
    assert len(lines("deliverAfter: 1h\n", "target: {url: pulsar://h:1}\n")) == 1
    assert lines() == []
