"""What one consumer at one partition has of messages in chunks, and what becomes of those that stay incomplete: as Pulsar's clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.pulsar.chunks import ChunkAssembler, Why

if TYPE_CHECKING:
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
    from pytest_loadtest.wire.pulsar.api_pb2 import MessageMetadata
    from pytest_loadtest.wire.pulsar.chunks import Assembled

T = TypeVar("T")


class ChunkedMessages(Generic[T]):
    """Incomplete messages beyond ``maxPendingChunkedMessage``, the oldest first, and chunks without those before them are left
    unacknowledged; with ``autoAckOldestChunkedMessageOnQueueFull`` the former are acknowledged. What is left is asked for again after
    ``unackedMessagesTimeout``. What stays incomplete for ``expireTimeOfIncompleteChunkedMessage`` is acknowledged.

    :ivar to_ack: chunks that are of no use any more. The caller takes them out.
    """

    def __init__(self, settings: PulsarSettings) -> None:
        self._assembler: ChunkAssembler[T] = ChunkAssembler(settings.max_pending_chunked_message)
        self._expiry, self._timeout = settings.expire_time_of_incomplete_chunked_message, settings.unacked_messages_timeout
        self._acked = {Why.SPARE, Why.EXPIRED}
        if settings.auto_ack_oldest_chunked_message_on_queue_full:
            self._acked.add(Why.OLDEST)
        self._left: dict[T, int] = {}  # since when, ns; the oldest first
        self.to_ack: list[T] = []

    def add(self, metadata: MessageMetadata, payload: memoryview, where: T, now: int, wall: int) -> Assembled[T] | None:
        """One more chunk → the whole message that it completes, whose chunks are to be acknowledged.

        :param now: ns, as of the driver. :param wall: ns since 1970, with which a chunk's time of publishing is compared.
        :raises ProtocolError: the chunks contradict each other.
        """
        self._left.pop(where, None)
        try:
            return self._assembler.add(metadata, payload, where, now)
        finally:
            late = metadata.publish_time * MILLISECOND + self._expiry < wall
            self._settle(now, self._acked | {Why.ORPHAN} if late else self._acked)

    def look(self, now: int) -> list[T]:
        """Give up what has expired. :returns: chunks that are to come again now."""
        self._assembler.expire(now - self._expiry)
        self._settle(now, self._acked)
        if not self._timeout:
            return []
        again = [where for where, since in self._left.items() if since <= now - self._timeout]
        for where in again:
            del self._left[where]
        return again

    @property
    def waits(self) -> bool:
        """Whether :meth:`look` will have anything to do."""
        return len(self._assembler) > 0 or len(self._left) > 0

    def _settle(self, now: int, acked: set[Why]) -> None:
        given_up, self._assembler.given_up = self._assembler.given_up, []
        for why, where in given_up:
            if why in acked:
                self.to_ack.append(where)
            elif self._timeout:
                self._left[where] = now
