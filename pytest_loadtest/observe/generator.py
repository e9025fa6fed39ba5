"""How this process fares while it drives load: CPU, garbage collection, and how late its loop wakes up.

This is the evidence for *generator-limited*: a number measured by a starved process says nothing about the target.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from pytest_loadtest.measurements import WorkerEvidence

if TYPE_CHECKING:
    from collections.abc import Callable

STALL = 50_000_000  # ns; a wake-up later than this is a stall: well above a scheduler's slice, well below what SLOs bound


class GeneratorWatch:
    """Watches this process from :meth:`start` to :meth:`stop`.

    :param clock: ns. :param cpu_clock: CPU time of the process, ns.
    """

    def __init__(self, clock: Callable[[], int], cpu_clock: Callable[[], int] = time.process_time_ns) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._stalled = self._longest = self._gc = self._gc_began = 0
        self._wall = self._cpu = self._stopped_wall = self._stopped_cpu = 0

    def start(self) -> None:
        self._stalled = self._longest = self._gc = self._gc_began = 0
        self._wall, self._cpu = self._clock(), self._cpu_clock()
        gc.callbacks.append(self._on_gc)

    def woke(self, wanted: int, now: int) -> None:
        """The loop wanted to go on at ``wanted`` and did so at ``now``."""
        late = now - wanted
        if late > STALL:
            self._stalled += late
            self._longest = max(self._longest, late)

    def stop(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
            self._stopped_wall, self._stopped_cpu = self._clock(), self._cpu_clock()

    def evidence(self, worker: str) -> WorkerEvidence:
        """What was seen between start and stop."""
        wall = max(self._stopped_wall - self._wall, 1)
        cpu = (self._stopped_cpu - self._cpu) / wall
        return WorkerEvidence(worker=worker, cpu=cpu, stalled=self._stalled, longest_stall=self._longest, gc=self._gc)

    def _on_gc(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._gc_began = self._clock()
        elif self._gc_began:
            self._gc += self._clock() - self._gc_began
