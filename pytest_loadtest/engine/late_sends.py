"""The late sends of a worker in a phase, in steps: the evidence that copies are late because of
their sender (decision 049).

A sender that catches up sends late although its loop hardly pauses. Each *step* is one hand-over of
due messages to the driver: from the earliest intended time of the messages to the instant of the
hand-over. Messages that are due from one step's beginning until that of the next were sent at the
first one's end, or later. So any step may be forgotten: its messages count as those of the step
before, which was sent earlier, and less of their lateness is excused.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pytest_loadtest.metrics.pauses import SHORTEST

MOST: Final = 2048
"""Steps of a phase that are kept. They are some 70 kB of a manifest."""


class LateSends:
    """The steps of a phase in which messages were sent late.

    :param most: number of steps that are kept, at least 4.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Begin a phase."""
        self._due: list[int] = []
        self._sent: list[int] = []

    def add(self, due: int, sent: int) -> None:
        """Add a step that is late.

        :param due: the earliest intended time of its messages, ns, later than that of any step
            before.
        :param sent: the instant at which the messages were handed over, ns, or from which on they
            waited for the target.
        """
        before = self._sent
        # The last of several hand-overs at one tick may be rejected, and the wait counts from the
        # begin of the tick.
        for place in range(len(before) - 1, -1, -1):
            if before[place] <= sent:
                break
            before[place] = sent
        if sent - due <= SHORTEST:
            return
        # A step that follows closely upon another shows no lateness that would count.
        if before and sent - before[-1] <= SHORTEST:
            return
        self._due.append(due)
        before.append(sent)
        if len(before) >= self._most:
            self._thin()

    def _thin(self) -> None:
        """Forget a quarter of the steps: of every second one those that are least later than the
        step before.
        """
        due = np.array(self._due)
        sent = np.array(self._sent)
        gain = sent[1:] - np.maximum(due[1:], sent[:-1])
        every_second = np.arange(0, len(gain), 2)
        least = every_second[np.argsort(gain[every_second], kind="stable")[: len(due) // 4]]
        self._due = np.delete(due, least + 1).tolist()
        self._sent = np.delete(sent, least + 1).tolist()

    def document(self) -> dict[str, list[int]]:
        """Return the steps as a manifest has them."""
        return {"due": self._due, "sent": self._sent}
