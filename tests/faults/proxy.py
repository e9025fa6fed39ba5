"""A TCP proxy between clients and a broker that cuts connections, lets them fall silent, or slows them down."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

CHUNK = 65_536
PUBLISH = 3  # the type of an MQTT packet


class Proxy:
    """Passes bytes on until it is closed; a context manager.

    :param url: of the broker. :ivar url: its own address, with the same scheme.
    :ivar rate: bytes a second from the broker to each client; None: no limit. :ivar port: port of the broker.
    """

    def __init__(self, url: str) -> None:
        broker = urlsplit(url)
        self.port, self._host = broker.port, broker.hostname
        self.rate: float | None = None
        self._lock, self._pairs, self._silent = (
            threading.Lock(),
            list[tuple[socket.socket, socket.socket]](),
            set[socket.socket](),
        )
        self._threads, self._publishers = list[threading.Thread](), list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{broker.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def cut(self) -> None:
        """Close every connection on both sides."""
        for end in self._ends():
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> None:
        """Pass nothing on any more on the connections that exist, as if a machine on the way had lost its state: no end is sent."""
        self._silent.update(self._ends())

    def silence_publisher(self) -> None:
        """Pass nothing on any more on the connection of the client that published first: its topic is dead."""
        first = self._publishers[0]
        with self._lock:
            self._silent.update(next(pair for pair in self._pairs if pair[0] is first))

    def _ends(self) -> list[socket.socket]:
        with self._lock:
            return [end for pair in self._pairs for end in pair]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection((self._host, self.port))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._pairs.append((client, broker))
                thread = threading.Thread(target=self._serve, args=(client, broker), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, broker: socket.socket) -> None:
        """Pass bytes on in both directions until both have ended."""
        with client, broker:
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pass_on, args=(broker, client, True), daemon=True)
            back.start()
            self._pass_on(client, broker, False)
            back.join()
            with self._lock:
                self._pairs.remove((client, broker))

    def _pass_on(self, here: socket.socket, there: socket.socket, slowed: bool) -> None:
        with suppress(OSError):
            while data := here.recv(
                CHUNK if self.rate is None or not slowed else max(int(self.rate / 20), 1)
            ):
                if here not in self._silent:
                    there.sendall(data)
                if not slowed and data[0] >> 4 == PUBLISH and here not in self._publishers:
                    self._publishers.append(here)
                if slowed and self.rate is not None:
                    time.sleep(len(data) / self.rate)
        if here not in self._silent:
            with suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)
