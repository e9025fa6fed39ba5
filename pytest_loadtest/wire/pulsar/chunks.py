"""Messages larger than an entry may be.

A producer splits them into chunks, each an entry of its own, and a consumer assembles them.

All chunks of a message have its uuid, sequence id and other metadata. They arrive in order, but
mixed with chunks of other messages. A message is compressed before it is split, and decompressed
after it is assembled, to the ``uncompressed_size`` in every chunk (PIP-37; unexpected chunks are
handled as in ``ConsumerImpl.processMessageChunk`` of Pulsar's clients).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pytest_loadtest.values.records import immutable
from pytest_loadtest.wire.pulsar.entries import chunk_of
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from pytest_loadtest.wire.pulsar.api_pb2 import MessageMetadata

T = TypeVar("T")


class GiveUpReason(Enum):
    """The reasons for which chunks are given up."""

    SPARE = "its message is complete, or is assembled from other entries, or can never be complete"
    OLDEST = "too many messages were incomplete, and its message was the oldest of them"
    ORPHAN = "the chunks before it are missing"
    EXPIRED = "the chunks after it did not arrive in time"


@immutable
class Assembled(Generic[T]):
    """A whole message.

    :param payload: not decompressed. :param where: the ids of its chunks, in order.
    """

    payload: bytes | bytearray
    where: list[T]


class _Pending(NamedTuple, Generic[T]):
    """An incomplete message. :param since: the time of its first chunk."""

    chunks: int
    size: int
    payload: bytearray
    where: list[T]
    since: int


class ChunkAssembler(Generic[T]):
    """The incomplete messages of one consumer.

    Add the entries whose ``num_chunks_from_msg`` is above 1.

    ``where`` is the caller's id of an entry. It distinguishes a chunk that the broker delivers
    again from one that was published twice.

    :param most: most messages that may be incomplete at a time; for one more the oldest is given
        up. :ivar given_up: the dropped chunks, each with the reason; the caller removes them, and
        acknowledges them or lets them be delivered again. A chunk that was delivered again with the
        same ``where`` is not here: its entry is still needed.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._pending: dict[str, _Pending[T]] = {}  # by uuid, the oldest first
        self.given_up: list[tuple[GiveUpReason, T]] = []

    def __len__(self) -> int:
        """Return the number of incomplete messages."""
        return len(self._pending)

    def add(
        self, metadata: MessageMetadata, payload: memoryview, where: T, now: int = 0
    ) -> Assembled[T] | None:
        """Add a chunk, and return the message if it completes one. The payload is copied.

        A first chunk starts its message again; a chunk that is present already is dropped; for a
        chunk out of order, or without a first chunk, the whole message is given up.

        :param now: ns, of any clock.
        :raises ProtocolError: the chunks contradict each other; the message is given up.
        """
        uuid = metadata.uuid
        number = metadata.chunk_id
        if not 0 <= number < metadata.num_chunks_from_msg:
            self.given_up.append((GiveUpReason.SPARE, where))
            raise ProtocolError(f"chunk {number} of {metadata.num_chunks_from_msg}")
        if number == 0:
            self._begin(metadata, where, now)
        pending = self._pending.get(uuid)
        if pending is not None and number < len(pending.where):
            if where != pending.where[number]:
                self.given_up.append((GiveUpReason.SPARE, where))
            return None
        # A gap: the missing chunk was lost or belongs to a message that was given up, so this
        # message can never be complete.
        if pending is None or number != len(pending.where):
            self._give_up(uuid, GiveUpReason.ORPHAN)
            self.given_up.append((GiveUpReason.ORPHAN, where))
            return None
        return self._append(uuid, pending, payload, where)

    def expire(self, before: int) -> None:
        """Give up the messages whose first chunk arrived before this time."""
        while self._pending:
            uuid, oldest = next(iter(self._pending.items()))
            if oldest.since >= before:
                return
            self._give_up(uuid, GiveUpReason.EXPIRED)

    def _begin(self, metadata: MessageMetadata, where: T, now: int) -> None:
        old = self._pending.get(metadata.uuid)
        if old is not None and old.where[:1] == [where]:
            # The broker delivers the entries of this message again, from the first one on.
            del self._pending[metadata.uuid]
        self._give_up(metadata.uuid, GiveUpReason.SPARE)
        while len(self._pending) >= self._most:
            self._give_up(next(iter(self._pending)), GiveUpReason.OLDEST)
        self._pending[metadata.uuid] = _Pending(
            metadata.num_chunks_from_msg, metadata.total_chunk_msg_size, bytearray(), [], now
        )

    def _append(
        self, uuid: str, pending: _Pending[T], payload: memoryview, where: T
    ) -> Assembled[T] | None:
        pending.payload.extend(payload)
        pending.where.append(where)
        so_far = len(pending.payload)
        last = len(pending.where) >= pending.chunks
        if so_far > pending.size or (last and so_far < pending.size):
            self._give_up(uuid, GiveUpReason.SPARE)
            raise ProtocolError(
                f"{len(pending.where)} of {pending.chunks} chunks have {so_far} bytes of a"
                f" message of {pending.size}"
            )
        if not last:
            return None
        del self._pending[uuid]
        return Assembled(pending.payload, pending.where)

    def _give_up(self, uuid: str, why: GiveUpReason) -> None:
        pending = self._pending.pop(uuid, None)
        if pending is not None:
            self.given_up += [(why, where) for where in pending.where]


def split_into_chunks(
    payload: memoryview, most: int, uuid: bytes
) -> list[tuple[memoryview, bytes]]:
    """Return the payload of each chunk, and the additional fields of its metadata (``more``).

    :param payload: after compression; not empty.
    :param most: most bytes of a chunk's payload, at least 1: the broker's limit for a message less
        the metadata.
    :param uuid: unique in the topic; Pulsar's clients write ``producer name-sequence id``.
    """
    pieces = [payload[start : start + most] for start in range(0, len(payload), most)]
    return [
        (piece, chunk_of(uuid, len(pieces), len(payload), number))
        for number, piece in enumerate(pieces)
    ]
