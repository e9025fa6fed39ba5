"""Inputs of a service as a tap records them, and who taps which topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engine_rig import make_pool

from pytest_loadtest.drivers.base import DriverContext, Received, TargetAddress
from pytest_loadtest.engine.tap import Tap, tap_context, tapped_topics
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.message.route import IN_BODY, Route, parse_place
from pytest_loadtest.schedule.topology import Topology, assign

NONCE = 7
FIRST = np.array([10, 20])
"""The first sequence of each stream in the phase."""


def topology(**changes: int) -> Topology:
    numbers = {"topics": 4, "partitions": 1, "producers": 1, "subscriptions": 1, "consumers": 1}
    return Topology(**{**numbers, **changes}, tapped=True)


def arrived(*messages: tuple[int, int, int]) -> Received:
    """:param messages: nonce, stream and sequence; received 1, 2, … after they were due at 1000."""
    heads = []
    for nonce, stream, seq in messages:
        columns: dict[str, Any] = {
            "stream": np.array([stream], np.int32),
            "seq": np.array([seq]),
            "intended": np.array([1000]),
            "payload": np.zeros(1, np.uint16),
        }
        heads.append(encode_heads(make_pool(), nonce=nonce, **columns))
    count = len(messages)
    return Received(
        consumer=np.zeros(count, np.int32),
        heads=np.concatenate(heads),
        size=np.full(count, 64, np.int32),
        time=1001 + np.arange(count),
        order=np.zeros(count, np.int64),
        flags=np.zeros(count, np.int8),
    )


def test_messages_of_this_phase_are_recorded_and_no_others() -> None:
    """Another run's, an earlier phase's, and one whose stream the run does not have are left out."""
    received = arrived(
        (NONCE, 1, 20), (NONCE + 1, 1, 21), (NONCE, 0, 9), (NONCE, 2, 30), (NONCE, 0, 11)
    )
    received.heads[4, 9] ^= 1  # damaged
    driver = SimpleNamespace(take=iter([received, None]).__next__)
    tap = Tap(driver, IN_BODY, NONCE)  # type: ignore[arg-type]
    tap.begin(SimpleNamespace(first=FIRST))  # type: ignore[arg-type]
    columns = tap.collect()
    assert columns is not None
    assert {name: column.tolist() for name, column in columns.items()} == {
        "stream": [1],
        "seq": [20],
        "intended": [1000],
        "received": [1001],
    }
    assert tap.collect() is None


@pytest.mark.parametrize(
    ("workers", "subscriptions", "consumers", "shares"),
    [
        (1, 1, 1, [[0, 1, 2, 3]]),
        (2, 1, 1, [[1, 3], [0, 2]]),
        (2, 1, 2, [[1, 3], [0, 2]]),
        (2, 2, 1, [[1, 3], [0, 2]]),
        (3, 2, 2, [[1], [2], [0, 3]]),
    ],
)
def test_each_topic_is_tapped_once_by_a_worker_that_reads_its_outputs(
    workers: int, subscriptions: int, consumers: int, shares: list[list[int]]
) -> None:
    run = topology(subscriptions=subscriptions, consumers=consumers)
    found = []
    for assignment in assign(run, workers):
        own = np.fromiter(assignment.consumers, np.int32)
        topics = tapped_topics(run, own)
        assert set(topics) <= set(run.topic_of_consumer(own).tolist())
        found.append(sorted(topics))
    assert sorted(topic for topics in found for topic in topics) == [0, 1, 2, 3]
    assert max(map(len, found)) <= -(-4 // workers)
    assert found == shares


def test_a_tap_reads_inputs_with_one_consumer_for_each_topic() -> None:
    """Its names at the broker differ from those of the run."""
    route = Route(
        input="orders/{topic}",
        output=("confirmed/{topic}", "rejected/{topic}"),
        sent=parse_place("json:/ref"),
        received=parse_place("properties"),
    )
    context = DriverContext(
        target=TargetAddress(url="null://"),
        settings=None,
        clock=lambda: 0,
        run="r",
        nonce=NONCE,
        worker="gw0",
        topology=topology(subscriptions=2, consumers=3, outputs=2),
        pool=make_pool(),
        route=route,
    )
    tap = tap_context(context)
    assert tap.route is not None
    assert tap.route.output_names(2) == ("orders/2",)
    assert (tap.received_place, context.received_place) == (route.sent, route.received)
    assert (tap.topology.all_consumers, tap.topology.tapped) == (4, False)
    assert (tap.run, tap.nonce, tap.tap, context.tap) == ("r-tap", NONCE, True, False)
