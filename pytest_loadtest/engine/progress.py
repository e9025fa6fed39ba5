"""The progress of a phase on one worker, as it is sent to the controller while load runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@record
class TimelyReport:
    """The number of copies that took no longer than each bound, by second of their intended time.

    :param first: the first second reported, from the phase's start.
    :param counts: ``[bound][second - first]``.
    """

    first: int
    counts: tuple[tuple[int, ...], ...]

    def count(self, bound: int, second: int) -> int:
        """Return the count for a bound and a second, which must not be before the first."""
        counts = self.counts[bound]
        place = second - self.first
        return counts[place] if place < len(counts) else 0


@record
class Progress:
    """One worker's counts in the current phase; ``sending`` until all its messages are handed over
    or dropped.

    :param elapsed: time of this report, ns after the phase's start; every arrival up to
        :data:`~pytest_loadtest.engine.run.COLLECT` before is counted.
    :param send_delay_p99: ns, less blocked time, of the messages sent since the last report; None
        without any.
    :param receive_lag_p99: ns, of the copies that the driver handed over since the last report;
        None where it is unknown for all of them.
    :param repeats: received copies that may be second copies, judged by the sequences that the same
        consumer got before.
    :param redelivered: received copies that the target marks as possibly delivered before, to any
        consumer.
    :param resent: answered messages that the client had sent again after a lost connection.
    :param beyond_bounds: copies that took longer, for each latency bound that the controller
        watches.
    :param timely: copies that came in time, by second; None unless the profile ends a run by
        latencies.
    :param taken: everything that the worker's consumers got since they were opened, in all phases.
    :param connected: every client of the worker is connected; looked at only when it no longer
        sends.
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
    timely: TimelyReport | None = None
    workload: str = ""
    redelivered: int = 0
    resent: int = 0
    taken: int = 0
    connected: bool = True
    receive_lag_p99: int | None = None

    @property
    def has_second_copies(self) -> bool:
        """True if some received copies may be second copies, of messages that this or another
        worker counted.
        """
        return bool(self.repeats or self.redelivered or self.resent)


def take_p99(columns: list[NDArray[np.int64]]) -> int | None:
    """Return the p99 of all values in the columns, None without any; clear the list."""
    together = np.concatenate(columns) if columns else np.empty(0, np.int64)
    columns.clear()
    if not len(together):
        return None
    # Nearest rank, counted from 0: of 100 values the 99th. A selection needs no sort of all values.
    rank = (len(together) * 99 + 99) // 100 - 1
    return int(np.partition(together, rank)[rank])


class TimelyCounts:
    """Counts of the copies that took no longer than each bound, by second of their intended time,
    for the last seconds.

    Second copies count too, because a worker cannot recognize them all. The counts are therefore
    never below those of first copies: the profile's ``abort``, which needs enough timely copies,
    never ends a run because of second copies; it may end one later.

    :param bounds: latencies, ns.
    :param kept: number of seconds that a report covers.
    """

    def __init__(self, bounds: Sequence[int], kept: int) -> None:
        self._bounds = bounds
        self._kept = kept
        self.begin(0)

    def begin(self, start: int) -> None:
        """Reset the counts for a phase.

        :param start: ns.
        """
        self._start = start
        self._counts: list[Counter[int]] = [Counter() for _ in self._bounds]

    def add(self, intended: NDArray[np.int64], received: NDArray[np.int64]) -> None:
        """Count copies that arrived."""
        if not self._bounds:
            return
        second = (intended - self._start) // SECOND
        latency = received - intended
        for counts, bound in zip(self._counts, self._bounds, strict=True):
            timely = second[latency <= bound]
            if len(timely):
                # counted from the first second on: the copies of one call lie in few seconds,
                # whatever the phase's length
                first = int(timely.min())
                for second_after, count in enumerate(np.bincount(timely - first).tolist()):
                    if count:
                        counts[first + second_after] += count

    def report(self, elapsed: int) -> TimelyReport | None:
        """Return the last seconds before ``elapsed`` (ns after the start), None without bounds.

        Older seconds are discarded.
        """
        if not self._bounds:
            return None
        last = elapsed // SECOND + 1
        first = max(last - self._kept, 0)
        # removed at every report, so that the counts stay small however long the phase is
        reported = []
        for counts in self._counts:
            for second in list(counts):
                if second < first:
                    del counts[second]
            reported.append(tuple(counts[second] for second in range(first, last)))
        return TimelyReport(first=first, counts=tuple(reported))
