"""A TCP or TLS connection to an MQTT broker that never blocks, from the first SYN on."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pytest_loadtest.drivers.mqtt.tls import ALERT, LOST, ClientTls
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.plan.connections import EACH_SOURCE
from pytest_loadtest.values.addresses import check_address

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.mqtt.settings import Tls


_SOURCES: Final = 256  # addresses of each worker
_BIND_ADDRESS_NO_PORT: Final = 24  # linux/in.h: the port is chosen by connect, which knows the other end
READ: Final = 65_536  # more than a TLS record (16 KiB), so that no decrypted byte is left where epoll cannot see it


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """A broker's address as found to answer, and how to speak to it."""

    host: str
    port: int
    family: socket.AddressFamily
    address: Any
    tls: ClientTls | None

    @property
    def url(self) -> str:
        """For messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{host}:{self.port}"

    def source(self, number: int, worker: int = 0) -> str | None:
        """The address from which a worker's connection with that number goes out; None where the system chooses.

        On this machine every 127.x.y.z is its own: ports do not run out.
        """
        if self.family is not socket.AF_INET or not str(self.address[0]).startswith("127."):
            return None
        return str(IPv4Address("127.0.0.1") + worker * _SOURCES + number // EACH_SOURCE)


class BrokerSocket:
    """A connection to ``endpoint``, begun but not established: see :meth:`advance`.

    :param source: the address that it goes out from; None: the system chooses. :raises OSError: the connection is refused at once.
    """

    __slots__ = ("_connected", "_ended", "_endpoint", "_heard", "_out", "_socket", "closed", "ending", "written")  # many thousands

    def __init__(self, endpoint: BrokerEndpoint, source: str | None = None) -> None:
        self._endpoint = endpoint
        self._socket: socket.socket = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected = self._ended = self._heard = self.closed = False
        self.ending = LOST  # why nothing comes or goes any more, as far as that is known
        self._out = bytearray()
        self.written = 0  # bytes that the kernel took, since the beginning
        if source is not None:
            self._socket.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            self._socket.bind((source, 0))
        error = self._socket.connect_ex(endpoint.address)
        if error not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise OSError(error, os.strerror(error))

    def advance(self) -> int:
        """Take connect and handshake one step further after epoll said so; return the events to wait for, 0 when established.

        :raises OSError: refused, or the handshake failed (``ssl.SSLError`` is one).
        """
        if not self._connected:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connected = True
            if self._endpoint.tls is not None:
                self._socket = self._endpoint.tls.wrap(self._socket, self._endpoint.host)
        return 0 if self._endpoint.tls is None else self._shake_hands(self._endpoint.tls)

    def _shake_hands(self, tls: ClientTls) -> int:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        except OSError as error:
            raise OSError(tls.why(error, self._socket)) from error
        tls.check(self._socket)
        return 0

    def read(self) -> bytes | None:
        """What the kernel has, at most ``READ`` bytes; None where it has nothing just now; empty where the connection is over."""
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            data = b""
            if self._endpoint.tls is not None and isinstance(self._socket, ssl.SSLSocket) and not self._ended:
                self.ending = self._endpoint.tls.why(error, self._socket)
        if not self._heard:
            data = self._hear(data)
        self._ended = self._ended or not data
        return data

    def _hear(self, data: bytes) -> bytes:
        """The first that the broker says, or that it says nothing."""
        self._heard = True
        if self._endpoint.tls is None and data.startswith(ALERT):
            self.ending = "the port speaks TLS: write mqtts:// in place of mqtt://"
            return b""
        if not data and self.ending == LOST:
            hint = "speak TLS? Then write mqtts://" if self._endpoint.tls is None else "want another certificate of the client?"
            self.ending = f"the broker hangs up without a word: does it {hint}"
        return data

    @property
    def ended(self) -> bool:
        """Whether nothing comes or goes any more."""
        return self._ended

    @property
    def unsent(self) -> int:
        """Bytes gathered and not yet taken by the kernel."""
        return len(self._out)

    def put(self, data: bytes | bytearray) -> None:
        """Gather; :meth:`write` writes it."""
        self._out += data

    def write(self) -> None:
        """Write what the kernel takes."""
        try:
            while self._out:
                n = self._socket.send(self._out)
                self.written += n
                del self._out[:n]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.read()  # the broker may have said why
            self._ended = True

    def write_now(self, data: bytes) -> bool:
        """Write this behind what was gathered. :returns: whether the kernel took all of it, as it nearly always does; or :meth:`write`."""
        if not self._out:
            try:
                n = self._socket.send(data)
            except OSError:
                n = 0  # full, or over: the next write tells
            self.written += n
            if n == len(data):
                return True
            data = data[n:]
        self._out += data
        return False

    def close(self) -> None:
        """Write the last packet (DISCONNECT) if the kernel takes it, and close."""
        if not self.closed:
            self.closed = True
            self.write()
            self._socket.close()

    def fileno(self) -> int:
        """The socket's number; -1 once it is closed."""
        return self._socket.fileno()


# From addresses to where they lead: the producers' endpoint, and the consumers', which may be another one.

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
