"""The decoders of received bytes, each as a function that checks what holds for every input.

Any bytes are events or one error of the protocol, and how a stream is cut makes no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from pytest_loadtest.wire import frames
from pytest_loadtest.wire.mqtt.codec import decode_packet
from pytest_loadtest.wire.mqtt.fields import MalformedPacket
from pytest_loadtest.wire.mqtt.packets import V5, V311
from pytest_loadtest.wire.mqtt.reading import packet_size, read_packets
from pytest_loadtest.wire.pulsar import compression
from pytest_loadtest.wire.pulsar.batches import BatchReader, pending_indexes
from pytest_loadtest.wire.pulsar.chunks import ChunkAssembler
from pytest_loadtest.wire.pulsar.connection import Entry, PulsarConnection, Receipt
from pytest_loadtest.wire.pulsar.entries import field, open_entry, varint
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Target = Callable[[bytes, Sequence[int]], None]

_LARGEST = 1 << 16  # most bytes after decompression that a target asks for
_WHOLE = (1 << 30,)


def _outcome(
    read: Callable[[Sequence[int]], list[Any]], sizes: Sequence[int], error: type[Exception]
) -> None:
    """Check that the events of a stream do not depend on the sizes of its pieces."""
    outcomes = []
    for cuts in (_WHOLE, sizes):
        try:
            outcomes.append(read(cuts))
        except error:
            # Valid events in the same bytes as an error are lost, so only the error itself is the same.
            outcomes.append([error])
    assert outcomes[0] == outcomes[1]


def _feed(decoder: Any, data: bytes, sizes: Sequence[int]) -> list[Any]:
    events, start, turn = list[Any](), 0, 0
    while start < len(data):
        space = decoder.space()
        piece = data[start : start + min(len(space), sizes[turn % len(sizes)])]
        assert piece
        space[: len(piece)] = piece
        events += decoder.filled(len(piece))
        start, turn = start + len(piece), turn + 1
    return events


def _mqtt(version: int) -> Target:
    def read(data: bytes, sizes: Sequence[int]) -> list[Any]:
        messages, answers, others, rest, start, turn = (
            list[Any](),
            list[Any](),
            list[Any](),
            b"",
            0,
            0,
        )
        while start < len(data):
            rest += data[start : start + sizes[turn % len(sizes)]]
            start, turn = start + sizes[turn % len(sizes)], turn + 1
            used, came, *more = read_packets(rest, version)
            messages += [
                (qos, dup, packet_id, rest[begin:end])
                for qos, dup, packet_id, _, begin, end in came
            ]
            assert all(begin <= end <= used <= len(rest) for *_, begin, end in came)
            answers, others, rest = answers + more[0], others + more[1], rest[used:]
            needed = packet_size(rest)
            assert needed == 0 or needed > len(rest)
        return [messages, answers, others, rest]

    return lambda data, sizes: _outcome(lambda cuts: read(data, cuts), sizes, MalformedPacket)


def _packet(data: bytes, _sizes: Sequence[int]) -> None:
    for version in (V5, V311):
        try:
            decode_packet(data[0] if data else 0, data[1:], version)
        except MalformedPacket:
            continue


def _pulsar(data: bytes, sizes: Sequence[int]) -> None:
    def read(cuts: Sequence[int]) -> list[Any]:
        events = _feed(PulsarConnection("client", "token", lambda: b"secret"), data, cuts)
        for event in events:
            if isinstance(event, Entry):
                _use(event.body, event.ack_set)
        # Messages of protobuf with NaN or unknown fields compare by their bytes.
        return [
            event
            if isinstance(event, Entry | Receipt)
            else event.SerializeToString(deterministic=True)
            for event in events
        ]

    _outcome(read, sizes, ProtocolError)


def _command(data: bytes, sizes: Sequence[int]) -> None:
    """The first byte is the command's type; the frame around its part is valid."""
    kind = data[0] if data else 0
    body = b"\x08" + varint(kind) + field(kind or 1, data[1:])
    _pulsar((len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body, sizes)


def _entry(data: bytes, _sizes: Sequence[int]) -> None:
    """The first byte is the size of the metadata; size and checksum are valid."""
    guarded = bytes(3) + data
    _use(memoryview(b"\x0e\x01" + crc32c(guarded).to_bytes(4, "big") + guarded), (5, -1))


def _use(body: memoryview, ack_set: Sequence[int]) -> None:
    """Read an entry as a consumer does, whatever its metadata says."""
    try:
        metadata, payload = open_entry(body)
        if metadata.compression:
            payload = compression.decompress(
                metadata.compression, payload, min(metadata.uncompressed_size, _LARGEST)
            )
        if metadata.num_chunks_from_msg > 1:
            ChunkAssembler[int](3).add(metadata, payload, 1)
        if ack_set:
            assert len(pending_indexes(ack_set, metadata.num_messages_in_batch)) <= 64 * len(
                ack_set
            )
        _read_batch(payload, metadata.num_messages_in_batch)
    except ProtocolError:
        return


def _batch(data: bytes, _sizes: Sequence[int]) -> None:
    """The first four bytes are the number of messages."""
    try:
        _read_batch(memoryview(data[4:]), int.from_bytes(data[:4], "little", signed=True))
    except ProtocolError:
        return


def _read_batch(payload: memoryview, count: int) -> None:
    BatchReader().even(payload, count)
    messages = BatchReader().messages(payload, count)
    assert len(messages.starts) == max(count, 0)
    assert all(
        0 <= start <= start + size <= len(payload)
        for start, size in zip(messages.starts, messages.sizes, strict=True)
    )


def _compressed(data: bytes, _sizes: Sequence[int]) -> None:
    """The first byte is the compression, the next two are the size after decompression."""
    size = int.from_bytes(data[1:3], "big")
    try:
        assert (
            len(compression.decompress(data[0] if data else 0, memoryview(data[3:]), size)) == size
        )
    except ProtocolError:
        return


def _loopback(data: bytes, sizes: Sequence[int]) -> None:
    """The first frame has the current version, so that inputs stay of use when the version changes."""
    data = data[:3] + bytes([frames.VERSION]) + data[4:]

    def content(frame: frames.Frame) -> Any:
        try:
            columns = {name: column.tolist() for name, column in frame.columns.items()}
        except frames.FrameError:
            columns = {}
        return (
            frame.kind,
            frame.n,
            frame.run,
            frame.topics,
            frame.topic,
            bytes(frame.body),
            columns,
            frame.payload.tobytes(),
        )

    _outcome(
        lambda cuts: [content(frame) for frame in _feed(frames.Decoder(64), data, cuts)],
        sizes,
        frames.FrameError,
    )


TARGETS: dict[str, Target] = {
    "mqtt5": _mqtt(V5), "mqtt3": _mqtt(V311), "packet": _packet, "pulsar": _pulsar, "command": _command, "entry": _entry, "batch": _batch,
    "compressed": _compressed, "loopback": _loopback,
}  # fmt: skip
