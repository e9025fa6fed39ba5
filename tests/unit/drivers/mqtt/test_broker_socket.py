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
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "given", "named"),
    [
        ("pulsar://127.0.0.1:1", {}, "not the address of an MQTT broker"),
        ("mqtt://", {}, "not the address of an MQTT broker"),
        ("mqtt://anna:secret@127.0.0.1", {}, "driver.username"),
        ("mqtt://127.0.0.1", {"tls": {}}, "write mqtts://"),
        (
            "mqtts://127.0.0.1",
            {"tls": {"caFile": "nowhere/ca.pem"}},
            r"driver.tls.caFile nowhere/ca.pem: No such file or directory \(/.*/nowhere/ca.pem\)",
        ),
    ],
)
def test_an_invalid_address_is_a_usage_error(url: str, given: dict[str, Any], named: str) -> None:
    """It has a remedy and never repeats a password."""
    with pytest.raises(UsageError, match=named) as raised:
        find_endpoints(context(url, **given))
    assert "secret" not in str(raised.value)


def test_the_first_of_several_addresses_is_one_that_answers() -> None:
    """The others follow in their order, without a connection: a backup may not accept any yet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        endpoint = find_endpoints(
            context(f"mqtt://127.0.0.1:1,127.0.0.1:{port},127.0.0.1:2")
        ).producers
    assert [(each.port, each.address) for each in (endpoint, *endpoint.others)] == [
        (at, ("127.0.0.1", at)) for at in (port, 2, 1)
    ]
    assert (
        endpoint.source(10_000),
        replace(endpoint, others=(replace(endpoint, address=("10.0.0.1", 1)),)).source(0),
    ) == (
        "127.0.0.2",
        None,
    )


def test_each_address_that_does_not_answer_is_named() -> None:
    with pytest.raises(
        TargetError,
        match=r"^mqtt://127\.0\.0\.1:1: Connection refused; mqtt://127\.0\.0\.1:2: Connection refused$",
    ):
        find_endpoints(context("mqtt://127.0.0.1:1,127.0.0.1:2"))


def test_connections_to_this_machine_have_many_source_addresses(server: socket.socket) -> None:
    """Ten thousand each, so that ports suffice; for another machine the system chooses."""
    here = BrokerEndpoint(
        host="localhost", port=1, family=socket.AF_INET, address=server.getsockname(), tls=None
    )
    assert [here.source(number) for number in (0, 9_999, 10_000, 2_560_000)] == [
        "127.0.0.1",
        "127.0.0.1",
        "127.0.0.2",
        "127.0.1.1",
    ]
    assert [here.source(number, 3) for number in (0, 10_000)] == ["127.0.3.1", "127.0.3.2"], (
        "workers do not share their ports"
    )
    assert replace(here, address=("10.0.0.1", 1883)).source(20_000) is None
    assert replace(here, family=socket.AF_INET6, address=("::1", 1883, 0, 0)).source(20_000) is None
    sock = BrokerSocket(here, ArrivalClock(time.monotonic_ns, kernel=False), here.source(10_000))
    peer, (address, _) = server.accept()
    assert address == "127.0.0.2"
    peer.close()
    sock.close()


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            [b""],
            "does it speak TLS (then write mqtts://), or take no more connections (mosquitto: max_connections)?",
        ),
        (
            [b"\x20\x03\x00\x00\x00", b""],
            "it takes no more connections; raise its limit (mosquitto: max_connections)",
        ),
    ],
)
def test_a_broker_that_answers_others_takes_no_more_connections(
    server: socket.socket, answers: list[bytes], reason: str
) -> None:
    """It speaks the same protocol as they do, so its port is the right one."""
    endpoint = BrokerEndpoint(
        host="localhost", port=1, family=socket.AF_INET, address=server.getsockname(), tls=None
    )
    for answer in answers:
        sock = BrokerSocket(endpoint, ArrivalClock(time.monotonic_ns, kernel=False))
        peer, _ = server.accept()
        peer.sendall(answer)
        peer.close()
        select.select((sock,), (), (), 10)
        sock.read()
        sock.close()
    assert reason in sock.ending


class TlsEnds:
    """A connection whose peer encrypts in memory, so that a test decides which encrypted bytes arrive together."""

    def __init__(self, server: socket.socket, folder: Path) -> None:
        keys, address = keys_of_run(folder, client=None), server.getsockname()
        tls = ClientTls(Tls(ca_file=str(keys.authority)))
        endpoint = BrokerEndpoint(
            host="localhost", port=address[1], family=socket.AF_INET, address=address, tls=tls
        )
        self.sock = BrokerSocket(endpoint, ArrivalClock(time.monotonic_ns))
        self._peer, _ = server.accept()
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(keys.server.certificate, keys.server.key)
        incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = own.wrap_bio(incoming, self.outgoing, server_side=True)
        for _ in range(2):  # the client's hello, then its answer to the server's
            assert self.sock.advance() in (select.EPOLLIN, 0)
            incoming.write(self._peer.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                self.session.do_handshake()
            self._peer.sendall(self.outgoing.read())
            select.select((self.sock,), (), (), 10)
        assert self.sock.read() is None  # only tickets for other sessions have come

    def arrive(self, data: bytes) -> None:
        """Send bytes, and wait until all of them can be read."""
        self._peer.sendall(data)
        while select.select((self.sock,), (), (), 10)[0] and len(
            self.sock._socket.recv(1 << 17, socket.MSG_PEEK)
        ) < len(data):
            pass

    def hang_up(self) -> None:
        self._peer.close()
        select.select((self.sock,), (), (), 10)

    def close(self) -> None:
        self._peer.close()
        self.sock.close()


def test_bytes_that_tls_has_read_ahead_do_not_wait_for_the_next_packet(
    server: socket.socket, tmp_path: Path
) -> None:
    """The start of a record is read first. With the rest there is more than one read returns, and epoll does not report it."""
    ends = TlsEnds(server, tmp_path)
    data = random.Random(1).randbytes(70_000)
    ends.session.write(data)
    records = ends.outgoing.read()
    for part, arrived in ((records[:8_000], None), (records[8_000:], data)):
        ends.arrive(part)
        assert ends.sock.read() == arrived
    ends.close()


def test_bytes_after_the_farewell_of_tls_are_not_waited_for(
    server: socket.socket, tmp_path: Path
) -> None:
    """They are never decrypted. The connection ends when the peer closes it."""
    ends = TlsEnds(server, tmp_path)
    ends.session.write(b"last")
    with contextlib.suppress(ssl.SSLWantReadError):
        ends.session.unwrap()
    ends.arrive(ends.outgoing.read() + b"\x17\x03\x03")
    assert ends.sock.read() == b"last"
    ends.hang_up()
    assert ends.sock.read() == b""
    ends.close()
