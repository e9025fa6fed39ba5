"""Checks of the arrival order at each consumer: within a stream and a partition (or key), and by
due time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]


_FREE: Final = -1  # marks a free slot; the first word of a group is never negative
_SMALLEST: Final = 1024  # slots
# odd 64-bit factors of a multiplicative hash: the golden ratio's, and one of the envelope's factors
_MIX1: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX2: Final = np.uint64(0xC2B2AE3D27D4EB4F)


class OrderCheck:
    """Finds the rows that come after a higher sequence of the same group, which is a consumer, a
    stream, and a partition or key.

    There may be millions of groups, and a batch has rows of thousands of them. The groups are kept
    in an open-addressed hash table (linear probing) in numpy columns, and each probing step handles
    all rows of a batch at once: a dict would cost a Python call for each row.
    """

    def __init__(self) -> None:
        self.repeats = 0
        """Number of rows whose sequence was not above the highest one before: only these can be
        second copies.
        """
        self._groups = 0
        self._clear(_SMALLEST)

    def _clear(self, size: int) -> None:
        self._mask = size - 1
        # the two words of a group
        self._word1 = np.full(size, _FREE, np.int64)
        self._word2 = np.zeros(size, np.int64)
        self._highest = np.full(size, -1, np.int64)

    def late(
        self, consumer: NDArray[np.int32], stream: NDArray[np.int32], order: Column, seq: Column
    ) -> NDArray[np.bool_] | None:
        """Return a mask of the rows whose sequence is below the highest one before in their group;
        None if there are none.

        :param consumer: the consumer's place. The rows of one consumer are in arrival order.
        """
        word1 = consumer.astype(np.int64) << 32 | stream
        # a batch of a single group, as of one consumer of one stream, needs neither a sort nor a
        # probe for each row
        if not np.count_nonzero(word1 != word1[0]) and not np.count_nonzero(order != order[0]):
            return self._late(self._slots(word1[:1], order[:1]), np.zeros(1, np.int64), seq)

        # rows in the slots [7, 4, 7]: rank [1, 0, 2], ordered [4, 7, 7], starts [0, 1]
        slots = self._slots(word1, order)
        rank = np.argsort(slots, kind="stable")  # stable: rows of a group stay in arrival order
        ordered = slots[rank]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        late_by_group = self._late(ordered[starts], starts, seq[rank])
        if late_by_group is None:
            return None
        late = np.empty(len(seq), np.bool_)
        late[rank] = late_by_group
        return late

    def _late(self, slots: Column, starts: Column, seq: Column) -> NDArray[np.bool_] | None:
        """Return :meth:`late` for rows that are sorted by group.

        :param slots: the slot of each group.
        :param starts: its first row.
        """
        before = np.empty_like(seq)
        before[1:] = seq[:-1]
        before[starts] = self._highest[slots]
        ends = np.append(starts[1:], len(seq)) - 1
        # fast path: every sequence is above the one before it, so nothing is late and the last row
        # of a group is its highest
        if not np.count_nonzero(seq <= before):
            self._highest[slots] = seq[ends]
            return None

        # One running maximum serves all groups, because ranks replace the sequences and each
        # group's ranks are lifted above those of the groups before it. Lifted sequences would not
        # fit 64 bits. The first sequences 9, 5 | 3 of two groups come after -1, 9 | -1, which have
        # the ranks 0, 3 | 0 among the four values. Lifted they are 0, 3 | 4, as are their maxima.
        # So the highest ones before are -1, 9 | -1, and 5 is late.
        values, ranks = np.unique(np.concatenate([before, seq]), return_inverse=True)
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(seq)))
        lift = group * len(values)
        highest = values[np.maximum.accumulate(ranks[: len(seq)] + lift) - lift]
        self.repeats += int(np.count_nonzero(seq <= highest))
        self._highest[slots] = np.maximum(highest[ends], seq[ends])
        late: NDArray[np.bool_] = seq < highest
        return late

    def _slots(self, word1: Column, word2: Column) -> Column:
        """Return the slot of each row's group; new groups are added to the table."""
        slot = self._home(word1, word2)
        astray = np.flatnonzero((self._word1[slot] != word1) | (self._word2[slot] != word2))
        if not len(astray):
            return slot
        # at most half full, so that linear probing takes few steps; every stray row may be of a new
        # group
        if 2 * (self._groups + len(astray)) > self._mask:
            self._grow(len(astray))
            return self._slots(word1, word2)
        while len(astray):
            free = astray[self._word1[slot[astray]] == _FREE]
            # Several rows may be of one new group, or of different groups with this slot: the first
            # row takes it, and the next comparison sends the rows of other groups on to the
            # following slot.
            taken, which = np.unique(slot[free], return_index=True)
            self._word1[taken] = word1[free[which]]
            self._word2[taken] = word2[free[which]]
            self._groups += len(taken)
            at = slot[astray]
            astray = astray[(self._word1[at] != word1[astray]) | (self._word2[at] != word2[astray])]
            slot[astray] = slot[astray] + 1 & self._mask
        return slot

    def _home(self, word1: Column, word2: Column) -> Column:
        """Hash the two words of each group to the slot where probing starts."""
        mixed = word1.view(np.uint64) * _MIX1
        mixed ^= mixed >> np.uint64(29)
        mixed += word2.astype(np.uint64)
        mixed *= _MIX2
        mixed ^= mixed >> np.uint64(32)
        mixed &= np.uint64(self._mask)
        return mixed.view(np.int64)

    def _grow(self, more: int) -> None:
        used = self._word1 != _FREE
        word1 = self._word1[used]
        word2 = self._word2[used]
        highest = self._highest[used]
        self._groups = 0
        # at most a quarter full afterwards, so that the table grows rarely
        self._clear(1 << (4 * (len(word1) + more)).bit_length())
        self._highest[self._slots(word1, word2)] = highest


class DueOrder:
    """Finds delayed messages that come out of the order of their due times; keeps the latest due
    time that each consumer has got.
    """

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}

    def overtaken(
        self, consumer: NDArray[np.int32], due: NDArray[np.int64], tick: int
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows before which their consumer got one that is due more than a
        tick later.

        Messages that are due at the same instant never overtake each other, whatever their order.

        :param consumer: the consumer's place. The rows of one consumer are in arrival order.
        :param due: ns.
        :param tick: ns.
        """
        overtaken = np.zeros(len(due), np.bool_)
        for place in np.unique(consumer).tolist():
            mine = np.flatnonzero(consumer == place)
            # a consumer's first batch is compared with itself alone
            least = int(due[mine].min())
            before = self._latest.get(place, least)
            latest = np.maximum.accumulate(np.concatenate([[before], due[mine]]))
            overtaken[mine] = due[mine] < latest[:-1] - tick
            self._latest[place] = int(latest[-1])
        return overtaken
