"""The format of results.json: its schema and its text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders.documents import BACKLOG, BOTTLENECK, FACTS, PEAK, RESTARTED, as_json, document, stage
from builders.measurements import made_bucket, spread

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.measurements import Lost
from pytest_loadtest.metrics.stats import LOST_RANGES
from pytest_loadtest.observe.conclusion import NOTHING
from pytest_loadtest.observe.rules import RULES
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.document import RunDocument, dumps, parse_document, results_schema
from pytest_loadtest.report.hdr import decode_counts
from pytest_loadtest.values.units import Rate, ms
from pytest_loadtest.verdict.slo import Outcome, Verdict

SOMETIMES = {metric.key for metric in LATENCIES.values() if not metric.always}
"""Latencies that only some runs have."""


VALIDATOR = jsonschema.Draft202012Validator(results_schema())


DOCUMENTS = Path(__file__).parent / "documents"
"""Documents as they were written before the classes of the document existed, and an older one."""
OLDER = DOCUMENTS / "older.json"
CURRENT = sorted(set(DOCUMENTS.glob("*.json")) - {OLDER})
NO_DATA = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))


def objects(node: Any) -> list[dict[str, Any]]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [node] if isinstance(node, dict) and "properties" in node else []
    return own + [found for child in children for found in objects(child)]


@pytest.mark.parametrize(
    "found",
    [
        document(),
        document(
            facts={"scale": 0.001, "scaling": {"rate": "10 M → 10 k msg/s"}},
            counts={"lost": 20, "out_of_order": None},
        ),
        document(publish=None, end_to_end=None, counts={"received": 0, "received_in_time": 0}),
        document(end_to_end=spread(1, 20, 5)),
        build_document(FACTS, NO_DATA, None),
        document(facts={"broker": RESTARTED}),
        document(facts={"workload": "telemetry"}, buckets=(made_bucket("0-256", lost=3),)),
        document({"buckets": {"0-256": {"loss": 0}}}, buckets=(made_bucket("0-256"),)),
        document(
            parts={
                "stages": (stage("ramp"), stage("spike", publish=None)),
                "peak": PEAK,
                "backlog": BACKLOG,
            }
        ),
        document(
            parts={
                "peak": replace(
                    PEAK, rate=None, low=None, high=None, limit="none", broke_first=None, steps=()
                )
            }
        ),
        document(
            {"custom": {"gold.p99": "5ms", "silver.p99": "5ms"}},
            custom={"gold.p99": ms(3), "rate": Rate(5), "skew": -0.5, "none": None},
        ),
        document(parts={"backlog": replace(BACKLOG, publish_during_drain=None)}),
        document(parts={"bottleneck": BOTTLENECK}),
        document(parts={"bottleneck": replace(BOTTLENECK, conclusion=None)}),
        document(
            broadcasts=True,
            completion=spread(1, 9),
            spread=None,
            connect=spread(1, 9),
            subscribe=spread(1, 9),
        ),
        document(later_copies=spread(1, 9)),
    ],
)
def test_every_document_obeys_the_schema(found: RunDocument) -> None:
    VALIDATOR.validate(as_json(found))


def test_the_schema_is_closed_and_describes_every_key() -> None:
    VALIDATOR.check_schema(results_schema())
    for node in objects(results_schema()):
        assert node["additionalProperties"] is False
        assert sorted(node["properties"].keys() - SOMETIMES) == sorted(node["required"])
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**as_json(document()), "version": 1})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**as_json(document()), "unheardOf": 1})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**as_json(document()), "broker": {"restarts": [{"down": 1}]}})


def many_topics(n: int) -> RunDocument:
    """Return a bad run: each topic has a wide histogram of its own, and the maximum number of ranges is lost."""
    topics = tuple(made_bucket(f"topic {i}") for i in range(n))
    lost = tuple(
        Lost(topic=i % n, subscription=0, stream=i, first=10**6 + i, last=10**6 + 2 * i)
        for i in range(LOST_RANGES)
    )
    return document(topics=topics, lost=lost, counts={"lost": 10**6})


def test_a_thousand_topics_are_two_megabytes_at_most() -> None:
    """There are histograms for up to a hundred topics, and summaries for all."""
    found = many_topics(1000)
    topics = as_json(found)["measurements"]["topics"]
    assert len(dumps(found).encode()) <= 2_000_000
    assert {topic["endToEnd"]["histogram"] for topic in topics} == {None}
    assert topics[0]["endToEnd"]["percentiles"]["p99"] == spread(1, 20, 50_000).percentile(99)
    assert decode_counts(
        as_json(many_topics(100))["measurements"]["topics"][99]["endToEnd"]["histogram"]
    )


def test_the_text_has_one_line_for_each_key() -> None:
    found = document(parts={"stages": (stage("ramp"),), "peak": PEAK, "backlog": BACKLOG})
    text = dumps(found)
    assert parse_document(text) == found
    assert re.search(r'^ +"received": \[10000, .*10000\],$', text, re.MULTILINE)
    assert len(text.splitlines()) < 400


def test_every_conclusion_is_in_the_schema() -> None:
    """The schema has no other conclusions."""
    window = {"publisher window", NOTHING, None}
    known = set(results_schema()["$defs"]["BottleneckSection"]["properties"]["conclusion"]["enum"])
    assert known == {rule.conclusion for rule in RULES} | window


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: path.stem)
def test_a_document_is_written_byte_for_byte_as_it_was_read(path: Path) -> None:
    """Keys keep their order, whole numbers have no point, missing values are null."""
    text = path.read_text(encoding="utf-8")
    found = parse_document(text)
    assert dumps(found) == text
    assert parse_document(dumps(found)) == found
    VALIDATOR.validate(json.loads(text))


def test_sections_that_older_results_lack_are_unknown() -> None:
    """They are None or empty; all other values are unchanged."""
    text = OLDER.read_text(encoding="utf-8")
    found = parse_document(text)
    assert (found.bottleneck, found.timeline, found.comparison) == (None, None, None)
    assert found.measurements is not None
    assert (
        found.measurements.silent,
        found.measurements.over_time,
        found.measurements.series.missing,
    ) == (None, None, None)
    assert "outOfDueOrder" not in found.measurements.counts
    assert [finding.windows for finding in found.verdict.findings] == [None] * len(
        found.verdict.findings
    )
    assert holds(json.loads(dumps(found)), json.loads(text))


def holds(whole: Any, part: Any) -> bool:
    """Return True if everything in ``part`` is in ``whole``, too."""
    if isinstance(part, dict):
        return all(key in whole and holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(
            holds(one, other) for one, other in zip(whole, part, strict=True)
        )
    return bool(whole == part)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "is not a results document of version 3 to 4: version 2"),
        ({"version": "4"}, "is not a results document of version 3 to 4: version '4'"),
        ({"unheardOf": 1}, "is not a results document: unheardOf: "),
        ({"seed": 7.5}, "is not a results document: seed: Input should be a valid integer"),
        (
            {"scale": {"factor": 0.5, "changes": {}, "more": 1}},
            "is not a results document: scale.more: ",
        ),
        (
            {"verdict": {"outcome": "good", "reasons": [], "findings": []}},
            "is not a results document: verdict.outcome: ",
        ),
        (
            {"verdict": {"outcome": "met", "reasons": []}},
            "is not a results document: verdict.findings: Field required",
        ),
        (
            {"broker": {"restarts": [{"down": 1, "ready": 2.5}]}},
            "is not a results document: broker",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        parse_document(json.dumps(json.loads(CURRENT[0].read_text(encoding="utf-8")) | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_other_text_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read|is not a results document"):
        parse_document(text)
