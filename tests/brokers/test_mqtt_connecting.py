"""Paced connections to a real mosquitto: both clients start each when it is due, and measure from there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from listening import peers
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import DriverContext, TargetAddress
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.loop import MAX_OPENING
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.plan.connecting import connect_times
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing.rig import plain_pool
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(
        mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
    ),
    pytest.mark.parametrize("client", ["library", "native"]),
]
STREAMS = 150


def make_driver(
    url: str, client: str, streams: int = STREAMS, sources: tuple[str, ...] = ()
) -> Any:
    topology = Topology(
        topics=1, partitions=1, producers=streams, subscriptions=streams, consumers=1
    )
    return driver_class("mqtt", client)(DriverContext(  # type: ignore[call-arg]
        target=TargetAddress(url=url), settings=MqttSettings(), clock=time.monotonic_ns, run="now", nonce=1, worker="gw0",
        topology=topology, pool=plain_pool(), sources=sources,
    ))  # fmt: skip


@contextmanager
def started(folder: Path) -> Iterator[brokers.Broker]:
    with running(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder / "broker")
    ) as broker:
        yield broker


def soon(rate: float, streams: int = STREAMS) -> Any:
    """Return the instants at which so many connections are due, from now on."""
    return connect_times(time.monotonic_ns() + 100 * MILLISECOND, rate, np.arange(streams))


def nothing() -> None:
    """Do nothing: there is no other driver."""


def test_no_connection_is_started_before_it_is_due(tmp_path: Path, client: str) -> None:
    """Producers and consumers report how long they took from then, and how late they started."""
    with started(tmp_path) as broker:
        driver = make_driver(broker.facts.url, client)
        for open_them, numbers in (
            (driver.open_consumers, range(20)),
            (driver.open_producers, range(20)),
        ):
            due = soon(100, 20)
            driver.pace(due, nothing)
            open_them(numbers)
            assert time.monotonic_ns() > due[-1], "the last one was there before it was due"
        found = driver.opening_times()
        driver.close()
    counted = {
        name: len(found[name]) for name in ("connect", "subscribe", "dial", "up")
    }  # more are there if this process stood still
    assert counted == {"connect": 40, "subscribe": 20, "dial": 40, "up": 40}
    assert (found["dial"] >= 0).all()
    assert (found["connect"] > found["dial"]).all()


def test_instants_apply_to_one_call(tmp_path: Path, client: str) -> None:
    """Later connections and reconnects are measured from their first packet."""
    with started(tmp_path) as broker:
        driver = make_driver(broker.facts.url, client)
        driver.pace(soon(1000, 3), nothing)
        driver.open_consumers(range(3))
        driver.open_producers(range(3))
        assert len(driver.opening_times()["dial"]) == 3
        driver.close()


def test_other_drivers_are_polled_between_two_connections(tmp_path: Path, client: str) -> None:
    """Their messages are sent and received."""
    with started(tmp_path) as broker:
        driver, turns = make_driver(broker.facts.url, client), list[int]()
        due = soon(10, 2)
        driver.pace(due, lambda: turns.append(time.monotonic_ns()))
        driver.open_producers(range(2))
        driver.close()
    assert any(turn < due[1] for turn in turns)


def test_latency_counts_from_the_instant_at_which_it_was_due(tmp_path: Path, client: str) -> None:
    """A broker that stands still for a second: of those due meanwhile each is late by what was left of it, whenever it was begun.

    More are due than may be under way, so that some could only be begun afterwards: that was not the generator's doing.
    """
    with started(tmp_path) as broker:
        driver, pid = make_driver(broker.facts.url, client), broker.facts.pid
        assert pid is not None
        driver.prepare()
        due = soon(150)
        driver.pace(due, nothing)
        os.kill(pid, signal.SIGSTOP)
        goes_on: list[int] = []

        def wake() -> None:
            goes_on.append(time.monotonic_ns())
            os.kill(pid, signal.SIGCONT)

        timer = threading.Timer((int(due[-1]) - time.monotonic_ns()) / SECOND, wake)
        timer.start()
        try:
            driver.open_producers(range(STREAMS))
        finally:
            timer.join()
        found, ended = driver.opening_times(), time.monotonic_ns()
        driver.close()
    connect = np.sort(found["connect"])[::-1]  # the first one waited longest
    assert (connect >= np.sort(goes_on[0] - due)[::-1]).all(), (
        "one of them counts from later than it was due"
    )
    assert (connect <= np.sort(ended - due)[::-1]).all()
    assert len(due) > 2 * MAX_OPENING
    waited_for_room = goes_on[0] - due[MAX_OPENING:]
    assert np.median(found["dial"]) < np.median(waited_for_room), (
        "the wait before a full set is told as the generator's own"
    )


def test_a_gap_between_two_connections_does_not_count_as_silence(
    tmp_path: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not answer is still given up."""
    monkeypatch.setattr(
        "pytest_loadtest.drivers.mqtt.clients.MqttClients.establish.__defaults__",
        (200 * MILLISECOND, None),
    )
    with started(tmp_path) as broker:
        driver = make_driver(broker.facts.url, client, 3)
        driver.pace(soon(1, 2), nothing)
        driver.open_producers(range(2))
        assert driver.disconnected() is None
        os.kill(broker.facts.pid or 0, signal.SIGSTOP)
        try:
            driver.pace(soon(1000, 1), nothing)
            with pytest.raises(TargetError, match="consumer 0: no answer"):
                driver.open_consumers([0])
        finally:
            os.kill(broker.facts.pid or 0, signal.SIGCONT)
        driver.close()


def test_lost_connections_are_counted(tmp_path: Path, client: str) -> None:
    """None before, and all that were up when the broker was killed."""
    with started(tmp_path) as broker:
        driver = make_driver(broker.facts.url, client, 5)
        driver.open_producers(range(5))
        assert driver.facts().losses == 0
        broker.restart(kill=True)
        end = time.monotonic_ns() + 30 * SECOND
        while driver.facts().losses < 5 or driver.disconnected():
            assert time.monotonic_ns() < end, driver.disconnected()
            driver.poll(MILLISECOND)
        assert driver.facts().losses == 5
        assert (
            driver.facts().forgotten == 5
        )  # it keeps nothing, so each producer came up without its session
        driver.close()


def test_a_broker_sees_the_source_addresses(client: str, tmp_path: Path) -> None:
    """Each of three addresses has a third of the connections, as near as can be; the probe of ``prepare`` had the first."""
    with started(tmp_path) as broker:
        assert broker.facts.pid is not None
        driver = make_driver(
            broker.facts.url, client, 4, sources=("127.0.0.7", "127.0.0.5", "127.0.0.6")
        )
        try:
            driver.prepare()
            driver.open_consumers(range(4))
            driver.open_producers(range(4))
            seen = Counter(address for address in peers(broker.facts.pid) if address != "127.0.0.1")
        finally:
            driver.close()
            driver.cleanup()
        assert seen == {"127.0.0.5": 3, "127.0.0.6": 3, "127.0.0.7": 2}
