"""Messages on their way out: what is due becomes bursts, what is too late is dropped, what the target refuses waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.engine.blocks import Block, Ledger
from pytest_loadtest.engine.retries import Retries
from pytest_loadtest.errors import WorkerError
from pytest_loadtest.message import draws
from pytest_loadtest.message.payloads import chooser
from pytest_loadtest.message.samples import Status
from pytest_loadtest.schedule.pacing import NEVER
from pytest_loadtest.schedule.schedules import ByteSchedule, Drawing, EvenSchedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.draws import WeightedChoice
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.changes import Change
    from pytest_loadtest.schedule.pacing import Pacer
    from pytest_loadtest.schedule.schedules import Schedule

    Column = NDArray[np.int64]
    Keys = Callable[["NDArray[np.int64]", "NDArray[np.int64]"], "NDArray[np.int32] | None"]
    from pytest_loadtest.drivers.base import Clock, Driver, Joined
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.schedule.topology import Topology


@dataclass(slots=True)
class SendCounts:
    """Messages of the current phase so far. :param resent: answered ones that the client had sent again after a lost connection."""

    sent: int = 0
    acked: int = 0
    failed: int = 0
    dropped: int = 0
    resent: int = 0

    @property
    def in_flight(self) -> int:
        """Handed over and not answered."""
        return self.sent - self.acked - self.failed


class Sender:
    """Sends the messages of all streams of a worker, phase after phase.

    :param retire: called with every block of a phase whose messages are all answered or given up.
    """

    def __init__(self, setup: Setup, retire: Callable[[Block], None]) -> None:
        self._setup, self._driver, self._streams = setup, setup.driver, setup.streams
        self._retire, self._max_delay = retire, setup.max_send_delay
        self._chooser = chooser(setup.pool, setup.seed, setup.streams, setup.topology.topics)
        self._key_column = key_column(setup.key_distributor, setup.seed, setup.streams)
        self._row = self._next = 0
        self._end: int | None = 0

    def begin(self, phase: Phase, start: int, delays: Delays | None = None) -> None:
        """A phase begins: its first messages are due at ``start`` or soon after."""
        self._delayed = delays
        self._row += self._end or 0  # rows count on
        self._start, self._last, self._first = start, phase.duration - 1, phase.first_of(self._streams)
        self._schedule = self._make_schedule(phase)
        self._paces_bytes = phase.mean_size is not None
        rate = phase.pacer.highest / (phase.mean_size or 1) / phase.pacer.streams * len(self._streams)
        self._ledger = Ledger(self._row, _block_size(rate))
        self._retries = Retries(self._driver, self._schedule, self._ledger, self._streams, self._first)
        self._waiting = self._retries.waiting
        self._next = self._looked = self._next_due = 0
        self._end = None if self._paces_bytes else self._schedule.due(self._last)
        self.counts = SendCounts()
        self._delays: list[Column] = []

    def _make_schedule(self, phase: Phase) -> Schedule:
        drawing = Drawing(self._chooser, self._streams, self._first, self._setup.pool.sizes)
        table = self._setup.pool.table(0)
        if phase.mean_size is None or not self._streams:
            return EvenSchedule(phase.pacer, drawing, table, phase.turns)
        return ByteSchedule(phase.pacer, drawing, table, phase.mean_size)

    # --- what is known of the phase

    @property
    def finished(self) -> bool:
        """Everything of the phase was handed over or dropped."""
        return self._end is not None and self._next >= self._end and not self._waiting.any

    @property
    def blocked(self) -> bool:
        """Messages wait before full windows."""
        return self._waiting.any

    @property
    def ends(self) -> Column:
        """By stream, one past the last sequence of the phase, as far as it is known."""
        return self._first + self._schedule.numbers(self._next if self._end is None else self._end)

    @property
    def marks(self) -> tuple[tuple[int, Column], ...]:
        """For every change, ns after the start, and by stream the first sequence from it on."""
        return tuple((at, self._first + numbers) for at, numbers in self._schedule.marks())

    def next_at(self) -> int:
        """When there is something to do next, ns of the clock; :data:`NEVER` when there is nothing more to do."""
        if self._waiting.any:
            return 0
        if self._end is not None and self._next >= self._end:
            return NEVER
        self._next_due = self._schedule.time(self._next)
        return self._start + (min(self._next_due, self._last) if self._end is None else self._next_due)

    def offered(self, elapsed: int) -> int:
        """How many messages were due so far."""
        return self._schedule.due(min(elapsed, self._last))

    def own_delay_p99(self) -> int | None:
        """p99 of send delay less blocked time, of what was sent since the last call; None where nothing was."""
        if not self._delays:
            return None
        together = np.concatenate(self._delays)
        self._delays.clear()
        rank = len(together) * 99 // 100
        return int(np.partition(together, rank)[rank])

    # --- changes

    def change(self, change: Change, pacer: Pacer | None, table: WeightedChoice | None) -> None:
        """Something is different from ``change.at`` on.

        :raises WorkerError: messages that it changes were sent already.
        """
        first = self._schedule.change(change.at, table)
        if self._next > first:
            raise WorkerError(f"this worker heard of a change after it had sent {self._next - first} messages that are due later than it")
        if pacer is not None:
            self._schedule.pacer = pacer
        if change.end:
            self._last = change.at - 1
        if not self._paces_bytes:
            self._end = self._schedule.due(self._last)
        self._rework(first)

    def _rework(self, first: int) -> None:
        """Work out again what is different about rows from ``first`` on that are in a block already."""
        size = self._ledger.block_size
        for number, block in self._ledger.blocks.items():
            kept = max(first - number * size, 0)
            if kept < size:
                made = self._make(number * size + kept, size - kept)
                for name in ("stream", "seq", "intended", "payload", "key", "due"):
                    if (column := getattr(block, name)) is not None:
                        column[kept:] = getattr(made, name)

    # --- sending

    def tick(self, now: int) -> None:
        """Hand over everything that is due, as far as the target takes it."""
        elapsed = now - self._start
        due = self._due(elapsed)
        if self._waiting.any or (self._next < due and elapsed - self._next_due > self._max_delay):
            self._drop_late(elapsed)
        if self._waiting.any:
            self.collect()
            for delays in self._retries.retry(now):
                self._took(delays)
        while self._next < due:
            self._offer(due, now)
            if self._next < due:  # far behind, time goes on from block to block
                self._drop_late(self._setup.clock() - self._start)

    def _due(self, elapsed: int) -> int:
        due = self._schedule.due(min(elapsed, self._last))
        if elapsed >= self._last:
            self._end = due  # known from the beginning where messages are paced; where bytes are, not before all are due
        return due

    def _offer(self, due: int, now: int) -> None:
        """Hand over what is due of one block, for the first time."""
        block = self._block(self._next)
        start = self._next - (block.row - self._row)
        stop = min(start + due - self._next, block.size)
        self._next += stop - start
        if self._waiting.any:
            index = self._retries.join(block, start, stop)  # those that need not wait
            burst = block.copy(index)
            refused = self._driver.send(burst) if len(index) else None
            block.sent[index] = burst.sent
        else:
            burst = block.burst(start, stop)
            refused = self._driver.send(burst)
        delay = burst.sent - burst.intended
        if refused is not None:
            delay = delay[self._retries.refuse(burst, refused, now)]
        self._took(delay)

    def _took(self, delays: Column) -> None:
        """So many messages were taken. :param delays: their send delays, less blocked time."""
        if len(delays):
            self.counts.sent += len(delays)
            self._delays.append(delays)

    def _block(self, row: int) -> Block:
        size = self._ledger.block_size
        number = row // size
        block = self._ledger.blocks.get(number)
        if block is None:
            self._schedule.forget(min(self._ledger.blocks, default=number) * size)
            block = self._ledger.blocks[number] = self._make(number * size, size)
        return block

    def _make(self, first: int, count: int) -> Block:
        """Rows as a block; a whole block also where the phase may end inside it, for where it ends may still change."""
        made = self._schedule.rows(first, count)
        stream = (made.index * self._streams.step + self._streams.start).astype(np.int32)
        seq = self._first[made.index] + made.number
        intended = made.time + self._start
        due = None if self._delayed is None else self._delayed.on_the_wire(stream, seq, intended)
        return Block(self._row + first, stream, seq, intended, made.payload, self._key_column(made.index, seq), due)

    def _drop_late(self, elapsed: int) -> None:
        self._drop(self._schedule.due(min(elapsed - self._max_delay - 1, self._last)))

    def _drop(self, until: int) -> None:
        """Rows before this one that were not sent never will be."""
        size = self._ledger.block_size
        self._looked = max(self._looked, min(self._ledger.blocks, default=self._next // size) * size)
        while self._looked < until:
            number = self._looked // size
            low, high = self._looked - number * size, min(until - number * size, size)
            if self._looked >= self._next or number in self._ledger.blocks:
                self._drop_of(self._block(self._looked), low, high)
            self._looked = number * size + high
        self._next = max(self._next, until)

    def _drop_of(self, block: Block, low: int, high: int) -> None:
        index = np.flatnonzero((block.status[low:high] == Status.PENDING) & (block.sent[low:high] == 0)) + low
        if not len(index):
            return
        block.drop(index)
        self.counts.dropped += len(index)
        self._retries.drop(block.stream[index[index < self._next - (block.row - self._row)]])
        if block.open == 0:
            self._retire(self._ledger.blocks.pop((block.row - self._row) // self._ledger.block_size))

    # --- answers

    def collect(self) -> None:
        """Take the target's answers."""
        acks = self._driver.acks()
        if acks is None or not len(acks.row):
            return
        if self._waiting.any:
            self._retries.answered(acks.row)
        if acks.resends is not None:
            self.counts.resent += int(np.count_nonzero(acks.resends))
        complete, statuses = self._ledger.answer(acks)
        for status in statuses:
            failed = int(np.count_nonzero(status))
            self.counts.failed += failed
            self.counts.acked += len(status) - failed
        for block in complete:
            self._retire(block)

    def end(self) -> None:
        """The phase is over, answered or not."""
        if self._end is None:  # cut short before all was due
            self._end = self._next
        self._drop(self._end)  # what is left of the plan was never sent
        for block in self._ledger.blocks.values():
            block.cut(self._end - (block.row - self._row))
            block.give_up()
            self._retire(block)
        self._ledger.blocks.clear()


def _block_size(rate: float) -> int:
    """Rows a block: about half a second, so that slow workers stay small and fast ones efficient."""
    return 1 << min(max(int(rate / 2).bit_length(), 6), 13)


# Keys of messages, as OMB's key distributors give them: a key is a number, which the driver spells.

KEYS: Final = 10_000  # as many as OMB has
_APART: Final = 1 << 40  # from the draws of payloads and their bodies


def key_column(distributor: str, seed: int, streams: range) -> Keys:
    """What gives messages their keys, from the places of their streams among ``streams`` and their sequences; None for no keys.

    ``RANDOM_NANO`` is a draw of (seed, stream, sequence), so that a run has the same keys however many workers share it.
    """
    if distributor == "NO_KEY":
        return lambda index, seq: None
    if distributor == "KEY_ROUND_ROBIN":
        return lambda index, seq: (seq % KEYS).astype(np.int32)
    drawn = draws.subkeys(draws.subkey(~seed, _APART), streams)
    return lambda index, seq: (draws.words_of(drawn.take(index), seq) % np.uint64(KEYS)).astype(np.int32)


# What one worker's engine is made from.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One workload on one worker, connected and ready.

    :param streams: of this worker. :param opened: its consumers that take messages from the beginning.
    :param later: indexes of those that may join while load runs.
    :param max_send_delay: ns after its intended time at which a message is dropped instead of sent.
    :param ordered: whether order is judged.
    :param delays: of messages that a consumer is to get later than they leave; the phase and its clock are told when it begins.
    :param bounds: latencies in ns that the controller wants to know about while load runs: how many copies took longer.
    :param prompt: latencies in ns of which it wants to know, second by second, how many copies took no longer.
    :param kept: seconds of which that is told.
    """

    driver: Driver
    clock: Clock
    pool: PayloadPool
    topology: Topology
    streams: range
    opened: Joined
    later: Sequence[int] = ()
    nonce: int
    seed: int
    key_distributor: str
    max_send_delay: int
    ordered: bool
    bounds: Sequence[int] = ()
    prompt: Sequence[int] = ()
    kept: int = 0
    delays: Delays | None = None
