"""The end of a phase, decided by what all workers together have sent, got acknowledged and received.

Used by the controller only: the rendezvous passes each progress report to the drain of its workload, under its lock, and ends the phase on
all workers once :meth:`Drain.has_ended`. A phase never ends while a worker still sends, and always ends when the timeout is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.engine.progress import Progress

# As many copies as were due have arrived; a moment more lets a late duplicate show itself. Several collects of a worker fit in it.
GRACE = 250_000_000
# Some of those copies may be second ones, or of messages that were answered as failed, and as many others still under way: wait until the
# target has been quiet for this long.
QUIET = 5_000_000_000


class Drain:
    """Decides when one phase is over.

    :param deliveries: the copies due for each acknowledged message, over all subscriptions of its topic.
    :param timeout: ns after the last worker stopped sending at which the phase ends in any case.
    """

    def __init__(self, phase: str, members: int, deliveries: int, timeout: int) -> None:
        self.phase = phase
        self._members, self._deliveries, self._timeout = members, deliveries, timeout
        self._since: int | None = None
        self._complete: tuple[int, int] | None = None

    def has_ended(self, progress: Mapping[str, Progress], now: int) -> bool:
        """Return whether the phase is over. :param progress: the latest report of each worker."""
        reports = [p for p in progress.values() if p.phase == self.phase]
        if len(reports) < self._members or any(p.sending for p in reports):
            return False
        self._since = self._since or now
        received, due = sum(p.received for p in reports), self._deliveries * sum(p.acked for p in reports)
        # A message that was answered as failed may be delivered all the same: its copy is not due, and counts as if it were.
        doubtful = received > due or any(p.failed or p.has_second_copies for p in reports)
        if sum(p.in_flight for p in reports) or received < due:
            self._complete = None
        elif self._complete is None or self._complete[1] != received:
            self._complete = (now, received)
        elif now - self._complete[0] >= (QUIET if doubtful else GRACE):
            return True
        return now - self._since >= self._timeout
