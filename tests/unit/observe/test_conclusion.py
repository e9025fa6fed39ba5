"""The bottleneck of a run: the order of saturated sides, and the conclusion if samples are missing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from builders.measurements import MS, made, spread
from builders.telemetry import made_telemetry

from pytest_loadtest.metrics.full_windows import BlockedTopic, FullWindows
from pytest_loadtest.observe.conclusion import Bottleneck, conclude
from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.values.quantities import SECOND


def judged(telemetry: Telemetry, **more: Any) -> Bottleneck:
    return conclude(telemetry, made(), cores=2, **more)


@pytest.mark.parametrize(("held", "conclusion"), [(1, "nothing saturated"), (2, "broker CPU")])
def test_a_side_saturated_in_one_sample_is_no_bottleneck(held: int, conclusion: str) -> None:
    assert judged(made_telemetry(held, broker__busiestWanted=1.0)).conclusion == conclusion


def test_the_side_with_the_most_samples_comes_first() -> None:
    columns = made_telemetry(4, broker__busiestWanted=1.0, broker__busiest=1.0).columns
    telemetry = made_telemetry(7, workers__unread=2**20)
    found = judged(
        Telemetry(
            time=telemetry.time,
            columns={**telemetry.columns, "broker.busiestWanted": columns["broker.busiestWanted"]},
        )
    )
    assert (found.conclusion, [one.conclusion for one in found.also]) == (
        "subscriber",
        ["broker CPU"],
    )
    assert found.evidence.endswith("in 7 of 10 samples")


def test_a_full_window_is_the_last_explanation() -> None:
    """It takes half of the publish latency and a millisecond a message; a side that was saturated most of the time comes first."""
    publish = spread(10, 30)
    waiting, hardly = (
        made(publish=publish, blocked=round(100_000 * mean * MS)) for mean in (10.01, 9.99)
    )
    found = conclude(made_telemetry(), waiting, cores=2)
    assert (found.conclusion, found.evidence) == (
        "publisher window",
        (
            "messages waited 10.0 ms for a full window, of a mean publish latency of 20.0 ms; mosquitto's busiest thread used 0.30 of a core"
            " and waited for one 10 % of the time, no queue built up"
        ),
    )
    assert conclude(made_telemetry(), hardly, cores=2).conclusion == "nothing saturated"
    short = made(publish=spread(0.5, 0.6), blocked=round(100_000 * 0.99 * MS))
    assert conclude(made_telemetry(), short, cores=2).conclusion == "nothing saturated"
    for held, first in ((5, "broker CPU"), (4, "publisher window")):
        both = conclude(made_telemetry(held, broker__busiestWanted=1.0), waiting, cores=2)
        assert (both.conclusion, len(both.also)) == (first, 1)


def test_a_full_window_at_qos_0_is_compared_with_the_send_delay() -> None:
    run = made(publish=None, send_delay=spread(10, 30), blocked=round(100_000 * 15 * MS))
    assert (
        "15.0 ms for a full window, of a mean send delay of 20.0 ms"
        in conclude(made_telemetry(), run, cores=2).evidence
    )


def test_a_generator_limited_verdict_makes_the_generator_the_bottleneck() -> None:
    found = judged(
        made_telemetry(broker__busiestWanted=1.0), generator=("own send delay p99 3 s > 100 ms",)
    )
    assert (found.conclusion, found.evidence) == ("generator", "own send delay p99 3 s > 100 ms")
    assert [one.conclusion for one in found.also] == ["broker CPU"]
    both = judged(
        made_telemetry(worker_gw0__busiestWanted=1.0, worker_gw0__busiest=1.0),
        generator=("own send delay p99 3 s > 100 ms",),
    )
    assert (
        both.evidence
        == "own send delay p99 3 s > 100 ms; worker gw0's busiest thread used 1.00 of a core, in 10 of 10 samples"
    )


def test_nothing_saturated_names_its_samples() -> None:
    assert judged(made_telemetry()).evidence == (
        "mosquitto's busiest thread used 0.30 of a core and waited for one 10 % of the time, no queue built up"
    )
    assert (
        judged(made_telemetry(without=("broker",))).evidence
        == "no queue built up, no samples of broker memory, broker disk, broker CPU"
    )


def test_a_share_counts_only_samples_with_a_value() -> None:
    """Many connections are sampled less often."""
    telemetry = made_telemetry(workers__unread=2**20)
    unread = telemetry.columns["workers.unread"].copy()
    unread[[0, 1, 3, 4, 6, 7, 8, 9]] = math.nan
    stale = unread * 0
    found = judged(
        Telemetry(
            time=telemetry.time,
            columns={**telemetry.columns, "workers.unread": unread, "workers.stale": stale},
        )
    )
    assert (found.conclusion, found.evidence.rpartition(", ")[2]) == (
        "subscriber",
        "in 2 of 2 samples",
    )


def test_one_sample_is_too_few() -> None:
    found = conclude(made_telemetry(broker__busiestWanted=1.0).until(1_000_000_000), None, cores=2)
    assert (found.conclusion, found.evidence) == (
        None,
        "too few samples to tell: 1 sample of the measured phase",
    )


def test_a_broken_run_has_a_bottleneck_from_its_samples() -> None:
    assert (
        conclude(made_telemetry(broker__stopped=1), None, cores=2).conclusion
        == "broker not reading"
    )


def test_samples_of_the_drain_do_not_count() -> None:
    """The samples cover ten seconds; a run of five uses half of them."""
    found = conclude(
        made_telemetry(3, broker__busiestWanted=1.0), made(duration=5_000 * MS), cores=2
    )
    assert found.evidence.endswith("in 3 of 5 samples")


def test_the_bottleneck_is_unknown_after_a_source_was_lost() -> None:
    """A side that saturated before that is still the bottleneck."""
    lost = {"broker": "broker: KeyError: 'x', 2 s into the phase"}
    found = judged(replace(made_telemetry(), lost=lost))
    assert found.conclusion is None
    assert (
        found.evidence
        == "nothing saturated in the samples, which end before the phase does: broker: KeyError: 'x', 2 s into the phase"
    )
    busy = {
        "broker.busiest": 0.99,
        "broker.busiestWanted": 1.0,
        "broker.cpu": 1.0,
        "broker.wanted": 1.0,
    }
    assert (
        judged(replace(made_telemetry(**busy), lost=lost)).conclusion
        == judged(made_telemetry(**busy)).conclusion
    )


def test_windows_that_dropped_messages_come_before_a_busy_generator() -> None:
    """Unless the verdict is that the generator was the limit; a side of the target that explains them still comes first."""
    topic = BlockedTopic(topic=0, dropped=5, start=0, end=SECOND)
    run = made(full_windows=FullWindows(dropped=5, waited=1, topics=1, first_topics=(topic,)))
    busy = {"worker_gw0__busiestWanted": 1.0}
    assert conclude(made_telemetry(**busy), run, cores=2).conclusion == "publisher window"
    assert (
        conclude(made_telemetry(**busy), run, generator=("late",), cores=2).conclusion
        == "generator"
    )
    assert (
        conclude(made_telemetry(broker__busiestWanted=1.0, **busy), run, cores=2).conclusion
        == "broker CPU"
    )
