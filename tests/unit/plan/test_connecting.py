"""The times at which connections begin, and their number."""

from __future__ import annotations

import numpy as np
import pytest
from builders.plans import HERE, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.plan.connecting import (
    connect_duration,
    connect_record,
    connect_times,
    connected_in_time,
    connection_numbers,
    opened_clients,
    opened_each,
)
from pytest_loadtest.plan.plan import overload_reasons
from pytest_loadtest.plan.scaling import Machine, fewer_connections
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import SECOND

ONLY = (
    "name: a\nmessages: 0\ntopics: 2\nproducersPerTopic: {producers}\nsubscriptionsPerTopic:"
    " {subscriptions}\ntestDuration: 5s\nwarmupDuration: 9s\n"
)
ONLY += (
    "driver: {{name: mqtt, client: native, connectRate: {rate}}}\nslo: {{connectLatency: {{p50:"
    " 1s}}}}\n"
)


def only(producers: int = 10, subscriptions: int = 0, rate: float = 100.0) -> profiles.Profile:
    return profiles.loads(
        ONLY.format(producers=producers, subscriptions=subscriptions, rate=rate), "p.yaml"
    )


@given(
    workers=st.integers(1, 9),
    producers=st.integers(0, 40),
    subscriptions=st.integers(1, 200),
    rate=st.floats(0.001, 1e5),
    start=st.integers(0, 1 << 60),
)
def test_workers_interleave_to_exactly_the_rate(
    workers: int, producers: int, subscriptions: int, rate: float, start: int
) -> None:
    """The connections of all workers begin at an even pace.

    Those of each worker are in order, so that none waits for another.
    """
    plan = made(only(producers, subscriptions), workers=workers)
    for part, many in (
        ("streams", plan.topology.streams),
        ("consumers", plan.topology.all_consumers),
    ):
        shares = [
            connect_times(start, rate, np.array([*getattr(one, part)], np.int64))
            for one in plan.assignments
        ]
        for share in shares:
            assert (np.diff(share) > 0).all()
        together = np.sort(np.concatenate(shares))
        assert together.tolist() == connect_times(start, rate, np.arange(many)).tolist()
        if many:
            assert together[0] == start
            assert together[-1] - start == pytest.approx(
                (many - 1) / rate * SECOND, rel=1e-3, abs=2
            )


@pytest.mark.parametrize(("slow", "in_time"), [(0, 10), (1, 9), (5, 5), (10, 5)])
def test_a_growing_delay_makes_connections_late_and_an_even_one_does_not(
    slow: int, in_time: int
) -> None:
    """Ten connections take 20 ms each, and the last ones longer."""
    begun = connect_times(SECOND, 100, np.arange(10))
    latency = 20_000_000 + np.maximum(np.arange(10) - (9 - slow), 0) * 100_000_000
    record = connect_record(SECOND, 100, 10, begun + latency, latency)
    assert connected_in_time([record]) == in_time


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 10])
def test_connections_in_time_do_not_depend_on_the_workers_that_have_them(workers: int) -> None:
    """One of ten takes five times as long as the others, which a worker alone cannot know."""
    begun = connect_times(SECOND, 100, np.arange(10))
    latency = np.full(10, 20_000_000)
    latency[8] = 100_000_000
    records = [
        connect_record(SECOND, 100, 10, (begun + latency)[place::workers], latency[place::workers])
        for place in range(workers)
    ]
    assert connected_in_time(records) == 9


def test_connections_of_older_samples_are_in_time_as_each_worker_counted() -> None:
    assert connected_in_time([3, 4]) == 7
    assert connected_in_time([]) == 0


@given(consumers=st.integers(1, 6), opened=st.integers(1, 6), subscriptions=st.integers(1, 20))
def test_consumers_that_connect_later_leave_no_gap_in_the_numbers(
    consumers: int, opened: int, subscriptions: int
) -> None:
    opened = min(opened, consumers)
    index = np.arange(subscriptions * consumers)
    before = index[index % consumers < opened]
    assert connection_numbers(before, consumers, opened).tolist() == list(
        range(subscriptions * opened)
    )


def test_connecting_takes_the_clients_divided_by_the_rate() -> None:
    """Consumers that only a later stage has do not count."""
    plan = made(only(300, 1, rate=200))
    assert (opened_clients(plan), connect_duration(plan)) == (602, 3_010_000_000)
    text = (
        "name: a\nproducerRate: 10\nmessageSize: 100\nconsumerPerSubscription: 5\ndriver: {name:"
        " mqtt, connectRate: 3}\n"
    )
    staged = made(
        profiles.loads(
            text + "stages: [{duration: 1s, consumerPerSubscription: 2}, {duration: 1s}]\n",
            "p.yaml",
        )
    )
    assert (opened_each(staged), opened_clients(staged), connect_duration(staged)) == (2, 3, SECOND)
    assert (
        connect_duration(
            made(
                profiles.loads(
                    text.replace(", connectRate: 3", "") + "testDuration: 1s\n", "p.yaml"
                )
            )
        )
        == 0
    )


def test_a_plan_without_messages_has_one_phase_that_sends_nothing() -> None:
    """Its table is about connections."""
    profile = only(300, 1)
    plan = made(profile, workers=2)
    (phase,) = plan.phases
    assert (phase.duration, phase.idle, phase.total, phase.ends.total) == (5 * SECOND, True, 0, 0)
    assert (plan.rate, plan.needs.disk, overload_reasons([plan], HERE)) == (0.0, 0, ())
    found = plan_table(plan, planned_facts(profile), HERE)
    assert "phases       connect → hold 5.00 s, without messages" in found
    assert "             100 a second, so connecting takes 6.02 s" in found
    assert not any("msg/s" in line for line in found)


@pytest.mark.parametrize(
    ("topics", "producers", "subscriptions", "factor", "expected"),
    [
        (1, 10_000, 0, 0.02, (1, 200, 0)),
        (1, 1, 1000, 0.02, (1, 1, 20)),
        (1000, 1, 1, 0.05, (50, 1, 1)),
        (10, 1, 1000, 0.02, (1, 1, 200)),
        (3, 1, 9000, 0.7, (3, 1, 6300)),
        (100, 1, 1, 0.07, (7, 1, 1)),
        (1, 10, 10, 1e-9, (1, 1, 1)),
        (1, 10, 0, 2.0, (1, 20, 0)),
    ],
)
def test_a_scale_reduces_topics_first_and_then_clients(
    topics: int, producers: int, subscriptions: int, factor: float, expected: tuple[int, ...]
) -> None:
    """A number that is 0 stays 0."""
    found = fewer_connections(
        Topology(
            topics=topics,
            partitions=1,
            producers=producers,
            subscriptions=subscriptions,
            consumers=1,
        ),
        factor,
    )
    assert (found.topics, found.producers, found.subscriptions) == expected


def test_a_scaled_plan_has_the_factor_on_its_connections() -> None:
    """The rate of connections stays."""
    plan = made(only(1000, 0), scale=0.1)
    assert plan.scale is not None
    assert (plan.scale.changes, plan.scale.factor, plan.scale.rate) == (
        {"topics": "2 → 1", "producers": "1000 → 200"},
        0.1,
        1.0,
    )
    assert connect_duration(plan) == 2 * SECOND


@given(
    producers=st.integers(0, 3),
    subscriptions=st.integers(1, 2000),
    workers=st.integers(1, 4),
    files=st.integers(110, 3000),
)
def test_auto_is_never_more_than_the_machine_has(
    producers: int, subscriptions: int, workers: int, files: int
) -> None:
    """With the producer that always remains, and with rounding."""
    machine = Machine(cores=2, memory=1 << 34, files=files, ports=2000)
    assert (
        overload_reasons(
            [made(only(producers, subscriptions), scale="auto", machine=machine, workers=workers)],
            machine,
        )
        == ()
    )
