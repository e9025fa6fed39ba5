"""Clocks of several hosts: the relation between a host's monotonic clock and the controller's, and
the error of that relation.

An *exchange* is a question of the controller and the answer of a host, with three times: the
controller's clock when the question left and when the answer came, and the host's clock in between.
The host's time belongs to some instant between the two, so each exchange is an interval that has
the offset in it, as wide as the round trip, however asymmetric the path is (the bound of NTP, RFC
5905 section 4).

Between two exchanges the offset changes by drift and slew, and by no more than :data:`MOST_SLEW` of
the time between them. If some two intervals are further apart than that, the clock was set, and
there is no relation: this is tested with every exchange, fast or slow.

Exchanges come in bursts. The fastest exchanges of each burst have the best offsets, because
whatever delays one direction makes the round trip longer. A line through them gives offset and
drift. It need not agree with the clock: the stated error is the largest distance from the line at
which the exchanges still allow the offset to be, at any time between the first and the last burst.
At each time it is what the two exchanges before allow or what the two after allow, whichever is
more: then it also covers a clock that was set by less than can be found. Two on each side, so that
one slow burst is bridged. Not covered is a clock that is set and set back before the third burst
after.

A thread of the controller makes the exchanges while load runs; the controller fits lines before and
after it, and Spark's workers correct the times of rows by them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

BURST: Final = 100_000_000
"""ns: exchanges that are further apart belong to different bursts."""
KEPT: Final = 10
"""One in so many exchanges of a burst is kept: the fastest tenth, and at least one."""
DRIFT_AFTER: Final = 5_000_000_000
"""ns between the first burst and the last one from which on a drift is fitted.

Over shorter times noise gives drifts that are not there: bursts over some seconds gave -3 to 94 ppm
for a clock that drifted by 50 ppm. The stated error covers a drift that is not fitted.
"""
MOST_SLEW: Final = 500e-6
"""Seconds per second by which the offset between two clocks that nobody sets may change.

Linux lets NTP change the rate of a clock by so much (MAXFREQ in its timex.h), and ntpd and
systemd-timesyncd slew no faster; crystals differ by less than a fifth of it. chronyd may slew
faster: that counts as a clock that was set, if it goes on for long enough to be seen. A latency
that is read on such a clock alone is wrong by this share at most, which is as much as a percentile
of a histogram may be off.
"""
ROUNDING: Final = 2
"""ns: clocks are read in whole ns."""


@immutable
class ClockExchange:
    """One question and its answer.

    :param left: the controller's clock when the question left, ns.
    :param host: the host's clock when it answered, ns.
    :param came: the controller's clock when the answer came, ns.
    """

    left: int
    host: int
    came: int

    @property
    def round_trip(self) -> int:
        """Time between question and answer, ns."""
        return self.came - self.left

    @property
    def offset(self) -> int:
        """The host's clock less the controller's, ns, if the host answered in the middle; wrong by
        half the round trip at most.
        """
        return self.host - (self.left + self.came) // 2


@record
class ClockLine:
    """A linear relation: the controller's time is ``host - offset - drift × (host - at)``.

    :param at: the host's time at which ``offset`` holds, ns.
    :param offset: the host's clock less the controller's, ns.
    :param drift: change of the offset, seconds per second.
    """

    at: int
    offset: int
    drift: float = 0.0

    def to_controller(self, host: int) -> int:
        """Convert an instant of the host's clock, ns."""
        return host - self.offset - round(self.drift * (host - self.at))


@record
class ClockFit:
    """The relation that exchanges show, and how good it is.

    :param line: the fitted line.
    :param error: bound on the error of a time that is converted by it, between the end of the first
        burst and the start of the last one, ns.
    :param round_trip: the best one, ns.
    :param exchanges: number of exchanges.
    :param holds: the exchanges agree with a clock that drifts and slews by :data:`MOST_SLEW` at
        most; False if it was set, so that ``error`` bounds nothing, and latencies within the host
        are unknown too.
    """

    line: ClockLine
    error: int
    round_trip: int
    exchanges: int
    holds: bool


def fit_clock(exchanges: Sequence[ClockExchange]) -> ClockFit:
    """Fit a line to the fastest exchanges of each burst, and bound its distance from the host's
    clock.

    :param exchanges: at least one, in the order in which they were made.
    """
    kept = []
    for burst in _bursts(exchanges):
        kept += _fastest(burst)
    line = _fit_line(kept)
    without_drift = replace(line, drift=0.0)
    return ClockFit(
        line=line,
        error=_largest_distance(_Bounds.of(kept, line), MOST_SLEW + abs(line.drift)),
        round_trip=min(exchange.round_trip for exchange in kept),
        exchanges=len(exchanges),
        holds=not _is_set(_Bounds.of(exchanges, without_drift)),
    )


def _fastest(burst: Sequence[ClockExchange]) -> list[ClockExchange]:
    """Return the fastest tenth of a burst, in the order in which the exchanges were made."""
    count = max(len(burst) // KEPT, 1)
    fastest = sorted(burst, key=attrgetter("round_trip"))[:count]
    return sorted(fastest, key=attrgetter("left"))


def _fit_line(kept: Sequence[ClockExchange]) -> ClockLine:
    # The line is written around the last exchange: the next phase uses it from there on.
    last = kept[-1]
    # Small numbers: a float has 53 bits, and ns since the boot of a host may need more.
    time = (_column(kept, "host") - last.host).astype(np.float64)
    offset = (_column(kept, "offset") - last.offset).astype(np.float64)
    # The error of an offset is in proportion to the round trip.
    weight = 1 / np.maximum(_column(kept, "round_trip"), 1)
    drift = 0.0
    start = float(np.average(offset, weights=weight))
    if np.ptp(time) >= DRIFT_AFTER:
        slope, intercept = np.polyfit(time, offset, 1, w=weight)
        # Beyond this it is noise or a step, and a line that is used for the next phase must not go
        # on with it.
        if abs(slope) <= MOST_SLEW:
            drift = float(slope)
            start = float(intercept)
    return ClockLine(at=last.host, offset=last.offset + round(start), drift=drift)


def _column(exchanges: Sequence[ClockExchange], name: str) -> NDArray[np.int64]:
    """Return an attribute of all exchanges, ns."""
    return np.array([getattr(exchange, name) for exchange in exchanges], np.int64)


@immutable
class _Bounds:
    """Bounds on the distance of the host's clock from a line, ns, by exchange.

    :param began: the controller's clock when the question left, since the first one.
    :param ended: when the answer came.
    """

    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    began: NDArray[np.float64]
    ended: NDArray[np.float64]

    @classmethod
    def of(cls, exchanges: Sequence[ClockExchange], line: ClockLine) -> _Bounds:
        # The host answered when the line's clock showed this: differences are small, and exact as
        # floats.
        shown = np.array([line.to_controller(exchange.host) for exchange in exchanges], np.int64)
        left = _column(exchanges, "left")
        came = _column(exchanges, "came")
        return cls(
            lowest=(shown - came).astype(np.float64),
            highest=(shown - left).astype(np.float64),
            began=(left - left[0]).astype(np.float64),
            ended=(came - left[0]).astype(np.float64),
        )

    def mirrored(self) -> _Bounds:
        """Return the bounds of a clock that is ahead wherever this one is behind."""
        return _Bounds(-self.highest, -self.lowest, self.began, self.ended)


def _is_set(bounds: _Bounds) -> bool:
    """Return whether drift and slew cannot explain the change between some two exchanges."""
    return _leaps_up(bounds) or _leaps_up(bounds.mirrored())


def _leaps_up(bounds: _Bounds) -> bool:
    # For all pairs at once: the bound of a later exchange is compared with the smallest one that
    # any earlier one leaves for its time.
    allowed = np.minimum.accumulate(bounds.highest - MOST_SLEW * bounds.began)[:-1]
    reached = (bounds.lowest - MOST_SLEW * bounds.ended)[1:]
    return bool((reached > allowed + ROUNDING).any())


def _largest_distance(bounds: _Bounds, rate: float) -> int:
    """Return the largest distance from the line that the exchanges allow, ns.

    :param rate: its fastest change, seconds per second.
    """
    largest = max(_largest_above(bounds, rate), _largest_above(bounds.mirrored(), rate))
    return int(np.ceil(largest)) + ROUNDING


def _largest_above(bounds: _Bounds, rate: float) -> float:
    if len(bounds.highest) == 1:
        return float(bounds.highest[0])
    # Both as straight lines in time: what each exchange allows after it, and what it allows before
    # it.
    after = bounds.highest - rate * bounds.began
    before = bounds.highest + rate * bounds.ended
    # The better of each exchange and the one further away.
    after[1:] = np.minimum(after[1:], after[:-1])
    before[:-1] = np.minimum(before[:-1], before[1:])
    # Between two exchanges these lines are highest at the other exchange.
    highest_after = (after[:-1] + rate * bounds.ended[1:]).max()
    highest_before = (before[1:] - rate * bounds.began[:-1]).max()
    return float(max(highest_after, highest_before))


def _bursts(exchanges: Sequence[ClockExchange]) -> list[list[ClockExchange]]:
    bursts = [[exchanges[0]]]
    for before, exchange in pairwise(exchanges):
        if exchange.left - before.came > BURST:
            bursts.append([])
        bursts[-1].append(exchange)
    return bursts


@record
class HostTime:
    """The error of the times of one host in a phase.

    :param host: its name.
    :param error: bound on the error, ns.
    :param round_trip: of the best exchange, ns.
    :param holds: as of :class:`ClockFit`.
    """

    host: str
    error: int
    round_trip: int
    holds: bool


@record
class WithinHosts:
    """The deliveries whose producer and consumer are on one host, by their first copies.

    :param deliveries: their number.
    :param complete: by the plan all deliveries are, and times are as the hosts stamped them: both
        ends of each latency are read on one clock, so it has no error of a relation between clocks
        (decision 029).
    """

    deliveries: int
    complete: bool


@record
class Correction:
    """Changes times that a worker recorded by one line into those of a better line, which is known
    only when load is over.

    :param used: the line by which the worker converted its host's clock while load ran.
    :param better: the line of the whole run.
    """

    used: ClockLine
    better: ClockLine

    def apply(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the corrected times, ns of the controller's clock."""
        used = self.used
        better = self.better
        # Both lines are functions of the host's time, which follows from the recorded time by the
        # line that made it. The time since `used.at` is small, so it is exact as a float.
        elapsed = (times - (used.at - used.offset)) / (1 - used.drift)
        change = (
            used.offset
            - better.offset
            + used.drift * elapsed
            - better.drift * (elapsed + (used.at - better.at))
        )
        return times + np.rint(change).astype(np.int64)

    def of_rows(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Correct the columns of samples that a worker stamped.

        Intended times are the controller's already: it names the start of a phase. 0 is no time:
        the message was not sent, or not acked.
        """
        corrected = dict(rows)
        for name in ("sent", "acked", "received"):
            if name in rows:
                corrected[name] = np.where(rows[name] == 0, 0, self.apply(rows[name]))
        return corrected
