"""How OpenMessaging Benchmark looks for the highest rate, as a rule of arithmetic, to compare with.

Restated from openmessaging/benchmark at 94aecf4, ``benchmark-framework/src/main/java/io/openmessaging/benchmark``: the rule and its limits
are in ``RateController.java``, period and first rate in ``WorkloadGenerator.java``, the lowest rate in ``worker/LocalWorker.java``.

It adjusts the rate while the load runs, and never ends: with ``producerRate: 0`` the rate of the whole test is what this rule makes of it,
and no field of the result says which rate was found.
"""

from __future__ import annotations

from typing import Final

from pytest_loadtest.values.quantities import SECOND

START_RATE: Final = 10_000.0
"""msg/s; ``WorkloadGenerator.run``."""
PERIOD: Final = 3 * SECOND
"""ns from one adjustment to the next; ``controlPeriodMillis`` of ``WorkloadGenerator.findMaximumSustainableRate``."""
PUBLISH_BACKLOG_LIMIT: Final = 1_000
"""Messages; ``RateController``, as the environment variable of this name sets it by default, like the three below."""
RECEIVE_BACKLOG_LIMIT: Final = 1_000
MIN_RAMPING_FACTOR: Final = 0.01
MAX_RAMPING_FACTOR: Final = 1.0
LOWEST_RATE: Final = 1.0
"""msg/s that producers send when the rule asks for less; ``LocalWorker.adjustPublishRate``."""


class OmbController:
    """The rule, with its state between two periods.

    :ivar rate: next rate in msg/s. :ivar ramping: largest relative increase of the next rate.
    """

    def __init__(self) -> None:
        self.rate = START_RATE
        self.ramping = MAX_RAMPING_FACTOR
        self._published = 0
        self._received = 0

    def next_rate(self, period: int, published: int, received: int) -> float:
        """The rate for the next period.

        Messages acknowledged and not received count since the start, messages asked for and not acknowledged only within the period: a
        queue that stands in front of the broker, neither growing nor shrinking, is not seen.

        :param period: ns since the last call. :param published: messages acknowledged since the start. :param received: since the start.
        """
        expected = int(self.rate * period / SECOND)
        acked, taken = published - self._published, received - self._received
        self._published, self._received = published, received
        if published - received > RECEIVE_BACKLOG_LIMIT:
            return self._back_off(period, expected, published - received, taken)
        if expected - acked > PUBLISH_BACKLOG_LIMIT:
            return self._back_off(period, expected, expected - acked, acked)
        self.ramping = min(self.ramping * 2, MAX_RAMPING_FACTOR)
        self.rate *= 1 + self.ramping
        return self.rate

    def _back_off(self, period: int, expected: int, backlog: int, done: int) -> float:
        """Return the last period's rate, or the rate that leaves room for the backlog in the next period, whichever is less."""
        self.ramping = max(self.ramping / 2, MIN_RAMPING_FACTOR)
        self.rate = min(done, max(0, expected - backlog)) * SECOND / period
        return self.rate
