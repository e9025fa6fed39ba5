"""Evidence about the generator itself: CPU use, garbage collection and late wake-ups of this
process, in total and by second.

A run is *generator-limited* by this evidence: what a starved process measures says nothing about
the target.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.samples import EVIDENCE
from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.pauses import STALL
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

CPU, STALLED, LONGEST, GC = range(len(EVIDENCE))
_EMPTY: Final = [0.0] * len(EVIDENCE)


class GeneratorWatch:
    """A watch over this process from :meth:`start` to :meth:`stop`.

    :param clock: returns ns.
    :param cpu_clock: returns the CPU time of the process, ns; by default that of this one.
    """

    def __init__(
        self, clock: Callable[[], int], cpu_clock: Callable[[], int] | None = None
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock or time.process_time_ns
        self._reset(0)

    def _reset(self, since: int) -> None:
        self._since = self._began = self._read_at = since
        self._cpu = self._cpu_began = self._gc_began = 0
        self._seconds: list[list[float]] = []

    def start(self, since: int) -> None:
        """Start watching.

        :param since: the phase's start, from which seconds are counted.
        """
        self._reset(since)
        self._began = self._read_at = self._clock()
        self._cpu = self._cpu_began = self._cpu_clock()
        gc.callbacks.append(self._on_gc)

    def woke(self, planned: int, now: int, end: int) -> None:
        """Note a wake-up of the loop, planned for ``planned``, at ``now``.

        :param end: the phase's end: what a stall takes beyond it is no part of the run.
        """
        # the CPU clock is a system call: once a second is enough
        if now - self._read_at >= SECOND:
            self._read_cpu(now)
        late = now - planned
        # A wake-up that was planned for the drain says nothing about the load.
        if late > STALL and planned < end:
            within = min(now, end)
            for second in self._spread(STALLED, planned, within, within - planned):
                second[LONGEST] = max(second[LONGEST], late)

    def stop(self) -> None:
        # called at the end of the phase and again after its drain
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
            self._read_cpu(self._clock())

    def evidence(self, worker: str) -> WorkerEvidence:
        """Return the evidence from start to stop."""
        seconds = np.array(self._seconds).reshape(-1, len(EVIDENCE)).round().astype(np.int64)
        return WorkerEvidence(
            worker=worker,
            cpu=(self._cpu - self._cpu_began) / max(self._read_at - self._began, 1),
            stalled=int(seconds[:, STALLED].sum()),
            longest_stall=int(seconds[:, LONGEST].max(initial=0)),
            gc=int(seconds[:, GC].sum()),
            seconds=seconds,
        )

    def _read_cpu(self, now: int) -> None:
        """Read the CPU clock, and spread the CPU time used since the last reading evenly over the
        seconds between.
        """
        cpu = self._cpu_clock()
        self._spread(CPU, self._read_at, now, cpu - self._cpu)
        self._cpu = cpu
        self._read_at = now

    def _spread(self, column: int, since: int, until: int, amount: int) -> list[list[float]]:
        """Add an amount to a column of the seconds from ``since`` to ``until``, in proportion to
        the overlap; return these seconds.
        """
        first = max(since - self._since, 0) // SECOND
        last = max(until - 1 - self._since, since - self._since, 0) // SECOND
        while len(self._seconds) <= last:
            self._seconds.append(list(_EMPTY))
        # Each second gets its part of a long stall or pause, because stages and windows are judged
        # by the evidence of their own seconds.
        for second in range(first, last + 1):
            share = 1.0
            if first < last:
                begin = self._since + second * SECOND
                overlap = min(begin + SECOND, until) - max(begin, since)
                share = overlap / (until - since)
            self._seconds[second][column] += amount * share
        return self._seconds[first : last + 1]

    def _on_gc(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._gc_began = self._clock()
        elif self._gc_began:  # 0 if the collection began before start()
            now = self._clock()
            self._spread(GC, self._gc_began, now, now - self._gc_began)
