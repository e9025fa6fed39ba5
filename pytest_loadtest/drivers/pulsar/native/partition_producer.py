"""One producer at one partition.

Its unanswered entries, which are sent again after a loss, and the frames of entries.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.pulsar.native.attachment import Attachment
from pytest_loadtest.drivers.pulsar.native.batching import EntryPacker
from pytest_loadtest.message.route import PROPERTY
from pytest_loadtest.message.token import TOKEN, encode_tokens
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import compression, entries
from pytest_loadtest.wire.pulsar.chunks import split_into_chunks
from pytest_loadtest.wire.pulsar.entries import EntrySealer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.pulsar.native.batching import Batches, Buffer
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.message.payloads import PayloadPool

    Column = NDArray[np.int64]


_FRONT: Final = entries.property_front(4, PROPERTY, TOKEN)


class Unanswered:
    """An entry, or a message in chunks, that the broker has not answered.

    :param receipts: number of receipts for it.
    :ivar sends: how often it was sent.
    :ivar left: number of missing receipts.
    """

    __slots__ = (
        "count",
        "frame",
        "left",
        "part",
        "receipts",
        "rows",
        "sends",
        "sequence",
        "since",
        "size",
    )

    def __init__(
        self,
        part: int,
        sequence: int,
        rows: NDArray[np.int64],
        size: int,
        since: int,
        frame: tuple[Buffer, ...],
        receipts: int = 1,
    ) -> None:
        self.part = part
        self.sequence = sequence
        self.rows = rows
        self.count = len(rows)
        self.size = size
        self.since = since
        self.frame = frame
        self.sends = 0
        self.receipts = receipts
        self.left = receipts


class PartitionProducer(Attachment):
    """A producer, with a number that is its index among the worker's producers.

    :ivar sequence: sequence id of its next message.
    :ivar unanswered: the oldest first; None: it has not sent anything yet.
    """

    __slots__ = ("_epoch", "_registered", "sealer", "sequence", "unanswered")
    kind = "producer"

    def __init__(self, cluster: Cluster, topic: str, number: int, name: str) -> None:
        super().__init__(cluster, topic, number, name)
        self.sealer: EntrySealer | None = None
        self.sequence = 0
        self._epoch = 0
        self._registered = ""
        self.unanswered: deque[Unanswered] | None = None

    def command(self, request: int) -> api.Command:
        """Return PRODUCER, with the name that the broker gave it first.

        Deduplication works by that name.
        """
        part = api.Producer(
            topic=self.topic,
            producer_id=self.number,
            request_id=request,
            epoch=self._epoch,
            user_provided_producer_name=False,
        )
        if self._registered:
            part.producer_name = self._registered
        return api.Command(type=api.Command.PRODUCER, producer=part)

    def attached(self, answer: Any) -> None:
        """Send the unanswered entries again."""
        if self.sealer is None:
            self._registered = answer.producer_name
            self.sealer = EntrySealer.of(self.number, self._registered)
        # The epoch grows with each reconnect, as in Pulsar's clients: the broker can tell this
        # producer from its predecessor.
        self._epoch += 1
        assert self.link is not None
        for entry in self.unanswered or ():
            entry.sends += 1
            entry.left = entry.receipts
            self.link.connection.add(entry.frame)
        self._cluster.flush(self.link)

    def send(self, entry: Unanswered) -> bool:
        """Send an entry.

        :returns: True if it was appended to ``link``; otherwise it is sent with the next
            connection.
        """
        if self.unanswered is None:
            self.unanswered = deque()
        self.unanswered.append(entry)
        self.sequence += entry.count
        if self.link is None:
            return False
        entry.sends = 1
        self.link.connection.add(entry.frame)
        return True

    def answered(self, sequence: int) -> Unanswered | None:
        """Count a receipt; return the entry if the broker has now answered all of it.

        None if it was answered or given up before.

        :raises ValueError: an older entry is not answered yet.
        """
        unanswered = self.unanswered
        if not unanswered or sequence < unanswered[0].sequence:
            return None
        # A broker acknowledges the entries of a producer in order.
        # Anything else means that receipts were lost.
        if sequence > unanswered[0].sequence:
            raise ValueError(f"entry {sequence} was answered before entry {unanswered[0].sequence}")
        unanswered[0].left -= 1
        self.progress = True
        return None if unanswered[0].left else unanswered.popleft()

    def rejected(self, sequence: int) -> Unanswered | None:
        """Remove the entry that the broker has rejected for good, whatever its receipts so far.

        None if it was answered or given up before.

        :param sequence: sequence id of any of its messages. Pulsar names the highest one of a batch
            (``Producer.MessagePublishContext.completed``).
        """
        unanswered = self.unanswered or deque()
        # Any entry may be rejected: the broker rejects at once, and acknowledges the entries before
        # it only when they are stored.
        for entry in unanswered:
            if entry.sequence <= sequence < entry.sequence + entry.count:
                unanswered.remove(entry)
                self.progress = True
                return entry
        return None


# Messages to send → the frames of their entries: packed,
# compressed, split into chunks if too large, sealed.


class Held(NamedTuple):
    """Columns of taken messages.

    ``since``: ns; ``heads``: ``(n, 32)``; ``part``: producer and partition.
    """

    row: Column
    part: Column
    size: Column
    payload: NDArray[np.uint16]
    heads: NDArray[np.uint8]
    since: Column
    key: NDArray[np.int32] | None

    def choose(self, positions: Column) -> Held:
        """Return the messages at these positions, in this order."""
        return Held(
            self.row[positions],
            self.part[positions],
            self.size[positions],
            self.payload[positions],
            self.heads[positions],
            self.since[positions],
            None if self.key is None else self.key[positions],
        )

    @classmethod
    def joined(cls, held: Sequence[Held]) -> Held:
        """Concatenate at least one."""
        row, part, size, payload, heads, since, keys = zip(*held, strict=True)
        return cls(
            np.concatenate(row),
            np.concatenate(part),
            np.concatenate(size),
            np.concatenate(payload),
            np.concatenate(heads),
            np.concatenate(since),
            None if keys[0] is None else np.concatenate(keys),
        )


class EntryWriter:
    """:param codec: number of a compression, 0: none.
    :param one_key: all messages of a batch have the same key.
    :ivar most: most bytes of an entry's payload; larger ones are split into chunks; None: no limit.
    """

    def __init__(
        self, pool: PayloadPool, parts: Sequence[PartitionProducer], codec: int, *, one_key: bool
    ) -> None:
        self._parts = parts
        self._outside = pool.place.outside
        self._codec = codec
        self._one_key = one_key
        self._packers = {batched: EntryPacker(pool, batched=batched) for batched in (True, False)}
        self.most: int | None = None

    def write(
        self, messages: Held, made: Batches, now: int, *, batched: bool, due: Column | None = None
    ) -> Iterator[Unanswered]:
        """Yield the entry of each batch.

        Send each before taking the next, because sending sets the next sequence id.

        :param messages: batch by batch.
        :param batched: False: every message is an entry of its own.
        :param due: time of each entry, ms since 1970, before which no consumer gets it.
        """
        packed = self._packers[batched].pack(
            messages.heads, messages.payload, messages.key, made.starts, made.stops
        )
        published = entries.publish_time(time.time_ns() // MILLISECOND)
        keys = (
            None
            if messages.key is None or (batched and not self._one_key)
            else messages.key[made.starts].tolist()
        )
        values = encode_tokens(messages.heads) if self._outside and not batched else ()
        parts = messages.part[made.starts].tolist()
        for number, (start, stop, payload) in enumerate(
            zip(made.starts, made.stops, packed, strict=True)
        ):
            more = b"" if keys is None else entries.field(6, b"key-%d" % keys[number])
            if due is not None:
                more += entries.deliver_at(int(due[number]))
            if values:
                more += _FRONT + values[start]
            part = parts[number]
            frame, receipts = self._seal(
                self._parts[part], payload, stop - start, published, more, batched=batched
            )
            yield Unanswered(
                part,
                self._parts[part].sequence,
                messages.row[start:stop],
                made.sizes[number],
                now,
                frame,
                receipts,
            )

    def _seal(
        self,
        part: PartitionProducer,
        payload: list[Buffer],
        count: int,
        published: bytes,
        more: bytes,
        *,
        batched: bool,
    ) -> tuple[tuple[Buffer, ...], int]:
        """:returns: the entry's frame, or the frames of all its chunks; and the number of receipts
        for it.
        """
        assert part.sealer is not None
        # A message is compressed before it is split into chunks, and a batch as a whole.
        if self._codec:
            data = b"".join(payload)
            payload = [compression.compress(self._codec, data)]
            more += entries.compressed(self._codec, len(data))
        sealer = part.sealer
        sequence = part.sequence
        if self.most is None or batched or sum(map(len, payload)) <= self.most:
            return (
                sealer.seal(
                    payload,
                    sequence=sequence,
                    count=count,
                    published=published,
                    batched=batched,
                    more=more,
                ),
                *payload,
            ), 1
        pieces = split_into_chunks(memoryview(b"".join(payload)), self.most, sealer.uuid(sequence))
        frame: list[Buffer] = []
        for piece, chunk in pieces:
            head = sealer.seal(
                [piece],
                sequence=sequence,
                count=1,
                published=published,
                batched=False,
                more=more + chunk,
                chunk=True,
            )
            frame += (head, piece)
        return tuple(frame), len(pieces)
