"""Latencies by the second: how many of each HDR bucket there were, so that any stretch of the run can be looked at by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BLOCKS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """End-to-end latencies of first copies by the second of their message's intended time, where there are any.

    :param second: int64 ``(k,)``, since the start of the measured phase, ascending. :param index: int64 ``(k,)``, HDR bucket of seven
        bits, as an HdrHistogram of two significant digits has it; ascending in each second. :param count: int64 ``(k,)``, copies.
    """

    second: NDArray[np.int64]
    index: NDArray[np.int64]
    count: NDArray[np.int64]

    def blocks(self, duration: int, most: int = MOST_BLOCKS) -> tuple[int, list[dict[int, int]]]:
        """The run in blocks of whole seconds, all of one length but the last: their length in ns, and of each its copies by bucket.

        :param duration: of the measured phase, ns. :param most: how many blocks there may be.
        """
        seconds = max(-(-duration // SECOND), 1)
        length = -(-seconds // most)
        found: list[dict[int, int]] = [{} for _ in range(-(-seconds // length))]
        for block, index, count in zip((self.second // length).tolist(), self.index.tolist(), self.count.tolist(), strict=True):
            found[block][index] = found[block].get(index, 0) + count
        return length * SECOND, found


def over_time(second: NDArray[np.int64], index: NDArray[np.int64], many: NDArray[np.int64] | None = None) -> OverTime | None:
    """Count pairs of second and bucket; None where there are none.

    :param many: how often each pair is there; once unless given.
    """
    if not len(second):
        return None
    width = int(index.max()) + 1
    packed, place = np.unique(second * width + index, return_inverse=True)
    count = np.zeros(len(packed), np.int64)
    np.add.at(count, place, 1 if many is None else many)
    return OverTime(second=packed // width, index=packed % width, count=count)
