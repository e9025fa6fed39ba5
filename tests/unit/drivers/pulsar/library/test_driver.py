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


def test_what_cannot_be_set_is_listed_with_its_reason() -> None:
    """What needs the admin REST only without it, and only when asked for."""
    settings = PulsarSettings(client_memory_limit_mb=256, persistence=Persistence(), namespace_prefix="public/mine")
    assert set(PulsarDriver(context(settings)).facts().not_applied) == {"persistence", "namespacePrefix"}
    facts = PulsarDriver(context(settings, admin="http://127.0.0.1:1")).facts()
    assert facts.not_applied == {}
    assert facts.applied["clientMemoryLimitMB"].startswith("256 per worker")
    assert PulsarDriver(context()).facts().not_applied == {}


def test_strict_tuning_names_the_keys() -> None:
    """Under strictTuning a key that cannot be applied is a usage error at once."""
    with pytest.raises(UsageError, match=r"persistence: needs target\.adminUrl"):
        PulsarDriver(context(PulsarSettings(persistence=Persistence(), strict_tuning=True)))


def test_facts_say_what_the_client_was_told() -> None:
    """Namespace, clients for connections, window over partitions, and no secret."""
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
def test_partitions_are_told_apart_where_order_is_not_judged(kind: Any, ordered: bool, partitions: int, order: object) -> None:
    """Else what comes interleaved from several partitions looks like second copies, and every drain waits seconds for more of them."""
    driver = PulsarDriver(context(PulsarSettings(subscription_type=kind), ordered=ordered))
    assert driver._order(partitions) is order


def test_existing_topic_has_facts_of_its_own() -> None:
    """The topic in place of a namespace, with what is not known of it; what would be set on a namespace of ours is not applied."""
    name = "persistent://public/default/orders"
    settings = PulsarSettings(namespace_prefix="public/mine", topic_type="persistent", persistence=Persistence())
    facts = PulsarDriver(context(settings, name=name)).facts()
    assert facts.applied["topic"] == f"{name} (existing, as far as can be known without target.adminUrl)"
    assert not {"namespace", "topicType", "persistence"} & set(facts.applied)
    assert facts.not_applied == dict.fromkeys(("namespacePrefix", "topicType", "persistence"), "the topic exists already")


def test_io_threads_are_those_of_all_clients_together() -> None:
    """8 ioThreads and 8 connections are 8 threads, not 64."""
    facts = PulsarDriver(context(PulsarSettings(io_threads=8, connections_per_broker=8))).facts()
    assert facts.applied["ioThreads"] == "8, over all clients"


def test_partitions_need_the_admin_rest() -> None:
    """Without it the run ends before it starts, and says what to give."""
    with pytest.raises(TargetError, match=r"4 partitions.*adminUrl"):
        PulsarDriver(context(partitions=4)).prepare()


def test_unreachable_target_is_named() -> None:
    """Nobody listens: the address is in the error, also after waiting; close and cleanup stay quiet."""
    driver = PulsarDriver(context(PulsarSettings(operation_timeout=SECOND), clock=time.monotonic_ns))
    try:
        with pytest.raises(TargetError, match=r"stream 0 cannot connect to pulsar://127\.0\.0\.1:1"):
            driver.open_producers([0])
    finally:
        driver.close()
        driver.cleanup()


def test_poll_waits_at_most_as_told() -> None:
    """Nothing is wrong with a driver that was not opened."""
    driver = PulsarDriver(context())
    driver.poll(MILLISECOND)
    assert driver.disconnected() is None
    driver.close()


def test_poll_ends_when_a_full_window_may_have_room() -> None:
    """After a refusal it looks for answers all the time, also for those that acks() has taken meanwhile."""
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
