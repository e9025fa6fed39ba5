"""Whether delayed messages come in the order of their due times, to within the broker's tick: at each consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DueOrder:
    """Keeps of each consumer the latest due time that it has seen."""

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}

    def overtaken(self, consumer: NDArray[np.int32], due: NDArray[np.int64], tick: int) -> NDArray[np.bool_]:
        """Rows before which their consumer had one that is due more than a tick later.

        :param consumer: the consumer's place. Rows of one consumer stand in arrival order. :param due: ns. :param tick: ns.
        """
        found = np.zeros(len(due), np.bool_)
        for place in np.unique(consumer).tolist():
            mine = np.flatnonzero(consumer == place)
            least = int(due[mine].min())
            seen = np.maximum.accumulate(np.concatenate([[self._latest.get(place, least)], due[mine]]))
            found[mine] = due[mine] < seen[:-1] - tick
            self._latest[place] = int(seen[-1])
        return found
