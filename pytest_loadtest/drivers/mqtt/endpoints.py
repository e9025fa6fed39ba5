"""From addresses to where they lead: the producers' endpoint, and the consumers', which may be another one."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
from pytest_loadtest.drivers.mqtt.tls import ClientTls
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.addresses import check_address

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.mqtt.tls_settings import Tls

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_CONNECT_TIMEOUT: Final = 5.0


class Endpoints(NamedTuple):
    """Of one target; both the same where it has one address. They share what TLS needs."""

    producers: BrokerEndpoint
    consumers: BrokerEndpoint


def find_endpoints(context: DriverContext) -> Endpoints:
    """Of the run's target.

    :raises UsageError: an address is none, or contradicts ``driver.tls``. :raises TargetError: one does not answer.
    """
    target, settings = context.target, context.settings.tls
    urls = {"target.url": target.url} | ({"target.subscriberUrl": target.subscriber_url} if target.subscriber_url else {})
    parsed = {what: _parsed(url) for what, url in urls.items()}
    tls = _tls(settings, [*parsed.values()])
    found = [_reached(url, tls, what if len(urls) > 1 else "") for what, url in parsed.items()]
    return Endpoints(found[0], found[-1])


def endpoint_of(url: str, settings: Tls | None) -> BrokerEndpoint:
    """The first address of the URL's host that answers.

    :param settings: the profile's ``driver.tls``, or None.
    :raises UsageError: the URL is none, or contradicts ``settings``. :raises TargetError: no address answers.
    """
    parsed = _parsed(url)
    return _reached(parsed, _tls(settings, [parsed]), "")


def _parsed(url: str) -> SplitResult:
    check_address(url, "target")
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"{url!r} is not the address of an MQTT broker: write mqtt://host:1883 or mqtts://host:8883")
    return parts


def _tls(settings: Tls | None, urls: list[SplitResult]) -> ClientTls | None:
    if any(url.scheme == "mqtts" for url in urls):
        return ClientTls(settings)
    if settings is not None:
        said = " and ".join(repr(url.geturl()) for url in urls)
        remedy = "write mqtts://, or target: {security: {tls: true}} for a broker that the run starts"
        raise UsageError(f"driver.tls is set and the target is {said}: {remedy}")
    return None


def _reached(url: SplitResult, tls: ClientTls | None, what: str) -> BrokerEndpoint:
    """:param what: which of two addresses it is, or empty."""
    assert url.hostname is not None
    port = url.port or PORTS[url.scheme]
    try:
        with socket.create_connection((url.hostname, port), _CONNECT_TIMEOUT) as found:
            family, address = found.family, found.getpeername()
    except OSError as error:
        raise TargetError(f"{what} {url.geturl()}: {error.strerror or error}".lstrip()) from error
    return BrokerEndpoint(
        host=url.hostname, port=port, family=family, address=address, tls=tls if url.scheme == "mqtts" else None
    )  # fmt: skip
