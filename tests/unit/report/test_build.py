"""The results document of a run."""

from __future__ import annotations

import math
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from builders.documents import BACKLOG, BOTTLENECK, FACTS, PEAK, as_json, document, stage
from builders.measurements import MS, Limits, histogram, made, spread
from builders.objectives import parse_slo

from pytest_loadtest.metrics.histogram import Histogram
from pytest_loadtest.metrics.time_slices import SlicedStats, of_parts
from pytest_loadtest.report import junit, terminal
from pytest_loadtest.report.build import MOST, build_document
from pytest_loadtest.report.document import RunDocument, dumps, results_schema
from pytest_loadtest.report.hdr import decode_counts
from pytest_loadtest.results.load import Load, SloMissed
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate

NO_DATA = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))


def test_missing_values_are_null() -> None:
    """A second without a message, a percentile on too few samples, order on Shared, a kind that is not applicable."""
    measured = as_json(
        document(publish=None, end_to_end=spread(1, 20, 500), counts={"out_of_order": None})
    )["measurements"]
    assert measured["series"]["endToEndP99"][4:6] == [83e6, None]
    assert measured["latencies"]["publish"] is None
    assert measured["latencies"]["endToEnd"]["percentiles"]["p50"] == pytest.approx(
        10.5 * MS, rel=0.01
    )
    assert measured["latencies"]["endToEnd"]["percentiles"]["p99"] is None
    assert measured["counts"]["outOfOrder"] is None


def test_counts_of_resent_messages_are_always_present() -> None:
    names = ("duplicates", "resent", "duplicatesOfResent")
    for counts in ({}, {"duplicates": 5, "resent": 40, "duplicates_of_resent": 3}):
        found = as_json(document(counts=counts))["measurements"]["counts"]
        assert [found[name] for name in names] == ([*counts.values()] or [0, 0, 0])


def test_a_histogram_can_be_rebuilt_from_the_text() -> None:
    """Every bucket has its count, so any percentile can be computed later."""
    original = histogram(np.arange(1, 5_000_000, 977))
    latency = as_json(document(end_to_end=original))["measurements"]["latencies"]["endToEnd"]
    buckets = list(decode_counts(latency["histogram"]).items())
    rebuilt = Histogram(
        index=np.array([index for index, _ in buckets]), count=np.array([count for _, count in buckets]),
        minimum=latency["minimum"], maximum=latency["maximum"], total=latency["total"],
    )  # fmt: skip
    assert [rebuilt.percentile(p) for p in range(1, 100)] == [
        original.percentile(p) for p in range(1, 100)
    ]


def test_a_broken_run_has_a_document_with_its_cause() -> None:
    found = as_json(build_document(FACTS, NO_DATA, None))
    assert (found["verdict"]["outcome"], found["verdict"]["reasons"], found["measurements"]) == (
        "no data",
        ["worker gw1 died"],
        None,
    )


def test_findings_have_numbers_and_text() -> None:
    found = as_json(document())["verdict"]["findings"][1]
    assert (found["name"], found["maximum"], found["outcome"], found["samples"]) == (
        "endToEndLatency.p99",
        15 * MS,
        "missed",
        100_000,
    )
    assert found["observed"] == made().latencies["end_to_end"].percentile(99)
    assert found["shown"] == {"observed": "19.8 ms", "bound": "<= 15.0 ms", "over": "over by 32 %"}


def test_the_outcome_is_the_worst_of_the_run_and_its_stages() -> None:
    """The reasons are those of the worst; findings stay in their stage."""
    stages = (stage("ramp"), stage("spike", counts={"received": 0}))
    found = as_json(document({"loss": 0}, parts={"stages": stages}))
    assert [part["verdict"]["outcome"] for part in found["stages"]] == ["missed", "no data"]
    assert found["verdict"]["outcome"] == "no data"
    assert found["verdict"]["reasons"] == [
        "stage spike: nothing was received: 100 000 messages were sent, 100 000 acknowledged"
    ]
    assert [finding["outcome"] for finding in found["verdict"]["findings"]] == ["met"] * 7


def test_a_peak_has_its_interval_its_steps_and_its_unit() -> None:
    """The unit is bytes if the profile's first rate is."""
    found = as_json(document(parts={"peak": PEAK}))["peak"]
    assert (
        found["implicitOnly"],
        as_json(document({}, parts={"peak": PEAK}))["peak"]["implicitOnly"],
    ) == (False, True)
    assert (found["rate"], found["low"], found["high"], found["unit"]) == (
        19_843,
        19_843,
        20_240,
        "msg/s",
    )
    assert [
        (step["number"], step["purpose"], step["outcome"], step["early"]) for step in found["steps"]
    ] == [
        (1, "bracket", "met", False),
        (2, "bracket", "missed", True),
        (3, "confirm", "met", False),
    ]
    facts = {"profile": {"name": "smoke", "search": {"start": "1048576B/s"}}}
    assert as_json(document(facts=facts, parts={"peak": PEAK}))["peak"]["unit"] == "B/s"


def test_a_backlog_keeps_its_latencies() -> None:
    found = as_json(document(parts={"backlog": BACKLOG}))["backlog"]
    assert (found["messages"], found["bytes"], found["drain"], found["drained"]) == (
        1_048_576,
        2**30,
        8_000 * MS,
        True,
    )
    assert found["publishDuringDrain"]["samples"] == 100_000


def test_a_drain_that_never_ended_has_no_time() -> None:
    """JSON has no infinity; the time of the wait is a value of its own."""
    stuck = replace(BACKLOG, drain=math.inf, drained=False, left=2_000_000, waited=15_063 * MS)
    found = as_json(document(parts={"backlog": stuck}))["backlog"]
    assert (found["drain"], found["waited"], found["drained"]) == (None, 15_063 * MS, False)


def test_a_bottleneck_keeps_its_samples_as_columns() -> None:
    """Columns have one length; an unknown value is null."""
    found = as_json(document(parts={"bottleneck": BOTTLENECK}))["bottleneck"]
    assert (
        found["conclusion"]
        in results_schema()["$defs"]["BottleneckSection"]["properties"]["conclusion"]["enum"]
    )
    assert found["columns"]["broker.busiestWanted"] == [1] * 10
    assert {len(column) for column in found["columns"].values()} == {len(found["time"])} == {10}


SECTION = {
    "window": "10s", "endToEndLatency": {"p99": "100ms"}, "violations": "1%", "throughput": {"min": "99%"},
    "drift": {"endToEndLatency.p99": "20%"},
}  # fmt: skip


def time_slices(latencies: list[int | None]) -> SlicedStats:
    """Return time slices of ten seconds with a thousand messages each; None: none of them came."""
    parts = [None if ms is None else histogram(np.full(1000, ms * MS)) for ms in latencies]
    found, at = of_parts(parts), np.arange(len(parts))
    came = np.array([0 if part is None else part.n for part in parts])
    return SlicedStats(
        start=at * 10 * SECOND, end=(at + 1) * 10 * SECOND, begin=at, after=at + 1, offered=np.full(len(parts), 1000), received=came,
        in_time=came, own_late=came * 0, in_time_without_own=came * 0, fan_out=1, latencies={} if found is None else {"end_to_end": found},
    )  # fmt: skip


def verdict(latencies: list[int | None]) -> Verdict:
    tenths = time_slices([20, 30])
    return evaluate(
        parse_slo(SECTION), made(windows=time_slices(latencies), tenths=tenths), Limits()
    )


def windowed_document(latencies: list[int | None]) -> RunDocument:
    found = build_document(FACTS, verdict(latencies), made())
    jsonschema.validate(as_json(found), results_schema())
    assert dumps(found)
    return found


def test_each_window_is_listed() -> None:
    """The finding has the value of the worst window."""
    finding = as_json(windowed_document([20, 500, None]))["verdict"]["findings"][0]
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


def test_only_unmet_windows_of_many_are_listed() -> None:
    """At most a thousand are listed; the counts include the others."""
    windows = as_json(windowed_document([20] * 3000 + [500] * (MOST + 10)))["verdict"]["findings"][
        0
    ]["windows"]
    assert (windows["number"], windows["missed"], len(windows["listed"])) == (
        3000 + MOST + 10,
        MOST + 10,
        MOST,
    )
    assert windows["listed"][0]["start"] == 30_000 * SECOND
    assert (
        as_json(windowed_document([20] * 1500))["verdict"]["findings"][0]["windows"]["listed"] == []
    )


def test_a_finding_on_drift_has_both_tenths() -> None:
    finding = next(
        one
        for one in as_json(windowed_document([20]))["verdict"]["findings"]
        if one["name"] == "drift.endToEndLatency.p99"
    )
    assert (finding["unit"], finding["maximum"], finding["outcome"]) == ("ratio", 0.2, "missed")
    assert finding["tenths"]["last"] / finding["tenths"]["first"] - 1 == finding["observed"]
    assert finding["tenths"]["unit"] == "ns"


def test_terminal_junit_and_assertion_have_the_same_text() -> None:
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
        Load(profile_name="made", observed=made(), verdict=verdict([20, 500, 20])).assert_slo()
    except SloMissed as missed:
        assert f"in each 10.0 s: {text}" in str(missed)
    else:
        raise AssertionError
