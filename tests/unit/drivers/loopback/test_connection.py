"""A worker's connection to a relay, which is a plain socket here."""

from __future__ import annotations

import select
import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.drivers.arrival_clock import RESOLUTION, ArrivalClock, stamps_work
from pytest_loadtest.drivers.loopback.connection import RelayConnection
from pytest_loadtest.errors import TargetError
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROUNDING = 12_000  # ns, as in the tests of the clock
COUNT = 100


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def connect(
    listening: socket.socket,
    topic: str | None = None,
    sources: tuple[str, ...] = (),
    clock: Callable[[], int] | None = None,
) -> RelayConnection:
    host, port = listening.getsockname()
    context: Any = SimpleNamespace(
        target=SimpleNamespace(url=f"loopback://{host}:{port}"), clock=clock or FakeClock(7), nonce=9, topology=SimpleNamespace(name=topic),
        sources=sources,
    )  # fmt: skip
    return RelayConnection(context, ArrivalClock(context.clock, kernel=None if clock else False))


def test_a_frame_carries_the_instant_of_its_read(listening: socket.socket) -> None:
    connection = connect(listening)
    peer, _ = listening.accept()
    peer.sendall(b"".join(frames.encode_frame(Kind.ACK, {}, n=3)))
    ((frame, instant, lag),) = connection.wait(10.0)
    assert (frame.kind, frame.n, instant, lag) == (Kind.ACK, 3, 7, -1)
    connection.close()
    peer.close()


@pytest.mark.skipif(not stamps_work(), reason="this kernel does not stamp packets")
def test_frames_that_came_while_a_wait_returned_late_have_their_own_times(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP in the system call, or without a core to wake up on; as far as the kernel has not merged their packets."""
    connection = connect(listening, clock=time.monotonic_ns)
    peer, _ = listening.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    select_now, frame, sent = (
        select.select,
        b"".join(frames.encode_frame(Kind.ACK, {}, n=1)),
        list[int](),
    )

    def return_late(*given: Any) -> Any:
        while given[-1] and len(sent) < COUNT:
            sent.append(time.monotonic_ns())
            peer.sendall(frame)
            while time.monotonic_ns() < sent[-1] + RESOLUTION:
                pass
        return select_now(*given)

    monkeypatch.setattr("pytest_loadtest.drivers.loopback.connection.select.select", return_late)
    received = connection.wait(10.0)
    while len(received) < COUNT:
        received += connection.wait(10.0)
    assert all(
        stamped.time >= before - ROUNDING for before, stamped in zip(sent, received, strict=True)
    )
    assert received[-1].time - received[0].time >= COUNT // 4 * RESOLUTION
    connection.close()
    peer.close()


def test_a_relay_that_hangs_up_is_a_failure_with_the_names_of_the_users(
    listening: socket.socket,
) -> None:
    connection = connect(listening)
    connection.users.append("consumers 0")
    peer, _ = listening.accept()
    peer.close()
    assert connection.wait(10.0) == []
    with pytest.raises(
        TargetError,
        match=r"lost consumers 0 at loopback://127\.0\.0\.1:\d+: the loopback relay closed the connection",
    ):
        connection.check()
    connection.close()


def test_a_connection_comes_from_the_first_source_address_of_its_worker(
    listening: socket.socket,
) -> None:
    connection = connect(listening, sources=("127.0.0.6", "127.0.0.5"))
    peer, address = listening.accept()
    assert address[0] == "127.0.0.6"
    peer.close()
    connection.close()


def test_runs_share_only_existing_topics(listening: socket.socket) -> None:
    own, shared, same = (
        connect(listening),
        connect(listening, "orders"),
        connect(listening, "orders"),
    )
    assert (own.run, own.first_topic) == (9, 0)
    assert (shared.run, shared.first_topic) == (
        same.run,
        same.first_topic,
    ) and shared.run == 0 != shared.first_topic
    for connection in (own, shared, same):
        connection.close()


def test_an_unreachable_relay_is_named(listening: socket.socket) -> None:
    context: Any = SimpleNamespace(
        target=SimpleNamespace(url="loopback://127.0.0.1:1"), clock=FakeClock(7), nonce=9, topology=SimpleNamespace(name=None),
        sources=(),
    )  # fmt: skip
    with pytest.raises(
        TargetError, match=r"cannot connect to the loopback relay at loopback://127\.0\.0\.1:1"
    ):
        RelayConnection(context, ArrivalClock(context.clock, kernel=False))
