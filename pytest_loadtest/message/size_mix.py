"""The sizes of messages that are drawn from a distribution: how many bytes they have together, and
how many fit into bytes.

The draws are known only once they are made, so both are bounds. For ``n`` independent sizes of mean
``μ``, variance ``σ²`` and largest distance ``b`` from the mean to one side, Bernstein's inequality
says that the sum deviates to that side from ``n·μ`` by ``t`` or more with a probability of at most
``exp(-t² / (2·n·σ² + 2·b·t/3))`` (Boucheron, Lugosi, Massart, "Concentration Inequalities", 2013,
section 2.8). For the probability ``exp(-L)`` that is ``t = b·L/3 + sqrt((b·L/3)² + 2·n·σ²·L)``.
"""

from __future__ import annotations

import math
from typing import Final

from pytest_loadtest.values.records import record

CERTAINTY: Final = 12 * math.log(10)
"""L: a bound is wrong once in 10¹² times."""


@record
class SizeMix:
    """The sizes of messages, bytes.

    :param mean: of one message.
    :param variance: bytes².
    :param smallest: possible size.
    :param largest: possible size.
    :param independent: each message draws its size from all of them; otherwise (a size for each
        topic) only the extremes bound a sum.
    """

    mean: float
    variance: float
    smallest: int
    largest: int
    independent: bool = True

    def deviation(self, messages: int) -> float:
        """Return the most bytes by which so many messages can deviate from their mean, to either
        side; infinite if unknown.
        """
        if not self.independent:
            return math.inf
        linear = max(self.largest - self.mean, self.mean - self.smallest) * CERTAINTY / 3
        return linear + math.sqrt(linear**2 + 2 * messages * self.variance * CERTAINTY)

    def most_messages(self, room: int) -> int:
        """Return the most messages that begin within the first ``room`` bytes of a train."""
        certain = -(-room // self.smallest)
        if not self.independent or room <= 0:
            return max(certain, 0)
        # the larger n at which n·μ - t is the room, so that message n, counted from 0, begins
        # behind it
        linear = (self.mean - self.smallest) * CERTAINTY / 3
        half = self.mean * (room + linear) + self.variance * CERTAINTY
        messages = (
            half + math.sqrt(half**2 - self.mean**2 * (room**2 + 2 * room * linear))
        ) / self.mean**2
        return min(certain, math.ceil(messages))

    def fewest_messages(self, room: int) -> int:
        """Return the fewest messages that begin within the first ``room`` bytes of a train."""
        certain = max(-(-room // self.largest), 0)
        linear = (self.largest - self.mean) * CERTAINTY / 3
        if not self.independent or room <= 2 * linear:
            return certain
        # the smaller n at which n·μ + t is the room, so that all messages up to n, counted from 0,
        # begin before it
        half = self.mean * (room - linear) + self.variance * CERTAINTY
        messages = (
            half - math.sqrt(max(half**2 - self.mean**2 * (room**2 - 2 * room * linear), 0.0))
        ) / self.mean**2
        return max(certain, math.floor(messages))
