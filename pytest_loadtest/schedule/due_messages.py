"""The number of messages that are due before an instant: exact for a rate in messages, and between
two bounds for a rate in bytes, as only workers draw the sizes.

The controller compares it with the messages that workers report, while load runs and after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from pytest_loadtest.message.size_mix import SizeMix
    from pytest_loadtest.schedule.pacing import Pacer


@immutable
class DueMessages:
    """The messages of a phase by the instant at which they are due.

    :param mixes: for a rate in bytes, the instant (ns after the phase's start) and the sizes from
        it on, one after another from 0 on; empty for a rate in messages.
    """

    pacer: Pacer
    mixes: tuple[tuple[int, SizeMix], ...] = ()

    def most(self, before: int) -> int:
        """Return the most messages that can be due before an instant, ns after the start."""
        if not self.mixes:
            return self.pacer.total(before)
        return sum(mix.most_messages(room) for mix, room in self._rooms(before))

    def fewest(self, before: int) -> int:
        """Return the fewest messages that can be due before an instant, ns after the start."""
        if not self.mixes:
            return self.pacer.total(before)
        total = 0
        # The last message of one mix may end behind the first byte of the next, or even behind all
        # of that mix.
        taken = 0
        for mix, room in self._rooms(before):
            total += mix.fewest_messages(room - taken)
            taken = max(taken - room, mix.largest if room else 0)
        return total

    def _rooms(self, before: int) -> list[tuple[SizeMix, int]]:
        """Return each mix with the bytes in which its messages begin."""
        rooms = []
        ends = [at for at, _ in self.mixes[1:]]
        for (begin, mix), end in zip(self.mixes, [*ends, before], strict=True):
            room = self.pacer.total(min(end, before)) - self.pacer.total(min(begin, before))
            rooms.append((mix, room))
        return rooms
