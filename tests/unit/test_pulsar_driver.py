"""The Pulsar driver without a broker: options, the account of them, the per-message path, and the admin REST on a local server."""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import _pulsar
import numpy as np
import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import envelope, payloads
from pytest_loadtest.drivers import _pulsar_client as options
from pytest_loadtest.drivers._base import Burst, DriverContext, ProducerSpec, TargetAddress, TopicSpec
from pytest_loadtest.drivers._pulsar_admin import Admin
from pytest_loadtest.drivers._pulsar_auth import client_authentication
from pytest_loadtest.drivers._pulsar_memory import Memory, Share
from pytest_loadtest.drivers._pulsar_messages import PulsarConsumer, PulsarProducer, key_of, partition_of
from pytest_loadtest.drivers.pulsar import PulsarDriver
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.profile.settings import Authentication, Persistence, PulsarSettings
from pytest_loadtest.quantities import MILLISECOND, SECOND
from pytest_loadtest.samples import Flag, Status
from pytest_loadtest.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

OK, FULL = _pulsar.Result.Ok, _pulsar.Result.ProducerQueueIsFull
TOPIC = TopicSpec(index=0)


def pool_of(size: int, checksum: bool = False) -> payloads.PayloadPool:
    return payloads.build_pool(
        buckets=None, message_size=size, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=checksum, max_size=None
    )


def context(settings: PulsarSettings | None = None, *, admin: str | None = None, partitions: int = 1, **more: Any) -> DriverContext:
    given: dict[str, Any] = {"clock": FakeClock(5), "pool": pool_of(64)} | more
    given = {"topics": (TopicSpec(index=0, partitions=partitions),)} | given
    target = TargetAddress(url="pulsar://127.0.0.1:1", admin_url=admin)
    return DriverContext(target=target, settings=settings or PulsarSettings(), run="r", nonce=7, worker="gw0", **given)


def burst(count: int, first: int = 0, key: int | None = None) -> Burst:
    seq = np.arange(first, first + count, dtype=np.int64)
    keys = None if key is None else np.full(count, key, np.int32)
    return Burst(seq=seq, intended=seq + 100, payload=np.zeros(count, np.uint16), sent=np.zeros(count, np.int64), key=keys)


class NullProducer:
    """pulsar-client's producer without a broker: keeps what it is given until told to answer."""

    def __init__(self) -> None:
        self.pending: deque[tuple[Any, Callable[[Any, Any], None]]] = deque()

    def send_async(self, message: Any, callback: Callable[[Any, Any], None]) -> None:
        self.pending.append((message, callback))

    def answer(self, count: int, result: Any = OK, newest_first: bool = False) -> None:
        for _ in range(min(count, len(self.pending))):
            (self.pending.pop if newest_first else self.pending.popleft)()[1](result, None)


class NullConsumer:
    """pulsar-client's consumer without a broker: has these messages, then is closed."""

    def __init__(self, *messages: Any) -> None:
        self.messages, self.acknowledged = deque(messages), []

    def receive(self, timeout: int) -> Any:
        if not self.messages:
            raise pulsar.AlreadyClosed("closed")
        message = self.messages.popleft()
        if message is None:
            raise pulsar.Timeout("nothing")
        return message

    def acknowledge(self, message: Any) -> None:
        self.acknowledged.append(message)


def message_of(data: bytes, key: str = "") -> Any:
    return _pulsar.MessageBuilder().content(data).partition_key(key).build()


def producer_on(client: NullProducer, window: int | None, **more: Any) -> PulsarProducer:
    return PulsarProducer(client, ProducerSpec(stream=3, topic=TOPIC), context(**more), window)


# options and their account


def test_what_cannot_be_set_is_listed_with_its_reason() -> None:
    """What needs the admin REST only without it, and only when asked for."""
    settings = PulsarSettings(client_memory_limit_mb=256, persistence=Persistence(), namespace_prefix="public/mine")
    assert set(PulsarDriver(context(settings)).facts().not_applied) == {"persistence", "namespacePrefix"}
    facts = PulsarDriver(context(settings, admin="http://127.0.0.1:1")).facts()
    assert facts.not_applied == {}
    assert facts.applied["clientMemoryLimitMB"].startswith("256 per worker")
    assert facts.applied["persistence"] == "ensembleSize 1, writeQuorum 1, ackQuorum 1, deduplicationEnabled false"
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


@pytest.mark.parametrize(
    ("given", "partitions", "expected"),
    [
        ({}, 1, (1000, 1000, 1000)),
        ({"max_pending_messages": 10}, 4, (40, 40, 160)),
        ({"max_pending_messages": 1000, "max_pending_messages_across_partitions": 500}, 4, (500, 500, 2000)),
        ({"max_pending_messages": 10, "block_if_queue_full": False}, 4, (None, 10, 50_000)),
    ],
)
def test_window_is_ours_and_never_blocks_the_client(given: dict[str, Any], partitions: int, expected: tuple[int | None, int, int]) -> None:
    """With blockIfQueueFull each partition's queue holds our whole window; without, the client's own limits stand."""
    settings = PulsarSettings(**given)
    made = options.producer_options(settings, partitions)
    found = (options.window(settings, partitions), made["max_pending_messages"], made["max_pending_messages_across_partitions"])
    assert found == expected
    assert made["block_if_queue_full"] is False


def test_producer_options_follow_the_profile() -> None:
    """Batching on with its limits; a send timeout of 0 stays 0, a short one does not become 0."""
    made = options.producer_options(PulsarSettings(batching_max_bytes=64, batching_max_messages=7, batching_max_publish_delay_ms=3), 1)
    keys = ("enabled", "max_messages", "max_allowed_size_in_bytes", "max_publish_delay_ms")
    assert [made[f"batching_{key}"] for key in keys] == [True, 7, 64, 3]
    assert made["batching_type"] == pulsar.BatchingType.Default
    assert options.producer_options(PulsarSettings(send_timeout=0), 1)["send_timeout_millis"] == 0
    assert options.producer_options(PulsarSettings(send_timeout=1), 1)["send_timeout_millis"] == 1


def test_batches_of_one_are_no_batches() -> None:
    """The client refuses batching_max_messages=1, so batching is off there, and reported so."""
    settings = PulsarSettings(batching_max_messages=1)
    assert options.producer_options(settings, 1)["batching_enabled"] is False
    assert options.applied(settings, {}, 1, admin=False)["batchingEnabled"] == "false"


def test_no_limits_as_in_omb() -> None:
    """0 pending messages and 0 messages a batch are no limit; memory bounds what is in flight, by OMB's default if none is given."""
    unlimited = PulsarSettings().model_copy(update={"max_pending_messages": 0, "batching_max_messages": 0})
    made = options.producer_options(unlimited, 16)
    assert (options.window(unlimited, 16), made["max_pending_messages"]) == (None, 0)
    assert (made["batching_enabled"], made["batching_max_messages"]) == (True, 2**31 - 1)
    assert unlimited.memory_limit == 256 * 1024**2
    assert unlimited.model_copy(update={"client_memory_limit_mb": 3}).memory_limit == 3 * 1024**2
    assert PulsarSettings().memory_limit is None
    applied = options.applied(unlimited, {}, 1, admin=False)
    assert (applied["maxPendingMessages"], applied["batchingMaxMessages"]) == ("no own limit", "no limit")
    assert applied["clientMemoryLimitMB"].startswith("256 per worker")


def test_existing_topic_has_facts_of_its_own() -> None:
    """The topic in place of a namespace, with what is not known of it; what would be set on a namespace of ours is not applied."""
    name = "persistent://public/default/orders"
    settings = PulsarSettings(namespace_prefix="public/mine", topic_type="persistent", persistence=Persistence())
    facts = PulsarDriver(context(settings, topics=(TopicSpec(index=0, name=name),))).facts()
    assert facts.applied["topic"] == f"{name} (existing, as far as can be known without target.adminUrl)"
    assert not {"namespace", "topicType", "persistence"} & set(facts.applied)
    assert facts.not_applied == dict.fromkeys(("namespacePrefix", "topicType", "persistence"), "the topic exists already")


def test_consumers_of_an_existing_topic_begin_at_its_end() -> None:
    """What it holds is not the run's."""
    assert options.consumer_options(PulsarSettings(), existing=True)["initial_position"] == pulsar.InitialPosition.Latest


def test_io_threads_are_those_of_all_clients_together() -> None:
    """8 ioThreads and 8 connections are 8 threads, not 64."""
    facts = PulsarDriver(context(PulsarSettings(io_threads=8, connections_per_broker=8))).facts()
    assert facts.applied["ioThreads"] == "8, over all clients"


def test_batches_under_key_shared_hold_one_key() -> None:
    """A batch goes to one consumer."""
    assert options.producer_options(PulsarSettings(subscription_type="Key_Shared"), 1)["batching_type"] == pulsar.BatchingType.KeyBased


def test_every_word_of_the_profile_has_its_constant() -> None:
    """Every compression and subscription type that a profile may name exists in the client."""
    fields = PulsarSettings.model_fields
    for word in get_args(fields["compression"].annotation):
        assert isinstance(options.producer_options(PulsarSettings(compression=word), 1)["compression_type"], pulsar.CompressionType)
    for word in get_args(fields["subscription_type"].annotation):
        made = options.consumer_options(PulsarSettings(subscription_type=word))
        assert isinstance(made["consumer_type"], pulsar.ConsumerType)
        assert made["initial_position"] == pulsar.InitialPosition.Earliest


def test_client_takes_every_option() -> None:
    """A client is made from all keys at once, TLS and lookups too, without connecting."""
    settings = PulsarSettings(
        io_threads=2,
        operation_timeout=1,
        max_concurrent_lookup_requests=5,
        tls_trust_certs_file_path="/nowhere",
        tls_allow_insecure_connection=True,
        tls_enable_hostname_verification=True,
        authentication=Authentication(plugin="token", token="t"),
    )
    options.make_client("pulsar+ssl://127.0.0.1:1", settings).close()
    applied = options.applied(settings, {}, 1, admin=False)
    assert applied["operationTimeout"] == "1s"
    assert applied["tlsTrustCertsFilePath"] == "/nowhere"


# authentication


@pytest.mark.parametrize(
    ("auth", "missing"),
    [
        (Authentication(plugin="token"), "token or tokenFile"),
        (Authentication(plugin="oauth2", issuer_url="https://issuer"), "privateKey"),
        (Authentication(plugin="tls", cert_file="c"), "keyFile"),
        (Authentication(plugin="token", token_file="/nowhere/token"), "/nowhere/token"),
    ],
)
def test_incomplete_authentication_is_a_usage_error(auth: Authentication, missing: str) -> None:
    """The key or file that is missing is named."""
    with pytest.raises(UsageError, match=missing):
        client_authentication(auth)


@pytest.mark.parametrize(
    "auth",
    [
        Authentication(plugin="tls", cert_file="c", key_file="k"),
        Authentication(plugin="oauth2", issuer_url="https://issuer", private_key="/k", audience="a", scope="s"),
    ],
)
def test_client_takes_the_other_plugins(auth: Authentication) -> None:
    """TLS and OAuth2 make the client's own authentication objects."""
    assert isinstance(client_authentication(auth), pulsar.Authentication)


# producers


def test_window_takes_a_prefix_and_empties_with_the_answers() -> None:
    """Three of five go, none while full, the rest after the answers; the last answer's instant is when the window was idle."""
    client, clock = NullProducer(), FakeClock(10)
    producer = producer_on(client, 3, clock=clock)
    first = burst(5)
    assert producer.send(first) == 3
    assert (first.sent.tolist(), producer.in_flight, producer.send(burst(2, 3))) == ([10, 10, 10, 0, 0], 3, 0)
    clock.now = 20
    client.answer(3)
    assert (producer.in_flight, producer.idle_since) == (0, 20)
    acks = producer.acks()
    assert acks is not None
    assert [acks.seq.tolist(), acks.time.tolist(), acks.status.tolist()] == [[0, 1, 2], [20] * 3, [Status.ACKED] * 3]
    assert [c.dtype for c in (acks.seq, acks.time, acks.status)] == [np.int64, np.int64, np.int8]
    assert (producer.acks(), producer.in_flight, producer.idle_since, producer.send(burst(2, 3))) == (None, 0, 20, 2)


def test_answers_belong_to_their_message_in_any_order() -> None:
    """The client's answers carry no sequence of ours: each callback is bound to its own, 0 included."""
    client = NullProducer()
    producer = producer_on(client, None)
    producer.send(burst(3))
    client.answer(1, FULL, newest_first=True)
    client.answer(2)
    acks = producer.acks()
    assert acks is not None
    assert dict(zip(acks.seq.tolist(), acks.status.tolist(), strict=True)) == {2: Status.FAILED, 0: Status.ACKED, 1: Status.ACKED}


def test_messages_carry_envelope_and_key() -> None:
    """What the client is given decodes to stream, sequence and intended time, with the key as text."""
    client = NullProducer()
    producer_on(client, None).send(burst(2, first=40, key=12))
    datas = [message.data() for message, _ in client.pending]
    fronts = np.frombuffer(b"".join(data[:32] for data in datas), np.uint8).reshape(2, 32)
    heads = envelope.decode_heads(fronts, np.full(2, 64, np.int32), 7)
    assert (heads.kind.tolist(), heads.stream.tolist()) == ([envelope.OURS] * 2, [3, 3])
    assert (heads.seq.tolist(), heads.intended.tolist()) == ([40, 41], [140, 141])
    assert [message.partition_key() for message, _ in client.pending] == ["key-12", "key-12"]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=30), st.integers(1, 8))
def test_nothing_in_flight_is_lost_or_counted_twice(steps: list[tuple[int, int, bool]], window: int) -> None:
    """However sends, answers and looks interleave, in flight is what was handed over and not answered, within the window."""
    client = NullProducer()
    producer = producer_on(client, window)
    sent, seen = 0, []
    for send, answer, look in steps:
        sent += producer.send(burst(send, sent))
        client.answer(answer)
        assert producer.in_flight == len(client.pending) <= window
        if look and (acks := producer.acks()) is not None:
            seen += acks.seq.tolist()
        assert producer.in_flight == len(client.pending)
    client.answer(window)
    if (acks := producer.acks()) is not None:
        seen += acks.seq.tolist()
    assert seen == list(range(sent))


sizes = st.lists(st.integers(1, 50), max_size=8).map(lambda found: np.array(found, np.int64))


@given(st.lists(st.tuples(st.integers(0, 1), sizes, st.integers(0, 8)), max_size=30))
def test_memory_is_kept_and_given_back(steps: list[tuple[int, Any, int]]) -> None:
    """Two producers share 100 bytes: no message begins beyond them, and all is free again when all is answered."""
    memory = Memory(100)
    shares, handed, answered = (Share(memory), Share(memory)), [0, 0], [0, 0]
    for who, wanted, back in steps:
        room = shares[who].room(wanted, answered[who])
        assert room == len(wanted) or memory.used + wanted[:room].sum() >= 100
        assert room == 0 or memory.used + wanted[: room - 1].sum() < 100
        shares[who].hold(wanted[:room])
        handed[who] += room
        answered[who] = min(handed[who], answered[who] + back)
    for who in (0, 1):
        shares[who].room(np.empty(0, np.int64), handed[who])
    assert memory.used == 0


def test_memory_holds_back_or_refuses() -> None:
    """Three of five messages of 64 bytes begin within 150: the others wait under blockIfQueueFull, and fail without it."""
    client = NullProducer()
    producer = PulsarProducer(client, ProducerSpec(stream=3, topic=TOPIC), context(), None, Memory(150))
    assert [producer.send(burst(5)), producer.send(burst(2, 3))] == [3, 0]
    client.answer(3)
    assert producer.send(burst(2, 3)) == 2
    settings = PulsarSettings(block_if_queue_full=False)
    producer = PulsarProducer(client := NullProducer(), ProducerSpec(stream=3, topic=TOPIC), context(settings), None, Memory(150))
    assert producer.send(burst(5)) == 5
    client.answer(3)
    acks = producer.acks()
    assert acks is not None
    assert dict(zip(acks.seq.tolist(), acks.status.tolist(), strict=True)) == dict.fromkeys((3, 4), Status.FAILED) | dict.fromkeys(
        range(3), Status.ACKED
    )
    assert (producer.in_flight, producer.send(burst(3, 5)), len(client.pending)) == (0, 3, 3)


# consumers


def test_consumer_stamps_acknowledges_and_pads() -> None:
    """Arrivals become columns: heads padded to 32 bytes, real size, time, flags; a timeout in between does not matter."""
    client, clock, gone = NullConsumer(message_of(b"\x01" * 40), None, message_of(b"\x02" * 5)), FakeClock(9), []
    consumer = PulsarConsumer(client, "consumer 0", context(clock=clock), None, gone.append)
    assert consumer.take() is None
    consumer.run()
    got = consumer.take()
    assert got is not None
    assert [bytes(row) for row in got.heads] == [b"\x01" * 32, b"\x02" * 5 + b"\0" * 27]
    assert [got.size.tolist(), got.time.tolist(), got.order.tolist(), got.flags.tolist()] == [[40, 5], [9, 9], [0, 0], [0, 0]]
    assert [c.dtype for c in (got.heads, got.size, got.time, got.order, got.flags)] == [np.uint8, np.int32, np.int64, np.int64, np.int8]
    assert len(client.acknowledged) == 2
    assert consumer.take() is None


def test_damaged_body_is_flagged_only_under_checksum() -> None:
    """One bit behind the head: CORRUPT when the profile wants it verified, nothing otherwise."""
    pool = pool_of(64, checksum=True)
    whole = payloads.messages(pool, np.zeros((1, 32), np.uint8), np.zeros(1, np.uint16))[0]
    damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
    for checksum, expected in ((True, [0, Flag.CORRUPT]), (False, [0, 0])):
        consumer = PulsarConsumer(NullConsumer(message_of(whole), message_of(damaged)), "c", context(checksum=checksum), None, [].append)
        consumer.run()
        got = consumer.take()
        assert got is not None and got.flags.tolist() == expected


def test_key_is_a_number() -> None:
    """Ours is the number itself, anything else a hash of 31 bits, and the same one each time."""
    assert key_of(message_of(b"", "key-0")) == 0
    assert key_of(message_of(b"", "key-9999")) == 9999
    assert 0 <= key_of(message_of(b"", "other")) == key_of(message_of(b"", "other")) < 2**31
    assert 0 <= key_of(message_of(b"", "")) < 2**31


def test_consumer_that_ends_is_told_unless_closing() -> None:
    """A consumer closed under us is reported by name; one that we close is not."""
    for closing, expected in ((False, 1), (True, 0)):
        gone: list[str] = []
        consumer = PulsarConsumer(NullConsumer(), "consumer 4", context(), None, gone.append)
        if closing:
            consumer.closing()
        consumer.run()
        assert len(gone) == expected
        assert all("consumer 4" in why for why in gone)


class Waiting:
    """pulsar-client's consumer whose messages come when told; the end of them is a time-out for ever."""

    def __init__(self) -> None:
        self.messages, self.acknowledged, self.closed = Queue(), [], False

    def receive(self, timeout: int) -> Any:
        try:
            return self.messages.get(timeout=timeout / 1000)
        except Empty:
            raise pulsar.Timeout("nothing") from None

    def acknowledge(self, message: Any) -> None:
        self.acknowledged.append(message.data())

    def close(self) -> None:
        self.closed = True


class Batched:
    """A message with its place in a batch: -1 is in none."""

    def __init__(self, data: bytes, batch_index: int = -1, partition: int = -1) -> None:
        self._data, self._where = data, SimpleNamespace(batch_index=lambda: batch_index, partition=lambda: partition)

    def data(self) -> bytes:
        return self._data

    def redelivery_count(self) -> int:
        return 0

    def message_id(self) -> Any:
        return self._where


def running(client: Waiting, partitions: int = 1) -> PulsarConsumer:
    consumer = PulsarConsumer(client, "c", context(clock=time.monotonic_ns), None, [].append, partitions)
    consumer.thread.start()
    return consumer


def taken(consumer: PulsarConsumer, count: int) -> list[int]:
    """Stamps of so many messages."""
    times: list[int] = []
    end = time.monotonic() + 10
    while len(times) < count and time.monotonic() < end:
        if (got := consumer.take()) is not None:
            times += got.time.tolist()
    return times


def test_paused_consumer_acknowledges_nothing_and_stamps_after_resume() -> None:
    """At most one message is taken from the client and not acknowledged; the others stay there, within its own bound."""
    client = Waiting()
    consumer = running(client)
    consumer.pause()
    for number in range(5):
        client.messages.put(Batched(bytes([number])))
    while client.messages.qsize() > 4:
        time.sleep(0.001)
    assert (consumer.take(), client.acknowledged, client.messages.qsize()) == (None, [], 4)
    resumed = time.monotonic_ns()
    consumer.resume()
    assert all(stamp >= resumed for stamp in taken(consumer, 5))
    assert client.acknowledged == [bytes([number]) for number in range(5)]
    consumer.leave()
    consumer.close()
    assert client.closed


def test_closing_wakes_a_paused_consumer_without_acknowledging() -> None:
    """What it has in hand is left to the broker."""
    client = Waiting()
    consumer = running(client)
    consumer.pause()
    client.messages.put(Batched(b"x"))
    consumer.closing()
    consumer.thread.join(10)
    assert (consumer.thread.is_alive(), client.acknowledged, consumer.take()) == (False, [], None)


def test_leaving_takes_begun_batches_to_their_end_and_nothing_more() -> None:
    """In each partition up to the next entry: half an acknowledged batch would come again as a whole."""
    client = Waiting()
    consumer = running(client, partitions=2)
    client.messages.put(Batched(b"p0 b0", 0, 0))
    assert len(taken(consumer, 1)) == 1
    consumer.pause()
    consumer.leave()
    for data, index, partition in [(b"p0 b1", 1, 0), (b"p1 next", 0, 1), (b"p1 rest", 1, 1), (b"p0 b2", 2, 0), (b"p0 next", -1, 0)]:
        client.messages.put(Batched(data, index, partition))
    client.messages.put(Batched(b"never looked at", 0, 0))
    consumer.close()
    assert client.acknowledged == [b"p0 b0", b"p0 b1", b"p0 b2"]
    assert client.messages.qsize() == 1


def test_leaving_ends_without_messages() -> None:
    """Nothing comes any more, or only in another partition: the wait for the end of batches is bounded."""
    client = Waiting()
    consumer = running(client, partitions=2)
    consumer.leave()
    client.messages.put(Batched(b"p0", 0, 0))
    consumer.close()
    assert (client.acknowledged, client.closed) == ([], True)


# the driver


def test_partitions_need_the_admin_rest() -> None:
    """Without it the run ends before it starts, and says what to give."""
    with pytest.raises(TargetError, match=r"4 partitions.*adminUrl"):
        PulsarDriver(context(partitions=4)).prepare()


def test_unreachable_target_is_named() -> None:
    """Nobody listens: the address is in the error, also after waiting; close and cleanup stay quiet."""
    driver = PulsarDriver(context(PulsarSettings(operation_timeout=SECOND), clock=time.monotonic_ns))
    try:
        with pytest.raises(TargetError, match=r"stream 0 cannot connect to pulsar://127\.0\.0\.1:1"):
            driver.open_producers([ProducerSpec(stream=0, topic=TOPIC)])
    finally:
        driver.close()
        driver.cleanup()


def test_poll_waits_at_most_as_told() -> None:
    """Nothing is wrong with a driver that was not opened."""
    driver = PulsarDriver(context())
    driver.poll(MILLISECOND)
    assert driver.disconnected() is None
    driver.close()


# admin REST


@contextmanager
def rest(answers: dict[str, tuple[int, object]], once: Collection[str] = ()) -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """A server with these answers ("METHOD path" → status, JSON), 204 for the rest: its URL and what was asked, authorization, body.

    The content of a 307 is the address to go to. ``once``: answers that are given the first time.
    """
    asked: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((f"{self.command} {self.path}", self.headers.get("Authorization"), body))
            what = asked[-1][0]
            answered = what in once and [one[0] for one in asked].count(what) > 1
            status, content = (204, None) if answered else answers.get(what, (204, None))
            self.send_response(status)
            if status == 307:
                self.send_header("Location", str(content))
            text = b"" if content is None else json.dumps(content).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_namespace_gets_its_policies() -> None:
    """Unlimited backlog always; storage and deduplication when asked for; the token on each request."""
    settings = PulsarSettings(authentication=Authentication(plugin="token", token="t0"))
    with rest({}) as (url, asked):
        admin = Admin(url, settings)
        assert admin.create_namespace("public/x") is False
        admin.set_policies("public/x", Persistence(ensemble_size=3, write_quorum=2, deduplication_enabled=True))
    base = "/admin/v2/namespaces/public/x"
    assert [what for what, _, _ in asked] == [
        f"PUT {base}",
        f"POST {base}/backlogQuota?backlogQuotaType=destination_storage",
        f"POST {base}/persistence",
        f"POST {base}/deduplication",
    ]
    assert {authorization for _, authorization, _ in asked} == {"Bearer t0"}
    assert json.loads(asked[2][2])["bookkeeperEnsemble"] == 3
    assert json.loads(asked[3][2]) is True


def test_missing_tenant_is_made_and_taken_away() -> None:
    """OMB's namespacePrefix names a tenant that it makes: so do we, for all clusters, and only what we made goes."""
    space, tenant = "/admin/v2/namespaces/bench/ns-r", "/admin/v2/tenants/bench"
    answers: dict[str, tuple[int, object]] = {
        f"PUT {space}": (404, {"reason": "Tenant does not exist"}),
        "GET /admin/v2/clusters": (200, ["global", "one"]),
        f"DELETE {tenant}": (409, {"reason": "The tenant still has active namespaces"}),
    }
    with rest(answers, once={f"PUT {space}"}) as (url, asked):
        driver = PulsarDriver(context(PulsarSettings(namespace_prefix="bench/ns"), admin=url))
        driver.prepare()
        driver.cleanup()
        driver.cleanup()
    assert [what for what, _, _ in asked if "backlogQuota" not in what] == [
        f"PUT {space}", "GET /admin/v2/clusters", f"PUT {tenant}", f"PUT {space}", "PUT /admin/v2/persistent/bench/ns-r/topic-0",
        f"DELETE {space}?force=true", f"DELETE {tenant}",
    ]  # fmt: skip
    assert json.loads(asked[2][2]) == {"adminRoles": [], "allowedClusters": ["one"]}


EXISTING = "persistent://public/default/orders"
ORDERS = "/admin/v2/persistent/public/default/orders"


@pytest.mark.parametrize("partitions", [0, 3])
def test_run_on_an_existing_topic_deletes_its_own_subscriptions_alone(partitions: int) -> None:
    """It makes nothing, and of the subscriptions there it deletes those with its run and nonce: not others', not another run's."""
    mine = ["loadtest-r-00000007-0", "loadtest-r-00000007-1"]
    others = ["theirs", "loadtest-r-00000008-0", "loadtest-rr-00000007-0", "loadtest-r-00000007"]
    answers = {f"GET {ORDERS}/partitions": (200, {"partitions": partitions}), f"GET {ORDERS}/subscriptions": (200, others + mine)}
    with rest(answers) as (url, asked):
        driver = PulsarDriver(context(admin=url, topics=(TopicSpec(index=0, name=EXISTING),)))
        driver.prepare()
        driver.cleanup()
        driver.cleanup()
    assert [what for what, _, _ in asked if not what.startswith("GET")] == [
        f"DELETE {ORDERS}/subscription/{name}?force=true" for name in mine
    ]


@pytest.mark.parametrize("where", ["partitions", "stats"])
def test_missing_topic_is_named_and_nothing_is_made_or_deleted(where: str) -> None:
    """Newer brokers say so when asked for partitions, older ones when asked for the topic."""
    answers: dict[str, tuple[int, object]] = {f"GET {ORDERS}/partitions": (200, {"partitions": 0})}
    answers[f"GET {ORDERS}/{where}"] = (404, {"reason": "Topic not found"})
    with rest(answers) as (url, asked):
        driver = PulsarDriver(context(admin=url, topics=(TopicSpec(index=0, name=EXISTING),)))
        with pytest.raises(TargetError, match=rf"topic: {EXISTING} does not exist at pulsar://127\.0\.0\.1:1: make it first"):
            driver.prepare()
        driver.cleanup()
    assert {what.partition(" ")[0] for what, _, _ in asked} == {"GET"}


def test_run_that_made_nothing_deletes_nothing() -> None:
    """cleanup() without prepare(), which is another worker's."""
    with rest({}) as (url, asked):
        PulsarDriver(context(admin=url)).cleanup()
        PulsarDriver(context(admin=url, topics=(TopicSpec(index=0, name=EXISTING),))).cleanup()
    assert asked == []


def test_namespace_whose_policies_failed_is_deleted() -> None:
    """It was made, so it goes, although prepare() did not come to its end."""
    space = "/admin/v2/namespaces/public/loadtest-r"
    with rest({f"POST {space}/backlogQuota?backlogQuotaType=destination_storage": (403, {"reason": "no"})}) as (url, asked):
        driver = PulsarDriver(context(admin=url))
        with pytest.raises(TargetError, match="403 no"):
            driver.prepare()
        driver.cleanup()
    assert asked[-1][0] == f"DELETE {space}?force=true"


def test_request_follows_to_the_owner_of_a_topic() -> None:
    """A broker that does not own the topic answers 307: the same method, body and token go there."""
    settings = PulsarSettings(authentication=Authentication(plugin="token", token="t0"))
    path = "/admin/v2/persistent/public/x/b/partitions"
    with rest({}) as (owner, asked), rest({f"PUT {path}": (307, f"{owner}{path}")}) as (url, _):
        Admin(url, settings).create_topic("persistent://public/x/b", 3)
    assert asked == [(f"PUT {path}", "Bearer t0", b"3")]


def test_topics_are_made_by_kind() -> None:
    """Partitioned ones with their number, plain ones as they are; one that is not persistent is made by use."""
    with rest({}) as (url, asked):
        admin = Admin(url, PulsarSettings())
        admin.create_topic("persistent://public/x/a", 3)
        admin.create_topic("persistent://public/x/b", 1)
        admin.create_topic("non-persistent://public/x/c", 1)
    assert [(what, body) for what, _, body in asked] == [
        ("PUT /admin/v2/persistent/public/x/a/partitions", b"3"),
        ("PUT /admin/v2/persistent/public/x/b", b""),
    ]


def test_namespace_of_another_is_left_alone() -> None:
    """A namespace that exists already is an error with the broker's reason, and cleanup does not delete it."""
    with rest({"PUT /admin/v2/namespaces/public/loadtest-r": (409, {"reason": "Namespace already exists"})}) as (url, asked):
        driver = PulsarDriver(context(admin=url))
        with pytest.raises(TargetError, match="409 Namespace already exists"):
            driver.prepare()
        driver.cleanup()
    assert len(asked) == 1


def test_forbidden_force_goes_topic_by_topic() -> None:
    """Brokers refuse the forced way by default: each topic once, partitions with their topic, then the namespace."""
    space = "/admin/v2/namespaces/public/x"
    names = ["persistent://public/x/a-partition-0", "persistent://public/x/b"]
    answers = {
        f"DELETE {space}?force=true": (405, {"reason": "Broker doesn't allow forced deletion of namespaces"}),
        "GET /admin/v2/persistent/public/x/partitioned": (200, ["persistent://public/x/a"]),
        "GET /admin/v2/persistent/public/x": (200, names),
        "GET /admin/v2/non-persistent/public/x/partitioned": (200, []),
        "GET /admin/v2/non-persistent/public/x": (200, []),
        "DELETE /admin/v2/persistent/public/x/b?force=true": (404, {"reason": "gone"}),
    }
    with rest(answers) as (url, asked):
        Admin(url, PulsarSettings()).delete_namespace("public/x")
    assert [what for what, _, _ in asked if what.startswith("DELETE")] == [
        f"DELETE {space}?force=true", "DELETE /admin/v2/persistent/public/x/a/partitions?force=true",
        "DELETE /admin/v2/persistent/public/x/b?force=true", f"DELETE {space}",
    ]  # fmt: skip


def test_namespace_gone_already_is_well_and_other_refusals_are_not() -> None:
    """404 is what was wanted; 500 is an error that names the request."""
    request = "DELETE /admin/v2/namespaces/public/x?force=true"
    with rest({request: (404, {"reason": "no"})}) as (url, _):
        Admin(url, PulsarSettings()).delete_namespace("public/x")
    with rest({request: (500, "broken")}) as (url, _), pytest.raises(TargetError, match=r"DELETE .*public/x.*: 500 Internal Server Error"):
        Admin(url, PulsarSettings()).delete_namespace("public/x")


def test_unreachable_admin_is_named() -> None:
    """Nobody listens there: request and remedy are in the error."""
    with pytest.raises(TargetError, match=r"PUT http://127\.0\.0\.1:1/admin/v2/namespaces/public/x: .*is the URL right"):
        Admin("http://127.0.0.1:1", PulsarSettings()).create_namespace("public/x")


def test_oauth2_fetches_its_token_from_the_issuer(tmp_path: Path) -> None:
    """Client credentials go to the endpoint of the discovery document; path, file URL and data URL hold them alike."""
    credentials = json.dumps({"client_id": "me", "client_secret": "s"})
    (tmp_path / "key.json").write_text(credentials)
    answers: dict[str, tuple[int, object]] = {"POST /token": (200, {"access_token": "tt"})}
    with rest({}) as (broker, requests), rest(answers) as (issuer, asked):
        answers["GET /.well-known/openid-configuration"] = (200, {"token_endpoint": f"{issuer}/token"})
        inline = "data:application/json;base64," + base64.b64encode(credentials.encode()).decode()
        for key in (f"{tmp_path}/key.json", f"file://{tmp_path}/key.json", inline):
            auth = Authentication(plugin="oauth2", issuer_url=issuer, private_key=key, audience="a")
            Admin(broker, PulsarSettings(authentication=auth)).create_topic("persistent://public/x/b", 1)
    assert [authorization for _, authorization, _ in requests] == ["Bearer tt"] * 3
    assert asked[1][2] == b"grant_type=client_credentials&client_id=me&client_secret=s&audience=a"


def test_issuer_without_a_token_is_named() -> None:
    """An answer that is not what an issuer says is the target's fault; a key file that is none is the user's."""
    inline = "data:application/json;base64," + base64.b64encode(b'{"client_id": "me", "client_secret": "s"}').decode()
    with rest({"GET /.well-known/openid-configuration": (200, {})}) as (issuer, _):
        with pytest.raises(TargetError, match=f"{issuer} answered without a token"):
            Admin(issuer, PulsarSettings(authentication=Authentication(plugin="oauth2", issuer_url=issuer, private_key=inline)))
        with pytest.raises(UsageError, match="client_id"):
            Admin(issuer, PulsarSettings(authentication=Authentication(plugin="oauth2", issuer_url=issuer, private_key="data:,e30=")))
