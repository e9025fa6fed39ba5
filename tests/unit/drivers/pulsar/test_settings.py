"""The ``driver`` section of Pulsar, and what is derived from it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest import profile
from pytest_loadtest.drivers.pulsar.settings import STRICT, TICK, Authentication, PulsarSettings
from pytest_loadtest.values.quantities import MILLISECOND, MINUTE, SECOND

HEAD = "name: X\nmessageSize: 20MB\nproducerRate: 1\ntestDuration: 1s\n"


def settings(driver: str) -> PulsarSettings:
    found = profile.loads(f"{HEAD}driver: {driver}\n", source="p.yaml").driver
    assert isinstance(found, PulsarSettings)
    return found


def test_keys_for_chunks_have_the_spelling_and_the_defaults_of_pulsars_clients() -> None:
    plain = settings("{name: pulsar, chunkingEnabled: true, batchingEnabled: false}")
    assert (
        plain.max_pending_chunked_message,
        plain.auto_ack_oldest_chunked_message_on_queue_full,
    ) == (10, False)
    assert (plain.unacked_messages_timeout, plain.expire_time_of_incomplete_chunked_message) == (
        0,
        MINUTE,
    )
    full = settings(
        "{name: pulsar, chunkingEnabled: true, batchingEnabled: false, maxPendingChunkedMessage: 2, unackedMessagesTimeout: 1s, "
        "autoAckOldestChunkedMessageOnQueueFull: true, expireTimeOfIncompleteChunkedMessage: 5s}"
    )
    assert (
        full.max_pending_chunked_message,
        full.auto_ack_oldest_chunked_message_on_queue_full,
    ) == (2, True)
    assert (full.unacked_messages_timeout, full.expire_time_of_incomplete_chunked_message) == (
        SECOND,
        5 * SECOND,
    )


def test_windows_are_bounded_over_all_partitions() -> None:
    """0 pending messages is no limit of its own; then OMB's memory limit applies."""
    few = PulsarSettings(
        max_pending_messages=10,
        receiver_queue_size=10,
        max_total_receiver_queue_size_across_partitions=25,
    )
    assert [few.window(partitions) for partitions in (1, 4)] == [10, 40]
    assert [few.receive_window(partitions) for partitions in (1, 4)] == [10, 25]
    assert PulsarSettings(max_pending_messages=0).window(4) == 0
    assert PulsarSettings(max_pending_messages=0).memory_limit == 256 * 1024**2
    assert few.memory_limit is None


@pytest.mark.parametrize(
    ("settings", "keyed", "partitions", "batch"),
    [
        ({}, False, 4, 50.0),
        ({}, True, 4, 12.5),
        ({"subscription_type": "Key_Shared"}, True, 1, 1.0),
        ({"batching_enabled": False}, False, 1, 1.0),
        ({"batching_max_messages": 20}, False, 1, 20.0),
        ({"batching_max_messages": 0}, False, 1, 50.0),
        ({"batching_max_bytes": 1000}, False, 1, 10.0),
    ],
)
def test_a_batch_holds_what_waits_within_its_limits(
    settings: dict[str, Any], keyed: bool, partitions: int, batch: float
) -> None:
    """At 50 messages/ms of 100 bytes, with a publish delay of 1 ms."""
    assert PulsarSettings(**settings).batch(50_000, partitions, 100, keyed=keyed) == batch


@pytest.mark.parametrize(
    ("broker", "early"),
    [
        ({}, SECOND),
        ({TICK: "100"}, 100 * MILLISECOND),
        ({TICK: "x"}, SECOND),
        ({STRICT: "True", TICK: "100"}, 0),
    ],
)
def test_messages_are_early_by_a_tick_at_most(broker: dict[str, str], early: int) -> None:
    assert PulsarSettings().earliest(broker) == early


def test_order_is_judged_unless_a_subscription_shares_messages() -> None:
    assert PulsarSettings(subscription_type="Failover").unordered(consumers=3, keyed=False) is None
    assert PulsarSettings(subscription_type="Key_Shared").unordered(consumers=3, keyed=True) is None
    assert (
        PulsarSettings(subscription_type="Key_Shared").unordered(consumers=3, keyed=False)
        is not None
    )
    assert PulsarSettings(subscription_type="Shared").unordered(consumers=1, keyed=True) is not None


def test_secrets_are_not_in_what_is_stored() -> None:
    auth = Authentication(
        plugin="basic", user_id="me", password="sesame", token="sesame", private_key="sesame"
    )
    assert "sesame" not in repr(auth) + auth.model_dump_json()
