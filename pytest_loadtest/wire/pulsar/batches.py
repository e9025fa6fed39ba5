"""The messages of a batch as columns.

Each is ``metadata size u32 | SingleMessageMetadata | payload``; they are concatenated.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata
from pytest_loadtest.wire.pulsar.entries import (
    as_text,
    field,
    property_front,
    property_value,
    varint,
)
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_U32: Final = struct.Struct(">I")
_REMEMBERED: Final = 1 << 14  # most entries of the cache of metadata
# Bytes: longer metadata has properties, rarely repeats, and would only take memory in the cache.
_WORTH: Final = 1 << 8
# Bytes of the shortest message: 4 for the size of its metadata, and in the metadata the size of an
# empty payload.
_SHORTEST: Final = 6


def prefix(
    size: int, key: bytes | None = None, property_front: bytes = b"", value_size: int = 0
) -> bytes:
    """Return the bytes before the payload of a message in a batch.

    :param size: bytes of the payload. :param key: its partition key.
    :param property_front: a property up to its value, which must follow.
    :param value_size: bytes of the value.
    """
    metadata = (b"" if key is None else field(2, key)) + b"\x18" + varint(size) + property_front
    return _U32.pack(len(metadata) + value_size) + metadata


class Single(NamedTuple):
    """The used part of a message's metadata in a batch.

    :param key: bytes that are not UTF-8 are written as ``\\xff``.
    :param value: of the property that is read; empty without it.
    """

    size: int
    key: str | None
    value: bytes = b""


class Messages(NamedTuple):
    """The messages of one batch, ``(n,)`` each.

    Starts of payloads in the batch, their sizes, their keys (None: no message has one), and the
    values of the property that is read.
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    keys: list[str | None] | None
    values: list[bytes]


class BatchReader:
    """A parser of batches.

    It caches metadata, because messages of one batch mostly have the same.

    :param name: a property of messages that is read; empty: none is.
    :param size: bytes of its usual value. Metadata is cached without such a value, which differs
        for each message.
    """

    def __init__(self, name: str = "", size: int = 0) -> None:
        self._known: dict[bytes, Single] = {}
        self._known_without_value: dict[bytes, Single] = {}
        self._name = name
        self._size = size
        self._front = property_front(1, name, size) if name else b""

    def even(self, batch: memoryview, count: int) -> int | None:
        """Return the start of the first payload if all messages can have the length of the first.

        :returns: None otherwise.

        The caller checks that all messages have the same bytes before their payloads.

        :raises ProtocolError: it is no batch.
        """
        if count < 1 or len(batch) % count:
            return None
        length = len(batch) // count
        start, single, _ = self._single(batch, 0)
        return start if start + single.size == length and single.key is None else None

    def messages(self, batch: memoryview, count: int) -> Messages:
        """Return all messages, read one by one.

        :raises ProtocolError: it is no batch of ``count`` messages.
        """
        if not 0 <= count * _SHORTEST <= len(batch):
            raise ProtocolError(f"{count} messages in a batch of {len(batch)} bytes")
        starts = np.empty(count, np.int64)
        sizes = np.empty(count, np.int32)
        keys = list[str | None]()
        values = list[bytes]()
        place = 0
        for number in range(count):
            place, single, value = self._single(batch, place)
            values.append(value)
            starts[number] = place
            sizes[number] = single.size
            keys.append(single.key)
            place += single.size
        if place != len(batch):
            raise ProtocolError(f"{count} messages take {place} bytes of a batch of {len(batch)}")
        keyed = any(key is not None for key in keys)
        return Messages(starts, sizes, keys if keyed else None, values)

    def value_start(self, metadata: bytes) -> int:
        """Return the position of a value of the usual size; -1 without one."""
        at = metadata.find(self._front) if self._front else -1
        return at + len(self._front) if at >= 0 else -1

    def _single(self, batch: memoryview, place: int) -> tuple[int, Single, bytes]:
        """Return the start of the payload of the message at ``place``, its metadata, and the value
        of the property that is read.
        """
        if place + 4 > len(batch):
            raise ProtocolError(f"a batch of {len(batch)} bytes ends at its message at {place}")
        start = place + 4 + _U32.unpack_from(batch, place)[0]
        metadata = bytes(batch[place + 4 : start])
        known = self._known
        key = metadata
        value = b""
        at = self.value_start(metadata)
        if at >= 0:
            known = self._known_without_value
            value = metadata[at : at + self._size]
            key = metadata[:at] + metadata[at + self._size :]
        single = known.get(key)
        if single is None:
            single = self._read(metadata)
            if len(metadata) <= _WORTH:
                if len(known) >= _REMEMBERED:
                    known.clear()
                known[key] = single
        if single.size < 0 or start + single.size > len(batch):
            raise ProtocolError(
                f"a message of {single.size} bytes at {start} in a batch of {len(batch)}"
            )
        return start, single, value or single.value

    def _read(self, metadata: bytes) -> Single:
        try:
            parsed = SingleMessageMetadata.FromString(metadata)
        except DecodeError as error:
            raise ProtocolError(f"a message's metadata in a batch: {error}") from error
        if not parsed.HasField("payload_size"):
            raise ProtocolError("a message's metadata in a batch lacks the size of its payload")
        return Single(
            parsed.payload_size,
            as_text(parsed.partition_key) if parsed.HasField("partition_key") else None,
            property_value(parsed, self._name) if self._name else b"",
        )


def pending_indexes(ack_set: Sequence[int], count: int) -> NDArray[np.intp]:
    """Return the indexes of the unacknowledged messages in a batch of ``count``, ascending.

    :param ack_set: the field of a MESSAGE or ACK command: 64-bit words of a ``java.util.BitSet``
        with a bit set for each message that is not acknowledged, without the last words that are 0.
        Not empty: that means in a MESSAGE that no message is acknowledged.
    """
    # Only the given words are unpacked: ``count`` is the word of a producer, and may be two
    # billion.
    return np.flatnonzero(
        np.unpackbits(np.array(ack_set, "<i8").view(np.uint8), bitorder="little")[: max(count, 0)]
    )
