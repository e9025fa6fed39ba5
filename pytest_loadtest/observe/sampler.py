"""A thread of the controller that asks its sources about once a second, and one that costs more less often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.values.quantities import SECOND

EVERY: Final = SECOND
MOST: Final = 0.02  # cores that one source may use: where a sample of it costs more, they are further apart
_OVER: Final = (OSError, LoadtestError)
LONGEST: Final = 10.0
"""s that the end waits for what a source says last."""


class TelemetrySource(Protocol):
    """Something that can be asked again and again.

    ``missing``: what it could not find out, in sentences. ``used``: CPU seconds of threads of its own, so far.
    """

    @property
    def missing(self) -> Sequence[str]: ...

    @property
    def used(self) -> float: ...

    def read(self, now: int) -> Mapping[str, float]:
        """By column what is known now, ns of the clock; what is not known is left out. Raises OSError or LoadtestError when it is over."""

    def close(self) -> Mapping[str, float]:
        """It is not asked any more. What it knows at the end, when the phase and its drain are over."""


class Sampler:
    """Samples from an instant on until it is stopped.

    :param sources: what makes each source, and what it is for; made in the thread, for it may have to connect to something.
    :param start: ns of CLOCK_MONOTONIC: the phase's start. The first samples are taken then, and a second later.
    :param broker: what the target is called. :param missing: what has no source, and why.
    """

    def __init__(
        self, sources: Mapping[str, Callable[[], TelemetrySource]], start: int, *, broker: str, missing: Sequence[str] = ()
    ) -> None:
        self._making, self._start, self._broker = sources, start, broker
        self._missing = list(missing)
        self._sources: list[AskedSource] = []
        self._time: list[int] = []
        self._rows: list[dict[str, float]] = []
        self._used = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loadtest-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for what, make in self._making.items():
            try:
                self._sources.append(AskedSource(what, make()))
            except _OVER as error:
                self._missing.append(f"{what}: {error}")
        self._sample()  # what rates are reckoned from
        number = 1
        while not self._stopping.wait(max(self._start + number * EVERY - time.monotonic_ns(), 0) / SECOND):
            self._sample()
            number = max(number, (time.monotonic_ns() - self._start) // EVERY) + 1
        last = dict[str, float]()
        for asked in self._sources:
            last |= asked.source.close()
        if last:
            self._keep(time.monotonic_ns(), last)
        self._used = time.thread_time()

    def _sample(self) -> None:
        now, row = time.monotonic_ns(), dict[str, float]()
        for asked in list(self._sources):
            try:
                row |= asked.ask(now)
            except _OVER as error:
                self._sources.remove(asked)
                self._missing.append(f"{asked.what}: {error}, {max(now - self._start, 0) / SECOND:.0f} s into the phase")
                asked.source.close()
        self._keep(now, row)

    def _keep(self, now: int, row: dict[str, float]) -> None:
        self._time.append(now - self._start)
        self._rows.append(row)

    def stop(self) -> Telemetry:
        """What was sampled; the first of all samples, at the start, knows no rates and is left out."""
        self._stopping.set()
        self._thread.join(LONGEST)
        took = (time.monotonic_ns() - self._start) / SECOND
        sources, count = [asked.source for asked in self._sources], len(self._rows)
        used = self._used + sum(one.used for one in sources)
        return Telemetry.of_rows(
            self._time[1:count], self._rows[1:count], missing=(*self._missing, *(said for one in sources for said in one.missing)),
            cost=used / took if took > 0 else 0.0, broker=self._broker,
        )  # fmt: skip


class AskedSource:
    """A source, what it used so far in CPU seconds, and when it may be asked again."""

    def __init__(self, what: str, source: TelemetrySource) -> None:
        self.what, self.source, self.used, self._not_before = what, source, 0.0, 0

    def ask(self, now: int) -> Mapping[str, float]:
        if now < self._not_before:
            return {}
        used = time.thread_time()
        found = self.source.read(now)
        used = time.thread_time() - used
        self.used += used
        self._not_before = now + round(used / MOST * SECOND) - EVERY // 2  # a sample is a moment early or late
        return found
