"""The profile's keys as options of pulsar-client, and the report of how they are applied."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pytest_loadtest.drivers.pulsar import settings_facts
from pytest_loadtest.drivers.pulsar.auth import (
    oauth2_options,
    password_of,
    required_key,
    tls_context,
    token_of,
)
from pytest_loadtest.drivers.pulsar.connect_errors import (
    NAME_REMEDY,
    NOT_AUTHORIZED,
    explain_connect_error,
)
from pytest_loadtest.drivers.pulsar.settings import LIBRARY_EXPIRY, Authentication, PulsarSettings
from pytest_loadtest.drivers.pulsar.settings_facts import batching, batching_type, stream_window
from pytest_loadtest.errors import TargetError
from pytest_loadtest.profile.fields import exact_duration
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


VERSION: Final[str] = pulsar.__version__
CLOSE_TIMEOUT: Final = 5.0  # seconds to wait for a broker that does not answer
_INT32 = 2**31 - 1
_COMPRESSIONS = {"NONE": "NONE", "LZ4": "LZ4", "ZLIB": "ZLib", "ZSTD": "ZSTD", "SNAPPY": "SNAPPY"}
_TYPES = {
    "Exclusive": "Exclusive",
    "Shared": "Shared",
    "Failover": "Failover",
    "Key_Shared": "KeyShared",
}


def make_client(url: str, settings: PulsarSettings) -> Any:
    """Return a client that is not connected yet.

    :raises UsageError: the profile's ``authentication`` is incomplete, or
        a file of its keys for TLS cannot be used.
    """
    if url.startswith("pulsar+ssl:"):
        # This raises for files that cannot be read. The client
        # itself would go on, and not name them.
        tls_context(settings)
    options: dict[str, Any] = {
        "operation_timeout_seconds": -(-settings.operation_timeout // SECOND),
        # The profile's number is for all clients of a worker together.
        "io_threads": -(-settings.io_threads // settings.connections_per_broker),
        "stats_interval_in_seconds": 0,
        # Never a logging.Logger: its lock and the GIL can deadlock with the client's own threads.
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


def client_authentication(auth: Authentication) -> Any:
    """Return the authentication object of pulsar-client.

    :raises UsageError: a key that the plugin needs is missing, or its file cannot be read.
    """
    if auth.plugin == "token":
        return pulsar.AuthenticationToken(token_of(auth))
    if auth.plugin == "basic":
        return pulsar.AuthenticationBasic(required_key(auth.user_id, "userId"), password_of(auth))
    if auth.plugin == "tls":
        return pulsar.AuthenticationTLS(
            required_key(auth.cert_file, "certFile"), required_key(auth.key_file, "keyFile")
        )
    fields = {
        "issuer_url": required_key(auth.issuer_url, "issuerUrl"),
        "private_key": required_key(auth.private_key, "privateKey"),
    }
    return pulsar.AuthenticationOauth2(json.dumps(fields | oauth2_options(auth)))


def not_connected(
    what: str, url: str, settings: PulsarSettings, error: pulsar.PulsarException
) -> TargetError:
    """Return the error for a client that could not connect.

    The client's own message, and the reason if it can be found.
    """
    blind = isinstance(error, pulsar.Timeout | pulsar.ConnectError | pulsar.AuthenticationError)
    reason = explain_connect_error(url, settings) if blind else None
    if reason is None and isinstance(error, pulsar.ConnectError) and url.startswith("pulsar+ssl:"):
        reason = (
            "this address accepts the client: do the brokers that it names have certificates with"
            f" these names? If not: {NAME_REMEDY}"
        )
    if isinstance(error, pulsar.AuthorizationError):
        reason = NOT_AUTHORIZED
    return TargetError(
        f"{what} cannot connect to {url}: {error}" + (f": {reason}" if reason else "")
    )


def close(clients: Sequence[Any]) -> list[threading.Thread]:
    """Disconnect, whether or not the broker answers.

    :returns: the threads that disconnect, which have ended or end soon.
    """
    closers = [
        threading.Thread(target=_close, args=(client,), name="pulsar-close", daemon=True)
        for client in clients
    ]
    deadline = time.monotonic() + CLOSE_TIMEOUT
    for closer in closers:
        closer.start()
    for client, closer in zip(clients, closers, strict=True):
        closer.join(max(deadline - time.monotonic(), 0))
        if closer.is_alive():
            # Both calls are needed, in this order. shutdown() alone could deadlock: it
            # holds the GIL while it waits for the callbacks of messages in flight, which
            # need the GIL; close() calls them all before it begins to wait for the broker.
            # close() alone does not return without a broker, and a thread that is still in
            # it when the interpreter ends crashes the process.
            client.shutdown()
    return closers


def _close(client: Any) -> None:
    # The client raises if it is closed already or the broker is
    # gone; both leave nothing to disconnect.
    with contextlib.suppress(pulsar.PulsarException):
        client.close()


def count_partitions(client: Any, url: str, topic: str) -> int | None:
    """Return the topic's number of partitions, 1 if it is not partitioned; None: it does not exist.

    :param url: the client's URL, for the error. :raises TargetError: the broker does not answer.
    """
    try:
        return len(client.get_topic_partitions(topic))
    except pulsar.TopicNotFound:
        return None
    except pulsar.PulsarException as error:
        raise TargetError(f"cannot ask {url} for the topic {topic}: {error}") from error


def unsubscribe_as_consumer(
    url: str, settings: PulsarSettings, topic: str, subscriptions: Sequence[str]
) -> None:
    """Delete subscriptions without consumers, by subscribing.

    Without an admin REST only a consumer can delete its subscription.

    :raises TargetError: one of them has a consumer, or the broker does not answer.
    """
    client = make_client(url, settings)
    try:
        for subscription in subscriptions:
            client.subscribe(
                topic, subscription, **consumer_options(settings, existing=True)
            ).unsubscribe()
    except pulsar.PulsarException as error:
        raise TargetError(
            f"the subscription {subscription!r} of {topic} is left at {url}, delete it there:"
            f" {error}"
        ) from error
    finally:
        close([client])


def producer_options(settings: PulsarSettings, partitions: int) -> dict[str, Any]:
    """Return the keyword arguments of ``create_producer``.

    The client never blocks: under ``blockIfQueueFull`` the driver has a window.
    """
    # The client chooses the partition of each message and does not report it. So the
    # driver's window is for all partitions together, and the client's queue of each
    # partition must hold all of it. Each chunk of a message takes a place in that queue,
    # therefore the queue has no limit (0) with chunks.
    most = stream_window(settings, partitions)
    pending = settings.max_pending_messages
    across = settings.max_pending_messages_across_partitions
    if most is not None:
        pending, across = (0, 0) if settings.chunking_enabled else (most, most * partitions)
    options: dict[str, Any] = {
        # 0 means no time-out, for the profile and for the client.
        "send_timeout_millis": _milliseconds(settings.send_timeout),
        "compression_type": getattr(pulsar.CompressionType, _COMPRESSIONS[settings.compression]),
        "max_pending_messages": min(pending, _INT32),
        "max_pending_messages_across_partitions": min(across, _INT32),
        "block_if_queue_full": False,
        "chunking_enabled": settings.chunking_enabled,
        "batching_enabled": batching(settings),
        "batching_type": getattr(pulsar.BatchingType, batching_type(settings)),
    }
    if batching(settings):
        options["batching_max_messages"] = settings.batching_max_messages or _INT32
        options["batching_max_allowed_size_in_bytes"] = settings.batching_max_bytes
        options["batching_max_publish_delay_ms"] = settings.batching_max_publish_delay_ms
    return options


def consumer_options(settings: PulsarSettings, *, existing: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of ``subscribe``.

    :param existing: the topic existed before the run, with messages of others.
    """
    # The run's own topic is read from its beginning, so that no
    # message sent before the subscription is missed.
    position = pulsar.InitialPosition.Latest if existing else pulsar.InitialPosition.Earliest
    total_queue = settings.max_total_receiver_queue_size_across_partitions
    drop_oldest = settings.auto_ack_oldest_chunked_message_on_queue_full
    return {
        "consumer_type": getattr(pulsar.ConsumerType, _TYPES[settings.subscription_type]),
        "receiver_queue_size": settings.receiver_queue_size,
        "max_total_receiver_queue_size_across_partitions": total_queue,
        "initial_position": position,
        "max_pending_chunked_message": settings.max_pending_chunked_message,
        "auto_ack_oldest_chunked_message_on_queue_full": drop_oldest,
        "unacked_messages_timeout_ms": _milliseconds(settings.unacked_messages_timeout) or None,
    }


def library_applied_keys(
    settings: PulsarSettings, place: Mapping[str, str], partitions: int
) -> dict[str, str]:
    """Return the keys as applied, by the profile's spelling.

    The client takes the operation time-out in whole s, that of a message in ms.

    :param place: the facts of the run's namespace or of the existing topic.
    """
    facts = settings_facts.applied_keys(settings, place, partitions) | {
        "ioThreads": f"{settings.io_threads}"
        if settings.connections_per_broker == 1
        else f"{settings.io_threads}, over all clients",
        "connectionsPerBroker": f"{settings.connections_per_broker} (as many clients)",
        "operationTimeout": f"{-(-settings.operation_timeout // SECOND)}s",
        "sendTimeout": exact_duration(_milliseconds(settings.send_timeout) * MILLISECOND),
    }
    if settings.chunking_enabled:
        facts["expireTimeOfIncompleteChunkedMessage"] = exact_duration(LIBRARY_EXPIRY)
    if settings.memory_limit is not None:
        facts["clientMemoryLimitMB"] += (
            ", kept by the driver: pulsar-client for Python has no such limit"
        )
    return facts


def library_unapplied_keys(settings: PulsarSettings) -> dict[str, str]:
    """Return the keys for which this client has no option, with the reasons."""
    if (
        not settings.chunking_enabled
        or settings.expire_time_of_incomplete_chunked_message == LIBRARY_EXPIRY
    ):
        return {}
    return {
        "expireTimeOfIncompleteChunkedMessage": (
            f"pulsar-client has no option for it, and waits {exact_duration(LIBRARY_EXPIRY)}"
        )
    }


def _milliseconds(ns: int) -> int:
    return -(-ns // MILLISECOND)
