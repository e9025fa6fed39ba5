"""One stream on its way out: what is due becomes bursts, what is too late is dropped, what the target refuses waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.engine.blocked import BlockedTime
from pytest_loadtest.engine.blocks import Block, Ledger
from pytest_loadtest.samples import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pytest_loadtest.drivers._base import Acks, Clock, Producer
    from pytest_loadtest.pacing import Pacer
    from pytest_loadtest.payloads import Chooser
    from pytest_loadtest.topology import ProducerSpec

KEYS = 10_000  # OMB's key distributors use as many


@dataclass(slots=True)
class SendCounts:
    """Messages of the current phase so far."""

    sent: int = 0
    acked: int = 0
    failed: int = 0
    dropped: int = 0


class Stream:
    """Sends the messages of one producer, phase after phase.

    :param max_send_delay: ns after its intended time at which a message is dropped instead of sent.
    :param retire: called with every block of a recorded phase whose messages are all answered or given up.
    """

    def __init__(
        self, spec: ProducerSpec, producer: Producer, chooser: Chooser, clock: Clock, *, key_distributor: str, seed: int,
        max_send_delay: int,
        retire: Callable[[Stream, Block], None],
    ) -> None:  # fmt: skip
        self.spec, self.producer, self.counts = spec, producer, SendCounts()
        self._chooser, self._clock, self._retire, self._max_delay = chooser, clock, retire, max_send_delay
        self._keys, self._random = key_distributor, np.random.default_rng([seed, spec.stream])
        self._next = self._end = 0

    def begin(self, pacer: Pacer, start: int, first_seq: int, count: int, block_size: int) -> None:
        """A phase begins: ``count`` messages from ``first_seq`` on, the first ones due at ``start`` or soon after."""
        self._pacer, self._start, self._first_seq = pacer, start, first_seq
        self._next, self._end = 0, count
        self._ledger, self._blocked, self.counts = Ledger(first_seq, block_size), BlockedTime(), SendCounts()
        self.delays: list[tuple[NDArray[np.int64], ...]] = []
        self._block: Block | None = None

    @property
    def finished(self) -> bool:
        """Everything of the phase was handed over or dropped."""
        return self._next >= self._end

    @property
    def blocked(self) -> bool:
        """The target's window is full and messages are due."""
        return self._blocked.full_since is not None

    def next_offset(self) -> int:
        """ns after the phase's start at which the next message is due."""
        return self._pacer.offset(self.spec.stream, self._next)

    def tick(self, now: int, elapsed: int) -> None:
        """Hand over everything that is due, as far as the target takes it."""
        due = min(self._pacer.due_in_stream(elapsed, self.spec.stream), self._end)
        if elapsed - self.next_offset() > self._max_delay:
            self._drop(min(self._pacer.due_in_stream(elapsed - self._max_delay - 1, self.spec.stream), self._end))
        if due > self._next:
            idle = self.producer.idle_since if self.producer.in_flight == 0 else None
            accepted = self._send(due, now, idle)
            while accepted and due > self._next and self._blocked.full_since is None:
                accepted = self._send(due, now, None)

    def _send(self, due: int, now: int, idle_since: int | None) -> int:
        block = self._current()
        start, stop = self._next - block.first, min(due - block.first, block.size)
        accepted = self.producer.send(block.burst(start, stop))
        self._blocked.attempt(now, waiting=accepted == 0, idle_since=idle_since)
        if accepted:
            span = slice(start, start + accepted)
            self._blocked.fill(block.blocked[span], block.intended[span])
            self.delays.append((block.sent[span], block.intended[span], block.blocked[span]))
            self._next += accepted
            self.counts.sent += accepted
        if accepted < stop - start:
            self._blocked.full_since = now
        return accepted

    def _current(self) -> Block:
        number = self._next // self._ledger.block_size
        if self._block is None or self._block.first != number * self._ledger.block_size:
            self._block = self._ledger.blocks[number] = self._make(number * self._ledger.block_size)
        return self._block

    def _make(self, first: int) -> Block:
        size = min(self._ledger.block_size, self._end - first)
        seq = np.arange(self._first_seq + first, self._first_seq + first + size, dtype=np.int64)
        intended = self._pacer.offsets(self.spec.stream, first, size) + self._start
        return Block(first, seq, intended, self._chooser.take(size), self._key_column(seq))

    def _key_column(self, seq: NDArray[np.int64]) -> NDArray[np.int32] | None:
        if self._keys == "NO_KEY":
            return None
        if self._keys == "KEY_ROUND_ROBIN":
            return (seq % KEYS).astype(np.int32)
        return self._random.integers(0, KEYS, len(seq), dtype=np.int32)

    def _drop(self, until: int) -> None:
        while self._next < until:
            block = self._current()
            start, stop = self._next - block.first, min(until - block.first, block.size)
            block.drop(start, stop)
            self.counts.dropped += stop - start
            self._next += stop - start
            if block.open == 0:
                self._retire(self, self._ledger.blocks.pop(block.first // self._ledger.block_size))

    def collect(self) -> None:
        """Take the target's answers."""
        acks = self.producer.acks()
        if acks is None or not len(acks.seq):
            return
        self._count(acks)
        for block in self._ledger.answer(acks):
            self._retire(self, block)

    def _count(self, acks: Acks) -> None:
        mine = acks.status[acks.seq >= self._first_seq]
        acked = int(np.count_nonzero(mine == Status.ACKED))
        self.counts.acked += acked
        self.counts.failed += len(mine) - acked

    def end(self) -> None:
        """The phase is over, answered or not."""
        while not self.finished:  # cut short: what is left of the plan was never sent
            self._drop(self._end)
        for block in self._ledger.blocks.values():
            block.give_up()
            self._retire(self, block)
        self._ledger.blocks.clear()
