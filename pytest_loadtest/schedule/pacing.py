"""The intended time of every message: arithmetic on its number, with no clock inside.

The run's messages are numbered 0, 1, 2 … in the order they are due. At a constant rate message ``g`` is due ``g / rate`` seconds after the
phase's start; where the rate changes, it is due when the sum of all rates so far reaches ``g``. With ``P`` streams, stream ``s`` has the
messages ``s, s + P, s + 2P, …``: message ``k`` of stream ``s`` is number ``s + k·P``. So the offered load is one even train however many
workers share it, and the shares add up exactly.

All arithmetic is on integers, exact to the nanosecond below. A schedule is made of pieces of constant rate; ramps and sines are many short
pieces. What is counted may be bytes instead of messages: see :mod:`pytest_loadtest.schedule.schedules`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.schedule.stream_order import Turns


NS = 1_000_000_000
MOST_RATE: Final = 9 * NS
"""Per second; rates are below it, so that times are exact in 64 bits: see :func:`_train`."""
LEAST_RATE: Final = 0.001
"""Per second; rates are kept to a thousandth."""
NEVER: Final = 1 << 62
_FINE: Final = 1000  # rates of schedules with several pieces are kept to 1/1000 per second, so that sums stay exact


class Piece(NamedTuple):
    """A stretch of constant rate, ``numerator / denominator`` per second.

    :param start: ns. :param offset: ns from ``start`` until its first message. :param first: that message's number.
    """

    start: int
    offset: int
    first: int
    numerator: int
    denominator: int


@dataclass(frozen=True)
class Pacer:
    """When the messages of one phase are due.

    :param rates: ``(length in ns, msg/s as a ratio)``, one after another; the last one goes on for ever.
    :param streams: how many streams share the rate.
    """

    rates: tuple[tuple[int, Fraction], ...]
    streams: int

    @classmethod
    def of(cls, rate: float, streams: int) -> Self:
        """A pacer for ``rate`` msg/s, shared by ``streams``; fractions of a message are kept to 1/1000 at least.

        :raises ValueError: the rate is not above 0, or above 9e9 msg/s.
        """
        ratio = Fraction(rate).limit_denominator(_FINE if rate < 9e6 else 1)
        if not ratio:
            raise ValueError(f"rate {rate!r} is not above 0 and below 9e9 msg/s")
        return cls(((NEVER, _checked(ratio, rate)),), streams)

    @classmethod
    def through(cls, steps: Sequence[tuple[int, float]], streams: int) -> Self:
        """A pacer for one rate after another: ``(length in ns, msg/s)``; rates may be 0.

        :raises ValueError: a rate below 0, or above 9e9 msg/s.
        """
        if len(steps) == 1 and steps[0][1]:
            return cls.of(steps[0][1], streams)
        return cls(tuple((length, _fine(rate)) for length, rate in steps), streams)

    def changed(self, at: int, rate: float) -> Pacer:
        """The same until ``at`` (ns after the start), from then on ``rate``: what is due before ``at`` stays due when it was."""
        kept, passed = [], 0
        for length, ratio in (*self.rates[:-1], (NEVER, self.rates[-1][1])):
            if passed >= at:
                break
            kept.append((min(length, at - passed), ratio))
            passed += length
        return Pacer((*kept, (NEVER, _fine(rate))), self.streams)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The schedule with each piece's first message."""
        pieces, start, reached = [], 0, Fraction(0)
        for length, ratio in self.rates:
            first = -(-reached.numerator // reached.denominator)
            offset = int((first - reached) * NS / ratio) if ratio else 0
            pieces.append(Piece(start, offset, first, ratio.numerator, ratio.denominator))
            start, reached = start + length, reached + ratio * length / NS
        return tuple(pieces)

    @cached_property
    def _starts(self) -> list[int]:
        return [piece.start for piece in self.pieces]

    @cached_property
    def _firsts(self) -> list[int]:
        return [piece.first for piece in self.pieces]

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """``(5, pieces)``, as :class:`Piece` has them."""
        return np.array(self.pieces, np.int64).T

    @property
    def highest(self) -> float:
        """The highest rate that there is, per second."""
        return float(max(ratio for _, ratio in self.rates))

    def due(self, elapsed: int) -> int:
        """How many messages of the whole run are due once ``elapsed`` ns have passed: all ``g`` with offset ≤ elapsed."""
        if elapsed < 0:
            return 0
        at = bisect_right(self._starts, elapsed) - 1
        start, offset, first, numerator, denominator = self.pieces[at]
        passed = elapsed - start - offset
        if passed < 0 or not numerator:
            return first
        # floor(k·d·NS / n) <= passed  <=>  k·d·NS < (passed + 1)·n  <=>  k < (passed + 1)·n / (d·NS)
        whole, rest = divmod((passed + 1) * numerator, NS * denominator)
        due = first + whole + (1 if rest else 0)
        return due if at + 1 == len(self.pieces) else min(due, self._firsts[at + 1])

    def due_in_stream(self, elapsed: int, stream: int) -> int:
        """How many messages of ``stream`` are due once ``elapsed`` ns have passed."""
        return self.share(self.due(elapsed), stream)

    def share(self, total: int, stream: int) -> int:
        """How many of the run's first ``total`` messages belong to ``stream``; over all streams they add up to ``total``."""
        return max(0, -((stream - total) // self.streams))

    def time(self, number: int) -> int:
        """ns after the start at which message ``number`` of the run is due; :data:`NEVER` where the rate has ended at 0."""
        start, offset, first, numerator, denominator = self.pieces[bisect_right(self._firsts, number) - 1]
        return start + offset + (number - first) * denominator * NS // numerator if numerator else NEVER

    def times(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """:meth:`time` of each."""
        if len(self.pieces) == 1:
            _, _, _, numerator, denominator = self.pieces[0]
            return _train(numbers, numerator, denominator)
        place = np.searchsorted(self._columns[2], numbers, side="right") - 1
        start, offset, first, numerator, denominator = self._columns[:, place]
        times = start + offset + _train(numbers - first, np.maximum(numerator, 1), denominator)
        result: NDArray[np.int64] = np.where(numerator > 0, times, NEVER)
        return result

    def offsets(self, stream: int, first: int, count: int) -> NDArray[np.int64]:
        """ns after the start at which messages ``first … first+count-1`` of ``stream`` are due."""
        return self.times(stream + np.arange(first, first + count, dtype=np.int64) * self.streams)

    def offset(self, stream: int, k: int) -> int:
        """ns after the start at which message ``k`` of ``stream`` is due."""
        return self.time(stream + k * self.streams)

    def total(self, duration: int) -> int:
        """Messages due in a phase of ``duration`` ns: offsets in ``[0, duration)``."""
        return self.due(duration - 1)


def _train(numbers: NDArray[np.int64], numerator: Any, denominator: Any) -> NDArray[np.int64]:
    """Whole seconds and the rest apart, so that 64 bits hold a day at any rate below 9e9 msg/s. Numbers, or columns of them."""
    scaled: NDArray[np.int64] = numbers * denominator
    seconds = scaled // numerator
    times: NDArray[np.int64] = seconds * NS + (scaled - seconds * numerator) * NS // numerator
    return times


def _checked(ratio: Fraction, rate: float) -> Fraction:
    if not 0 <= ratio < MOST_RATE:
        raise ValueError(f"rate {rate!r} is not above 0 and below 9e9 msg/s")
    return ratio


def _fine(rate: float) -> Fraction:
    return _checked(Fraction(round(rate * _FINE), _FINE) if rate < 9e6 else Fraction(round(rate)), rate)


# How many messages each stream has: of messages dealt over the streams in turn, a few numbers instead of a column.


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
