"""How a phase goes on one worker: what crosses to the controller while load runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelyReport:
    """Of the messages intended in each of the last seconds, how many copies took no longer than each bound.

    :param first: the first second told, from the phase's start. :param counts: ``[bound][second - first]``.
    """

    first: int
    counts: tuple[tuple[int, ...], ...]

    def of(self, bound: int, second: int) -> int:
        """Of one second, which is not before the first."""
        counts = self.counts[bound]
        return counts[second - self.first] if second - self.first < len(counts) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One worker's counts in the current phase; ``sending`` until all its messages are handed over or dropped.

    :param elapsed: when it was told, ns after the phase's start; what arrived up to
        :data:`~pytest_loadtest.engine.run.COLLECT` before is counted.
    :param repeats: how many of the received copies may be second ones, by the sequences that the same consumer got before.
    :param redelivered: how many of them the target says it may have delivered before, to whichever consumer. :param resent: how many
        answered messages the client had sent again after a lost connection.
    :param beyond_bounds: for each latency bound that the controller watches, how many copies took longer.
    :param prompt: where the profile has latencies that end a run.
    """

    phase: str
    elapsed: int
    sending: bool
    offered: int
    sent: int
    acked: int
    failed: int
    dropped: int
    received: int
    repeats: int
    in_flight: int
    send_delay_p99: int | None
    blocked: bool
    beyond_bounds: tuple[int, ...] = ()
    prompt: TimelyReport | None = None
    workload: str = ""
    redelivered: int = 0
    resent: int = 0

    @property
    def has_second_copies(self) -> bool:
        """Whether some of the received copies may be second ones, of messages that this or another worker has."""
        return bool(self.repeats or self.redelivered or self.resent)


# How many of the messages intended in each of the last seconds came soon enough: counted while they arrive.


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
