"""The consumers of one worker.

Places, received messages, acknowledgements, and attaching and detaching during load.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.drivers.base import DriverContext, Joined, Received
from pytest_loadtest.drivers.columns import join_received
from pytest_loadtest.drivers.pulsar.names import OUTPUT_BITS, key_number
from pytest_loadtest.drivers.pulsar.native.arrivals import (
    Arrival,
    ArrivalReader,
    damaged_head,
)
from pytest_loadtest.drivers.pulsar.native.link import Came, join_failures
from pytest_loadtest.drivers.pulsar.native.partition_consumer import (
    EntryId,
    NativeConsumer,
    PartitionConsumer,
)
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.route import PROPERTY
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.metrics.strays import BEGINNING
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import compression
from pytest_loadtest.wire.pulsar.batches import pending_indexes
from pytest_loadtest.wire.pulsar.entries import (
    CorruptEntryError,
    as_text,
    open_entry,
    property_value,
)
from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.wire.pulsar.connection import Entry

# Acknowledgements wait this long for others, as in Pulsar's own
# clients, so that one command has many.
_GROUPED: Final = 100 * MILLISECOND
_MOST: Final = 1000  # most acknowledgements that wait
_LOOK: Final = 200 * MILLISECOND  # between two checks for incomplete messages
# Bytes of decompressed entries beyond which they are converted to columns at once. A few KB of
# hostile or very even data become megabytes.
_MOST_KEPT: Final = 1 << 28
_REDELIVERED: Final = int(Flag.REDELIVERED)


class NativeConsumers:
    """:param topics: a consumer's number in the run → its name, the topics of its partitions, its
    subscription.
    """

    def __init__(
        self,
        cluster: Cluster,
        context: DriverContext,
        topics: Callable[[int], tuple[str, Sequence[str], str]],
        *,
        earliest: bool,
    ) -> None:
        settings = context.settings
        self._cluster = cluster
        self._context = context
        self._topics = topics
        self._earliest = earliest
        self._keyed = context.ordered and settings.subscription_type == "Key_Shared"
        self._several = context.route is not None and len(context.route.output) > 1
        self._parts: dict[int, PartitionConsumer] = {}
        self._consumers: dict[int, NativeConsumer] = {}
        self._attaching: list[NativeConsumer] = []
        self._numbers = self._places = 0
        self._arrivals: list[Arrival] = []
        self._columns: list[Received] = []
        self._waited = count()  # numbers of the entries that came in pauses
        self._kept = 0  # bytes of the decompressed entries in _arrivals
        self._unacked: set[PartitionConsumer] = set()
        self.written: set[Any] = set()
        self._chunked: set[PartitionConsumer] = set()  # those with incomplete messages
        self._ack_at: int | None = None
        self._look_at: int | None = None
        self._damaged = damaged_head(context.nonce)
        self._outside = context.received_place.outside
        self._reader = ArrivalReader(
            self._damaged,
            checksum=context.checksum,
            keyed=self._keyed,
            place=context.received_place,
        )

    # --- attaching and detaching

    def begin(self, consumers: Sequence[int]) -> list[NativeConsumer]:
        """Begin to subscribe consumers."""
        begun = [self._make(number) for number in consumers]
        self._attaching += begun
        for consumer in begun:
            for part in consumer.parts:
                part.open()
        return begun

    def _make(self, number: int) -> NativeConsumer:
        name, topics, subscription = self._topics(number)
        consumer = NativeConsumer(number, name, self.written)
        # The topics, or partitions, share maxTotalReceiverQueueSizeAcrossPartitions in equal parts.
        queue = self._context.settings.receive_window(len(topics)) // len(topics)
        for output, topic in enumerate(topics):
            part = PartitionConsumer(
                consumer,
                self._cluster,
                topic,
                self._numbers,
                subscription,
                self._context.settings,
                queue=max(queue, 1),
                earliest=self._earliest,
                output=output if self._several else 0,
            )
            consumer.parts.append(part)
            self._parts[self._numbers] = part
            self._numbers += 1
        return consumer

    def welcome(self, consumers: Iterable[NativeConsumer]) -> Joined:
        """Give consumers their places and let messages flow.

        :raises TargetError: a consumer could not subscribe.
        """
        joined = list(consumers)
        self._refuse(joined)
        for consumer in joined:
            consumer.place = self._places
            self._places += 1
            self._consumers[consumer.place] = consumer
            for part in consumer.parts:
                part.flow()
        self._attaching = [consumer for consumer in self._attaching if consumer.place < 0]
        self.write()
        numbers = [consumer.number for consumer in joined]
        places = [consumer.place for consumer in joined]
        return Joined(np.array(numbers, np.int32), np.array(places, np.int32))

    def attached(self) -> Joined | None:
        """See :meth:`Driver.attached`."""
        self._refuse(self._attaching)
        established = [consumer for consumer in self._attaching if consumer.established]
        return self.welcome(established) if established else None

    def _refuse(self, consumers: Iterable[NativeConsumer]) -> None:
        failed = [consumer for consumer in consumers if consumer.failure]
        if failed:
            self._attaching = [consumer for consumer in self._attaching if not consumer.failure]
            for consumer in failed:
                self._close(consumer)
            raise TargetError(join_failures([consumer.failure for consumer in failed]))

    def detach(self, places: Sequence[int]) -> None:
        """Acknowledge the taken messages, and close.

        The broker gives waiting messages to other consumers.
        """
        for place in places:
            self._close(self._consumers.pop(place))
        self.write()

    def _close(self, consumer: NativeConsumer) -> None:
        for part in consumer.parts:
            part.acknowledge()
            self._parts.pop(part.number)
            link = part.leave()
            if link is not None:
                self._cluster.ask(link, _closing(part.number), lambda answer: None)

    def pause(self, places: Sequence[int]) -> None:
        """Keep further messages waiting, and permit the broker no more."""
        for place in places:
            self._consumers[place].paused = True

    def resume(self, places: Sequence[int]) -> None:
        """Take the waiting messages now."""
        now = self._context.clock()
        for place in places:
            consumer = self._consumers[place]
            consumer.paused = False
            # A consumer hands over in order of arrival, whatever the partition.
            waiting = []
            for part in consumer.parts:
                waiting += [(number, part, entry) for number, entry in part.waiting]
                part.waiting = []
            waiting.sort(key=itemgetter(0))
            for _, part, entry in waiting:
                self._arrive(part, entry, now, 0)
        self.write()

    # --- messages

    def entry(self, entry: Entry, came: Came) -> str | None:
        """Handle a received entry. :returns: the problem if the broker must not send it."""
        part = self._parts.get(entry.consumer)
        if part is None:
            # The consumer left; the broker gives its unacknowledged messages to others.
            return None
        if not part.flowing:
            return f"the broker sent an entry to {part.name}, which has permitted none"
        if not part.owner.paused:
            self._arrive(part, entry, came.time, came.lag)
        elif part.has_room:
            part.waiting.append((next(self._waited), entry))
        else:
            return f"the broker sent more entries to {part.name} than it has permitted"
        return None

    def _arrive(self, part: PartitionConsumer, entry: Entry, now: int, lag: int) -> None:
        where = EntryId(entry.ledger, entry.entry, entry.partition)
        flags = _REDELIVERED if entry.redeliveries else 0
        messages = 1
        try:
            metadata, payload = open_entry(entry.body)
            messages = metadata.num_messages_in_batch
            # The broker charges permits only for the pending messages of a
            # batch: Pulsar's Consumer.sendMessages.
            if entry.ack_set:
                messages = len(pending_indexes(entry.ack_set, messages))
            if part.is_stale(entry):
                pass
            elif metadata.num_chunks_from_msg > 1:
                self._chunked.add(part)
                self._look_at = self._look_at or now + _LOOK
                whole = part.assemble(metadata, payload, where, now)
                if whole is not None:
                    self._read(part, entry, metadata, whole, flags, now, lag)
            else:
                part.to_ack.append(where)
                self._read(part, entry, metadata, payload, flags, now, lag)
        except ProtocolError as error:
            if isinstance(error, CorruptEntryError):
                # The broker charged a permit for each message of a batch. Never given back, they
                # would be missing one day.
                messages = min(error.messages, part.queue)
            # A damaged entry counts as corrupt, and is acknowledged
            # so that it is not delivered again.
            part.to_ack.append(where)
            value = bytes(entry.body[:BEGINNING])
            self._arrivals.append(
                Arrival(part.owner.place, now, lag, 0, flags, 0, self._damaged, value=value)
            )
        part.took(messages)
        self._unacked.add(part)
        if self._ack_at is None:
            self._ack_at = now + _GROUPED
        elif len(part.to_ack) >= _MOST:
            part.acknowledge()

    def _read(
        self,
        part: PartitionConsumer,
        entry: Entry,
        metadata: api.MessageMetadata,
        payload: memoryview,
        flags: int,
        now: int,
        lag: int,
    ) -> None:
        """Decompress and store an entry, or a message assembled from chunks.

        :raises ProtocolError: it cannot be decompressed.
        """
        if metadata.HasField("marker_type"):
            # Transactions and replication leave markers in a topic, which are no messages.
            return
        if metadata.compression:
            payload = compression.decompress(
                metadata.compression, payload, metadata.uncompressed_size
            )
            self._kept += len(payload)
        order = max(entry.partition, 0)
        if self._keyed:
            order = (
                key_number(as_text(metadata.partition_key))
                if metadata.HasField("partition_key")
                else 0
            )
        order |= part.output << OUTPUT_BITS
        batch = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0
        chosen = pending_indexes(entry.ack_set, batch) if entry.ack_set and batch else None
        value = property_value(metadata, PROPERTY) if self._outside and not batch else b""
        self._arrivals.append(
            Arrival(part.owner.place, now, lag, order, flags, batch, payload, chosen, value)
        )

        if self._kept > _MOST_KEPT:
            columns = self._convert()
            # Heads may be views of payloads, and the copy releases these, as do unknown bodies.
            self._columns.append(replace(columns, heads=columns.heads.copy(), bodies=None))

    def _convert(self) -> Received:
        arrivals = self._arrivals
        self._arrivals = []
        self._kept = 0
        return self._reader.columns(arrivals)

    def serve(self, now: int) -> int | None:
        """Do what is due. :returns: the time of the next due work, ns; None: there is none."""
        if self._look_at is not None and self._look_at <= now:
            self._chunked = {
                part for part in self._chunked if part.number in self._parts and part.look(now)
            }
            self._look_at = now + _LOOK if self._chunked else None
        if self._ack_at is not None and self._ack_at <= now:
            self.acknowledge()
        self.write()
        return min((at for at in (self._ack_at, self._look_at) if at is not None), default=None)

    def acknowledge(self) -> None:
        """Acknowledge all taken messages."""
        for part in self._unacked:
            part.acknowledge()
        self._unacked.clear()
        self._ack_at = None
        self.write()

    def write(self) -> None:
        """Write the commands that were appended to connections."""
        for link in self.written:
            self._cluster.flush(link)
        self.written.clear()

    def take(self) -> Received | None:
        """See :meth:`Driver.take`."""
        columns = self._columns
        self._columns = []
        if self._arrivals:
            columns.append(self._convert())
        return join_received(columns)

    def disconnected(self) -> list[str]:
        """Return the names of consumers that are not connected at present, with the reasons."""
        names = []
        for consumer in self._consumers.values():
            lost = [part for part in consumer.parts if part.link is None]
            if lost:
                names.append(lost[0].with_reason)
        return names


def _closing(number: int) -> Callable[[int], api.Command]:
    return lambda request: api.Command(
        type=api.Command.CLOSE_CONSUMER,
        close_consumer=api.CloseConsumer(consumer_id=number, request_id=request),
    )
