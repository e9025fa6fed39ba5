"""TLS in memory on a real socket, with a peer that uses ``ssl.SSLSocket``."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.certificates import keys_of_run
from pytest_loadtest.drivers.arrival_clock import ArrivalClock, stamps_work
from pytest_loadtest.drivers.tls_stream import TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_loadtest.brokers.certificates import KeysOfRun

PATIENCE = 30.0  # s


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeysOfRun:
    folder: Path = tmp_path_factory.mktemp("keys")
    return keys_of_run(folder, client=None)


class Ends:
    """A client, and a peer that runs in a thread."""

    def __init__(
        self, keys: KeysOfRun, serve: Callable[[ssl.SSLSocket], None], host: str = "localhost"
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys.server.certificate, keys.server.key)
        server = socket.create_server(("127.0.0.1", 0))
        self._sockets = [server, socket.create_connection(server.getsockname())]
        self.socket = self._sockets[1]
        self.socket.setblocking(False)
        accepted, _ = server.accept()

        def run() -> None:
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(accepted, server_side=True) as peer,
            ):
                serve(peer)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self.stream = TlsStream(
            self.socket,
            ArrivalClock(time.monotonic_ns),
            ssl.create_default_context(cafile=keys.authority),
            host,
        )

    def until(self, step: Callable[[], int | None]) -> int | None:
        """Repeat a step until it no longer waits for the socket."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                assert select.select((self.socket,), (), (), PATIENCE)[0], "nothing to read"
            except ssl.SSLWantWriteError:
                assert select.select((), (self.socket,), (), PATIENCE)[1], "no room"

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._thread.join(PATIENCE)


@pytest.fixture
def connect(keys: KeysOfRun) -> Iterator[Callable[..., Ends]]:
    made: list[Ends] = []

    def start(serve: Callable[[ssl.SSLSocket], None], host: str = "localhost") -> Ends:
        made.append(Ends(keys, serve, host))
        return made[-1]

    yield start
    for ends in made:
        ends.close()


def echo(peer: ssl.SSLSocket) -> None:
    while data := peer.recv(1 << 16):
        peer.sendall(data)


def test_bytes_come_back_unchanged_whatever_their_number(connect: Callable[..., Ends]) -> None:
    """Fewer than a record, several records, and more than the socket takes at once."""
    ends = connect(echo)
    ends.until(ends.stream.shake_hands)
    assert ends.stream.session.version() in ("TLSv1.2", "TLSv1.3")
    space = memoryview(bytearray(1 << 16))
    for size in (1, 200, 100_000, 3_000_000):
        data, left, got = bytes(range(256)) * (size // 256 + 1), size, bytearray()
        while left or len(got) < size:
            if left:
                with contextlib.suppress(ssl.SSLWantWriteError):
                    left -= ends.stream.send(data[size - left : size])
            try:
                got += space[: ends.stream.read(space)]
            except ssl.SSLWantReadError:
                select.select((ends.socket,), (ends.socket,) if left else (), (), PATIENCE)
        assert got == data[:size]
    if stamps_work():
        assert 0 <= ends.stream.lag <= time.monotonic_ns() - ends.stream.arrived


def test_bytes_that_do_not_fit_are_held_for_the_next_read(connect: Callable[..., Ends]) -> None:
    """epoll does not report them, as they have left the socket."""
    ends = connect(echo)
    ends.until(ends.stream.shake_hands)
    ends.until(lambda: ends.stream.send(b"0123456789"))
    space = memoryview(bytearray(4))
    read = ends.until(lambda: ends.stream.read(space))
    assert (read, bytes(space), ends.stream.held) == (4, b"0123", True)
    arrived = ends.stream.arrived
    assert (ends.stream.read(space), bytes(space), ends.stream.held) == (4, b"4567", True)
    assert ends.stream.arrived == arrived
    assert ends.stream.read(space) == 2
    with pytest.raises(ssl.SSLWantReadError):
        ends.stream.read(space)


@pytest.mark.parametrize("farewell", [True, False])
def test_the_end_of_the_connection_is_a_read_of_nothing(
    connect: Callable[..., Ends], farewell: bool
) -> None:
    """With and without TLS's own farewell."""

    def leave(peer: ssl.SSLSocket) -> None:
        if farewell:
            peer.unwrap()

    ends = connect(leave)
    ends.until(ends.stream.shake_hands)
    assert ends.until(lambda: ends.stream.read(memoryview(bytearray(10)))) == 0


def test_another_host_name_than_that_of_the_certificate_is_rejected(
    connect: Callable[..., Ends],
) -> None:
    ends = connect(echo, host="broker.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        ends.until(ends.stream.shake_hands)


def test_a_peer_that_hangs_up_during_the_handshake_is_an_error(
    connect: Callable[..., Ends], keys: KeysOfRun
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        client.setblocking(False)
        stream = TlsStream(
            client,
            ArrivalClock(time.monotonic_ns),
            ssl.create_default_context(cafile=keys.authority),
            "localhost",
        )
        with pytest.raises(ssl.SSLWantReadError):
            stream.shake_hands()
        server.accept()[0].close()
        select.select((client,), (), (), PATIENCE)
        with pytest.raises(OSError):
            while True:
                stream.shake_hands()
