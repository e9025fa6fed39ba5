"""The due time of delayed messages: a pure function of the profile and of (seed, stream, sequence).

Brokers take the due time as whole milliseconds of wall time (``deliver_at_time`` of Pulsar's
``MessageMetadata``). So a message is *due* at the first whole millisecond at or after its intended
time plus its delay. Every process that knows the run's clock computes the same due time, so no
envelope and no sample has to carry it (docs/decisions/018).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

# not the module: functions travel to executors, modules do not
from pytest_loadtest.message.draws import draw_each, subkey
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

AT_ONCE: Final = 0
"""The value in a column of due times for a message that is not delayed."""
_DELAY_DRAWS: Final = 1 << 41
"""Index of the subkey for delays, far from those of payloads, bodies and keys."""
_READINGS: Final = 20


@record
class Delays:
    """The delays of the messages of one phase.

    :param least: shortest delay, whole ms.
    :param most: longest delay; all whole ms from ``least`` to ``most`` are equally likely.
    :param at: instead of both, ns after the phase's start: messages intended earlier are due then,
        later ones are not delayed.
    :param tick: ns; a message may come this much early, and may overtake others that are due less
        than this earlier.
    :param start: the phase's start, ns of the run's clock.
    :param wall: wall clock minus the run's clock, ns.
    """

    seed: int
    least: int = 0
    most: int = 0
    at: int | None = None
    tick: int = 0
    start: int = 0
    wall: int = 0

    @property
    def longest(self) -> int:
        """The longest delay, ns."""
        if self.at is not None:
            return self.at
        return self.most * MILLISECOND

    def on_the_wire(
        self, stream: NDArray[np.integer[Any]], seq: Column, intended: Column
    ) -> Column:
        """Return due times in ms since the epoch, int64; :data:`AT_ONCE` if not delayed.

        :param intended: ns of the run's clock.
        """
        if self.at is not None:
            moment = self.start + self.at
            return np.where(intended < moment, -(-(moment + self.wall) // MILLISECOND), AT_ONCE)
        common_key = np.full(len(seq), subkey(~self.seed, _DELAY_DRAWS), np.uint64)
        keys = draw_each(common_key, stream.astype(np.int64))
        drawn = draw_each(keys, seq) % np.uint64(self.most - self.least + 1)
        # -(-a // b) rounds a / b up
        earliest = -(-(intended + self.wall) // MILLISECOND) + self.least
        return earliest + drawn.astype(np.int64)

    def due(self, stream: NDArray[np.integer[Any]], seq: Column, intended: Column) -> Column:
        """Return due times in ns of the run's clock, int64; ``intended`` if not delayed."""
        due = self.on_the_wire(stream, seq, intended)
        return np.where(due == AT_ONCE, intended, due * MILLISECOND - self.wall)

    def document(self) -> dict[str, Any]:
        """Return the delays as JSON values."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Delays:
        """Read :meth:`document`.

        :raises KeyError, TypeError, ValueError: the document is not valid.
        """
        names = ("seed", "least", "most", "tick", "start", "wall")
        at = document["at"]
        if at is not None:
            at = int(at)
        return cls(at=at, **{name: int(document[name]) for name in names})


def wall_offset(wall: Callable[[], int], clock: Callable[[], int]) -> int:
    """Return wall clock minus ``clock``, ns, by the quickest of several readings: a process that is
    interrupted in one reads it wrong.
    """
    readings = []
    for _ in range(_READINGS):
        before = clock()
        now = wall()
        after = clock()
        readings.append((after - before, now - (before + after) // 2))
    return min(readings)[1]
