"""How long a stream stood before the target's full window, and how much of a message's delay that explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BlockedTime:
    """The intervals in which one stream had messages due and the target took none.

    A window is *full* from the attempt that it cut short until the next attempt; but when it ran empty in between, the target stood idle
    and only the time until then counts: the rest is the generator's own lateness.
    """

    def __init__(self) -> None:
        self.full_since: int | None = None
        self._starts: list[int] = []
        self._ends: list[int] = []

    def attempt(self, now: int, *, waiting: bool, idle_since: int | None) -> None:
        """The stream tries again at ``now``; close the interval that the last attempt opened.

        :param waiting: the target still takes nothing.
        :param idle_since: when the window ran empty, None while anything is in flight.
        """
        if self.full_since is None:
            return
        end = now if waiting or idle_since is None else min(now, max(idle_since, self.full_since))
        if self._ends and self._ends[-1] == self.full_since:
            self._ends[-1] = end
        elif end > self.full_since:
            self._starts.append(self.full_since)
            self._ends.append(end)
        self.full_since = None

    def fill(self, out: NDArray[np.int64], intended: NDArray[np.int64]) -> None:
        """Write into ``out`` the blocked time between each message's intended time and now; forget what nobody can need again."""
        if not self._ends:
            return
        starts, ends = np.array(self._starts), np.array(self._ends)
        lengths = ends - starts
        # cumulative blocked time is piecewise linear with its corners at starts and ends
        corners = np.stack([starts, ends], axis=1).ravel()
        total = np.concatenate([[0], np.cumsum(lengths)])
        levels = np.stack([total[:-1], total[1:]], axis=1).ravel()
        out[:] = total[-1] - np.interp(intended, corners, levels).astype(np.int64)
        old = int(np.searchsorted(ends, intended[-1], side="right"))
        del self._starts[:old], self._ends[:old]
