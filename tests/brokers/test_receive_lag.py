"""A consumer that does not read for half a second: when its messages arrived, and how late it took them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from pytest_loadtest import brokers
from pytest_loadtest.drivers.arrival_clock import stamps_work
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.testing import Subject
from pytest_loadtest.testing.rig import Rig, context_of, plain_pool
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverContext

pytestmark = [
    pytest.mark.skipif(
        mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
    ),
    pytest.mark.skipif(not stamps_work(), reason="this kernel does not stamp packets"),
]

TOPICS = 20
EVERY = 25 * MILLISECOND


class Stopped(NamedTuple):
    """The messages of all topics: :param prompt: when they arrived at the consumer that read all the time.

    :param late: when they arrived at the one that was stopped. :param lag: of these. :param resumed: when that one began to read again.
    """

    prompt: NDArray[np.int64]
    late: NDArray[np.int64]
    lag: NDArray[np.int64]
    resumed: int


def stop_a_consumer(url: str, stack: ExitStack) -> Stopped:
    """Send a message to each topic while only one of its two consumers reads."""
    context: DriverContext = context_of(
        Subject(driver=NativeMqttDriver, target=TargetAddress(url=url), settings=MqttSettings()),
        plain_pool(),
    )
    topology = replace(context.topology, topics=TOPICS, producers=1, subscriptions=2, consumers=1)
    made = []
    for name, own in (("prompt", 0), ("late", 1)):
        driver = NativeMqttDriver(replace(context, topology=topology, worker=name))
        stack.callback(driver.close)
        r = Rig(driver, topology, context.pool, context.nonce, 30 * SECOND, range(TOPICS))
        indexes = [
            index
            for index in range(topology.all_consumers)
            if topology.subscription_of_consumer(index) == own
        ]
        r._add_places(driver.open_consumers(indexes))
        made.append(r)
    prompt, late = made
    prompt.driver.open_producers(range(TOPICS))
    for topic in range(TOPICS):
        prompt.offer(prompt.burst(1, topic, [topic]))
        end = time.monotonic_ns() + EVERY
        while time.monotonic_ns() < end:
            prompt.driver.poll(MILLISECOND)
            prompt.collect()
    prompt.until(lambda: prompt.copies == TOPICS, "everything at the consumer that reads")
    resumed = time.monotonic_ns()
    late.until(lambda: late.copies == TOPICS, "everything at the stopped consumer")
    columns = (
        np.concatenate([r.column(place, name) for place in r.places])
        for r, name in ((prompt, "time"), (late, "time"), (late, "lag"))
    )
    return Stopped(*columns, resumed)


def test_a_stopped_consumer_has_true_arrivals_and_all_of_its_lag(tmp_path: Path) -> None:
    """The broker gives each message to both consumers in turn: their arrivals differ by that alone."""
    broker = brokers.start(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=tmp_path / "mosquitto"),
        lambda _: None,
    )
    try:
        for _ in range(3):
            with ExitStack() as stack:
                found = stop_a_consumer(broker.facts.url, stack)
            assert (found.late + found.lag >= found.resumed).all(), "taken after it began to read"
            assert found.lag[0] > (TOPICS - 1) * EVERY
            apart = np.abs(found.late - found.prompt)
            # A busy machine may stop the broker between the two.
            if np.percentile(apart, 80) < MILLISECOND:
                return
        pytest.fail(f"arrivals are apart by {apart.tolist()} ns")
    finally:
        broker.stop()
