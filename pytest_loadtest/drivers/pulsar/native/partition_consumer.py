"""One consumer: at each partition of its topic a subscription, what it allows the broker to send, and what it acknowledges."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from pytest_loadtest.drivers.pulsar.native.attachment import Attachment
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.chunks import ChunkAssembler, GiveUpReason
from pytest_loadtest.wire.pulsar.framing import encode_command

if TYPE_CHECKING:
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
    from pytest_loadtest.wire.pulsar.api_pb2 import MessageMetadata
    from pytest_loadtest.wire.pulsar.chunks import Assembled
    from pytest_loadtest.wire.pulsar.connection import Entry


TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
"""By the number that SUBSCRIBE has."""
_ALONE: Final = ("Exclusive", "Failover")  # one consumer gets everything, in order


class EntryId(NamedTuple):
    """Which entry: see ``api.MessageId``."""

    ledger_id: int
    entry_id: int
    partition: int


class PartitionConsumer(Attachment):
    """One consumer at one partition. Its number is its own among all of the worker's.

    :param queue: messages that it allows the broker to send ahead. :param earliest: it begins with the oldest message.
    """

    __slots__ = (
        "_chunks", "_earliest", "_epoch", "_kind", "_queue", "_settings", "_subscription", "_taken", "flowing", "owner", "to_ack",
        "waiting",
    )  # fmt: skip
    kind = "consumer"

    def __init__(
        self, owner: NativeConsumer, cluster: Cluster, topic: str, number: int, subscription: str, settings: PulsarSettings, *, queue: int,
        earliest: bool,
    ) -> None:  # fmt: skip
        super().__init__(cluster, topic, number, owner.name)
        self.owner, self._subscription, self._queue, self._earliest = owner, subscription, queue, earliest
        self._settings, self._kind = settings, settings.subscription_type
        self._epoch = 0
        self._taken, self.flowing = 0, False
        self.to_ack: list[EntryId] = []
        self.waiting: list[Entry] = []  # while it is paused
        self._chunks: ChunkedMessages[EntryId] | None = None  # from the first chunk on

    def fail(self, why: str) -> None:
        """While it comes, that concerns nobody but whoever waits for it."""
        if self.established:
            super().fail(why)
        self.owner.failure = why

    def command(self, request: int) -> api.Command:
        """Subscribe."""
        wanted = api.Subscribe(
            topic=self.topic, subscription=self._subscription, sub_type=TYPES.index(self._kind), consumer_id=self.number,
            request_id=request, durable=True, initial_position=int(self._earliest),
        )  # fmt: skip
        if self._epoch:
            wanted.consumer_epoch = self._epoch
        if self._kind == "Key_Shared":
            wanted.key_shared_meta.key_shared_mode = 0
        return api.Command(type=api.Command.SUBSCRIBE, subscribe=wanted)

    def attached(self, answer: Any) -> None:
        """What waits here comes again; what was taken is acknowledged before anything comes, as otherwise it would come twice."""
        self.waiting.clear()
        self.acknowledge()
        self._chunks = None
        if self.flowing:
            self.flow()

    def is_stale(self, entry: Entry) -> bool:
        """Whether it was on its way when everything was asked for again, and comes once more."""
        return 0 <= entry.epoch < self._epoch

    def assemble(self, metadata: api.MessageMetadata, payload: memoryview, where: EntryId, now: int) -> memoryview | None:
        """One more chunk → the whole message that it completes, whose chunks are to be acknowledged.

        :raises ProtocolError: the chunks contradict each other.
        """
        if self._chunks is None:
            self._chunks = ChunkedMessages(self._settings)
        try:
            whole = self._chunks.add(metadata, payload, where, now, time.time_ns())
        finally:
            self._take_out(self._chunks)
        if whole is None:
            return None
        self.to_ack += whole.where
        return memoryview(whole.payload)

    def _take_out(self, chunks: ChunkedMessages[EntryId]) -> None:
        self.to_ack += chunks.to_ack
        chunks.to_ack.clear()

    def look(self, now: int) -> bool:
        """After incomplete messages. :returns: whether there still are any."""
        if self._chunks is None:
            return False
        again = self._chunks.look(now)
        self._take_out(self._chunks)
        self.acknowledge()
        if again:
            self._redeliver(again)
        return self._chunks.waits

    def _redeliver(self, wanted: list[EntryId]) -> None:
        """Ask for these again. A sole consumer is sent all that is not acknowledged; what is on its way by then is known by its epoch."""
        again = api.RedeliverUnacknowledged(consumer_id=self.number)
        if self._kind in _ALONE:
            self._epoch += 1
            again.consumer_epoch = self._epoch
        else:
            for each in wanted:
                again.message_ids.add(**each._asdict())
        self.write(api.Command(type=api.Command.REDELIVER_UNACKNOWLEDGED, redeliver_unacknowledged=again))

    def flow(self) -> None:
        """Let the broker send as much as the queue takes."""
        self.flowing, self._taken = True, 0
        self._allow(self._queue)

    def took(self, messages: int) -> None:
        """So many of the messages that were allowed came, and there is room for as many."""
        self._taken += messages
        if 2 * self._taken >= self._queue:
            taken, self._taken = self._taken, 0
            self._allow(taken)

    def _allow(self, messages: int) -> None:
        self.write(api.Command(type=api.Command.FLOW, flow=api.Flow(consumer_id=self.number, message_permits=messages)))

    def acknowledge(self) -> None:
        """Tell the broker what was taken; one id stands for all before it where one consumer gets everything in order, and whole."""
        if not self.to_ack or self.link is None:
            return
        cumulative = self._chunks is None and self._kind in _ALONE
        ids = self.to_ack[-1:] if cumulative else self.to_ack
        ack = api.Ack(consumer_id=self.number, ack_type=int(cumulative))
        for each in ids:
            ack.message_id.add(**each._asdict())
        self.to_ack.clear()
        self.write(api.Command(type=api.Command.ACK, ack=ack))

    def write(self, command: api.Command) -> None:
        """Put a command on its connection; :class:`NativeConsumers` sends it at the end of the turn."""
        if self.link is not None:
            self.link.connection.add((encode_command(command),))
            self.owner.written.add(self.link)


class NativeConsumer:
    """One consumer, at all partitions of its topic.

    :ivar number: in the run. :ivar place: -1 until it is established. :ivar failure: why it cannot come.
    """

    def __init__(self, number: int, name: str, written: set[Any]) -> None:
        self.number, self.name, self.written, self.place, self.failure = number, name, written, -1, ""
        self.parts: list[PartitionConsumer] = []
        self.paused = False

    @property
    def established(self) -> bool:
        return all(part.established for part in self.parts)


# What one consumer at one partition has of messages in chunks, and what becomes of those that stay incomplete: as Pulsar's clients do.

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
        self._acked = {GiveUpReason.SPARE, GiveUpReason.EXPIRED}
        if settings.auto_ack_oldest_chunked_message_on_queue_full:
            self._acked.add(GiveUpReason.OLDEST)
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
            self._settle(now, self._acked | {GiveUpReason.ORPHAN} if late else self._acked)

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

    def _settle(self, now: int, acked: set[GiveUpReason]) -> None:
        given_up, self._assembler.given_up = self._assembler.given_up, []
        for why, where in given_up:
            if why in acked:
                self.to_ack.append(where)
            elif self._timeout:
                self._left[where] = now
