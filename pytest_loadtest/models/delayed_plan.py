"""What a planned load of delayed messages will take of a broker's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_loadtest.models.delayed import bits_of, heap, in_order, scattered
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, format_count, format_size

if TYPE_CHECKING:
    from pytest_loadtest.message.due import Delays


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedIndex:
    """The indexes of all subscriptions and partitions, when most messages are pending.

    :param pending: messages. :param indexes: how many hold them: subscriptions of each. :param heap: bytes, direct memory.
    :param buckets: bytes, Java heap. Each is of brokers that have that tracker.
    """

    pending: int
    subscriptions: int
    heap: int
    buckets: int

    @property
    def text(self) -> str:
        """In one line."""
        return (
            f"about {format_count(self.pending)} messages pending, an entry each (clients batch none of them);"
            f" index of {self.subscriptions} subscription{'' if self.subscriptions == 1 else 's'}:"
            f" {format_size(self.heap)} as a heap (Pulsar 4.0.0), {format_size(self.buckets)} in time buckets (4.1 and later)"
        )

    def warning(self, given: int) -> str | None:
        """That the broker has too little. :param given: bytes of direct memory, and as many of Java heap."""
        over = {"a heap": self.heap, "time buckets": self.buckets}
        beyond = [f"{format_size(size)} as {how}" for how, size in over.items() if size > given]
        if not beyond:
            return None
        return f"the broker is given {format_size(given)}, the index needs {' or '.join(beyond)}: shorten the delay, or lower the rate"


def planned_index(delays: Delays, *, rate: float, messages: int, topics: int, subscriptions: int, tick: int) -> PlannedIndex:
    """What is to be expected when sending has gone on for as long as messages are delayed, or for all there are.

    :param rate: msg/s of all topics. :param messages: that the run sends. :param topics: partitions count each.
    :param tick: of the broker, ms, whose bits of due times are cleared.
    """
    mean = delays.longest if delays.at is not None else (delays.least + delays.most) * MILLISECOND / 2
    pending = min(messages, round(rate * mean / SECOND))
    each, range_ms = max(pending // topics, 1), float(delays.most - delays.least)
    bits = bits_of(tick)
    if delays.at is not None:  # one due time for all: one bucket
        found = scattered(each, 1, bits)
    elif range_ms:
        found = scattered(each, float(delays.most), bits)
    else:
        found = in_order(each, max(rate / topics, 1e-9) * MILLISECOND / SECOND, bits)
    indexes = topics * subscriptions
    return PlannedIndex(
        pending=pending, subscriptions=subscriptions, heap=heap(pending) * subscriptions, buckets=round(found.total * indexes)
    )
