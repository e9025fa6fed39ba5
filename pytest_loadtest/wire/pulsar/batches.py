"""The messages of a batch as columns.

Each is ``metadata size u32 | SingleMessageMetadata | payload``; they are concatenated.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata
from pytest_loadtest.wire.pulsar.entries import as_text, field, varint
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


def prefix(size: int, key: bytes | None = None) -> bytes:
    """Return the bytes before the payload of a message in a batch.

    :param size: bytes of the payload. :param key: its partition key.
    """
    metadata = (b"" if key is None else field(2, key)) + b"\x18" + varint(size)
    return _U32.pack(len(metadata)) + metadata


class Single(NamedTuple):
    """The used part of a message's metadata in a batch.

    :param key: bytes that are not UTF-8 are written as ``\\xff``.
    """

    size: int
    key: str | None


class Messages(NamedTuple):
    """The messages of one batch, ``(n,)`` each.

    Starts of payloads in the batch, their sizes, and their keys (None: no message has one).
    """

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    keys: list[str | None] | None


class BatchReader:
    """A parser of batches.

    It caches metadata, because messages of one batch mostly have the same.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Single] = {}

    def even(self, batch: memoryview, count: int) -> int | None:
        """Return the start of the first payload if all messages can have the length of the first.

        :returns: None otherwise.

        The caller checks that all messages have the same bytes before their payloads.

        :raises ProtocolError: it is no batch.
        """
        if count < 1 or len(batch) % count:
            return None
        length = len(batch) // count
        start, single = self._single(batch, 0)
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
        place = 0
        for number in range(count):
            place, single = self._single(batch, place)
            starts[number] = place
            sizes[number] = single.size
            keys.append(single.key)
            place += single.size
        if place != len(batch):
            raise ProtocolError(f"{count} messages take {place} bytes of a batch of {len(batch)}")
        keyed = any(key is not None for key in keys)
        return Messages(starts, sizes, keys if keyed else None)

    def _single(self, batch: memoryview, place: int) -> tuple[int, Single]:
        """Return the start of the payload of the message at ``place``, and its metadata."""
        if place + 4 > len(batch):
            raise ProtocolError(f"a batch of {len(batch)} bytes ends at its message at {place}")
        start = place + 4 + _U32.unpack_from(batch, place)[0]
        metadata = bytes(batch[place + 4 : start])
        single = self._known.get(metadata)
        if single is None:
            single = _read(metadata)
            if len(metadata) <= _WORTH:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[metadata] = single
        if single.size < 0 or start + single.size > len(batch):
            raise ProtocolError(
                f"a message of {single.size} bytes at {start} in a batch of {len(batch)}"
            )
        return start, single


def _read(metadata: bytes) -> Single:
    try:
        parsed = SingleMessageMetadata.FromString(metadata)
    except DecodeError as error:
        raise ProtocolError(f"a message's metadata in a batch: {error}") from error
    if not parsed.HasField("payload_size"):
        raise ProtocolError("a message's metadata in a batch lacks the size of its payload")
    return Single(
        parsed.payload_size,
        as_text(parsed.partition_key) if parsed.HasField("partition_key") else None,
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
