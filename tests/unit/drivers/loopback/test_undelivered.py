"""The relay's own count, over real sockets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_loadtest.drivers.base import DrainingRun, TargetAddress, Undelivered
from pytest_loadtest.drivers.loopback.faults import Faults
from pytest_loadtest.drivers.loopback.undelivered import relay_undelivered
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.frames import Kind

from .test_relay import Client, relay


def count(client: Client) -> Undelivered:
    host, port = client.socket.getpeername()
    run: Any = DrainingRun(
        target=TargetAddress(url=f"loopback://{host}:{port}"), settings=None, run="r", topology=None
    )  # type: ignore[arg-type]
    return relay_undelivered(run)


def test_copies_are_counted_when_they_are_sent_and_lost_messages_never() -> None:
    """Two subscriptions, of ten messages the fifth and the tenth lost, the fourth and the eighth sent twice."""
    with relay(Faults(lose_every=5, duplicate_every=4), clients=1) as (client,):
        assert count(client) == Undelivered(0, 0)
        client.subscribe([(0, 0, 0), (0, 1, 0)])
        client.produce([(0, seq) for seq in range(10)])
        client.until(lambda: client.copies() == 20)
        assert count(client) == Undelivered(0, 20)


def test_messages_of_paused_consumers_are_held() -> None:
    with relay(clients=1) as (client,):
        client.subscribe([(0, 0, 0)])
        client.send_frame(Kind.PAUSE, place=client.places())
        client.produce([(0, seq) for seq in range(7)])
        client.until(lambda: len(client.acked()) == 7)
        assert count(client) == Undelivered(7, 0)
        client.send_frame(Kind.RESUME, place=client.places())
        client.until(lambda: client.copies() == 7)
        assert count(client) == Undelivered(0, 7)


@pytest.mark.parametrize("faults", [Faults(swap_every=1), Faults(delay=60 * SECOND)])
def test_a_message_that_waits_in_the_relay_is_held(faults: Faults) -> None:
    """The first of a pair that is swapped, for a second; and one that is delayed."""
    with relay(replace(faults), clients=1) as (client,):
        client.subscribe([(0, 0, 0)])
        client.produce([(0, 0)])
        while (counts := count(client)) == Undelivered(0, 0):
            pass  # the frame is still on its way
        assert counts == Undelivered(1, 0)


def test_a_client_takes_its_count_with_it() -> None:
    """Its driver no longer counts what it took either."""
    with relay(clients=2) as (one, other):
        one.subscribe([(0, 0, 0)])
        other.produce([(0, 0), (0, 1)])
        one.until(lambda: one.copies() == 2)
        assert count(other) == Undelivered(0, 2)
        one.socket.shutdown(2)
        while count(other) == Undelivered(0, 2):
            pass  # the relay has not seen the end yet
        assert count(other) == Undelivered(0, 0)
