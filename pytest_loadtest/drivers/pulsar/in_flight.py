"""The messages in flight of a worker's producers.

They are counted by partition, by stream, and in bytes over all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.columns import positions_without_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Taken = slice | NDArray[np.bool_]
    """Index of the messages of a burst that are sent now."""

_NONE: Final = np.empty(0, np.int64)


class InFlight:
    """Streams are numbered from 0.

    A *part* is a partition of a stream, ``stream * partitions + partition``.

    :param window: most messages of one part; None: no limit.
    :param memory: most bytes over all; None: no limit. As in the Java client (PIP-74) a message may
        be sent while there is any room.
    :param in_order: messages without room wait, so that the later ones of their stream wait, too.
    """

    def __init__(
        self,
        streams: int,
        partitions: int,
        window: int | None,
        memory: int | None,
        *,
        in_order: bool,
    ) -> None:
        self._partitions = partitions
        self._in_order = in_order
        self._window = window
        self._memory = memory
        # Messages that still fit into the window of each part.
        self._room = np.full(streams * partitions, 0 if window is None else window, np.int64)
        self._of_stream = np.zeros(streams, np.int64)
        self._last_answer = np.zeros(streams, np.int64)
        self._first = np.zeros(streams, np.int64)  # scratch
        self._count = self._bytes = 0

    def beyond(self, stream: Column, part: Column, size: Column) -> Column:
        """Return the positions, ascending, of the messages that cannot be sent now.

        With ``in_order``: for each stream, all from one message on.
        """
        refused = _NONE
        # Fast path, taken by nearly every burst: even if all messages in
        # flight were of one part, they would fit.
        if self._window is not None and self._count + len(part) > self._window:
            refused = positions_without_room(part, self._room)
            # A message that waits for one partition holds back the later ones of its stream, which
            # keeps the stream's order.
            if len(refused) and self._in_order and self._partitions > 1:
                self._first[:] = len(stream)
                np.minimum.at(self._first, stream[refused], refused)
                refused = np.flatnonzero(np.arange(len(stream)) >= self._first[stream])
        if self._memory is None or self._bytes + int(np.add.reduce(size)) <= self._memory:
            return refused
        going = np.delete(np.arange(len(stream)), refused)
        before = np.cumsum(size[going], dtype=np.int64) - size[going]
        room_for = int(np.searchsorted(before, self._memory - self._bytes, side="left"))
        return np.sort(np.concatenate([refused, going[room_for:]]))

    def idle_since(self, stream: Column) -> Column | int:
        """Return the time of the latest answer for streams without messages in flight.

        It is given to the first message of each; 0 for all others.
        """
        # Fast path: there is one stream.
        if len(self._of_stream) == 1:
            if self._count:
                return 0
            idle = np.zeros(len(stream), np.int64)
            idle[0] = self._last_answer[0]
            return idle
        (empty,) = (self._of_stream.take(stream) == 0).nonzero()
        if not len(empty):
            return 0
        idle = np.zeros(len(stream), np.int64)
        theirs = stream[empty]
        # Written in reverse order, so that the first message of
        # each stream is written last and remains.
        self._first[theirs[::-1]] = empty[::-1]
        first = self._first.take(theirs) == empty
        idle[empty[first]] = self._last_answer.take(theirs[first])
        return idle

    def add(self, stream: Column, part: Column, size: int) -> None:
        """Count messages as in flight. :param size: bytes of all of them."""
        if len(self._room) == 1:
            # Fast path: numpy has no need to look at each message.
            self._room[0] -= len(part)
            self._of_stream[0] += len(part)
        else:
            np.subtract.at(self._room, part, 1)
            np.add.at(self._of_stream, stream, 1)
        self._count += len(part)
        self._bytes += size

    def answered_each(self, part: Column, time: Column, size: int) -> None:
        """Count one message of each of these parts as answered, in any order of time.

        :param size: bytes of all of them.
        """
        np.add.at(self._room, part, 1)
        stream = part // self._partitions
        np.subtract.at(self._of_stream, stream, 1)
        np.maximum.at(self._last_answer, stream, time)
        self._count -= len(part)
        self._bytes -= size

    def answered(self, part: int, count: int, time: int, size: int) -> None:
        """Count ``count`` messages of a part as answered. :param size: bytes of all of them."""
        stream = part // self._partitions
        self._room[part] += count
        self._of_stream[stream] -= count
        self._last_answer[stream] = time
        self._count -= count
        self._bytes -= size

    def parts(self) -> list[int]:
        """Return the parts with messages in flight."""
        return np.flatnonzero(self._room != (self._window or 0)).tolist()


def all_but(positions: Column, count: int) -> Taken:
    """Return the index of ``count`` messages without those at these positions."""
    if not len(positions):
        return slice(None)
    chosen = np.ones(count, np.bool_)
    chosen[positions] = False
    return chosen
