"""The ``driver`` section of the loopback relay: its client, and the faults of the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, Section

if TYPE_CHECKING:
    from collections.abc import Mapping


class Stall(Section):
    """One stall of the relay."""

    at: Duration
    """Start, counted from the run's first message at the relay, including the warm-up."""
    duration: Duration
    """Length of the stall."""


class LoopbackSettings(ClientSettings):
    """A small local relay with configurable faults, which needs no broker: the instrument that
    checks the instrument.
    """

    name: Literal["loopback"] = "loopback"

    delay: Duration = 0
    """Delay of every message."""
    stall: Stall | None = None
    """One stall of the relay."""
    capacity: float | None = Field(default=None, ge=0.001)
    """Messages per second that the relay carries."""
    capacity_depth: Count = 1
    """Messages that may pass at once before the capacity limits them."""
    lose_every: Count | None = None
    """Every n-th message is acknowledged and not delivered."""
    duplicate_every: Count | None = None
    """Every n-th message is delivered twice."""
    swap_every: Count | None = None
    """The messages of every n-th pair are swapped."""
    corrupt_header_every: Count | None = None
    """Every n-th message is damaged in its envelope."""
    corrupt_body_every: Count | None = None
    """Every n-th message is damaged after its envelope; detected with checksum: true."""
    max_pending_messages: Count = 1000
    """Maximum number of messages of one producer in flight."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; false: further messages fail."""

    def window(self, partitions: int) -> int:
        return self.max_pending_messages

    def receive_window(self, partitions: int) -> int:
        # A consumer prefetches nothing: messages wait in the relay.
        return 0

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        # One for each worker with producers or consumers.
        return min(producers + consumers, workers)

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        # The relay keeps the order of each stream.
        return None

    @property
    def broker_settings(self) -> Mapping[str, str]:
        from pytest_loadtest.drivers.loopback.faults import relay_settings

        return relay_settings(self)
