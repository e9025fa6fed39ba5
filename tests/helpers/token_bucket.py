"""A broker of known capacity: a token bucket, and what a steady train of messages meets there. Closed forms, no simulation.

The bucket lets ``depth`` messages pass at once and ``capacity`` a second after that; the others wait, in order. Its whole state is one
number, the *level*: tokens taken and not yet refilled, messages that wait included (GCRA, ITU-T I.371; the loopback relay keeps the same
state as a time). 0 is an idle broker with a full bucket; a message waits when it comes to a level above ``depth − 1``.

Between two messages of a train at rate R the level rises by one and falls by C/R, and never below 0. So message n of the train, counted
from 0, comes to ``max(0, level + n·(1 − C/R))`` and waits ``max(0, that − (depth − 1)) / C``: ever longer where R > C, ever shorter where
R < C. The longest wait is at one end of the train, and percentiles need no sorting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_loadtest.values.quantities import SECOND


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """A broker that accepts ``capacity`` msg/s, and ``depth`` messages at once.

    In all methods ``rate`` is in msg/s, ``hold`` and ``bound`` are in ns, ``level`` is in messages (see above).
    """

    capacity: float
    depth: int = 1

    def wait(self, rate: float, number: int, level: float = 0.0) -> float:
        """Return the wait of message ``number`` of a steady train, ns."""
        met = max(0.0, level + number * (1 - self.capacity / rate))
        return max(0.0, met - (self.depth - 1)) / self.capacity * SECOND

    def exceeding(self, rate: float, hold: int, bound: float, level: float = 0.0) -> int:
        """Return the number of messages of the hold that wait longer than ``bound``."""
        total, step = messages(rate, hold), 1 - self.capacity / rate
        room = self.depth - 1 + bound / SECOND * self.capacity - level
        if step > 0:
            return max(0, total - (math.floor(room / step) + 1 if room >= 0 else 0))
        if room >= 0:
            return 0
        return total if step == 0 else min(total, math.ceil(room / step))

    def percentile(self, rate: float, hold: int, p: float = 100.0, level: float = 0.0) -> float:
        """Return the nearest-rank percentile of the waits in a hold, ns; 100 is the longest."""
        total = messages(rate, hold)
        rank = max(1, math.ceil(p / 100 * total - 1e-9))
        return self.wait(rate, rank - 1 if rate >= self.capacity else total - rank, level)

    def holds(
        self, rate: float, hold: int, bound: float, p: float = 100.0, level: float = 0.0
    ) -> bool:
        """Return True if ``p`` per cent of the messages wait no longer than ``bound``."""
        return self.percentile(rate, hold, p, level) <= bound

    def after(self, rate: float, hold: int, level: float = 0.0) -> float:
        """Return the level after the hold; with ``rate`` 0 the bucket refills."""
        return max(0.0, level + (rate - self.capacity) * hold / SECOND)

    def waiting(self, level: float) -> float:
        """Return the number of messages that wait at this level."""
        return max(0.0, level - self.depth)

    def drain_time(self, level: float) -> int:
        """Return the ns until no message waits any more, without new messages."""
        return math.ceil(self.waiting(level) / self.capacity * SECOND)

    def highest_rate(self, hold: int, bound: float, p: float = 100.0) -> float:
        """The highest rate at which ``p`` per cent of the messages of a hold wait no longer than ``bound``, from an idle broker.

        With capacity C, depth D, hold T, bound L and q = p/100 it is::

            R = C·(1 + L/(q·T)) + (D − 1)/(q·T)

        Above C, message n is due at n/R and passes at (n − (D − 1))/C: it waits (n − D + 1)/C − n/R, longer the larger n is. The percentile
        is the wait of message n = q·R·T, the last of the q share that must hold. Setting that wait to L::

            (q·R·T − D + 1)/C − q·T = L

        and solving for R gives the line above. With q = 1 it is C·(1 + L/T) and what the depth lets pass at once, spread over the hold: a
        short hold flatters, because the backlog that it leaves is never waited for. Messages are whole, so the true limit differs by less
        than 1/(q·T) msg/s.
        """
        share = p / 100 * hold / SECOND
        return self.capacity + (self.capacity * bound / SECOND + self.depth - 1) / share


def messages(rate: float, hold: int) -> int:
    """Return the number of messages of a train in a hold: all n with n/rate < hold."""
    return max(1, math.ceil(rate * hold / SECOND - 1e-9))
