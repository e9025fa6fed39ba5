"""A worker's messages, a block of rows at a time: the columns that are sent from, answered into and recorded are the same arrays."""

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

COLUMNS: Final = ("stream", "seq", "intended", "payload", "key", "due", "sent", "idle", "acked", "blocked", "status", "resends")


class Block:
    """Consecutive rows, of any of the worker's streams.

    :param row: number of its first row. :param stream: int32. :param seq: int64, as the envelope carries it. :param intended: int64 ns.
    :param payload: uint16 pool index. :param key: int32 or None. :param due: int64 as of :class:`Burst`, or None.
    """

    __slots__ = (*COLUMNS, "open", "row", "size")

    def __init__(
        self, row: int, stream: NDArray[np.int32], seq: Column, intended: Column, payload: NDArray[np.uint16],
        key: NDArray[np.int32] | None, due: Column | None = None,
    ) -> None:  # fmt: skip
        self.due = due
        self.row, self.stream, self.seq, self.intended, self.payload, self.key = row, stream, seq, intended, payload, key
        self.size = self.open = len(seq)
        self.sent = np.zeros(self.size, np.int64)
        self.idle = np.zeros(self.size, np.int64)
        self.acked = np.zeros(self.size, np.int64)
        self.blocked = np.zeros(self.size, np.int64)
        self.status = np.full(self.size, Status.PENDING, np.int8)
        self.resends = np.zeros(self.size, np.int16)

    def burst(self, start: int, stop: int) -> Burst:
        """Rows ``start … stop-1`` of the block as views: what the driver writes into ``sent`` is recorded."""
        span = slice(start, stop)
        key, due = self._optional(span)
        row = np.arange(self.row + start, self.row + stop, dtype=np.int64)
        return Burst(
            row, self.stream[span], self.seq[span], self.intended[span], self.payload[span], self.sent[span], self.idle[span], key, due
        )

    def copy(self, index: Column) -> Burst:
        """Some rows, as columns of their own."""
        key, due = self._optional(index)
        zeros = np.zeros((2, len(index)), np.int64)
        return Burst(
            index + self.row, self.stream[index], self.seq[index], self.intended[index], self.payload[index], zeros[0], zeros[1], key, due
        )

    def _optional(self, rows: slice | Column) -> tuple[NDArray[np.int32] | None, Column | None]:
        """The columns that not every run has."""
        return None if self.key is None else self.key[rows], None if self.due is None else self.due[rows]

    def drop(self, index: Column) -> None:
        """These are later than allowed and will never be sent."""
        self.status[index] = Status.DROPPED
        self.blocked[index] = 0  # a message that waits keeps an interim value there
        self.open -= len(index)

    def answer(self, index: Column, acks: Acks, pick: NDArray[np.bool_] | slice) -> NDArray[np.int8]:
        """The target's answers; ``acked`` stays 0 for messages that failed. A second answer to one message changes nothing.

        :param index: in the block, of the answers that ``pick`` picks. :returns: the status of those that were first answers.
        """
        time, status = acks.time[pick], acks.status[pick]
        resends = None if acks.resends is None else acks.resends[pick]
        fresh = self.status[index] == Status.PENDING
        if not fresh.all():
            index, time, status = index[fresh], time[fresh], status[fresh]
            resends = None if resends is None else resends[fresh]
        self.acked[index] = time if not status.any() else np.where(status == Status.ACKED, time, 0)
        self.status[index] = status
        if resends is not None:
            self.resends[index] = resends
        self.open -= len(index)
        return status

    def cut(self, size: int) -> None:
        """The phase ends inside the block."""
        if size < self.size:
            for name in COLUMNS:
                column = getattr(self, name)
                setattr(self, name, column if column is None else column[:size])
            self.open -= self.size - size
            self.size = size

    def give_up(self) -> None:
        """The phase is over: handed over and unanswered is UNKNOWN, never handed over is DROPPED."""
        pending = self.status == Status.PENDING
        self.status[pending] = np.where(self.sent[pending] > 0, Status.UNKNOWN, Status.DROPPED)
        self.open = 0


class Ledger:
    """The blocks of one phase that are not fully answered yet, by number.

    :param row: of the phase's first message.
    """

    def __init__(self, row: int, block_size: int) -> None:
        self.row, self.block_size = row, block_size
        self.blocks: dict[int, Block] = {}

    def answer(self, acks: Acks) -> tuple[list[Block], list[NDArray[np.int8]]]:
        """Note the answers. Answers to an earlier phase are nobody's any more.

        :returns: the blocks that are complete now, and the status of all first answers.
        """
        complete, statuses = [], []
        for block, index, pick in self._split(acks.row):
            statuses.append(block.answer(index, acks, pick))
            if block.open == 0:
                complete.append(self.blocks.pop((block.row - self.row) // self.block_size))
        return complete, statuses

    def _split(self, row: Column) -> Iterator[tuple[Block, Column, NDArray[np.bool_] | slice]]:
        """Rows, in any order, by block: their indexes in it, and which of them these are."""
        relative = row - self.row
        low, high = int(relative.min()) // self.block_size, int(relative.max()) // self.block_size
        for number in range(max(low, 0), high + 1):
            block = self.blocks.get(number)
            if block is None:
                continue
            index, pick = row - block.row, slice(None)
            if low != high:
                mine = (index >= 0) & (index < block.size)
                yield block, index[mine], mine
            else:
                yield block, index, pick

    def parts(self, rows: Column) -> Iterator[tuple[Block, Column]]:
        """Ascending rows of blocks that are here, by block: their indexes in it."""
        if not len(rows):
            return
        numbers = (rows - self.row) // self.block_size
        edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
        for low, high in pairwise(edges):
            block = self.blocks[int(numbers[low])]
            yield block, rows[low:high] - block.row

    def streams(self, rows: Column) -> NDArray[np.int32]:
        """The streams of those rows, in any order, whose blocks are here."""
        found = [block.stream[index] for block, index, _ in self._split(rows)] if len(rows) else []
        return np.concatenate(found) if found else np.empty(0, np.int32)
