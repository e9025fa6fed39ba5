"""The chapter on a search for the highest rate."""

from __future__ import annotations

from builders.documents import PEAK, as_json, document
from builders.measurements import spread
from builders.results import run, shown

LOOSE = {"endToEndLatency": {"p99": "1s"}}


def test_each_step_is_a_mark_at_its_rate_and_p99() -> None:
    """Steps are in order of rate; one without results has a rate and no latency."""
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


def test_a_step_without_p99_is_a_mark_at_its_maximum() -> None:
    few = document(LOOSE, end_to_end=spread(1, 20, 500))
    found = shown(run(document(LOOSE, parts={"peak": PEAK}), steps={1: few})).charts["search"]
    assert (
        found["marks"][0]["y"] == as_json(few)["measurements"]["latencies"]["endToEnd"]["maximum"]
    )
