"""TLS on a socket that is read with the kernel's stamps.

``ssl.SSLSocket`` reads its socket itself, so the stamps of packets are lost. Here OpenSSL works in
memory, and records are read by a
:class:`~pytest_loadtest.drivers.arrival_clock.SocketReader`. Messages have the time of the read
    that completes their record.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.arrival_clock import ArrivalClock, SocketReader

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


# Bytes of one read: several records, of which each has 16 KiB at most.
_READ: Final = 1 << 16
_PIECE: Final = 1 << 16  # bytes encrypted at once


class TlsStream(SocketReader):
    """A connected socket that does not block, with TLS.

    Attributes as in :class:`SocketReader`; they are those of the bytes below TLS.

    :param host: checked against the certificate.
    :ivar session: the TLS session, for its version and cipher.
    """

    __slots__ = ("_decrypt", "_incoming", "_outgoing", "_plain", "_raw", "_sealed", "session")

    def __init__(
        self,
        connected: socket.socket,
        clock: ArrivalClock,
        context: ssl.SSLContext,
        host: str,
        *,
        units: int = 0,
    ) -> None:
        super().__init__(connected, clock, units=units)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        # With a buffer it returns a number.
        self._decrypt: Callable[[int, memoryview], int]
        self._decrypt = self.session.read  # type: ignore[assignment]
        self._raw = memoryview(bytearray(_READ))
        self._sealed = b""  # encrypted bytes that the kernel has not taken
        self._plain = 0  # number of plain bytes in them

    def shake_hands(self) -> None:
        """Advance the handshake.

        :raises ssl.SSLWantReadError: it waits for bytes.
        :raises ssl.SSLWantWriteError: the socket is full.
        :raises OSError: it failed.
        """
        while True:
            try:
                self.session.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._read_record()
            except ssl.SSLError:
                # The alert tells the broker the reason.
                self._sealed += self._outgoing.read()
                self._try_to_flush()
                raise
        self._flush()
        self.held = self._incoming.pending > 0

    def _read_record(self) -> None:
        try:
            count = super().read(self._raw)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if count:
            self._incoming.write(self._raw[:count])
        else:
            self._incoming.write_eof()

    def read(self, space: memoryview) -> int:
        """Read into ``space``; return the number of bytes, 0 at the end of the connection.

        :raises ssl.SSLWantReadError: no message is complete.
        :raises OSError: the connection failed.
        """
        if not self.held:
            self._read_record()
        size = 0
        try:
            while size < len(space) and (count := self._decrypt(len(space) - size, space[size:])):
                size += count
                if not self._incoming.pending:
                    break
            # A read of nothing is the peer's farewell: what follows it is never decrypted.
            self.held = size > 0 and (self._incoming.pending > 0 or self.session.pending() > 0)
        except ssl.SSLWantReadError:
            self.held = False
            if not size:
                raise
        except ssl.SSLEOFError:
            # The peer closed the connection without a farewell, as many do.
            self.held = False
        return size

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send bytes; return how many the kernel has taken, at least one.

        :raises ssl.SSLWantWriteError: the kernel has not taken the whole record: the next call must
            begin with the same bytes.
        """
        if not self._plain:
            self._plain = self.session.write(memoryview(data)[:_PIECE])
        self._flush()
        taken = self._plain
        self._plain = 0
        return taken

    def _flush(self) -> None:
        """Write the encrypted bytes.

        :raises ssl.SSLWantWriteError: the kernel has not taken all.
        """
        self._sealed += self._outgoing.read()
        if not self._try_to_flush():
            raise ssl.SSLWantWriteError

    def _try_to_flush(self) -> bool:
        try:
            while self._sealed:
                self._sealed = self._sealed[self._socket.send(self._sealed) :]
        except BlockingIOError:
            return False
        return True
