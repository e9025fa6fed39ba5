"""The native client's account of the profile's keys, and its requests about topics and subscriptions."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from fake_pulsar import FakeBroker, nothing, refuse
from native_rig import MovedClock
from pulsar_library_rig import context

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.pulsar.names import RunNames
from pytest_loadtest.drivers.pulsar.native import client
from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/orders"


def cluster_at(url: str, timeout: int = 60 * SECOND) -> Cluster:
    return Cluster(
        url,
        client="c",
        method="none",
        credentials=bytes,
        tls=None,
        connections=1,
        timeout=timeout,
        arrivals=ArrivalClock(MovedClock(), kernel=False),
    )


@pytest.fixture
def cluster(broker: FakeBroker) -> Iterator[Cluster]:
    made = cluster_at(broker.url)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("pending", "across", "partitions", "window"),
    [(1000, 50_000, 1, 1000), (1000, 1500, 3, 500), (10, 1, 4, 1), (0, 50_000, 3, None)],
)
def test_the_window_of_a_partition_is_a_share_of_all_partitions(
    pending: int, across: int, partitions: int, window: int | None
) -> None:
    """As in Pulsar's Java client; 0 pending messages is no limit."""
    settings = PulsarSettings(
        max_pending_messages=pending, max_pending_messages_across_partitions=across
    )
    assert client.partition_window(settings, partitions) == window


def test_facts_name_windows_and_the_sizes_of_batches() -> None:
    settings = PulsarSettings(connections_per_broker=3)
    names = RunNames(context(settings, partitions=2))
    facts = client.native_facts(
        settings, names, {"ioThreads": "one"}, Counter({1: 2, 50: 3, 120: 1})
    )
    assert facts.client == "native"
    assert (
        facts.applied["maxPendingMessages"] == "1000 per producer and partition, over 2 partitions"
    )
    assert facts.applied["connectionsPerBroker"] == "3"
    assert facts.applied["batches"] == "6 batches of 1 to 120 messages, half of them of up to 50"
    assert facts.not_applied == {"ioThreads": "one"}
    assert "batches" not in client.native_facts(settings, names, {}, None).applied


def test_several_io_threads_are_not_applied_and_an_error_under_strict_tuning() -> None:
    threads = PulsarSettings(io_threads=2, persistence=Persistence())
    given = context(threads)
    assert set(client.native_unapplied_keys(threads, given, RunNames(given))) == {
        "ioThreads",
        "persistence",
    }
    strict = PulsarSettings(io_threads=2, strict_tuning=True)
    with pytest.raises(UsageError, match="strictTuning: the native client cannot apply ioThreads"):
        client.native_unapplied_keys(strict, context(strict), RunNames(context(strict)))


def test_a_topic_has_the_partitions_that_the_broker_reports(
    cluster: Cluster, broker: FakeBroker
) -> None:
    """The request does not create the topic."""
    broker.partitions = 3
    assert client.query_partitions(cluster, TOPIC) == 3
    (asked,) = broker.of("PARTITIONED_METADATA")
    assert (asked.topic, asked.metadata_auto_creation_enabled) == (TOPIC, False)


def failed_metadata(error: int) -> object:
    return lambda seen: seen.peer.tell(
        "PARTITIONED_METADATA_RESPONSE",
        request_id=seen.said.request_id,
        response=1,
        error=error,
        message="no",
    )


@pytest.mark.parametrize("form", [refuse, failed_metadata], ids=["error", "response"])
def test_a_missing_topic_is_none_and_any_other_failure_an_error(
    cluster: Cluster, broker: FakeBroker, form: object
) -> None:
    """Brokers report it as an error or in the response."""
    broker.rules["PARTITIONED_METADATA"] = form(api.TopicNotFound)  # type: ignore[operator]
    assert client.query_partitions(cluster, TOPIC) is None
    broker.rules["PARTITIONED_METADATA"] = form(api.MetadataError)  # type: ignore[operator]
    with pytest.raises(TargetError, match=f"topic {TOPIC}: .*no"):
        client.query_partitions(cluster, TOPIC)


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_subscription_is_deleted_at_every_partition(
    cluster: Cluster, broker: FakeBroker, partitions: int
) -> None:
    broker.partitions = partitions
    client.delete_subscriptions(
        cluster, PulsarSettings(subscription_type="Shared"), TOPIC, ["s-0", "s-1"]
    )
    topics = [f"{TOPIC}-partition-{i}" for i in range(partitions)] or [TOPIC]
    subscribed = [(said.topic, said.subscription, said.sub_type) for said in broker.of("SUBSCRIBE")]
    assert subscribed == [(topic, name, 1) for name in ("s-0", "s-1") for topic in topics]
    assert [said.consumer_id for said in broker.of("UNSUBSCRIBE")] == list(range(len(subscribed)))


def test_a_subscription_that_cannot_be_deleted_is_named(
    cluster: Cluster, broker: FakeBroker
) -> None:
    broker.rules["UNSUBSCRIBE"] = refuse(api.ConsumerBusy, "has consumers")
    with pytest.raises(TargetError, match=re.escape("the subscription 's-0'") + ".*has consumers"):
        client.delete_subscriptions(cluster, PulsarSettings(), TOPIC, ["s-0"])


def test_a_request_without_an_answer_is_an_error(broker: FakeBroker) -> None:
    broker.rules["PARTITIONED_METADATA"] = nothing
    asking = cluster_at(broker.url, timeout=SECOND // 5)
    try:
        with pytest.raises(TargetError, match=f"topic {TOPIC}: .* gives no answer for"):
            client.query_partitions(asking, TOPIC)
    finally:
        asking.close()
