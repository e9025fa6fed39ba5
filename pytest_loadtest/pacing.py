"""The intended time of every message: arithmetic on its number, with no clock inside.

The run's messages are numbered 0, 1, 2 … in the order they are due; message ``g`` is due ``g / rate`` seconds after the phase's
start. With ``P`` streams, stream ``s`` has the messages ``s, s + P, s + 2P, …``: message ``k`` of stream ``s`` is number ``s + k·P``.
So the offered load is one even train however many workers share it, and the shares add up exactly.

All arithmetic is on integers, exact to the nanosecond below.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pacer:
    """When the messages of one phase are due.

    :param rate: msg/s over all streams, as a ratio of integers.
    :param streams: how many streams share the rate.
    """

    numerator: int
    denominator: int
    streams: int

    @classmethod
    def of(cls, rate: float, streams: int) -> Self:
        """A pacer for ``rate`` msg/s, shared by ``streams``; fractions of a message are kept to 1/1000 at least.

        :raises ValueError: the rate is not above 0, or above 9e9 msg/s.
        """
        # numerator · NS must fit 63 bits: see offsets()
        ratio = Fraction(rate).limit_denominator(1000 if rate < 9e6 else 1)
        if not 0 < ratio < 9 * NS:
            raise ValueError(f"rate {rate!r} is not above 0 and below 9e9 msg/s")
        return cls(ratio.numerator, ratio.denominator, streams)

    def due(self, elapsed: int) -> int:
        """How many messages of the whole run are due once ``elapsed`` ns have passed: all ``g`` with offset ≤ elapsed."""
        return 0 if elapsed < 0 else (elapsed + 1) * self.numerator // (NS * self.denominator) + self._boundary(elapsed)

    def _boundary(self, elapsed: int) -> int:
        # offset(g) = floor(g·d·NS / n) <= elapsed  <=>  g·d·NS < (elapsed + 1)·n  <=>  g < (elapsed + 1)·n / (d·NS)
        return 1 if (elapsed + 1) * self.numerator % (NS * self.denominator) else 0

    def due_in_stream(self, elapsed: int, stream: int) -> int:
        """How many messages of ``stream`` are due once ``elapsed`` ns have passed."""
        return self.share(self.due(elapsed), stream)

    def share(self, total: int, stream: int) -> int:
        """How many of the run's first ``total`` messages belong to ``stream``; over all streams they add up to ``total``."""
        return max(0, -((stream - total) // self.streams))

    def offsets(self, stream: int, first: int, count: int) -> NDArray[np.int64]:
        """ns after the start at which messages ``first … first+count-1`` of ``stream`` are due.

        Whole seconds and the rest apart, so that 64 bits hold a day at any rate below 9e9 msg/s.
        """
        number = (stream + np.arange(first, first + count, dtype=np.int64) * self.streams) * self.denominator
        seconds, rest = np.divmod(number, self.numerator)
        offsets: NDArray[np.int64] = seconds * NS + rest * NS // self.numerator
        return offsets

    def offset(self, stream: int, k: int) -> int:
        """ns after the start at which message ``k`` of ``stream`` is due."""
        return (stream + k * self.streams) * self.denominator * NS // self.numerator

    def total(self, duration: int) -> int:
        """Messages due in a phase of ``duration`` ns: offsets in ``[0, duration)``."""
        return self.due(duration - 1)
