"""The pauses of a worker's loop in a phase, which are the evidence that times are late because of
the generator (decision 049).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.metrics.pauses import COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST: Final = 1024
"""Pauses of a phase that are kept: the longest. They are some 60 kB of a manifest."""


class _Pause(NamedTuple):
    """A pause. It is compared by its length first."""

    length: int
    begin: int
    end: int
    since: int
    until: int


class PauseLog:
    """The longest pauses of a phase.

    :param most: number of pauses that are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Begin a phase."""
        self._open: list[tuple[int, int]] = []
        self._kept: list[_Pause] = []

    def add(self, begin: int, end: int) -> None:
        """Add a time in which the loop sent nothing and looked at nothing, ns."""
        self._open.append((begin, end))

    def took(self, times: NDArray[np.int64] | None = None) -> None:
        """Settle the pauses since the last call.

        :param times: ns, at which the client took copies since then; None without any.
        """
        for begin, end in self._open:
            since = begin
            until = end
            if times is not None:
                # A client with threads of its own may have gone on while the loop stood still, and
                # any client has read what had come before the loop had its turn: the client stood
                # still for no longer than the longest time between two takes.
                within = np.sort(times[(times > begin) & (times < end)])
                edges = np.concatenate([[begin], within, [end]])
                longest = int(np.argmax(np.diff(edges)))
                since, until = edges[longest : longest + 2].tolist()
            pause = _Pause(end - begin, begin, end, since, until)
            if len(self._kept) < self._most:
                heapq.heappush(self._kept, pause)
            else:
                heapq.heappushpop(self._kept, pause)
        self._open.clear()

    def document(self, *, exact: bool) -> dict[str, Any]:
        """Return the pauses as a manifest has them.

        :param exact: the kernel stamps arrivals.
        """
        self.took()
        pauses = sorted(self._kept, key=lambda pause: pause.begin)
        document: dict[str, Any] = {"exact": exact}
        for name in COLUMNS:
            document[name] = [getattr(pause, name) for pause in pauses]
        return document
