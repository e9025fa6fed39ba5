"""Start of connections in the loop of the MQTT drivers, and keep-alive checks."""

from __future__ import annotations

import os
import select
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import connected

from pytest_loadtest.drivers.mqtt.loop import MAX_OPENING, Loop
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.drivers.mqtt.paho.client import PacketSocket


def test_a_stall_of_the_loop_counts_for_what_it_was_handling() -> None:
    """Also if the connection has its turn before the stall is over for the loop; a slow poll of others is no stall."""
    clock = FakeClock()
    loop = Loop(clock)
    loop.poll(0)
    clock.now += 40 * MILLISECOND
    loop.poll(0)
    assert loop.stalled(0) == 0
    begin = clock.now
    clock.now += 300 * MILLISECOND
    assert loop.stalled(begin) == 300 * MILLISECOND
    loop.poll(0)
    clock.now += 20 * MILLISECOND
    loop.poll(0)
    assert loop.stalled(begin) == 300 * MILLISECOND
    assert loop.stalled(begin + 100 * MILLISECOND) == 200 * MILLISECOND
    assert loop.stalled(clock.now) == 0
    loop.close()


class Dialled:
    """A connection that only records when it was started."""

    name, failure, socket, endpoint = "one", None, None, None

    def __init__(self, clock: Any, started_at: list[int]) -> None:
        self._clock, self._begun = clock, started_at

    def dial(self) -> None:
        self._begun.append(self._clock())


def test_a_connection_is_started_when_it_is_due() -> None:
    """Not before, and in the order of their instants, not of the calls."""
    clock, started_at = FakeClock(0), list[int]()
    loop = Loop(clock)
    for at in (3, 1, 2):
        loop.start_at(Dialled(clock, started_at), at * SECOND)  # type: ignore[arg-type]
    for _ in range(8):
        loop.poll(0)
        clock.advance(SECOND // 2)
    assert started_at == [SECOND, 2 * SECOND, 3 * SECOND]
    loop.close()


def test_a_connection_beyond_64_handshakes_waits() -> None:
    """``freed`` is the instant at which there was room again."""
    clock, started_at = FakeClock(0), list[int]()
    loop = Loop(clock)
    dialled: list[Any] = [Dialled(clock, started_at) for _ in range(MAX_OPENING + 2)]
    for connection in dialled:
        loop.start_at(connection, 0)
    loop.poll(0)
    clock.advance(SECOND)
    loop.poll(0)
    loop.ended(Dialled(clock, started_at), -1)  # type: ignore[arg-type]
    assert (len(started_at), loop.freed) == (MAX_OPENING, 0), "one that was up before makes no room"
    loop.established(dialled[0])
    loop.ended(dialled[1], -1)
    clock.advance(SECOND)
    loop.poll(0)
    assert (started_at[MAX_OPENING:], loop.freed) == ([2 * SECOND] * 2, SECOND)
    loop.close()


class Begun(Exception):
    """Ends the loop's wait."""


class Waking(Dialled):
    """A connection that ends the loop's wait when it is started."""

    def dial(self) -> None:
        super().dial()
        raise Begun


def test_waiting_for_events_ends_when_the_next_connection_is_due() -> None:
    """Otherwise each connection would start late."""
    started_at: list[int] = []
    loop = Loop(time.monotonic_ns)
    due = time.monotonic_ns() + 20 * MILLISECOND
    loop.start_at(Waking(time.monotonic_ns, started_at), due)  # type: ignore[arg-type]
    with pytest.raises(Begun):
        loop.poll(60 * SECOND)
    assert due <= started_at[0] < due + 30 * SECOND
    loop.close()


@dataclass(eq=False)
class Checked:
    """The part of a connection that the loop uses; counts keep-alive checks."""

    socket: PacketSocket | None
    looks: int = 0

    def keep_alive(self) -> None:
        self.looks += 1


def test_each_connection_is_checked_sixteen_times_within_its_keep_alive(
    server: socket.socket,
) -> None:
    """Not after its end; after a reconnect only with its new socket."""
    clock, pairs = FakeClock(0), [connected(server) for _ in range(3)]
    loop = Loop(clock, 16 * SECOND)
    first, second = Checked(pairs[0][0]), Checked(pairs[1][0])
    loop.watch(first, pairs[0][0], select.EPOLLIN)  # type: ignore[arg-type]
    clock.advance(SECOND // 2)
    loop.watch(second, pairs[1][0], select.EPOLLIN)  # type: ignore[arg-type]
    looks = []
    for _ in range(32):
        clock.advance(SECOND // 2)
        loop.poll(0)
        looks.append((first.looks, second.looks))
    assert looks == [((i + 1) // 2, i // 2) for i in range(1, 33)]
    first.socket, second.socket = None, pairs[2][0]
    loop.watch(second, pairs[2][0], select.EPOLLIN)  # type: ignore[arg-type]
    for _ in range(16):
        clock.advance(SECOND)
        loop.poll(0)
    assert (first.looks, second.looks) == (16, 32)
    for sock, peer in pairs:
        sock.close()
        peer.close()
    loop.close()


def test_a_shorter_keep_alive_makes_all_checks_more_frequent(server: socket.socket) -> None:
    """Also those that were due later; a longer one, or none, changes nothing."""
    clock, pairs = FakeClock(0), [connected(server) for _ in range(2)]
    loop = Loop(clock, 160 * SECOND)
    checked = [Checked(sock) for sock, _ in pairs]
    for connection, (sock, _) in zip(checked, pairs, strict=True):
        loop.watch(connection, sock, select.EPOLLIN)  # type: ignore[arg-type]
        clock.advance(SECOND)
    for keep_alive in (16 * SECOND, 32 * SECOND, 0):
        loop.check_within(keep_alive)
    for _ in range(5):
        clock.advance(SECOND)
        loop.poll(0)
    assert [connection.looks for connection in checked] == [5, 5]
    for sock, peer in pairs:
        sock.close()
        peer.close()
    loop.close()


def test_a_closed_socket_causes_no_event_while_a_forked_process_has_it(
    server: socket.socket,
) -> None:
    """The test under load may fork; the kernel then keeps the connection, and epoll goes on watching it."""
    sock, peer = connected(server)
    loop = Loop(time.monotonic_ns)
    connection = Checked(sock)
    loop.watch(connection, sock, select.EPOLLIN)  # type: ignore[arg-type]
    descriptor = sock.fileno()
    inherited = os.dup(descriptor)
    sock.close()
    loop.ended(connection, descriptor)  # type: ignore[arg-type]
    peer.close()
    loop.poll(MILLISECOND)
    os.close(inherited)
    loop.close()
