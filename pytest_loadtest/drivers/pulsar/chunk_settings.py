"""The ``driver`` section's keys of messages in chunks (PIP-37)."""

from __future__ import annotations

from typing import Final

from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, PositiveDuration  # noqa: TC001  # pydantic reads them
from pytest_loadtest.values.quantities import MINUTE

LIBRARY_EXPIRY: Final = MINUTE
"""When pulsar-client for Python gives up an incomplete message, ns; it has no option for it."""


class ChunkingSettings(ClientSettings):
    """Messages that are larger than the broker takes: how they are sent, and what a consumer does with those that stay incomplete."""

    chunking_enabled: bool = False
    """Messages beyond the broker's maxMessageSize travel in chunks. Wants batchingEnabled: false, and persistent topics."""
    max_pending_chunked_message: Count = 10
    """Messages that one consumer (and partition) may have incomplete; of one more, the oldest is given up."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """A message that is given up so is acknowledged, which loses it; otherwise it stays unacknowledged."""
    unacked_messages_timeout: Duration = 0
    """What is not acknowledged by then comes again; 0: not while its consumer is connected. pulsar-client takes 10s or more."""
    expire_time_of_incomplete_chunked_message: PositiveDuration = LIBRARY_EXPIRY
    """A message incomplete for so long is acknowledged, which loses it: its producer is gone. pulsar-client has 1min and no option."""
