"""The driver on pulsar-client without a broker: facts, errors, waiting."""

from __future__ import annotations

import time
from typing import Any

import pulsar
import pytest
from pulsar_library_rig import NullProducer, burst, context, producer_on

from pytest_loadtest.drivers.pulsar.library.consumers import key_of, partition_of
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.settings import Authentication, Persistence, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


def test_unapplied_keys_are_listed_with_their_reason() -> None:
    """Keys that need the admin REST are listed only without it, and only if the profile has them."""
    settings = PulsarSettings(
        client_memory_limit_mb=256, persistence=Persistence(), namespace_prefix="public/mine"
    )
    assert set(PulsarDriver(context(settings)).facts().not_applied) == {
        "persistence",
        "namespacePrefix",
    }
    facts = PulsarDriver(context(settings, admin="http://127.0.0.1:1")).facts()
    assert facts.not_applied == {}
    assert facts.applied["clientMemoryLimitMB"].startswith("256 per worker")
    assert PulsarDriver(context()).facts().not_applied == {}


def test_under_strict_tuning_an_unapplied_key_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"persistence: needs target\.adminUrl"):
        PulsarDriver(context(PulsarSettings(persistence=Persistence(), strict_tuning=True)))


def test_facts_have_the_applied_settings_and_no_secret() -> None:
    """Namespace, number of clients, window over partitions."""
    auth = Authentication(plugin="token", token="secret")
    settings = PulsarSettings(connections_per_broker=3, authentication=auth)
    facts = PulsarDriver(context(settings, admin="http://127.0.0.1:1", partitions=10)).facts()
    assert (facts.client, facts.version) == ("pulsar-client", pulsar.__version__)
    assert facts.applied["namespace"] == "public/loadtest-r"
    assert facts.applied["connectionsPerBroker"] == "3 (as many clients)"
    assert facts.applied["maxPendingMessages"] == "10000 per producer, over 10 partitions"
    assert facts.applied["authentication"] == "token"
    assert "secret" not in str(facts)
    assert PulsarDriver(context()).facts().applied["namespace"] == "public/default"


@pytest.mark.parametrize(
    ("kind", "ordered", "partitions", "order"),
    [
        ("Shared", False, 3, partition_of), ("Key_Shared", False, 3, partition_of), ("Key_Shared", True, 3, key_of),
        ("Failover", True, 3, partition_of), ("Shared", False, 1, None), ("Key_Shared", True, 1, key_of),
    ],
)  # fmt: skip
def test_partitions_are_distinguished_even_if_order_is_not_judged(
    kind: Any, ordered: bool, partitions: int, order: object
) -> None:
    """Otherwise messages from several partitions look like second copies, and every drain waits for more of them."""
    driver = PulsarDriver(context(PulsarSettings(subscription_type=kind), ordered=ordered))
    assert driver._order(partitions, ["orders"]) is order
    assert driver._order(partitions, ["orders", "others"]) is not order


def test_facts_name_an_existing_topic_in_place_of_a_namespace() -> None:
    """Settings for a namespace are not applied."""
    name = "persistent://public/default/orders"
    settings = PulsarSettings(
        namespace_prefix="public/mine", topic_type="persistent", persistence=Persistence()
    )
    facts = PulsarDriver(context(settings, name=name)).facts()
    assert (
        facts.applied["topic"]
        == f"{name} (existing, as far as can be known without target.adminUrl)"
    )
    assert not {"namespace", "topicType", "persistence"} & set(facts.applied)
    assert facts.not_applied == dict.fromkeys(
        ("namespacePrefix", "topicType", "persistence"), "the topic exists already"
    )


def test_io_threads_are_those_of_all_clients_together() -> None:
    """8 ioThreads and 8 connections are 8 threads, not 64."""
    facts = PulsarDriver(context(PulsarSettings(io_threads=8, connections_per_broker=8))).facts()
    assert facts.applied["ioThreads"] == "8, over all clients"


def test_partitions_need_the_admin_rest() -> None:
    """Without it the run ends before it starts, with a remedy."""
    with pytest.raises(TargetError, match=r"4 partitions.*adminUrl"):
        PulsarDriver(context(partitions=4)).prepare()


def test_an_unreachable_target_is_named() -> None:
    """Also after retries; close and cleanup raise nothing."""
    driver = PulsarDriver(
        context(PulsarSettings(operation_timeout=SECOND), clock=time.monotonic_ns)
    )
    try:
        with pytest.raises(
            TargetError, match=r"stream 0 cannot connect to pulsar://127\.0\.0\.1:1"
        ):
            driver.open_producers([0])
    finally:
        driver.close()
        driver.cleanup()


def test_poll_returns_after_its_timeout() -> None:
    """Also for a driver that was not opened."""
    driver = PulsarDriver(context())
    driver.poll(MILLISECOND)
    assert driver.disconnected() is None
    driver.close()


def test_poll_returns_when_a_full_window_may_have_room() -> None:
    """Also for answers that acks() has taken in the meantime."""
    client, driver = NullProducer(), PulsarDriver(context(clock=time.monotonic_ns))
    driver._producers = producer_on(client, 1)
    for look in (driver.acks, lambda: None):
        assert driver.send(burst(2)) is not None
        client.answer(1)
        look()
        began = time.monotonic()
        driver.poll(60 * SECOND)
        assert time.monotonic() - began < 30
    driver.close()
