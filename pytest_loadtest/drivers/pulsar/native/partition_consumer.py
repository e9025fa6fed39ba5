"""One consumer: at each partition of its topic a subscription, what it allows the broker to send, and what it acknowledges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_loadtest.drivers.pulsar.native.attachment import Attachment
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.chunks import ChunkAssembler
from pytest_loadtest.wire.pulsar.framing import encode

if TYPE_CHECKING:
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.wire.pulsar.connection import Entry

TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
"""By the number that SUBSCRIBE has."""
_CHUNKED: Final = 10  # messages in chunks that may be incomplete at a time: pulsar-client's max_pending_chunked_message


class EntryId(NamedTuple):
    """Which entry: see ``api.MessageId``."""

    ledger_id: int
    entry_id: int
    partition: int


class PartitionConsumer(Attachment):
    """One consumer at one partition. Its number is its own among all of the worker's.

    :param queue: messages that it allows the broker to send ahead. :param earliest: it begins with the oldest message.
    """

    __slots__ = ("_chunks", "_earliest", "_kind", "_queue", "_subscription", "_taken", "flowing", "owner", "to_ack", "waiting")
    kind = "consumer"

    def __init__(
        self, owner: NativeConsumer, cluster: Cluster, topic: str, number: int, subscription: str, *, kind: int, queue: int, earliest: bool
    ) -> None:
        super().__init__(cluster, topic, number, owner.name)
        self.owner, self._subscription, self._kind, self._queue, self._earliest = owner, subscription, kind, queue, earliest
        self._taken, self.flowing = 0, False
        self.to_ack: list[EntryId] = []
        self.waiting: list[Entry] = []  # while it is paused
        self._chunks: ChunkAssembler[EntryId] | None = None

    def fail(self, why: str) -> None:
        """While it comes, that concerns nobody but whoever waits for it."""
        if self.established:
            super().fail(why)
        self.owner.failure = why

    def command(self, request: int) -> api.Command:
        """Subscribe."""
        wanted = api.Subscribe(
            topic=self.topic, subscription=self._subscription, sub_type=self._kind, consumer_id=self.number, request_id=request,
            durable=True, initial_position=int(self._earliest),
        )  # fmt: skip
        if TYPES[self._kind] == "Key_Shared":
            wanted.key_shared_meta.key_shared_mode = 0
        return api.Command(type=api.Command.SUBSCRIBE, subscribe=wanted)

    def attached(self, answer: Any) -> None:
        """What waits here comes again; what was taken is acknowledged before anything comes, as otherwise it would come twice."""
        self.waiting.clear()
        self.acknowledge()
        self._chunks = None
        if self.flowing:
            self.flow()

    def assemble(self, metadata: api.MessageMetadata, payload: memoryview, where: EntryId) -> memoryview | None:
        """One more chunk → the whole message that it completes, whose chunks are to be acknowledged. What will never be whole comes again.

        :raises ProtocolError: the chunks contradict each other.
        """
        if self._chunks is None:
            self._chunks = ChunkAssembler(_CHUNKED)
        whole = self._chunks.add(metadata, payload, where)
        if self._chunks.given_up:
            again = api.RedeliverUnacknowledged(consumer_id=self.number)
            for each in self._chunks.given_up:
                again.message_ids.add(**each._asdict())
            self._chunks.given_up.clear()
            self.write(api.Command(type=api.Command.REDELIVER_UNACKNOWLEDGED, redeliver_unacknowledged=again))
        if whole is None:
            return None
        self.to_ack += whole.where
        return memoryview(whole.payload)

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
        cumulative = self._chunks is None and TYPES[self._kind] in ("Exclusive", "Failover")
        ids = self.to_ack[-1:] if cumulative else self.to_ack
        ack = api.Ack(consumer_id=self.number, ack_type=int(cumulative))
        for each in ids:
            ack.message_id.add(**each._asdict())
        self.to_ack.clear()
        self.write(api.Command(type=api.Command.ACK, ack=ack))

    def write(self, command: api.Command) -> None:
        """Put a command on its connection; :class:`NativeConsumers` sends it at the end of the turn."""
        if self.link is not None:
            self.link.connection.add((encode(command),))
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
