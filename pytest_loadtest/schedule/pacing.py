"""The intended time of every message, computed from its number, without a clock.

The run's messages are numbered 0, 1, 2 … in the order in which they are due. At a constant rate
message ``g`` is due ``g / rate`` seconds after the phase's start. If the rate changes, it is due
when the integral of the rate reaches ``g``. With ``P`` streams, stream ``s`` has the messages
``s, s + P, s + 2P, …``: message ``k`` of stream ``s`` has the number ``s + k·P``. So the offered
load is one even train, whatever the number of workers, and the shares add up exactly.

All arithmetic is on integers. A time is never before its exact value, rounded down to the
nanosecond, so a message that is due at the end of a phase is not in it. A schedule consists of
segments of constant rate; a ramp or a sine is many short segments (docs/decisions/008). The unit
may be bytes instead of messages: see :mod:`pytest_loadtest.schedule.schedules`.

The controller calculates with it what a plan sends. The engine of each worker asks it, in the
thread of its loop, for what is due.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.schedule.stream_order import Turns


NS = 1_000_000_000
MOST_RATE: Final = 9 * NS
"""Per second; all rates are below it, so that times are exact in 64 bits: see :func:`_train`."""
LEAST_RATE: Final = 0.001
"""Per second; rates are rounded to a thousandth."""
NEVER: Final = 1 << 62


class Segment(NamedTuple):
    """A segment of constant rate, ``numerator / denominator`` per second.

    :param start: ns.
    :param offset: ns from ``start`` until its first message.
    :param first: that message's number.
    """

    start: int
    offset: int
    first: int
    numerator: int
    denominator: int


@dataclass(frozen=True)
class Pacer:
    """The due times of the messages of one phase.

    :param rates: ``(length in ns, msg/s as a ratio)``, one after another; the last one never ends.
    :param streams: number of streams that share the rate.
    """

    rates: tuple[tuple[int, Fraction], ...]
    streams: int

    @classmethod
    def of(cls, rate: float, streams: int) -> Self:
        """Make a pacer for ``rate`` msg/s, shared by ``streams``; the rate is exact to 1/1000 at
        least.

        :raises ValueError: the rate is not above 0, or above 9e9 msg/s.
        """
        ratio = Fraction(rate).limit_denominator(1000 if rate < 9e6 else 1)
        if not ratio:
            raise ValueError(f"rate {rate!r} is not above 0 and below 9e9 msg/s")
        return cls(((NEVER, _checked(ratio, rate)),), streams)

    @classmethod
    def through(cls, steps: Sequence[tuple[int, float]], streams: int) -> Self:
        """Make a pacer for one rate after another: ``(length in ns, msg/s)``; rates may be 0.

        :raises ValueError: a rate below 0, or above 9e9 msg/s.
        """
        (_, rate), *others = steps
        if rate and not others:
            return cls.of(rate, streams)
        return cls(tuple(_rounded(steps)), streams)

    def changed(self, at: int, rate: float) -> Pacer:
        """Return a pacer with ``rate`` from ``at`` (ns after the start) on; messages due before
        ``at`` keep their times.
        """
        kept = []
        passed = 0
        for length, ratio in (*self.rates[:-1], (NEVER, self.rates[-1][1])):
            if passed >= at:
                break
            kept.append((min(length, at - passed), ratio))
            passed += length
        return Pacer((*kept, *_rounded([(NEVER, rate)])), self.streams)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The schedule with each segment's first message."""
        segments = []
        start = 0
        reached = Fraction(0)
        for length, ratio in self.rates:
            first = ceil(reached)
            # Rounded up, as the time within a segment is rounded down: together they are not early.
            offset = ceil((first - reached) * NS / ratio) if ratio else 0
            segments.append(Segment(start, offset, first, ratio.numerator, ratio.denominator))
            start += length
            reached += ratio * length / NS
        return tuple(segments)

    @cached_property
    def _starts(self) -> list[int]:
        return [segment.start for segment in self.segments]

    @cached_property
    def _firsts(self) -> list[int]:
        return [segment.first for segment in self.segments]

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """``(5, segments)``, in the order of the fields of :class:`Segment`."""
        return np.array(self.segments, np.int64).T

    @property
    def highest(self) -> float:
        """The highest of all rates, per second."""
        return float(max(ratio for _, ratio in self.rates))

    def due(self, elapsed: int) -> int:
        """Return how many messages of the run are due ``elapsed`` ns after the start: all whose
        time is ≤ ``elapsed``.
        """
        if elapsed < 0:
            return 0
        at = bisect_right(self._starts, elapsed) - 1
        start, offset, first, numerator, denominator = self.segments[at]
        passed = elapsed - start - offset
        if passed < 0 or not numerator:
            return first
        # floor(k·d·NS / n) <= passed  <=>  k·d·NS < (passed + 1)·n  <=>  k < (passed + 1)·n / d·NS
        whole, rest = divmod((passed + 1) * numerator, NS * denominator)
        due = first + whole + (rest > 0)
        if at + 1 == len(self.segments):
            return due
        return min(due, self._firsts[at + 1])

    def time(self, number: int) -> int:
        """Return when message ``number`` of the run is due, ns after the start; :data:`NEVER` if
        the rate has ended at 0.
        """
        at = bisect_right(self._firsts, number) - 1
        start, offset, first, numerator, denominator = self.segments[at]
        if not numerator:
            return NEVER
        return start + offset + (number - first) * denominator * NS // numerator

    def times(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return :meth:`time` of each number."""
        if len(self.segments) == 1:  # the usual case needs no search for each message
            _, _, _, numerator, denominator = self.segments[0]
            return _train(numbers, numerator, denominator)
        place = np.searchsorted(self._columns[2], numbers, side="right") - 1
        start, offset, first, numerator, denominator = self._columns[:, place]
        times = start + offset + _train(numbers - first, np.maximum(numerator, 1), denominator)
        return np.where(numerator > 0, times, NEVER)

    def total(self, duration: int) -> int:
        """Return the number of messages due in a phase of ``duration`` ns: those with times in
        ``[0, duration)``.
        """
        return self.due(duration - 1)


def _train(numbers: NDArray[np.int64], numerator: Any, denominator: Any) -> NDArray[np.int64]:
    """Return the times of numbers at a constant rate; numerator and denominator are numbers or
    columns.

    Whole seconds and the rest are computed apart, so that 64 bits suffice for a day at any rate
    below 9e9 msg/s.
    """
    scaled: NDArray[np.int64] = numbers * denominator
    seconds = scaled // numerator
    times: NDArray[np.int64] = seconds * NS + (scaled - seconds * numerator) * NS // numerator
    return times


def _checked(ratio: Fraction, rate: float) -> Fraction:
    if not 0 <= ratio < MOST_RATE:
        raise ValueError(f"rate {rate!r} is not above 0 and below 9e9 msg/s")
    return ratio


def _rounded(steps: Sequence[tuple[int, float]]) -> Iterator[tuple[int, Fraction]]:
    """Yield the steps with exact rates.

    Each is the next one below or above its rate, so that no sum exceeds the one that was asked for:
    rates of a sine that add up to 846 messages would otherwise be 846.0001, and one message more.
    """
    # in millionths of a message per second, times ns
    asked = reached = 0
    for length, rate in steps:
        unit = 1000 if rate < 9e6 else 10**6
        exact = round(rate * 10**6)
        asked += exact * length
        chosen = -(-exact // unit) * unit
        if reached + chosen * length > asked:
            chosen = exact // unit * unit
        reached += chosen * length
        yield length, _checked(Fraction(chosen, 10**6), rate)


@record
class StreamCounts:
    """The number of messages of each stream of a run, which is also the sequence of its next
    message.

    ``n`` messages in round robin over ``P`` streams give ``n // P`` to each, and one more to the
    streams below ``n % P``. So the counts after any number of such phases are a few numbers. Only
    counts from another order need a column.

    :param streams: P.
    :param rounds: messages that every stream has.
    :param rests: ascending; streams below each one have one message more.
    :param counted: int64 ``(P,)``, to be added; None: nothing.
    """

    streams: int
    rounds: int = 0
    rests: tuple[int, ...] = ()
    counted: NDArray[np.int64] | None = None

    def plus(self, total: int, turns: Turns | None = None) -> StreamCounts:
        """Return the counts after ``total`` more messages, in the order of ``turns``; None: round
        robin from stream 0 on.
        """
        if turns is not None:
            counted = turns.counts(total)
            if self.counted is not None:
                counted += self.counted
            return replace(self, counted=counted)
        rounds, rest = divmod(total, max(self.streams, 1))
        rests = self.rests
        if rest:
            rests = tuple(sorted((*rests, rest)))
        return replace(self, rounds=self.rounds + rounds, rests=rests)

    def of(self, streams: Streams) -> NDArray[np.int64]:
        """Return the counts of some streams, in their order; the cost does not depend on the number
        of other streams.
        """
        numbers = stream_column(streams)
        # the rests that are not above the stream
        counts = np.searchsorted(np.array(self.rests, np.int64), numbers, side="right")
        np.subtract(self.rounds + len(self.rests), counts, out=counts)
        if self.counted is not None:
            counts += self.counted[numbers]
        return counts

    def column(self) -> NDArray[np.int64]:
        """Return the counts of all streams, ``(P,)``."""
        return self.of(range(self.streams))

    @property
    def total(self) -> int:
        """The number of messages of all streams."""
        total = self.rounds * self.streams + sum(self.rests)
        if self.counted is not None:
            total += int(self.counted.sum())
        return total
