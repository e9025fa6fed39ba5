"""OpenMessaging Benchmark's TestResult."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.documents import FACTS, document
from builders.measurements import MS, OTHERS_SEND, histogram, made_series, spread
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.errors import NoData
from pytest_loadtest.report import omb
from pytest_loadtest.report.build import build_document
from pytest_loadtest.verdict.slo import Outcome, Verdict

if TYPE_CHECKING:
    from pathlib import Path

STATISTICS = ["Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "Max"]
LATENCIES = ["publishLatency", "publishDelayLatency", "endToEndLatency"]
FACT_NAMES = [
    "workload",
    "driver",
    "messageSize",
    "topics",
    "partitions",
    "producersPerTopic",
    "consumersPerTopic",
]
RATES = ["publishRate", "publishErrorRate", "consumeRate", "backlog"]


def result(**changed: Any) -> dict[str, Any]:
    return omb.test_result(document(**changed))


def long(seconds: int = 25, **changed: Any) -> dict[str, Any]:
    kinds = {
        "publish": spread(0.5, 12),
        "end_to_end": spread(1, 20),
        "send_delay": spread(0.001, 1),
    }
    kinds |= {kind: changed[kind] for kind in kinds if kind in changed}
    intervals = tuple(
        {kind: part for kind, part in kinds.items() if part is not None}
        for _ in range(-(-seconds // 10))
    )
    return result(
        duration=seconds * 1000 * MS, series=made_series(seconds), intervals=intervals, **changed
    )


def test_the_names_are_exactly_those_of_omb() -> None:
    """A strict reader rejects unknown names."""
    aggregated = [f"aggregated{name[0].upper()}{name[1:]}" for name in LATENCIES]
    expected = {*FACT_NAMES, *RATES, *(f"{name}Quantiles" for name in aggregated)}
    expected |= {
        f"{name}{statistic}" for name in (*LATENCIES, *aggregated) for statistic in STATISTICS
    }
    assert set(result()) == expected
    assert len(expected) == 62


def test_facts_are_those_of_the_run() -> None:
    """They are the true mean size, the consumers of all subscriptions, and the load as it was scaled."""
    found = result(bytes_sent=25_614 * 100_000)
    assert [found[name] for name in FACT_NAMES] == ["smoke", "pulsar", 25_614, 2, 1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "driver"),
    [
        ({}, "pulsar"),
        ({"facts": {"scale": 0.001}}, "pulsar (scaled x0.001)"),
        ({"own_send_delay": spread(0, 500)}, "pulsar (generator-limited)"),
        (
            {
                "facts": {"scale": 0.5},
                "publish": None,
                "section": {"publishLatency": {"p50": "1s"}},
            },
            "pulsar (no data, scaled x0.5)",
        ),
    ],
)
def test_a_run_that_proves_nothing_is_marked_in_the_drivers_name(
    changed: dict[str, Any], driver: str
) -> None:
    """OMB has no field for it, and charts name their lines by the driver."""
    assert result(**changed)["driver"] == driver


def test_a_list_has_an_entry_for_every_ten_seconds() -> None:
    """The last one may be shorter; its rate is still per second."""
    found = long(25)
    assert found["publishRate"] == [10_000.0, 10_000.0, 10_000.0]
    assert found["consumeRate"] == [9_000.0, 10_000.0, 10_000.0]
    assert found["publishErrorRate"] == [0.0, 0.0, 0.0]
    assert found["endToEndLatencyMax"] == [20.0, 20.0, 20.0]
    assert found["publishLatency99pct"] == [pytest.approx(11.9, rel=0.01)] * 3
    assert found["publishDelayLatencyAvg"] == [pytest.approx(500, rel=0.01)] * 3
    assert {len(values) for name, values in found.items() if isinstance(values, list)} == {3}


def test_a_sample_of_less_than_a_second_has_its_own_length() -> None:
    """10 000 messages in half a second are 20 000 a second."""
    assert result(duration=500 * MS, series=made_series(1))["publishRate"] == [20_000.0]


def test_the_drain_belongs_to_no_sample() -> None:
    """OMB stops counting with the load, too."""
    assert len(result(duration=20_000 * MS, series=made_series(35))["publishRate"]) == 2


def test_backlog_counts_over_all_subscriptions() -> None:
    series = made_series(20)
    slow = replace(series, received=np.full(20, 29_000))
    found = result(duration=20_000 * MS, subscriptions=3, series=slow, counts={"received": 100_000})
    assert found["backlog"] == [10_000, 20_000]
    assert result(duration=20_000 * MS, series=slow)["backlog"] == [0, 0]


def test_the_backlog_of_what_others_send_is_unknown() -> None:
    assert result(duration=20_000 * MS, counts=OTHERS_SEND)["backlog"] == [None, None]


def test_values_unknown_by_sample_are_null() -> None:
    found = long(25, counts={"failed": 1, "duplicates": 1}, publish=None)
    assert (
        found["publishErrorRate"] == found["backlog"] == found["publishLatency99pct"] == [None] * 3
    )


def test_a_single_sample_is_the_whole_run() -> None:
    found = result()
    assert found["publishLatency99pct"] == [found["aggregatedPublishLatency99pct"]]
    assert found["endToEndLatencyMax"] == [20.0]


def test_a_line_over_time_has_no_gaps() -> None:
    """A sample of few messages has its percentiles; the whole run, which proves something, has none."""
    found = result(end_to_end=spread(1, 20, 50))
    assert found["endToEndLatency99pct"] == [pytest.approx(20, rel=0.05)]
    assert found["aggregatedEndToEndLatency99pct"] is None


def test_latencies_have_the_units_of_omb() -> None:
    """Milliseconds with decimals, and whole microseconds for the send delay."""
    found = result()
    assert found["aggregatedEndToEndLatencyMax"] == 20.0
    assert found["aggregatedPublishLatency50pct"] == pytest.approx(6.25, rel=0.001)
    assert found["aggregatedPublishDelayLatencyMax"] == 1000
    assert isinstance(found["aggregatedPublishDelayLatency99pct"], int)
    assert found["aggregatedPublishDelayLatencyAvg"] == pytest.approx(500.5)


def test_missing_latencies_are_null() -> None:
    """A kind that was not measured, a percentile on too few samples, clocks that disagree."""
    found = result(
        publish=None, end_to_end=spread(1, 20, 500), send_delay=replace(spread(1, 20), negative=1)
    )
    assert (found["aggregatedPublishLatencyAvg"], found["aggregatedPublishLatencyQuantiles"]) == (
        None,
        {},
    )
    assert found["aggregatedEndToEndLatency50pct"] is not None
    assert found["aggregatedEndToEndLatency99pct"] is None
    assert (found["aggregatedPublishDelayLatencyMax"], found["publishDelayLatencyMax"]) == (
        None,
        [None],
    )


def test_a_run_without_measurements_has_no_result() -> None:
    broken = build_document(
        FACTS, Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",)), None
    )
    with pytest.raises(NoData, match="nothing was measured, so there is no OMB result"):
        omb.test_result(broken)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=300))
def test_quantiles_rise_to_the_maximum(values: list[int]) -> None:
    """At each point that share of the values lies at or below it; the last point is the largest value."""
    whole = histogram(np.array(values, dtype=np.int64))
    points = [
        (float(p), ms)
        for p, ms in result(end_to_end=whole)["aggregatedEndToEndLatencyQuantiles"].items()
    ]
    assert points[-1] == (100.0, max(values) / MS)
    assert all(p < q and low <= high for (p, low), (q, high) in pairwise(points))
    for percent, ms in points:
        assert sum(value <= ms * MS + 0.5 for value in values) / len(values) * 100 == pytest.approx(
            percent
        )


def test_quantiles_are_closer_together_towards_the_tail() -> None:
    """Each halving of the remaining share has a hundred, so the tail of a chart is as smooth as its head."""
    tailed = histogram((-np.log(np.linspace(1, 1e-5, 100_000)) * MS).astype(np.int64))
    points = [float(p) for p in result(end_to_end=tailed)["aggregatedEndToEndLatencyQuantiles"]]
    assert 40 < sum(p < 50 for p in points) <= 101
    assert sum(p > 99 for p in points) > 300
    assert all(math.isfinite(math.log10(100 / (100 - p))) for p in points[:-1])


def test_the_file_is_named_as_omb_names_it(tmp_path: Path) -> None:
    """The name has workload, driver and date; a name that is taken gets a number."""
    folder = tmp_path / "omb"
    first, second = (
        omb.write_test_result(document(), folder),
        omb.write_test_result(document(), folder),
    )
    assert first.name == "smoke-pulsar-2026-11-21-03-00-00.json"
    assert second.name == "smoke-pulsar-2026-11-21-03-00-00-2.json"
    assert json.loads(first.read_text()) == omb.test_result(document())
    spaced = omb.write_test_result(document(facts={"workload": "1 topic / 16 partitions"}), folder)
    assert spaced.name == "1-topic-16-partitions-pulsar-2026-11-21-03-00-00.json"


def test_a_long_workload_is_shortened_to_a_name_that_a_file_can_have(tmp_path: Path) -> None:
    """A name has 255 bytes at most, and the name of a workload, here of 3 bytes a character, any
    length.
    """
    long = document(facts={"workload": "負荷" * 60})
    first = omb.write_test_result(long, tmp_path)
    second = omb.write_test_result(long, tmp_path)
    assert first.name == f"{'負荷' * 26}負-pulsar-2026-11-21-03-00-00.json"
    assert second.name == first.name.replace(".json", "-2.json")
    assert json.loads(first.read_text())["workload"] == "負荷" * 60
