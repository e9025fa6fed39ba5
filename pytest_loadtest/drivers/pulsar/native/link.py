"""One connection to a broker: a socket that never blocks, with or without TLS, and its users."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from pytest_loadtest.drivers.arrival_clock import ArrivalClock, SocketReader
from pytest_loadtest.drivers.pulsar.connect_errors import NAME_REMEDY, NOT_THIS_HOST
from pytest_loadtest.drivers.source_addresses import addresses_from, bind_to_source, connect_error
from pytest_loadtest.drivers.tls_stream import TlsStream
from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.wire.pulsar.connection import Event, PulsarConnection

# Most reads of one turn, so that one connection does not keep the others waiting.
_READS: Final = 8
_TLS_PIECE: Final = 1 << 16  # bytes given to TLS at once
# Silence after which a ping is sent, as in Pulsar's own clients (keepAliveInterval), and silence
# after which the connection is lost.
_QUIET: Final = 30 * SECOND
_DEAD: Final = 60 * SECOND
_CONNECT: Final = 10 * SECOND
_FAILURES: Final = 4  # failures in one message
_LONGEST: Final = 500  # characters of a broker's text in a message
_ERRORS: Final = {number: name for name, number in api.ServerError.items()}
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}


class Address(NamedTuple):
    """A broker's address."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``.

        :raises ValueError: it is neither.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(
                f"{url!r} is no Pulsar URL: write pulsar://host:6650 or pulsar+ssl://host:6651"
            )
        return cls(parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "pulsar+ssl")

    @classmethod
    def parse(cls, url: str, *, tls: bool) -> Address | None:
        """Parse an address from a broker.

        None if it is no address, or one with TLS where that has none, or the reverse.
        """
        try:
            address = cls.of(url)
        except ValueError:
            return None
        return address if address.tls == tls else None

    def __str__(self) -> str:
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{self.host}:{self.port}"


class Refused:
    """A failed request.

    :param error: one of ``api.proto``'s server errors; None: the
        connection was lost before the answer.
    """

    def __init__(self, message: str, error: int | None = None) -> None:
        name = _ERRORS.get(error) if error is not None else None
        self.message = _legible(f"{name}: {message}" if name else message)
        self.error = error


class Came(NamedTuple):
    """The events of a read.

    :param time: when its bytes arrived, ns.
    :param lag: time from then until they were read; -1: unknown.
    """

    events: list[Event]
    time: int
    lag: int


class LinkUser(Protocol):
    """A producer or consumer, as its connection uses it."""

    def begin(self) -> bool:
        """Begin to look up its broker. :returns: False if it has left."""

    def lost(self, reason: str, address: Address | None) -> None:
        """Handle a lost connection, or a close by the broker.

        :param address: the topic's new broker; None: unknown.
        """


class BrokerLink:
    """A connection, which begins to connect at once.

    :param source: source address; None: the system chooses.
    :ivar users: producers and consumers, by kind and number.
    :ivar answers: number of a pending request → the callback for its answer.
    :ivar failure: why the connection has failed; empty while it has not.
    :ivar refused: the server error with which the broker rejected it.
    :ivar violated: it failed because the broker violates the protocol.
    :ivar shaken: it is connected, and the TLS handshake is done.
    """

    def __init__(
        self,
        address: Address,
        connection: PulsarConnection,
        tls: ssl.SSLContext | None,
        arrivals: ArrivalClock,
        source: str | None = None,
    ) -> None:
        self.address = address
        self.connection = connection
        self._arrivals = arrivals
        self._source = source
        self.users: dict[tuple[str, int], LinkUser] = {}
        self.answers: dict[int, Callable[[Any], None]] = {}
        self.failure = ""
        self.refused: int | None = None
        self.violated = False
        self.last_read = self._asked = arrivals.now()
        self._begun = self._heard = self.last_read
        self._frames = 0
        self._connected = self.shaken = False
        # Bytes of a partial write under TLS: see _write_tls().
        self._rest: bytes | memoryview = b""
        self._early: list[api.Command] = []
        self._tls = tls
        self._untried = self._resolve()
        self._open()

    def _open(self) -> None:
        self._socket = self._begin()
        self._stream = SocketReader(self._socket, self._arrivals)
        # The driver makes its own batches: Nagle's algorithm would only delay them.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # True while epoll watches for the socket to become writable.
        self.writes = True
        self.descriptor = self._socket.fileno()

    def _resolve(self) -> list[tuple[socket.AddressFamily, Any]]:
        try:
            return addresses_from(self.address.host, self.address.port, self._source)
        except (OSError, UnicodeError) as error:
            self.fail(
                _wording(error)
                if self._source
                else f"the name {self.address.host} cannot be resolved: {_wording(error)}"
            )
            return []

    def _begin(self) -> socket.socket:
        """Return a socket that connects to the next address that does not refuse at once."""
        reason = ""
        while self._untried:
            family, where = self._untried.pop(0)
            begun = socket.socket(family)
            # connect_ex() on a non-blocking socket only starts the
            # connection; epoll reports its end as writable.
            begun.setblocking(False)
            try:
                bind_to_source(begun, self._source)
                number = begun.connect_ex(where)
                reason = connect_error(number, self._source)
            except OSError as error:
                number = -1
                reason = _wording(error)
            if number in (0, errno.EINPROGRESS):
                return begun
            begun.close()
        self.fail(reason)
        return socket.socket()

    @property
    def has_next(self) -> bool:
        """True if it failed to connect, and its name has an address that was not tried.

        localhost, for example, has two.
        """
        return bool(self.failure and self._untried) and not self._connected

    def connect_next(self) -> None:
        """Connect to the next address of the name, with a new descriptor."""
        self._socket.close()
        self.failure = ""
        self._begun = self._arrivals.now()
        self._open()

    @property
    def ready(self) -> bool:
        """True if the broker has accepted the connection."""
        return self.connection.ready and not self.failure

    def send(self, command: api.Command) -> None:
        """Append a command.

        Commands before the broker has accepted the connection wait until then.
        """
        if self.connection.ready:
            self.connection.send(command)
        else:
            self._early.append(command)

    def accepted(self) -> None:
        """Send the commands that waited until the broker accepted the connection."""
        for command in self._early:
            self.connection.send(command)
        self._early.clear()

    def fail(self, why: object) -> None:
        """Mark the connection as failed; the first reason is kept."""
        self.failure = self.failure or _legible(_wording(why))

    def reject(self, why: str) -> None:
        """Mark the connection as failed because the broker violates the protocol."""
        if not self.failure:
            self.violated = True
        self.fail(why)

    def step(self) -> bool:
        """Connect, do the handshake, or write, as the socket is writable.

        :returns: whether it waits to become writable again.
        """
        try:
            if not self._connected:
                self._end_connect()
            if not self.shaken:
                return self._shake()
            return self.write()
        except OSError as error:
            self.fail(error)
            return False

    def _end_connect(self) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
        self._connected = True
        if self.address.tls:
            assert self._tls is not None
            self._stream = TlsStream(self._socket, self._arrivals, self._tls, self.address.host)

    def _shake(self) -> bool:
        if isinstance(self._stream, TlsStream):
            try:
                self._stream.shake_hands()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLWantWriteError:
                return True
        self.shaken = True
        try:
            self.connection.open()
        except LoadtestError as error:
            # The credentials come from a file or an issuer, which may be missing for a moment.
            self.fail(error)
            return False
        return self.write()

    def write(self) -> bool:
        """Write what the socket takes. :returns: whether bytes are left."""
        try:
            if isinstance(self._stream, TlsStream):
                self._write_tls(self._stream)
            else:
                while self.connection.waiting:
                    self.connection.sent(self._socket.sendmsg(self.connection.next()))
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return True
        except OSError as error:
            self.fail(error)
        return False

    def _write_tls(self, stream: TlsStream) -> None:
        # After a partial write OpenSSL must get the same bytes again, so they are joined and kept
        # in _rest until it has taken them.
        while self._rest or self.connection.waiting:
            if not self._rest:
                self._rest = memoryview(b"".join(self.connection.next()))
                self.connection.sent(len(self._rest))
            self._rest = self._rest[stream.send(self._rest[:_TLS_PIECE]) :]

    def read(self) -> list[Came]:
        """Return the events that arrived, each group with the time of its read.

        The TLS handshake must be done.
        """
        came = []
        connection = self.connection
        stream = self._stream
        try:
            for number in count():
                size = stream.read(connection.space())
                self.last_read = stream.taken
                if not size:
                    self.fail("the broker closed the connection")
                    break
                came.append(Came(connection.filled(size), stream.arrived, stream.lag))
                # epoll does not report bytes that TLS has read ahead: they must be read now.
                if not stream.held and (number >= _READS or not stream.filled):
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (OSError, LoadtestError) as error:
            # The credentials for a challenge may be missing, as those of step().
            self.fail(error)
        except ProtocolError as error:
            self.reject(f"the broker sent bytes that are not Pulsar's protocol: {error}")
        return came

    def keep_alive(self, now: int) -> None:
        """Send a ping after a silence; fail after a long one."""
        # Only complete frames count, as for Pulsar's own clients: a broker that sends a byte now
        # and then does not answer.
        if self._frames != self.connection.frames:
            self._frames = self.connection.frames
            self._heard = self.last_read
        silence = now - self._heard
        if not self.ready and now - self._begun > _CONNECT:
            self.fail(f"no connection within {_CONNECT // SECOND} s")
        elif silence > _DEAD:
            self.fail(f"no answer from the broker for {silence // SECOND} s")
        elif self.ready and silence > _QUIET and now - self._asked > _QUIET:
            self._asked = now
            self.connection.ping()

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        self.fail("closed")
        self._socket.close()


def join_failures(failures: Sequence[str]) -> str:
    """Return the first failures as one text, with the number of the others.

    Thousands of producers may fail for one reason.
    """
    more = f"; and {len(failures) - _FAILURES} more" if len(failures) > _FAILURES else ""
    return "; ".join(failures[:_FAILURES]) + more


def _legible(text: str) -> str:
    """Return a text for messages that may have one from a broker.

    One line, without control characters, not too long.
    """
    if text.isprintable() and len(text) <= _LONGEST:
        return text
    line = "".join(map(_printable, text[:_LONGEST]))
    return line if len(text) <= _LONGEST else f"{line}…"


def _printable(character: str) -> str:
    return character if character.isprintable() else " "


def _wording(error: object) -> str:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in NOT_THIS_HOST:
        # The certificate is trusted, but not for this name, which may come from a lookup.
        return f"TLS: {error.verify_message.rstrip('.')}: {NAME_REMEDY}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the broker's certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
