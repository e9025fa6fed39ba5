"""A listening socket, and brokers that follow a script."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Script = list[bytes | None]


@pytest.fixture(scope="module")
def server() -> Iterator[socket.socket]:
    """A socket that listens on this machine."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
        yield listening


@pytest.fixture
def broker_reads() -> list[bytes]:
    """The bytes that scripted brokers read, one entry for each read."""
    return []


@pytest.fixture
def scripted(broker_reads: list[bytes]) -> Iterator[Callable[[Script], str]]:
    """A broker that sends one answer for each read; None closes the connection. Yields a function from answers to its address."""
    threads: list[threading.Thread] = []
    peers: list[socket.socket] = []
    listening = socket.create_server(("127.0.0.1", 0), backlog=8)

    def serve(answers: Script) -> None:
        peer, _ = listening.accept()
        while answers:
            data = peer.recv(4096)
            answer = (
                answers.pop(0) if data else None
            )  # no bytes: the driver only checked that the address answers
            if answer is None:
                peer.close()
                peer, _ = listening.accept()
            else:
                broker_reads.append(data)
                peer.sendall(answer)
        peers.append(peer)

    def start(answers: Script) -> str:
        thread = threading.Thread(target=serve, args=(answers,), daemon=True)
        thread.start()
        threads.append(thread)
        return "mqtt://{}:{}".format(*listening.getsockname())

    yield start
    for thread in threads:
        thread.join(10)
    for peer in peers:
        peer.close()
    listening.close()
