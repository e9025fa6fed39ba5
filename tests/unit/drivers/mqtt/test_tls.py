"""TLS of the MQTT drivers, without a broker."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import CONNACK, both, context

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.mqtt.broker_socket import find_endpoints
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable


Script = list[bytes | None]


def test_an_insecure_client_still_checks_the_chain() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoints = find_endpoints(
            context(f"mqtts://127.0.0.1:{server.getsockname()[1]}", tls={"insecure": True})
        )
    assert endpoints.producers == endpoints.consumers
    assert endpoints.producers.tls is not None
    ssl_context = endpoints.producers.tls.context
    assert (ssl_context.check_hostname, ssl_context.verify_mode) == (False, ssl.CERT_REQUIRED)


@both
@pytest.mark.parametrize(
    ("scheme", "answer", "named"),
    [
        (
            "mqtt",
            b"\x15\x03\x01\x00\x02\x02\x46",
            "the port speaks TLS: write mqtts:// in place of mqtt://",
        ),
        ("mqtts", CONNACK, "the port does not speak TLS: write mqtt:// in place of mqtts://"),
    ],
    ids=["an alert", "no TLS"],
)
def test_a_plain_client_on_a_tls_port_and_the_reverse_are_explained(
    scripted: Callable[[Script], str], client: str, scheme: str, answer: bytes, named: str
) -> None:
    """The first bytes of an answer reveal which of them uses TLS."""
    url = scripted([answer]).replace("mqtt", scheme)
    driver: Any = driver_class("mqtt", client)(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    with pytest.raises(TargetError) as raised:
        driver.open_producers([0])
    driver.close()
    assert str(raised.value) == f"{url}: producer of stream 0: {named}"
