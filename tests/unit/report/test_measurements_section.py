"""The section ``measurements`` of a document."""

from __future__ import annotations

from typing import Any

import pytest
from builders.documents import as_json, changed, document, from_json

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES


def test_a_key_that_the_catalogue_does_not_have_is_an_error() -> None:
    for path in ("counts", "latencies", "intervals/0"):
        with pytest.raises(ValueError, match=r"measurements\..*unknown keys: gone"):
            changed(document(), f"measurements/{path}/gone", None)


def test_every_count_and_latency_of_the_catalogue_is_accepted() -> None:
    run = as_json(document())
    latency = run["measurements"]["latencies"]["endToEnd"]
    run["measurements"]["counts"] = {row.key: 1 for row in COUNTS}
    run["measurements"]["latencies"] = {metric.key: latency for metric in LATENCIES.values()}
    assert as_json(from_json(run)) == run


def test_a_topic_has_every_latency_that_the_catalogue_has_for_topics() -> None:
    (topic,) = as_json(document())["measurements"]["topics"]
    assert {metric.key for metric in LATENCIES.values() if metric.per_topic} <= set(topic)


@pytest.mark.parametrize(
    ("path", "value"),
    [("duration", -1), ("counts/sent", -1), ("series/received/3", 0.5), ("workers/0/gc", "3 ms")],
)
def test_a_value_of_the_wrong_type_or_below_zero_is_an_error(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match="measurements." + path.replace("/", r"\.")):
        changed(document(), f"measurements/{path}", value)


def test_a_count_that_is_unknown_is_no_number() -> None:
    measured = document(counts={"out_of_order": None}).measurements
    assert measured is not None
    assert measured.count("sent") == 100_000
    with pytest.raises(AssertionError, match="outOfOrder"):
        measured.count("outOfOrder")
