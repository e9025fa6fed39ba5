"""The chapter on a search for the highest rate."""

from __future__ import annotations

from builders.documents import PEAK, as_json, document
from builders.measurements import spread
from builders.results import run, shown

LOOSE = {"endToEndLatency": {"p99": "1s"}}


def test_a_search_is_rate_against_latency() -> None:
    """Each step where its rate and its p99 are, in order of rate; one whose results are gone has a place but no latency."""
    steps = {1: document(LOOSE), 3: document(LOOSE)}
    found = shown(run(document(LOOSE, parts={"peak": PEAK}), steps=steps)).charts["search"]
    p99 = as_json(steps[1])["measurements"]["latencies"]["endToEnd"]["percentiles"]["p99"]
    assert found["xs"] == [10_000, 19_843, 20_240]
    assert [(mark["x"], mark["y"], mark["outcome"]) for mark in found["marks"]] == [
        (10_000, p99, "met"),
        (19_843, p99, "met"),
        (20_240, None, "missed"),
    ]
    assert [(bound["label"], bound["x"], bound["y"]) for bound in found["bounds"]] == [
        ("endToEndLatency.p99 <= 1.00 s", None, 1_000_000_000), ("peak 19 843 msg/s", 19_843, None),
    ]  # fmt: skip


def test_a_step_of_few_messages_stands_at_its_maximum() -> None:
    """Its p99 cannot be told."""
    few = document(LOOSE, end_to_end=spread(1, 20, 500))
    found = shown(run(document(LOOSE, parts={"peak": PEAK}), steps={1: few})).charts["search"]
    assert found["marks"][0]["y"] == as_json(few)["measurements"]["latencies"]["endToEnd"]["maximum"]
