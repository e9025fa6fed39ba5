"""The order of streams: the stream of each message of the run, and the resulting rows of a worker.

The run's messages are numbered 0, 1, 2 … in the order in which they are due. Without a skew the
streams have them in round robin (:class:`RoundRobin`), which is arithmetic. With a skew, a cycle of
turns has the stream of each message (:class:`Turns`): a stream of weight ``w`` has ``w`` turns in
it, spread evenly. Message ``g`` has turn ``g mod L`` of round ``g div L``. So the train stays even,
every stream has its exact share after each round, and nothing depends on the number of workers.

The controller makes the cycle while it plans; schedules ask for the order in each worker's loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.streams import position_of, stream_at, stream_column, streams_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.message.streams import Streams

    Column = NDArray[np.int64]

MOST_TURNS: Final = 1_000_000
"""The most turns of a cycle, which is kept in memory."""


@dataclass(frozen=True)
class RoundRobin:
    """The order of one worker's streams in round robin over ``total`` streams; row 0 is the
    worker's first message of the phase.
    """

    total: int
    streams: Streams

    def before(self, total: int) -> int:
        """Return how many of the run's first ``total`` messages are this worker's."""
        rounds, rest = divmod(total, self.total)
        return rounds * len(self.streams) + streams_below(self.streams, rest)

    def place(self, row: int) -> int:
        """Return the number in the run of a row's message."""
        number, index = divmod(row, len(self.streams))
        return number * self.total + int(self.streams[index])

    def rows(self, row: Column) -> tuple[Column, Column, Column]:
        """Return for each row the position of its stream among the worker's, its number in the
        stream, and its number in the run.
        """
        if len(self.streams) == 1:
            index = np.zeros(len(row), np.int64)
            number = row
        else:
            number, index = np.divmod(row, len(self.streams))
        return index, number, number * self.total + stream_at(self.streams, index)

    def find(self, index: Column, number: Column) -> Column:
        """Return the row of each message: the inverse of :meth:`rows`."""
        return number * len(self.streams) + index

    def numbers(self, row: int) -> Column:
        """Return, by stream, the number of messages before ``row``."""
        rounds, rest = divmod(row, max(len(self.streams), 1))
        return rounds + (np.arange(len(self.streams)) < rest)


@dataclass(frozen=True, eq=False)
class Turns:
    """A cycle of turns.

    :param cycle: int64 ``(L,)``, the stream of each turn; every stream has one.
    :param streams: their number.
    """

    cycle: Column
    streams: int

    @classmethod
    def weighted(cls, weights: Sequence[int], *, swing: int = 0, times: int = 1) -> Turns:
        """Make the cycle for topics with weights.

        :param weights: of the topics, above 0.
        :param swing: after this many messages each weight moves on to the next topic, until every
            topic has its first weight again; 0: never.
        :param times: streams of each topic, which share its turns in round robin; stream ``s`` is
            of topic ``s mod len(weights)``.
        :raises ValueError: more turns than a cycle may have.
        """
        topics = len(weights)
        least = np.array(weights, np.int64) // gcd(*weights)
        turns = (swing * topics or int(least.sum())) * times
        if turns > MOST_TURNS:
            raise ValueError(
                f"the cycle of streams has {turns:,} turns, at most {MOST_TURNS:,} are possible"
            )
        cycle = spread_turns(least)
        if swing:
            part = np.resize(cycle, swing)  # repeats or truncates
            # (topics, swing): of three topics the part [0, 0, 2] goes on as [1, 1, 0], [2, 2, 1]
            cycle = ((part + np.arange(topics)[:, None]) % topics).ravel()
        # With two streams of each topic, [0, 0, 1] becomes [0, 2, 1, 0, 2, 3].
        cycle = np.tile(cycle, times)
        return cls(cycle + topics * (_nth(cycle) % times), topics * times)

    def counts(self, total: int) -> Column:
        """Return how many of the run's first ``total`` messages each stream has, ``(P,)``; they add
        up to ``total``.
        """
        rounds, rest = divmod(total, len(self.cycle))
        rest_counts = np.bincount(self.cycle[:rest], minlength=self.streams)
        return rounds * self.weights + rest_counts

    @cached_property
    def weights(self) -> Column:
        """The turns of each stream in a cycle, ``(P,)``."""
        return np.bincount(self.cycle, minlength=self.streams)

    def order_of(self, streams: Streams) -> WeightedOrder:
        """Return the order of one worker's streams."""
        return WeightedOrder(self, streams)


class WeightedOrder:
    """The order of one worker's streams in a cycle of turns; the methods are those of
    :class:`RoundRobin`.
    """

    def __init__(self, turns: Turns, streams: Streams) -> None:
        cycle = turns.cycle
        column = stream_column(streams)
        self._length = len(cycle)
        self._weights = turns.weights[column]
        mine = np.zeros(turns.streams, np.bool_)
        mine[column] = True
        self._places = np.flatnonzero(mine[cycle])
        self._index = position_of(streams, cycle[self._places])
        self._number = _nth(self._index)
        # the turns of stream i, ascending, begin at _starts[i]
        self._starts = np.cumsum(self._weights) - self._weights
        self._turns = np.argsort(self._index, kind="stable")

    def before(self, total: int) -> int:
        rounds, rest = divmod(total, self._length)
        return rounds * len(self._places) + int(np.searchsorted(self._places, rest))

    def place(self, row: int) -> int:
        rounds, turn = divmod(row, len(self._places))
        return rounds * self._length + int(self._places[turn])

    def rows(self, row: Column) -> tuple[Column, Column, Column]:
        rounds, turn = np.divmod(row, max(len(self._places), 1))
        index = self._index[turn]
        number = rounds * self._weights[index] + self._number[turn]
        place = rounds * self._length + self._places[turn]
        return index, number, place

    def find(self, index: Column, number: Column) -> Column:
        rounds, nth = np.divmod(number, self._weights[index])
        row: Column = rounds * len(self._places) + self._turns[self._starts[index] + nth]
        return row

    def numbers(self, row: int) -> Column:
        rounds, rest = divmod(row, max(len(self._places), 1))
        rest_counts = np.bincount(self._index[:rest], minlength=len(self._weights))
        return rounds * self._weights + rest_counts


StreamOrder = RoundRobin | WeightedOrder


def _nth(values: Column) -> Column:
    """Return for each value the number of earlier equal values."""
    order = np.argsort(values, kind="stable")
    counts = np.bincount(values)
    nth = np.empty(len(values), np.int64)
    nth[order] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return nth


def spread_turns(weights: Sequence[int] | Column) -> Column:
    """Return the topics of a round in which turn ``j`` of weight ``w`` is at ``(2j + 1) / 2w``; at
    one place the lower topic is first: ``[2, 1]`` → ``[0, 1, 0]``, at 1/4, 1/2 and 3/4.

    Floats are exact enough: equal places are equal as floats, and others differ by more than the
    rounding, as weights are below a million.
    """
    counts = np.array(weights, np.int64)
    topic = np.repeat(np.arange(len(counts)), counts)
    places = (2 * _nth(topic) + 1) / (2 * counts[topic])
    return topic[np.lexsort((topic, places))]
