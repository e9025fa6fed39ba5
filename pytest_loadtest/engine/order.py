"""Whether messages come in order: each consumer's, within a stream and a partition (or key)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]


_FREE: Final = -1  # no first word of a group is below 0
_SMALLEST: Final = 1024
_MIX1, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class OrderCheck:
    """Tells what comes after a higher sequence of the same group: consumer, stream, and partition or key.

    There may be millions of groups, of which a batch names thousands; so they are kept in an open-addressed hash table (linear probing)
    whose every step is taken for all rows of a batch together.
    """

    def __init__(self) -> None:
        self.repeats = 0
        """Rows whose sequence was not above the highest one before: only these can be second copies."""
        self._groups = 0
        self._clear(_SMALLEST)

    def _clear(self, size: int) -> None:
        self._mask = size - 1
        self._one, self._two = np.full(size, _FREE, np.int64), np.zeros(size, np.int64)  # the two words of a group
        self._highest = np.full(size, -1, np.int64)

    def late(self, consumer: NDArray[np.int32], stream: NDArray[np.int32], order: Column, seq: Column) -> NDArray[np.bool_] | None:
        """Rows whose sequence is below the highest one before in their group; None when there are none.

        :param consumer: the consumer's place. Rows of one consumer stand in arrival order.
        """
        one = consumer.astype(np.int64) << 32 | stream
        if not np.count_nonzero(one != one[0]) and not np.count_nonzero(order != order[0]):
            return self._late(self._slots(one[:1], order[:1]), np.zeros(1, np.int64), seq)
        slots = self._slots(one, order)
        rank = np.argsort(slots, kind="stable")  # arrival order is kept within a group
        ordered = slots[rank]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        found = self._late(ordered[starts], starts, seq[rank])
        if found is None:
            return None
        late = np.empty(len(seq), np.bool_)
        late[rank] = found
        return late

    def _late(self, slots: Column, starts: Column, seq: Column) -> NDArray[np.bool_] | None:
        """The same of rows by group. :param slots: of each group. :param starts: where each group begins."""
        before = np.empty_like(seq)
        before[1:] = seq[:-1]
        before[starts] = self._highest[slots]
        ends = np.append(starts[1:], len(seq)) - 1
        if not np.count_nonzero(seq <= before):
            self._highest[slots] = seq[ends]
            return None
        # ranks instead of sequences, so that one running maximum serves all groups: every later group is lifted above the ones before
        known, ranks = np.unique(np.concatenate([before, seq]), return_inverse=True)
        lift = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(seq))) * len(known)
        highest = known[np.maximum.accumulate(ranks[: len(seq)] + lift) - lift]
        self.repeats += int(np.count_nonzero(seq <= highest))
        self._highest[slots] = np.maximum(highest[ends], seq[ends])
        late: NDArray[np.bool_] = seq < highest
        return late

    def _slots(self, one: Column, two: Column) -> Column:
        """The place in the table of each group; new ones get theirs."""
        slot = self._home(one, two)
        astray = np.flatnonzero((self._one[slot] != one) | (self._two[slot] != two))
        if not len(astray):
            return slot
        if 2 * (self._groups + len(astray)) > self._mask:
            self._grow(len(astray))
            return self._slots(one, two)
        while len(astray):
            free = astray[self._one[slot[astray]] == _FREE]
            taken, which = np.unique(slot[free], return_index=True)  # several rows may be of one new group, or of groups that meet here
            self._one[taken], self._two[taken] = one[free[which]], two[free[which]]
            self._groups += len(taken)
            at = slot[astray]
            astray = astray[(self._one[at] != one[astray]) | (self._two[at] != two[astray])]
            slot[astray] = slot[astray] + 1 & self._mask
        return slot

    def _home(self, one: Column, two: Column) -> Column:
        mixed = one.view(np.uint64) * _MIX1
        mixed ^= mixed >> np.uint64(29)
        mixed += two.astype(np.uint64)
        mixed *= _MIX2
        mixed ^= mixed >> np.uint64(32)
        mixed &= np.uint64(self._mask)
        return mixed.view(np.int64)

    def _grow(self, more: int) -> None:
        used = self._one != _FREE
        one, two, highest = self._one[used], self._two[used], self._highest[used]
        self._groups = 0
        self._clear(1 << (4 * (len(one) + more)).bit_length())
        self._highest[self._slots(one, two)] = highest


# Whether delayed messages come in the order of their due times, to within the broker's tick: at each consumer.


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
