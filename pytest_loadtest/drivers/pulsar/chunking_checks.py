"""What must hold of a workload whose messages travel in chunks (``driver.chunkingEnabled``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.profile.fields import exact_duration, spelling
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile

LIBRARY_LEAST: Final = 10 * SECOND
"""The shortest ``unackedMessagesTimeout`` that pulsar-client takes, ns."""
_OF_CHUNKS: Final = (
    "max_pending_chunked_message", "auto_ack_oldest_chunked_message_on_queue_full", "expire_time_of_incomplete_chunked_message",
)  # fmt: skip


def _sent(profile: Profile) -> Iterator[Misfit]:
    """Where chunks can be."""
    driver, path = profile.driver, ("driver", "chunkingEnabled")
    assert isinstance(driver, PulsarSettings)
    if not driver.chunking_enabled:
        return
    if driver.batching_enabled:
        yield Misfit(path, "driver.chunkingEnabled: no batch is cut into chunks", "write batchingEnabled: false")
    if driver.topic_type == "non-persistent":
        message = "driver.chunkingEnabled: messages to non-persistent topics are not cut into chunks"
        yield Misfit(path, message, "write topicType: persistent")
    if driver.subscription_type == "Key_Shared":
        message = "driver.chunkingEnabled: Pulsar does not keep chunks together on a Key_Shared subscription"
        yield Misfit(path, message, "write subscriptionType: Failover, Exclusive or Shared")


def _unused(profile: Profile) -> Iterator[Misfit]:
    driver = profile.driver
    assert isinstance(driver, PulsarSettings)
    if driver.chunking_enabled:
        return
    for key in [spelling(name) for name in _OF_CHUNKS if name in driver.model_fields_set]:
        yield Misfit(("driver", key), f"driver.{key}: no message is sent in chunks", "write chunkingEnabled: true beside it", at_key=True)


def _again(profile: Profile) -> Iterator[Misfit]:
    """The library's own limit."""
    driver = profile.driver
    assert isinstance(driver, PulsarSettings)
    if choose_client(profile).client != "library":
        return
    if 0 < driver.unacked_messages_timeout < LIBRARY_LEAST:
        asked, least = exact_duration(driver.unacked_messages_timeout), exact_duration(LIBRARY_LEAST)
        message = f"driver.unackedMessagesTimeout: pulsar-client takes {least} or more, not {asked}"
        yield Misfit(("driver", "unackedMessagesTimeout"), message, f"write {least}, or client: native")


CHECKS: Final = (
    (_sent, ("driver.batchingEnabled", "driver.topicType", "driver.subscriptionType")),
    (_unused, ("driver.chunkingEnabled",)),
    (_again, ("driver.client",)),
)
