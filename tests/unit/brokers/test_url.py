"""Targets that run already."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers import BrokerRequest, url
from pytest_loadtest.brokers.starting import free_ports
from pytest_loadtest.brokers.url import Endpoint
from pytest_loadtest.errors import TargetError, UsageError


def request(kind: str, address: str) -> BrokerRequest:
    return BrokerRequest(kind=kind, mode="url", url=address, folder=Path("unused"))


@pytest.mark.parametrize(
    ("kind", "address", "endpoints"),
    [
        ("mqtt", "mqtt://broker", (Endpoint("broker", 1883),)),
        ("mqtt", "mqtts://broker/", (Endpoint("broker", 8883),)),
        ("pulsar", "pulsar://a:1,b:2,c", (Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 6650))),
        ("pulsar", "pulsar+ssl://[::1]", (Endpoint("::1", 6651),)),
        ("loopback", "loopback://127.0.0.1:7", (Endpoint("127.0.0.1", 7),)),
    ],
)
def test_an_address_has_one_or_more_endpoints(
    kind: str, address: str, endpoints: tuple[Endpoint, ...]
) -> None:
    """A missing port is the scheme's default; hosts may be IPv6."""
    assert url.parse_endpoints(kind, address) == endpoints


@pytest.mark.parametrize("address", [None, "http://a:8080,b", "https://[::1]/"])
def test_an_admin_url_may_be_absent_or_have_several_hosts(address: str | None) -> None:
    url.check_admin_url(address)


@pytest.mark.parametrize("address", ["foo", "ftp://a", "http://", "http://a:8080,b:x", "http://[a"])
def test_a_wrong_admin_url_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="admin URL '"):
        url.check_admin_url(address)


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("mqtt", "pulsar://x"),
        ("mqtt", "broker:1883"),
        ("pulsar", "pulsar://"),
        ("mqtt", "mqtt://x:99999"),
        ("mqtt", "mqtt://x:0"),
        ("pulsar", "pulsar://a:6650,b:0"),
        ("loopback", "loopback://x"),
    ],
)
def test_wrong_addresses_are_usage_errors(kind: str, address: str) -> None:
    """The error quotes the address and names the problem."""
    with pytest.raises(UsageError, match="target '"):
        brokers.start(request(kind, address), print)


@pytest.mark.parametrize(
    ("kind", "address", "admin"),
    [
        ("mqtt", "mqtt://user:secret@broker", None), ("mqtt", "mqtt://secret@broker:1883", None), ("mqtt", "user:secret@broker", None),
        ("pulsar", "pulsar://a:6650,user:secret@b:6650", None), ("pulsar", "pulsar://a", "http://user:secret@a:8080"),
    ],
)  # fmt: skip
def test_users_and_passwords_in_an_address_are_rejected_and_not_shown(
    kind: str, address: str, admin: str | None
) -> None:
    """No progress line has been written before."""
    said: list[str] = []
    with pytest.raises(
        UsageError,
        match=r"\*\*\*@.*: an address must not have a user or a password: write driver.username and driver.pass",
    ) as error:
        brokers.start(
            BrokerRequest(
                kind=kind, mode="url", url=address, admin_url=admin, folder=Path("unused")
            ),
            said.append,
        )
    assert said == []
    assert "secret" not in str(error.value)


def test_the_error_for_an_unreachable_target_has_the_reason() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TargetError, match=rf"cannot reach mqtt://127\.0\.0\.1:{port}.*refused"):
        brokers.start(request("mqtt", f"mqtt://127.0.0.1:{port}"), print)


def test_a_target_fails_after_refusing_connections_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is well again when it answers."""
    now = [0.0]
    monkeypatch.setattr(url.time, "monotonic", lambda: now[0])
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    broker = brokers.start(request("mqtt", f"mqtt://127.0.0.1:{port}"), print)
    assert (broker.facts.mode, broker.facts.version, broker.facts.local) == ("url", "unknown", True)
    now[0] = 6.0
    assert broker.failure() is None
    server.close()
    now[0] = 12.0
    assert broker.failure() is None
    now[0] = 18.0
    assert broker.failure() == f"mqtt://127.0.0.1:{port} has refused connections for 12 s"
    with socket.create_server(("127.0.0.1", port)):
        now[0] = 24.0
        assert broker.failure() is None
    broker.stop()


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.1", False)]
)
def test_a_host_is_local_if_its_address_can_be_bound(host: str, local: bool) -> None:
    assert url.is_local(host) is local
