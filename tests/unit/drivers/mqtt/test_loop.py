"""When the loop of the MQTT drivers begins connections."""

from __future__ import annotations

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


class Dialled:
    """A connection that only notes when it was begun."""

    name, failure, socket, endpoint = "one", None, None, None

    def __init__(self, clock: Any, begun: list[int]) -> None:
        self._clock, self._begun = clock, begun

    def dial(self) -> None:
        self._begun.append(self._clock())


def test_each_is_begun_when_it_is_due() -> None:
    """Not before, and in the order of their instants, whatever the order in which they were asked for."""
    clock, begun = FakeClock(0), list[int]()
    loop = Loop(clock)
    for at in (3, 1, 2):
        loop.start_at(Dialled(clock, begun), at * SECOND)  # type: ignore[arg-type]
    for _ in range(8):
        loop.poll(0)
        clock.advance(SECOND // 2)
    assert begun == [SECOND, 2 * SECOND, 3 * SECOND]
    loop.close()


def test_a_full_set_is_waited_for_and_told() -> None:
    """Beyond 64 handshakes at once the next one waits; since when there was room again is known."""
    clock, begun = FakeClock(0), list[int]()
    loop = Loop(clock)
    made: list[Any] = [Dialled(clock, begun) for _ in range(MAX_OPENING + 2)]
    for one in made:
        loop.start_at(one, 0)
    loop.poll(0)
    clock.advance(SECOND)
    loop.poll(0)
    loop.ended(Dialled(clock, begun), -1)  # type: ignore[arg-type]
    assert (len(begun), loop.freed) == (MAX_OPENING, 0), "one that was up before makes no room"
    loop.established(made[0])
    loop.ended(made[1], -1)
    clock.advance(SECOND)
    loop.poll(0)
    assert (begun[MAX_OPENING:], loop.freed) == ([2 * SECOND] * 2, SECOND)
    loop.close()


class Begun(Exception):
    """Ends the loop's wait."""


class Waking(Dialled):
    """The same, and the test goes on."""

    def dial(self) -> None:
        super().dial()
        raise Begun


def test_waiting_ends_when_the_next_one_is_due() -> None:
    """A wait for events is no longer than that, or each would be begun late by what is left of it."""
    begun: list[int] = []
    loop = Loop(time.monotonic_ns)
    due = time.monotonic_ns() + 20 * MILLISECOND
    loop.start_at(Waking(time.monotonic_ns, begun), due)  # type: ignore[arg-type]
    with pytest.raises(Begun):
        loop.poll(60 * SECOND)
    assert due <= begun[0] < due + 30 * SECOND
    loop.close()


@dataclass(eq=False)
class Looked:
    """What the loop holds of a connection; counts how often it is looked at."""

    socket: PacketSocket | None
    looks: int = 0

    def keep_alive(self) -> None:
        self.looks += 1


def test_each_connection_is_looked_at_within_its_keep_alive(server: socket.socket) -> None:
    """Sixteen times, each at its own instants; one that has ended no more, and one that was dialled again under its new socket only."""
    clock, pairs = FakeClock(0), [connected(server) for _ in range(3)]
    loop = Loop(clock, 16 * SECOND)
    first, second = Looked(pairs[0][0]), Looked(pairs[1][0])
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
    loop.close()
    for sock, peer in pairs:
        sock.close()
        peer.close()
