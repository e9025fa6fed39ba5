"""What a broker says of the memory that its index of delayed messages takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedIndex:
    """The look at which most messages were delayed, over all topics and subscriptions of the run.

    :param bytes: of the index, as the broker counts them. :param messages: in it; a message counts once for each subscription.
    """

    bytes: int
    messages: int

    @property
    def bytes_per_message(self) -> float:
        """Of one message and subscription."""
        return self.bytes / self.messages
