"""Addresses of brokers and the connections to them."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import context

from pytest_loadtest.brokers.certificates import keys_of_run
from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket, find_endpoints
from pytest_loadtest.drivers.mqtt.settings import Tls
from pytest_loadtest.drivers.mqtt.tls import ClientTls
from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


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


def test_bytes_that_tls_has_read_ahead_do_not_wait_for_the_next_packet(server: socket.socket, tmp_path: Path) -> None:
    """The start of a record is read first. With the rest there is more than one read returns, and epoll does not report it."""
    keys = keys_of_run(tmp_path, client=None)
    address = server.getsockname()
    tls = ClientTls(Tls(ca_file=str(keys.authority)))
    sock = BrokerSocket(
        BrokerEndpoint(host="localhost", port=address[1], family=socket.AF_INET, address=address, tls=tls), ArrivalClock(time.monotonic_ns)
    )
    peer, _ = server.accept()
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(keys.server.certificate, keys.server.key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = own.wrap_bio(incoming, outgoing, server_side=True)
    for _ in range(2):  # the client's hello, then its answer to the server's
        assert sock.advance() in (select.EPOLLIN, 0)
        incoming.write(peer.recv(1 << 16))
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
        peer.sendall(outgoing.read())
        select.select((sock,), (), (), 10)
    data = random.Random(1).randbytes(70_000)
    session.write(data)
    records = outgoing.read()
    for part, arrived in ((records[:8_000], None), (records[8_000:], data)):
        assert sock.read() is None
        peer.sendall(part)
        while select.select((sock,), (), (), 10)[0] and len(sock._socket.recv(1 << 17, socket.MSG_PEEK)) < len(part):
            pass
        assert sock.read() == arrived
    peer.close()
    sock.close()
