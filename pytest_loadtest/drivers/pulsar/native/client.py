"""The native client's report of the profile's keys.

Its requests about topics and subscriptions are here too.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.base import DriverContext, DriverFacts
from pytest_loadtest.drivers.pulsar import settings_facts
from pytest_loadtest.drivers.pulsar.native.link import Refused
from pytest_loadtest.drivers.pulsar.native.partition_consumer import TYPES
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.drivers.pulsar.names import RunNames
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

NAME: Final = "pytest-loadtest"
_FAILED: Final = 1  # PulsarApi.proto: CommandPartitionedTopicMetadataResponse.LookupType


def partition_window(settings: PulsarSettings, partitions: int) -> int | None:
    """Return the most messages of one producer in flight at one partition.

    It is as in Pulsar's Java client; None: no such limit.
    """
    most = settings.max_pending_messages
    return (
        min(most, max(settings.max_pending_messages_across_partitions // partitions, 1))
        if most
        else None
    )


def native_facts(
    settings: PulsarSettings,
    names: RunNames,
    not_applied: Mapping[str, str],
    batches: Counter[int] | None,
) -> DriverFacts:
    """Return the client's settings, applied and not.

    :param batches: number of messages in a batch → number of batches sent.
    """
    most = partition_window(settings, names.partitions)
    applied = settings_facts.applied_keys(settings, names.facts, names.partitions)
    applied |= {
        "connectionsPerBroker": str(settings.connections_per_broker),
        "maxPendingMessages": "no own limit"
        if most is None
        else f"{most} per producer and partition, over {names.partitions} partitions",
    }
    if batches:
        applied["batches"] = _sizes(batches)
    return DriverFacts(
        client="native",
        version=version("pytest-loadtest"),
        applied=applied,
        not_applied={**not_applied, **names.not_applied},
    )


def _sizes(batches: Counter[int]) -> str:
    """Return a text such as ``1200 batches of 1 to 120 messages, half of them of up to 100``."""
    total = batches.total()
    seen = 0
    for size in sorted(batches):
        seen += batches[size]
        if 2 * seen >= total:
            return (
                f"{total} batches of {min(batches)} to {max(batches)} messages, half of them of up"
                f" to {size}"
            )
    raise AssertionError


def native_unapplied_keys(
    settings: PulsarSettings, context: DriverContext, names: RunNames
) -> dict[str, str]:
    """Return the keys that cannot be applied, with the reasons.

    :raises UsageError: there are such keys, and the profile has ``strictTuning``.
    """
    unapplied = settings_facts.unapplied_keys(
        settings, admin=context.target.admin_url is not None, existing=names.are_existing
    )
    if settings.io_threads > 1:
        unapplied["ioThreads"] = (
            "the native client has one thread per worker: start more workers (-n)"
        )
    if settings.strict_tuning and unapplied:
        raise UsageError(
            "strictTuning: the native client cannot apply"
            f" {'; '.join(f'{key}: {why}' for key, why in unapplied.items())}"
        )
    return unapplied


def query_partitions(cluster: Cluster, topic: str) -> int | None:
    """Return the topic's number of partitions, 0 if it is not partitioned; None: it does not exist.

    :raises TargetError: the broker does not answer, or answers with another error.
    """

    def request(number: int) -> api.Command:
        # Without auto-creation: the request must not create a topic that is missing.
        part = api.PartitionedMetadata(
            topic=topic, request_id=number, metadata_auto_creation_enabled=False
        )
        return api.Command(type=api.Command.PARTITIONED_METADATA, partitioned_metadata=part)

    answer = _wait(
        cluster, f"the partitions of {topic}", lambda done: cluster.ask_service(request, done)
    )
    if isinstance(answer, Refused) or answer.response == _FAILED:
        if answer.error == api.TopicNotFound:
            return None
        raise TargetError(f"cannot ask for the topic {topic}: {answer.message}")
    return int(answer.partitions)


def delete_subscriptions(
    cluster: Cluster, settings: PulsarSettings, topic: str, subscriptions: Sequence[str]
) -> None:
    """Delete subscriptions without consumers, by subscribing.

    Without an admin REST only a consumer can delete its subscription.

    :raises TargetError: one of them has a consumer, or the broker does not answer.
    """
    try:
        count = query_partitions(cluster, topic)
        topics = [topic]
        if count:
            topics = [f"{topic}-partition-{i}" for i in range(count)]
        for number, (subscription, part) in enumerate(
            (subscription, part) for subscription in subscriptions for part in topics
        ):
            _unsubscribe(cluster, settings, part, subscription, number)
    finally:
        cluster.close()


def _unsubscribe(
    cluster: Cluster, settings: PulsarSettings, topic: str, subscription: str, number: int
) -> None:
    def subscribe(request: int) -> api.Command:
        kind = TYPES.index(settings.subscription_type)
        part = api.Subscribe(
            topic=topic,
            subscription=subscription,
            sub_type=kind,
            consumer_id=number,
            request_id=request,
        )
        return api.Command(type=api.Command.SUBSCRIBE, subscribe=part)

    def leave(request: int) -> api.Command:
        return api.Command(
            type=api.Command.UNSUBSCRIBE,
            unsubscribe=api.Unsubscribe(consumer_id=number, request_id=request),
        )

    answer = _wait(cluster, f"the broker of {topic}", lambda done: cluster.look_up(topic, done))
    if not isinstance(answer, Refused):
        link = cluster.link(*answer)
        for command in (subscribe, leave):
            answer = _wait(
                cluster, f"the end of {subscription}", partial(cluster.ask, link, command)
            )
            if isinstance(answer, Refused):
                break
    if isinstance(answer, Refused):
        raise TargetError(
            f"the subscription {subscription!r} of {topic} is left there, delete it:"
            f" {answer.message}"
        )


def _wait(cluster: Cluster, what: str, begin: Callable[[Callable[[Any], None]], None]) -> Any:
    """Wait for the answer to a request and return it."""
    answers: list[Any] = []
    begin(answers.append)
    cluster.wait(f"waiting for {what}", lambda: bool(answers))
    return answers[0]
