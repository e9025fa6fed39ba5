"""One stream on its way out: what is due becomes bursts, what is too late is dropped, what the target refuses waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.engine.blocked import BlockedTime
from pytest_loadtest.engine.blocks import Block, Ledger
from pytest_loadtest.errors import WorkerError
from pytest_loadtest.pacing import NEVER
from pytest_loadtest.payloads import Chooser
from pytest_loadtest.samples import Status
from pytest_loadtest.trains import ByteTrain, MessageTrain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pytest_loadtest.changes import Change
    from pytest_loadtest.draws import WeightedChoice
    from pytest_loadtest.drivers._base import Acks, Producer
    from pytest_loadtest.pacing import Pacer
    from pytest_loadtest.payloads import PayloadPool
    from pytest_loadtest.phases import Phase
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
        self, spec: ProducerSpec, producer: Producer, pool: PayloadPool, *, key_distributor: str, seed: int, max_send_delay: int,
        retire: Callable[[Stream, Block], None],
    ) -> None:  # fmt: skip
        self.spec, self.producer, self.counts = spec, producer, SendCounts()
        self._pool, self._chooser = pool, Chooser(pool, seed, spec.stream)
        self._retire, self._max_delay = retire, max_send_delay
        self._keys, self._random = key_distributor, np.random.default_rng([seed, spec.stream])
        self._next = self._end = 0

    def begin(self, phase: Phase, start: int, block_size: int) -> None:
        """A phase begins: its first messages are due at ``start`` or soon after."""
        number = self.spec.stream
        self._start, self._first_seq, self._last = start, phase.first[number], phase.duration - 1
        self._tables = [(0, self._pool.table(0))]
        self._train: MessageTrain | ByteTrain = (
            MessageTrain(phase.pacer, number) if phase.mean_size is None else ByteTrain(phase.pacer, number, phase.mean_size, self._sizes)
        )
        self._next, self._end = 0, self._train.due(self._last) if phase.mean_size is None else NEVER
        self.marks: list[tuple[int, int]] = []
        self._ledger, self._blocked, self.counts = Ledger(self._first_seq, block_size), BlockedTime(), SendCounts()
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

    @property
    def end_seq(self) -> int:
        """One past the last sequence of the phase, as far as it is known."""
        return self._first_seq + (self._next if self._end == NEVER else self._end)

    def next_offset(self) -> int:
        """ns after the phase's start at which there is something to do next."""
        self._next_at = offset = self._train.offset(self._next)
        return min(offset, self._last) if self._end == NEVER else offset

    def offered(self, elapsed: int) -> int:
        """How many messages were due so far."""
        return min(self._train.due(min(elapsed, self._last)), self._end)

    def change(self, change: Change, pacer: Pacer | None, table: WeightedChoice | None) -> None:
        """Something is different from ``change.at`` on.

        :raises WorkerError: messages that it changes were sent already.
        """
        first = self._train.due(change.at - 1)
        if self._next > first:
            raise WorkerError(
                f"stream {self.spec.stream} heard of a change after {self._next - first} messages that were due later than it"
            )
        self.marks.append((change.at, self._first_seq + first))
        if pacer is not None:
            self._train.repace(pacer)
        if table is not None:
            self._tables.append((first, table))
            if isinstance(self._train, ByteTrain):
                self._train.resize(first)
        if change.end:
            self._last = change.at - 1
        if isinstance(self._train, MessageTrain):
            self._end = self._train.due(self._last)
        if self._block is not None:
            self._redo(self._block, max(first, self._block.first))

    def _redo(self, block: Block, first: int) -> None:
        """Work out again what is different about messages from ``first`` on that are in a block already."""
        count = block.first + block.size - first
        if count > 0:
            block.intended[-count:] = self._train.offsets(first, count) + self._start
            block.payload[-count:] = self._payloads(first, count)

    def tick(self, now: int, elapsed: int) -> None:
        """Hand over everything that is due, as far as the target takes it."""
        due = self._due(elapsed)
        if self._next < due and elapsed - self._next_at > self._max_delay:
            self._drop(self._due(elapsed - self._max_delay - 1))
        if due > self._next:
            idle = self.producer.idle_since if self.producer.in_flight == 0 else None
            accepted = self._send(due, now, idle)
            while accepted and due > self._next and self._blocked.full_since is None:
                accepted = self._send(due, now, None)

    def _due(self, elapsed: int) -> int:
        due = self._train.due(min(elapsed, self._last))
        if elapsed < self._last:
            return due
        self._end = due  # known from the beginning where messages are paced, only now where bytes are
        return due

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
        """A whole block, though the phase may end inside it: where it ends may still change."""
        size = self._ledger.block_size
        seq = np.arange(self._first_seq + first, self._first_seq + first + size, dtype=np.int64)
        if isinstance(self._train, ByteTrain):
            self._train.forget(first)
        return Block(first, seq, self._train.offsets(first, size) + self._start, self._payloads(first, size), self._key_column(seq))

    def _payloads(self, first: int, count: int) -> NDArray[np.uint16]:
        drawn = [self._chooser.draw(self._first_seq + low, high - low, table) for low, high, table in self._parts(first, first + count)]
        return drawn[0] if len(drawn) == 1 else np.concatenate(drawn)

    def _parts(self, first: int, end: int) -> Iterator[tuple[int, int, WeightedChoice]]:
        """Which table holds from where to where."""
        edges = [start for start, _ in self._tables[1:]] + [end]
        for (start, table), stop in zip(self._tables, edges, strict=True):
            if max(start, first) < min(stop, end):
                yield max(start, first), min(stop, end), table

    def _sizes(self, first: int, count: int) -> NDArray[np.int32]:
        return self._pool.sizes[self._payloads(first, count)]

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
        if self._end == NEVER:  # cut short before all was due
            self._end = self._next
        self._drop(self._end)  # what is left of the plan was never sent
        for block in self._ledger.blocks.values():
            block.cut(self._end - block.first)
            block.give_up()
            self._retire(self, block)
        self._ledger.blocks.clear()
