"""The profile's keys as options of pulsar-client, and the account of how they were applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pulsar
import pytest

from pytest_loadtest.brokers.certificates import Authority
from pytest_loadtest.drivers.pulsar import settings_facts
from pytest_loadtest.drivers.pulsar.library import client as options
from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "partitions", "expected"),
    [
        ({}, 1, (1000, 1000, 1000)),
        ({"max_pending_messages": 10}, 4, (40, 40, 160)),
        (
            {"max_pending_messages": 1000, "max_pending_messages_across_partitions": 500},
            4,
            (500, 500, 2000),
        ),
        ({"max_pending_messages": 10, "block_if_queue_full": False}, 4, (None, 10, 50_000)),
    ],
)
def test_the_client_never_blocks_as_the_driver_keeps_the_window(
    given: dict[str, Any], partitions: int, expected: tuple[int | None, int, int]
) -> None:
    """With blockIfQueueFull each partition's queue can hold the whole window; without it, the client's own limits apply."""
    settings = PulsarSettings(**given)
    made = options.producer_options(settings, partitions)
    found = (
        settings_facts.stream_window(settings, partitions),
        made["max_pending_messages"],
        made["max_pending_messages_across_partitions"],
    )
    assert found == expected
    assert made["block_if_queue_full"] is False


def test_producer_options_follow_the_profile() -> None:
    """Batching with its limits; a send timeout of 0 stays 0, a short one does not become 0."""
    made = options.producer_options(
        PulsarSettings(
            batching_max_bytes=64, batching_max_messages=7, batching_max_publish_delay_ms=3
        ),
        1,
    )
    keys = ("enabled", "max_messages", "max_allowed_size_in_bytes", "max_publish_delay_ms")
    assert [made[f"batching_{key}"] for key in keys] == [True, 7, 64, 3]
    assert made["batching_type"] == pulsar.BatchingType.Default
    assert options.producer_options(PulsarSettings(send_timeout=0), 1)["send_timeout_millis"] == 0
    assert options.producer_options(PulsarSettings(send_timeout=1), 1)["send_timeout_millis"] == 1


def test_a_limit_of_one_message_switches_batching_off() -> None:
    """The client rejects batching_max_messages=1."""
    settings = PulsarSettings(batching_max_messages=1)
    assert options.producer_options(settings, 1)["batching_enabled"] is False
    assert options.library_applied_keys(settings, {}, 1)["batchingEnabled"] == "false"


def test_zero_is_no_limit_as_in_omb() -> None:
    """For pending messages and for messages in a batch; memory is the limit, with OMB's default."""
    unlimited = PulsarSettings().model_copy(
        update={"max_pending_messages": 0, "batching_max_messages": 0}
    )
    made = options.producer_options(unlimited, 16)
    assert (settings_facts.stream_window(unlimited, 16), made["max_pending_messages"]) == (None, 0)
    assert (made["batching_enabled"], made["batching_max_messages"]) == (True, 2**31 - 1)
    assert unlimited.memory_limit == 256 * 1024**2
    assert unlimited.model_copy(update={"client_memory_limit_mb": 3}).memory_limit == 3 * 1024**2
    assert PulsarSettings().memory_limit is None
    applied = options.library_applied_keys(unlimited, {}, 1)
    assert (applied["maxPendingMessages"], applied["batchingMaxMessages"]) == (
        "no own limit",
        "no limit",
    )
    assert applied["clientMemoryLimitMB"].startswith("256 per worker")


def test_consumers_of_an_existing_topic_begin_at_its_end() -> None:
    """Its messages are not those of the run."""
    assert (
        options.consumer_options(PulsarSettings(), existing=True)["initial_position"]
        == pulsar.InitialPosition.Latest
    )


def test_batches_under_key_shared_hold_one_key() -> None:
    """A batch goes to one consumer."""
    assert (
        options.producer_options(PulsarSettings(subscription_type="Key_Shared"), 1)["batching_type"]
        == pulsar.BatchingType.KeyBased
    )


def test_every_compression_and_subscription_type_exists_in_the_client() -> None:
    fields = PulsarSettings.model_fields
    for word in get_args(fields["compression"].annotation):
        assert isinstance(
            options.producer_options(PulsarSettings(compression=word), 1)["compression_type"],
            pulsar.CompressionType,
        )
    for word in get_args(fields["subscription_type"].annotation):
        made = options.consumer_options(PulsarSettings(subscription_type=word))
        assert isinstance(made["consumer_type"], pulsar.ConsumerType)
        assert made["initial_position"] == pulsar.InitialPosition.Earliest


def test_the_clients_queue_has_no_limit_with_chunks() -> None:
    """Each chunk takes a place in it, and the driver's window counts messages. Without blockIfQueueFull the client's limit applies."""
    settings = {"chunking_enabled": True, "batching_enabled": False, "max_pending_messages": 5}
    made = options.producer_options(PulsarSettings(**settings), 2)
    assert (made["max_pending_messages"], made["max_pending_messages_across_partitions"]) == (0, 0)
    made = options.producer_options(PulsarSettings(**settings, block_if_queue_full=False), 2)
    assert made["max_pending_messages"] == 5


def test_incomplete_messages_have_three_options_and_one_unapplied_key() -> None:
    made = options.consumer_options(PulsarSettings())
    assert (
        made["max_pending_chunked_message"],
        made["auto_ack_oldest_chunked_message_on_queue_full"],
    ) == (10, False)
    assert made["unacked_messages_timeout_ms"] is None
    chosen = PulsarSettings(
        chunking_enabled=True, batching_enabled=False, max_pending_chunked_message=2, auto_ack_oldest_chunked_message_on_queue_full=True,
        unacked_messages_timeout=10 * SECOND, expire_time_of_incomplete_chunked_message=SECOND,
    )  # fmt: skip
    made = options.consumer_options(chosen)
    assert (
        made["max_pending_chunked_message"],
        made["auto_ack_oldest_chunked_message_on_queue_full"],
    ) == (2, True)
    assert made["unacked_messages_timeout_ms"] == 10_000
    assert options.library_unapplied_keys(chosen) == {
        "expireTimeOfIncompleteChunkedMessage": "pulsar-client has no option for it, and waits 1min"
    }
    assert (
        options.library_unapplied_keys(
            PulsarSettings(chunking_enabled=True, batching_enabled=False)
        )
        == options.library_unapplied_keys(PulsarSettings())
        == {}
    )
    applied = options.library_applied_keys(chosen, {}, 1)
    assert (applied["maxPendingChunkedMessage"], applied["unackedMessagesTimeout"]) == ("2", "10s")
    assert applied["expireTimeOfIncompleteChunkedMessage"] == "1min"


def test_the_client_accepts_all_options_together(tmp_path: Path) -> None:
    """TLS and lookups too, without connecting."""
    trusted = str(Authority("somebody").write(tmp_path / "ca.pem"))
    settings = PulsarSettings(
        io_threads=2,
        operation_timeout=1,
        max_concurrent_lookup_requests=5,
        tls_trust_certs_file_path=trusted,
        tls_allow_insecure_connection=True,
        tls_enable_hostname_verification=True,
        authentication=Authentication(plugin="token", token="t"),
    )
    options.make_client("pulsar+ssl://127.0.0.1:1", settings).close()
    applied = options.library_applied_keys(settings, {}, 1)
    assert applied["operationTimeout"] == "1s"
    assert applied["tlsTrustCertsFilePath"] == trusted


@pytest.mark.parametrize(
    ("auth", "missing"),
    [
        (Authentication(plugin="token"), "token or tokenFile"),
        (Authentication(plugin="oauth2", issuer_url="https://issuer"), "privateKey"),
        (Authentication(plugin="tls", cert_file="c"), "keyFile"),
        (Authentication(plugin="token", token_file="/nowhere/token"), "/nowhere/token"),
    ],
)
def test_incomplete_authentication_is_a_usage_error(auth: Authentication, missing: str) -> None:
    """The missing key or file is named."""
    with pytest.raises(UsageError, match=missing):
        options.client_authentication(auth)


@pytest.mark.parametrize(
    "auth",
    [
        Authentication(plugin="tls", cert_file="c", key_file="k"),
        Authentication(plugin="basic", user_id="me", password="p"),
        Authentication(
            plugin="oauth2", issuer_url="https://issuer", private_key="/k", audience="a", scope="s"
        ),
    ],
)
def test_tls_basic_and_oauth2_make_the_clients_authentication(auth: Authentication) -> None:
    assert isinstance(options.client_authentication(auth), pulsar.Authentication)
