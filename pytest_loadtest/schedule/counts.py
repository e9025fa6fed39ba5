"""How many messages each stream has: of messages dealt over the streams in turn, a few numbers instead of a column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.schedule.stream_order import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCounts:
    """How many messages each stream of a run has, which is also the sequence of its next one.

    ``n`` messages dealt over ``P`` streams in turn give ``n // P`` to each, and one more to those below ``n % P``: so the counts after any
    number of such phases are two numbers for each. Only what was counted in another way needs a column.

    :param streams: P. :param rounds: messages that every stream has. :param rests: ascending; streams below each have one message more.
    :param counted: int64 ``(P,)``, on top of that; None: nothing.
    """

    streams: int
    rounds: int = 0
    rests: tuple[int, ...] = ()
    counted: NDArray[np.int64] | None = None

    def plus(self, total: int, turns: Turns | None = None) -> StreamCounts:
        """With ``total`` more messages over all streams, dealt by turns, or, where there are none, in turn from stream 0 on."""
        if turns is not None:
            more = turns.counts(total)
            return replace(self, counted=more if self.counted is None else self.counted + more)
        rounds, rest = divmod(total, max(self.streams, 1))
        return replace(self, rounds=self.rounds + rounds, rests=tuple(sorted((*self.rests, rest))) if rest else self.rests)

    def of(self, streams: range | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Of these streams, in their order; costs what they cost, however many others there are."""
        numbers = np.arange(streams.start, streams.stop, streams.step) if isinstance(streams, range) else streams
        found = np.searchsorted(np.array(self.rests, np.int64), numbers, side="right")  # of the rests, those not above the stream
        np.subtract(self.rounds + len(self.rests), found, out=found)
        if self.counted is not None:
            found += self.counted[numbers]
        return found

    def column(self) -> NDArray[np.int64]:
        """``(P,)``, of all streams."""
        return self.of(range(self.streams))

    @property
    def total(self) -> int:
        """Over all streams."""
        return self.rounds * self.streams + sum(self.rests) + (0 if self.counted is None else int(self.counted.sum()))
