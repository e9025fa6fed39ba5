"""A worker's messages in blocks of rows.

The driver stamps send times into a block's columns, answers are noted in them, and the recorder
writes them: no column is copied between.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst
from pytest_loadtest.message.samples import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Column = NDArray[np.int64]

# cut() shortens all of these, so each column of a block must be among them
COLUMNS: Final = (
    "stream",
    "seq",
    "intended",
    "payload",
    "key",
    "due",
    "sent",
    "idle",
    "acked",
    "blocked",
    "status",
    "resends",
)


class Block:
    """Consecutive rows of any of the worker's streams.

    :param row: number of the first row.
    :param stream: int32.
    :param seq: int64, as in the envelope.
    :param intended: int64 ns.
    :param payload: uint16 index into the pool.
    :param key: int32 or None.
    :param due: int64 as in :class:`Burst`, or None.
    """

    __slots__ = (*COLUMNS, "open", "row", "size")

    def __init__(
        self,
        row: int,
        stream: NDArray[np.int32],
        seq: Column,
        intended: Column,
        payload: NDArray[np.uint16],
        key: NDArray[np.int32] | None,
        due: Column | None = None,
    ) -> None:
        self.row = row
        self.stream = stream
        self.seq = seq
        self.intended = intended
        self.payload = payload
        self.key = key
        self.due = due
        self.size = len(seq)
        self.open = self.size  # messages that are not answered, dropped or given up
        self.sent = np.zeros(self.size, np.int64)
        self.idle = np.zeros(self.size, np.int64)
        self.acked = np.zeros(self.size, np.int64)
        self.blocked = np.zeros(self.size, np.int64)
        self.status = np.full(self.size, Status.PENDING, np.int8)
        self.resends = np.zeros(self.size, np.int16)

    def burst(self, start: int, stop: int) -> Burst:
        """Return rows ``start … stop-1`` as views, so that the times that the driver writes into
        ``sent`` are recorded.
        """
        rows = slice(start, stop)
        row = np.arange(self.row + start, self.row + stop, dtype=np.int64)
        return self._burst(rows, row, self.sent[rows], self.idle[rows])

    def copy(self, index: Column) -> Burst:
        """Return some rows as copies: rows that are no neighbours cannot be views."""
        sent, idle = np.zeros((2, len(index)), np.int64)
        return self._burst(index, index + self.row, sent, idle)

    def _burst(self, rows: slice | Column, row: Column, sent: Column, idle: Column) -> Burst:
        key = None if self.key is None else self.key[rows]
        due = None if self.due is None else self.due[rows]
        return Burst(
            row,
            self.stream[rows],
            self.seq[rows],
            self.intended[rows],
            self.payload[rows],
            sent,
            idle,
            key,
            due,
        )

    def drop(self, index: Column, blocked: Column, now: int) -> None:
        """Give up messages that are later than allowed and will never be sent.

        A message that waited for a full window for at least half of its delay is BLOCKED, any other
        DROPPED (docs/decisions/048).

        :param blocked: the time for which each waited for a full window, ns.
        :param now: the instant of the drop, ns.
        """
        delay = now - self.intended[index]
        by_target = (blocked > 0) & (2 * blocked >= delay)
        self.status[index] = np.where(by_target, Status.BLOCKED, Status.DROPPED)
        self.blocked[index] = blocked
        self.open -= len(index)

    def answer(
        self, index: Column, acks: Acks, pick: NDArray[np.bool_] | slice
    ) -> NDArray[np.int8]:
        """Note answers of the target; ``acked`` stays 0 for messages that failed.

        Only the first answer to a message counts.

        :param pick: the answers of ``acks`` to messages of this block.
        :param index: the positions of these messages in the block.
        :returns: the status of each first answer.
        """
        time = acks.time[pick]
        status = acks.status[pick]
        resends = None if acks.resends is None else acks.resends[pick]
        # a second answer finds another status, and so does an answer to a message that was given up
        fresh = self.status[index] == Status.PENDING
        if not fresh.all():
            index = index[fresh]
            time = time[fresh]
            status = status[fresh]
            if resends is not None:
                resends = resends[fresh]
        # status 0 is ACKED: in the usual case, no failure, np.where and its comparison are saved
        if status.any():
            time = np.where(status == Status.ACKED, time, 0)
        self.acked[index] = time
        self.status[index] = status
        if resends is not None:
            self.resends[index] = resends
        self.open -= len(index)
        return status

    def cut(self, size: int) -> None:
        """Remove the rows after the first ``size``: the phase ends inside the block."""
        if size < self.size:
            for name in COLUMNS:
                column = getattr(self, name)
                if column is not None:
                    setattr(self, name, column[:size])
            self.open -= self.size - size
            self.size = size

    def give_up(self) -> None:
        """Close the block at the end of the phase: sent but unanswered messages become UNKNOWN,
        unsent ones DROPPED.
        """
        pending = self.status == Status.PENDING
        # the driver stamps "sent" when it takes a message: 0 means that it never did
        self.status[pending] = np.where(self.sent[pending] > 0, Status.UNKNOWN, Status.DROPPED)
        self.open = 0


class Ledger:
    """The blocks of one phase that have unanswered messages, by block number.

    :param row: row of the phase's first message.
    """

    def __init__(self, row: int, block_size: int) -> None:
        self.row = row
        self.block_size = block_size
        self.blocks: dict[int, Block] = {}

    def answer(self, acks: Acks) -> tuple[list[Block], list[NDArray[np.int8]]]:
        """Note answers.

        Answers to messages of an earlier phase are ignored: their blocks were recorded when that
        phase ended.

        :returns: the blocks without an unanswered message left, and the status of all first
            answers.
        """
        complete = []
        statuses = []
        for block, index, pick in self._split(acks.row):
            statuses.append(block.answer(index, acks, pick))
            if block.open == 0:
                complete.append(self.blocks.pop((block.row - self.row) // self.block_size))
        return complete, statuses

    def _split(self, row: Column) -> Iterator[tuple[Block, Column, NDArray[np.bool_] | slice]]:
        """Split rows, in any order, by block.

        Yields the block, the positions in it, and a mask (or slice) of the rows.
        """
        relative = row - self.row
        low = int(relative.min()) // self.block_size
        high = int(relative.max()) // self.block_size
        for number in range(max(low, 0), high + 1):  # numbers below 0 are rows of an earlier phase
            block = self.blocks.get(number)
            if block is None:
                continue
            index = row - block.row
            if low == high:  # most answers of one call are to one block: then no mask is needed
                yield block, index, slice(None)
            else:
                mine = (index >= 0) & (index < block.size)
                yield block, index[mine], mine

    def parts(self, rows: Column) -> Iterator[tuple[Block, Column, slice]]:
        """Split ascending rows by block.

        Yields the block, which must exist, the positions in it, and the slice of the rows.
        """
        if not len(rows):
            return
        # rows ascend, so each block's rows are neighbours
        numbers = (rows - self.row) // self.block_size
        edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
        for low, high in pairwise(edges):
            block = self.blocks[int(numbers[low])]
            yield block, rows[low:high] - block.row, slice(low, high)

    def answers(self, acks: Acks) -> Iterator[tuple[NDArray[np.int32], Column]]:
        """Yield the streams and the times of the answers to messages whose blocks exist."""
        for block, index, pick in self._split(acks.row):
            yield block.stream[index], acks.time[pick]

    def in_flight(self) -> NDArray[np.int32]:
        """Return the stream of every message that was sent and is not answered.

        Costs a look at every row that is kept.
        """
        streams = [np.empty(0, np.int32)]
        for block in self.blocks.values():
            pending = (block.sent > 0) & (block.status == Status.PENDING)
            streams.append(block.stream[pending])
        return np.concatenate(streams)
