"""What the native client is to the rest of the driver: its name, how it reads the profile's keys, and its few questions."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.drivers.pulsar import settings_facts
from pytest_loadtest.drivers.pulsar.native.link import Refused
from pytest_loadtest.drivers.pulsar.native.partition_consumer import TYPES
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.pulsar.names import RunNames
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

NAME: Final = "pytest-loadtest"


def partition_window(settings: PulsarSettings, partitions: int) -> int | None:
    """Messages that one producer may have in flight at one partition, as in Pulsar's Java client; None: no such limit."""
    most = settings.max_pending_messages
    return min(most, max(settings.max_pending_messages_across_partitions // partitions, 1)) if most else None


def native_facts(settings: PulsarSettings, names: RunNames, not_applied: Mapping[str, str], batches: Counter[int] | None) -> DriverFacts:
    """How the client is set up. :param batches: how many went, by their number of messages."""
    most = partition_window(settings, names.partitions)
    applied = settings_facts.applied_keys(settings, names.facts, names.partitions)
    applied |= {
        "connectionsPerBroker": str(settings.connections_per_broker),
        "maxPendingMessages": "no own limit" if most is None else f"{most} per producer and partition, over {names.partitions} partitions",
    }
    if batches:
        applied["batches"] = _sizes(batches)
    return DriverFacts(
        client="native", version=version("pytest-loadtest"), applied=applied, not_applied={**not_applied, **names.not_applied}
    )


def _sizes(batches: Counter[int]) -> str:
    """``1 200 batches of 1 to 120 messages, half of them of up to 100``."""
    total, seen = batches.total(), 0
    for size in sorted(batches):
        seen += batches[size]
        if 2 * seen >= total:
            return f"{total} batches of {min(batches)} to {max(batches)} messages, half of them of up to {size}"
    raise AssertionError


def native_unapplied_keys(settings: PulsarSettings, context: DriverContext, names: RunNames) -> dict[str, str]:
    """Keys that cannot be applied, with the reason.

    :raises UsageError: there are some, and ``strictTuning`` forbids it.
    """
    found = settings_facts.unapplied_keys(settings, admin=context.target.admin_url is not None, existing=names.existing is not None)
    if settings.io_threads > 1:
        found["ioThreads"] = "the native client has one thread a worker: start more workers (-n)"
    if settings.strict_tuning and found:
        raise UsageError(f"strictTuning: the native client cannot apply {'; '.join(f'{key}: {why}' for key, why in found.items())}")
    return found


def query_partitions(cluster: Cluster, topic: str) -> int | None:
    """How many the topic has, 0 where it has none; None: it does not exist.

    :raises TargetError: the broker does not say.
    """
    answer = _ask(
        cluster,
        f"the partitions of {topic}",
        lambda number: api.Command(
            type=api.Command.PARTITIONED_METADATA,
            partitioned_metadata=api.PartitionedMetadata(topic=topic, request_id=number, metadata_auto_creation_enabled=False),
        ),
    )
    if isinstance(answer, Refused):
        if answer.error == api.TopicNotFound:
            return None
        raise TargetError(f"cannot ask for the topic {topic}: {answer.message}")
    if answer.response == 1:
        if answer.error == api.TopicNotFound:
            return None
        raise TargetError(f"cannot ask for the topic {topic}: {answer.message}")
    return int(answer.partitions)


def delete_subscriptions(cluster: Cluster, settings: PulsarSettings, topic: str, subscriptions: Sequence[str]) -> None:
    """Delete subscriptions that have no consumer any more. Without an admin REST only a consumer can do that, so we become one.

    :raises TargetError: one of them has a consumer, or the broker does not answer.
    """
    try:
        count = query_partitions(cluster, topic)
        topics = [f"{topic}-partition-{i}" for i in range(count)] if count else [topic]
        for number, (subscription, part) in enumerate((subscription, part) for subscription in subscriptions for part in topics):
            _unsubscribe(cluster, settings, part, subscription, number)
    finally:
        cluster.close()


def _unsubscribe(cluster: Cluster, settings: PulsarSettings, topic: str, subscription: str, number: int) -> None:
    def subscribe(request: int) -> api.Command:
        kind = TYPES.index(settings.subscription_type)
        wanted = api.Subscribe(topic=topic, subscription=subscription, sub_type=kind, consumer_id=number, request_id=request)
        return api.Command(type=api.Command.SUBSCRIBE, subscribe=wanted)

    def leave(request: int) -> api.Command:
        return api.Command(type=api.Command.UNSUBSCRIBE, unsubscribe=api.Unsubscribe(consumer_id=number, request_id=request))

    found = _wait(cluster, f"the broker of {topic}", lambda done: cluster.look_up(topic, done))
    if not isinstance(found, Refused):
        link = cluster.link(*found)
        for command in (subscribe, leave):
            found = _wait(cluster, f"the end of {subscription}", partial(cluster.ask, link, command))
            if isinstance(found, Refused):
                break
    if isinstance(found, Refused):
        raise TargetError(f"the subscription {subscription!r} of {topic} is left there, delete it: {found.message}")


def _ask(cluster: Cluster, what: str, make: Callable[[int], api.Command]) -> Any:
    return _wait(cluster, what, lambda done: cluster.ask_service(make, done))


def _wait(cluster: Cluster, what: str, begin: Callable[[Callable[[Any], None]], None]) -> Any:
    """The answer to a question, waited for."""
    answers: list[Any] = []
    begin(answers.append)
    cluster.wait(f"waiting for {what}", lambda: bool(answers))
    return answers[0]
