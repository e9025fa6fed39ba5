"""``results.json``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from builders.documents import BACKLOG, BOTTLENECK, FACTS, PEAK, RESTARTED, document, stage
from builders.measurements import MS, Limits, histogram, made, made_bucket, spread

from pytest_loadtest.metrics.histogram import Histogram
from pytest_loadtest.metrics.measurements import Lost
from pytest_loadtest.metrics.stats import LOST_RANGES
from pytest_loadtest.metrics.stretches import Stretches, of_parts
from pytest_loadtest.observe.conclusion import NOTHING
from pytest_loadtest.observe.rules import RULES
from pytest_loadtest.report import junit, terminal
from pytest_loadtest.report.build import MOST, build_document
from pytest_loadtest.report.document import Document, dumps, results_schema
from pytest_loadtest.report.hdr import decode_histogram
from pytest_loadtest.results.load import Load, SloMissed
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.units import Rate, ms
from pytest_loadtest.verdict.grammar import METRICS
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate, parse

SOMETIMES = {"completion", "spread", "connect", "subscribe", "lateness", "earliness", "laterCopies"}
"""Latencies that only some runs have."""
VALIDATOR = jsonschema.Draft202012Validator(results_schema())
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
        build_document(FACTS, NO_DATA, None),
        document(facts={"broker": RESTARTED}),
        document(facts={"workload": "telemetry"}, buckets=(made_bucket("0-256", lost=3),)),
        document({"buckets": {"0-256": {"loss": 0}}}, buckets=(made_bucket("0-256"),)),
        document(parts={"stages": (stage("ramp"), stage("spike", publish=None)), "peak": PEAK, "backlog": BACKLOG}),
        document(parts={"peak": replace(PEAK, rate=None, low=None, high=None, limit="none", broke_first=None, steps=())}),
        document(
            {"custom": {"gold.p99": "5ms", "silver.p99": "5ms"}}, custom={"gold.p99": ms(3), "rate": Rate(5), "skew": -0.5, "none": None}
        ),
        document(parts={"backlog": replace(BACKLOG, publish_during_drain=None)}),
        document(parts={"bottleneck": BOTTLENECK}),
        document(parts={"bottleneck": {**BOTTLENECK, "conclusion": None}}),
        document(broadcasts=True, completion=spread(1, 9), spread=None, connect=spread(1, 9), subscribe=spread(1, 9)),
        document(later_copies=spread(1, 9)),
    ],
)
def test_every_document_obeys_the_schema(found: Document) -> None:
    """As it is written, NaN and all."""
    VALIDATOR.validate(written(found))


def test_the_schema_is_one_and_describes_every_key() -> None:
    """A closed list: an unknown key is an error, and each key says what it is."""
    VALIDATOR.check_schema(results_schema())
    for node in objects(results_schema()):
        assert node["additionalProperties"] is False
        assert sorted(node["properties"].keys() - SOMETIMES) == sorted(node["required"])
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**written(document()), "version": 1})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**written(document()), "unheardOf": 1})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**written(document()), "broker": {"restarts": [{"down": 1}]}})


def test_every_metric_is_in_the_schema() -> None:
    found = results_schema()["$defs"]["finding"]["properties"]["metric"]["enum"]
    assert found == [*METRICS, "custom", "regression"]


def test_what_was_not_measured_is_null() -> None:
    """A second without a message, a percentile on too few samples, order on Shared, a kind that is not applicable."""
    measured = written(document(publish=None, end_to_end=spread(1, 20, 500), counts={"out_of_order": None}))["measurements"]
    assert measured["series"]["endToEndP99"][4:6] == [83e6, None]
    assert measured["latencies"]["publish"] is None
    assert measured["latencies"]["endToEnd"]["percentiles"]["p50"] == pytest.approx(10.5 * MS, rel=0.01)
    assert measured["latencies"]["endToEnd"]["percentiles"]["p99"] is None
    assert measured["counts"]["outOfOrder"] is None


def test_both_counts_of_messages_sent_again_are_always_there() -> None:
    """Also where they are 0."""
    names = ("duplicates", "resent", "duplicatesOfResent")
    for counts in ({}, {"duplicates": 5, "resent": 40, "duplicates_of_resent": 3}):
        found = written(document(counts=counts))["measurements"]["counts"]
        assert [found[name] for name in names] == ([*counts.values()] or [0, 0, 0])


def test_the_histogram_can_be_rebuilt() -> None:
    """Bucket for bucket, from what is written: any percentile can be asked again later."""
    original = histogram(np.arange(1, 5_000_000, 977))
    latency = written(document(end_to_end=original))["measurements"]["latencies"]["endToEnd"]
    buckets = decode_histogram(latency["histogram"])
    rebuilt = Histogram(
        index=np.array([index for index, _ in buckets]), count=np.array([count for _, count in buckets]),
        minimum=latency["minimum"], maximum=latency["maximum"], total=latency["total"],
    )  # fmt: skip
    assert [rebuilt.percentile(p) for p in range(1, 100)] == [original.percentile(p) for p in range(1, 100)]


def many_topics(n: int) -> Document:
    """A bad run: every topic has a wide histogram of its own, and there are as many ranges of lost messages as are kept."""
    topics = tuple(made_bucket(f"topic {i}") for i in range(n))
    lost = tuple(Lost(topic=i % n, subscription=0, stream=i, first=10**6 + i, last=10**6 + 2 * i) for i in range(LOST_RANGES))
    return document(topics=topics, lost=lost, counts={"lost": 10**6})


def test_a_thousand_topics_are_two_megabytes_at_most() -> None:
    """However many messages each had: a histogram for each of some topics, summaries of all."""
    found = many_topics(1000)
    assert len(dumps(found).encode()) <= 2_000_000
    assert {topic["endToEnd"]["histogram"] for topic in found["measurements"]["topics"]} == {None}
    assert found["measurements"]["topics"][0]["endToEnd"]["percentiles"]["p99"] == spread(1, 20, 50_000).percentile(99)
    assert decode_histogram(many_topics(100)["measurements"]["topics"][99]["endToEnd"]["histogram"])


def test_what_is_written_is_what_was_built() -> None:
    """Lines that people can read and compare, and few of them."""
    found = document(parts={"stages": (stage("ramp"),), "peak": PEAK, "backlog": BACKLOG})
    text = dumps(found)
    assert json.loads(text) == found
    assert re.search(r'^ +"received": \[10000, .*10000\],$', text, re.MULTILINE)
    assert len(text.splitlines()) < 400


def test_a_broken_run_has_a_document_too() -> None:
    """With its cause and no measurements."""
    found = written(build_document(FACTS, NO_DATA, None))
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
    assert [finding["outcome"] for finding in found["verdict"]["findings"]] == ["met"] * 7


def test_a_peak_has_its_interval_its_steps_and_its_unit() -> None:
    """In bytes where the profile says so."""
    found = written(document(parts={"peak": PEAK}))["peak"]
    assert (found["implicitOnly"], written(document({}, parts={"peak": PEAK}))["peak"]["implicitOnly"]) == (False, True)
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


def test_a_bottleneck_keeps_what_was_sampled() -> None:
    """As columns of one length, null where a sample does not know."""
    found = written(document(parts={"bottleneck": BOTTLENECK}))["bottleneck"]
    assert found["conclusion"] in results_schema()["properties"]["bottleneck"]["properties"]["conclusion"]["enum"]
    assert found["columns"]["broker.busiestWanted"] == [1] * 10
    assert {len(column) for column in found["columns"].values()} == {len(found["time"])} == {10}


def test_every_conclusion_is_in_the_schema() -> None:
    """And none that no rule can come to."""
    window = {"publisher window", NOTHING, None}
    assert (
        set(results_schema()["properties"]["bottleneck"]["properties"]["conclusion"]["enum"])
        == {rule.conclusion for rule in RULES} | window
    )


def test_every_outcome_is_in_the_schema() -> None:
    """Of a run, of a stage and of one objective: a latency that only the generator's own delay spoiled makes that objective generator-limited."""
    outcomes = {outcome.value for outcome in Outcome}
    assert set(results_schema()["$defs"]["finding"]["properties"]["outcome"]["enum"]) == outcomes
    assert set(results_schema()["properties"]["verdict"]["properties"]["outcome"]["enum"]) == outcomes


SECTION = {
    "window": "10s", "endToEndLatency": {"p99": "100ms"}, "violations": "1%", "throughput": {"min": "99%"},
    "drift": {"endToEndLatency.p99": "20%"},
}  # fmt: skip


def stretches(latencies: list[int | None]) -> Stretches:
    """Ten seconds each, of a thousand messages; None: none of them came."""
    parts = [None if ms is None else histogram(np.full(1000, ms * MS)) for ms in latencies]
    found, at = of_parts(parts), np.arange(len(parts))
    came = np.array([0 if part is None else part.n for part in parts])
    return Stretches(
        start=at * 10 * SECOND, end=(at + 1) * 10 * SECOND, begin=at, after=at + 1, offered=np.full(len(parts), 1000), received=came,
        in_time=came, subscriptions=1, latencies={} if found is None else {"end_to_end": found},
    )  # fmt: skip


def verdict(latencies: list[int | None]) -> Verdict:
    tenths = stretches([20, 30])
    return evaluate(parse(SECTION), made(windows=stretches(latencies), tenths=tenths), Limits())


def windowed_document(latencies: list[int | None]) -> Document:
    found = build_document(FACTS, verdict(latencies), made())
    jsonschema.validate(found, results_schema())
    assert dumps(found)
    return found


def test_each_window_is_listed() -> None:
    """When it was, what was observed, and how it came out; the worst stands for all."""
    finding = windowed_document([20, 500, None])["verdict"]["findings"][0]
    assert finding["windows"] == {
        "width": 10 * SECOND, "violations": 0.01, "number": 3, "missed": 2, "generatorLimited": 0, "noData": 0,
        "listed": [
            {"start": 0, "end": 10 * SECOND, "observed": finding["windows"]["listed"][0]["observed"], "outcome": "met"},
            {"start": 10 * SECOND, "end": 20 * SECOND, "observed": finding["windows"]["listed"][1]["observed"], "outcome": "missed"},
            {"start": 20 * SECOND, "end": 30 * SECOND, "observed": None, "outcome": "missed"},
        ],
    }  # fmt: skip
    assert (finding["observed"], finding["shown"]["observed"]) == (None, "never at 0:00:20")
    assert finding["shown"]["over"] == "missed in 2 of 3 windows"


def test_of_many_windows_those_are_listed_that_are_not_met() -> None:
    """A thousand of them at most: the counts tell the rest."""
    windows = windowed_document([20] * 3000 + [500] * (MOST + 10))["verdict"]["findings"][0]["windows"]
    assert (windows["number"], windows["missed"], len(windows["listed"])) == (3000 + MOST + 10, MOST + 10, MOST)
    assert windows["listed"][0]["start"] == 30_000 * SECOND
    assert windowed_document([20] * 1500)["verdict"]["findings"][0]["windows"]["listed"] == []


def test_drift_tells_both_tenths() -> None:
    """Beside the change, which is what its bounds are about."""
    finding = next(one for one in windowed_document([20])["verdict"]["findings"] if one["name"] == "drift.endToEndLatency.p99")
    assert (finding["unit"], finding["maximum"], finding["outcome"]) == ("ratio", 0.2, "missed")
    assert finding["tenths"]["last"] / finding["tenths"]["first"] - 1 == finding["observed"]
    assert finding["tenths"]["unit"] == "ns"


def test_one_line_says_it_everywhere() -> None:
    """Terminal, JUnit, and what ``assert_slo()`` raises."""
    found = windowed_document([20, 500, 20])
    line = next(line for line in terminal.summary_lines(found) if " endToEndLatency.p99 " in line)
    assert line.split() == [
        "✗", "endToEndLatency.p99", "500", "ms", "at", "0:00:10", "<=", "100", "ms", "in", "each", "10.0", "s,", "but", "1", "%", "of", "them",
        "3", "000", "missed", "in", "1", "of", "3", "windows",
    ]  # fmt: skip
    text = "missed in 1 of 3 windows, 33.33 % > 1 %; worst 500 ms at 0:00:10"
    properties = dict(junit.junit_properties(found))
    assert properties["load.objective.endToEndLatency.p99"].endswith(text)
    try:
        Load(profile_name="made", measurements=made(), verdict=verdict([20, 500, 20])).assert_slo()
    except SloMissed as missed:
        assert f"in each 10.0 s: {text}" in str(missed)
    else:
        raise AssertionError
