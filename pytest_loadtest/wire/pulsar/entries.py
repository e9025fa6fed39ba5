"""Entries, the units that a topic stores: one message or a batch with one metadata and a CRC.

On the wire, after the command::

    [0x0e02 | size u32 | broker entry metadata]
    0x0e01 | CRC32-C u32 | metadata size u32 | MessageMetadata | payload

The CRC covers all bytes after it. The commands and metadata of an entry have a few fields and are
written without protobuf, for speed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c
from google.protobuf.message import DecodeError

from pytest_loadtest.values.records import immutable
from pytest_loadtest.wire.pulsar.api_pb2 import MessageMetadata
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata

_MAGIC: Final = 0x0E01
_BROKER: Final = 0x0E02
_SIZES: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">HI")
_U32: Final = struct.Struct(">I")
# The varints of one byte, which are most of them, are looked up.
_SHORT: Final = tuple(bytes((number,)) for number in range(0x80))


class CorruptEntryError(ProtocolError):
    """The CRC of an entry does not match: it was damaged in transfer or storage.

    :param messages: number of its messages, by metadata that may be damaged too.
    """

    def __init__(self, messages: int) -> None:
        super().__init__("an entry does not match its CRC32-C")
        self.messages = messages


def varint(number: int) -> bytes:
    """Return protobuf's encoding of an unsigned number."""
    if number < 0x80:
        return _SHORT[number]
    # Fast paths without a loop: sequence ids, counts and sizes.
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x20_0000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    if number < 0x1000_0000:
        return bytes(
            (
                number & 0x7F | 0x80,
                number >> 7 & 0x7F | 0x80,
                number >> 14 & 0x7F | 0x80,
                number >> 21,
            )
        )
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def field(number: int, value: bytes) -> bytes:
    """Return protobuf's encoding of a field of bytes or text."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def property_front(number: int, name: str, size: int) -> bytes:
    """Return protobuf's encoding of a property up to its value.

    :param number: of the field: 4 in the metadata of an entry, 1 in that of a message in a batch.
    :param size: bytes of the value.
    """
    pair = field(1, name.encode()) + b"\x12" + varint(size)
    return varint(number << 3 | 2) + varint(len(pair) + size) + pair


def property_value(metadata: MessageMetadata | SingleMessageMetadata, name: str) -> bytes:
    """Return the value of a property, empty without it."""
    for pair in metadata.properties:
        if pair.key == name:
            value: str | bytes = pair.value
            return value if isinstance(value, bytes) else value.encode()
    return b""


@immutable
class EntrySealer:
    """The common part of all entries of one producer at one partition."""

    name: bytes
    command: bytes
    metadata: bytes

    @classmethod
    def of(cls, producer: int, name: str) -> EntrySealer:
        """:param producer: its number on the connection. :param name: its name at the broker."""
        return cls(
            name.encode(), b"\x08" + varint(producer) + b"\x10", field(1, name.encode()) + b"\x10"
        )

    def uuid(self, sequence: int) -> bytes:
        """Return the uuid of a message in chunks: ``producer name-sequence id``.

        Pulsar's clients make it in the same way.
        """
        return b"%s-%d" % (self.name, sequence)

    def seal(
        self,
        payload: Sequence[bytes | memoryview],
        *,
        sequence: int,
        count: int,
        published: bytes,
        batched: bool,
        more: bytes = b"",
        chunk: bool = False,
    ) -> bytes:
        """Return the frame of an entry up to its payload, which must follow unchanged.

        :param sequence: sequence id of its first message. :param count: number of messages.
        :param published: :func:`publish_time`.
        :param batched: the payload is a batch.
        :param more: additional fields of its metadata; protobuf takes fields in any order.
        """
        # The tags below are protobuf's ``field number << 3 | wire type``, of CommandSend and
        # MessageMetadata in PulsarApi.proto.
        number = varint(sequence)
        command = self.command + number
        metadata = self.metadata + number + published + more
        if batched:
            several = varint(count)
            metadata += b"\x58" + several
            # A batch of several messages names the sequence id of its last one, in the command and
            # in the metadata.
            if count > 1:
                highest = varint(sequence + count - 1)
                command += b"\x18" + several + b"\x30" + highest
                metadata += b"\xc0\x01" + highest
        if chunk:
            command += b"\x38\x01"
        guarded = _U32.pack(len(metadata)) + metadata
        # The checksum is continued over the parts, so that large payloads need not be joined.
        check = crc32c(guarded)
        length = 0
        for part in payload:
            check = crc32c(part, check)
            length += len(part)
        command = b"\x08\x06\x32" + varint(len(command)) + command
        total = 4 + len(command) + _HEAD.size + len(guarded) + length
        return _SIZES.pack(total, len(command)) + command + _HEAD.pack(_MAGIC, check) + guarded


def publish_time(ms: int) -> bytes:
    """Return the metadata's field 3. :param ms: since 1970."""
    return b"\x18" + varint(ms)


def compressed(number: int, size: int) -> bytes:
    """Return the metadata's fields 8 and 9. :param size: bytes before compression."""
    return b"\x40" + varint(number) + b"\x48" + varint(size)


def deliver_at(ms: int) -> bytes:
    """Return the metadata's field 19. :param ms: since 1970."""
    return b"\x98\x01" + varint(ms)


def chunk_of(uuid: bytes, chunks: int, total: int, number: int) -> bytes:
    """Return the metadata's fields 26 to 29.

    :param total: bytes of the whole message. :param number: number of this chunk, from 0.
    """
    return (
        b"\xd2\x01"
        + varint(len(uuid))
        + uuid
        + b"\xd8\x01"
        + varint(chunks)
        + b"\xe0\x01"
        + varint(total)
        + b"\xe8\x01"
        + varint(number)
    )


def as_text(value: str | bytes) -> str:
    """Return a text of a metadata.

    Bytes that are not UTF-8, which protobuf's parser returns as bytes, are written as ``\\xff``.
    """
    return value if isinstance(value, str) else value.decode(errors="backslashreplace")


def open_entry(body: memoryview) -> tuple[MessageMetadata, memoryview]:
    """Return the metadata and the payload, as it was sent, from the bytes after a MESSAGE command.

    The payload is a batch if the metadata *has* ``num_messages_in_batch``, even 1; a chunk if
    ``num_chunks_from_msg`` is above 1.

    :raises CorruptEntryError: the CRC does not match. :raises ProtocolError: it is no entry.
    """
    try:
        magic, number = _HEAD.unpack_from(body)
        start = 0
        # A broker may add metadata of its own in front
        # (FeatureFlags.supports_broker_entry_metadata); nothing in it is needed.
        if magic == _BROKER:
            start = _HEAD.size + number
            magic, number = _HEAD.unpack_from(body, start)
        # The checksum is optional: without its magic the entry begins with the size of the
        # metadata.
        if magic == _MAGIC:
            start += _HEAD.size
            if crc32c(body[start:]) != number:
                raise CorruptEntryError(_stated_messages(body[start:]))
        (size,) = _U32.unpack_from(body, start)
        start += 4
        if start + size > len(body):
            raise ProtocolError(f"metadata of {size} bytes in an entry of {len(body)}")
        metadata = MessageMetadata.FromString(bytes(body[start : start + size]))
    except (struct.error, DecodeError) as error:
        raise ProtocolError(f"an entry of {len(body)} bytes: {error}") from error
    if not metadata.IsInitialized():
        # Protobuf's parser does not check required fields.
        raise ProtocolError("an entry's metadata without a required field")
    if metadata.num_messages_in_batch < 0:
        raise ProtocolError(f"{metadata.num_messages_in_batch} messages in an entry")
    return metadata, body[start + size :]


def _stated_messages(guarded: memoryview) -> int:
    try:
        # What a checksum covers is an entry without one.
        return max(open_entry(guarded)[0].num_messages_in_batch, 1)
    except ProtocolError:
        return 1
