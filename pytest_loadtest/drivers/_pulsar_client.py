"""The profile's keys as options of pulsar-client, and the account of which were applied and which were not."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pytest_loadtest.drivers._pulsar_auth import client_authentication
from pytest_loadtest.errors import TargetError
from pytest_loadtest.profile.fields import exact_duration
from pytest_loadtest.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.profile.settings import PulsarSettings

VERSION: Final[str] = pulsar.__version__
CLOSE_TIMEOUT: Final = 5.0  # seconds until a broker that does not answer is not waited for any more
_INT32 = 2**31 - 1
_COMPRESSIONS = {"NONE": "NONE", "LZ4": "LZ4", "ZLIB": "ZLib", "ZSTD": "ZSTD", "SNAPPY": "SNAPPY"}
_TYPES = {"Exclusive": "Exclusive", "Shared": "Shared", "Failover": "Failover", "Key_Shared": "KeyShared"}


def make_client(url: str, settings: PulsarSettings) -> Any:
    """A client that has not connected yet.

    :raises UsageError: the profile's ``authentication`` is incomplete.
    """
    options: dict[str, Any] = {
        "operation_timeout_seconds": -(-settings.operation_timeout // SECOND),
        # the clients are one in the eyes of the profile, with so many connections
        "io_threads": -(-settings.io_threads // settings.connections_per_broker),
        "stats_interval_in_seconds": 0,
        # never a logging.Logger: its lock and the GIL can deadlock with the client's own threads
        "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        "tls_trust_certs_file_path": settings.tls_trust_certs_file_path,
        "tls_allow_insecure_connection": settings.tls_allow_insecure_connection,
        "tls_validate_hostname": settings.tls_enable_hostname_verification,
    }
    if settings.max_concurrent_lookup_requests is not None:
        options["concurrent_lookup_requests"] = settings.max_concurrent_lookup_requests
    if settings.authentication is not None:
        options["authentication"] = client_authentication(settings.authentication)
    return pulsar.Client(url, **options)


def close(clients: Sequence[Any]) -> list[threading.Thread]:
    """Disconnect, whether or not the broker answers; the threads that do it have ended, or are about to."""
    closers = [threading.Thread(target=_close, args=(client,), name="pulsar-close", daemon=True) for client in clients]
    deadline = time.monotonic() + CLOSE_TIMEOUT
    for closer in closers:
        closer.start()
    for client, closer in zip(clients, closers, strict=True):
        closer.join(max(deadline - time.monotonic(), 0))
        if closer.is_alive():
            # Only now: on its own, shutdown() holds the GIL for which the callbacks of what is in flight wait; close() has answered
            # those. And not without: a thread still in close() when the interpreter ends takes the process down.
            client.shutdown()
    return closers


def _close(client: Any) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # closed under us, or the broker is gone: nothing is left to disconnect
        client.close()


def unsubscribe(url: str, settings: PulsarSettings, topic: str, subscriptions: Sequence[str]) -> None:
    """Delete subscriptions that have no consumer any more, as a consumer of them: the way without an admin REST.

    :raises TargetError: one of them has a consumer, or the broker does not answer.
    """
    client = make_client(url, settings)
    try:
        for subscription in subscriptions:
            client.subscribe(topic, subscription, **consumer_options(settings, existing=True)).unsubscribe()
    except pulsar.PulsarException as error:
        raise TargetError(f"the subscription {subscription!r} of {topic} is left at {url}, delete it there: {error}") from error
    finally:
        close([client])


def window(settings: PulsarSettings, partitions: int) -> int | None:
    """Messages that one producer may have in flight; None where we hold none back: the client refuses what is too much, or there is no
    own limit (``maxPendingMessages: 0``, OMB's ``pendingQueueSize: 0``) and memory alone bounds it."""
    if not settings.block_if_queue_full or not settings.max_pending_messages:
        return None
    if partitions == 1:
        return settings.max_pending_messages
    return min(settings.max_pending_messages * partitions, settings.max_pending_messages_across_partitions)


def producer_options(settings: PulsarSettings, partitions: int) -> dict[str, Any]:
    """Keyword arguments of ``create_producer``.

    The client never blocks: with ``blockIfQueueFull`` we keep the window, over all partitions together (which partition a message
    goes to is the client's secret), and give each partition's own queue room for all of it.
    """
    most = window(settings, partitions)
    pending = settings.max_pending_messages if most is None else most
    across = settings.max_pending_messages_across_partitions if most is None else most * partitions
    options: dict[str, Any] = {
        "send_timeout_millis": _milliseconds(settings.send_timeout),  # 0 waits for ever, here as there
        "compression_type": getattr(pulsar.CompressionType, _COMPRESSIONS[settings.compression]),
        "max_pending_messages": min(pending, _INT32),
        "max_pending_messages_across_partitions": min(across, _INT32),
        "block_if_queue_full": False,
        "batching_enabled": _batching(settings),
        "batching_type": getattr(pulsar.BatchingType, _batching_type(settings)),
    }
    if _batching(settings):
        options["batching_max_messages"] = settings.batching_max_messages or _INT32
        options["batching_max_allowed_size_in_bytes"] = settings.batching_max_bytes
        options["batching_max_publish_delay_ms"] = settings.batching_max_publish_delay_ms
    return options


def consumer_options(settings: PulsarSettings, *, existing: bool = False) -> dict[str, Any]:
    """Keyword arguments of ``subscribe``. :param existing: the topic was there before the run, and what it holds is not the run's."""
    return {
        "consumer_type": getattr(pulsar.ConsumerType, _TYPES[settings.subscription_type]),
        "receiver_queue_size": settings.receiver_queue_size,
        "max_total_receiver_queue_size_across_partitions": settings.max_total_receiver_queue_size_across_partitions,
        # in a topic of our own from the beginning: nothing sent between its creation and this subscription is missed
        "initial_position": pulsar.InitialPosition.Latest if existing else pulsar.InitialPosition.Earliest,
    }


def applied(settings: PulsarSettings, place: Mapping[str, str], partitions: int, admin: bool) -> dict[str, str]:
    """What client and namespace were told, by the profile's keys. :param place: the run's ``namespace``, or the existing ``topic``."""
    most, memory = window(settings, partitions), settings.memory_limit
    pending = str(settings.max_pending_messages or "no own limit")
    if most is not None:
        pending = f"{most} per producer, over {partitions} partitions"
    facts = {
        **place,
        "ioThreads": f"{settings.io_threads}" if settings.connections_per_broker == 1 else f"{settings.io_threads}, over all clients",
        "connectionsPerBroker": f"{settings.connections_per_broker} (as many clients)",
        "operationTimeout": f"{-(-settings.operation_timeout // SECOND)}s",
        "blockIfQueueFull": _word(settings.block_if_queue_full),
        "maxPendingMessages": pending,
        "compression": settings.compression,
        "sendTimeout": exact_duration(_milliseconds(settings.send_timeout) * MILLISECOND),
        "receiverQueueSize": str(settings.receiver_queue_size),
        "subscriptionType": settings.subscription_type,
        "batchingEnabled": _word(_batching(settings)),
    }
    if _batching(settings):
        facts["batchingMaxMessages"] = str(settings.batching_max_messages or "no limit")
        facts["batchingMaxBytes"] = str(settings.batching_max_bytes)
        facts["batchingMaxPublishDelayMs"] = str(settings.batching_max_publish_delay_ms)
        facts["batchingType"] = _batching_type(settings)
    if memory is not None:
        facts["clientMemoryLimitMB"] = f"{memory // 1024**2} per worker, kept by us: pulsar-client for Python has no such limit"
    if partitions > 1:
        facts["maxPendingMessagesAcrossPartitions"] = str(settings.max_pending_messages_across_partitions)
        facts["maxTotalReceiverQueueSizeAcrossPartitions"] = str(settings.max_total_receiver_queue_size_across_partitions)
    if settings.max_concurrent_lookup_requests is not None:
        facts["maxConcurrentLookupRequests"] = str(settings.max_concurrent_lookup_requests)
    if "namespace" in place:
        facts["topicType"] = settings.topic_type
    if admin and "namespace" in place and settings.persistence is not None:
        facts["persistence"] = ", ".join(
            f"{key} {str(value).lower()}" for key, value in settings.persistence.model_dump(by_alias=True, mode="json").items()
        )
    return facts | _security(settings)


def not_applied(settings: PulsarSettings, *, admin: bool, existing: bool = False) -> dict[str, str]:
    """What the profile asks for and the client or the target cannot do, with the reason. :param existing: the topic was there before."""
    facts: dict[str, str] = {}
    if existing:
        asked = {"persistence": "persistence", "namespacePrefix": "namespace_prefix", "topicType": "topic_type"}
        return facts | {key: "the topic exists already" for key, field in asked.items() if field in settings.model_fields_set}
    if not admin and settings.persistence is not None:
        facts["persistence"] = "needs target.adminUrl"
    if not admin and "namespace_prefix" in settings.model_fields_set:
        facts["namespacePrefix"] = "needs target.adminUrl; topics go to public/default"
    return facts


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
            facts[key] = _word(getattr(settings, name))
    return facts


def _batching(settings: PulsarSettings) -> bool:
    return settings.batching_enabled and settings.batching_max_messages != 1  # the client refuses batches of one; 0 is no limit


def _batching_type(settings: PulsarSettings) -> str:
    return "KeyBased" if settings.subscription_type == "Key_Shared" else "Default"  # a batch goes to one consumer: it must hold one key


def _milliseconds(ns: int) -> int:
    return -(-ns // MILLISECOND)


def _word(value: bool) -> str:
    return "true" if value else "false"
