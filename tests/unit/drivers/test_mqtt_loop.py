"""When the loop of the MQTT drivers begins connections."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pytest_loadtest.drivers.mqtt.loop import MAX_OPENING, Loop
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


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
