"""``results.json``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from made_documents import BACKLOG, FACTS, PEAK, document, stage
from made_measurements import MS, histogram, made, made_bucket, spread

from pytest_loadtest.measurements import Histogram
from pytest_loadtest.report.document import Document, build, dumps, schema
from pytest_loadtest.slo import Outcome, Verdict

VALIDATOR = jsonschema.Draft202012Validator(schema())
NO_DATA = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))


def written(found: Document) -> Any:
    return json.loads(dumps(found))


def objects(node: Any) -> list[dict[str, Any]]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [node] if isinstance(node, dict) and "properties" in node else []
    return own + [found for child in children for found in objects(child)]


@pytest.mark.parametrize(
    "found",
    [
        document(),
        document(facts={"scale": 0.001, "scaling": {"rate": "10 M → 10 k msg/s"}}, counts={"lost": 20, "out_of_order": None}),
        document(publish=None, end_to_end=None, counts={"received": 0, "received_in_time": 0}),
        document(end_to_end=spread(1, 20, 5)),
        build(FACTS, NO_DATA, None),
        document(facts={"workload": "telemetry"}, buckets=(made_bucket("0-256", lost=3),)),
        document({"buckets": {"0-256": {"loss": 0}}}, buckets=(made_bucket("0-256"),)),
        document(parts={"stages": (stage("ramp"), stage("spike", publish=None)), "peak": PEAK, "backlog": BACKLOG}),
        document(parts={"peak": replace(PEAK, rate=None, low=None, high=None, limit="none", broke_first=None, steps=())}),
        document(parts={"backlog": replace(BACKLOG, publish_during_drain=None)}),
    ],
)
def test_every_document_obeys_the_schema(found: Document) -> None:
    """As it is written, NaN and all."""
    VALIDATOR.validate(written(found))


def test_the_schema_is_one_and_describes_every_key() -> None:
    """A closed list: an unknown key is an error, and each key says what it is."""
    VALIDATOR.check_schema(schema())
    for node in objects(schema()):
        assert node["additionalProperties"] is False
        assert sorted(node["required"]) == sorted(node["properties"])
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**written(document()), "version": 2})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**written(document()), "unheardOf": 1})


def test_what_was_not_measured_is_null() -> None:
    """A second without a message, a percentile on too few samples, order on Shared, a kind that is not applicable."""
    measured = written(document(publish=None, end_to_end=spread(1, 20, 500), counts={"out_of_order": None}))["measurements"]
    assert measured["series"]["endToEndP99"][4:6] == [83e6, None]
    assert measured["latencies"]["publish"] is None
    assert measured["latencies"]["endToEnd"]["percentiles"]["p50"] == pytest.approx(10.5 * MS, rel=0.01)
    assert measured["latencies"]["endToEnd"]["percentiles"]["p99"] is None
    assert measured["counts"]["outOfOrder"] is None


def test_the_histogram_can_be_rebuilt() -> None:
    """Bucket for bucket: any percentile can be asked again later."""
    original = histogram(np.arange(1, 5_000_000, 977))
    latency = written(document(end_to_end=original))["measurements"]["latencies"]["endToEnd"]
    rebuilt = Histogram(
        index=np.array(latency["histogram"]["index"]), count=np.array(latency["histogram"]["count"]),
        minimum=latency["minimum"], maximum=latency["maximum"], total=latency["total"],
    )  # fmt: skip
    assert [rebuilt.percentile(p) for p in range(1, 100)] == [original.percentile(p) for p in range(1, 100)]


def test_a_broken_run_has_a_document_too() -> None:
    """With its cause and no measurements."""
    found = written(build(FACTS, NO_DATA, None))
    assert (found["verdict"]["outcome"], found["verdict"]["reasons"], found["measurements"]) == ("no data", ["worker gw1 died"], None)


def test_findings_carry_numbers_and_words() -> None:
    """Tools read one, people the other."""
    found = written(document())["verdict"]["findings"][1]
    assert (found["name"], found["maximum"], found["outcome"], found["samples"]) == ("endToEndLatency.p99", 15 * MS, "missed", 100_000)
    assert found["observed"] == made().end_to_end.percentile(99)  # type: ignore[union-attr]
    assert found["shown"] == {"observed": "19.8 ms", "bound": "<= 15.0 ms", "over": "over by 32 %"}


def test_the_outcome_is_the_worst_of_the_run_and_its_stages() -> None:
    """With the reasons of that one; findings stay where they belong."""
    stages = (stage("ramp"), stage("spike", counts={"received": 0}))
    found = written(document({"loss": 0}, parts={"stages": stages}))
    assert [part["verdict"]["outcome"] for part in found["stages"]] == ["missed", "no data"]
    assert found["verdict"]["outcome"] == "no data"
    assert found["verdict"]["reasons"] == ["stage spike: nothing was received: 100 000 messages were sent, 100 000 acknowledged"]
    assert [finding["outcome"] for finding in found["verdict"]["findings"]] == ["met"] * 6


def test_a_peak_has_its_interval_its_steps_and_its_unit() -> None:
    """In bytes where the profile says so."""
    found = written(document(parts={"peak": PEAK}))["peak"]
    assert (found["rate"], found["low"], found["high"], found["unit"]) == (19_843, 19_843, 20_240, "msg/s")
    assert [(step["number"], step["purpose"], step["outcome"], step["early"]) for step in found["steps"]] == [
        (1, "bracket", "met", False),
        (2, "bracket", "missed", True),
        (3, "confirm", "met", False),
    ]
    facts = {"profile": {"name": "smoke", "search": {"start": "1048576B/s"}}}
    assert written(document(facts=facts, parts={"peak": PEAK}))["peak"]["unit"] == "B/s"


def test_a_backlog_keeps_its_latencies() -> None:
    """As a histogram, like all others."""
    found = written(document(parts={"backlog": BACKLOG}))["backlog"]
    assert (found["messages"], found["bytes"], found["drain"], found["drained"]) == (1_048_576, 2**30, 8_000 * MS, True)
    assert found["publishDuringDrain"]["samples"] == 100_000
