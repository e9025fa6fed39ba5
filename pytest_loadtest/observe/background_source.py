"""A telemetry source that may be slow: it has a thread of its own, so that the others are sampled in time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

from pytest_loadtest.observe.sampler import LONGEST, AskedSource
from pytest_loadtest.observe.telemetry import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.observe.sampler import TelemetrySource

_PATIENCE: Final = 0.2  # s that a sample waits for it; what comes later is of the next sample


class BackgroundSource:
    """:param make: makes the source, in that thread. One question is open at a time."""

    def __init__(self, make: Callable[[], TelemetrySource]) -> None:
        self._make = make
        self._asked: AskedSource | None = None
        self._given_up = False
        self._open: Future[Mapping[str, float]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loadtest-background")

    @property
    def missing(self) -> Sequence[str]:
        """What the source says; that there was no answer, where there never was one, or no last one."""
        silent = [f"{COUNTERS}: no answer"] if self._asked is None else self._asked.source.missing
        return [*silent, f"{COUNTERS}: no last answer within {LONGEST:.0f} s"] if self._given_up else silent

    @property
    def used(self) -> float:
        """CPU seconds of the source so far."""
        return self._asked.used if self._asked else 0.0

    def read(self, now: int) -> Mapping[str, float]:
        """What it says now, or, where that takes long, said meanwhile; raises what the source raises."""
        found = self._answer(0)
        if self._open is None:
            self._open = self._thread.submit(self._ask, now)
        return found | self._answer(_PATIENCE)

    def _answer(self, patience: float) -> dict[str, float]:
        if self._open is None or not wait([self._open], patience).done:
            return {}
        answered, self._open = self._open, None
        return dict(answered.result())

    def _ask(self, now: int) -> Mapping[str, float]:
        if self._asked is None:
            self._asked = AskedSource("", self._make())
        return self._asked.ask(now)

    def close(self) -> Mapping[str, float]:
        """What the source said last, unless that takes too long."""
        closing = self._thread.submit(lambda: self._asked.source.close() if self._asked else {})
        self._thread.shutdown(wait=False)
        self._given_up = not wait([closing], LONGEST).done
        return {} if self._given_up else closing.result()
