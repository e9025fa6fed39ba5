"""The Pulsar drivers, library and native, against a real Pulsar, and against pulsar-lite where only the client's behaviour matters."""

from __future__ import annotations

import os
import re
import secrets
import signal
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pulsar
import pytest
from admin_rest import ask
from running import running

from pytest_loadtest import brokers, profile
from pytest_loadtest.brokers import java
from pytest_loadtest.commands import cli
from pytest_loadtest.drivers.base import Burst, TargetAddress
from pytest_loadtest.drivers.pulsar import embedded
from pytest_loadtest.drivers.pulsar.kind import KIND
from pytest_loadtest.drivers.pulsar.library import client as client_module
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.names import RunNames
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message import payloads
from pytest_loadtest.message.route import Route, parse_place
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.testing import DRIVER_CHECKS, Rig, Subject, rig
from pytest_loadtest.testing.rig import context_of, expect_received, placed_pool, plain_pool
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

real = [
    pytest.mark.pulsar,
    pytest.mark.skipif(
        java.find() is None, reason="no Java here: apt-get install default-jre-headless"
    ),
]
lite = pytest.mark.skipif(
    embedded.find_binary() is None,
    reason="pulsar-lite is not installed: pip install 'pytest-loadtest[embedded]'",
)
WINDOW = 100
DRIVERS: list[Any] = [PulsarDriver]  # the one under test, last
both = pytest.mark.parametrize(
    "under_test", [PulsarDriver, NativePulsarDriver], ids=["library", "native"], indirect=True
)
EARLIEST = pulsar.InitialPosition.Earliest


def push_keyed(r: Rig, count: int, first: int) -> None:
    """Send messages with keys, as the window permits."""
    r.finish(keyed(r, count, keys=20, first=first))


@contextmanager
def started(mode: str, folder: Path) -> Iterator[brokers.Broker]:
    with running(brokers.BrokerRequest(kind="pulsar", mode=mode, folder=folder)) as broker:
        yield broker


@pytest.fixture(autouse=True)
def under_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Choose the driver of the subjects: the library's, unless a test asks for both."""
    DRIVERS.append(getattr(request, "param", PulsarDriver))
    yield
    DRIVERS.pop()


@pytest.fixture
def broker(pulsar_process: brokers.Broker) -> brokers.Broker:
    return pulsar_process


@pytest.fixture
def small(tmp_path: Path) -> Iterator[brokers.Broker]:
    with started("embedded", tmp_path) as running:
        yield running


def existing(broker: brokers.Broker, partitions: int = 1, name: str | None = None) -> str:
    """Create a topic before the run."""
    path = f"persistent/public/default/{name or f'kept-{secrets.token_hex(4)}'}"
    ask(
        broker,
        f"{path}/partitions" if partitions > 1 else path,
        "PUT",
        partitions if partitions > 1 else None,
    )
    return path.replace("persistent/", "persistent://", 1)


def subject(broker: brokers.Broker, partitions: int = 1, **settings: Any) -> Subject:
    chosen = PulsarSettings(
        **{"max_pending_messages": WINDOW, "operation_timeout": 10 * SECOND} | settings
    )
    target = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url)
    shared = chosen.model_copy(update={"subscription_type": "Shared", "receiver_queue_size": 10})
    return Subject(
        driver=DRIVERS[-1],
        target=target,
        settings=chosen,
        shared=shared,
        partitions=partitions,
        window=WINDOW * partitions,
        ordered=partitions == 1,
        envelopes=tuple(KIND.clients["native"].envelopes),
    )


def keyed(r: Rig, count: int, keys: int, first: int = 0) -> Burst:
    burst = r.burst(count, first)
    burst.key = (burst.seq % keys).astype(np.int32)
    return burst


# the promises of every driver


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("under_test", "partitions"),
    [
        # The library client also keeps them on the stand-in.
        pytest.param(PulsarDriver, 1, marks=pytest.mark.slow, id="library-1"),
        pytest.param(PulsarDriver, 3, marks=pytest.mark.slow, id="library-3"),
        pytest.param(NativePulsarDriver, 1, id="native-1"),
        pytest.param(NativePulsarDriver, 3, id="native-3"),
    ],
    indirect=["under_test"],
)
class TestPromises:
    pytestmark = real

    def test_the_driver_keeps_each_promise(
        self, check: Callable[[Subject], None], partitions: int, broker: brokers.Broker
    ) -> None:
        """On a plain and on a partitioned topic."""
        check(replace(subject(broker, partitions), existing=existing(broker, partitions)))


@lite
@both
def test_promises_on_the_stand_in(small: brokers.Broker) -> None:
    """Without an admin REST too; Shared, because pulsar-lite delivers twice to Failover and Exclusive consumers.

    It gives nobody else what a consumer that left had not acknowledged, so that those checks are for a Pulsar alone.
    """
    leaving = {
        "check_attach_and_detach",
        "check_detach_while_paused",
        "check_attach_again",
        "check_detached_still_delivers",
    }
    for check in [check for check in DRIVER_CHECKS if check.__name__ not in leaving]:
        shared = subject(small, subscription_type="Shared", receiver_queue_size=10)
        check(replace(shared, ordered=False, existing="persistent://public/default/kept"))


@both
@pytest.mark.parametrize(
    "given",
    [
        {"batching_enabled": False},
        {"batching_max_messages": 7, "compression": "LZ4"},
        {"batching_enabled": False, "chunking_enabled": True, "compression": "ZSTD"},
        {"subscription_type": "Key_Shared", "batching_max_messages": 7},
    ],
    ids=["single", "compressed", "chunking", "keys"],
)
@pytest.mark.usefixtures("broker")
class TestProperties:
    pytestmark = real

    def test_envelopes_in_properties_arrive(
        self, broker: brokers.Broker, given: dict[str, Any]
    ) -> None:
        """As one message in an entry, in batches, in chunks, and with keys."""
        made = subject(broker, **given)
        place = parse_place("properties")
        name = f"persistent://public/default/{secrets.token_hex(4)}"
        route = Route(input=name, output=(name,), sent=place, received=place)
        with rig(made, placed_pool(place), route=route) as r:
            with_keys = "subscription_type" in given
            burst = keyed(r, 90, keys=20) if with_keys else r.burst(90)
            r.finish(burst)
            r.until(lambda: r.acked >= 90 and r.copies >= 90, "acked and received")
            expect_received(r, r.places[0], burst, ordered=not with_keys)


# the run's namespace


@pytest.mark.usefixtures("broker")
class TestNamespace:
    pytestmark = real

    def test_the_namespace_exists_during_the_run(self, broker: brokers.Broker) -> None:
        """With its policies; afterwards it is deleted with topics and subscriptions."""
        chosen = subject(
            broker,
            2,
            persistence=Persistence(deduplication_enabled=True),
            namespace_prefix="public/mine",
        )
        with rig(chosen, run="lives") as r:
            r.send(50)
            policies = ask(broker, "namespaces/public/mine-lives")
            assert policies["deduplicationEnabled"] is True
            assert policies["persistence"]["bookkeeperAckQuorum"] == 1
            assert policies["backlog_quota_map"]["destination_storage"]["limitSize"] == -1
            assert ask(broker, "persistent/public/mine-lives/partitioned") == [
                "persistent://public/mine-lives/topic-0"
            ]
        assert "public/mine-lives" not in ask(broker, "namespaces/public")

    def test_quorums_beyond_the_bookies_are_reported_as_not_applied(
        self, broker: brokers.Broker
    ) -> None:
        """On a broker that the run started; OMB's driver file asks for three."""
        chosen = subject(
            broker, persistence=Persistence(ensemble_size=3, write_quorum=3, ack_quorum=2)
        )
        with rig(replace(chosen, target=replace(chosen.target, started=True)), run="capped") as r:
            r.send(50)
            r.until(lambda: r.acked >= 50 and r.copies >= 50, "acked and received")
            quorums = ask(broker, "namespaces/public/loadtest-capped")["persistence"]
            assert [
                quorums[f"bookkeeper{key}"] for key in ("Ensemble", "WriteQuorum", "AckQuorum")
            ] == [1, 1, 1]
            facts = r.driver.facts()
            assert facts.applied["persistence"] == "ensembleSize 1, writeQuorum 1, ackQuorum 1"
            reason = "asks for {}, the broker started here has 1 bookie: 1 is applied"
            asked = {"ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2}
            assert facts.not_applied == {
                f"persistence.{key}": reason.format(count) for key, count in asked.items()
            }

    @pytest.mark.parametrize("strict", [False, True])
    def test_quorums_beyond_the_bookies_are_an_error_before_load(
        self, broker: brokers.Broker, strict: bool
    ) -> None:
        """On a cluster of the user, and under strictTuning; nothing is created."""
        chosen = subject(
            broker, persistence=Persistence(ensemble_size=3, write_quorum=2), strict_tuning=strict
        )
        driver = PulsarDriver(
            context_of(
                replace(chosen, target=replace(chosen.target, started=strict)),
                plain_pool(),
                f"many-{strict}".lower(),
            )
        )
        with pytest.raises(
            UsageError, match=r"persistence: ensembleSize 3, writeQuorum 2.* has 1 bookie"
        ):
            driver.prepare()
        assert f"public/loadtest-many-{strict}".lower() not in ask(broker, "namespaces/public")

    def test_a_namespace_of_others_is_not_touched(self, broker: brokers.Broker) -> None:
        """A namespace that existed before is an error, and still exists after the cleanup."""
        first, second = (
            PulsarDriver(context_of(subject(broker), plain_pool(), "twice")) for _ in range(2)
        )
        first.prepare()
        with pytest.raises(TargetError, match="already exists"):
            second.prepare()
        second.cleanup()
        assert "public/loadtest-twice" in ask(broker, "namespaces/public")
        first.cleanup()
        assert "public/loadtest-twice" not in ask(broker, "namespaces/public")

    def test_the_namespace_is_deleted_with_clients_still_connected(
        self, broker: brokers.Broker
    ) -> None:
        """As after a worker was killed."""
        with rig(subject(broker, 2), run="connected") as r:
            r.send(10)
            r.driver.cleanup()
            assert "public/loadtest-connected" not in ask(broker, "namespaces/public")


@both
class TestExistingTopic:
    pytestmark = real

    @pytest.mark.parametrize(("partitions", "admin"), [(1, False), (3, True)])
    def test_an_existing_topic_is_left_as_it_was(
        self, broker: brokers.Broker, partitions: int, admin: bool
    ) -> None:
        """The run gets no earlier messages, creates no namespace, finds the partitions, and deletes only its two subscriptions."""
        name, spaces = existing(broker, partitions), ask(broker, "namespaces/public")
        client = pulsar.Client(
            broker.facts.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        theirs = client.subscribe(name, "theirs")
        client.create_producer(name).send(b"from before")
        chosen = subject(broker, batching_max_messages=10)
        target = chosen.target if admin else replace(chosen.target, admin_url=None)
        subscriptions = f"{name.replace('://', '/')}/subscriptions"
        with rig(replace(chosen, target=target), subscriptions=2, name=name) as r:
            r.send(90)
            r.until(lambda: r.acked >= 90 and r.copies >= 180, "received twice")
            assert [sorted(r.heads(i).seq.tolist()) for i in (0, 1)] == [list(range(90))] * 2
            assert set(r.column(0, "order").tolist()) == (
                set(range(partitions)) if partitions > 1 else {0}
            )
            assert ("over 3 partitions" in r.driver.facts().applied["maxPendingMessages"]) is (
                partitions == 3
            )
            assert len(ask(broker, subscriptions)) == 3
            assert ask(broker, "namespaces/public") == spaces
        assert ask(broker, subscriptions) == ["theirs"]
        assert [theirs.receive(10_000).data()[:11] for _ in range(91)].count(b"from before") == 1
        client.close()

    def test_a_missing_topic_is_named_and_not_created(self, broker: brokers.Broker) -> None:
        """The broker would create it on use."""
        name = "persistent://public/default/nowhere"
        with (
            pytest.raises(TargetError, match=f"topic: {name} does not exist"),
            rig(subject(broker), name=name),
        ):
            pass
        assert name not in ask(broker, "persistent/public/default")

    def test_a_missing_topic_is_named_without_the_admin_rest(self, broker: brokers.Broker) -> None:
        """If the broker creates no topics on use, the client reports it without waiting."""
        namespace = f"public/strict-{secrets.token_hex(4)}"
        ask(broker, f"namespaces/{namespace}", "PUT")
        ask(
            broker,
            f"namespaces/{namespace}/autoTopicCreation",
            "POST",
            {"allowAutoTopicCreation": False},
        )
        chosen = subject(broker)
        chosen = replace(chosen, target=replace(chosen.target, admin_url=None))
        missing = pytest.raises(
            TargetError, match=f"topic: persistent://{namespace}/nowhere does not exist"
        )
        with missing, rig(chosen, name=f"persistent://{namespace}/nowhere", subscriptions=0):
            pass


# consumers that pause, come and go


@both
class TestChanges:
    pytestmark = real

    def test_a_paused_consumer_gets_no_more_than_its_queue_takes(
        self, broker: brokers.Broker
    ) -> None:
        """The broker sends it no more of 300 messages than its receiver queue, and one more."""
        chosen = subject(
            broker, subscription_type="Shared", receiver_queue_size=10, batching_enabled=False
        )
        with rig(chosen, run="bounded") as r:
            r.driver.pause([0])
            r.send(300)
            r.until(lambda: r.acked >= 300, "acked")
            stats = ask(broker, "persistent/public/loadtest-bounded/topic-0/stats")[
                "subscriptions"
            ]["subscription-0"]
            assert 10 <= stats["unackedMessages"] <= 20
            r.driver.resume([0])
            r.until(lambda: r.copies >= 300, "received")

    @pytest.mark.parametrize(
        ("kind", "partitions"),
        [("Shared", 1), ("Shared", 3), ("Failover", 1), ("Failover", 3), ("Key_Shared", 1)],
    )
    def test_consumers_come_and_go_without_loss_and_duplicates(
        self, broker: brokers.Broker, kind: str, partitions: int
    ) -> None:
        """In the middle of batches, four times; prefetched messages go to the others."""
        chosen = subject(
            broker,
            partitions,
            subscription_type=kind,
            receiver_queue_size=50,
            batching_max_messages=40,
        )
        with rig(chosen, consumers=2, joining=4) as r:
            for turn in range(4):
                push_keyed(r, 150, first=300 * turn)
                r.driver.attach([2 + turn])
                r.driver.detach([turn])
                push_keyed(r, 150, first=300 * turn + 150)
                r.until(lambda joined=turn + 3: r.join() == joined, "attached")
            sent = 1200
            r.until(lambda: r.acked >= sent and r.copies >= sent, "acked and received")
            seq = sorted(number for place in r.places for number in r.heads(place).seq.tolist())
            assert seq == list(range(sent))

    def test_a_consumer_that_cannot_subscribe_is_named(self, broker: brokers.Broker) -> None:
        """The second one of an Exclusive subscription: attach() returns, attached() raises, and the first continues."""
        with rig(subject(broker, subscription_type="Exclusive"), joining=7) as r:
            r.driver.attach([7])
            with pytest.raises(
                TargetError, match=r"consumer 7 \(topic 0, subscription 0\).*ConsumerBusy"
            ):
                r.until(lambda: r.driver.attached() is not None, "refused")
            r.send(10)
            r.until(lambda: r.copies >= 10, "received")


# what the profile asks for


@both
class TestSettings:
    pytestmark = real

    def test_values_of_omb_without_limit_are_accepted(self, broker: brokers.Broker) -> None:
        """pendingQueueSize 0, unlimited batches and sendTimeout 0; and a namespacePrefix whose tenant does not exist."""
        chosen = subject(
            broker,
            send_timeout=0,
            namespace_prefix="benchmark/ns",
            io_threads=2,
            connections_per_broker=2,
        )
        settings = chosen.settings.model_copy(
            update={"max_pending_messages": 0, "batching_max_messages": 0}
        )
        with rig(replace(chosen, settings=settings), run="omb") as r:
            assert not len(r.offer(r.burst(10_000)))
            r.until(lambda: r.acked >= 10_000 and r.copies >= 10_000, "acked and received")
            assert "benchmark/ns-omb" in ask(broker, "namespaces/benchmark")
        assert "benchmark" not in ask(broker, "tenants")

    @pytest.mark.parametrize("compression", ["LZ4", "ZLIB", "ZSTD", "SNAPPY"])
    def test_compressed_bodies_arrive_whole(self, broker: brokers.Broker, compression: str) -> None:
        """The broker stores fewer bytes than were sent."""
        pool = payloads.build_pool(
            buckets=None,
            message_size=4096,
            randomized=False,
            random_ratio=0.0,
            file_content=None,
            seed=1,
            checksum=True,
            max_size=None,
        )
        with rig(
            subject(broker, compression=compression), pool, run=f"c-{compression.lower()}"
        ) as r:
            r.send(100)
            r.until(lambda: r.copies >= 100, "received")
            assert set(r.column(0, "flags")) == {0} and set(r.column(0, "size")) == {4096}
            stats = ask(broker, f"persistent/public/loadtest-c-{compression.lower()}/topic-0/stats")
            assert stats["storageSize"] < 100 * 4096 / 4

    def test_connections_per_broker_are_connections(self, broker: brokers.Broker) -> None:
        """The broker has producers on three connections."""
        with rig(subject(broker, connections_per_broker=3), streams=6, run="three") as r:
            r.send(10)
            publishers = ask(broker, "persistent/public/loadtest-three/topic-0/stats")["publishers"]
            assert len(publishers) == 6
            assert len({publisher["address"] for publisher in publishers}) == 3

    def test_messages_go_through_a_non_persistent_topic(self, broker: brokers.Broker) -> None:
        with rig(subject(broker, topic_type="non-persistent"), run="fleeting") as r:
            r.send(50)
            r.until(lambda: r.acked >= 50 and r.copies >= 50, "acked and received")
            assert ask(broker, "non-persistent/public/loadtest-fleeting") == [
                "non-persistent://public/loadtest-fleeting/topic-0"
            ]

    @pytest.mark.parametrize("batching", [True, False])
    def test_without_batching_each_message_is_an_entry(
        self, broker: brokers.Broker, batching: bool
    ) -> None:
        """With it there are fewer entries."""
        run = f"batching-{batching}".lower()
        with rig(subject(broker, batching_enabled=batching), run=run) as r:
            r.send(WINDOW)
            r.until(lambda: r.acked >= WINDOW, "acked")
            entries = ask(broker, f"persistent/public/loadtest-{run}/topic-0/internalStats")[
                "entriesAddedCounter"
            ]
            assert (entries == WINDOW) is not batching

    def test_messages_that_the_client_refuses_fail(self, broker: brokers.Broker) -> None:
        """Without blockIfQueueFull all are taken."""
        with rig(subject(broker, block_if_queue_full=False)) as r:
            assert not len(r.offer(r.burst(20 * WINDOW)))
            r.until(lambda: r.acked >= 20 * WINDOW, "answered")
            failed = int(np.count_nonzero(r.answers(0).status == Status.FAILED))
            assert 0 < failed < 20 * WINDOW
            r.until(lambda: r.copies >= 20 * WINDOW - failed, "received what was not refused")

    def test_a_message_above_the_limit_is_sent_in_chunks(self, broker: brokers.Broker) -> None:
        """Three times the limit and more, whole and in order; the broker counts chunks."""
        pool = payloads.build_pool(
            buckets=None, message_size=3_200_000, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=True, max_size=None
        )  # fmt: skip
        chosen = subject(
            broker,
            batching_enabled=False,
            chunking_enabled=True,
            compression="LZ4" if DRIVERS[-1] is PulsarDriver else "NONE",
        )
        with rig(chosen, pool, streams=2, run="chunked") as r:
            r.send(4)
            r.until(lambda: r.acked >= 8 and r.copies >= 8, "acked and received")
            heads = r.heads(0)
            assert sorted(zip(heads.stream.tolist(), heads.seq.tolist(), strict=True)) == [
                (s, n) for s in (0, 1) for n in range(4)
            ]
            assert set(r.column(0, "flags")) == {0} and set(r.column(0, "size")) == {3_200_000}
            chunks = ask(broker, "persistent/public/loadtest-chunked/topic-0/stats")["msgInCounter"]
            assert chunks == 8 * (4 if DRIVERS[-1] is NativePulsarDriver else 2)

    def test_a_message_above_the_limit_is_an_error_without_chunks(
        self, broker: brokers.Broker
    ) -> None:
        """The library client fails it; the native client raises before load."""
        pool = payloads.build_pool(
            buckets=None,
            message_size=6 * 1024**2,
            randomized=False,
            random_ratio=0.0,
            file_content=None,
            seed=1,
            checksum=False,
            max_size=None,
        )
        if DRIVERS[-1] is NativePulsarDriver:
            wanted = "payloads of up to 6291456 B: the broker takes messages of 1048576 B"
            with pytest.raises(UsageError, match=wanted), rig(subject(broker), pool):
                pass
            return
        with rig(subject(broker), pool) as r:
            r.offer(r.burst(1))
            r.until(lambda: r.acked >= 1, "answered")
            assert r.answers(0).status.tolist() == [Status.FAILED]


# subscriptions


@both
class TestSubscriptions:
    pytestmark = real

    def test_the_order_column_is_the_partition(self, broker: brokers.Broker) -> None:
        """A stream is in order within it."""
        with rig(subject(broker, 3, batching_max_messages=10)) as r:
            r.send(600)
            r.until(lambda: r.copies >= 600, "received")
            order, seq = r.column(0, "order"), r.heads(0).seq
            assert set(order) == {0, 1, 2}
            assert all(np.all(np.diff(seq[order == partition]) > 0) for partition in range(3))

    def test_key_shared_gives_each_key_to_one_consumer(self, broker: brokers.Broker) -> None:
        """In order, although batching is on; the order column is the key."""
        with rig(
            subject(broker, subscription_type="Key_Shared", max_pending_messages=1000), consumers=2
        ) as r:
            assert not len(r.offer(keyed(r, 500, keys=50)))
            r.until(lambda: r.copies >= 500, "received")
            keys = [r.column(consumer, "order") for consumer in (0, 1)]
            assert all(len(found) for found in keys)
            assert not set(keys[0]) & set(keys[1])
            for consumer in (0, 1):
                seq = r.heads(consumer).seq
                assert np.array_equal(seq % 50, keys[consumer])
                assert all(
                    np.all(np.diff(seq[keys[consumer] == key]) > 0) for key in set(keys[consumer])
                )

    def test_failover_gives_each_partition_to_one_consumer(self, broker: brokers.Broker) -> None:
        """Two consumers share three partitions; every message arrives once."""
        with rig(subject(broker, 3, batching_max_messages=10), consumers=2) as r:
            r.send(600)
            r.until(lambda: r.copies >= 600, "received")
            first, second = (set(r.column(consumer, "order")) for consumer in (0, 1))
            assert first | second == {0, 1, 2} and not first & second

    def test_exclusive_rejects_a_second_consumer(self, broker: brokers.Broker) -> None:
        """The error names the consumer and the broker's answer."""
        refused = pytest.raises(
            TargetError, match=r"consumer 1 \(topic 0, subscription 0\).*ConsumerBusy"
        )
        with rig(subject(broker, subscription_type="Exclusive"), joining=1) as r, refused:
            r.driver.open_consumers([1])

    def test_a_redelivered_message_is_flagged(self, broker: brokers.Broker) -> None:
        chosen = subject(broker, subscription_type="Shared")
        driver = PulsarDriver(context_of(chosen, plain_pool(), "again"))
        driver.prepare()
        other = pulsar.Client(
            broker.facts.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            topic = "persistent://public/loadtest-again/topic-0"
            refusing = other.subscribe(
                topic,
                "subscription-0",
                pulsar.ConsumerType.Shared,
                negative_ack_redelivery_delay_ms=100,
                initial_position=EARLIEST,
            )
            other.create_producer(topic).send(b"once more")
            refusing.negative_acknowledge(refusing.receive(10_000))
            refusing.receive(10_000)
            driver.open_consumers([0])
            other.close()
            end = time.monotonic() + 20
            while (got := driver.take()) is None and time.monotonic() < end:
                driver.poll(10 * MILLISECOND)
            assert got is not None and got.flags.tolist() == [Flag.REDELIVERED]
        finally:
            driver.close()
            driver.cleanup()


# a target that goes away


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@lite
@both
class TestTargetGoes:
    def test_close_returns_although_the_broker_is_frozen(
        self, small: brokers.Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With messages in flight on three clients; the client's own close() would not."""
        monkeypatch.setattr(client_module, "CLOSE_TIMEOUT", 0.5)
        chosen = subject(
            small, connections_per_broker=3, send_timeout=0, operation_timeout=600 * SECOND
        )
        with rig(chosen, streams=3) as r:
            r.send(WINDOW)
            r.until(lambda: r.acked >= 3 * WINDOW, "acked")
            with frozen(small.facts.pid):
                assert not len(r.offer(r.burst(WINDOW, WINDOW)))
                r.driver.close()

    def test_messages_are_answered_after_a_pause_of_the_broker(self, small: brokers.Broker) -> None:
        with rig(subject(small, subscription_type="Shared")) as r:
            with frozen(small.facts.pid):
                r.offer(r.burst(WINDOW))
                r.driver.poll(SECOND // 5)
                r.collect()
                assert (r.acked, len(r.offer(r.burst(1, WINDOW)))) == (0, 1)
            r.until(lambda: r.acked >= WINDOW and r.copies >= WINDOW, "acked and received")
            assert set(r.answers(0).status.tolist()) == {Status.ACKED}

    def test_a_killed_broker_is_reported(self, small: brokers.Broker) -> None:
        """disconnected() names the connections, the window fills, and close() returns."""
        with rig(subject(small)) as r:
            small.stop()
            r.until(lambda: r.driver.disconnected() is not None, "disconnected")
            # The native client adds the address and the reason.
            r.until(
                lambda: bool(
                    re.fullmatch(
                        r"producer of stream 0.* and 1 more", r.driver.disconnected() or ""
                    )
                ),
                "both disconnected",
            )
            assert r.offer(r.burst(2 * WINDOW)).tolist() == list(range(WINDOW, 2 * WINDOW))
            assert len(r.offer(r.burst(1, WINDOW))) == 1

    def test_a_message_fails_after_the_send_timeout(self, small: brokers.Broker) -> None:
        with rig(subject(small, send_timeout=SECOND)) as r:
            with frozen(small.facts.pid):
                r.offer(r.burst(10))
                r.until(lambda: r.acked >= 10, "answered")
            assert set(r.answers(0).status.tolist()) == {Status.FAILED}


@lite
def test_names_are_unique_to_the_run(small: brokers.Broker) -> None:
    """Without an admin REST nothing can be deleted: the nonce distinguishes runs of one name."""
    chosen, pool = subject(small, subscription_type="Shared"), plain_pool()
    made = [replace(context_of(chosen, pool, "same"), nonce=secrets.randbits(32)) for _ in range(2)]
    names = [RunNames(context).topic(0) for context in made]
    assert names == [
        f"persistent://public/default/loadtest-same-{context.nonce:08x}-0" for context in made
    ]


class TestLearn:
    pytestmark = real

    def test_learn_reads_sizes_keys_and_partitions(
        self, broker: brokers.Broker, tmp_path: Path
    ) -> None:
        """No subscription is left, and no topic was created."""
        topic, output = f"public/default/learn-{secrets.token_hex(4)}", tmp_path / "learned.yaml"
        assert broker.facts.admin_url is not None
        tell = partial(
            urllib.request.Request, headers={"Content-Type": "application/json"}, method="PUT"
        )
        address = f"{broker.facts.admin_url}/admin/v2/persistent/{topic}"
        urllib.request.urlopen(tell(f"{address}/partitions", data=b"3"), timeout=10).close()
        stop = threading.Event()

        def publish() -> None:
            client = pulsar.Client(
                broker.facts.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            )
            producer = client.create_producer(topic)
            while not stop.is_set():
                producer.send(bytes(200), partition_key="one")
                producer.send(bytes(5000), partition_key="other")
            client.close()

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            command = [
                "learn",
                broker.facts.url,
                "--admin-url",
                broker.facts.admin_url,
                "--topic",
                topic,
                "--messages",
                "100",
            ]
            assert cli.main([*command, "-o", str(output)]) == cli.OK
        finally:
            stop.set()
            thread.join()
        found = profile.load(output)
        assert set(found.message_size_distribution or ()) == {"200-201", "5000-5001"}
        assert (found.topics, found.partitions_per_topic, found.key_distributor) == (
            1,
            3,
            "RANDOM_NANO",
        )
        assert re.search(
            r"one of 2 keys; the most frequent has \d\d % of them", output.read_text()
        )  # of which more came first is chance
        end = time.monotonic() + 30  # the broker forgets a reader a moment after it is closed
        while left := ask(broker, f"persistent/{topic}/partitioned-stats?perPartition=false")[
            "subscriptions"
        ]:
            assert time.monotonic() < end, left
            time.sleep(0.1)

    def test_learn_does_not_create_a_missing_topic(
        self, broker: brokers.Broker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert broker.facts.admin_url is not None
        command = ["learn", broker.facts.url, "--admin-url", broker.facts.admin_url, "--topic"]
        assert cli.main([*command, "learn-nowhere"]) == cli.USAGE
        assert cli.main([*command, "nobody/nowhere/learn-nowhere"]) == cli.USAGE
        assert "persistent://public/default/learn-nowhere does not exist" in capsys.readouterr().err
        assert not [
            topic for topic in ask(broker, "persistent/public/default") if "learn-nowhere" in topic
        ]
