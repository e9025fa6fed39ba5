"""The end of a phase, by what all workers together have sent, got acknowledged and received.

Used by the controller only: the rendezvous passes each progress report to the drain of its
workload, under its lock, and ends the phase on all workers once :meth:`Drain.has_ended`. A phase
never ends while a worker still sends, and always ends when the timeout is over. In between it ends
as soon as the target has answered that nothing can arrive any more (docs/decisions/032).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.values.quantities import SECOND, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.drivers.base import Undelivered
    from pytest_loadtest.engine.progress import Progress

# As many copies as were due have arrived; a moment more lets a late duplicate show itself. Several
# collects of a worker fit in it.
GRACE = 250_000_000
# Exactly as many copies have arrived as were due, but some may be second ones, or of messages that
# were answered as failed, and as many others still under way: wait until the target has been quiet
# for this long.
QUIET = 5_000_000_000
# More copies have arrived than were due, so some certainly are such ones, and a message may be
# missing for each of them.
LONG_QUIET = 30_000_000_000
# ns between two questions to the target, and how many times as long as it took to answer: its
# answers cost CPU that deliveries need.
ASK_EVERY = 1_000_000_000
ASK_SHARE = 10


class Drain:
    """Decides when one phase is over.

    :param deliveries: the copies due for each acknowledged message, over all subscriptions of its
        topic.
    :param timeout: ns after the last worker stopped sending at which the phase ends in any case.
    :param can_ask: the target can tell what it has yet to deliver.
    :param one_order: all copies of a delivery come to one consumer, from one topic, so that second
        ones are recognized.
    :param routed: a service sends the copies: nothing marks its second ones.
    :param selective: a service chooses which messages have an output, so the phase lasts until the
        timeout: however many copies came, further ones may come.
    """

    def __init__(
        self,
        phase: str,
        members: int,
        deliveries: int,
        timeout: int,
        *,
        can_ask: bool = False,
        one_order: bool = True,
        routed: bool = False,
        selective: bool = False,
    ) -> None:
        self.phase = phase
        self._members = members
        self._deliveries = deliveries
        self._timeout = timeout
        self._can_ask = can_ask
        self._one_order = one_order
        self._unmarked = routed and not one_order
        self._selective = selective
        self._since: int | None = None
        self._complete: tuple[int, int] | None = None
        self._counts = (0, 0)  # copies received and due
        self._quiet = GRACE
        self._settled_since: int | None = None
        self._ask_at = 0
        self._asking = False
        self._answer: Undelivered | None = None

    def has_ended(self, progress: Mapping[str, Progress], now: int) -> bool:
        """Return whether the phase is over.

        :param progress: the latest report of each worker.
        """
        reports = [p for p in progress.values() if p.phase == self.phase]
        if len(reports) < self._members or any(p.sending for p in reports):
            return False
        self._since = self._since or now
        received = sum(p.received for p in reports)
        due = self._deliveries * sum(p.acked for p in reports)
        self._counts = (received, due)
        if self._selective:
            return now - self._since >= self._timeout
        if self._nothing_can_come(reports, now):
            return True
        self._quiet = self._needed_quiet(reports)
        if sum(p.in_flight for p in reports) or received < due:
            self._complete = None
        elif self._complete is None or self._complete[1] != received:
            self._complete = (now, received)
        elif now - self._complete[0] >= self._quiet:
            return True
        return now - self._since >= self._timeout

    def _needed_quiet(self, reports: Sequence[Progress]) -> int:
        """Return how long nothing must arrive once as many copies have arrived as were due, ns."""
        received, due = self._counts
        if received > due:
            return QUIET if self._is_complete(reports) else LONG_QUIET
        # A message that was answered as failed may be delivered all the same: its copy is not due,
        # and counts as if it were.
        doubtful = self._unmarked or any(p.failed or p.has_second_copies for p in reports)
        return QUIET if doubtful else GRACE

    def _is_complete(self, reports: Sequence[Progress]) -> bool:
        """Return whether all due copies have arrived, even if as many of the others as possible are
        second copies or of failed messages.
        """
        if not self._one_order:
            return False  # Second copies at another consumer, or topic, look like first ones.
        received, due = self._counts
        others = sum(p.repeats + p.failed * self._deliveries for p in reports)
        return received - others >= due

    # --- the target's own answer

    def _nothing_can_come(self, reports: Sequence[Progress], now: int) -> bool:
        """Return whether the target's last answer proves that no further copy can arrive.

        Copies that are in a worker's driver already have arrived.
        """
        # From this point on the target gets no message of the run any more, because each was sent
        # once and answered. A message that failed or was sent again may still be in a broken
        # connection. A run is lost if a client is not connected at its end, so lost ones get the
        # time to return.
        if not all(p.connected and not (p.in_flight or p.failed or p.resent) for p in reports):
            self._settled_since = self._answer = None
            return False
        self._settled_since = self._settled_since or now
        if self._answer is None or self._answer.held:
            return False
        # With None each copy was acknowledged by the driver that has it, and every worker empties
        # its driver when it ends the phase.
        return self._answer.handed_over in (None, sum(p.taken for p in reports))

    def asks(self, now: int) -> bool:
        """Return whether the target should be asked now for what it has yet to deliver.

        Called under the rendezvous' lock; if true, :meth:`answered` must follow. The first question
        waits as long as a complete drain lasts, so that most phases ask none.
        """
        if not self._can_ask or self._asking or self._settled_since is None:
            return False
        if now < max(self._settled_since + GRACE, self._ask_at):
            return False
        self._asking = True
        return True

    def answered(self, undelivered: Undelivered | None, asked: int, now: int) -> None:
        """Take the answer to a question; from any thread.

        :param undelivered: None: unknown.
        :param asked: time of the question, ns.
        """
        self._answer = undelivered
        self._ask_at = now + max(ASK_EVERY, ASK_SHARE * (now - asked))
        self._asking = False

    def describe(self, now: int) -> str | None:
        """Return what the drain waits for and until when.

        None while messages are sent, and if it only waits a moment.
        """
        received, due = self._counts
        if self._since is None:
            return None
        end = self._since + self._timeout
        if self._selective:
            reason = "the service may send further outputs"
        elif received < due:
            reason = f"{format_count(due - received)} of {format_count(due)} deliveries missing"
        elif self._quiet > GRACE and self._complete is not None:
            reason = "second copies may hide missing ones"
            end = min(end, self._complete[0] + self._quiet)
        else:
            return None
        early = ", sooner if the target has none left" if self._can_ask else ""
        seconds = max(-((now - end) // SECOND), 0)
        return f"{reason}, ends in {seconds} s{early}"
