"""Messages that are longer than an entry may be: a producer cuts them into chunks, each an entry of its own, a consumer puts them together.

All chunks have one uuid, the sequence id, and whatever else the message's metadata says; those of one message come in order, those of
several may be mixed. A compressed message was compressed as a whole before it was cut, so that it is decompressed after it was put
together, to the ``uncompressed_size`` that every chunk names (PIP-37; what is done with chunks that do not fit is as in
``ConsumerImpl.processMessageChunk`` of Pulsar's clients).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pytest_loadtest.wire.pulsar.entries import chunk_of
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from pytest_loadtest.wire.pulsar.api_pb2 import MessageMetadata

T = TypeVar("T")


class GiveUpReason(Enum):
    """GiveUpReason a chunk is part of no message."""

    SPARE = "its message came, or comes, by other entries, or can never be whole"
    OLDEST = "more messages were incomplete than may be, and its message was the oldest of them"
    ORPHAN = "the chunks before it are not here"
    EXPIRED = "the chunks after it did not come in time"


@dataclass(frozen=True, slots=True)
class Assembled(Generic[T]):
    """A whole message. :param payload: still compressed, if it is. :param where: of its chunks, in their order."""

    payload: bytes | bytearray
    where: list[T]


class _Pending(NamedTuple, Generic[T]):
    """A message of which chunks are still to come. :param since: when the first of them came."""

    chunks: int
    size: int
    payload: bytearray
    where: list[T]
    since: int


class ChunkAssembler(Generic[T]):
    """What one consumer has of chunked messages; give it the entries whose metadata names a ``num_chunks_from_msg`` above 1.

    ``where`` is what the caller knows the entry by, and by which a chunk that the broker delivers again is told from one that was
    published twice.

    :param most: messages that may be incomplete at a time; for one more the oldest is given up.
    :ivar given_up: chunks that were dropped and will not be part of a message, each with the reason; the caller takes them out. They are to
        be acknowledged, or delivered again. Chunks that came again stand here only if they have another ``where``: the others are the very
        entries that are still needed.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._pending: dict[str, _Pending[T]] = {}  # by uuid, the oldest first
        self.given_up: list[tuple[GiveUpReason, T]] = []

    def __len__(self) -> int:
        """Messages that are incomplete."""
        return len(self._pending)

    def add(self, metadata: MessageMetadata, payload: memoryview, where: T, now: int = 0) -> Assembled[T] | None:
        """One more chunk → the message that it completes. The payload is copied.

        A first chunk begins its message anew; one that is there already is dropped; one that comes too early, or without a first, takes all
        of its message with it.

        :param now: ns, of any clock. :raises ProtocolError: the chunks contradict each other or themselves; that message is given up.
        """
        uuid, number = metadata.uuid, metadata.chunk_id
        if number == 0:
            self._begin(metadata, where, now)
        pending = self._pending.get(uuid)
        if pending is not None and number < len(pending.where):
            if where not in pending.where:
                self.given_up.append((GiveUpReason.SPARE, where))
            return None
        if pending is None or number != len(pending.where):
            self._give_up(uuid, GiveUpReason.ORPHAN)
            self.given_up.append((GiveUpReason.ORPHAN, where))
            return None
        return self._append(uuid, pending, payload, where)

    def expire(self, before: int) -> None:
        """Give up the messages whose first chunk came before this instant."""
        while self._pending:
            uuid, oldest = next(iter(self._pending.items()))
            if oldest.since >= before:
                return
            self._give_up(uuid, GiveUpReason.EXPIRED)

    def _begin(self, metadata: MessageMetadata, where: T, now: int) -> None:
        old = self._pending.get(metadata.uuid)
        if old is not None and where in old.where:  # its entries are delivered again, from the first
            del self._pending[metadata.uuid]
        self._give_up(metadata.uuid, GiveUpReason.SPARE)
        while len(self._pending) >= self._most:
            self._give_up(next(iter(self._pending)), GiveUpReason.OLDEST)
        self._pending[metadata.uuid] = _Pending(metadata.num_chunks_from_msg, metadata.total_chunk_msg_size, bytearray(), [], now)

    def _append(self, uuid: str, pending: _Pending[T], payload: memoryview, where: T) -> Assembled[T] | None:
        pending.payload.extend(payload)
        pending.where.append(where)
        so_far, last = len(pending.payload), len(pending.where) >= pending.chunks
        if so_far > pending.size or (last and so_far < pending.size):
            self._give_up(uuid, GiveUpReason.SPARE)
            raise ProtocolError(f"{len(pending.where)} of {pending.chunks} chunks have {so_far} bytes of a message of {pending.size}")
        if not last:
            return None
        del self._pending[uuid]
        return Assembled(pending.payload, pending.where)

    def _give_up(self, uuid: str, why: GiveUpReason) -> None:
        pending = self._pending.pop(uuid, None)
        if pending is not None:
            self.given_up += [(why, where) for where in pending.where]


def split_into_chunks(payload: memoryview, most: int, uuid: bytes) -> list[tuple[memoryview, bytes]]:
    """A message's payload, after compression, → the payload of each of its chunks and what their metadata says besides (``more``).

    :param payload: not empty. :param most: bytes of a chunk's payload, at least 1: what the broker takes as a message less its metadata.
    :param uuid: no other message of the topic has it; Pulsar's clients write ``producer name-sequence id``.
    """
    pieces = [payload[start : start + most] for start in range(0, len(payload), most)]
    return [(piece, chunk_of(uuid, len(pieces), len(payload), number)) for number, piece in enumerate(pieces)]
