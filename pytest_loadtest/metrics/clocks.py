"""Clocks of several hosts: the relation between a host's monotonic clock and the controller's, and the error of that relation.

An *exchange* is a question of the controller and the answer of a host, with three times: the controller's clock when the question left and
when the answer came, and the host's clock in between. The host's time belongs to some instant between the two, so the offset that follows
from their middle is wrong by half the round trip at most, however asymmetric the path is (the bound of NTP, RFC 5905 section 4).

Exchanges come in bursts. The offset of a burst is that of its fastest exchanges, because whatever delays one direction makes the round
trip longer. A line through the bursts gives offset and drift. The error that is stated for the line is half the best round trip of the
first burst or of the last one, whichever is larger, plus the largest distance between the line and the exchanges that it was fitted to. Two
lines differ most at the ends of an interval, so the error holds between the first burst and the last one as long as the host's clock runs
evenly. Bursts in between show whether it does; those whose round trips are long, because the host was busy, show nothing and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

BURST: Final = 200_000_000
"""ns: exchanges that are further apart belong to different bursts."""
KEPT: Final = 10
"""One in so many exchanges of a burst is kept: the fastest tenth, and at least one."""
SLOW: Final = 2
"""A burst between the first and the last one is left out if its best round trip is so many times the best of all."""
DRIFT_AFTER: Final = 10_000_000_000
"""ns between the first burst and the last one from which on a drift is fitted. Over shorter times noise gives drifts that are not there:
bursts over some seconds gave -3 to 94 ppm for a clock that drifted by 50 ppm."""
MOST_SLEW: Final = 500e-6
"""Seconds per second by which Linux lets NTP change the rate of a clock (MAXFREQ in its timex.h). A latency that is read on such a clock
alone is wrong by this share at most, which is as much as a percentile of a histogram may be off."""


@dataclass(frozen=True, slots=True)
class ClockExchange:
    """One question and its answer.

    :param left: the controller's clock when the question left, ns. :param host: the host's clock when it answered, ns.
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
        """The host's clock less the controller's, ns, if the host answered in the middle; wrong by half the round trip at most."""
        return self.host - (self.left + self.came) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLine:
    """A linear relation: the controller's time is ``host - offset - drift × (host - at)``.

    :param at: the host's time at which ``offset`` holds, ns. :param offset: the host's clock less the controller's, ns.
    :param drift: change of the offset, seconds per second.
    """

    at: int
    offset: int
    drift: float = 0.0

    def to_controller(self, host: int) -> int:
        """Convert an instant of the host's clock, ns."""
        return host - self.offset - round(self.drift * (host - self.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFit:
    """The relation that exchanges show, and how good it is.

    :param line: the fitted line. :param error: bound on the error of a converted time, ns. :param round_trip: the best one, ns.
    :param exchanges: number of exchanges. :param holds: the line agrees with each exchange it was fitted to, within half its round trip;
        False if the clock was set, or did not run evenly.
    :param steady: from burst to burst the offset changed by no more than NTP may change it, so latencies within the host are true whether
        or not the line holds; False also if unknown, as in files of older releases.
    """

    line: ClockLine
    error: int
    round_trip: int
    exchanges: int
    holds: bool
    steady: bool = False


def fit_clock(exchanges: Sequence[ClockExchange]) -> ClockFit:
    """Fit a line to the fastest exchanges of each burst.

    :param exchanges: at least one, in the order in which they were made.
    """
    bursts = [sorted(burst, key=lambda one: one.round_trip) for burst in _bursts(exchanges)]
    best = min(burst[0].round_trip for burst in bursts)
    ends = (bursts[0], bursts[-1])
    bursts = [burst for burst in bursts if burst in ends or burst[0].round_trip <= SLOW * best]
    kept = [exchange for burst in bursts for exchange in burst[: max(len(burst) // KEPT, 1)]]
    # The line is written around the last exchange: the next phase uses it from there on.
    at = kept[-1].host
    # Small numbers: a float has 53 bits, and ns since the boot of a host may need more.
    time = np.array([exchange.host - at for exchange in kept], np.float64)
    base = kept[-1].offset
    offset = np.array([exchange.offset - base for exchange in kept], np.float64)
    drift, start = np.polyfit(time, offset, 1) if time.max() - time.min() >= DRIFT_AFTER else (0.0, float(np.median(offset)))
    distance = np.abs(offset - (start + drift * time))
    half = np.array([exchange.round_trip for exchange in kept]) / 2
    return ClockFit(
        line=ClockLine(at=at, offset=base + round(float(start)), drift=float(drift)),
        error=-(-max(burst[0].round_trip for burst in ends) // 2) + int(np.ceil(distance.max())),
        round_trip=best,
        exchanges=len(exchanges),
        holds=bool((distance <= np.maximum(half, 1)).all()),
        steady=not any(_stepped(before[0], after[0]) for before, after in pairwise(bursts)),
    )


def _stepped(before: ClockExchange, after: ClockExchange) -> bool:
    """Return whether the offset changed by more between two exchanges than their errors and the fastest slew explain."""
    # Each offset is wrong by half a round trip at most. Nothing but a step explains what is beyond both, and beyond the slew.
    uncertain = (before.round_trip + after.round_trip) / 2
    return abs(after.offset - before.offset) > uncertain + MOST_SLEW * (after.came - before.left)


def _bursts(exchanges: Sequence[ClockExchange]) -> list[list[ClockExchange]]:
    bursts = [[exchanges[0]]]
    for before, exchange in pairwise(exchanges):
        if exchange.left - before.came > BURST:
            bursts.append([])
        bursts[-1].append(exchange)
    return bursts


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """The error of the times of one host in a phase.

    :param host: its name. :param error: bound on the error, ns. :param round_trip: of the best exchange, ns.
    :param holds: as of :class:`ClockFit`. :param steady: as of :class:`ClockFit`.
    """

    host: str
    error: int
    round_trip: int
    holds: bool
    steady: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinHosts:
    """The deliveries whose producer and consumer are on one host, by their first copies.

    :param deliveries: their number. :param complete: by the plan all deliveries are, and times are as the hosts stamped them: both ends of
        each latency are read on one clock, so it has no error of a relation between clocks (decision 029).
    """

    deliveries: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Changes times that a worker recorded by one line into those of a better line, which is known only when load is over.

    :param used: the line by which the worker converted its host's clock while load ran. :param better: the line of the whole run.
    """

    used: ClockLine
    better: ClockLine

    def apply(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the corrected times, ns of the controller's clock."""
        used, better = self.used, self.better
        # Both lines are functions of the host's time, which follows from the recorded time by the line that made it.
        elapsed = (times - (used.at - used.offset)) / (1 - used.drift)  # of the host's clock, since `used.at`: small, so exact as float
        change = used.offset - better.offset + used.drift * elapsed - better.drift * (elapsed + (used.at - better.at))
        corrected: NDArray[np.int64] = times + np.rint(change).astype(np.int64)
        return corrected

    def of_rows(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Correct the columns of samples that a worker stamped.

        Intended times are the controller's already: it names the start of a phase. 0 is no time: the message was not sent, or not acked.
        """
        stamped = {name: rows[name] for name in ("sent", "acked", "received") if name in rows}
        return {**rows, **{name: np.where(times == 0, 0, self.apply(times)) for name, times in stamped.items()}}
