"""The protocol core against real brokers and with pulsar-client: each reads the messages of the other."""

from __future__ import annotations

import random
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import admin_rest
import numpy as np
import pulsar
import pytest
from pulsar_wire import (
    CUMULATIVE,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    Consumer,
    Producer,
    Received,
    RefusedError,
    Wire,
    ack_set_of,
)
from running import running
from waiting_for import wait_until

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.pulsar import embedded
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.batches import pending_indexes
from pytest_loadtest.wire.pulsar.chunks import Assembled, ChunkAssembler, split_into_chunks
from pytest_loadtest.wire.pulsar.compression import NAMES, compress, decompress
from pytest_loadtest.wire.pulsar.entries import (
    compressed,
    deliver_at,
    field,
    open_entry,
    publish_time,
)
from pytest_loadtest.wire.pulsar.framing import MAX_MESSAGE

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
MS = 30_000  # to wait for what pulsar-client is to receive, in ms; a failure alone waits so long
CHECKSUM, TERMINATED, PRODUCER_BUSY, INVALID_TOPIC = (
    9,
    15,
    16,
    17,
)  # of PulsarApi.proto's ServerError


@contextmanager
def started(mode: str, folder: Path, version: str | None = None) -> Iterator[brokers.Broker]:
    request = brokers.BrokerRequest(kind="pulsar", mode=mode, folder=folder, version=version)
    with running(request) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker(special_pulsar: brokers.Broker) -> brokers.Broker:
    return special_pulsar


@pytest.fixture(scope="module")
def library(broker: brokers.Broker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.facts.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def wire(broker: brokers.Broker) -> Iterator[Wire]:
    with Wire(broker.facts.url) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/wire-{secrets.token_hex(4)}"


def ask(
    broker: brokers.Broker, topic: str, path: str, method: str = "GET", body: object = None
) -> Any:
    """Send a request about a topic to the admin REST."""
    return admin_rest.ask(broker, f"{topic.replace('://', '/')}/{path}", method, body)


def state(broker: brokers.Broker, topic: str, subscription: str = "s") -> dict[str, Any]:
    """Return the statistics of a subscription."""
    found: dict[str, Any] = ask(broker, topic, "stats?getPreciseBacklog=true")["subscriptions"][
        subscription
    ]
    return found


def has_backlog(broker: brokers.Broker, topic: str, expected: int) -> Callable[[], bool]:
    return lambda: state(broker, topic)["msgBacklog"] == expected


def waits(broker: brokers.Broker, topic: str, subscription: str = "s") -> Callable[[], bool]:
    """Return whether the subscription has delivered all messages."""
    return lambda: (
        ask(broker, topic, "internalStats")["cursors"][subscription]["waitingReadOp"] is True
    )


def received(consumer: Consumer, messages: int) -> list[Received]:
    """Receive entries until they have so many messages."""
    found: list[Received] = []
    while sum(len(one.payloads) for one in found) < messages:
        found.append(consumer.receive())
    return found


# all brokers


@pytest.fixture(
    params=[
        pytest.param(("process", "4.2.4"), marks=real, id="4.2.4"),
        pytest.param(("process", "4.0.0"), marks=(*real, pytest.mark.slow), id="4.0.0"),
        pytest.param(("process", "5.0.0-M1"), marks=(*real, pytest.mark.slow), id="5.0.0-M1"),
        pytest.param(("embedded", None), marks=lite, id="lite"),
    ]
)
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[brokers.Broker]:
    mode, version = request.param
    if version == "4.2.4":
        yield request.getfixturevalue("broker")
        return
    with started(mode, tmp_path, version) as running:
        yield running


def test_messages_make_a_round_trip(each: brokers.Broker, topic: str) -> None:
    """Handshake, lookup, producer, consumer, plain and batched messages, acknowledgement, ping, close."""
    with Wire(each.facts.url) as wire:
        assert wire.connection.ready and wire.connection.max_message == MAX_MESSAGE
        assert each.facts.name != "Pulsar" or each.facts.version in wire.server
        assert wire.request("partitioned_metadata", topic=topic).partitions == 0
        consumer, producer = Consumer(wire, topic), Producer(wire, topic)
        producer.send(0, [b"plain"])
        producer.send(
            1, [b"one", b"two"], batched=True, keys=["a", "b"], compression=NAMES.index("ZSTD")
        )
        found = received(consumer, 3)
        assert [(one.payloads, one.keys) for one in found] == [
            ([b"plain"], [None]),
            ([b"one", b"two"], ["a", "b"]),
        ]
        assert [(one.metadata.producer_name, one.metadata.sequence_id) for one in found] == [
            (producer.name, 0),
            (producer.name, 1),
        ]
        wire.command(
            "ack", consumer_id=consumer.number, ack_type=0, message_id=[one.id() for one in found]
        )
        wire.connection.ping()
        wire.add([])
        wire.event(lambda event: isinstance(event, api.Pong), "PONG")
        wire.request("close_producer", producer_id=producer.number)
        consumer.close()


# what one client sends the other reads

SIZES = (1, 0, 3000, 17)
PAYLOADS = [
    bytes(random.Random(size).randbytes(size // 2)) * 2 + b"x" * (size % 2) for size in SIZES
]
KEYS = ["a", "", "\u00fc", "a"]
PROPERTIES = {"name": "value", "\u00fc": ""}
MORE = b"".join(
    field(4, field(1, key.encode()) + field(2, value.encode())) for key, value in PROPERTIES.items()
)
CODECS = [
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
]


def earliest(library: pulsar.Client, topic: str, **told: Any) -> pulsar.Consumer:
    return library.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        **told,
    )


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("compression", range(len(NAMES)), ids=NAMES)
class TestBothWays:
    pytestmark = real

    def test_pulsar_client_reads_our_messages(
        self,
        wire: Wire,
        library: pulsar.Client,
        topic: str,
        compression: int,
        batched: bool,
        keyed: bool,
    ) -> None:
        """Payloads, keys and, for single messages, properties."""
        producer, keys = Producer(wire, topic), KEYS if keyed else [None] * len(PAYLOADS)
        pairs = list(zip(PAYLOADS, keys, strict=True))
        if batched:
            producer.send(
                0, PAYLOADS, batched=True, compression=compression, keys=KEYS if keyed else None
            )
        else:
            pairs = [
                pair for pair in pairs if pair[0] or NAMES[compression] != "ZLIB"
            ]  # pulsar-client cannot inflate nothing
            for number, (payload, key) in enumerate(pairs):
                producer.send(
                    number,
                    [payload],
                    compression=compression,
                    keys=None if key is None else [key],
                    more=MORE,
                )
        consumer = earliest(library, topic)
        found = [consumer.receive(MS) for _ in pairs]
        assert [(one.data(), one.partition_key()) for one in found] == [
            (payload, key or "") for payload, key in pairs
        ]
        assert [one.properties() for one in found] == [{} if batched else PROPERTIES] * len(pairs)
        assert {one.producer_name() for one in found} == {producer.name}
        consumer.close()

    def test_we_read_the_messages_of_pulsar_client(
        self,
        wire: Wire,
        library: pulsar.Client,
        topic: str,
        compression: int,
        batched: bool,
        keyed: bool,
    ) -> None:
        """A batch is one entry, and an entry names its compression."""
        consumer = Consumer(wire, topic)
        batching = {
            "batching_enabled": True,
            "batching_max_messages": len(PAYLOADS),
            "batching_max_publish_delay_ms": 60_000,
        }
        producer = library.create_producer(
            topic, compression_type=CODECS[compression], **(batching if batched else {})
        )
        for payload, key in zip(PAYLOADS, KEYS, strict=True):
            producer.send_async(
                payload,
                lambda *_: None,
                properties=PROPERTIES,
                partition_key=key if keyed else None,
            )
        producer.flush()
        found = received(consumer, len(PAYLOADS))
        assert [payload for one in found for payload in one.payloads] == PAYLOADS
        assert [key for one in found for key in one.keys] == (
            [key or None for key in KEYS] if keyed else [None] * len(PAYLOADS)
        )  # theirs is none if empty
        assert len(found) == (1 if batched else len(PAYLOADS))
        assert {one.metadata.compression for one in found} == {compression}
        if not batched:
            assert [
                {told.key: told.value for told in one.metadata.properties} for one in found
            ] == [PROPERTIES] * len(found)
        producer.close()


@pytest.mark.parametrize("compression", [0, NAMES.index("ZLIB")], ids=["NONE", "ZLIB"])
class TestChunks:
    pytestmark = real
    WHOLE = random.Random(1).randbytes(11 * 1024**2)  # does not get smaller

    def test_pulsar_client_reads_our_chunks(
        self, wire: Wire, library: pulsar.Client, topic: str, compression: int
    ) -> None:
        """Three chunks, compressed as a whole, are one message, although chunks of another are among them."""
        producer, other, payload, more = (
            Producer(wire, topic),
            Producer(wire, topic),
            self.WHOLE,
            b"",
        )
        if compression:
            payload, more = compress(compression, payload), compressed(compression, len(payload))
        pieces = split_into_chunks(
            memoryview(payload), MAX_MESSAGE - 10_000, f"{producer.name}-0".encode()
        )
        for (piece, told), (small, of) in zip(
            pieces, split_into_chunks(memoryview(b"abc"), 1, b"other"), strict=True
        ):
            producer.send_entry(0, [bytes(piece)], chunk=True, more=more + told)
            other.send_entry(0, [bytes(small)], chunk=True, more=of)
        consumer = earliest(library, topic)
        assert [consumer.receive(MS).data() for _ in range(2)] == [self.WHOLE, b"abc"]
        consumer.close()

    def test_we_read_the_chunks_of_pulsar_client(
        self, wire: Wire, library: pulsar.Client, topic: str, compression: int
    ) -> None:
        """The broker deletes all of them when they are acknowledged."""
        producer = library.create_producer(
            topic, compression_type=CODECS[compression], chunking_enabled=True
        )
        consumer, assembler, whole = Consumer(wire, topic), ChunkAssembler[api.MessageId](1), None
        producer.send(self.WHOLE)
        while whole is None:
            entry = consumer.entry()
            metadata, body = open_entry(entry.body)
            assert metadata.num_chunks_from_msg == 3
            whole = assembler.add(
                metadata, body, api.MessageId(ledger_id=entry.ledger, entry_id=entry.entry)
            )
        assert isinstance(whole, Assembled)
        payload = memoryview(whole.payload)
        assert (
            decompress(compression, payload, metadata.uncompressed_size) if compression else payload
        ) == self.WHOLE
        assert len(whole.where) == 3 and not assembler.given_up
        producer.close()


class TestDelay:
    pytestmark = real

    def test_the_broker_delays_our_messages(
        self, broker: brokers.Broker, wire: Wire, library: pulsar.Client, topic: str
    ) -> None:
        """A message due in an hour is kept, a later one without delay arrives, and so does one due soon."""
        consumer, producer, now = (
            earliest(library, topic),
            Producer(wire, topic),
            time.time_ns() // 1_000_000,
        )
        producer.send(0, [b"in an hour"], more=deliver_at(now + 3_600_000))
        producer.send(1, [b"soon"], more=deliver_at(now + 1000))
        producer.send(2, [b"now"])
        assert {consumer.receive(MS).data() for _ in range(2)} == {b"soon", b"now"}
        wait_until(
            lambda: ask(broker, topic, "stats")["subscriptions"]["s"]["msgDelayed"] == 1,
            "one message delayed",
            30,
        )
        consumer.close()

    def test_an_entry_has_its_due_time(
        self, wire: Wire, library: pulsar.Client, topic: str
    ) -> None:
        consumer, producer, due = (
            Consumer(wire, topic),
            library.create_producer(topic),
            time.time_ns() // 1_000_000 + 1000,
        )
        producer.send(b"soon", deliver_at=due)
        assert consumer.receive().metadata.deliver_at_time == due
        producer.close()


# what a consumer tells the broker


def filled(wire: Wire, topic: str, count: int) -> list[bytes]:
    """Publish entries 0 to ``count`` - 1 of one message each, a second apart, the last one now."""
    producer, now = Producer(wire, topic), time.time_ns() // 1_000_000
    payloads = [f"message {number}".encode() for number in range(count)]
    for number, payload in enumerate(payloads):
        producer.send_entry(number, [payload], published=now - 1000 * (count - 1 - number))
    return payloads


class TestAcknowledgement:
    pytestmark = real

    def test_the_backlog_is_what_was_not_acknowledged(
        self, broker: brokers.Broker, wire: Wire, topic: str
    ) -> None:
        """Individually and cumulatively."""
        consumer = Consumer(wire, topic, kind=EXCLUSIVE)
        filled(wire, topic, 10)
        found = received(consumer, 10)
        assert state(broker, topic)["msgBacklog"] == 10
        consumer.acknowledge(found[7].id(), found[2].id())
        wait_until(has_backlog(broker, topic, 8), "a backlog of 8", 30)
        consumer.acknowledge(found[4].id(), kind=CUMULATIVE)
        wait_until(has_backlog(broker, topic, 4), "a backlog of 4", 30)
        consumer.acknowledge(*(one.id() for one in found[5:]))
        wait_until(has_backlog(broker, topic, 0), "no backlog", 30)

    def test_the_broker_stores_which_messages_of_a_batch_are_acknowledged(
        self, broker: brokers.Broker, wire: Wire, library: pulsar.Client, topic: str
    ) -> None:
        """It reports them with the redelivery, to pulsar-client and to us."""
        payloads, still = [str(number).encode() for number in range(70)], np.ones(70, np.bool_)
        consumer = Consumer(wire, topic)
        Producer(wire, topic).send(0, payloads, batched=True)
        found = consumer.receive()
        assert found.entry.ack_set == ()
        still[[0, 3, 64, 69]] = False
        consumer.acknowledge(found.id(ack_set=ack_set_of(still), batch_size=70))
        wire.command(
            "redeliver_unacknowledged", consumer_id=consumer.number, message_ids=[found.id()]
        )
        assert (
            pending_indexes(consumer.receive().entry.ack_set, 70).tolist()
            == np.flatnonzero(still).tolist()
        )
        consumer.close()
        theirs = earliest(library, topic, batch_index_ack_enabled=True)
        rest = [theirs.receive(MS) for _ in range(66)]
        assert [one.data() for one in rest] == [
            payload for payload, wanted in zip(payloads, still, strict=True) if wanted
        ]
        for one in rest[::2]:
            theirs.acknowledge(one)
            still[int(one.data())] = False
        theirs.close()
        again = Consumer(wire, topic)
        assert (
            pending_indexes(again.receive().entry.ack_set, 70).tolist()
            == np.flatnonzero(still).tolist()
        )
        assert state(broker, topic)["msgBacklog"] > 0
        again.acknowledge(found.id(ack_set=ack_set_of(np.zeros(70, np.bool_)), batch_size=70))
        wait_until(has_backlog(broker, topic, 0), "no backlog", 30)

    def test_requested_entries_are_delivered_again_with_their_count(
        self, wire: Wire, topic: str
    ) -> None:
        """No others are."""
        consumer = Consumer(wire, topic)
        filled(wire, topic, 3)
        found = received(consumer, 3)
        for times in (1, 2):
            wire.command(
                "redeliver_unacknowledged", consumer_id=consumer.number, message_ids=[found[1].id()]
            )
            again = consumer.receive()
            assert (again.id(), again.payloads, again.entry.redeliveries) == (
                found[1].id(),
                found[1].payloads,
                times,
            )
        Producer(wire, topic).send(9, [b"the next"])
        assert consumer.receive().payloads == [b"the next"]

    @pytest.mark.parametrize("by", ["id", "time"])
    def test_after_a_seek_a_consumer_gets_the_later_messages_again(
        self, wire: Wire, topic: str, by: str
    ) -> None:
        """The broker closes the consumer, which then gets what it had from there on.

        No permit is left at the seek: a Shared dispatcher that waits for the next message at that instant can stay so for ever
        (https://github.com/apache/pulsar/issues/26454). Nothing is acknowledged before it, as the broker can discard a seek that a
        waiting acknowledgement follows (https://github.com/apache/pulsar/issues/26304).
        """
        consumer = Consumer(wire, topic, permits=6)
        payloads = filled(wire, topic, 6)
        found = received(consumer, 6)
        told = (
            {"message_id": found[2].id()}
            if by == "id"
            else {"message_publish_time": found[2].metadata.publish_time}
        )
        wire.request("seek", consumer_id=consumer.number, **told)
        wire.event(
            lambda event: (
                isinstance(event, api.CloseConsumer) and event.consumer_id == consumer.number
            ),
            "CLOSE_CONSUMER",
        )
        consumer.subscribe()
        assert [payload for one in received(consumer, 4) for payload in one.payloads] == payloads[
            2:
        ]


class TestSubscriptions:
    pytestmark = real

    @pytest.mark.parametrize("sticky", [False, True])
    def test_key_shared_gives_each_key_to_one_consumer(
        self, wire: Wire, topic: str, sticky: bool
    ) -> None:
        """In order, with hash ranges of the broker and of the consumers."""
        metas = [
            api.KeySharedMeta(key_shared_mode=1, hash_ranges=[api.IntRange(start=start, end=start + 32767)])
            if sticky else api.KeySharedMeta(key_shared_mode=0)
            for start in (0, 32768)
        ]  # fmt: skip
        both = [
            Consumer(wire, topic, kind=KEY_SHARED, key_shared_meta=meta, consumer_name=name)
            for meta, name in zip(metas, "ab", strict=True)
        ]
        producer, got = (
            Producer(wire, topic),
            dict[int, dict[str, list[int]]]({consumer.number: {} for consumer in both}),
        )
        for number in range(100):
            producer.send(number, [str(number).encode()], keys=[f"key {number % 20}"])
        for _ in range(100):
            entry = wire.event(lambda event: hasattr(event, "redeliveries"), "an entry")
            metadata, body = open_entry(entry.body)
            got[entry.consumer].setdefault(metadata.partition_key, []).append(int(bytes(body)))
        first, second = got.values()
        assert first and second and not first.keys() & second.keys()
        assert {
            key: list(range(number, 100, 20)) for number in range(20) for key in [f"key {number}"]
        } == first | second
        if sticky:
            with pytest.raises(RefusedError, match=r"(?i)range"):
                Consumer(wire, topic, kind=KEY_SHARED, key_shared_meta=metas[0])

    def test_failover_names_the_active_consumer(
        self, broker: brokers.Broker, wire: Wire, topic: str
    ) -> None:
        """When it leaves, the other is active and gets the unacknowledged messages."""
        both = {
            consumer.number: consumer
            for consumer in (
                Consumer(wire, topic, kind=FAILOVER, consumer_name=name) for name in "ab"
            )
        }
        active = dict[int, bool]()

        def learn() -> None:
            event = wire.event(
                lambda event: isinstance(event, api.ActiveConsumerChange), "ACTIVE_CONSUMER_CHANGE"
            )
            active[event.consumer_id] = event.is_active

        while len(active) < 2 or sum(active.values()) != 1:
            learn()
        (number,) = (number for number, is_active in active.items() if is_active)
        filled(wire, topic, 3)
        found = received(both.pop(number), 3)
        # a consumer that goes before the broker waits for more can make Pulsar 4.2.4 wait for more on behalf of the next,
        # from behind what was not acknowledged
        wait_until(waits(broker, topic), "the broker waiting for the next message", 30)
        wire.request("close_consumer", consumer_id=number)
        ((other, consumer),) = both.items()
        while not active[other]:
            learn()
        assert [one.payloads for one in received(consumer, 3)] == [one.payloads for one in found]

    def test_exclusive_rejects_a_second_consumer(self, wire: Wire, topic: str) -> None:
        """Until the first one has left."""
        first = Consumer(wire, topic, kind=EXCLUSIVE)
        with pytest.raises(RefusedError, match="(?i)exclusive consumer is already connected"):
            Consumer(wire, topic, kind=EXCLUSIVE)
        first.close()
        second = Consumer(wire, topic, kind=EXCLUSIVE)
        wire.request("unsubscribe", consumer_id=second.number)

    def test_the_broker_sends_no_more_than_was_permitted(
        self, broker: brokers.Broker, wire: Wire, topic: str
    ) -> None:
        consumer = Consumer(wire, topic, permits=2)
        filled(wire, topic, 5)
        received(consumer, 2)
        assert state(broker, topic)["consumers"][0]["availablePermits"] == 0
        wire.command("flow", consumer_id=consumer.number, message_permits=3)
        assert [one.payloads for one in received(consumer, 3)] == [
            [f"message {number}".encode()] for number in (2, 3, 4)
        ]


# what a broker says of its own accord, and what it refuses


class TestBroker:
    pytestmark = real

    def test_the_broker_keeps_a_connection_that_answers_pings(self, wire: Wire) -> None:
        end = time.monotonic() + 60
        while wire.answers < 2:
            assert time.monotonic() < end, f"{wire.answers} pings"
            wire.read(1)
        wire.lookup("persistent://public/default/anything")

    def test_the_brokers_own_metadata_are_skipped(self, wire: Wire, topic: str) -> None:
        """This broker is configured to write them."""
        consumer = Consumer(wire, topic)
        filled(wire, topic, 1)
        assert bytes(consumer.entry().body[:2]) == b"\x0e\x02"

    def test_the_broker_rejects_invalid_topics_and_a_duplicate_producer(
        self, wire: Wire, topic: str
    ) -> None:
        for name, told in (
            ("lookup", {}),
            ("partitioned_metadata", {}),
            ("producer", {"producer_id": 1}),
        ):
            with pytest.raises(RefusedError) as caught:
                wire.request(name, topic="unknown://public/default/topic", **told)
            assert caught.value.code == INVALID_TOPIC
        Producer(wire, topic, producer_name="same")
        with pytest.raises(RefusedError, match="same") as caught:
            Producer(wire, topic, producer_name="same")
        assert caught.value.code == PRODUCER_BUSY

    def test_the_broker_rejects_a_damaged_entry_and_names_it(self, wire: Wire, topic: str) -> None:
        """It stores nothing."""
        producer, consumer = Producer(wire, topic), Consumer(wire, topic)
        sealed = producer.sealer.seal(
            [b"good"], sequence=7, count=1, published=publish_time(1), batched=False
        )
        wire.add([sealed, b"evil"])
        error = wire.event(lambda event: isinstance(event, api.SendError), "SEND_ERROR")
        assert (error.producer_id, error.sequence_id, error.error) == (producer.number, 7, CHECKSUM)
        producer.send(8, [b"whole"])
        assert consumer.receive().payloads == [b"whole"]

    def test_a_terminated_topic_is_reported(
        self, broker: brokers.Broker, wire: Wire, topic: str
    ) -> None:
        """To a consumer at its end; a producer is closed, and rejected when it connects again."""
        producer, consumer = Producer(wire, topic), Consumer(wire, topic)
        producer.send(0, [b"last"])
        consumer.acknowledge(consumer.receive().id())
        ask(broker, topic, "terminate", "POST")
        wire.event(
            lambda event: (
                isinstance(event, api.ReachedEndOfTopic) and event.consumer_id == consumer.number
            ),
            "REACHED_END_OF_TOPIC",
        )
        wire.add(
            [
                producer.sealer.seal(
                    [], sequence=1, count=1, published=publish_time(1), batched=False
                )
            ]
        )
        wire.event(
            lambda event: (
                isinstance(event, api.CloseProducer) and event.producer_id == producer.number
            ),
            "CLOSE_PRODUCER",
        )
        with pytest.raises(RefusedError) as caught:
            Producer(wire, topic)
        assert caught.value.code == TERMINATED

    def test_an_unload_closes_producer_and_consumer(
        self, broker: brokers.Broker, wire: Wire, topic: str
    ) -> None:
        """They may connect again."""
        producer, consumer = Producer(wire, topic), Consumer(wire, topic)
        ask(broker, topic, "unload", "PUT")
        wire.event(
            lambda event: (
                isinstance(event, api.CloseProducer) and event.producer_id == producer.number
            ),
            "CLOSE_PRODUCER",
        )
        wire.event(
            lambda event: (
                isinstance(event, api.CloseConsumer) and event.consumer_id == consumer.number
            ),
            "CLOSE_CONSUMER",
        )
        consumer.subscribe()
        Producer(wire, topic).send(0, [b"after"])
        assert consumer.receive().payloads == [b"after"]

    def test_the_broker_reports_the_partitions_of_a_topic(
        self, broker: brokers.Broker, wire: Wire, topic: str
    ) -> None:
        ask(broker, topic, "partitions", "PUT", 3)
        assert (
            wire.request(
                "partitioned_metadata", topic=topic, metadata_auto_creation_enabled=False
            ).partitions
            == 3
        )
