"""What paho takes for its socket: one system call for many packets.

paho reads every packet with three or more ``recv`` calls, and writes each with a ``send`` of its own. Behind this class reads come from a
buffer that :meth:`PacketSocket.fill` fills, and writes gather until :meth:`PacketSocket.flush`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket

_PUBLISH_QOS_0: Final = 0x30
_TYPE_AND_QOS: Final = 0xF6  # of a packet's first byte: packet type and QoS, without DUP and RETAIN


class PacketSocket(BrokerSocket):
    """A connection as paho uses it.

    :raises OSError: the connection is refused at once.
    """

    def __init__(self, endpoint: BrokerEndpoint) -> None:
        super().__init__(endpoint)
        self._in, self._read = b"", 0
        self._accepted = 0
        self._marks: deque[int] = deque()  # where each QoS 0 PUBLISH ends in the stream of bytes

    def fill(self) -> None:
        """Read once what the kernel has."""
        data = self.read()
        if data is not None:
            self._in, self._read = self._in[self._read :] + data, 0

    @property
    def unread(self) -> bool:
        """Whether :meth:`recv` has something to say: bytes, or the end of the connection."""
        return self._read < len(self._in) or (self.ended and not self.closed)

    def flush(self) -> int:
        """Write what the kernel takes; return how many QoS 0 PUBLISH packets are now written to their end."""
        if self._out:
            self.write()
        done, marks = 0, self._marks
        while marks and marks[0] <= self.written:
            marks.popleft()
            done += 1
        return done

    # What paho calls.

    def recv(self, size: int) -> bytes:
        data = self._in[self._read : self._read + size]
        if not data and size and not self.ended:
            raise BlockingIOError
        self._read += len(data)
        return data

    def send(self, packet: bytes | bytearray) -> int:
        """Gather one packet; windows above this bound how much comes."""
        self.put(packet)
        self._accepted += len(packet)
        if packet[0] & _TYPE_AND_QOS == _PUBLISH_QOS_0:
            self._marks.append(self._accepted)
        return len(packet)

    def close(self) -> None:
        """Write the last packet (DISCONNECT) if the kernel takes it, and close."""
        super().close()
        self._in, self._read = b"", 0

    def setblocking(self, flag: bool) -> None:
        """Stays as it is: non-blocking."""

    def pending(self) -> int:
        return 0
