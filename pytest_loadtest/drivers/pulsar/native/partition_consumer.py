"""One consumer: its subscription at each partition of its topic.

It has permits, acknowledgements and messages in chunks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from pytest_loadtest.drivers.pulsar.native.attachment import Attachment
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.chunks import Assembled, ChunkAssembler, GiveUpReason
from pytest_loadtest.wire.pulsar.framing import encode_command

if TYPE_CHECKING:
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
    from pytest_loadtest.wire.pulsar.api_pb2 import MessageMetadata
    from pytest_loadtest.wire.pulsar.connection import Entry


# Subscription types, in the order of their numbers in SUBSCRIBE.
TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
# A broker may exceed the permits a little after a redelivery; twice as many is no such case.
_SLACK: Final = 2
# Types under which one consumer gets all messages of a partition, in order.
_ALONE: Final = ("Exclusive", "Failover")


class EntryId(NamedTuple):
    """The id of an entry: see ``api.MessageId``."""

    ledger_id: int
    entry_id: int
    partition: int


class PartitionConsumer(Attachment):
    """One consumer at one partition, with a number that is unique in the worker.

    :ivar output: the number of its topic among several output topics of a route; 0 if there is one.
    :ivar queue: messages that it permits the broker to send ahead.
    :param earliest: begin with the oldest message.
    """

    __slots__ = (
        "_chunks",
        "_earliest",
        "_epoch",
        "_kind",
        "_settings",
        "_subscription",
        "_taken",
        "flowing",
        "output",
        "owner",
        "queue",
        "to_ack",
        "waiting",
    )
    kind = "consumer"

    def __init__(
        self,
        owner: NativeConsumer,
        cluster: Cluster,
        topic: str,
        number: int,
        subscription: str,
        settings: PulsarSettings,
        *,
        queue: int,
        earliest: bool,
        output: int = 0,
    ) -> None:
        super().__init__(cluster, topic, number, owner.name)
        self.owner = owner
        self._subscription = subscription
        self.queue = queue
        self.output = output
        self._earliest = earliest
        self._settings = settings
        self._kind = settings.subscription_type
        self._epoch = 0
        self._taken = 0
        self.flowing = False
        self.to_ack: list[EntryId] = []
        # Entries that came while it is paused, each with its number in the order of arrival over
        # all consumers.
        self.waiting: list[tuple[int, Entry]] = []
        self._chunks: ChunkedMessages[EntryId] | None = None  # made with the first chunk

    def fail(self, why: str) -> None:
        """Report a failure.

        It is of the run if the consumer was established before, otherwise only of its own attach.
        """
        if self.established:
            super().fail(why)
        self.owner.failure = why

    def command(self, request: int) -> api.Command:
        """Return SUBSCRIBE."""
        part = api.Subscribe(
            topic=self.topic,
            subscription=self._subscription,
            sub_type=TYPES.index(self._kind),
            consumer_id=self.number,
            request_id=request,
            durable=True,
            initial_position=int(self._earliest),
        )
        if self._epoch:
            part.consumer_epoch = self._epoch
        if self._kind == "Key_Shared":
            part.key_shared_meta.key_shared_mode = 0
        return api.Command(type=api.Command.SUBSCRIBE, subscribe=part)

    def attached(self, answer: Any) -> None:
        """Acknowledge what was taken on the lost connection, then let messages flow again."""
        # The broker delivers waiting messages again. The acknowledgements must precede FLOW, or it
        # would deliver the taken ones too.
        self.waiting.clear()
        self.acknowledge()
        self._chunks = None
        if self.flowing:
            self.flow()

    def is_stale(self, entry: Entry) -> bool:
        """Return whether the entry was sent before a request to redeliver everything.

        It is delivered once more (PIP-84).
        """
        return 0 <= entry.epoch < self._epoch

    def assemble(
        self, metadata: api.MessageMetadata, payload: memoryview, where: EntryId, now: int
    ) -> memoryview | None:
        """Add a chunk; return the whole message if it completes one.

        Its chunks are then acknowledged.

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
        """Check incomplete messages for expiry and redelivery.

        :returns: whether there still are any.
        """
        if self._chunks is None:
            return False
        again = self._chunks.look(now)
        self._take_out(self._chunks)
        self.acknowledge()
        if again:
            self._redeliver(again)
        return self._chunks.waits

    def _redeliver(self, ids: list[EntryId]) -> None:
        """Request entries again."""
        # A sole consumer gets everything that is not acknowledged again. Entries that were already
        # sent have the earlier epoch (PIP-84).
        again = api.RedeliverUnacknowledged(consumer_id=self.number)
        if self._kind in _ALONE:
            self._epoch += 1
            again.consumer_epoch = self._epoch
        else:
            for each in ids:
                again.message_ids.add(**each._asdict())
        self.write(
            api.Command(type=api.Command.REDELIVER_UNACKNOWLEDGED, redeliver_unacknowledged=again)
        )

    def flow(self) -> None:
        """Permit the broker to send as many messages as the queue takes."""
        self.flowing = True
        self._taken = 0
        self._allow(self.queue)

    @property
    def has_room(self) -> bool:
        """True while the entries that wait are not more than permitted.

        An entry has one message or more.
        """
        return len(self.waiting) < _SLACK * self.queue

    def took(self, messages: int) -> None:
        """Count taken messages; permit as many again once half of the queue is empty."""
        self._taken += messages
        self.progress = True
        if 2 * self._taken >= self.queue:
            taken = self._taken
            self._taken = 0
            self._allow(taken)

    def _allow(self, messages: int) -> None:
        self.write(
            api.Command(
                type=api.Command.FLOW,
                flow=api.Flow(consumer_id=self.number, message_permits=messages),
            )
        )

    def acknowledge(self) -> None:
        """Acknowledge the taken entries."""
        # Cumulative if one consumer gets all messages in order and no message is in chunks: the
        # last id then covers all before it.
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
        """Append a command to the connection.

        :class:`NativeConsumers` writes it at the end of the turn.
        """
        if self.link is not None:
            self.link.connection.add((encode_command(command),))
            self.owner.written.add(self.link)


class NativeConsumer:
    """One consumer, at all partitions of its topic.

    :ivar number: its number in the run.
    :ivar place: -1 until it is established.
    :ivar failure: why it cannot subscribe; '' if it can.
    """

    def __init__(self, number: int, name: str, written: set[Any]) -> None:
        self.number = number
        self.name = name
        self.written = written
        self.place = -1
        self.failure = ""
        self.parts: list[PartitionConsumer] = []
        self.paused = False

    @property
    def established(self) -> bool:
        return all(part.established for part in self.parts)


# Messages in chunks at one consumer and partition; incomplete
# messages are handled as in Pulsar's clients.

T = TypeVar("T")


class ChunkedMessages(Generic[T]):
    """The assembly of chunks, with the profile's keys for incomplete messages.

    Beyond ``maxPendingChunkedMessage`` the oldest incomplete message is given up, and so are chunks
    without those before them. Both stay unacknowledged; with
    ``autoAckOldestChunkedMessageOnQueueFull`` the former are acknowledged. Unacknowledged chunks
    are requested again after ``unackedMessagesTimeout``. A message incomplete for
    ``expireTimeOfIncompleteChunkedMessage`` is acknowledged.

    :ivar to_ack: chunks to acknowledge, as they are no longer needed. The caller removes them.
    """

    def __init__(self, settings: PulsarSettings) -> None:
        self._assembler: ChunkAssembler[T] = ChunkAssembler(settings.max_pending_chunked_message)
        self._expiry = settings.expire_time_of_incomplete_chunked_message
        self._timeout = settings.unacked_messages_timeout
        self._acked = {GiveUpReason.SPARE, GiveUpReason.EXPIRED}
        if settings.auto_ack_oldest_chunked_message_on_queue_full:
            self._acked.add(GiveUpReason.OLDEST)
        self._left: dict[
            T, int
        ] = {}  # unacknowledged chunk → time when it was given up, ns; the oldest first
        self.to_ack: list[T] = []

    def add(
        self, metadata: MessageMetadata, payload: memoryview, where: T, now: int, wall: int
    ) -> Assembled[T] | None:
        """Add a chunk; return the whole message if it completes one.

        Its chunks are to be acknowledged.

        :param now: ns of the driver's clock.
        :param wall: ns since 1970, to compare with a chunk's publish time.
        :raises ProtocolError: the chunks contradict each other.
        """
        self._left.pop(where, None)
        try:
            return self._assembler.add(metadata, payload, where, now)
        finally:
            late = metadata.publish_time * MILLISECOND + self._expiry < wall
            self._settle(now, self._acked | {GiveUpReason.ORPHAN} if late else self._acked)

    def look(self, now: int) -> list[T]:
        """Give up expired messages. :returns: the chunks to request again now."""
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
        """True if :meth:`look` may have something to do later."""
        return len(self._assembler) > 0 or len(self._left) > 0

    def _settle(self, now: int, acked: set[GiveUpReason]) -> None:
        given_up = self._assembler.given_up
        self._assembler.given_up = []
        for why, where in given_up:
            if why in acked:
                self.to_ack.append(where)
            elif self._timeout:
                self._left[where] = now
