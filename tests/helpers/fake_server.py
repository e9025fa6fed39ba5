"""The server below the fake brokers: a listener on loopback, and a thread for each connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class ServedPeer(Protocol):
    """One connection of a client."""

    def serve(self) -> None:
        """Handle what comes until the connection ends."""

    def drop(self) -> None:
        """Close the connection."""


P = TypeVar("P", bound=ServedPeer)


class FakeServer(Generic[P]):
    """A server that serves until it is closed; a context manager.

    :param make_peer: makes the peer of a connected socket.
    :ivar peers: connections, oldest first. :ivar host: ``127.0.0.1:PORT``. :ivar url: the same with the scheme.
    """

    def __init__(self, scheme: str, make_peer: Callable[[socket.socket], P]) -> None:
        self.peers: list[P] = []
        self._make_peer = make_peer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"{scheme}://{self.host}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            peer = self._make_peer(connected)
            self.peers.append(peer)
            thread = threading.Thread(target=peer.serve)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Close all connections and the listener."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for peer in self.peers:
            peer.drop()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
