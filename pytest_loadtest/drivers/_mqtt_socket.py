"""What paho takes for its socket: non-blocking from the first SYN on, and one system call for many packets.

paho reads every packet with three or more ``recv`` calls, writes each with a ``send`` of its own, and connects blocking. Behind this
class reads come from a buffer that :meth:`PacketSocket.fill` fills, writes gather until :meth:`PacketSocket.flush`, and TCP connect and
TLS handshake take their steps in the driver's loop.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

READ: Final = 65_536  # more than a TLS record (16 KiB), so that no decrypted byte is left where epoll cannot see it
_PUBLISH_QOS_0: Final = 0x30
_TYPE_AND_QOS: Final = 0xF6  # of a packet's first byte: packet type and QoS, without DUP and RETAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A broker's address as found to answer, and how to speak to it."""

    host: str
    port: int
    family: socket.AddressFamily
    address: Any
    tls: ssl.SSLContext | None


class PacketSocket:
    """A connection to ``endpoint``, begun but not established: see :meth:`advance`.

    :raises OSError: the connection is refused at once.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._socket: socket.socket = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected = False
        self._in, self._read = b"", 0
        self._ended = self.closed = False
        self._out = bytearray()
        self._accepted = self._written = 0
        self._marks: deque[int] = deque()  # where each QoS 0 PUBLISH ends in the stream of bytes
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
                host = self._endpoint.host
                self._socket = self._endpoint.tls.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        if isinstance(self._socket, ssl.SSLSocket):
            try:
                self._socket.do_handshake()
            except ssl.SSLWantReadError:
                return select.EPOLLIN
            except ssl.SSLWantWriteError:
                return select.EPOLLOUT
        return 0

    def fill(self) -> None:
        """Read once what the kernel has."""
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        self._ended = self._ended or not data
        self._in, self._read = self._in[self._read :] + data, 0

    @property
    def unread(self) -> bool:
        """Whether :meth:`recv` has something to say: bytes, or the end of the connection."""
        return self._read < len(self._in) or (self._ended and not self.closed)

    @property
    def unsent(self) -> int:
        """Bytes gathered and not yet taken by the kernel."""
        return len(self._out)

    def flush(self) -> int:
        """Write what the kernel takes; return how many QoS 0 PUBLISH packets are now written to their end."""
        if self._out:
            self._write()
        done, marks = 0, self._marks
        while marks and marks[0] <= self._written:
            marks.popleft()
            done += 1
        return done

    def _write(self) -> None:
        try:
            while self._out:
                n = self._socket.send(self._out)
                self._written += n
                del self._out[:n]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._ended = True

    # What paho calls.

    def recv(self, size: int) -> bytes:
        data = self._in[self._read : self._read + size]
        if not data and size and not self._ended:
            raise BlockingIOError
        self._read += len(data)
        return data

    def send(self, packet: bytes | bytearray) -> int:
        """Gather one packet; windows above this bound how much comes."""
        self._out += packet
        self._accepted += len(packet)
        if packet[0] & _TYPE_AND_QOS == _PUBLISH_QOS_0:
            self._marks.append(self._accepted)
        return len(packet)

    def close(self) -> None:
        """Write the last packet (DISCONNECT) if the kernel takes it, and close."""
        if not self.closed:
            self.closed = True
            self._write()
            self._in, self._read = b"", 0
            self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        """Stays as it is: non-blocking."""

    def pending(self) -> int:
        return 0
