"""Columns of what a client library answers and delivers one message at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Acks, Received
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class AnswerColumns:
    """Answers to all producers since they were last taken."""

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


class ArrivedMessages:
    """Messages without key and partition that came since they were last taken, as lists of one length.

    :param checksum: bodies end in one to be verified.
    :ivar place: of the consumer. :ivar time: ns. :ivar payload: the whole message. :ivar flags: as the broker said.
    """

    def __init__(self, *, checksum: bool = False) -> None:
        self._checksum = checksum
        self.place: list[int] = []
        self.time: list[int] = []
        self.payload: list[bytes] = []
        self.flags: list[int] = []

    def add(self, place: int, time: int, payload: Sequence[bytes]) -> None:
        """Messages that one consumer got at one instant, for the first time as far as the broker said."""
        self.place.extend([place] * len(payload))
        self.time.extend([time] * len(payload))
        self.payload.extend(payload)
        self.flags.extend([0] * len(payload))

    def take(self) -> Received | None:
        """All of them as columns, or None; afterwards there are none."""
        if not self.time:
            return None
        place, time, payload, flag = self.place, self.time, self.payload, self.flags
        self.place, self.time, self.payload, self.flags = [], [], [], []
        count, head = len(time), envelope.HEAD
        heads = np.frombuffer(b"".join([data[:head].ljust(head, b"\0") for data in payload]), np.uint8).reshape(count, head)
        flags = np.array(flag, np.int8)
        if self._checksum:
            flags[[i for i, data in enumerate(payload) if not payloads.body_ok(data)]] |= Flag.CORRUPT
        return Received(
            consumer=np.array(place, np.int32),
            heads=heads,
            size=np.fromiter(map(len, payload), np.int32, count),
            time=np.array(time, np.int64),
            order=np.zeros(count, np.int64),
            flags=flags,
        )


# Which messages of a burst find room in the windows of their streams.


def positions_without_room(stream: NDArray[np.integer], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions, ascending, of the messages that find no room: of each stream, those after its first ``room[stream]``.

    :param stream: of each message, numbered as ``room`` is. :param room: messages that each stream takes now.
    """
    if not len(stream) or int(room.take(stream).min()) >= len(stream):  # room for all of them, whosever they are: the rule
        return np.empty(0, np.int64)
    order = np.argsort(stream, kind="stable")
    ordered = stream[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    rank = np.arange(len(stream)) - np.repeat(starts, np.diff(starts, append=len(stream)))
    return np.sort(order[rank >= room[ordered]])
