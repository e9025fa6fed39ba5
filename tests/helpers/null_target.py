"""The parts of a target in memory: messages that wait for their time, windows, and the consumers of each subscription. Columns, no objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.columns import positions_without_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Burst
    from pytest_loadtest.schedule.topology import Topology

    Columns = tuple[NDArray[Any], ...]


def concatenate_columns(parts: list[Columns]) -> Columns:
    """Join several sets of columns."""
    return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))


class DueRows:
    """Rows as columns, the first of which is the time at which the row is due; rows are returned in the order of those times.

    :param steady: added rows are due already, and in order, so nothing needs to be sorted.
    """

    def __init__(self, *, steady: bool) -> None:
        self._steady = steady
        self._parts: list[Columns] = []

    def add(self, *columns: NDArray[Any]) -> None:
        if len(columns[0]):
            self._parts.append(columns)

    def everything(self) -> Columns | None:
        """Return all rows, due or not, and remove them; None if there are none."""
        if not self._parts:
            return None
        columns = concatenate_columns(self._parts)
        self._parts.clear()
        return columns

    def take(self, now: int) -> Columns | None:
        """Return the due rows, and remove them; None if there are none."""
        columns = self.everything()
        if columns is None or self._steady:
            return columns
        order = np.argsort(columns[0], kind="stable")
        due = int(np.count_nonzero(columns[0] <= now))
        self.add(*(column[order[due:]] for column in columns))
        return tuple(column[order[:due]] for column in columns) if due else None


class Windows:
    """The remaining in-flight window of each stream."""

    def __init__(self, size: int, streams: int) -> None:
        self._size = size
        self._room = np.full(streams, size, np.int64)
        self._emptied = np.zeros(streams, np.int64)  # the instant of the last answer

    def admit(self, burst: Burst) -> NDArray[np.int64] | None:
        """Occupy the windows, fill ``burst.idle``, and return the positions of the messages that do not fit, or None."""
        refused = positions_without_room(burst.stream, self._room)
        taken = np.delete(np.arange(len(burst)), refused)
        streams, first, counts = np.unique(
            burst.stream[taken], return_index=True, return_counts=True
        )
        empty = self._room[streams] == self._size
        burst.idle[taken[first[empty]]] = self._emptied[streams[empty]]
        self._room[streams] -= counts
        return refused if len(refused) else None

    def release(self, stream: NDArray[np.int32], when: NDArray[np.int64]) -> None:
        """Free the windows of these streams, in the order of the answers."""
        np.add.at(self._room, stream, 1)
        self._emptied[stream] = when  # of several answers to one stream, numpy keeps the last


class Members:
    """The present consumers of each subscription. Subscriptions are numbered over all topics, consumers by their places."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._subscription = np.empty(
            0, np.int64
        )  # of the consumer at each place, -1 where it has left
        self._arrange()

    def _arrange(self) -> None:
        """Sort the places by subscription, so that the members of one are neighbours."""
        present = np.flatnonzero(self._subscription >= 0)
        subscription = self._subscription[present]
        self.present = len(present)
        self._members = present[np.argsort(subscription, kind="stable")].astype(np.int32)
        self._counts = np.bincount(
            subscription, minlength=self._topology.topics * self._topology.subscriptions
        )
        self._first = np.cumsum(self._counts) - self._counts
        self._all_served = bool(self._counts.all())

    def join(self, consumers: NDArray[np.int32]) -> NDArray[np.int32]:
        """Add consumers. :returns: their places."""
        places = len(self._subscription) + np.arange(len(consumers), dtype=np.int32)
        if len(consumers):
            topology = self._topology
            own = topology.topic_of_consumer(
                consumers
            ) * topology.subscriptions + topology.subscription_of_consumer(consumers)
            self._subscription = np.concatenate([self._subscription, own])
            self._arrange()
        return places

    def leave(self, places: NDArray[np.int32]) -> NDArray[np.int32]:
        """Remove consumers. :returns: by place, for all places, the one that now has the consumer's messages."""
        heirs, left = np.arange(len(self._subscription), dtype=np.int32), self._subscription[places]
        self._subscription[places] = -1
        self._arrange()
        inherited = (left >= 0) & (self._counts[left] > 0)
        heirs[places[inherited]] = self._members[self._first[left[inherited]]]
        return heirs

    def leave_all(self) -> None:
        """Remove all consumers."""
        self._subscription[:] = -1
        self._arrange()

    def serve(
        self, stream: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int32]]:
        """Return the message and place of each copy for messages of these streams; the first is None if each message has one copy."""
        which, each = None, self._topology.subscriptions
        subscription = self._topology.topic_of_stream(stream)
        if each > 1:
            which = np.repeat(np.arange(len(stream)), each)
            subscription = (subscription[:, None] * each + np.arange(each)).ravel()
            stream = stream[which]
        count = self._counts.take(subscription)
        if not self._all_served:
            served = np.flatnonzero(count)
            which = served if which is None else which[served]
            subscription, stream, count = subscription[served], stream[served], count[served]
        return which, self._members.take(self._first.take(subscription) + stream % count)
