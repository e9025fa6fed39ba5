"""A stream's messages, a block at a time: the columns that are sent from, answered into and recorded are the same arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers._base import Acks, Burst
from pytest_loadtest.samples import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Block:
    """Consecutive messages of one stream.

    :param first: number of its first message in the phase, from 0.
    :param seq: int64, as the envelope carries it. :param intended: int64 ns. :param payload: uint16 pool index. :param key: int32 or None.
    """

    __slots__ = ("acked", "blocked", "first", "intended", "key", "open", "payload", "sent", "seq", "size", "status")

    def __init__(
        self, first: int, seq: NDArray[np.int64], intended: NDArray[np.int64], payload: NDArray[np.uint16], key: NDArray[np.int32] | None
    ) -> None:
        self.first, self.seq, self.intended, self.payload, self.key = first, seq, intended, payload, key
        self.size = self.open = len(seq)
        self.sent = np.zeros(self.size, np.int64)
        self.acked = np.zeros(self.size, np.int64)
        self.blocked = np.zeros(self.size, np.int64)
        self.status = np.full(self.size, Status.PENDING, np.int8)

    def burst(self, start: int, stop: int) -> Burst:
        """Messages ``start … stop-1`` of the block as views: what the driver writes into ``sent`` is recorded."""
        key = None if self.key is None else self.key[start:stop]
        return Burst(self.seq[start:stop], self.intended[start:stop], self.payload[start:stop], self.sent[start:stop], key)

    def drop(self, start: int, stop: int) -> None:
        """These are later than allowed and will never be sent."""
        self.status[start:stop] = Status.DROPPED
        self.open -= stop - start

    def answer(self, index: NDArray[np.int64], time: NDArray[np.int64], status: NDArray[np.int8]) -> None:
        """The target's answers; ``acked`` stays 0 for refused messages. A second answer to one message changes nothing."""
        fresh = self.status[index] == Status.PENDING
        if not fresh.all():
            index, time, status = index[fresh], time[fresh], status[fresh]
        self.acked[index] = np.where(status == Status.ACKED, time, 0)
        self.status[index] = status
        self.open -= len(index)

    def cut(self, size: int) -> None:
        """The phase ends inside the block."""
        if size < self.size:
            for name in ("seq", "intended", "payload", "key", "sent", "acked", "blocked", "status"):
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
    """The blocks of one stream that are not fully answered yet, by number."""

    def __init__(self, first_seq: int, block_size: int) -> None:
        self.first_seq, self.block_size = first_seq, block_size
        self.blocks: dict[int, Block] = {}

    def answer(self, acks: Acks) -> list[Block]:
        """Note the answers; return the blocks that are complete now. Answers to an earlier phase are nobody's any more."""
        relative = acks.seq - self.first_seq
        low, high = int(relative.min()) // self.block_size, int(relative.max()) // self.block_size
        complete = []
        for number in range(max(low, 0), high + 1):
            block = self.blocks.get(number)
            if block is None:
                continue
            index, time, status = relative - block.first, acks.time, acks.status
            if low != high:
                mine = (index >= 0) & (index < block.size)
                index, time, status = index[mine], time[mine], status[mine]
            block.answer(index, time, status)
            if block.open == 0:
                complete.append(self.blocks.pop(number))
        return complete
