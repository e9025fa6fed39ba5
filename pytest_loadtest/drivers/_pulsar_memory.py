"""Pulsar's memory limit (PIP-74), which pulsar-client for Python does not offer: bytes of messages in flight, over all producers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Memory:
    """What the producers of one driver share.

    :param limit: bytes. As in the Java client, a message may begin while there is any room, so that one larger than the limit passes.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0


class Share:
    """One producer's part: it gives back whole hand-overs, once all messages of one are answered."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: deque[tuple[int, int]] = deque()  # messages, bytes
        self._settled = 0

    def room(self, sizes: NDArray[np.int64], answered: int) -> int:
        """How many of the next messages, of these sizes, may go. :param answered: messages of this producer, in all."""
        while self._held and answered - self._settled >= self._held[0][0]:
            count, size = self._held.popleft()
            self._settled += count
            self._memory.used -= size
        before = np.cumsum(sizes) - sizes
        return int(np.searchsorted(before, self._memory.limit - self._memory.used, side="left"))

    def hold(self, sizes: NDArray[np.int64]) -> None:
        """These messages are handed over."""
        size = int(sizes.sum())
        self._memory.used += size
        self._held.append((len(sizes), size))
