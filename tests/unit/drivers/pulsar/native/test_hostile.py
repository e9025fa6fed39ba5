"""The native client and brokers that violate the protocol: an error that names broker and violation, in bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c
from fake_pulsar import FakeBroker, answer, damaged, entry_of, nothing
from native_rig import MovedClock, faulty

from pytest_loadtest.drivers.pulsar.native import consumers
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.envelope import CORRUPT, FOREIGN
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import compression
from pytest_loadtest.wire.pulsar.entries import field

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_pulsar import Seen

    Rule = Callable[[Seen], Any]

TOPIC = "persistent://a/b/c"
LONG = b"\x00\x00\xff\xff\x00\x00\x00\x10" + bytes(60_000)  # a valid frame, but for its end
HUGE = b"\x7f\xff\xff\xff\x00\x00\x00\x10" + bytes(1000)  # a frame of 2 GiB, and its start


def command(kind: int, part: bytes) -> bytes:
    """Return a command with a part of any bytes, as a frame."""
    body = b"\x08" + bytes([kind]) + field(kind, part)
    return (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


def raw(data: bytes) -> Rule:
    """Return an action that sends these bytes instead of an answer."""
    return lambda seen: seen.peer.write(data)


def then_close(data: bytes) -> Rule:
    return lambda seen: (seen.peer.write(data), seen.peer.drop())


def told(kind: str, **fields: Any) -> Rule:
    """Return an action that sends another answer to the same request."""
    return lambda seen: seen.peer.tell(
        kind, request_id=getattr(seen.said, "request_id", 0), **fields
    )


def hello(**fields: Any) -> Rule:
    return lambda seen: seen.peer.tell("CONNECTED", server_version="fake", **fields)


ANSWERS_TO_CONNECT: dict[str, tuple[Rule, str]] = {
    "a frame of 2 GiB": (raw(HUGE), "not Pulsar's protocol: a frame of 2147483647 bytes, where 4 to"),
    "HTTP": (raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "a frame of 1213486160 bytes.*is this its binary port"),
    "a command longer than its frame": (raw(b"\0\0\0\x05\0\0\xff\xff\0"), "a command of 65535 bytes in a frame of 5"),
    "no protobuf": (raw(b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff"), "a command of 4 bytes: "),
    "invalid UTF-8": (raw(command(api.Command.CONNECTED, b"\x0a\x02\xff\xfe")), "a command connected with a text that is not UTF-8"),
    "a limit below 0": (hello(max_message_size=-5), "a largest message of -5 bytes in CONNECTED"),
    "a limit of 1 byte": (hello(max_message_size=1), r"the broker takes messages of 1 B \(maxMessageSize\): raise it above 1024"),
    "two answers": (lambda seen: (answer(seen), answer(seen)), "a second CONNECTED"),
    "a rejection with control characters": (told("ERROR", error=0, message="\x1b[2J\0no" + "x" * 10**6), "no"),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS_TO_CONNECT)
def test_an_answer_to_connect_that_violates_the_protocol_is_named(
    broker: FakeBroker, case: str
) -> None:
    """With the address of the broker; the client takes no memory for what a frame announces, and its message is one short line."""
    rule, named = ANSWERS_TO_CONNECT[case]
    broker.rules["CONNECT"] = rule
    tracemalloc.start()
    try:
        with (
            pytest.raises(TargetError, match=f"(?s){named}") as error,
            faulty(broker, streams=1, operation_timeout=SECOND // 2),
        ):
            pass
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert "broker" in str(error.value) and len(str(error.value)) < 1500
    assert str(error.value).isprintable()


# The answer to each request of a client, and answers that belong to another one.
OTHERS: dict[str, list[Rule]] = {
    "PARTITIONED_METADATA": [told("SUCCESS"), told("LOOKUP_RESPONSE", response=1)],
    "LOOKUP": [told("SUCCESS"), told("PRODUCER_SUCCESS", producer_name="x"), told("SUBSCRIBE", topic="t", subscription="s", sub_type=0, consumer_id=0)],
    "PRODUCER": [told("SUCCESS"), told("PARTITIONED_METADATA_RESPONSE", partitions=4), raw(command(api.Command.PRODUCER_SUCCESS, b"\x08\x03\x12\x02\xff\xfe"))],
    "SUBSCRIBE": [told("LOOKUP_RESPONSE", response=1), told("PRODUCER_SUCCESS", producer_name="x")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "number"),
    [(kind, number) for kind, rules in OTHERS.items() for number in range(len(rules))],
)
def test_an_answer_of_another_kind_costs_a_connection(
    broker: FakeBroker, kind: str, number: int
) -> None:
    """The request is repeated on the next one."""
    broker.once[kind].append(OTHERS[kind][number])
    if kind == "PARTITIONED_METADATA":
        with pytest.raises(
            TargetError,
            match="the broker answered .*where PartitionedMetadataResponse is the answer",
        ):
            faulty(broker, consumers=1, name=TOPIC).__enter__()
        return
    with faulty(broker, streams=1, consumers=1, operation_timeout=20 * SECOND) as r:
        r.send(1)
        r.until(r.answers, "answered")
        assert len(broker.of(kind)) >= 2
        assert len(broker.peers) == 2


@pytest.mark.parametrize("kind", ["CONNECT", "LOOKUP", "PRODUCER", "SUBSCRIBE", "SEND"])
@pytest.mark.parametrize("size", [0, 3, 6, 9])
def test_a_connection_that_ends_within_a_frame_is_replaced(
    broker: FakeBroker, kind: str, size: int
) -> None:
    whole = command(api.Command.SUCCESS, b"\x08\x01")
    with faulty(broker, streams=1, consumers=1) as r:
        broker.once[kind].append(then_close(whole[:size]))
        if kind != "SEND":
            broker.peers[-1].drop()
        r.send(1)
        r.until(
            lambda: r.answers() and not r.driver.disconnected(), "there again", step=MILLISECOND
        )
        assert [status for _, status, _ in r.answers()] == [Status.ACKED]


@pytest.mark.parametrize("bytewise", [False, True])
def test_a_broker_that_never_answers_the_handshake_is_given_up(
    broker: FakeBroker, bytewise: bool
) -> None:
    """After 10 s; also if bytes come that never become a frame."""
    with faulty(broker, streams=1) as r:
        broker.rules["CONNECT"] = nothing
        broker.peers[0].drop()
        r.until(lambda: len(broker.of("CONNECT")) == 2, "tried again", step=MILLISECOND)

        frame = iter(LONG)

        def silent() -> bool:
            if bytewise:
                broker.peers[-1].write(bytes([next(frame)]))
            return "no connection within 10 s" in (r.driver.disconnected() or "")

        r.until(silent, "given up", step=SECOND)
        broker.rules["CONNECT"] = answer
        r.until(lambda: not r.driver.disconnected(), "there again", step=SECOND)


def test_a_byte_now_and_then_is_no_answer_to_a_ping(broker: FakeBroker) -> None:
    with faulty(broker, streams=1) as r:
        broker.rules["PING"] = broker.rules["CONNECT"] = nothing
        first, frame = broker.peers[0], iter(LONG)

        def silent() -> bool:
            if not first.gone:
                first.write(bytes([next(frame)]))
            return "no answer from the broker for" in (r.driver.disconnected() or "")

        r.until(silent, "given up", step=SECOND)


@pytest.mark.parametrize("tls", [True, False])
def test_a_broker_cannot_turn_tls_on_or_off(broker: FakeBroker, tls: bool) -> None:
    """A redirect to another scheme is no address: the client has no certificates, or would send its credentials in plain text."""
    url = f"pulsar+ssl://{broker.host}" if tls else f"http://{broker.host}"
    broker.once["LOOKUP"].append(told("LOOKUP_RESPONSE", response=0, broker_service_url=url))
    with faulty(broker, streams=1) as r:
        broker.peers[0].tell(
            "CLOSE_PRODUCER", producer_id=0, request_id=1, assigned_broker_service_url=url
        )
        r.until(lambda: len(broker.of("PRODUCER")) == 2, "there again", step=MILLISECOND)
        assert len(broker.peers) == 1


# entries

METADATA = {"producer_name": "p", "sequence_id": 1, "publish_time": 1}
ENTRIES: dict[str, Callable[[], tuple[bytes, list[int]]]] = {
    "a wrong checksum": lambda: (damaged(entry_of(api.MessageMetadata(**METADATA), b"abc")), []),
    "no entry": lambda: (b"\xff" * 40, []),
    "nothing": lambda: (b"", []),
    "broker metadata of 4 GiB": lambda: (b"\x0e\x02\xff\xff\xff\xff" + bytes(20), []),
    "metadata of 4 GiB": lambda: (b"\x0e\x01" + crc32c(b"\xff" * 8).to_bytes(4, "big") + b"\xff" * 8, []),
    "two billion messages": lambda: (entry_of(api.MessageMetadata(**METADATA, num_messages_in_batch=2**31 - 1), b"abc"), []),
    "two billion messages, some pending": lambda: (entry_of(api.MessageMetadata(**METADATA, num_messages_in_batch=2**31 - 1), b"abc"), [5, -1]),
    "a negative number of messages": lambda: (entry_of(api.MessageMetadata(**METADATA, num_messages_in_batch=-(2**31)), b"abc"), [5]),
    "4 GiB after decompression": lambda: (entry_of(api.MessageMetadata(**METADATA, compression=1, uncompressed_size=2**32 - 1), b"abc"), []),
    "an unknown compression": lambda: (entry_of(api.MessageMetadata(**METADATA, compression=9, uncompressed_size=3), b"abc"), []),
    "chunk 5 of 2": lambda: (entry_of(api.MessageMetadata(**METADATA, uuid="u", chunk_id=5, num_chunks_from_msg=2, total_chunk_msg_size=9), b"abc"), []),
    "chunk -1 of 2": lambda: (entry_of(api.MessageMetadata(**METADATA, uuid="u", chunk_id=-1, num_chunks_from_msg=2, total_chunk_msg_size=9), b"abc"), []),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
def test_a_damaged_entry_is_one_corrupt_message(broker: FakeBroker, case: str) -> None:
    """In little memory; the connection stays."""
    body, ack_set = ENTRIES[case]()
    with faulty(broker, consumers=1) as r:
        tracemalloc.start()
        try:
            broker.peers[0].deliver(0, body, ack_set=ack_set)
            r.until(lambda: r.received, "received")
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        assert r.heads.kind.tolist() == [CORRUPT]
        assert len(broker.peers) == 1 and not r.driver.disconnected()


def test_entries_that_become_large_are_not_kept(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kilobytes become 64 MiB after decompression: at most one entry is kept beyond the limit. Every message counts, in order."""
    monkeypatch.setattr(consumers, "_MOST_KEPT", 8 << 20)
    size = 2 << 20
    metadata = api.MessageMetadata(
        **METADATA, compression=compression.NAMES.index("ZSTD"), uncompressed_size=size
    )
    body = entry_of(metadata, compression.compress(3, bytes(size)))
    assert len(body) < 4096
    with faulty(broker, consumers=1) as r:
        r.driver.poll(MILLISECOND)
        tracemalloc.start()
        try:
            for number in range(32):
                broker.peers[0].deliver(0, body, number)
            # All entries are read before the first arrivals are taken.
            entries = r.driver._consumers.entry
            handled: list[object] = []
            r.driver._cluster.on_entry = lambda entry, now: (
                handled.append(entry) or entries(entry, now)
            )
            end = time.monotonic() + 20
            while len(handled) < 32 and time.monotonic() < end:
                r.driver.poll(MILLISECOND)
            assert tracemalloc.get_traced_memory()[1] < 20 << 20
        finally:
            tracemalloc.stop()
        received = r.driver.take()
        assert received.size.tolist() == [size] * 32
        assert received.time.tolist() == sorted(received.time.tolist())


def test_a_key_that_is_not_utf_8_is_a_key(broker: FakeBroker) -> None:
    """Of a message that does not belong to the run."""
    metadata = api.MessageMetadata(**METADATA).SerializeToString() + field(6, b"\xff\xfe")
    guarded = len(metadata).to_bytes(4, "big") + metadata + bytes(64)
    with faulty(broker, consumers=1, subscription_type="Key_Shared") as r:
        broker.peers[0].deliver(0, b"\x0e\x01" + crc32c(guarded).to_bytes(4, "big") + guarded)
        r.until(lambda: r.received, "received")
        assert r.heads.kind.tolist() == [FOREIGN]


def test_an_entry_before_its_subscription_costs_a_connection(broker: FakeBroker) -> None:
    """No consumer of the run gets it."""
    body = entry_of(api.MessageMetadata(**METADATA), bytes(64))
    broker.once["SUBSCRIBE"].append(
        lambda seen: (seen.peer.deliver(seen.said.consumer_id, body), answer(seen))
    )
    with faulty(broker, consumers=1) as r:
        r.until(
            lambda: len(broker.of("SUBSCRIBE")) == 2 and not r.driver.disconnected(),
            "there again",
            step=MILLISECOND,
        )
        assert not r.received


def test_a_flood_at_a_paused_consumer_ends_the_connection(broker: FakeBroker) -> None:
    """It keeps no more entries than twice the permitted messages."""
    body = entry_of(api.MessageMetadata(**METADATA), bytes(64))
    with faulty(broker, consumers=1, receiver_queue_size=10) as r:
        first = broker.peers[0]
        r.driver.pause([0])
        for number in range(21):
            first.deliver(0, body, number)
        r.until(lambda: len(broker.peers) == 2, "on another connection", step=MILLISECOND)


def test_a_flood_of_pings_without_reading_ends_the_connection(broker: FakeBroker) -> None:
    ping = command(api.Command.PING, b"")
    with faulty(broker, streams=1) as r:
        broker.peers[0].write(ping * 1001)
        r.until(lambda: len(broker.peers) == 2, "on another connection", step=MILLISECOND)
        r.send(1)
        r.until(r.answers, "answered", step=MILLISECOND)


def test_receipts_after_a_violation_do_not_count(broker: FakeBroker) -> None:
    """The entries are sent again."""

    def twisted(seen: Seen) -> None:
        seen.peer.tell("SEND_RECEIPT", producer_id=0, sequence_id=1)
        seen.peer.tell("SEND_RECEIPT", producer_id=0, sequence_id=0)

    broker.once["SEND"] += [nothing, twisted]
    with faulty(broker, streams=1) as r:
        r.send(2)
        r.until(lambda: len(r.answers()) == 2, "answered", step=MILLISECOND)
        assert r.answers() == [(0, Status.ACKED, 1), (1, Status.ACKED, 1)]


def test_a_broker_that_violates_the_protocol_again_and_again_ends_the_run(
    broker: FakeBroker,
) -> None:
    """After ten violations; the error names the last one."""
    broker.rules["SEND"] = lambda seen: seen.peer.tell(
        "SEND_RECEIPT", producer_id=99, sequence_id=0
    )
    with (
        pytest.raises(TargetError, match=f"{broker.url}: .*unknown producer 99: 10 violations"),
        faulty(broker, streams=1) as r,
    ):
        r.send(1)
        r.until(lambda: False, "ended", step=10 * MILLISECOND)
    assert not r.answers()


def test_a_flood_leaves_the_loop_after_a_few_reads(broker: FakeBroker) -> None:
    """Commands that nobody requested cost nothing else."""
    clock = MovedClock()
    with faulty(broker, streams=1, clock=clock) as r:
        broker.peers[0].write(command(api.Command.SUCCESS, b"\x08\x63") * 50_000)
        r.send(1)
        began = time.monotonic()
        r.until(r.answers, "answered")
        assert time.monotonic() - began < 20
