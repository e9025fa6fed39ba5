"""A thread that reads its sources once a second, and expensive ones less often.

It runs in the controller, and in a process on each other host.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import repeat
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.observe.telemetry import Column

EVERY: Final = SECOND
MOST: Final = 0.02  # cores that one source may use: one with expensive samples is read less often
_EXPECTED: Final = (OSError, LoadtestError)
LONGEST: Final = 10.0
"""s that the end of a phase waits for a source's last values."""
MARGIN: Final = 1.0
"""Further s to wait for the thread, to report a source without last values."""


class TelemetrySource(Protocol):
    """A source of samples.

    ``missing``: sentences about what it could not sample. ``used``: CPU seconds of its own threads
    so far. A source may also have ``version``: the target's version as it last reported it, several
    of a cluster joined by "and"; "" while it is unknown; and ``notes``: sentences for the report
    about what it saw until it was closed.
    """

    @property
    def missing(self) -> Sequence[str]: ...

    @property
    def used(self) -> float: ...

    def read(self, now: int) -> Mapping[str, float]:
        """Return the known values by column. :param now: ns of the controller's clock.

        :raises OSError, LoadtestError: the source cannot continue. Any exception ends this source
            only.
        """

    def close(self) -> Mapping[str, float]:
        """End the source after the phase and its drain, and return its last values."""


class Sampler:
    """Samples from the phase's start until :meth:`stop`.

    :param sources: the source's name → a function that makes it; called in the thread, as it may
        have to connect.
    :param start: start of the phase, ns of the clock. :param broker: the target's name.
    :param missing: sentences about what has no source.
    :param clock: the controller's clock, ns; by default the monotonic clock.
    """

    def __init__(
        self,
        sources: Mapping[str, Callable[[], TelemetrySource]],
        start: int,
        *,
        broker: str,
        missing: Sequence[str] = (),
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._factories = sources
        self._start = start
        self._broker = broker
        self._clock = clock or time.monotonic_ns
        self._missing = list(missing)
        self._sources: list[PacedSource] = []
        self._has_first = False
        self._time = array("q")
        self._columns: dict[str, array[float]] = {}
        self._lost: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._at = "it"
        self._closed = set[str]()
        self._used = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loadtest-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._make()
            self._sample_until_stopped()
            self._close()
        # not from a source: without this the thread would end silently, and its samples would look
        # complete
        except Exception as error:
            self._missing.append(f"sampling: {_error_text(error)}")
            for paced in list(self._sources):
                self._lose(paced, error)
        self._used = time.thread_time()

    def _make(self) -> None:
        for name, make in self._factories.items():
            try:
                self._sources.append(PacedSource(name, make()))
            except Exception as error:
                self._missing.append(f"{name}: {_error_text(error)}")

    def _sample_until_stopped(self) -> None:
        self._sample()  # the first one only has totals, from which the next one computes rates
        number = 1
        while not self._stopping.wait(
            max(self._start + number * EVERY - self._clock(), 0) / SECOND
        ):
            self._sample()
            number = max(number, (self._clock() - self._start) // EVERY) + 1

    def _close(self) -> None:
        last = dict[str, float]()
        for paced in list(self._sources):
            self._at = paced.name
            try:
                last |= paced.source.close()
                self._keep_version(paced, self._clock())
            except Exception as error:
                self._lose(paced, error)
            self._closed.add(paced.name)
        if last:
            self._keep(self._clock(), last)

    def _sample(self) -> None:
        now = self._clock()
        row = dict[str, float]()
        for paced in list(self._sources):
            self._at = paced.name
            try:
                row |= paced.read(now)
                self._keep_version(paced, now)
            except Exception as error:
                self._lose(paced, error)
        self._keep(now, row)

    def _keep_version(self, paced: PacedSource, now: int) -> None:
        version = getattr(paced.source, "version", "")
        if version:
            self._versions.setdefault(version, max(now - self._start, 0))

    def _lose(self, paced: PacedSource, error: Exception) -> None:
        """End a failed source.

        It counts as lost if it had returned values, else only as missing.
        """
        passed = max(self._clock() - self._start, 0) / SECOND
        reason = f"{paced.name}: {_error_text(error)}, {passed:.0f} s into the phase"
        self._sources.remove(paced)
        self._missing.append(reason)
        if paced.answered:
            self._missing += paced.missing()
            self._lost[paced.name] = reason
        with contextlib.suppress(Exception):  # it has failed already
            paced.source.close()

    def _keep(self, now: int, row: dict[str, float]) -> None:
        """Keep a sample, except the first one, which has no rates."""
        if self._has_first:
            for name, value in row.items():
                column = self._columns.setdefault(name, array("d"))
                column.extend(repeat(math.nan, len(self._time) - len(column)))
                column.append(value)
            self._time.append(now - self._start)  # last: `stop` may read in the meantime
        self._has_first = True

    def stop(self) -> Telemetry:
        """Stop and return the samples."""
        self._stopping.set()
        self._thread.join(LONGEST + MARGIN)
        took = (self._clock() - self._start) / SECOND
        # Copies: the thread may still append.
        sources = list(self._sources)
        at = np.array(self._time[:], np.int64)
        missing = [*self._missing, *(text for paced in sources for text in paced.missing())]
        lost = dict(self._lost)
        if self._thread.is_alive():
            reason = (
                f"sampling: {self._at} did not end within {LONGEST + MARGIN:.0f} s,"
                " so the last samples are missing"
            )
            missing.insert(0, reason)
            for paced in sources:
                if paced.answered and paced.name not in self._closed:
                    lost[paced.name] = reason
        used = self._used + sum(paced.source.used for paced in sources)
        columns = {name: _filled(column, len(at)) for name, column in list(self._columns.items())}
        notes = [note for paced in sources for note in getattr(paced.source, "notes", ())]
        return Telemetry(
            time=at,
            columns=columns,
            missing=tuple(missing),
            lost=lost,
            cost=used / took if took > 0 else 0.0,
            broker=self._broker,
            versions=dict(self._versions),
            notes=tuple(notes),
        )


def _filled(column: array[float], length: int) -> Column:
    """Return a column whose last samples may be unknown."""
    values: Column = np.full(length, np.nan)
    known = np.array(column[:length], np.float64)
    values[: len(known)] = known
    return values


def _error_text(error: Exception) -> str:
    """Return the error as text, an unexpected one with its class.

    Its text alone (``'url'``) may be meaningless.
    """
    return str(error) if isinstance(error, _EXPECTED) else f"{type(error).__name__}: {error}"


class PacedSource:
    """A source, the CPU seconds that it used, and the earliest time of its next sample."""

    def __init__(self, name: str, source: TelemetrySource) -> None:
        self.name = name
        self.source = source
        self.used = 0.0
        self._not_before = 0
        self.answered = False
        """True once it has returned a value."""

    def read(self, now: int) -> Mapping[str, float]:
        if now < self._not_before:
            return {}
        used = time.thread_time()
        values = self.source.read(now)
        self.answered = self.answered or bool(values)
        used = time.thread_time() - used
        self.used += used
        self._not_before = (
            now + round(used / MOST * SECOND) - EVERY // 2
        )  # half a period of tolerance, as samples are not exactly on time
        return values

    def missing(self) -> list[str]:
        """Return the source's sentences about what it could not sample.

        An error that it raises instead is such a sentence.
        """
        try:
            return list(self.source.missing)
        except Exception as error:
            return [f"{self.name}: {_error_text(error)}"]


# s that a sample waits for a slow source; a later answer is part of the next sample
_PATIENCE: Final = 0.2


class BackgroundSource:
    """A source that may be slow, with its own thread, so that it does not delay the others.

    It has one open request at a time.

    :param make: makes the source, in that thread.
    """

    def __init__(self, make: Callable[[], TelemetrySource]) -> None:
        self._make = make
        self._paced: PacedSource | None = None
        self._given_up = False
        self._open: Future[Mapping[str, float]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loadtest-background")

    @property
    def missing(self) -> Sequence[str]:
        """The source's sentences, and whether its first or last answer is missing."""
        missing = [f"{COUNTERS}: no answer"]
        if self._paced is not None:
            missing = list(self._paced.source.missing)
        if self._given_up:
            missing.append(f"{COUNTERS}: no last answer within {LONGEST:.0f} s")
        return missing

    @property
    def used(self) -> float:
        """CPU seconds of the source so far."""
        return self._paced.used if self._paced else 0.0

    @property
    def version(self) -> str:
        """The target's version, by the source; "" if it is unknown."""
        return getattr(self._paced.source, "version", "") if self._paced else ""

    @property
    def notes(self) -> Sequence[str]:
        """The source's sentences for the report."""
        return getattr(self._paced.source, "notes", ()) if self._paced else ()

    def read(self, now: int) -> Mapping[str, float]:
        """Return the answers that have arrived; starts a request if none is open.

        Raises the source's exceptions.
        """
        values = self._answer(0)
        if self._open is None:
            self._open = self._thread.submit(self._request, now)
        return values | self._answer(_PATIENCE)

    def _answer(self, patience: float) -> dict[str, float]:
        if self._open is None or not wait([self._open], patience).done:
            return {}
        answered = self._open
        self._open = None
        return dict(answered.result())

    def _request(self, now: int) -> Mapping[str, float]:
        if self._paced is None:
            self._paced = PacedSource("", self._make())
        return self._paced.read(now)

    def close(self) -> Mapping[str, float]:
        """Return the source's last values, unless they take too long."""
        closing = self._thread.submit(lambda: self._paced.source.close() if self._paced else {})
        self._thread.shutdown(wait=False)
        self._given_up = not wait([closing], LONGEST).done
        return {} if self._given_up else closing.result()
