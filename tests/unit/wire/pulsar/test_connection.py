"""One connection: events do not depend on the pieces of the stream, requests are answered, unknown commands are skipped."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.connection import (
    PROTOCOL_VERSION,
    Entry,
    PulsarConnection,
    Receipt,
)
from pytest_loadtest.wire.pulsar.entries import EntrySealer, field, publish_time, varint
from pytest_loadtest.wire.pulsar.framing import (
    MAX_MESSAGE,
    OVERHEAD,
    FrameDecoder,
    ProtocolError,
    encode_command,
    split_frame,
)

U64, U32, U31 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
OWN = {
    "PING",
    "AUTH_CHALLENGE",
    "SEND_RECEIPT",
    "MESSAGE",
}  # those of which the event is not the command, or is none
VALUES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_UINT64: U64, FieldDescriptor.TYPE_UINT32: U32, FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT64: I64, FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_STRING: st.text(max_size=5), FieldDescriptor.TYPE_BYTES: st.binary(max_size=5),
}  # fmt: skip


def connection(
    method: str = "none", credentials: list[bytes] | None = None, proxy_to: str | None = None
) -> PulsarConnection:
    given_out = iter(credentials or [])
    return PulsarConnection("client 1", method, lambda: next(given_out), proxy_to)


def feed(conn: PulsarConnection, raw: bytes, sizes: list[int] | None = None) -> list[Any]:
    """Return the events of ``raw`` in pieces of these sizes, repeatedly."""
    events, start, turn = list[Any](), 0, 0
    while start < len(raw):
        space = conn.space()
        piece = raw[
            start : start + min(len(space), sizes[turn % len(sizes)] if sizes else len(raw))
        ]
        space[: len(piece)] = piece
        events += conn.filled(len(piece))
        start, turn = start + len(piece), turn + 1
    return events


def drain(conn: PulsarConnection) -> bytes:
    """Return the bytes to send."""
    sent_bytes = b""
    while conn.waiting:
        part = b"".join(conn.next())
        sent_bytes += part
        conn.sent(len(part))
    return sent_bytes


def outgoing(conn: PulsarConnection) -> list[api.Command]:
    sent_bytes = drain(conn)
    decoder = FrameDecoder(len(sent_bytes) + 8)
    decoder.space()[: len(sent_bytes)] = sent_bytes
    return [
        api.Command.FromString(bytes(split_frame(frame)[0]))
        for frame in decoder.filled(len(sent_bytes))
    ]


def connected(**fields: Any) -> bytes:
    return encode_command(
        api.Command(
            type=api.Command.CONNECTED, connected=api.Connected(server_version="Pulsar 9", **fields)
        )
    )


def receipt(producer: int, sequence: int) -> bytes:
    return encode_command(
        api.Command(
            type=api.Command.SEND_RECEIPT,
            send_receipt=api.SendReceipt(producer_id=producer, sequence_id=sequence),
        )
    )


def delivery(body: bytes, **fields: Any) -> bytes:
    where = api.MessageId(ledger_id=7, entry_id=8, partition=2)
    raw = encode_command(
        api.Command(
            type=api.Command.MESSAGE, message=api.Message(consumer_id=5, message_id=where, **fields)
        )
    )
    return (len(raw) - 4 + len(body)).to_bytes(4, "big") + raw[4:] + body


def fill(message: Any, draw: st.DrawFn, depth: int = 0) -> None:
    """Set every required field, and some of the others."""
    for one in message.DESCRIPTOR.fields:
        if not one.is_required and (depth > 2 or not draw(st.booleans())):
            continue
        if one.message_type is not None:
            part = getattr(message, one.name)
            if one.is_repeated:
                fill(part.add(), draw, depth + 1)
            else:
                part.SetInParent()
                fill(part, draw, depth + 1)
        elif one.is_repeated:
            getattr(message, one.name).extend(draw(st.lists(VALUES[one.type], max_size=3)))
        else:
            setattr(message, one.name, draw(VALUES[one.type]))


@st.composite
def commands(draw: st.DrawFn) -> api.Command:
    name = draw(st.sampled_from(sorted(api.Command.Type.keys())))
    command = api.Command(type=api.Command.Type.Value(name))
    part = getattr(command, name.lower())
    part.SetInParent()
    fill(part, draw)
    return command


def events_of(command: api.Command) -> list[Any]:
    """Return the expected events."""
    name = api.Command.Type.Name(command.type)
    if name == "SEND_RECEIPT":
        return [Receipt(command.send_receipt.producer_id, command.send_receipt.sequence_id)]
    if name == "MESSAGE":
        message = command.message
        where = message.message_id
        ack_set = tuple(message.ack_set)
        epoch = message.consumer_epoch if message.HasField("consumer_epoch") else -1
        body = memoryview(b"")
        return [
            Entry(
                message.consumer_id,
                where.ledger_id,
                where.entry_id,
                where.partition,
                message.redelivery_count,
                ack_set,
                body,
                epoch,
            )
        ]
    return [] if name in OWN else [getattr(command, name.lower())]


def test_every_command_has_a_part_of_its_name() -> None:
    """The number of the part is that of the type, as in PulsarApi.proto."""
    for name, number in api.Command.Type.items():
        part = api.Command.DESCRIPTOR.fields_by_name[name.lower()]
        assert part.message_type is not None
        assert part.number == number


@given(
    st.lists(commands().filter(lambda command: command.type != api.Command.CONNECTED), max_size=6),
    st.lists(st.integers(1, 60), min_size=1),
)
def test_events_do_not_depend_on_the_pieces_of_the_stream(
    several: list[api.Command], sizes: list[int]
) -> None:
    raw = b"".join(map(encode_command, several))
    expected = [event for command in several for event in events_of(command)]
    challenges = sum(command.type == api.Command.AUTH_CHALLENGE for command in several)
    for cuts in (None, sizes):
        conn = connection("token", [b"secret"] * challenges)
        assert feed(conn, raw, cuts) == expected
        assert len(outgoing(conn)) == challenges + sum(
            command.type == api.Command.PING for command in several
        )


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1), st.lists(I64, max_size=3))
def test_an_entry_has_the_fields_of_the_command_and_the_body(
    body: bytes, redeliveries: int, ack_set: list[int]
) -> None:
    (entry,) = feed(connection(), delivery(body, redelivery_count=redeliveries, ack_set=ack_set))
    assert entry[:6] == (5, 7, 8, 2, redeliveries, tuple(ack_set))
    assert bytes(entry.body) == body


@given(U64, U64)
def test_a_receipt_has_producer_and_sequence(producer: int, sequence: int) -> None:
    assert feed(connection(), receipt(producer, sequence)) == [Receipt(producer, sequence)]


# what is no protocol


@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_a_protocol_error(raw: bytes) -> None:
    conn = connection("token", [b"secret"] * 100)
    try:
        feed(conn, raw)
    except ProtocolError:
        assert raw


@given(st.binary(max_size=60), st.sampled_from(sorted(api.Command.Type.values())))
def test_any_part_of_a_command_is_an_event_or_a_protocol_error(part: bytes, kind: int) -> None:
    """Frame and type of the command are valid."""
    sent_bytes = b"\x08" + varint(kind) + field(kind, part)
    raw = (len(sent_bytes) + 4).to_bytes(4, "big") + len(sent_bytes).to_bytes(4, "big") + sent_bytes
    conn = connection("token", [b"secret"])
    try:
        events = feed(conn, raw)
    except ProtocolError as error:
        assert "a command" in str(error)
        return
    assert all(event.IsInitialized() for event in events if not isinstance(event, Entry | Receipt))


@pytest.mark.parametrize("name", sorted(set(api.Command.Type.keys()) - {"PING", "AUTH_CHALLENGE"}))
def test_a_command_without_its_part_is_an_error(name: str) -> None:
    """A receipt without its part is not one for message 0 of producer 0."""
    with pytest.raises(ProtocolError, match=f"a command {name.lower()} without its part"):
        feed(connection(), encode_command(api.Command(type=api.Command.Type.Value(name))))


@pytest.mark.parametrize(
    "command",
    [
        api.Command(type=api.Command.SEND_RECEIPT, send_receipt=api.SendReceipt(producer_id=1)),
        api.Command(type=api.Command.MESSAGE, message=api.Message(consumer_id=1)),
        api.Command(
            type=api.Command.MESSAGE,
            message=api.Message(consumer_id=1, message_id=api.MessageId(ledger_id=1)),
        ),
        api.Command(type=api.Command.SUCCESS, success=api.Success()),
    ],
    ids=["receipt", "message", "message id", "success"],
)
def test_a_command_without_a_required_field_is_an_error(command: api.Command) -> None:
    """The field is not 0."""
    sent_bytes = command.SerializePartialToString()
    with pytest.raises(ProtocolError, match="without a required field"):
        feed(
            connection(),
            (len(sent_bytes) + 4).to_bytes(4, "big")
            + len(sent_bytes).to_bytes(4, "big")
            + sent_bytes,
        )


@given(st.integers(69, 2**31 - 1), st.binary(max_size=20))
def test_unknown_commands_are_skipped(kind: int, part: bytes) -> None:
    sent_bytes = b"\x08" + varint(kind) + field(min(kind, 2**28), part)
    raw = (len(sent_bytes) + 4).to_bytes(4, "big") + len(sent_bytes).to_bytes(4, "big") + sent_bytes
    assert feed(connection(), raw + receipt(1, 2)) == [Receipt(1, 2)]


def test_unknown_fields_are_skipped() -> None:
    part = (
        api.Success(request_id=9).SerializeToString()
        + field(900, b"new")
        + varint(901 << 3)
        + b"\x01"
    )
    sent_bytes = (
        b"\x08"
        + varint(api.Command.SUCCESS)
        + field(api.Command.SUCCESS, part)
        + field(2000, b"newer")
    )
    (event,) = feed(
        connection(),
        (len(sent_bytes) + 4).to_bytes(4, "big") + len(sent_bytes).to_bytes(4, "big") + sent_bytes,
    )
    assert event.request_id == 9


# the handshake


@pytest.mark.parametrize(
    ("method", "proxy_to"), [("none", None), ("token", "broker:6650"), ("token", None)]
)
def test_connect_has_client_features_and_credentials(method: str, proxy_to: str | None) -> None:
    """Credentials and proxy only if given."""
    conn = connection(method, [b"secret"], proxy_to)
    conn.open()
    (command,) = outgoing(conn)
    hello = command.connect
    assert (command.type, hello.client_version, hello.protocol_version) == (
        api.Command.CONNECT,
        "client 1",
        PROTOCOL_VERSION,
    )
    assert (
        hello.feature_flags.supports_auth_refresh
        and hello.feature_flags.supports_broker_entry_metadata
    )
    assert (hello.auth_method_name, hello.auth_data) == (
        ("", b"") if method == "none" else ("token", b"secret")
    )
    assert hello.proxy_to_broker_url == (proxy_to or "")
    assert hello.HasField("proxy_to_broker_url") is (proxy_to is not None)
    assert not conn.ready


def test_a_connection_is_ready_after_connected() -> None:
    conn = connection()
    (event,) = feed(conn, connected(feature_flags=api.FeatureFlags(supports_topic_watchers=True)))
    assert isinstance(event, api.Connected)
    assert (conn.ready, event.server_version, conn.max_message) == (True, "Pulsar 9", MAX_MESSAGE)
    assert (
        event.feature_flags.supports_topic_watchers
        and not event.feature_flags.supports_partial_producer
    )


@pytest.mark.parametrize("most", [1000, MAX_MESSAGE, 2 * MAX_MESSAGE])
def test_a_frame_may_be_as_long_as_the_largest_message_of_the_broker(most: int) -> None:
    """With the overhead of a frame, not longer."""
    conn = connection()
    feed(conn, connected(max_message_size=most))
    assert conn.max_message == most
    frame = most + OVERHEAD
    body = bytes(frame - (len(delivery(b"")) - 4))
    (entry,) = feed(conn, delivery(body))
    assert len(entry.body) == len(body)
    with pytest.raises(ProtocolError, match=f"a frame of {frame + 1} bytes"):
        feed(conn, delivery(body + b"x"))


def test_before_the_handshake_a_frame_has_the_default_limit() -> None:
    """No memory is allocated for a longer one."""
    with pytest.raises(ProtocolError, match=f"where 4 to {MAX_MESSAGE + OVERHEAD}"):
        feed(connection(), b"\x7f\xff\xff\xff")


# what it answers


def test_a_ping_is_answered_after_the_waiting_bytes() -> None:
    """It is no event."""
    conn = connection()
    conn.ping()
    ping = encode_command(api.Command(type=api.Command.PING, ping=api.Ping()))
    assert feed(conn, ping + receipt(1, 1) + ping) == [Receipt(1, 1)]
    assert [command.type for command in outgoing(conn)] == [
        api.Command.PING,
        api.Command.PONG,
        api.Command.PONG,
    ]
    (event,) = feed(conn, encode_command(api.Command(type=api.Command.PONG, pong=api.Pong())))
    assert isinstance(event, api.Pong)


def test_a_challenge_is_answered_with_the_current_credentials() -> None:
    conn = connection("token", [b"first", b"second", b"third"])
    conn.open()
    challenge = api.AuthChallenge(
        challenge=api.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh")
    )
    raw = encode_command(api.Command(type=api.Command.AUTH_CHALLENGE, auth_challenge=challenge))
    assert feed(conn, raw + raw) == []
    hello, *answers = outgoing(conn)
    assert hello.connect.auth_data == b"first"
    assert [answer.auth_response.response.auth_data for answer in answers] == [b"second", b"third"]
    for answer in answers:
        assert (answer.auth_response.client_version, answer.auth_response.protocol_version) == (
            "client 1",
            PROTOCOL_VERSION,
        )
        assert answer.auth_response.response.auth_method_name == "token"


# what goes out


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=20),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_all_bytes_are_sent_in_order_in_pieces_of_any_size(
    buffers: list[bytes], sizes: list[int]
) -> None:
    conn = connection()
    conn.add(memoryview(one) for one in buffers)
    conn.send(
        api.Command(type=api.Command.FLOW, flow=api.Flow(consumer_id=1, message_permits=1000))
    )
    expected = b"".join(buffers) + encode_command(
        api.Command(type=api.Command.FLOW, flow=api.Flow(consumer_id=1, message_permits=1000))
    )
    sent_bytes, turn = b"", 0
    while conn.waiting:
        part = b"".join(conn.next())[: sizes[turn % len(sizes)]]
        sent_bytes, turn = sent_bytes + part, turn + 1
        conn.sent(len(part))
    assert sent_bytes == expected
    assert conn.next() == []


def test_one_call_has_no_more_buffers_than_the_system_takes() -> None:
    conn = connection()
    conn.add([b"x"] * 2000)
    assert len(conn.next()) <= 1024
    assert drain(conn) == b"x" * 2000


def test_an_entry_is_one_frame_between_the_commands_around_it() -> None:
    conn = connection()
    conn.ping()
    conn.add(
        [
            EntrySealer.of(3, "p").seal(
                [b"ab"], sequence=4, count=1, published=publish_time(5), batched=False
            ),
            b"ab",
        ]
    )
    conn.ping()
    assert [command.type for command in outgoing(conn)] == [
        api.Command.PING,
        api.Command.SEND,
        api.Command.PING,
    ]


@pytest.mark.parametrize(
    ("most", "length"), [(100, 100 + OVERHEAD + 1), (2 * MAX_MESSAGE, 2 * MAX_MESSAGE)]
)
@pytest.mark.parametrize("sizes", [None, [7]], ids=["at once", "in pieces"])
def test_the_limit_of_connected_applies_to_the_frames_after_it_in_the_same_bytes(
    most: int, length: int, sizes: list[int] | None
) -> None:
    """Both a lower and a higher one than the default."""
    data = connected(max_message_size=most) + receipt(1, 2) + length.to_bytes(4, "big")
    if length > most + OVERHEAD:
        with pytest.raises(ProtocolError, match=f"where 4 to {most + OVERHEAD}"):
            feed(connection(), data, sizes)
    else:
        assert feed(connection(), data, sizes)[1:] == [Receipt(1, 2)]
