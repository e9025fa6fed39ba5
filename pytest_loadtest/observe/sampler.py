"""A thread of the controller that asks its sources about once a second, and one that costs more less often."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Protocol

from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry
from pytest_loadtest.values.quantities import SECOND

EVERY: Final = SECOND
MOST: Final = 0.02  # cores that one source may use: where a sample of it costs more, they are further apart
_EXPECTED: Final = (OSError, LoadtestError)
LONGEST: Final = 10.0
"""s that the end waits for what a source says last."""
MARGIN: Final = 1.0
"""s more that it waits for the thread, so that a source that is given up after the former is told as such."""


class TelemetrySource(Protocol):
    """Something that can be asked again and again.

    ``missing``: what it could not find out, in sentences. ``used``: CPU seconds of threads of its own, so far.
    """

    @property
    def missing(self) -> Sequence[str]: ...

    @property
    def used(self) -> float: ...

    def read(self, now: int) -> Mapping[str, float]:
        """By column what is known now, ns of the clock; what is not known is left out. Raises OSError or LoadtestError when it is over.

        Any exception ends this source and no other.
        """

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
        self._lost: dict[str, str] = {}
        self._at, self._closed = "it", set[str]()
        self._used = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loadtest-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._make()
            self._go_on()
            self._close()
        except Exception as error:  # not a source's: without this the thread would end and all that it sampled would look complete
            self._missing.append(f"sampling: {_in_words(error)}")
            for asked in list(self._sources):
                self._lose(asked, error)
        self._used = time.thread_time()

    def _make(self) -> None:
        for what, make in self._making.items():
            try:
                self._sources.append(AskedSource(what, make()))
            except Exception as error:
                self._missing.append(f"{what}: {_in_words(error)}")

    def _go_on(self) -> None:
        self._sample()  # what rates are reckoned from
        number = 1
        while not self._stopping.wait(max(self._start + number * EVERY - time.monotonic_ns(), 0) / SECOND):
            self._sample()
            number = max(number, (time.monotonic_ns() - self._start) // EVERY) + 1

    def _close(self) -> None:
        last = dict[str, float]()
        for asked in list(self._sources):
            self._at = asked.what
            try:
                last |= asked.source.close()
            except Exception as error:
                self._lose(asked, error)
            self._closed.add(asked.what)
        if last:
            self._keep(time.monotonic_ns(), last)

    def _sample(self) -> None:
        now, row = time.monotonic_ns(), dict[str, float]()
        for asked in list(self._sources):
            self._at = asked.what
            try:
                row |= asked.ask(now)
            except Exception as error:
                self._lose(asked, error)
        self._keep(now, row)

    def _lose(self, asked: AskedSource, error: Exception) -> None:
        """End one source; it is lost if it had told something, and otherwise it never was one."""
        passed = max(time.monotonic_ns() - self._start, 0) / SECOND
        said = f"{asked.what}: {_in_words(error)}, {passed:.0f} s into the phase"
        self._sources.remove(asked)
        self._missing += [said, *(asked.missing() if asked.told else ())]
        if asked.told:
            self._lost[asked.what] = said
        with contextlib.suppress(Exception):  # it has failed already
            asked.source.close()

    def _keep(self, now: int, row: dict[str, float]) -> None:
        self._time.append(now - self._start)
        self._rows.append(row)

    def stop(self) -> Telemetry:
        """What was sampled; the first of all samples, at the start, knows no rates and is left out."""
        self._stopping.set()
        self._thread.join(LONGEST + MARGIN)
        took = (time.monotonic_ns() - self._start) / SECOND
        sources, count = list(self._sources), len(self._rows)
        missing = [*self._missing, *(said for one in sources for said in one.missing())]
        lost = dict(self._lost)
        if self._thread.is_alive():
            said = f"sampling: {self._at} did not end within {LONGEST + MARGIN:.0f} s, so the last samples are missing"
            missing.insert(0, said)
            lost |= dict.fromkeys([one.what for one in sources if one.told and one.what not in self._closed], said)
        used = self._used + sum(one.source.used for one in sources)
        return Telemetry.of_rows(
            self._time[1:count], self._rows[1:count], missing=tuple(missing), lost=lost, cost=used / took if took > 0 else 0.0,
            broker=self._broker,
        )  # fmt: skip


def _in_words(error: Exception) -> str:
    """The error as text. An unexpected one has its kind, for its text alone (``'url'``) may say nothing."""
    return str(error) if isinstance(error, _EXPECTED) else f"{type(error).__name__}: {error}"


class AskedSource:
    """A source, what it used so far in CPU seconds, and when it may be asked again."""

    def __init__(self, what: str, source: TelemetrySource) -> None:
        self.what, self.source, self.used, self._not_before = what, source, 0.0, 0
        self.told = False
        """Whether it ever had something to tell."""

    def ask(self, now: int) -> Mapping[str, float]:
        if now < self._not_before:
            return {}
        used = time.thread_time()
        found = self.source.read(now)
        self.told = self.told or bool(found)
        used = time.thread_time() - used
        self.used += used
        self._not_before = now + round(used / MOST * SECOND) - EVERY // 2  # a sample is a moment early or late
        return found

    def missing(self) -> list[str]:
        """What the source could not find out, and that it fails to say so."""
        try:
            return list(self.source.missing)
        except Exception as error:
            return [f"{self.what}: {_in_words(error)}"]


# A telemetry source that may be slow: it has a thread of its own, so that the others are sampled in time.

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
