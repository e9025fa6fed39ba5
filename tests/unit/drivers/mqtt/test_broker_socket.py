"""Addresses of brokers and the connections to them."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from mqtt_rig import context

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket, find_endpoints
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize(
    ("url", "given", "named"),
    [
        ("pulsar://127.0.0.1:1", {}, "not the address of an MQTT broker"),
        ("mqtt://", {}, "not the address of an MQTT broker"),
        ("mqtt://anna:secret@127.0.0.1", {}, "driver.username"),
        ("mqtt://127.0.0.1", {"tls": {}}, "write mqtts://"),
        ("mqtts://127.0.0.1", {"tls": {"caFile": "/nowhere/ca.pem"}}, "driver.tls.caFile /nowhere/ca.pem: No such file"),
    ],
)
def test_an_invalid_address_is_a_usage_error(url: str, given: dict[str, Any], named: str) -> None:
    """It has a remedy and never repeats a password."""
    with pytest.raises(UsageError, match=named) as raised:
        find_endpoints(context(url, **given))
    assert "secret" not in str(raised.value)


def test_connections_to_this_machine_have_many_source_addresses(server: socket.socket) -> None:
    """Ten thousand each, so that ports suffice; for another machine the system chooses."""
    here = BrokerEndpoint(host="localhost", port=1, family=socket.AF_INET, address=server.getsockname(), tls=None)
    assert [here.source(number) for number in (0, 9_999, 10_000, 2_560_000)] == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.1.1"]
    assert [here.source(number, 3) for number in (0, 10_000)] == ["127.0.3.1", "127.0.3.2"], "workers do not share their ports"
    assert replace(here, address=("10.0.0.1", 1883)).source(20_000) is None
    assert replace(here, family=socket.AF_INET6, address=("::1", 1883, 0, 0)).source(20_000) is None
    sock = BrokerSocket(here, ArrivalClock(time.monotonic_ns, kernel=False), here.source(10_000))
    peer, (address, _) = server.accept()
    assert address == "127.0.0.2"
    peer.close()
    sock.close()
