"""The profile's keys as all clients of Pulsar read them.

Windows, batching, and the report of applied and unapplied keys.

This module imports no client library: see
:mod:`~pytest_loadtest.drivers.pulsar.library.client` for pulsar-client's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Acks
from pytest_loadtest.drivers.pulsar.settings import NO_LIMIT, PulsarSettings
from pytest_loadtest.profile.fields import exact_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def stream_window(settings: PulsarSettings, partitions: int) -> int | None:
    """Return the messages that one producer may have in flight; None: the driver sets no limit.

    Without ``blockIfQueueFull`` the client rejects what is too much. With ``maxPendingMessages: 0``
    (OMB's ``pendingQueueSize: 0``) memory is the only limit.
    """
    if not settings.block_if_queue_full or not settings.max_pending_messages:
        return None
    if partitions == 1:
        return settings.max_pending_messages
    return min(
        settings.max_pending_messages * partitions, settings.max_pending_messages_across_partitions
    )


def batching(settings: PulsarSettings) -> bool:
    """Return whether messages may share an entry.

    With a limit of one they may not (pulsar-client rejects that limit); 0 is no limit.
    """
    return settings.batching_enabled and settings.batching_max_messages != 1


def batching_type(settings: PulsarSettings) -> str:
    """Return ``KeyBased`` (a batch holds messages of one key) or ``Default``."""
    # A batch goes to one consumer as a whole, so if keys decide which
    # consumer gets a message, a batch must hold one key.
    return "KeyBased" if settings.subscription_type == "Key_Shared" else "Default"


def applied_keys(
    settings: PulsarSettings, place: Mapping[str, str], partitions: int
) -> dict[str, str]:
    """Return the keys that every client applies as given, by the profile's spelling.

    Each client adds the others (``ioThreads``, ``connectionsPerBroker``) and values that it rounds.

    :param place: the facts of the run's namespace or of the existing topic.
    """
    most = stream_window(settings, partitions)
    memory = settings.memory_limit
    pending = str(settings.max_pending_messages or "no own limit")
    if most is not None:
        pending = f"{most} per producer, over {partitions} partitions"
    facts = {
        **place,
        "operationTimeout": exact_duration(settings.operation_timeout),
        "blockIfQueueFull": _yaml_bool(settings.block_if_queue_full),
        "maxPendingMessages": pending,
        "compression": settings.compression,
        "sendTimeout": exact_duration(settings.send_timeout),
        "receiverQueueSize": str(settings.receiver_queue_size),
        "subscriptionType": settings.subscription_type,
        **_batching_facts(settings),
        **_chunking_facts(settings),
    }
    if memory is not None:
        facts["clientMemoryLimitMB"] = f"{memory // 1024**2} per worker"
    if partitions > 1:
        across = settings.max_pending_messages_across_partitions
        facts["maxPendingMessagesAcrossPartitions"] = (
            str(across) if across < NO_LIMIT else "no limit"
        )
        facts["maxTotalReceiverQueueSizeAcrossPartitions"] = str(
            settings.max_total_receiver_queue_size_across_partitions
        )
    if settings.max_concurrent_lookup_requests is not None:
        facts["maxConcurrentLookupRequests"] = str(settings.max_concurrent_lookup_requests)
    if "namespace" in place:
        facts["topicType"] = settings.topic_type
    return facts | _security(settings)


def unapplied_keys(settings: PulsarSettings, *, admin: bool, existing: bool) -> dict[str, str]:
    """Return the keys that the target cannot apply, with the reasons.

    :param admin: the target has an admin REST. :param existing: the topic existed before the run.
    """
    facts: dict[str, str] = {}
    if existing:
        asked = {
            "persistence": "persistence",
            "namespacePrefix": "namespace_prefix",
            "topicType": "topic_type",
        }
        return facts | {
            key: "the topic exists already"
            for key, field in asked.items()
            if field in settings.model_fields_set
        }
    if not admin and settings.persistence is not None:
        facts["persistence"] = "needs target.adminUrl"
    if not admin and "namespace_prefix" in settings.model_fields_set:
        facts["namespacePrefix"] = "needs target.adminUrl; topics go to public/default"
    return facts


def _batching_facts(settings: PulsarSettings) -> dict[str, str]:
    facts = {"batchingEnabled": _yaml_bool(batching(settings))}
    if batching(settings):
        facts["batchingMaxMessages"] = str(settings.batching_max_messages or "no limit")
        facts["batchingMaxBytes"] = str(settings.batching_max_bytes)
        facts["batchingMaxPublishDelayMs"] = str(settings.batching_max_publish_delay_ms)
        facts["batchingType"] = batching_type(settings)
    return facts


def _chunking_facts(settings: PulsarSettings) -> dict[str, str]:
    facts = {}
    if settings.unacked_messages_timeout:
        facts["unackedMessagesTimeout"] = exact_duration(settings.unacked_messages_timeout)
    if not settings.chunking_enabled:
        return facts
    return facts | {
        "chunkingEnabled": "true",
        "maxPendingChunkedMessage": str(settings.max_pending_chunked_message),
        "autoAckOldestChunkedMessageOnQueueFull": _yaml_bool(
            settings.auto_ack_oldest_chunked_message_on_queue_full
        ),
        "expireTimeOfIncompleteChunkedMessage": exact_duration(
            settings.expire_time_of_incomplete_chunked_message
        ),
    }


def _security(settings: PulsarSettings) -> dict[str, str]:
    facts: dict[str, str] = {}
    if settings.authentication is not None:
        facts["authentication"] = settings.authentication.plugin
    if settings.tls_trust_certs_file_path is not None:
        facts["tlsTrustCertsFilePath"] = settings.tls_trust_certs_file_path
    for name, key in (
        ("tls_allow_insecure_connection", "tlsAllowInsecureConnection"),
        ("tls_enable_hostname_verification", "tlsEnableHostnameVerification"),
    ):
        if name in settings.model_fields_set:
            facts[key] = _yaml_bool(getattr(settings, name))
    return facts


def _yaml_bool(value: bool) -> str:
    return "true" if value else "false"


def join_acks(parts: Sequence[Acks]) -> Acks | None:
    """Concatenate answers; None if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    resends = None
    if any(part.resends is not None for part in parts):
        resends = np.concatenate([_resends(part) for part in parts])
    row = np.concatenate([part.row for part in parts])
    time = np.concatenate([part.time for part in parts])
    status = np.concatenate([part.status for part in parts])
    return Acks(row, time, status, resends)


def _resends(acks: Acks) -> NDArray[np.uint8]:
    return np.zeros(len(acks.row), np.uint8) if acks.resends is None else acks.resends
