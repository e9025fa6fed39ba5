"""How many of the messages intended in each of the last seconds came soon enough: counted while they arrive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.engine.progress import TimelyReport
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class TimelyCounts:
    """By bound and by second of the intended time, how many copies took no longer; of a copy that did, its second is not long ago.

    Second copies count too, for a worker does not know them all. So there are at least as many as first copies: ``abort``, which asks
    whether enough came in time, ends no run by them that would go on without them; it may end one later.

    :param bounds: ns. :param kept: seconds that are told.
    """

    def __init__(self, bounds: Sequence[int], kept: int) -> None:
        self._bounds, self._kept = bounds, kept
        self.begin(0)

    def begin(self, start: int) -> None:
        """A phase begins. :param start: ns."""
        self._start = start
        self._counts: list[Counter[int]] = [Counter() for _ in self._bounds]

    def add(self, intended: NDArray[np.int64], received: NDArray[np.int64]) -> None:
        """These copies came."""
        if not self._bounds:
            return
        second, latency = (intended - self._start) // SECOND, received - intended
        for counts, bound in zip(self._counts, self._bounds, strict=True):
            prompt = second[latency <= bound]
            if len(prompt):
                least = int(prompt.min())
                found = np.bincount(prompt - least)
                counts.update({least + int(at): int(found[at]) for at in np.flatnonzero(found)})

    def told(self, elapsed: int) -> TimelyReport | None:
        """The last seconds before ``elapsed``, ns after the start; None where there is no bound. What is older is forgotten."""
        if not self._bounds:
            return None
        last = elapsed // SECOND + 1
        first = max(last - self._kept, 0)
        for counts in self._counts:
            for second in [second for second in counts if second < first]:
                del counts[second]
        return TimelyReport(first=first, counts=tuple(tuple(counts[second] for second in range(first, last)) for counts in self._counts))
