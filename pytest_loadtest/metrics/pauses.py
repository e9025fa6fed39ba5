"""The pauses and late sends of a worker's loop, and which stamps each can have made late (decision
049): those in it, those that follow it closely, and for as long again those after a stall.

A worker records them (:mod:`pytest_loadtest.engine.pauses`); the controller reads them from its
manifest, and Spark's workers ask them about each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.clocks import Correction

# ns. A pause longer than this is a stall: well above a scheduler's time slice, well below the
# latencies that SLOs bound.
STALL: Final = 50 * MILLISECOND
# ns. A shorter pause is two ticks of a loop that works as planned.
SHORTEST: Final = 2 * MILLISECOND
COLUMNS: Final = ("begin", "end", "since", "until")


def _none() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """The longest pauses of one worker's loop in a phase; int64 ``(n,)`` each, ns, ascending, no
    two overlap.

    :param begin: and
    :param end: the time in which the loop sent nothing and looked at nothing.
    :param since: and
    :param until: the longest part of it in which the client took nothing: a library's own threads
        may go on, and before the loop has its turn again, the client has read what had come.
    :param exact: the kernel stamps arrivals, so a short pause changes no time.
    :param due: and
    :param sent: the steps of late sends, ``due`` ascending: what was due from one ``due`` until the
        next was sent at the former's ``sent``, or later.
    """

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    since: NDArray[np.int64]
    until: NDArray[np.int64]
    exact: bool
    due: NDArray[np.int64] = field(default_factory=_none)
    sent: NDArray[np.int64] = field(default_factory=_none)
    _steps: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _longest: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _edges: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the stalls, and the times in which stamps can be late."""
        is_stall = self.until - self.since > STALL
        end_of_effect = np.where(is_stall, 2 * self.until - self.since, self.until + SHORTEST)

        # The longest stall whose consequences last, by steps in time: of stalls of 10 and 8 ns that
        # ended at 10 and 19, it is 0, 10 from 10 on, 8 from 20 on, and 0 from 27 on.
        ended = self.until[is_stall]
        lasts = end_of_effect[is_stall]
        steps = np.unique(np.concatenate([ended, lasts, [np.iinfo(np.int64).min]]))
        # (steps, stalls)
        in_effect = (ended <= steps[:, None]) & (steps[:, None] < lasts)
        longest = np.max(in_effect * (lasts - ended), axis=1, initial=0)

        # The dataclass is frozen, and these fields are derived from the others.
        object.__setattr__(self, "_steps", steps)
        object.__setattr__(self, "_longest", longest)
        object.__setattr__(self, "_edges", _union(self.since, end_of_effect))

    @classmethod
    def of_document(cls, document: Mapping[str, Any], correction: Correction | None = None) -> Self:
        """Return the pauses of a manifest.

        :param correction: of the worker's clock.

        :raises KeyError, TypeError, ValueError: they are not a manifest's.
        """
        columns = [np.array(document[name], np.int64) for name in COLUMNS]
        if len(set(map(len, columns))) > 1:
            raise ValueError("pauses have columns of different lengths")
        edges = np.stack(columns[:2], axis=1).ravel()
        if (np.diff(edges) < 0).any():
            raise ValueError("pauses are not in the order of time")
        due = np.array(document["late"]["due"], np.int64)
        sent = np.array(document["late"]["sent"], np.int64)
        if len(due) != len(sent):
            raise ValueError("late sends have columns of different lengths")
        if (np.diff(due) < 0).any():
            raise ValueError("late sends are not in the order of time")
        if correction is not None:
            columns = [correction.apply(column) for column in columns]
            # Intended times are those of the plan, on every host.
            sent = correction.apply(sent)
        begin, end, since, until = columns
        return cls(
            begin=begin,
            end=end,
            since=since,
            until=until,
            exact=bool(document["exact"]),
            due=due,
            sent=sent,
        )

    @property
    def stalled(self) -> bool:
        """True if a pause is a stall, or sends were late by as much."""
        return bool((self.end - self.begin > STALL).any() or (self.sent - self.due > STALL).any())

    def until_sent(self, intended: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return by how much messages were sent late at least, ns.

        :param intended: their intended times.
        """
        late = np.zeros(len(intended), np.int64)
        place = np.searchsorted(self.due, intended, side="right") - 1
        after = np.flatnonzero(place >= 0)
        late[after] = np.maximum(self.sent[place[after]] - intended[after], 0)
        return late

    def waited(
        self, times: NDArray[np.int64], floor: NDArray[np.int64], lag: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the part of the time from ``floor`` to each stamp that the pauses may have added,
        ns.

        :param times: stamps of copies or acknowledgements.
        :param floor: ns, at which each could have come at the earliest.
        :param lag: ns, receive lags; -1: unknown.
        """
        part = np.zeros(len(times), np.int64)
        # An odd number of edges before a time: it lies in a pause, or shortly after. Most times do
        # not.
        affected = np.flatnonzero(np.searchsorted(self._edges, times, side="left") & 1)
        if len(affected):
            times = times[affected]
            floor = floor[affected]
            in_pause = self._in_pause(times, floor, lag[affected])
            part[affected] = np.maximum(in_pause, self._after_stall(times, floor))
        return part

    def _in_pause(
        self, times: NDArray[np.int64], floor: NDArray[np.int64], lag: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        place = np.searchsorted(self.since, times, side="left") - 1
        since = self.since[place]
        until = self.until[place]
        # What a client stamps itself has the time of its first look after the pause, or a little
        # later.
        affected = (place >= 0) & (times < until + SHORTEST)
        most = np.where(affected, np.maximum(times - np.maximum(since, floor), 0), 0)
        # The lag of a copy in a pause is the longest that it can have had; the part after the stamp
        # is not in its latency.
        before_stamp = np.clip(lag - (until - times), 0, most) * (times < until)
        without_lag = np.minimum(most, np.maximum(until - since, 0))
        return np.where(lag >= 0, before_stamp, without_lag)

    def _after_stall(self, times: NDArray[np.int64], floor: NDArray[np.int64]) -> NDArray[np.int64]:
        longest = self._longest[np.searchsorted(self._steps, times, side="right") - 1]
        part: NDArray[np.int64] = np.clip(times - floor, 0, longest)
        return part


def _union(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the union of some times as begins and ends by turns.

    :param begin: ascending.
    """
    latest = np.maximum.accumulate(end)
    apart = np.flatnonzero(begin[1:] > latest[:-1]) + 1
    starts = np.concatenate([begin[:1], begin[apart]])
    ends = np.concatenate([latest[apart - 1], latest[-1:]])
    return np.stack([starts, ends], axis=1).ravel()
