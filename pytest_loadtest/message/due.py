"""When a delayed message may be had: a pure function of what the profile asks and of (seed, stream, sequence).

Brokers take the instant as whole milliseconds of wall time (``deliver_at_time`` of Pulsar's ``MessageMetadata``); so a message is *due* at
the first whole millisecond at or after its intended time and its delay. Everybody who knows the run's clock works out the same instant,
so that no envelope and no sample has to carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.draws import subkey, words_of  # not the module: functions travel to executors, modules do not
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

AT_ONCE: Final = 0
"""In a column of due times on the wire: the message is not delayed."""
_APART: Final = 1 << 41  # from the draws of payloads, bodies and keys
_READINGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How the messages of one phase are delayed.

    :param least: ms, whole. :param most: ms; every whole number of them from ``least`` on is as likely.
    :param at: in place of both, ns after the phase's start: all that is intended before is due then, and the rest is not delayed.
    :param tick: ns before its due time that a message may come, and within which it may overtake others.
    :param start: of the phase, ns of the run's clock. :param wall: wall clock less the run's clock, ns.
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
        """ns that a message may be delayed."""
        return self.most * MILLISECOND if self.at is None else self.at

    def on_the_wire(self, stream: NDArray[np.integer[Any]], seq: Column, intended: Column) -> Column:
        """ms since the epoch, int64; :data:`AT_ONCE` of messages that are not delayed. :param intended: ns of the run's clock."""
        if self.at is not None:
            moment = self.start + self.at
            return np.where(intended < moment, -(-(moment + self.wall) // MILLISECOND), AT_ONCE)
        keys = words_of(np.full(len(seq), subkey(~self.seed, _APART), np.uint64), stream.astype(np.int64))
        drawn = words_of(keys, seq) % np.uint64(self.most - self.least + 1)
        found: Column = -(-(intended + self.wall) // MILLISECOND) + self.least + drawn.astype(np.int64)
        return found

    def due(self, stream: NDArray[np.integer[Any]], seq: Column, intended: Column) -> Column:
        """ns of the run's clock, int64: ``intended`` of messages that are not delayed."""
        found = self.on_the_wire(stream, seq, intended)
        return np.where(found == AT_ONCE, intended, found * MILLISECOND - self.wall)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_document(cls, said: Mapping[str, Any]) -> Delays:
        """The other way round.

        :raises KeyError, TypeError, ValueError: it is none.
        """
        at = said["at"]
        return cls(
            **{name: int(said[name]) for name in ("seed", "least", "most", "tick", "start", "wall")}, at=None if at is None else int(at)
        )


def wall_offset(wall: Callable[[], int], clock: Callable[[], int]) -> int:
    """Wall clock less ``clock``, ns: of several readings the one between whose ends the least time passed."""
    found = []
    for _ in range(_READINGS):
        before, now, after = clock(), wall(), clock()
        found.append((after - before, now - (before + after) // 2))
    return min(found)[1]
