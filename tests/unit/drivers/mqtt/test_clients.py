"""The clients of a driver: client ids, and the time-out for an answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import CONNACK, context

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.mqtt.clients import MqttClients
from pytest_loadtest.drivers.mqtt.options import client_options
from pytest_loadtest.drivers.mqtt.paho.connection import PahoConnection
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Script


def clients(url: str, **settings: Any) -> MqttClients[PahoConnection]:
    ctx = context(url, time.monotonic_ns, **settings)
    return MqttClients(
        ctx, client_options(ctx), PahoConnection, ArrivalClock(ctx.clock, kernel=False)
    )


@pytest.mark.parametrize(("clean", "client_id"), [(True, "lt-r1-p0"), (False, "lt-p0")])
def test_a_client_id_contains_the_run_unless_its_session_is_continued(
    scripted: Callable[[Script], str], clean: bool, client_id: str
) -> None:
    run_clients = clients(scripted([CONNACK]), cleanStart=clean)
    connection = run_clients.make("producer of stream 0", "p0")
    run_clients.establish([connection])
    assert (connection.client_id, connection.up) == (client_id, True)
    run_clients.end()
    run_clients.stop()


def test_a_client_without_an_answer_is_an_error_with_its_name(
    scripted: Callable[[Script], str],
) -> None:
    url = scripted([b""])
    run_clients = clients(url)
    connection = run_clients.make("producer of stream 0", "p0")
    with pytest.raises(TargetError, match=f"{url}: producer of stream 0: no answer in 0 s"):
        run_clients.establish([connection], 50 * MILLISECOND)
    assert run_clients.disconnected([]) == "producer of stream 0"
    assert run_clients.disconnected([connection]) is None, (
        "one that never was connected is not missing"
    )
    run_clients.end()
    run_clients.stop()


def test_the_lowest_receive_maximum_of_the_broker_counts(scripted: Callable[[Script], str]) -> None:
    run_clients = clients(scripted([b"\x20\x09\x00\x00\x06\x21\x00\x09\x22\x00\x02", b""]))
    run_clients.establish([run_clients.make("producer of stream 0", "p0")], SECOND)
    assert (run_clients.allowed, run_clients.topic_aliases) == (9, 2)
    assert {name: len(times) for name, times in run_clients.opening_times.items()} == {
        "connect": 1,
        "subscribe": 0,
    }
    run_clients.end()
    run_clients.stop()


def test_connections_come_from_the_source_addresses_in_turn(
    scripted: Callable[[Script], str],
) -> None:
    """Without them, from those of this machine's loopback, of which each worker has its own."""
    url = scripted([CONNACK])
    ctx = context(url, time.monotonic_ns)
    found = []
    for sources in (("127.0.0.6", "127.0.0.5"), ()):
        run_clients = MqttClients(
            replace(ctx, worker="gw1", sources=sources),
            client_options(ctx),
            PahoConnection,
            ArrivalClock(ctx.clock, kernel=False),
        )
        connections = [run_clients.make(f"producer of stream {i}", f"p{i}") for i in range(3)]
        run_clients.start(connections)
        run_clients.poll(0)
        found.append(
            [one.socket._socket.getsockname()[0] for one in connections if one.socket is not None]
        )
        run_clients.end()
        run_clients.stop()
    assert found == [["127.0.0.6", "127.0.0.5", "127.0.0.6"], ["127.0.1.1"] * 3]
