"""The ``driver`` section of the loopback relay: its client, and the faults that the relay is to make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, Section

if TYPE_CHECKING:
    from collections.abc import Mapping


class Stall(Section):
    """The relay stops once."""

    at: Duration
    """After this time, counted from the first message of the run that it sees, warm-up included."""
    duration: Duration
    """For this long."""


class LoopbackSettings(ClientSettings):
    """A small local relay that needs no broker, with faults on order: the instrument that checks the instrument."""

    name: Literal["loopback"] = "loopback"

    delay: Duration = 0
    """Added to every message."""
    stall: Stall | None = None
    """Stop once, for a while."""
    capacity: float | None = Field(default=None, ge=0.001)
    """Messages per second that the relay carries."""
    capacity_depth: Count = 1
    """Messages that may pass at once before the capacity holds."""
    lose_every: Count | None = None
    """Every n-th message is acknowledged and not delivered."""
    duplicate_every: Count | None = None
    """Every n-th message is delivered twice."""
    swap_every: Count | None = None
    """Every n-th pair of messages changes places."""
    corrupt_header_every: Count | None = None
    """Every n-th message is damaged in its envelope."""
    corrupt_body_every: Count | None = None
    """Every n-th message is damaged behind its envelope; seen with checksum: true."""
    max_pending_messages: Count = 1000
    """Messages of one producer in flight."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; otherwise such messages fail."""

    def window(self, partitions: int) -> int:
        """Messages of one producer in flight at most."""
        return self.max_pending_messages

    def receive_window(self, partitions: int) -> int:
        """0: messages wait in the relay, a consumer prefetches none."""
        return 0

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Connections to the relay: one for each worker that has producers or consumers."""
        return min(producers + consumers, workers)

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """The relay keeps the order of each stream."""
        return None

    @property
    def broker_settings(self) -> Mapping[str, str]:
        """The faults that are asked for."""
        from pytest_loadtest.drivers.loopback.faults import relay_settings

        return relay_settings(self)
