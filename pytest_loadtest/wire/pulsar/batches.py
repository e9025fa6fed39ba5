"""The messages of a batch: ``metadata size u32 | SingleMessageMetadata | payload`` each, end to end; as columns."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata
from pytest_loadtest.wire.pulsar.entries import field, varint
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_U32: Final = struct.Struct(">I")
_REMEMBERED: Final = 1 << 14
_WORTH: Final = 1 << 8  # bytes; longer metadata has properties, is hardly the same twice, and would only take memory
_SHORTEST: Final = 6  # bytes: the size of the metadata, and in it the size of an empty payload


def prefix(size: int, key: bytes | None = None) -> bytes:
    """What stands before the payload of a message in a batch. :param size: of the payload. :param key: its partition key."""
    metadata = (b"" if key is None else field(2, key)) + b"\x18" + varint(size)
    return _U32.pack(len(metadata)) + metadata


class Single(NamedTuple):
    """A message's own metadata in a batch, as far as it is asked for. :param key: what in it is not UTF-8 is written as ``\\xff``."""

    size: int
    key: str | None


class Messages(NamedTuple):
    """Messages of one batch, ``(n,)`` each: where payloads begin in it, their bytes, their keys (None: none has one)."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    keys: list[str | None] | None


class BatchReader:
    """Finds the messages of batches. What stands before a message is mostly what stood before the one before it, so it is remembered."""

    def __init__(self) -> None:
        self._known: dict[bytes, Single] = {}

    def even(self, batch: memoryview, count: int) -> int | None:
        """Where the payload of the first message begins, if all messages look as long as the first; None: some are not.

        The caller sees to it that what stands before the payloads is the same for all.

        :raises ProtocolError: it is no batch.
        """
        if count < 1 or len(batch) % count:
            return None
        length = len(batch) // count
        start, single = self._single(batch, 0)
        return start if start + single.size == length and single.key is None else None

    def messages(self, batch: memoryview, count: int) -> Messages:
        """All of them, one after the other.

        :raises ProtocolError: it is no batch of so many messages.
        """
        if not 0 <= count * _SHORTEST <= len(batch):
            raise ProtocolError(f"{count} messages in a batch of {len(batch)} bytes")
        starts, sizes, keys = np.empty(count, np.int64), np.empty(count, np.int32), list[str | None]()
        place = 0
        for number in range(count):
            place, single = self._single(batch, place)
            starts[number], sizes[number] = place, single.size
            keys.append(single.key)
            place += single.size
        if place != len(batch):
            raise ProtocolError(f"{count} messages take {place} bytes of a batch of {len(batch)}")
        return Messages(starts, sizes, keys if any(key is not None for key in keys) else None)

    def _single(self, batch: memoryview, place: int) -> tuple[int, Single]:
        """Where the payload of the message at ``place`` begins, and what is said of it."""
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
            raise ProtocolError(f"a message of {single.size} bytes at {start} in a batch of {len(batch)}")
        return start, single


def _read(metadata: bytes) -> Single:
    try:
        found = SingleMessageMetadata.FromString(metadata)
    except DecodeError as error:
        raise ProtocolError(f"a message's metadata in a batch: {error}") from error
    if not found.HasField("payload_size"):
        raise ProtocolError("a message's metadata in a batch does not say how long its payload is")
    return Single(found.payload_size, _text(found.partition_key) if found.HasField("partition_key") else None)


def _text(key: str | bytes) -> str:
    """Protobuf's parser gives bytes where a text is not UTF-8."""
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")


def pending_mask(ack_set: Sequence[int], count: int) -> NDArray[np.bool_]:
    """Of a batch of ``count`` messages those that the subscription still wants, ``(count,)``.

    :param ack_set: as a MESSAGE or ACK command has it: 64-bit words of a ``java.util.BitSet``, a bit set for each message that is still
        to be consumed, without the words at its end that are 0. Empty in a MESSAGE: all are, nothing of the batch was acknowledged.
    """
    if not ack_set:
        return np.ones(count, np.bool_)
    bits = np.unpackbits(np.array(ack_set, "<i8").view(np.uint8), count=count, bitorder="little")
    return bits.view(np.bool_)
