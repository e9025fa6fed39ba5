"""Phases follow one another without a gap in any stream."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import plans
from builders.pacing import share
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.plan.phases import (
    BacklogPlan,
    PacedTraffic,
    Phase,
    StageSpan,
    paced_traffic,
    search_phases,
    warmup_and_measure,
)
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.schedule.changes import CHANGE_IN, Change
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


def made(streams: int, rate: float, duration: int = SECOND) -> Phase:
    return Phase(
        name="measure",
        duration=duration,
        pacer=Pacer.of(rate, streams),
        before=StreamCounts(streams=streams),
        recorded=True,
    )


@given(streams=st.integers(1, 50), rates=st.lists(st.floats(0.5, 5000), min_size=1, max_size=4))
def test_each_phase_begins_where_the_one_before_ended(streams: int, rates: list[float]) -> None:
    """In every stream, and in the sum of all."""
    before, expected = StreamCounts(streams=streams), np.zeros(streams, np.int64)
    for rate in rates:
        phase = replace(made(streams, rate), before=before)
        assert np.array_equal(phase.first, expected)
        assert np.array_equal(phase.first_of(range(streams)[1::3]), expected[1::3])
        expected = expected + [share(phase.pacer, phase.total, stream) for stream in range(streams)]
        assert np.array_equal(phase.ends.column(), expected)
        assert phase.ends.total - phase.before.total == phase.total
        before = phase.ends


def test_a_phase_of_paced_bytes_begins_where_workers_ended() -> None:
    """Only they know the messages of the phase before; its own number is an estimate."""
    ends = np.array([5, 9, 7])
    phase = replace(made(3, 1000.0), mean_size=100.0, before=StreamCounts(streams=3, counted=ends))
    assert phase.first.tolist() == [5, 9, 7]
    assert phase.first_of(np.array([2, 2, 0])).tolist() == [7, 7, 5]
    assert (phase.total, phase.ends.column().tolist()) == (10, [9, 12, 10])


def test_a_pickled_phase_is_small() -> None:
    """Whatever the number of streams and of phases before it."""
    phase = made(20_000_000, 1e6)
    for _ in range(10):
        phase = replace(phase, before=phase.ends)
    assert len(pickle.dumps(phase)) < 2000
    assert phase.first_of(range(19_999_999, 20_000_000)).tolist() == [0]
    assert phase.first_of(range(2)).tolist() == [10, 10]


def test_a_step_of_a_search_is_a_warm_up_and_a_hold() -> None:
    """Without a warm-up it is the hold alone."""
    warmup, hold = search_phases(
        100.0, in_bytes=None, warmup=SECOND, hold=2 * SECOND, number=3, streams=8
    )
    assert [(phase.name, phase.recorded, phase.total) for phase in (warmup, hold)] == [
        ("step 3 warm-up", False, 100),
        ("step 3", True, 200),
    ]
    assert hold.first.tolist() == [13, 13, 13, 13, 12, 12, 12, 12]
    (only,) = search_phases(100.0, in_bytes=None, warmup=0, hold=2 * SECOND, number=3, streams=8)
    assert (only.name, only.before.total) == ("step 3", 0)


def test_a_phase_without_producers_has_no_streams() -> None:
    phase = Phase(
        name="measure",
        duration=SECOND,
        pacer=Pacer.through([(SECOND, 0.0)], 1),
        before=StreamCounts(streams=0),
        recorded=True,
    )
    assert (phase.streams, phase.total, len(phase.first), phase.ends.total) == (0, 0, 0, 0)


def traffic(factor: float = 1.0, cap: int | None = None, **keys: Any) -> PacedTraffic:
    """Return the traffic of a profile of 100 msg/s for ten seconds with 100 bytes each.

    :param keys: of the profile, which change it.
    """
    keys = {
        "name": "a",
        "producerRate": 100,
        "messageSize": 100,
        "testDuration": "10s",
        "slo": {"loss": 0},
    } | keys
    profile = profiles.loads(
        json.dumps({key: value for key, value in keys.items() if value is not None}), "p.yaml"
    )
    consumers = profile.consumer_per_subscription
    return paced_traffic(profile, profile_pool(profile), factor, cap, consumers)


def test_a_rate_is_scaled_and_its_duration_capped() -> None:
    assert traffic() == PacedTraffic(steps=((10 * SECOND, 100.0),), in_bytes=False, mean_size=100.0)
    assert traffic(0.5, 3 * SECOND).steps == ((3 * SECOND, 50.0),)
    assert traffic(1.0, 11 * SECOND).steps == ((10 * SECOND, 100.0),)


@pytest.mark.parametrize(("factor", "messages"), [(1.0, 30), (0.1, 3), (0.05, 2), (0.01, 1)])
def test_a_number_of_messages_takes_the_time_until_one_more_would_be_due(
    factor: float, messages: int
) -> None:
    """The number is scaled, and at least 1.

    The last message has as much time as any other before the phase ends.
    """
    made = traffic(factor, messages=30, testDuration=None)
    assert Pacer.through(made.steps, 1).total(made.duration) == messages
    assert Pacer.of(made.rate, 1).time(messages) == made.duration


def test_rates_in_bytes_are_converted_to_messages_by_the_mean_size() -> None:
    made = traffic(producerRate="10000B/s")
    assert (made.in_bytes, made.rate, made.highest, made.mean_size) == (True, 100.0, 100.0, 100.0)


RATES = st.one_of(
    st.integers(1, 1000),
    st.fixed_dictionaries({"from": st.integers(1, 500), "to": st.integers(1, 500)}),
    st.fixed_dictionaries(
        {
            "spike": st.fixed_dictionaries(
                {
                    "base": st.integers(1, 50),
                    "peak": st.integers(60, 500),
                    "at": st.just("100ms"),
                    "for": st.sampled_from(["50ms", "300ms"]),
                }
            )
        }
    ),
)
STAGES = st.lists(
    st.tuples(st.integers(500, 3000), RATES, st.booleans(), st.none() | st.integers(1, 3)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)  # a profile is read twice in each
@given(
    STAGES, st.sampled_from([0.25, 1.0, 2.0]), st.none() | st.integers(1000, 20_000), st.booleans()
)
def test_stages_follow_one_another_without_a_gap(
    stages: list[tuple[Any, ...]], factor: float, cap: int | None, in_bytes: bool
) -> None:
    """They shrink in proportion if longer than the cap.

    Differences from the stage before are a change at its first instant.
    """
    entries = []
    for length, rate, large, consumers in stages:
        entry: dict[str, Any] = {"duration": f"{length}ms", "rate": rate}
        if in_bytes:
            entry["rate"] = f"{length * 100}B/s"
        if large:
            entry["messageSizeDistribution"] = {"400-401": 1}
        if consumers:
            entry["consumerPerSubscription"] = consumers
        entries.append(entry)
    limit, rate = None if cap is None else cap * MILLISECOND, "1B/s" if in_bytes else 1
    keys = {
        "stages": entries,
        "testDuration": None,
        "consumerPerSubscription": 3,
        "producerRate": rate,
    }
    made, plain = traffic(factor, limit, **keys), traffic(**keys)
    whole = sum(length for length, *_ in stages) * MILLISECOND
    assert 0 <= min(whole, limit or whole) - made.duration < len(stages)  # ns: each is rounded down
    assert made.duration == sum(span.duration for span in made.stages)
    assert (
        made.highest
        == pytest.approx(plain.highest * factor)
        == pytest.approx(max(rate for _, rate in made.steps) / (made.mean_size if in_bytes else 1))
    )
    start, at, own, before, messages, size = 0, 0, 0, (0, None), 0.0, 0.0
    for span, change, (length, _, large, consumers) in zip(
        made.stages, made.changes, stages, strict=True
    ):
        assert span.start == start
        start += span.duration
        at += length * MILLISECOND
        assert abs(start - at * made.duration / whole) <= len(stages)
        own += large
        now = (own if large else 0, consumers or 3)
        assert change == Change(
            at=span.start,
            distribution=None if now[0] == before[0] else now[0],
            consumers=None if now[1] == before[1] else now[1],
        )
        before = now
        mean = 400.0 if large else 100.0
        paced = Pacer.through(made.steps, 1)
        due = (paced.due(start - 1) - paced.due(span.start - 1)) / (mean if in_bytes else 1)
        assert span.rate * span.duration / SECOND == pytest.approx(due, abs=2, rel=1e-3)
        messages, size = (
            messages + span.rate * span.duration,
            size + span.rate * span.duration * mean,
        )
    assert made.mean_size == pytest.approx(size / messages)
    assert made.rate * made.duration == pytest.approx(
        messages if not in_bytes else size / made.mean_size
    )


def test_a_stage_has_its_name_and_objectives() -> None:
    made = traffic(
        stages=[
            {"duration": "2s", "name": "calm"},
            {"duration": "1s", "rate": 200, "slo": {"loss": "1%"}},
        ],
        testDuration=None,
    )
    assert made.stages == (
        StageSpan(name="calm", start=0, duration=2 * SECOND, rate=100.0, slo=made.stages[0].slo),
        StageSpan(
            name="stage 2", start=2 * SECOND, duration=SECOND, rate=200.0, slo=made.stages[1].slo
        ),
    )
    assert not made.stages[0].slo
    assert set(made.stages[1].slo) == {"loss"}


def staged_traffic() -> PacedTraffic:
    changes = (Change(at=0, consumers=2), Change(at=SECOND, consumers=3))
    steps = ((SECOND, 0.0), (2 * SECOND, 300.0))
    stages = (StageSpan(name="one", start=0, duration=3 * SECOND, rate=200.0, slo={}),)
    return PacedTraffic(
        steps=steps, in_bytes=False, mean_size=100.0, changes=changes, stages=stages
    )


def test_a_warm_up_has_the_first_rate_above_0_and_the_first_consumers() -> None:
    """It is not recorded and has no changes; the measured phase continues its sequences."""
    warmup, measure = warmup_and_measure(staged_traffic(), 4, SECOND, 100.0)
    assert (
        warmup.name,
        warmup.duration,
        warmup.recorded,
        warmup.total,
        warmup.changes,
        warmup.consumers,
    ) == (
        "warm-up",
        SECOND,
        False,
        300,
        (),
        2,
    )
    assert (measure.name, measure.duration, measure.recorded, measure.total, measure.consumers) == (
        "measure",
        3 * SECOND,
        True,
        600,
        2,
    )
    assert (measure.changes, measure.stages, measure.mean_size) == (
        staged_traffic().changes,
        staged_traffic().stages,
        None,
    )
    assert measure.first.tolist() == [75] * 4


@pytest.mark.parametrize(
    ("rate", "scale", "warmed"),
    [("{from: 0, to: 1}", 1.0, 0.00105), ("{replay: [0.001, 1000]}", 0.1, 100.0)],
)
def test_a_warm_up_begins_with_a_rate_that_can_be_paced(
    rate: str, scale: float, warmed: float
) -> None:
    text = "name: p\nmessageSize: 64\nwarmupDuration: 5s\ndriver: {name: loopback}\n"
    stages = f"stages: [{{duration: 1h, rate: {rate}}}]\n"
    profile = profiles.loads(text + stages, "p.yaml")
    plan = plans.made(profile, scale=scale, machine=plans.CLUSTER)
    warmup, measure = plan.phases
    assert warmup.steps == ((5 * SECOND, pytest.approx(warmed)),)
    assert measure.total == pytest.approx(plan.rate * 3600, abs=1)


def test_without_a_warm_up_or_without_streams_there_is_the_measured_phase_alone() -> None:
    """Without streams nothing is due in it."""
    (only,) = warmup_and_measure(staged_traffic(), 4, 0, 100.0)
    assert (only.name, only.before.total) == ("measure", 0)
    (listening,) = warmup_and_measure(staged_traffic(), 0, SECOND, 100.0)
    assert (listening.name, listening.duration, listening.streams, listening.total) == (
        "measure",
        3 * SECOND,
        0,
        0,
    )


def test_a_warm_up_of_a_phase_without_any_rate_sends_nothing() -> None:
    """Its duration is the same."""
    warmup, measure = warmup_and_measure(
        replace(staged_traffic(), steps=((SECOND, 0.0), (SECOND, 0.0))), 4, SECOND, 100.0
    )
    assert (warmup.total, warmup.duration, measure.total) == (0, SECOND, 0)


def test_phases_of_paced_bytes_have_the_mean_size() -> None:
    """The warm-up has its own; all consumers take messages unless a change at the start has a number."""
    made = replace(staged_traffic(), in_bytes=True, changes=(Change(at=SECOND, consumers=3),))
    phases = warmup_and_measure(made, 4, SECOND, 50.0)
    assert [(phase.mean_size, phase.consumers) for phase in phases] == [(50.0, None), (100.0, None)]
    assert [phase.total for phase in phases] == [6, 6]


def test_a_warm_up_has_the_sizes_of_the_profile_and_not_those_of_stages() -> None:
    text = """\
name: p
producerRate: 10000B/s
messageSize: 100
warmupDuration: 2s
stages: [{duration: 2s, messageSizeDistribution: {"1000-1001": 1}}]
driver: {name: loopback}
"""
    warmup, measure = plans.made(profiles.loads(text, "p.yaml")).phases
    assert (warmup.total, measure.total) == (200, 20)


@pytest.mark.parametrize(
    ("rate", "ratio", "left"),
    [(100.0, 0.9, 100), (100.0, 0.99, 20), (5.0, 1.0, 1), (40.0, 1.0, 8), (100.0, 0.0, 1000)],
)
def test_a_backlog_is_drained_at_the_larger_of_what_is_under_way_and_what_the_ratio_leaves(
    rate: float, ratio: float, left: int
) -> None:
    """Messages of 100 ms to two subscriptions, or a share of 1 000 messages."""
    plan = BacklogPlan(
        messages=1000,
        size=100_000,
        drain_ratio=ratio,
        drain_timeout=SECOND,
        after=2 * SECOND,
        subscriptions=2,
        rate=rate,
    )
    assert plan.drained == left
    warmup, measure = plan.phases(warmup_and_measure(staged_traffic(), 4, SECOND, 100.0))
    assert (measure.paused, warmup.paused) == (True, False)
    assert measure.duration == 2 * int(1000 / 2 / rate * SECOND) + 6 * SECOND + 3 * CHANGE_IN
