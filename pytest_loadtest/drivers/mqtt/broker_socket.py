"""A non-blocking TCP or TLS connection to an MQTT broker, and the endpoints that it can lead to."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pytest_loadtest.drivers.arrival_clock import ArrivalClock, SocketReader
from pytest_loadtest.drivers.mqtt.tls import ALERT, LOST, NO_HANDSHAKE, RESET, UNANSWERED, ClientTls
from pytest_loadtest.drivers.source_addresses import bind_to_source, connect_error, connect_from
from pytest_loadtest.drivers.tls_stream import TlsStream
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.plan.needs import EACH_SOURCE
from pytest_loadtest.values.addresses import check_address
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.mqtt.settings import Tls


_SOURCES: Final = 256  # source addresses of each worker
READ: Final = 65_536  # most bytes of a read
# Bytes of the smallest packets (MQTT 5, 3.4 and 3.3): PUBACK, and PUBLISH with a topic of one byte.
ACKNOWLEDGEMENT: Final = 4
MESSAGE: Final = 5


FULL: Final = (
    f"{UNANSWERED}, but has answered other clients: it takes no more connections; raise its limit"
    " (mosquitto: max_connections), or let the"
    " profile have fewer clients"
)


@dataclass(slots=True)
class EndpointHistory:
    """The answers of an endpoint to this process.

    :param answered: it has answered one of the connections in MQTT.
    """

    answered: bool = False


@record
class BrokerEndpoint:
    """A broker's address.

    :param tls: None: plain MQTT.
    :param others: further addresses of the same target, for
        clients that cannot connect to this one.
    """

    host: str
    port: int
    family: socket.AddressFamily
    address: Any
    tls: ClientTls | None
    others: tuple[BrokerEndpoint, ...] = ()
    history: EndpointHistory = field(default_factory=EndpointHistory, compare=False)

    @property
    def url(self) -> str:
        """The address, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{host}:{self.port}"

    def source(self, number: int, worker: int = 0) -> str | None:
        """Return the source address of a worker's connection with this number.

        None: the system chooses.
        """
        # A source address has some 28 000 ports for one destination. Connections to this machine
        # can use all of 127.x.y.z.
        if not all(
            each.family is socket.AF_INET and str(each.address[0]).startswith("127.")
            for each in (self, *self.others)
        ):
            return None
        return str(IPv4Address("127.0.0.1") + worker * _SOURCES + number // EACH_SOURCE)


class BrokerSocket:
    """A connection to ``endpoint`` that is started but not established: see :meth:`advance`.

    :param arrivals: the clock of arrivals.
    :param source: source address; None: the system chooses.
    :param smallest: bytes of the smallest packet whose time of arrival counts.
    :raises OSError: the connection is rejected at once.
    :ivar stream: has the time of the last read.
    :ivar ending: the reason of the end, as far as it is known.
    :ivar written: number of bytes that the kernel took so far.
    :ivar epoll: watches it; None: nothing does.
    :ivar broken: a write failed. What had arrived before can still be read, and then the end.
    """

    # A worker may have many thousands of sockets.
    __slots__ = (
        "_arrivals",
        "_connected",
        "_ended",
        "_endpoint",
        "_heard",
        "_out",
        "_send",
        "_smallest",
        "_socket",
        "_space",
        "broken",
        "closed",
        "ending",
        "epoll",
        "stream",
        "written",
    )

    def __init__(
        self,
        endpoint: BrokerEndpoint,
        arrivals: ArrivalClock,
        source: str | None = None,
        *,
        smallest: int = ACKNOWLEDGEMENT,
    ) -> None:
        self._endpoint = endpoint
        self._arrivals = arrivals
        self._space = _read_space()
        self._smallest = smallest
        self._socket: socket.socket = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self._send: Callable[[bytes | bytearray], int] = self._socket.send
        self.stream = SocketReader(self._socket, arrivals, units=self._smallest)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected = self._ended = self._heard = self.broken = self.closed = False
        self.ending = LOST
        self.epoll: select.epoll | None = None
        self._out = bytearray()
        self.written = 0
        try:
            bind_to_source(self._socket, source)
        except OSError:
            self._socket.close()
            raise
        # A non-blocking connect nearly always ends as EINPROGRESS; epoll then reports its result.
        error = self._socket.connect_ex(endpoint.address)
        if error not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise OSError(error, connect_error(error, source))

    def advance(self) -> int:
        """Advance connect and handshake by one step after an epoll event.

        Return the next events to wait for, 0 when established.

        :raises OSError: the connection is rejected, or the handshake
            failed (``ssl.SSLError`` is an OSError).
        """
        if not self._connected:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connected = True
            if self._endpoint.tls is not None:
                self.stream = encrypted = TlsStream(
                    self._socket,
                    self._arrivals,
                    self._endpoint.tls.context,
                    self._endpoint.host,
                    units=self._smallest,
                )
                self._send = encrypted.send
        return 0 if self._endpoint.tls is None else self._shake_hands(self._endpoint.tls)

    def _shake_hands(self, tls: ClientTls) -> int:
        assert isinstance(self.stream, TlsStream)
        try:
            self.stream.shake_hands()
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        except OSError as error:
            reason = tls.explain_failure(error, self.stream.session)
            if reason == NO_HANDSHAKE and self._endpoint.history.answered:
                reason = FULL
            raise OSError(reason) from error
        tls.check(self.stream.session)
        return 0

    def read(self) -> bytes | None:
        """Return about ``READ`` bytes at most that have arrived; None if none have.

        It is b"" if the connection is over.
        """
        try:
            # A copy of the bytes read costs less than recv() with a buffer of this size.
            data = bytes(self._space[: self.stream.read(self._space)])
            # epoll does not report bytes that TLS has read ahead: they would wait for the next
            # packet, which may never come.
            while self.stream.held:
                data += self._read_held()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not self.broken:
                return None
            data = b""
        except OSError as error:
            data = b""
            if (
                self._endpoint.tls is not None
                and isinstance(self.stream, TlsStream)
                and not self._ended
            ):
                self.ending = self._endpoint.tls.explain_failure(error, self.stream.session)
            elif isinstance(error, ConnectionResetError) and self._heard:
                self.ending = RESET
        if not self._heard:
            data = self._check_first_bytes(data)
        self._ended = self._ended or not data
        return data

    def _read_held(self) -> bytes:
        try:
            return bytes(self._space[: self.stream.read(self._space)])
        except ssl.SSLWantReadError:
            return b""  # the rest is the start of a record

    def _check_first_bytes(self, data: bytes) -> bytes:
        # The first bytes, or their absence, reveal a client and a port of which only one uses TLS.
        self._heard = True
        if self._endpoint.tls is None and data.startswith(ALERT):
            self.ending = "the port speaks TLS: write mqtts:// in place of mqtt://"
            return b""
        if data:
            self._endpoint.history.answered = True
        elif self.ending == LOST:
            self.ending = self._explain_silence()
        return data

    def _explain_silence(self) -> str:
        if self._endpoint.history.answered:
            return FULL
        hint = "need another client certificate?"
        if self._endpoint.tls is None:
            hint = (
                "speak TLS (then write mqtts://), or take no more connections (mosquitto:"
                " max_connections)?"
            )
        return f"{UNANSWERED}: does it {hint}"

    @property
    def ended(self) -> bool:
        """True if everything was read."""
        return self._ended

    @property
    def unsent(self) -> int:
        """Number of gathered bytes that the kernel has not taken."""
        return len(self._out)

    def put(self, data: bytes | bytearray) -> None:
        """Gather bytes for :meth:`write`."""
        self._out += data

    def write(self) -> None:
        """Write as much of the gathered bytes as the kernel takes.

        A failure shows in :attr:`broken`.
        """
        try:
            while self._out and not self.broken:
                n = self._send(self._out)
                self.written += n
                del self._out[:n]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.broken = True
        if self.broken:
            self._out.clear()

    def write_now(self, data: bytes) -> bool:
        """Write these bytes after the gathered ones.

        Return False if the kernel did not take all: :meth:`write` continues.
        """
        # The kernel nearly always takes everything at once. Then the
        # bytes are not copied into the buffer.
        if not self._out:
            try:
                n = self._send(data)
            except OSError:
                n = 0  # the socket is full or over; the next write() finds out
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
            # close() does not unregister a descriptor of which a forked process has a duplicate.
            if self.epoll is not None and not self.epoll.closed:
                self.epoll.unregister(self._socket)
            self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 once it is closed."""
        return self._socket.fileno()


@cache
def _read_space() -> memoryview:
    """Return the memory that all sockets read into, one after the other."""
    return memoryview(bytearray(READ))


# Endpoints of a target: one for producers, and one for consumers,
# which may have an address of their own.

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_CONNECT_TIMEOUT: Final = 5.0


class Endpoints(NamedTuple):
    """The endpoints of a target; equal if it has one address. They share one TLS context."""

    producers: BrokerEndpoint
    consumers: BrokerEndpoint


def find_endpoints(context: DriverContext) -> Endpoints:
    """Return the endpoints of the run's target.

    :raises UsageError: an address is invalid or contradicts ``driver.tls``.
    :raises TargetError: an address does not answer.
    """
    target = context.target
    settings = context.settings.tls
    urls = {"target.url": target.url} | (
        {"target.subscriberUrl": target.subscriber_url} if target.subscriber_url else {}
    )
    parsed = {key: _parsed(url) for key, url in urls.items()}
    source = context.sources[0] if context.sources else None
    tls = _tls(settings, [part for parts in parsed.values() for part in parts])
    named = len(urls) > 1
    endpoints = []
    for key, parts in parsed.items():
        endpoints.append(_reached(parts, tls, key if named else "", source))
    return Endpoints(endpoints[0], endpoints[-1])


def endpoint_of(url: str, settings: Tls | None) -> BrokerEndpoint:
    """Return the first address of the URL that answers.

    :param settings: the profile's ``driver.tls``, or None.
    :raises UsageError: the URL is invalid or contradicts ``settings``.
    :raises TargetError: no address answers.
    """
    parts = _parsed(url)
    return _reached(parts, _tls(settings, parts), "")


def _parsed(url: str) -> list[SplitResult]:
    """Return one URL for each host of ``mqtt://a:1883,b``."""
    check_address(url, "target")
    scheme, _, rest = url.partition("://")
    parts = [urlsplit(f"{scheme}://{host}") for host in rest.partition("/")[0].split(",")]
    if any(part.scheme not in PORTS or not part.hostname for part in parts):
        raise UsageError(
            f"{url!r} is not the address of an MQTT broker: write mqtt://host:1883 or"
            " mqtts://host:8883"
        )
    return parts


def _tls(settings: Tls | None, urls: list[SplitResult]) -> ClientTls | None:
    if any(url.scheme == "mqtts" for url in urls):
        return ClientTls(settings)
    if settings is not None:
        addresses = " and ".join(repr(url.geturl()) for url in urls)
        remedy = (
            "write mqtts://, or target: {security: {tls: true}} for a broker that the run starts"
        )
        raise UsageError(f"driver.tls is set and the target is {addresses}: {remedy}")
    return None


def _reached(
    urls: Sequence[SplitResult], tls: ClientTls | None, key: str, source: str | None = None
) -> BrokerEndpoint:
    """Connect once, to learn which host, and which of its addresses, answers.

    :param key: key of the URL, if the target has two.
    """
    problems = []
    for number, url in enumerate(urls):
        try:
            with connect_from(str(url.hostname), _port(url), _CONNECT_TIMEOUT, source) as connected:
                family = connected.family
                address = connected.getpeername()
        except OSError as error:
            problems.append(f"{key} {url.geturl()}: {error.strerror or error}".lstrip())
            continue
        others = tuple(_resolved(other, tls) for other in (*urls[number + 1 :], *urls[:number]))
        return _endpoint(url, family, address, tls, others)
    raise TargetError("; ".join(problems))


def _resolved(url: SplitResult, tls: ClientTls | None) -> BrokerEndpoint:
    """Return an address without connecting to it: a backup may accept no connection yet."""
    try:
        family, *_, address = socket.getaddrinfo(url.hostname, _port(url), type=socket.SOCK_STREAM)[
            0
        ]
    except OSError as error:
        raise TargetError(f"{url.geturl()}: {error.strerror or error}") from error
    return _endpoint(url, family, address, tls)


def _endpoint(
    url: SplitResult,
    family: int,
    address: Any,
    tls: ClientTls | None,
    others: tuple[BrokerEndpoint, ...] = (),
) -> BrokerEndpoint:
    return BrokerEndpoint(
        host=str(url.hostname),
        port=_port(url),
        family=socket.AddressFamily(family),
        address=address,
        tls=tls if url.scheme == "mqtts" else None,
        others=others,
    )


def _port(url: SplitResult) -> int:
    return url.port or PORTS[url.scheme]
