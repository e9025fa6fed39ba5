"""A Pulsar proxy between client and broker, which keeps receipts or entries back when it is told to, and cuts connections."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import FrameDecoder, cut, encode

if TYPE_CHECKING:
    from types import TracebackType

Kind = api.Command.Type


class PulsarProxy:
    """Passes frames on between its clients and one broker. What it passes on it counts.

    :ivar withholds: it keeps receipts back. :ivar withheld: those that were not passed on.
    :ivar entries: of producers, that are still passed on; None: all. :ivar held: there was one more. :ivar stored: a receipt was passed on.
    :ivar asked_for: the brokers that clients asked it to connect them with.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.removeprefix("pulsar://").partition(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.withholds = False
        self.withheld = 0
        self.entries: int | None = None
        self.held, self.stored = threading.Event(), threading.Event()
        self.asked_for: set[str] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Every connection is gone."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
                with self._lock:
                    self._sockets += [client, broker]
                for here, there in ((client, broker), (broker, client)):
                    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pass_on, args=(here, there), daemon=True).start()

    def _pass_on(self, here: socket.socket, there: socket.socket) -> None:
        decoder = FrameDecoder()
        with suppress(OSError):
            while count := here.recv_into(decoder.space()):
                for frame in decoder.filled(count):
                    if data := self._changed(frame):
                        there.sendall(data)
            there.shutdown(socket.SHUT_RDWR)

    def _changed(self, frame: memoryview) -> bytes:
        command = api.Command.FromString(bytes(cut(frame)[0]))
        if command.type == Kind.SEND_RECEIPT and self.withholds:
            self.withheld += 1
            return b""
        if command.type == Kind.SEND_RECEIPT:
            self.stored.set()
        if command.type == Kind.SEND and self.entries is not None:
            if not self.entries:
                self.held.set()
                return b""
            self.entries -= 1
        if command.type == Kind.CONNECT and command.connect.HasField("proxy_to_broker_url"):
            self.asked_for.add(command.connect.proxy_to_broker_url)
            command.connect.ClearField("proxy_to_broker_url")
            return encode(command)
        if command.type == Kind.LOOKUP_RESPONSE:
            command.lookup_response.proxy_through_service_url = True
            return encode(command)
        return struct.pack(">I", len(frame)) + bytes(frame)
