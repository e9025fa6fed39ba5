"""One thread that runs many: virtual threads on a virtual clock that jumps to the next event.

:class:`Simulation` keeps the events. :func:`virtual` replaces the clocks, threads, locks and queues of the standard library while a world
is played, so that the product's own code runs unchanged: ``time.monotonic_ns()`` reads the clock of the virtual host on which the calling
virtual thread runs, and ``queue.get(timeout=1)`` lets virtual time pass. Nothing of the product is replaced.

A virtual thread is a greenlet. It runs until it waits for something, so no two of them ever run at the same time, and the same events always
follow each other in the same order.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import gc
import heapq
import itertools
import os
import queue
import random
import secrets
import socket
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from greenlet import GreenletExit, getcurrent, greenlet
from pyarrow import parquet

from simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOOTED: Final = 1_000 * SECOND
"""The first instant of a world: monotonic clocks do not begin with 0."""
EPOCH: Final = 1_700_000_000 * SECOND
"""The wall clock less the monotonic clock of the controller's host, ns."""
BUSY: Final = 0.05
"""Cores that each process uses, by its CPU clock."""


class Deadlock(Exception):
    """Nothing can happen any more, and somebody still waits."""


@dataclass(eq=False)
class Process:
    """A process: a clock, and times in which it is stopped.

    :param clock: true time → the time of the monotonic clock of its host, ns. :param stops: ``(begin, end)`` in true time, ascending.
    """

    name: str
    clock: Callable[[int], int] = lambda now: now
    stops: list[tuple[int, int]] = field(default_factory=list)
    dead: bool = False

    def resumes(self, now: int) -> int:
        """Return when the process runs: now, or at the end of the stop that it is in."""
        for begin, end in self.stops:
            if begin <= now < end:
                now = end
        return now


class VirtualThread:
    """A thread of a virtual process, with the interface of ``threading.Thread`` that the product uses."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
        process: Process | None = None,
    ) -> None:
        self._simulation = running()
        self.process = process or self._simulation.process
        self.name, self.daemon = name, daemon
        self._call = (target or (lambda: None), args, kwargs or {})
        self._done = VirtualEvent()
        self.greenlet = greenlet(self._run, parent=self._simulation.hub)
        self.turn = 0
        """Grows whenever the thread begins or ends to wait, so that a later wake-up of an earlier wait is known."""
        self.label = f"{self.process.name} {name};".encode()

    def _run(self) -> None:
        function, args, kwargs = self._call
        try:
            function(*args, **kwargs)
        except GreenletExit:
            return
        self._done.set()

    def start(self) -> None:
        self._simulation.schedule(self, True)

    def join(self, timeout: float | None = None) -> None:
        if (
            not self._simulation.over
        ):  # the executors of its world are joined again when Python ends
            self._done.wait(timeout)

    def is_alive(self) -> bool:
        return not self._done.is_set()


class Simulation:
    """The events of a world.

    :ivar now: true time, ns. :ivar process: the process of the virtual thread that runs.
    """

    def __init__(self, seed: int) -> None:
        self.now = BOOTED
        self.hub = getcurrent()
        self.controller = Process("controller")
        self.process = self.controller
        self.thread: VirtualThread | None = None
        self.random = random.Random(seed)
        # Of its own, because what draws a secret once in a process must not change the rest.
        self.secrets = random.Random(seed)
        self.hash = blake2b(digest_size=16)
        self.failures: list[BaseException] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._threads: list[VirtualThread] = []
        self._deadline = BOOTED
        self.over = False
        self.target: Any = None
        """The model of the target, by which drivers find it."""
        self.disk_delay: Callable[[str], int] = lambda _: 0
        """Process → ns that a write of it takes now."""

    # --- events

    def at(self, when: int, call: Callable[[], None]) -> None:
        """Call a function at an instant, in the hub: it must not wait."""
        heapq.heappush(self._events, (max(when, self.now), next(self._number), call))

    def schedule(self, thread: VirtualThread, value: object) -> None:
        """Let a thread continue as soon as its process runs."""
        turn = thread.turn
        self.at(self.now, lambda: self._continue(thread, turn, value))

    def spawn(
        self, when: int, process: Process, call: Callable[..., object], *args: Any
    ) -> VirtualThread:
        """Run a function in a thread of its own of a process, from an instant on."""
        thread = VirtualThread(target=call, args=args, process=process)
        self.at(when, thread.start)
        return thread

    def _continue(self, thread: VirtualThread, turn: int, value: object) -> None:
        if thread.turn != turn or thread.process.dead:
            return
        resumes = thread.process.resumes(self.now)
        if resumes > self.now:
            self.at(resumes, lambda: self._continue(thread, turn, value))
            return
        thread.turn += 1
        if not thread.greenlet:
            self._threads.append(thread)
        self.thread, self.process = thread, thread.process
        self.hash.update(b"%d " % self.now + thread.label)
        try:
            thread.greenlet.switch(*(() if not thread.greenlet else (value,)))
        except Exception as error:  # of a thread that ends with it: the world is wrong
            self.failures.append(error)
        self.thread, self.process = None, self.controller

    def run(self, until: Callable[[], bool], deadline: int) -> bool:
        """Play events until a condition holds; return False if it does not at the deadline."""
        self._deadline = deadline
        while not until():
            if not self._events:
                raise Deadlock(f"at {self.now - BOOTED} ns")
            when, _, call = heapq.heappop(self._events)
            if when > deadline:
                return False
            self.now = when
            call()
            if self.failures:
                raise self.failures[0]
        return True

    def end(self) -> None:
        """End all threads that still wait."""
        self.over = True
        for thread in self._threads:
            if not thread.greenlet.dead:
                # What it does at its end reads the clock of its own process.
                self.thread, self.process = thread, thread.process
                with contextlib.suppress(Exception):
                    thread.greenlet.throw(GreenletExit)

    # --- waiting

    def wait(self, until: int | None = None) -> object:
        """Let other threads run until this one is continued, or until an instant; return its value, or False at the instant."""
        if self.over:
            raise GreenletExit
        thread = self.thread
        assert thread is not None, "only virtual threads wait"
        if until is not None:
            if self._is_next(until, thread.process):
                self.now = until
                self.hash.update(b"%d " % until + thread.label)
                return False
            turn = thread.turn
            self.at(until, lambda: self._continue(thread, turn, False))
        value = self.hub.switch()
        if self.over:
            raise GreenletExit
        return value

    def _is_next(self, when: int, process: Process) -> bool:
        """Return whether nothing else happens until an instant, so that the thread that runs may simply go on with it."""
        if (
            when <= self.now
            or when > self._deadline
            or (self._events and self._events[0][0] <= when)
        ):
            return False
        return not process.stops or process.resumes(when) == when

    def sleep(self, duration: int) -> None:
        """Let time pass for this thread, ns."""
        if duration > 0:
            self.wait(self.now + duration)
        elif self.thread is not None:
            self.stand_still()

    def stand_still(self) -> None:
        """Wait here if the process has been stopped since it began to run: a stop interrupts it between two reads of its clock."""
        if self.process.stops and self.process.resumes(self.now) > self.now:
            self.wait(self.now)

    def write_to_disk(self) -> None:
        """Let the time of a write pass for this thread."""
        delay = self.disk_delay(self.process.name)
        if delay and self.thread is not None:
            self.sleep(delay)

    def clock(self) -> int:
        """Return the monotonic clock of the running process, ns."""
        return self.process.clock(self.now)


_RUNNING: list[Simulation] = []


def running() -> Simulation:
    """Return the simulation that is played."""
    return _RUNNING[-1]


# --- the standard library


def _deadline(timeout: float | None) -> int | None:
    return None if timeout is None else running().now + round(timeout * SECOND)


class _Waiting:
    """Threads that wait for something of this object."""

    def __init__(self) -> None:
        self._waiting: deque[VirtualThread] = deque()

    def _wait(self, until: int | None) -> bool:
        simulation = running()
        if until is not None and until <= simulation.now:
            return False
        thread = simulation.thread
        assert thread is not None, "only virtual threads wait"
        self._waiting.append(thread)
        woken = bool(simulation.wait(until))
        if woken or thread not in self._waiting:
            # Not there: it was woken while its process was stopped, beyond its time.
            return True
        self._waiting.remove(thread)
        return False

    def _wake(self, count: int | None = None) -> None:
        for _ in range(len(self._waiting) if count is None else min(count, len(self._waiting))):
            running().schedule(self._waiting.popleft(), True)


class VirtualEvent(_Waiting):
    def __init__(self) -> None:
        super().__init__()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        until = _deadline(timeout)
        while not self._set:
            if not self._wait(until):
                break
        return self._set


class VirtualRLock(_Waiting):
    def __init__(self) -> None:
        super().__init__()
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = running().thread or running()
        until = None if timeout < 0 else _deadline(timeout)
        while self._owner is not None and self._owner is not me:
            if not blocking or not self._wait(until):
                return False
        self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._owner = None
            self._wake(1)

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class VirtualLock(VirtualRLock):
    """A lock that its owner cannot take twice."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        until = None if timeout < 0 else _deadline(timeout)
        while self._owner is not None:
            if not blocking or not self._wait(until):
                return False
        self._owner = self
        self._count = 1
        return True


class VirtualCondition(_Waiting):
    def __init__(self, lock: VirtualRLock | None = None) -> None:
        super().__init__()
        self._lock = lock or VirtualRLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._wait(_deadline(timeout))
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = _deadline(timeout)
        while not predicate():
            left = None if until is None else (until - running().now) / SECOND
            if left is not None and left <= 0:
                break
            self.wait(left)
        return predicate()

    def notify(self, n: int = 1) -> None:
        self._wake(n)

    def notify_all(self) -> None:
        self._wake()


class VirtualSemaphore(_Waiting):
    def __init__(self, value: int = 1) -> None:
        super().__init__()
        self._value = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        until = _deadline(timeout)
        while not self._value:
            if not blocking or not self._wait(until):
                return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._value += n
        self._wake(n)


class VirtualQueue(_Waiting):
    """``queue.SimpleQueue``."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__()
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        self._wake(1)

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until = _deadline(timeout)
        while not self._items:
            if not block or not self._wait(until):
                raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


def _written_slowly(
    simulation: Simulation, write: Callable[..., None], *args: Any, **options: Any
) -> None:
    simulation.write_to_disk()
    write(*args, **options)


def _no_process(*_: object, **__: object) -> Any:
    raise OSError("a world has no child processes")


def _no_socket(*_: object, **__: object) -> Any:
    raise OSError("a world has no sockets")


@contextlib.contextmanager
def virtual(seed: int) -> Iterator[Simulation]:
    """Replace clocks, threads, locks, queues and secrets of the standard library until the end of the block."""
    simulation = Simulation(seed)
    clock = simulation.clock

    def cpu() -> int:
        return round((simulation.now - BOOTED) * BUSY)

    def wall() -> int:
        return simulation.now + EPOCH

    owner, really_sleep = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        # Threads of others, as of a session of Spark, live in real time.
        if threading.get_ident() == owner:
            simulation.sleep(round(seconds * SECOND))
        else:
            really_sleep(seconds)

    replaced: dict[Any, dict[str, Any]] = {
        time: {
            "monotonic_ns": clock,
            "monotonic": lambda: clock() / SECOND,
            "perf_counter_ns": clock,
            "perf_counter": lambda: clock() / SECOND,
            "time_ns": wall,
            "time": lambda: wall() / SECOND,
            "process_time_ns": cpu,
            "process_time": lambda: cpu() / SECOND,
            "thread_time_ns": cpu,
            "thread_time": lambda: cpu() / SECOND,
            "sleep": sleep,
        },
        threading: {
            "Thread": VirtualThread,
            "Event": VirtualEvent,
            "Lock": VirtualLock,
            "RLock": VirtualRLock,
            "Condition": VirtualCondition,
            "Semaphore": VirtualSemaphore,
        },
        concurrent.futures.thread: {"_global_shutdown_lock": VirtualLock()},
        queue: {"SimpleQueue": VirtualQueue, "Queue": VirtualQueue},
        secrets: {
            "token_hex": lambda size=32: f"{simulation.secrets.getrandbits(8 * size):0{2 * size}x}",
            "randbits": simulation.secrets.getrandbits,
        },
        subprocess: {"Popen": _no_process},
        # Those of this machine, which the product would list, are no part of a world.
        socket: {"socket": _no_socket},
        # The disk: files are real, the time that they take is the world's.
        os: {"fsync": lambda _: simulation.write_to_disk()},
        parquet: {"write_table": partial(_written_slowly, simulation, parquet.write_table)},
        # A world costs less than one walk over all objects of the process.
        gc: {"collect": lambda *_: 0, "freeze": lambda: None, "unfreeze": lambda: None},
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_collections())
        for module, names in replaced.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(module, name, value))
        _RUNNING.append(simulation)
        try:
            yield simulation
        finally:
            simulation.end()
            _RUNNING.pop()


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Let no garbage collection happen, and remove its callbacks at the end.

    A collection comes at an instant that depends on the worlds before. Callbacks of every worker would run on the clock of the thread that
    happens to allocate, and those of workers that were killed would stay.
    """
    callbacks = list(gc.callbacks)
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.callbacks[:] = callbacks
        if enabled:
            gc.enable()
