"""The Pulsar driver without a broker: options, the account of them, the per-message path, and the admin REST on a local server."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import _pulsar
import numpy as np
import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.brokers.certificates import Authority
from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.pulsar import settings_facts
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.library import client as options
from pytest_loadtest.drivers.pulsar.library.consumers import PulsarConsumer, PulsarConsumers, key_of, partition_of, received_columns
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.library.producers import PulsarProducers
from pytest_loadtest.drivers.pulsar.names import RunNames
from pytest_loadtest.drivers.pulsar.settings import Authentication, Persistence, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing.rig import FakeClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

OK, FULL = _pulsar.Result.Ok, _pulsar.Result.ProducerQueueIsFull
ROW = 1000
"""Row of a burst's message 0: a row is no sequence."""


def pool_of(size: int, checksum: bool = False) -> payloads.PayloadPool:
    return payloads.build_pool(
        buckets=None, message_size=size, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=checksum, max_size=None
    )


def context(
    settings: PulsarSettings | None = None, *, admin: str | None = None, partitions: int = 1, name: str | None = None, **more: Any
) -> DriverContext:
    given: dict[str, Any] = {"clock": FakeClock(5), "pool": pool_of(64)} | more
    given["topology"] = Topology(topics=1, partitions=partitions, producers=4, subscriptions=2, consumers=1, name=name)
    target = TargetAddress(url="pulsar://127.0.0.1:1", admin_url=admin)
    return DriverContext(target=target, settings=settings or PulsarSettings(), run="r", nonce=7, worker="gw0", **given)


def burst(count: int, first: int = 0, key: int | None = None, streams: tuple[int, ...] = (3,), payload: int = 0) -> Burst:
    """So many messages of these streams, which take turns."""
    seq = np.arange(first, first + count, dtype=np.int64)
    stream = np.resize(np.array(streams, np.int32), count)
    sent, idle = np.zeros((2, count), np.int64)
    keys = None if key is None else np.full(count, key, np.int32)
    payloads = np.full(count, payload, np.uint16)
    return Burst(row=seq + ROW, stream=stream, seq=seq, intended=seq + 100, payload=payloads, sent=sent, idle=idle, key=keys)


def taken(producers: PulsarProducers, burst: Burst) -> int:
    """Send, and overwrite the burst, which belongs to the engine; return how many of one stream were taken."""
    refused = producers.send(burst)
    sent = burst.sent.copy()
    for column in (burst.row, burst.stream, burst.seq, burst.intended, burst.payload, burst.sent):
        column[:] = 0
    if refused is None:
        return len(burst)
    assert refused.dtype == np.int64 and refused.tolist() == list(range(refused[0], len(burst)))
    assert sent[: refused[0]].all() and not sent[refused[0] :].any()
    return int(refused[0])


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


def producer_on(client: NullProducer, window: int | None, memory: int | None = None, **more: Any) -> PulsarProducers:
    """One stream, which has the number 3."""
    return PulsarProducers([client], [3], context(**more), window=window, memory=memory)


# options and their account


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
    found = (
        settings_facts.stream_window(settings, partitions),
        made["max_pending_messages"],
        made["max_pending_messages_across_partitions"],
    )
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
    assert options.library_applied_keys(settings, {}, 1)["batchingEnabled"] == "false"


def test_no_limits_as_in_omb() -> None:
    """0 pending messages and 0 messages a batch are no limit; memory bounds what is in flight, by OMB's default if none is given."""
    unlimited = PulsarSettings().model_copy(update={"max_pending_messages": 0, "batching_max_messages": 0})
    made = options.producer_options(unlimited, 16)
    assert (settings_facts.stream_window(unlimited, 16), made["max_pending_messages"]) == (None, 0)
    assert (made["batching_enabled"], made["batching_max_messages"]) == (True, 2**31 - 1)
    assert unlimited.memory_limit == 256 * 1024**2
    assert unlimited.model_copy(update={"client_memory_limit_mb": 3}).memory_limit == 3 * 1024**2
    assert PulsarSettings().memory_limit is None
    applied = options.library_applied_keys(unlimited, {}, 1)
    assert (applied["maxPendingMessages"], applied["batchingMaxMessages"]) == ("no own limit", "no limit")
    assert applied["clientMemoryLimitMB"].startswith("256 per worker")


def test_existing_topic_has_facts_of_its_own() -> None:
    """The topic in place of a namespace, with what is not known of it; what would be set on a namespace of ours is not applied."""
    name = "persistent://public/default/orders"
    settings = PulsarSettings(namespace_prefix="public/mine", topic_type="persistent", persistence=Persistence())
    facts = PulsarDriver(context(settings, name=name)).facts()
    assert facts.applied["topic"] == f"{name} (existing, as far as can be known without target.adminUrl)"
    assert not {"namespace", "topicType", "persistence"} & set(facts.applied)
    assert facts.not_applied == dict.fromkeys(("namespacePrefix", "topicType", "persistence"), "the topic exists already")


def test_consumers_of_an_existing_topic_begin_at_its_end() -> None:
    """What it holds is not the run's."""
    assert options.consumer_options(PulsarSettings(), existing=True)["initial_position"] == pulsar.InitialPosition.Latest


def test_existing_topic_is_asked_for_once() -> None:
    """Its partitions hold for the whole run, one where it has none; after an error the next driver call asks again."""
    name, asked = "persistent://public/default/orders", []
    names = RunNames(context(name=name, partitions=1))
    answers: list[int | TargetError] = [TargetError("no answer"), 3, 5]

    def ask(topic: str) -> int:
        asked.append(topic)
        if isinstance(answer := answers.pop(0), TargetError):
            raise answer
        return answer

    with pytest.raises(TargetError, match="no answer"):
        names.look_up_partitions(ask)
    names.look_up_partitions(ask)
    names.look_up_partitions(ask)
    assert (names.partitions, asked) == (3, [name, name])
    plain = RunNames(context(name=name))
    plain.look_up_partitions(lambda _: 0)
    assert plain.partitions == 1


def test_existing_topic_that_is_known_to_be_missing() -> None:
    """The error says what to do; a run with topics of its own asks for none."""
    with pytest.raises(TargetError, match="orders does not exist at .*: make it first"):
        RunNames(context(name="persistent://public/default/orders")).look_up_partitions(lambda _: None)
    own = RunNames(context(partitions=4))
    own.look_up_partitions(lambda _: None)
    assert own.partitions == 4


def test_subscriptions_are_deleted_by_the_client_where_there_is_no_admin_rest() -> None:
    """Those of the run, once, and none before the run could have made any."""
    name, deleted = "persistent://public/default/orders", []
    names = RunNames(context(name=name))

    def unsubscribe(topic: str, subscriptions: Sequence[str]) -> None:
        deleted.append((topic, list(subscriptions)))

    names.clean_up(unsubscribe)
    assert deleted == []
    names.prepare()
    names.clean_up(unsubscribe)
    names.clean_up(unsubscribe)
    assert deleted == [(name, ["loadtest-r-00000007-0", "loadtest-r-00000007-1"])]


def test_what_every_client_shares_needs_no_client_library() -> None:
    """A driver of the wire protocol runs without pulsar-client, whose threads and import it does not pay for."""
    shared = ("admin", "auth", "names", "settings_facts")
    code = f"import sys; {'; '.join(f'import pytest_loadtest.drivers.pulsar.{name}' for name in shared)}; print('_pulsar' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


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


def test_chunks_take_no_place_of_our_window() -> None:
    """It bounds messages, so the client's queue, in which each chunk has a place, has no limit; where the client refuses, it has its own."""
    settings = {"chunking_enabled": True, "batching_enabled": False, "max_pending_messages": 5}
    made = options.producer_options(PulsarSettings(**settings), 2)
    assert (made["max_pending_messages"], made["max_pending_messages_across_partitions"]) == (0, 0)
    made = options.producer_options(PulsarSettings(**settings, block_if_queue_full=False), 2)
    assert made["max_pending_messages"] == 5


def test_options_of_incomplete_messages() -> None:
    """The library has three of the four keys; of the fourth it says that it is not applied, where it would be another."""
    made = options.consumer_options(PulsarSettings())
    assert (made["max_pending_chunked_message"], made["auto_ack_oldest_chunked_message_on_queue_full"]) == (10, False)
    assert made["unacked_messages_timeout_ms"] is None
    chosen = PulsarSettings(
        chunking_enabled=True, batching_enabled=False, max_pending_chunked_message=2, auto_ack_oldest_chunked_message_on_queue_full=True,
        unacked_messages_timeout=10 * SECOND, expire_time_of_incomplete_chunked_message=SECOND,
    )  # fmt: skip
    made = options.consumer_options(chosen)
    assert (made["max_pending_chunked_message"], made["auto_ack_oldest_chunked_message_on_queue_full"]) == (2, True)
    assert made["unacked_messages_timeout_ms"] == 10_000
    assert options.library_unapplied_keys(chosen) == {
        "expireTimeOfIncompleteChunkedMessage": "pulsar-client has no option for it, and waits 1min"
    }
    assert (
        options.library_unapplied_keys(PulsarSettings(chunking_enabled=True, batching_enabled=False))
        == options.library_unapplied_keys(PulsarSettings())
        == {}
    )
    applied = options.library_applied_keys(chosen, {}, 1)
    assert (applied["maxPendingChunkedMessage"], applied["unackedMessagesTimeout"]) == ("2", "10s")
    assert applied["expireTimeOfIncompleteChunkedMessage"] == "1min"


def test_client_takes_every_option(tmp_path: Path) -> None:
    """A client is made from all keys at once, TLS and lookups too, without connecting."""
    trusted = str(Authority("somebody").write(tmp_path / "ca.pem"))
    settings = PulsarSettings(
        io_threads=2,
        operation_timeout=1,
        max_concurrent_lookup_requests=5,
        tls_trust_certs_file_path=trusted,
        tls_allow_insecure_connection=True,
        tls_enable_hostname_verification=True,
        authentication=Authentication(plugin="token", token="t"),
    )
    options.make_client("pulsar+ssl://127.0.0.1:1", settings).close()
    applied = options.library_applied_keys(settings, {}, 1)
    assert applied["operationTimeout"] == "1s"
    assert applied["tlsTrustCertsFilePath"] == trusted


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
        options.client_authentication(auth)


@pytest.mark.parametrize(
    "auth",
    [
        Authentication(plugin="tls", cert_file="c", key_file="k"),
        Authentication(plugin="basic", user_id="me", password="p"),
        Authentication(plugin="oauth2", issuer_url="https://issuer", private_key="/k", audience="a", scope="s"),
    ],
)
def test_client_takes_the_other_plugins(auth: Authentication) -> None:
    """TLS, basic and OAuth2 make the client's own authentication objects."""
    assert isinstance(options.client_authentication(auth), pulsar.Authentication)


# producers


def test_window_takes_a_prefix_and_empties_with_the_answers() -> None:
    """Three of five go, none while full, the rest after the answers; the last answer's instant is when the window was idle."""
    client, clock = NullProducer(), FakeClock(10)
    producers = producer_on(client, 3, clock=clock)
    first = burst(5)
    refused = producers.send(first)
    assert refused is not None and (refused.tolist(), refused.dtype) == ([3, 4], np.int64)
    assert (first.sent.tolist(), first.idle.tolist(), taken(producers, burst(2, 3))) == ([10, 10, 10, 0, 0], [0] * 5, 0)
    clock.now = 20
    client.answer(3)
    acks = producers.acks()
    assert acks is not None
    assert [acks.row.tolist(), acks.time.tolist(), acks.status.tolist()] == [[ROW, ROW + 1, ROW + 2], [20] * 3, [Status.ACKED] * 3]
    assert [c.dtype for c in (acks.row, acks.time, acks.status)] == [np.int64, np.int64, np.int8]
    assert acks.resends is None
    second = burst(2, 3)
    assert (producers.acks(), producers.send(second), second.idle.tolist()) == (None, None, [20, 0])


def test_full_stream_holds_up_no_other() -> None:
    """Of each stream a suffix is refused; each goes to the producer of its own, and idle is told of each by itself."""
    clients, clock = {stream: NullProducer() for stream in (1, 3, 5)}, FakeClock(10)
    producers = PulsarProducers(list(clients.values()), list(clients), context(clock=clock), window=2, memory=None)
    refused = producers.send(burst(7, streams=(5, 1)))
    assert refused is not None and refused.tolist() == [4, 5, 6]
    assert [len(client.pending) for client in clients.values()] == [2, 0, 2]
    for clock.now, stream in ((20, 5), (30, 1), (40, 1)):
        clients[stream].answer(1)
    second = burst(6, first=7, streams=(5, 3, 1))
    refused = producers.send(second)
    assert refused is not None and refused.tolist() == [3]
    assert second.idle.tolist() == [0, 0, 40, 0, 0, 0], "5 is not empty, 3 never had anything, 1 ran empty at 40"
    acks = producers.acks()
    assert acks is not None
    assert (acks.row - ROW).tolist() == [0, 1, 3]


def test_idle_is_the_latest_instant_whoever_said_it_first() -> None:
    """Threads of several partitions may leave their answers in another order than that of their instants."""
    client, clock = NullProducer(), FakeClock(10)
    producers = producer_on(client, 2, clock=clock)
    producers.send(burst(2))
    for clock.now in (30, 20):
        client.answer(1)
    assert producers.acks() is not None
    second = burst(1, 2)
    producers.send(second)
    assert second.idle.tolist() == [30]


def test_answers_belong_to_their_message_in_any_order() -> None:
    """The client's answers carry no sequence of ours: each callback is bound to its own, 0 included."""
    client = NullProducer()
    producers = producer_on(client, None)
    producers.send(burst(3))
    client.answer(1, FULL, newest_first=True)
    client.answer(2)
    acks = producers.acks()
    assert acks is not None
    assert dict(zip((acks.row - ROW).tolist(), acks.status.tolist(), strict=True)) == {2: Status.FAILED, 0: Status.ACKED, 1: Status.ACKED}


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
    """However sends, answers and looks interleave, the room in the window is what is not handed over or was answered."""
    client = NullProducer()
    producers = producer_on(client, window)
    sent, seen = 0, []
    for send, answer, look in steps:
        room = window - len(client.pending)
        found = taken(producers, burst(send, sent))
        assert found == min(send, room)
        sent += found
        client.answer(answer)
        if look and (acks := producers.acks()) is not None:
            seen += (acks.row - ROW).tolist()
    client.answer(window)
    if (acks := producers.acks()) is not None:
        seen += (acks.row - ROW).tolist()
    assert seen == list(range(sent))


SIZES = (20, 40, 150)
"""Bytes of the payloads of a pool."""


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_memory_is_kept_and_given_back(steps: list[tuple[int, int, int, int]]) -> None:
    """Two streams share 100 bytes: no message begins beyond them, and all is free again when all is answered."""
    limit, clients = 100, (NullProducer(), NullProducer())
    buckets = [payloads.Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in SIZES]
    pool = payloads.build_pool(
        buckets=buckets, message_size=None, randomized=False, random_ratio=0.0, file_content=None, seed=1, checksum=False, max_size=None
    )
    producers = PulsarProducers(clients, range(2), context(pool=pool), window=None, memory=limit)

    def used() -> int:
        return sum(len(message.data()) for client in clients for message, _ in client.pending)

    for who, payload, wanted, back in steps:
        before = used()
        found = taken(producers, burst(wanted, streams=(who,), payload=payload))
        assert used() == before + found * SIZES[payload]
        assert found == wanted or used() >= limit
        assert found == 0 or used() - SIZES[payload] < limit
        clients[who].answer(back)
    for client in clients:
        client.answer(100)
    assert taken(producers, burst(9, streams=(0,), payload=1)) == 3


def test_memory_holds_back_or_refuses() -> None:
    """Three of five messages of 64 bytes begin within 150: the others wait under blockIfQueueFull, and fail without it."""
    client = NullProducer()
    producers = producer_on(client, None, 150)
    assert [taken(producers, burst(5)), taken(producers, burst(2, 3))] == [3, 0]
    client.answer(3)
    assert taken(producers, burst(2, 3)) == 2
    settings = PulsarSettings(block_if_queue_full=False)
    producers = producer_on(client := NullProducer(), None, 150, settings=settings)
    assert taken(producers, burst(5)) == 5
    client.answer(3)
    acks = producers.acks()
    assert acks is not None
    assert dict(zip((acks.row - ROW).tolist(), acks.status.tolist(), strict=True)) == dict.fromkeys((3, 4), Status.FAILED) | dict.fromkeys(
        range(3), Status.ACKED
    )
    assert (producers.acks(), taken(producers, burst(3, 5)), len(client.pending)) == (None, 3, 3)


def test_memory_of_each_message_is_free_with_its_answer() -> None:
    """One answer of a burst is room for one message more, though the others of that burst are still in flight."""
    client = NullProducer()
    producers = producer_on(client, None, 150)
    assert taken(producers, burst(5)) == 3
    client.answer(1)
    assert taken(producers, burst(2, 3)) == 1


def test_closed_producer_is_named() -> None:
    """The client raises instead of answering: the run ends, and says of which stream."""

    class Closed:
        def send_async(self, message: Any, callback: object) -> None:
            raise _pulsar.PulsarException("AlreadyClosed")

    producers = PulsarProducers([NullProducer(), Closed()], [3, 7], context(), window=None, memory=None)
    with pytest.raises(TargetError, match="producer of stream 7: AlreadyClosed"):
        producers.send(burst(2, streams=(3, 7)))


# consumers


def received_by(consumer: PulsarConsumer) -> Any:
    """What comes until the client is closed under it."""
    copies: deque[Any] = deque()
    consumer.run(4, copies)
    return received_columns(copies)


def test_consumer_stamps_acknowledges_and_pads() -> None:
    """Arrivals become columns: place, heads padded to 32 bytes, real size, time, flags; a timeout in between does not matter."""
    client, clock, gone = NullConsumer(message_of(b"\x01" * 40), None, message_of(b"\x02" * 5)), FakeClock(9), []
    got = received_by(PulsarConsumer(client, "consumer 0", context(clock=clock), None, gone.append))
    assert [bytes(row) for row in got.heads] == [b"\x01" * 32, b"\x02" * 5 + b"\0" * 27]
    assert [got.size.tolist(), got.time.tolist(), got.order.tolist(), got.flags.tolist()] == [[40, 5], [9, 9], [0, 0], [0, 0]]
    assert [c.dtype for c in (got.heads, got.size, got.time, got.order, got.flags)] == [np.uint8, np.int32, np.int64, np.int64, np.int8]
    assert (got.consumer.tolist(), got.consumer.dtype) == ([4, 4], np.int32)
    assert len(client.acknowledged) == 2


def test_damaged_body_is_flagged_only_under_checksum() -> None:
    """One bit behind the head: CORRUPT when the profile wants it verified, nothing otherwise."""
    pool = pool_of(64, checksum=True)
    whole = payloads.messages(pool, np.zeros((1, 32), np.uint8), np.zeros(1, np.uint16))[0]
    damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
    for checksum, expected in ((True, [0, Flag.CORRUPT]), (False, [0, 0])):
        client = NullConsumer(message_of(whole), message_of(damaged))
        got = received_by(PulsarConsumer(client, "c", context(checksum=checksum), None, [].append))
        assert got.flags.tolist() == expected


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
            consumer.expect_close()
        consumer.run(0, deque())
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


def running(*clients: Waiting, partitions: int = 1) -> PulsarConsumers:
    """One consumer for each client, in the places 0, 1, …"""
    queue = deque(clients)

    def opening(consumers: Sequence[int]) -> list[PulsarConsumer]:
        made = [queue.popleft() for _ in consumers]
        return [PulsarConsumer(client, "c", context(clock=time.monotonic_ns), None, [].append, partitions) for client in made]

    consumers = PulsarConsumers(opening)
    assert consumers.open(range(len(clients))).tolist() == list(range(len(clients)))
    return consumers


def stamps(consumers: PulsarConsumers, count: int) -> list[int]:
    """Stamps of so many messages."""
    times: list[int] = []
    end = time.monotonic() + 10
    while len(times) < count and time.monotonic() < end:
        if (got := consumers.take()) is not None:
            times += got.time.tolist()
    return times


def ended(consumers: PulsarConsumers) -> None:
    """Wait for all threads."""
    consumers.join_threads(time.monotonic() + 10)
    assert not [thread for thread in threading.enumerate() if thread.name in ("c", "pulsar-attach", "pulsar-detach")]


def test_paused_consumer_acknowledges_nothing_and_stamps_after_resume() -> None:
    """At most one message is taken from the client and not acknowledged; the others stay there, within its own bound."""
    client = Waiting()
    consumers = running(client)
    consumers.pause([0])
    for number in range(5):
        client.messages.put(Batched(bytes([number])))
    while client.messages.qsize() > 4:
        time.sleep(0.001)
    assert (consumers.take(), client.acknowledged, client.messages.qsize()) == (None, [], 4)
    resumed = time.monotonic_ns()
    consumers.resume([0])
    assert all(stamp >= resumed for stamp in stamps(consumers, 5))
    assert client.acknowledged == [bytes([number]) for number in range(5)]
    consumers.detach([0])
    ended(consumers)
    assert client.closed


def test_closing_wakes_a_paused_consumer_without_acknowledging() -> None:
    """What it has in hand is left to the broker."""
    client = Waiting()
    consumers = running(client)
    consumers.pause([0])
    client.messages.put(Batched(b"x"))
    consumers.expect_close()
    ended(consumers)
    assert (client.acknowledged, consumers.take()) == ([], None)


def test_leaving_takes_begun_batches_to_their_end_and_nothing_more() -> None:
    """In each partition up to the next entry: half an acknowledged batch would come again as a whole."""
    client = Waiting()
    consumers = running(client, partitions=2)
    client.messages.put(Batched(b"p0 b0", 0, 0))
    assert len(stamps(consumers, 1)) == 1
    consumers.pause([0])
    for data, index, partition in [(b"p0 b1", 1, 0), (b"p1 next", 0, 1), (b"p1 rest", 1, 1), (b"p0 b2", 2, 0), (b"p0 next", -1, 0)]:
        client.messages.put(Batched(data, index, partition))
    client.messages.put(Batched(b"never looked at", 0, 0))
    consumers.detach([0])
    ended(consumers)
    assert client.acknowledged == [b"p0 b0", b"p0 b1", b"p0 b2"]
    assert client.messages.qsize() == 1
    got = consumers.take()
    assert got is not None and (got.consumer.tolist(), got.size.tolist()) == ([0, 0], [5, 5]), "a detached place delivers what it had"


def test_leaving_ends_without_messages() -> None:
    """Nothing comes any more, or only in another partition: the wait for the end of batches is bounded."""
    client = Waiting()
    consumers = running(client, partitions=2)
    consumers.detach([0])
    client.messages.put(Batched(b"p0", 0, 0))
    ended(consumers)
    assert (client.acknowledged, client.closed) == ([], True)


def test_close_is_no_failure_of_who_is_leaving() -> None:
    """The driver closes its clients while a consumer still waits for the end of its batch."""

    class ClosedUnderway(Waiting):
        def receive(self, timeout: int) -> Any:
            self.messages.get()
            raise pulsar.AlreadyClosed("closed")

    client, gone = ClosedUnderway(), []
    consumers = PulsarConsumers(lambda _: [PulsarConsumer(client, "c", context(), None, gone.append)])
    consumers.open([0])
    consumers.detach([0])
    consumers.expect_close()
    client.messages.put(None)
    ended(consumers)
    assert gone == []


def test_places_are_told_before_anything_comes_from_them() -> None:
    """A newcomer may receive before the engine has heard of it: that waits. Places go on, also for a consumer that comes again."""
    clients = [Waiting(), Waiting(), Waiting()]
    consumers = running(*clients[:1])
    consumers._opening = lambda numbers: [
        PulsarConsumer(clients[1 + int(number)], "c", context(clock=time.monotonic_ns), None, [].append) for number in numbers
    ]
    clients[1].messages.put(Batched(b"early"))
    consumers.attach([0, 1])
    while not clients[1].acknowledged:
        time.sleep(0.001)
    clients[0].messages.put(Batched(b"known"))
    assert len(stamps(consumers, 1)) == 1
    assert consumers.take() is None
    while (joined := consumers.attached()) is None:
        time.sleep(0.001)
    assert [joined.consumer.tolist(), joined.place.tolist()] == [[0, 1], [1, 2]]
    assert (joined.consumer.dtype, joined.place.dtype, consumers.attached()) == (np.int32, np.int32, None)
    got = consumers.take()
    assert got is not None and got.consumer.tolist() == [1]
    consumers.detach(joined.place)
    consumers.detach([0])
    ended(consumers)
    assert all(client.closed for client in clients)


def test_refused_attach_is_raised_by_attached() -> None:
    """On the engine's thread, and the others go on."""
    consumers = running(Waiting())

    def refuse(numbers: Sequence[int]) -> list[PulsarConsumer]:
        raise TargetError(f"consumer {numbers[0]} is one too many")

    consumers._opening = refuse
    consumers.attach([7])
    with pytest.raises(TargetError, match="consumer 7 is one too many"):
        while consumers.attached() is None:
            time.sleep(0.001)
    consumers.detach([0])
    ended(consumers)


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
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
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
        driver = PulsarDriver(context(admin=url, name=EXISTING))
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
        driver = PulsarDriver(context(admin=url, name=EXISTING))
        with pytest.raises(TargetError, match=rf"topic: {EXISTING} does not exist at pulsar://127\.0\.0\.1:1: make it first"):
            driver.prepare()
        driver.cleanup()
    assert {what.partition(" ")[0] for what, _, _ in asked} == {"GET"}


def test_run_that_made_nothing_deletes_nothing() -> None:
    """cleanup() without prepare(), which is another worker's."""
    with rest({}) as (url, asked):
        PulsarDriver(context(admin=url)).cleanup()
        PulsarDriver(context(admin=url, name=EXISTING)).cleanup()
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
