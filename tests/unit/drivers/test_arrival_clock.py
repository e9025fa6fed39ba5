"""Arrival times from the kernel: conversion while the wall clock is set, and reads of real sockets."""

from __future__ import annotations

import bisect
import contextlib
import os
import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers import arrival_clock
from pytest_loadtest.drivers.arrival_clock import (
    RESOLUTION,
    ArrivalClock,
    SocketReader,
    stamps_work,
)
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDING = (
    12_000  # ns: a smaller step is taken for an interruption, or for a drift of the given clock
)
needs_stamps = pytest.mark.skipif(not stamps_work(), reason="this kernel does not stamp packets")


class Machine:
    """A machine whose wall clock is set, and whose given clock drifts against it.

    :param steps: instants and sizes, ns. :param drift: parts per million.
    """

    def __init__(self, steps: list[tuple[int, int]], drift: int, cost: int) -> None:
        self.time = SECOND  # true time
        self._at = [at for at, _ in sorted(steps)]
        self._offsets = [10**18]
        for _, step in sorted(steps):
            self._offsets.append(self._offsets[-1] + step)
        self._drift, self._cost = drift, cost

    def now(self) -> int:
        self.time += self._cost
        return self.given(self.time)

    def given(self, at: int) -> int:
        return at + at * self._drift // 10**6

    def wall(self) -> int:
        self.time += self._cost
        return self.stamp(self.time)

    def stamp(self, at: int) -> int:
        return at + self._offsets[bisect.bisect(self._at, at)]


steps = st.tuples(
    st.integers(1_500_000_000, 3 * SECOND),
    st.one_of(st.integers(-(10**13), 10**13), st.integers(-(10**6), 10**6)),
)


@given(step=steps, drift=st.integers(-100, 100), cost=st.integers(20, 200), data=st.data())
def test_a_step_of_the_wall_clock_never_moves_an_arrival(
    step: tuple[int, int], drift: int, cost: int, data: st.DataObject
) -> None:
    """In either direction, of any size: an arrival is true within the precision of the clocks, or unknown."""
    machine = Machine([step], drift, cost)
    clock = ArrivalClock(machine.now, machine.wall, kernel=True)
    unknown = 0
    for _ in range(40):
        waits = data.draw(st.integers(0, 100 * MILLISECOND))
        arrived = machine.time + data.draw(st.integers(0, waits))
        machine.time += waits
        now = clock.check()
        converted = clock.convert(machine.stamp(arrived), now)
        if converted is None:
            unknown += 1
        else:
            # Since the last check the given clock may have drifted, and a smaller step is taken for that.
            assert abs(converted - machine.given(arrived)) <= ROUNDING + waits // 5_000
            assert converted <= now
    assert unknown <= 2, "only what arrived around the step"


def test_without_steps_every_stamp_is_usable() -> None:
    machine = Machine([], 0, 50)
    clock = ArrivalClock(machine.now, machine.wall, kernel=True)
    for lag in (0, 1_000, 500 * MILLISECOND):
        machine.time += SECOND
        arrived = machine.time - lag
        converted = clock.convert(machine.stamp(arrived), clock.check())
        assert converted is not None and abs(converted - machine.given(arrived)) <= 100


def test_a_stamp_of_the_future_or_from_before_the_socket_is_unknown() -> None:
    machine = Machine([], 0, 50)
    clock = ArrivalClock(machine.now, machine.wall, kernel=True)
    now = clock.check()
    assert clock.convert(machine.stamp(machine.time + MILLISECOND), now) is None


class Interrupted(Machine):
    """A machine that stops this process between two looks at its clocks."""

    def wall(self) -> int:
        wall = super().wall()
        self.time += 5 * MILLISECOND
        return wall


def test_interrupted_measurements_do_not_widen_what_is_known() -> None:
    machine = Machine([], 0, 50)
    clock = ArrivalClock(machine.now, machine.wall, kernel=True)
    machine.__class__ = Interrupted
    for _ in range(3):
        arrived = machine.time
        machine.time += SECOND
        converted = clock.convert(machine.stamp(arrived), clock.check())
        assert converted is not None and abs(converted - machine.given(arrived)) <= 100


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A sender and a receiver."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
    ):
        receiver, _ = server.accept()
        with receiver:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            receiver.setblocking(False)
            yield sender, receiver


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with connected() as pair:
        yield pair


@pytest.fixture(scope="module", autouse=True)
def stamping() -> Iterator[None]:
    """Keep a socket open for which the kernel stamps packets.

    Linux begins to stamp in a task of its own after the first socket asks for it, which a busy machine delays, and stops after the last.
    """
    with connected() as (sender, receiver):
        reader = SocketReader(receiver, ArrivalClock(time.monotonic_ns))
        deadline = time.monotonic() + 60
        lag = -1
        while lag < 0 and stamps_work() and time.monotonic() < deadline:
            sender.send(b"m")
            ((_, _, lag),) = read_all(reader, 1)
        yield


def read_all(reader: SocketReader, wanted: int) -> list[tuple[int, int, int]]:
    """Return the size, the arrival and the lag of each read, until ``wanted`` bytes have come."""
    space, reads, total = memoryview(bytearray(1 << 16)), list[tuple[int, int, int]](), 0
    while total < wanted:
        with contextlib.suppress(BlockingIOError):
            total += (size := reader.read(space))
            reads.append((size, reader.arrived, reader.lag))
    return reads


@needs_stamps
def test_a_read_has_the_time_of_the_arrival_and_not_its_own(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns)
    reader = SocketReader(receiver, clock)
    before = time.monotonic_ns()
    sender.send(b"message")
    after = time.monotonic_ns()
    while time.monotonic_ns() < after + 2 * MILLISECOND:
        pass
    ((_, arrived, lag),) = read_all(reader, 7)
    assert clock.source == "kernel"
    assert before - ROUNDING <= arrived <= after + ROUNDING
    assert arrived + lag >= after + 2 * MILLISECOND


def test_a_look_that_reports_not_all_sockets_does_not_show_that_the_others_were_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrival_clock, "_MOST_EVENTS", 3)
    clock = ArrivalClock(time.monotonic_ns, kernel=False)
    reading, writing = os.pipe()
    readable = [reading, os.dup(reading), os.dup(reading)]
    try:
        with select.epoll() as epoll:
            epoll.register(readable[0], select.EPOLLIN)
            os.write(writing, b"x")
            before = time.monotonic_ns()
            assert len(clock.wait(epoll, 0)) == 1
            clock.wait(epoll, 0)
            assert clock.looked >= before, "one of one"
            for fd in readable[1:]:
                epoll.register(fd, select.EPOLLIN)
            clock.wait(epoll, 0)
            known = clock.looked
            clock.wait(epoll, 0)
            clock.wait(epoll, 0)
            assert clock.looked == known, "three of perhaps more than three"
    finally:
        for fd in (*readable, writing):
            os.close(fd)


@pytest.mark.parametrize("seconds", [0.0005, 0.0031])
def test_a_wait_ends_with_its_first_event(seconds: float) -> None:
    clock = ArrivalClock(time.monotonic_ns, kernel=False)
    reading, writing = os.pipe()
    try:
        with select.epoll() as epoll:
            epoll.register(reading, select.EPOLLIN)
            began = time.monotonic_ns()
            assert clock.wait(epoll, seconds) == []
            assert time.monotonic_ns() - began >= int(seconds * 1000) * MILLISECOND, (
                "not before its time"
            )
            os.write(writing, b"x")
            assert clock.wait(epoll, seconds) == [(reading, select.EPOLLIN)]
    finally:
        os.close(reading)
        os.close(writing)


@needs_stamps
def test_packets_that_came_while_nobody_looked_have_their_own_times(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """As far as the kernel has not merged them, which it does with some tens of small packets."""
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns)
    reader = SocketReader(receiver, clock)
    sender.send(b"first")
    read_all(reader, 5)
    sent = []
    for _ in range(100):
        sent.append(time.monotonic_ns())
        sender.send(b"m" * 100)
        while time.monotonic_ns() < sent[-1] + RESOLUTION:
            pass
    clock.look(sent[0])
    clock.look(time.monotonic_ns())
    reads = read_all(reader, 10_000)
    assert len(reads) > 1
    arrivals = [arrived for _, arrived, _ in reads]
    assert arrivals == sorted(arrivals)
    # The last packet of each read is the one whose time it has.
    ends_at = 0
    for size, arrived, lag in reads:
        ends_at += size
        assert arrived >= sent[-(-ends_at // 100) - 1] - ROUNDING
        assert arrived + lag <= time.monotonic_ns()
    assert reads[0][2] - reads[-1][2] >= 20 * RESOLUTION


class PeekedSocket(socket.socket):
    """Counts looks at bytes that stay in the kernel."""

    peeks = 0

    def recvmsg_into(self, buffers: Any, space: int = 0, flags: int = 0) -> Any:
        self.peeks += bool(flags & socket.MSG_PEEK)
        return super().recvmsg_into(buffers, space, flags)


def spend(ns: int) -> None:
    end = time.monotonic_ns() + ns
    while time.monotonic_ns() < end:
        pass


@needs_stamps
def test_a_socket_that_was_empty_at_the_end_of_a_wait_is_read_at_once(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """However long the wait was: what came since then came within the resolution."""
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns)
    with PeekedSocket(fileno=os.dup(receiver.fileno())) as peeked, select.epoll() as epoll:
        epoll.register(peeked, select.EPOLLIN)
        reader = SocketReader(peeked, clock)
        deadline = time.monotonic() + 60  # a busy machine may interrupt each of some tries
        while time.monotonic() < deadline:
            assert clock.wait(epoll, 3 * RESOLUTION / SECOND) == []
            sender.send(b"message")
            before = peeked.peeks
            assert clock.wait(epoll, 1)
            reader.read(memoryview(bytearray(100)))
            if peeked.peeks == before:
                return
        pytest.fail("it was looked at in pieces each time")


@needs_stamps
def test_what_came_just_now_is_read_in_one_piece(ends: tuple[socket.socket, socket.socket]) -> None:
    """One look at the first packet is enough, although nobody looked for a long time."""
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns)
    with PeekedSocket(fileno=os.dup(receiver.fileno())) as peeked:
        reader = SocketReader(peeked, clock)
        deadline = time.monotonic() + 60  # a busy machine may interrupt each of some tries
        while time.monotonic() < deadline:
            spend(2 * RESOLUTION)
            sender.send(b"message")
            before = peeked.peeks
            clock.look(time.monotonic_ns())
            reader.read(memoryview(bytearray(100)))
            if peeked.peeks == before + 1:
                return
        pytest.fail("it was looked at several times each time")


class LateEpoll:
    """An epoll whose wait returns 100 ms after its first event, as after SIGSTOP; ``sent`` has when each packet was sent."""

    def __init__(self, sender: socket.socket, receiver: socket.socket) -> None:
        self._sender, self._epoll = sender, select.epoll()
        self._epoll.register(receiver, select.EPOLLIN)
        self.sent: list[int] = []

    def fileno(self) -> int:
        return self._epoll.fileno()

    def poll(self, seconds: float, most: int) -> list[tuple[int, int]]:
        while seconds and len(self.sent) < 100:
            self.sent.append(time.monotonic_ns())
            self._sender.send(b"m" * 100)
            while time.monotonic_ns() < self.sent[-1] + RESOLUTION:
                pass
        return self._epoll.poll(seconds, most)


@needs_stamps
@pytest.mark.parametrize("high", [True, False], ids=["high descriptor", "low descriptor"])
def test_packets_that_came_while_a_wait_returned_late_have_their_own_times(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, high: bool
) -> None:
    """Whatever the way of waiting; as far as the kernel has not merged them."""
    sender, receiver = ends
    clock, epoll = ArrivalClock(time.monotonic_ns), LateEpoll(sender, receiver)
    reader = SocketReader(receiver, clock)
    watched: Any = epoll
    sender.send(b"first")
    read_all(reader, 5)
    assert clock.wait(watched, 0) == []
    monkeypatch.setattr(arrival_clock, "_FD_SETSIZE", 0 if high else 1024)
    monkeypatch.setattr(
        select,
        "select",
        lambda given, _out, _other, seconds: (
            [given[0]] if given[0].poll(seconds, 1) else [],
            [],
            [],
        ),
    )
    assert clock.wait(watched, 0.02)
    reads = read_all(reader, 10_000)
    assert all(
        arrived >= epoll.sent[sum(size for size, _, _ in reads[: i + 1]) // 100 - 1] - ROUNDING
        for i, (_, arrived, _) in enumerate(reads)
    )
    assert reads[-1][1] - reads[0][1] >= 20 * RESOLUTION


@needs_stamps
@pytest.mark.parametrize(("units", "sizes"), [(5, [100]), (4, [4, 96])])
def test_packets_smaller_than_a_message_do_not_split_messages(
    ends: tuple[socket.socket, socket.socket], units: int, sizes: list[int]
) -> None:
    """Such as those that follow each message at QoS 2 of MQTT."""
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns)
    reader = SocketReader(receiver, clock, units=units)
    for size in (4, 4, 100, 4):  # the first two are answers to the first requests
        sender.send(b"m" * size)
        read_all(reader, size)
    sender.send(b"m" * 100)
    late = time.monotonic_ns() + 2 * RESOLUTION
    while time.monotonic_ns() < late:
        pass
    clock.look(reader.taken + 1)
    clock.look(time.monotonic_ns())
    assert [size for size, _, _ in read_all(reader, 100)] == sizes


def test_without_stamps_arrivals_have_the_time_of_the_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """And the lag is unknown, not 0."""
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns, kernel=False)
    reader = SocketReader(receiver, clock)
    sender.send(b"message")
    after = time.monotonic_ns()
    ((size, arrived, lag),) = read_all(reader, 7)
    assert (size, lag, clock.source, clock.unusable) == (7, -1, "client", None)
    assert arrived >= after


@needs_stamps
def test_a_missing_stamp_is_counted_and_has_the_time_of_the_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = ends
    clock = ArrivalClock(time.monotonic_ns)
    reader = SocketReader(receiver, clock)
    receiver.setsockopt(socket.SOL_SOCKET, 35, 0)
    sender.send(b"message")
    before = time.monotonic_ns()
    ((_, arrived, lag),) = read_all(reader, 7)
    assert (lag, clock.unusable) == (-1, 1)
    assert before <= arrived <= time.monotonic_ns()


def test_bytes_that_came_before_a_reset_are_read(ends: tuple[socket.socket, socket.socket]) -> None:
    """Also if they waited: a socket that was reset no longer has a peer to look at."""
    sender, receiver = ends
    reader = SocketReader(receiver, ArrivalClock(time.monotonic_ns))
    sender.send(b"reason")
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sender.close()
    end = time.monotonic_ns() + 5 * RESOLUTION
    while time.monotonic_ns() < end:
        pass
    space = memoryview(bytearray(100))
    assert bytes(space[: reader.read(space)]) == b"reason"
    with pytest.raises(ConnectionResetError):
        reader.read(space)
