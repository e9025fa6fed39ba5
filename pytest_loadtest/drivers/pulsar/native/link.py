"""One connection to a broker: a socket that never blocks, with or without TLS, and who uses it."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from pytest_loadtest.drivers.pulsar.connect_errors import NAME_REMEDY, NOT_THIS_HOST
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.wire.pulsar.connection import Event, PulsarConnection

_READS: Final = 8  # of one turn, so that one connection does not keep the others waiting
_TLS_PIECE: Final = 1 << 16  # bytes handed to TLS at once
_QUIET: Final = 30 * SECOND  # without a byte, after which we ask; as Pulsar's own clients do (keepAliveInterval)
_DEAD: Final = 60 * SECOND
_CONNECT: Final = 10 * SECOND
_ERRORS: Final = {number: name for name, number in api.ServerError.items()}
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """``pulsar://host:6650`` or ``pulsar+ssl://host:6651``. :raises ValueError: it is neither."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{url!r} is no Pulsar URL: write pulsar://host:6650 or pulsar+ssl://host:6651")
        return cls(parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "pulsar+ssl")

    @classmethod
    def said(cls, url: str) -> Address | None:
        """What a broker says; None where that is no address."""
        try:
            return cls.of(url)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{self.host}:{self.port}"


class Refused:
    """A request that failed. :param error: one of ``api.proto``'s server errors; None: there is no answer, as the connection is gone."""

    def __init__(self, message: str, error: int | None = None) -> None:
        name = _ERRORS.get(error) if error is not None else None
        self.message, self.error = f"{name}: {message}" if name else message, error


class LinkUser(Protocol):
    """A producer or consumer, to its connections."""

    def begin(self) -> bool:
        """It is its turn to find its broker. :returns: whether it is on its way now; not if it has left meanwhile."""

    def lost(self, reason: str, address: Address | None) -> None:
        """Its connection is gone, or the broker closed it. :param address: where the broker says that its topic is now."""


class BrokerLink:
    """Connects as soon as it is made, without waiting for it.

    :ivar users: producers and consumers here, by their numbers. :ivar answers: who waits for the answer to a request, by its number.
    :ivar failure: why it is no connection any more; empty while it is one.
    :ivar refused: the server error with which the broker refused us. :ivar shaken: it is connected, with TLS where that is asked for.
    """

    def __init__(self, address: Address, connection: PulsarConnection, tls: ssl.SSLContext | None, clock: Callable[[], int]) -> None:
        self.address, self.connection, self._clock = address, connection, clock
        self.users: dict[tuple[str, int], LinkUser] = {}
        self.answers: dict[int, Callable[[Any], None]] = {}
        self.failure = ""
        self.refused: int | None = None
        self.last_read = self._asked = clock()
        self._connected = self.shaken = False
        self._rest: bytes | memoryview = b""  # of what TLS was given, which must get it again
        self._early: list[api.Command] = []
        self._tls = tls
        self._socket = self._begin()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writes = True  # whether it waits until it can write
        self.descriptor = self._socket.fileno()

    def _begin(self) -> socket.socket:
        """A socket that begins to connect to the first address of the name that does not refuse at once: localhost may be two."""
        try:
            found = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self.fail(f"the name {self.address.host} cannot be resolved: {_wording(error)}")
            return socket.socket()
        for family, kind, _, _, where in found:
            begun = socket.socket(family, kind)
            begun.setblocking(False)
            number = begun.connect_ex(where)
            if number in (0, errno.EINPROGRESS):
                return begun
            begun.close()
        self.fail(os.strerror(number))
        return socket.socket()

    @property
    def ready(self) -> bool:
        """Whether the broker has accepted us."""
        return self.connection.ready and not self.failure

    def send(self, command: api.Command) -> None:
        """Put it behind the others; what comes before the broker has accepted us waits for that."""
        if self.connection.ready:
            self.connection.send(command)
        else:
            self._early.append(command)

    def accepted(self) -> None:
        """The broker has accepted us."""
        for command in self._early:
            self.connection.send(command)
        self._early.clear()

    def fail(self, why: object) -> None:
        """It is no connection any more."""
        self.failure = self.failure or str(why)

    def step(self) -> bool:
        """The socket can be written: connect, shake hands, write. :returns: whether it waits to be able to write again."""
        try:
            if not self._connected:
                self._end_connect()
            if not self.shaken:
                return self._shake()
            return self.write()
        except OSError as error:
            self.fail(_wording(error))
            return False

    def _end_connect(self) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
        self._connected = True
        if self.address.tls:  # not before: it raises what a connection that is still being made runs into
            assert self._tls is not None
            self._socket = self._tls.wrap_socket(self._socket, server_hostname=self.address.host, do_handshake_on_connect=False)

    def _shake(self) -> bool:
        if isinstance(self._socket, ssl.SSLSocket):
            try:
                self._socket.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLWantWriteError:
                return True
        self.shaken = True
        try:
            self.connection.open()
        except TargetError as error:  # the issuer of tokens
            self.fail(error)
            return False
        return self.write()

    def write(self) -> bool:
        """Write what the socket takes, once it is connected. :returns: whether something is left."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._write_tls(self._socket)
            else:
                while self.connection.waiting:
                    self.connection.sent(self._socket.sendmsg(self.connection.next()))
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return True
        except OSError as error:
            self.fail(_wording(error))
        return False

    def _write_tls(self, stream: ssl.SSLSocket) -> None:
        while self._rest or self.connection.waiting:
            if not self._rest:
                self._rest = memoryview(b"".join(self.connection.next()))
                self.connection.sent(len(self._rest))
            self._rest = self._rest[stream.send(self._rest[:_TLS_PIECE]) :]

    def read(self) -> list[tuple[list[Event], int]]:
        """What came since the handshake of TLS, each part with the instant of its read."""
        came: list[tuple[list[Event], int]] = []
        connection = self.connection
        try:
            for number in count():
                space = connection.space()
                size = self._socket.recv_into(space)
                now = self.last_read = self._clock()
                if not size:
                    self.fail("the broker closed the connection")
                    break
                came.append((connection.filled(size), now))
                if isinstance(self._socket, ssl.SSLSocket):  # what it has read ahead, no poll tells of
                    if number >= _READS and not self._socket.pending():
                        break
                elif number >= _READS or size < len(space):
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (OSError, ProtocolError) as error:
            self.fail(_wording(error))
        return came

    def keep_alive(self, now: int) -> None:
        """Ask for a sign of life after a silence; fail after a long one."""
        silence = now - self.last_read
        if not self.ready and silence > _CONNECT:
            self.fail(f"no connection within {_CONNECT // SECOND} s")
        elif silence > _DEAD:
            self.fail(f"no sign of life for {silence // SECOND} s")
        elif self.ready and silence > _QUIET and now - self._asked > _QUIET:
            self._asked = now
            self.connection.ping()

    def close(self) -> None:
        """Twice does no harm."""
        self.fail("closed")
        self._socket.close()


def _wording(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in NOT_THIS_HOST:  # of a broker that a lookup named, perhaps
        return f"TLS: {error.verify_message.rstrip('.')}: {NAME_REMEDY}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the broker's certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
