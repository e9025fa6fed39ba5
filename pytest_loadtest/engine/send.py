"""The sender: due messages become bursts, messages that are too late are dropped, rejected ones
wait for another attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.engine.blocks import Block, Ledger
from pytest_loadtest.engine.late_sends import LateSends
from pytest_loadtest.engine.progress import take_p99
from pytest_loadtest.engine.retries import STALL, Retries
from pytest_loadtest.errors import WorkerError
from pytest_loadtest.message import draws
from pytest_loadtest.message.payloads import make_chooser
from pytest_loadtest.message.samples import Status
from pytest_loadtest.message.streams import stream_at
from pytest_loadtest.metrics.pauses import SHORTEST
from pytest_loadtest.schedule.pacing import NEVER
from pytest_loadtest.schedule.schedules import ByteSchedule, Drawing, EvenSchedule
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Burst, Clock, Driver, Joined
    from pytest_loadtest.engine.tap import Tap
    from pytest_loadtest.message.draws import WeightedChoice
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.message.payloads import Chooser, PayloadPool
    from pytest_loadtest.message.route import EnvelopePlace
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.changes import Change
    from pytest_loadtest.schedule.pacing import Pacer
    from pytest_loadtest.schedule.schedules import Schedule
    from pytest_loadtest.schedule.topology import Topology

    Column = NDArray[np.int64]
    Keys = Callable[[Column, Column], NDArray[np.int32] | None]


@dataclass(slots=True)
class SendCounts:
    """Counts of messages in the current phase.

    :param resent: answered messages that the client had sent again after a lost connection.
    """

    sent: int = 0
    acked: int = 0
    failed: int = 0
    dropped: int = 0
    resent: int = 0

    @property
    def in_flight(self) -> int:
        """Number of messages handed over and not answered."""
        return self.sent - self.acked - self.failed


class Sender:
    """Sends the messages of all streams of a worker, phase after phase.

    :param retire: called with each block once all of its messages are answered or given up.
    """

    def __init__(self, setup: Setup, retire: Callable[[Block], None]) -> None:
        self._setup = setup
        self._driver = setup.driver
        self._streams = setup.streams
        self._retire = retire
        self._max_delay = setup.max_send_delay
        self._chooser = self._choose_for(setup.streams)
        self._key_column = key_column(setup.key_distributor, setup.seed, setup.streams)
        self._row = self._next = 0
        self._end: int | None = 0
        self.late = LateSends()

    def begin(self, phase: Phase, start: int, delays: Delays | None = None) -> None:
        """Begin a phase, whose messages are due from ``start`` on."""
        self._delayed = delays
        # row numbers go on, so that an answer to a message of an earlier phase is recognized
        self._row += self._end or 0
        self._start = start
        self._last = phase.duration - 1
        self._first = phase.first_of(self._streams)
        self._ticked = start
        self.late.clear()
        # A worker without streams has no message whose time would have to be drawn: it knows its
        # end at once.
        self._paces_bytes = phase.mean_size is not None and len(self._streams) > 0
        self._schedule = self._make_schedule(phase)
        # messages per second of this worker at the highest rate, by which the size of blocks is
        # chosen
        rate_of_stream = phase.pacer.highest / (phase.mean_size or 1) / phase.pacer.streams
        # A block has messages of about half a second, 64 to 8192, so that slow workers stay small
        # and fast ones efficient.
        per_half_second = int(rate_of_stream * len(self._streams) / 2)
        block_size = 1 << min(max(per_half_second.bit_length(), 6), 13)
        self._ledger = Ledger(self._row, block_size)
        self._retries = Retries(
            self._driver,
            self._schedule,
            self._ledger,
            self._streams,
            self._first,
            self._setup.clock,
        )
        self._waiting = self._retries.waiting
        self._next = self._looked = self._next_due = 0
        self._end = None if self._paces_bytes else self._schedule.due(self._last)
        self.counts = SendCounts()
        self._delays: list[Column] = []

    def _make_schedule(self, phase: Phase) -> Schedule:
        pool = self._setup.pool
        if not self._paces_bytes:
            drawing = Drawing(self._chooser, self._streams, self._first, pool.sizes)
            return EvenSchedule(phase.pacer, drawing, pool.table(0), phase.turns)
        # The place of a message in the byte train depends on the sizes of all messages before it,
        # also those of other workers.
        everyone = range(phase.streams)
        drawing = Drawing(self._choose_for(everyone), everyone, phase.first, pool.sizes)
        return ByteSchedule(phase.pacer, drawing, pool.table(0), self._streams, phase.turns)

    def _choose_for(self, streams: Streams) -> Chooser:
        return make_chooser(
            self._setup.pool, self._setup.seed, streams, self._setup.topology.topics
        )

    # --- state of the phase

    @property
    def finished(self) -> bool:
        """True if all messages of the phase were handed over or dropped."""
        return self._end is not None and self._next >= self._end and not self._waiting.any

    @property
    def blocked(self) -> bool:
        """True if messages wait because of full windows."""
        return self._waiting.any

    @property
    def ends(self) -> Column:
        """The sequence after the phase's last one, by stream; before the end is known, after those
        offered so far.
        """
        end = self._next if self._end is None else self._end
        return self._first + self._schedule.numbers(end)

    @property
    def marks(self) -> tuple[tuple[int, Column], ...]:
        """The instant of each change, ns after the start, with the first sequence of each stream
        from it on.
        """
        return tuple((at, self._first + numbers) for at, numbers in self._schedule.marks())

    def next_at(self) -> int:
        """Return the time of the next tick, ns of the clock; :data:`NEVER` when all messages were
        sent.
        """
        if self._waiting.any:
            return 0  # at every tick: room in a window shows only by trying, or in the answers
        if self._end is not None and self._next >= self._end:
            return NEVER
        self._next_due = self._schedule.time(self._next)
        if self._end is None:
            # where bytes are paced the number of the last message is unknown before the end of the
            # phase: look again then
            return self._start + min(self._next_due, self._last)
        return self._start + self._next_due

    def offered(self, elapsed: int) -> int:
        """Return the number of messages due so far."""
        return self._schedule.due(min(elapsed, self._last))

    def own_delay_p99(self) -> int | None:
        """Return p99 of the send delay less blocked time of the messages sent since the last call;
        None if none was.
        """
        return take_p99(self._delays)

    # --- changes

    def change(self, change: Change, pacer: Pacer | None, table: WeightedChoice | None) -> None:
        """Apply a change to messages that are due at ``change.at`` or later.

        :raises WorkerError: some of them were sent already.
        """
        first = self._schedule.change(change.at, table)
        # All workers must change the same messages: to apply it late would make another schedule
        # than theirs (docs/decisions/008).
        if self._next > first:
            raise WorkerError(
                "a change came too late: this worker had already sent"
                f" {self._next - first} messages that it affects"
            )
        if pacer is not None:
            self._schedule.pacer = pacer
        if change.end:
            self._last = min(self._last, change.at - 1)
        if not self._paces_bytes:
            self._end = self._schedule.due(self._last)
        self._rework(first)

    def _rework(self, first: int) -> None:
        """Compute the rows from ``first`` on again that are in a block already."""
        size = self._ledger.block_size
        for number, block in self._ledger.blocks.items():
            unchanged = max(first - number * size, 0)
            if unchanged < size:
                changed = self._make(number * size + unchanged, size - unchanged)
                # in place: the block keeps its answers
                for name in ("stream", "seq", "intended", "payload", "key", "due"):
                    column = getattr(block, name)
                    if column is not None:
                        column[unchanged:] = getattr(changed, name)

    # --- sending

    def tick(self, now: int) -> None:
        """Hand over all messages that are due, as far as the target takes them."""
        elapsed = now - self._start
        due = self._due(elapsed)
        if self._waiting.any:
            if now - self._ticked > STALL:
                # The answers that came meanwhile show whether the target or this loop made messages
                # wait: read them before any drop.
                self._driver.poll(0)
            self.collect()  # answers show which streams have room again
        self._ticked = now
        # the search for late messages is skipped while even the oldest unsent one, the next, is in
        # time
        if self._waiting.any or (self._next < due and elapsed - self._next_due > self._max_delay):
            self._drop_late(now)
        if self._waiting.any:
            for delays in self._retries.retry(now):
                self._took(delays)
        while self._next < due:
            self._offer(due, now)
            if self._next < due:
                # several blocks are due at once, and while one is sent the next may become too late
                self._drop_late(self._setup.clock())

    def _due(self, elapsed: int) -> int:
        """Return the number of rows due, and note the end of the phase."""
        due = self._schedule.due(min(elapsed, self._last))
        if elapsed >= self._last:
            # news only where bytes are paced: the number of messages is known once all are due
            self._end = due
        return due

    def _offer(self, due: int, now: int) -> None:
        """Hand over the due rows of one block, which are due for the first time."""
        block = self._block(self._next)
        start = self._next - (block.row - self._row)
        stop = min(start + due - self._next, block.size)
        self._next += stop - start
        waited = self._waiting.any
        if waited:
            # Rows of streams that wait must not overtake the waiting ones. The others are offered
            # as a copy, whose times are written back.
            index = self._retries.join(block, start, stop)
            burst = block.copy(index)
            rejected = self._driver.send(burst) if len(index) else None
            block.sent[index] = burst.sent
        else:  # the usual case: no copy, the driver stamps the block's own columns
            burst = block.burst(start, stop)
            rejected = self._driver.send(burst)
        # While messages wait for full windows, the lateness of a message may be the target's: such
        # steps are not evidence.
        if not waited:
            self._note_late(burst, rejected, now)
        delay = burst.sent - burst.intended
        if rejected is not None:
            delay = delay[self._retries.reject(burst, rejected)]
        self._took(delay)

    def _note_late(self, burst: Burst, rejected: Column | None, now: int) -> None:
        """Note a burst of messages that are due for the first time."""
        due = burst.intended.item(0)
        if rejected is not None:
            # The rejected messages wait for the target from "now" on.
            self.late.add(due, now)
        elif burst.sent.item(0) - due > SHORTEST:
            # A driver may stamp the messages of one burst in any order.
            self.late.add(due, int(burst.sent.min()))

    def _took(self, delays: Column) -> None:
        """Count messages that the driver took.

        :param delays: their send delays, less blocked time.
        """
        if len(delays):
            self.counts.sent += len(delays)
            self._delays.append(delays)

    def _block(self, row: int) -> Block:
        size = self._ledger.block_size
        number = row // size
        block = self._ledger.blocks.get(number)
        if block is None:
            # Rows that were sent or dropped are needed no more, whether they are answered or not.
            needed = number * size
            if self._waiting.any:
                needed = min(needed, self._looked)
            self._schedule.forget(needed)
            block = self._ledger.blocks[number] = self._make(number * size, size)
        return block

    def _make(self, first: int, count: int) -> Block:
        """Make a block of rows; whole, even if the phase ends inside it, because a change may move
        the end.
        """
        rows = self._schedule.rows(first, count)
        stream = stream_at(self._streams, rows.index).astype(np.int32)
        seq = self._first[rows.index] + rows.number
        intended = rows.time + self._start
        due = None if self._delayed is None else self._delayed.on_the_wire(stream, seq, intended)
        key = self._key_column(rows.index, seq)
        return Block(self._row + first, stream, seq, intended, rows.payload, key, due)

    def _drop_late(self, now: int) -> None:
        too_late = now - self._start - self._max_delay - 1
        self._drop(self._schedule.due(min(too_late, self._last)), now)

    def _drop(self, until: int, now: int) -> None:
        """Drop the rows before ``until`` that were not sent."""
        size = self._ledger.block_size
        # Rows up to _looked, and those of retired blocks, are sent or dropped already: each row is
        # looked at once. Every row from _next on needs a block, also one that is dropped without
        # being offered, because a dropped message is recorded too.
        first_block = min(self._ledger.blocks, default=self._next // size)
        self._looked = max(self._looked, first_block * size)
        if self._looked >= until:
            return
        # Once for all rows: a stream whose waiting messages are all dropped has a full window for
        # its later rows too.
        full_until = self._retries.full_until(now)
        while self._looked < until:
            number = self._looked // size
            low = self._looked - number * size
            high = min(until - number * size, size)
            if self._looked >= self._next or number in self._ledger.blocks:
                self._drop_of(self._block(self._looked), low, high, full_until, now)
            self._looked = number * size + high
        self._next = max(self._next, until)

    def _drop_of(self, block: Block, low: int, high: int, full_until: Column, now: int) -> None:
        is_unsent = (block.status[low:high] == Status.PENDING) & (block.sent[low:high] == 0)
        index = np.flatnonzero(is_unsent) + low
        if not len(index):
            return
        block.drop(index, self._retries.blocked(block, index, full_until), now)
        self.counts.dropped += len(index)
        # rows that were never offered are not among those that wait, and are not removed from them
        first = block.row - self._row
        self._retries.drop(block.stream[index[index < self._next - first]])
        if block.open == 0:
            self._retire(self._ledger.blocks.pop(first // self._ledger.block_size))

    # --- answers

    def collect(self) -> None:
        """Take answers from the driver."""
        acks = self._driver.acks()
        if acks is None or not len(acks.row):
            return
        if self._waiting.any:
            self._retries.answered(acks)  # before the ledger, which removes complete blocks
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
        """End the phase: messages without an answer are given up, and all blocks retired."""
        if self._end is None:
            # bytes are paced, and the phase was cut short before all messages were due
            self._end = self._next
        self._drop(self._end, self._setup.clock())  # the rest of the plan was never sent
        for block in self._ledger.blocks.values():
            block.cut(self._end - (block.row - self._row))
            block.give_up()
            self._retire(block)
        self._ledger.blocks.clear()


KEYS: Final = (
    10_000  # as many as OMB's key distributors have; a key is a number, which the driver spells
)
_KEY_DRAWS: Final = 1 << 40
"""Index of the subkey for keys, far from those of payloads and their bodies."""


def key_column(distributor: str, seed: int, streams: Streams) -> Keys:
    """Return a function from (positions of streams among ``streams``, sequences) to keys; it
    returns None for ``NO_KEY``.

    ``RANDOM_NANO`` draws a key from (seed, stream, sequence), so a run has the same keys whatever
    the number of workers.
    """
    if distributor == "NO_KEY":
        return lambda index, seq: None
    if distributor == "KEY_ROUND_ROBIN":
        return lambda index, seq: (seq % KEYS).astype(np.int32)
    subkeys = draws.subkeys(draws.subkey(~seed, _KEY_DRAWS), streams)

    def random_keys(index: Column, seq: Column) -> NDArray[np.int32]:
        drawn = draws.draw_each(subkeys.take(index), seq)
        return (drawn % np.uint64(KEYS)).astype(np.int32)

    return random_keys


@record
class Setup:
    """One workload on one worker, connected and ready: the arguments of
    :class:`~pytest_loadtest.engine.run.Engine`.

    :param streams: the worker's streams.
    :param opened: its consumers that take messages from the beginning.
    :param later: indexes of consumers that may join while load runs.
    :param max_send_delay: ns after its intended time at which a message is dropped instead of sent.
    :param ordered: true if order is judged.
    :param delays: of messages with a later due time, None without; the start of the phase is filled
        in when it begins.
    :param bounds: latencies in ns; the progress reports count the copies that took longer.
    :param timely_bounds: latencies in ns; the progress reports count, by second, the copies that
        took no longer.
    :param timely_seconds: the number of past seconds in these counts.
    :param received: the place of the envelope in the messages of a service, whose sizes are its
        own; None: the run receives its own messages.
    :param tap: reads the inputs of a service; None without one.
    """

    driver: Driver
    clock: Clock
    pool: PayloadPool
    topology: Topology
    streams: Streams
    opened: Joined
    later: Sequence[int] = ()
    nonce: int
    seed: int
    key_distributor: str
    max_send_delay: int
    ordered: bool
    bounds: Sequence[int] = ()
    timely_bounds: Sequence[int] = ()
    timely_seconds: int = 0
    delays: Delays | None = None
    received: EnvelopePlace | None = None
    tap: Tap | None = None
