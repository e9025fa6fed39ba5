"""Delayed messages in a loopback relay: they wait until their time, then leave in the order of their times, never early."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.drivers.loopback.batch import Batch, join

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Waiting(NamedTuple):
    """Messages of one batch, the earliest first. :param due: int64 ns of the relay's clock, ascending."""

    first: int
    number: int  # of equal times those that came first leave first
    due: NDArray[np.int64]
    batch: Batch


class DelayQueue:
    """Acknowledged messages that wait until they are due."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()

    def add(self, batch: Batch, due: NDArray[np.int64]) -> None:
        """:param due: int64 ns of the relay's clock, of each message."""
        order = np.argsort(due, kind="stable")
        self._push(batch.take(order), due[order])

    def _push(self, batch: Batch, due: NDArray[np.int64]) -> None:
        if len(due):
            heapq.heappush(self._waiting, _Waiting(int(due[0]), next(self._numbers), due, batch))

    def next(self) -> int | None:
        """When the next message is due, ns; None: none waits."""
        return self._waiting[0].first if self._waiting else None

    def release(self, now: int) -> Batch | None:
        """All that is due, in the order of its times; None where nothing is."""
        batches, times = [], []
        while self._waiting and self._waiting[0].first <= now:
            _, _, due, batch = heapq.heappop(self._waiting)
            count = int(np.searchsorted(due, now, side="right"))
            ready, rest = batch.split(count)
            batches.append(ready)
            times.append(due[:count])
            self._push(rest, due[count:])
        return join(batches).take(np.argsort(np.concatenate(times), kind="stable")) if batches else None
