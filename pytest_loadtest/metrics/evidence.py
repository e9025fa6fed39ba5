"""How the workers' own processes fared while they measured, in all and by the second."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvidence:
    """How one worker's own process fared while it measured: the evidence for *generator-limited*.

    :param cpu: its CPU time over wall time; 1.0 is one core.
    :param stalled: ns that its loop woke up late, summed over wake-ups later than 50 ms. :param longest_stall: ns.
    :param gc: ns in garbage collection pauses.
    :param seconds: int64 ``(k, 4)``, in each second of the phase: ns of CPU time, ns stalled, the longest stall that touched it, ns of GC.
    """

    worker: str
    cpu: float
    stalled: int
    longest_stall: int
    gc: int
    seconds: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 4), np.int64), compare=False, repr=False)

    def during(self, start: int, duration: int, phase: int) -> WorkerEvidence:
        """The same of one stretch of the phase, of whose first and last second it takes its share.

        :param start: ns after the phase's start. :param duration: ns. :param phase: ns, its length: the last second may be short.
        """
        edges = np.minimum(np.arange(len(self.seconds) + 1) * SECOND, phase)
        overlap = np.minimum(edges[1:], start + duration) - np.maximum(edges[:-1], start)
        share = np.maximum(overlap, 0) / np.maximum(np.diff(edges), 1)
        cpu, stalled, _, gc = (float((column * share).sum()) for column in self.seconds.T)
        longest = int(self.seconds[share > 0, 2].max(initial=0))
        return replace(
            self, cpu=cpu / max(duration, 1), stalled=round(stalled), longest_stall=longest, gc=round(gc), seconds=self.seconds[:0]
        )
