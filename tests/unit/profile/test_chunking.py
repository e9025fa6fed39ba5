"""What a profile says of messages in chunks, and what it cannot say."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import MINUTE, SECOND

HEAD = "name: X\nmessageSize: 20MB\nproducerRate: 1\ntestDuration: 1s\n"


def refused(driver: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(f"{HEAD}driver: {driver}\n", source="p.yaml")
    return str(caught.value)


def settings(driver: str) -> PulsarSettings:
    found = profile.loads(f"{HEAD}driver: {driver}\n", source="p.yaml").driver
    assert isinstance(found, PulsarSettings)
    return found


def test_keys() -> None:
    """As they are spelled, and as Pulsar's clients have them where they are left out."""
    plain = settings("{name: pulsar, chunkingEnabled: true, batchingEnabled: false}")
    assert (plain.max_pending_chunked_message, plain.auto_ack_oldest_chunked_message_on_queue_full) == (10, False)
    assert (plain.unacked_messages_timeout, plain.expire_time_of_incomplete_chunked_message) == (0, MINUTE)
    full = settings(
        "{name: pulsar, chunkingEnabled: true, batchingEnabled: false, maxPendingChunkedMessage: 2, unackedMessagesTimeout: 1s, "
        "autoAckOldestChunkedMessageOnQueueFull: true, expireTimeOfIncompleteChunkedMessage: 5s}"
    )
    assert (full.max_pending_chunked_message, full.auto_ack_oldest_chunked_message_on_queue_full) == (2, True)
    assert (full.unacked_messages_timeout, full.expire_time_of_incomplete_chunked_message) == (SECOND, 5 * SECOND)


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("{name: pulsar, chunkingEnabled: true}", "p.yaml:5:41: driver.chunkingEnabled: no batch is cut into chunks (write batchingEnabled: false)"),
        (
            "{name: pulsar, chunkingEnabled: true, batchingEnabled: false, topicType: non-persistent}",
            "driver.chunkingEnabled: messages to non-persistent topics are not cut into chunks (write topicType: persistent)",
        ),
        ("{name: pulsar, chunkingEnabled: true, batchingEnabled: false, subscriptionType: Key_Shared}", "does not keep chunks together on a Key_Shared"),
        (
            "{name: pulsar, chunkingEnabled: true, batchingEnabled: false, client: library, unackedMessagesTimeout: 9s}",
            "driver.unackedMessagesTimeout: pulsar-client takes 10s or more, not 9s (write 10s, or client: native)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be(driver: str, said: str) -> None:
    """Chunks with batches, on topics that keep nothing, by key; a time that the library refuses."""
    assert said in refused(driver)


def test_keys_without_effect() -> None:
    """Of messages in chunks, where there are none."""
    with pytest.raises(ProfileError, match=r"p.yaml:3:\d+: driver.maxPendingChunkedMessage: no message is sent in chunks"):
        profile.loads(
            "name: X\nmessageSize: 20\ndriver: {name: pulsar, maxPendingChunkedMessage: 5}\nproducerRate: 1\ntestDuration: 1s\n",
            source="p.yaml",
        )
