"""What brokers answered to PUBLISH packets, until the engine asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Acks

if TYPE_CHECKING:
    from collections.abc import Sequence


class AnswerColumns:
    """What was answered to all producers since it was last taken."""

    def __init__(self) -> None:
        self._row: list[int] = []
        self._time: list[int] = []
        self._status: list[int] = []
        self._resends: dict[int, int] = {}  # index of the answer → how often, where not 0

    def add(self, rows: Sequence[int], time: int, status: int, resends: int = 0) -> None:
        if resends:
            self._resends[len(self._row)] = resends
        self._row.extend(rows)
        self._time.extend([time] * len(rows))
        self._status.extend([status] * len(rows))

    def add_one(self, row: int, time: int, status: int, resends: int = 0) -> None:
        if resends:
            self._resends[len(self._row)] = resends
        self._row.append(row)
        self._time.append(time)
        self._status.append(status)

    def take(self) -> Acks | None:
        if not self._row:
            return None
        row, time, status, again = self._row, self._time, self._status, self._resends
        self._row, self._time, self._status, self._resends = [], [], [], {}
        resends = np.zeros(len(row), np.uint8) if again else None
        if resends is not None:
            resends[list(again)] = list(again.values())
        return Acks(np.array(row, np.int64), np.array(time, np.int64), np.array(status, np.int8), resends)
