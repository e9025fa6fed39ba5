"""The Pulsar driver without a broker: options, the account of them, the per-message path, and the admin REST on a local server."""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
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
from pytest_loadtest.drivers._pulsar_messages import PulsarConsumer, PulsarProducer, key_of
from pytest_loadtest.drivers.pulsar import PulsarDriver
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.profile.settings import Authentication, Persistence, PulsarSettings
from pytest_loadtest.quantities import MILLISECOND, SECOND
from pytest_loadtest.samples import Flag, Status
from pytest_loadtest.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OK, FULL = _pulsar.Result.Ok, _pulsar.Result.ProducerQueueIsFull
TOPIC = TopicSpec(index=0)


def pool_of(size: int, checksum: bool = False) -> payloads.PayloadPool:
    return payloads.build_pool(
        buckets=None, message_size=size, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=checksum, max_size=None
    )


def context(settings: PulsarSettings | None = None, *, admin: str | None = None, partitions: int = 1, **more: Any) -> DriverContext:
    given: dict[str, Any] = {"clock": FakeClock(5), "pool": pool_of(64)} | more
    target, topics = TargetAddress(url="pulsar://127.0.0.1:1", admin_url=admin), (TopicSpec(index=0, partitions=partitions),)
    return DriverContext(target=target, settings=settings or PulsarSettings(), run="r", nonce=7, worker="gw0", topics=topics, **given)


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


def test_what_the_client_cannot_set_is_listed_with_its_reason() -> None:
    """Memory limit always; what needs the admin REST only without it, and only when asked for."""
    settings = PulsarSettings(client_memory_limit_mb=256, persistence=Persistence(), namespace_prefix="public/mine")
    assert set(PulsarDriver(context(settings)).facts().not_applied) == {"clientMemoryLimitMB", "persistence", "namespacePrefix"}
    facts = PulsarDriver(context(settings, admin="http://127.0.0.1:1")).facts()
    assert set(facts.not_applied) == {"clientMemoryLimitMB"}
    assert facts.applied["persistence"] == "ensembleSize 1, writeQuorum 1, ackQuorum 1, deduplicationEnabled false"
    assert PulsarDriver(context()).facts().not_applied == {}


def test_strict_tuning_names_the_keys() -> None:
    """Under strictTuning a key that cannot be applied is a usage error at once."""
    with pytest.raises(UsageError, match="clientMemoryLimitMB: pulsar-client for Python has no memory limit"):
        PulsarDriver(context(PulsarSettings(client_memory_limit_mb=1, strict_tuning=True)))


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
    assert options.applied(settings, "public/default", 1, admin=False)["batchingEnabled"] == "false"


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
    applied = options.applied(settings, "public/default", 1, admin=False)
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
def rest(answers: dict[str, tuple[int, object]]) -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """A server with these answers ("METHOD path" → status, JSON), 204 for the rest: its URL and what was asked, authorization, body."""
    asked: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((f"{self.command} {self.path}", self.headers.get("Authorization"), body))
            status, content = answers.get(asked[-1][0], (204, None))
            self.send_response(status)
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
        Admin(url, settings).create_namespace("public/x", Persistence(ensemble_size=3, write_quorum=2, deduplication_enabled=True))
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
        Admin("http://127.0.0.1:1", PulsarSettings()).create_namespace("public/x", None)


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
