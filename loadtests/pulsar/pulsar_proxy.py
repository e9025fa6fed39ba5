"""A Pulsar proxy between client and broker that withholds receipts or entries on request, cuts connections, and sets a limit."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Self

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import FrameDecoder, encode_command, split_frame

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

Kind = api.Command.Type


class PulsarProxy:
    """Passes frames on between its clients and one broker. What it passes on it counts.

    :param largest: what clients are told of the broker's maxMessageSize, bytes: they cut what is larger into chunks; None: the truth.
    :ivar withholds: it keeps receipts back. :ivar withheld: those that were not passed on.
    :ivar entries: of each producer, that are passed on; None: all. See :meth:`release`.
    :ivar held: there was one more. :ivar receipts: that were passed on. :ivar stored: there was one.
    :ivar asked_for: the brokers that clients asked it to connect them with.
    """

    def __init__(self, broker: str, largest: int | None = None) -> None:
        host, _, port = broker.removeprefix("pulsar://").partition(":")
        self._broker, self._largest = (host, int(port)), largest
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._lock, self._gate = (
            threading.Lock(),
            threading.Lock(),
        )  # the gate: on the way to the broker
        self.withholds = False
        self.withheld = 0
        self.entries: int | None = None
        self._entries: Counter[int] = Counter()  # passed on, by producer
        self._kept: list[tuple[socket.socket, bytes]] = []
        self.receipts = 0
        self.held, self.stored = threading.Event(), threading.Event()
        self.asked_for: set[str] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def release(self) -> None:
        """Pass all entries on, the withheld ones first, in order."""
        with self._gate:
            self.entries = None
            for there, data in self._kept:
                with suppress(OSError):  # cut meanwhile: its client sends it again
                    there.sendall(data)
            self._kept.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
                with self._lock:
                    self._sockets += [client, broker]
                for here, there, gate in (
                    (client, broker, self._gate),
                    (broker, client, nullcontext()),
                ):
                    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=self._pass_on, args=(here, there, gate), daemon=True
                    ).start()

    def _pass_on(
        self, here: socket.socket, there: socket.socket, gate: AbstractContextManager[object]
    ) -> None:
        decoder = FrameDecoder()
        with suppress(OSError):
            while count := here.recv_into(decoder.space()):
                for frame in decoder.filled(count):
                    with gate:
                        if data := self._changed(frame, there):
                            there.sendall(data)
            there.shutdown(socket.SHUT_RDWR)

    def _changed(self, frame: memoryview, there: socket.socket) -> bytes:
        plain = struct.pack(">I", len(frame)) + bytes(frame)
        command = api.Command.FromString(bytes(split_frame(frame)[0]))
        if command.type == Kind.SEND_RECEIPT and self.withholds:
            self.withheld += 1
            return b""
        if command.type == Kind.SEND_RECEIPT:
            self.receipts += 1
            self.stored.set()
        if command.type == Kind.SEND:
            if self.entries is not None and self._entries[command.send.producer_id] >= self.entries:
                self._kept.append((there, plain))
                self.held.set()
                return b""
            self._entries[command.send.producer_id] += 1
        if command.type == Kind.CONNECTED and self._largest is not None:
            command.connected.max_message_size = self._largest
            return encode_command(command)
        if command.type == Kind.CONNECT and command.connect.HasField("proxy_to_broker_url"):
            self.asked_for.add(command.connect.proxy_to_broker_url)
            command.connect.ClearField("proxy_to_broker_url")
            return encode_command(command)
        if command.type == Kind.LOOKUP_RESPONSE:
            command.lookup_response.proxy_through_service_url = True
            return encode_command(command)
        return plain
