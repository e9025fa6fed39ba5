"""The producers of one worker.

One sort groups a tick's messages by producer and partition, and they are sent in batches.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext
from pytest_loadtest.drivers.pulsar.in_flight import InFlight, all_but
from pytest_loadtest.drivers.pulsar.native.batching import (
    BatchLimits,
    Partitioner,
    form_batches,
    single_batches,
)
from pytest_loadtest.drivers.pulsar.native.partition_producer import (
    EntryWriter,
    Held,
    PartitionProducer,
    Unanswered,
)
from pytest_loadtest.drivers.pulsar.settings_facts import batching, join_acks
from pytest_loadtest.message.due import AT_ONCE
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import compression

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.pulsar.in_flight import Taken
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.drivers.pulsar.native.link import BrokerLink
    from pytest_loadtest.wire.pulsar.connection import Receipt

    Column = NDArray[np.int64]


# Time between two checks for entries beyond sendTimeout: a failure is at most so much too late.
_CHECK: Final = 100 * MILLISECOND
_MOST_SLACK: Final = MILLISECOND // 2


class NativeProducers:
    """:param parts: all partitions of the first of the ``streams``, then those of the second, and
        so on.
    :param streams: ascending.
    :param window: most messages of one stream in flight at one partition; None: no such limit.
    :ivar refused: True if the last :meth:`send` refused a message.
    :ivar flush_at: time when the next batch is due, ns.
    :ivar batches: number of messages in a batch → number of batches sent.
    """

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[PartitionProducer],
        streams: Sequence[int],
        context: DriverContext,
        window: int | None,
    ) -> None:
        settings = context.settings
        self._cluster = cluster
        self._parts = parts
        self._context = context
        self._streams = np.array(streams, np.int32)
        self._sizes = context.pool.sizes.astype(np.int64)
        self._partitions = max(len(parts) // max(len(streams), 1), 1)
        self._batched = batching(settings)
        delay = settings.batching_max_publish_delay_ms * MILLISECOND
        self._limits = (
            BatchLimits(settings.batching_max_messages, settings.batching_max_bytes, delay)
            if self._batched
            else BatchLimits(1, 1, 0)
        )
        self._partitioner = Partitioner(self._partitions, self._limits)
        self._by_key = self._batched and settings.subscription_type == "Key_Shared"
        self._writer = EntryWriter(
            context.pool, parts, compression.NAMES.index(settings.compression), one_key=self._by_key
        )
        self._clock = context.clock
        self._blocks = settings.block_if_queue_full
        self._timeout = settings.send_timeout
        self._check_at = 0
        self._in_flight = InFlight(
            len(streams), self._partitions, window, settings.memory_limit, in_order=self._blocks
        )
        self._held: list[Held] = []
        self._held_count = self._held_bytes = 0
        self.flush_at: int | None = None
        # A batch may leave this much before or after its publish delay is over, so that it leaves
        # with the next tick: each wake costs.
        self.slack = min(delay // 4, _MOST_SLACK)
        self._called = 0  # time of the last send()
        self._answered: list[tuple[Unanswered, int, Status]] = []
        self._counted: list[Acks] = []
        self.refused = self._news = False
        self.batches: Counter[int] = Counter()

    def bound(self, room: int) -> None:
        """Limit batches to ``room`` bytes, though ``batchingMaxBytes`` may allow more."""
        # The broker closes the connection for a larger entry, which would be sent again on the next
        # connection, and so on for ever.
        pool = self._context.pool
        smallest = int(pool.sizes.min())
        self._limits = self._limits.within(room, smallest, outside=pool.place.outside)
        self._writer.most = room if self._context.settings.chunking_enabled else None

    # --- taking

    def send(self, burst: Burst) -> Column | None:
        """See :meth:`Driver.send`."""
        stream = self._streams.searchsorted(burst.stream)
        part = stream
        if self._partitions > 1:
            part = stream * self._partitions + self._partitioner.choose(
                burst.stream, burst.seq, burst.intended, burst.key
            )
        size = self._sizes.take(burst.payload)
        refused = self._in_flight.beyond(stream, part, size)
        now = self._clock()
        if len(refused) < len(burst):
            taken = all_but(refused, len(burst))
            self._hold(burst, taken, stream[taken], part[taken], size[taken], now)
        self._called = now
        self.refused = len(refused) > 0 and self._blocks
        self._news = False
        if self.refused:
            return refused
        if len(refused):
            burst.sent[refused] = now
            self._counted.append(
                Acks(
                    burst.row[refused],
                    np.full(len(refused), now),
                    np.full(len(refused), np.int8(Status.FAILED)),
                )
            )
        return None

    def _hold(
        self, burst: Burst, taken: Taken, stream: Column, part: Column, size: Column, now: int
    ) -> None:
        """Keep messages for their batch; they are in flight from now on."""
        burst.sent[taken] = now
        burst.idle[taken] = self._in_flight.idle_since(stream)
        more = int(np.add.reduce(size))
        self._in_flight.add(stream, part, more)
        # Copies, because the burst's columns belong to the engine and are reused after send().
        payload = burst.payload[taken].copy()
        heads = encode_heads(
            self._context.pool,
            nonce=self._context.nonce,
            stream=burst.stream[taken],
            seq=burst.seq[taken],
            intended=burst.intended[taken],
            payload=payload,
        )
        key = None if burst.key is None else burst.key[taken].copy()
        # The publish delay begins when an application that is never late would have sent the oldest
        # message: the wait for the tick is part of it. A message that was due at the last call
        # waited for room in a window, and had none since then.
        since = min(max(int(burst.intended[0]), self._called), now)
        held = Held(
            burst.row[taken].copy(), part, size, payload, heads, np.full(len(part), since), key
        )
        if burst.due is not None:
            held = self._send_delayed(held, burst.due[taken], now)
        if len(held.row):
            self._keep(held, since, now)

    def _keep(self, held: Held, since: int, now: int) -> None:
        """Add messages to their batches, and send the batches that are full or due."""
        self._held.append(held)
        self._held_bytes += int(np.add.reduce(held.size))
        self._held_count += len(held.row)
        if self.flush_at is None:
            self.flush_at = since + self._limits.delay
        # Without batching the delay is 0.
        if (
            self.flush_at <= now + self.slack
            or 0 < self._limits.messages <= self._held_count
            or self._held_bytes >= self._limits.size
        ):
            self.flush(now)

    # --- sending

    def _send_delayed(self, held: Held, due: Column, now: int) -> Held:
        """Send messages with a due time at once, as Pulsar's clients do not batch them.

        :returns: the other messages.
        """
        later = due != AT_ONCE
        positions = np.flatnonzero(later)
        if len(positions):
            chosen = held.choose(positions)
            self._send_entries(
                self._writer.write(
                    chosen, single_batches(chosen.size), now, batched=False, due=due[positions]
                )
            )
        return held.choose(np.flatnonzero(~later))

    def flush(self, now: int) -> None:
        """Send the batches that are full or have waited long enough."""
        held = self._held[0] if len(self._held) == 1 else Held.joined(self._held)
        group = held.part
        if self._by_key and held.key is not None:
            # A batch goes to one consumer as a whole, so under
            # Key_Shared it holds messages of one key.
            group = group << 32 | held.key
        batches = form_batches(group, held.size, held.since, now + self.slack, self._limits)
        if batches.starts:
            messages = held if batches.order is None else held.choose(batches.order)
            self._send_entries(self._writer.write(messages, batches, now, batched=self._batched))
        self._held = []
        self._held_count = 0
        self._held_bytes = 0
        self.flush_at = None
        if batches.kept is not None:
            kept = held.choose(batches.kept)
            self._held = [kept]
            self._held_count = len(batches.kept)
            self._held_bytes = int(np.add.reduce(kept.size))
            self.flush_at = int(kept.since.min()) + self._limits.delay

    def _send_entries(self, made: Iterator[Unanswered]) -> None:
        written: set[BrokerLink] = set()
        for entry in made:
            part = self._parts[entry.part]
            if part.send(entry):
                written.add(part.link)  # type: ignore[arg-type]
            self.batches[entry.count] += 1
        for link in written:
            self._cluster.flush(link)

    # --- answers

    def receipt(self, receipt: Receipt, now: int) -> str | None:
        """Handle a receipt.

        :returns: the problem if it is invalid, so that the connection is given up.
        """
        try:
            entry = self._parts[receipt.producer].answered(receipt.sequence)
        except ValueError as error:
            return str(error)
        except IndexError:
            return f"the broker acknowledged an entry of unknown producer {receipt.producer}"
        if entry is not None:
            self._answer(entry, now, Status.ACKED)
        return None

    def error(self, error: api.SendError, now: int) -> str | None:
        """Handle a rejected entry.

        :returns: why the connection must be given up, so that the entry is sent again on another.
        """
        # Only these two errors are final for the entry. After any other, Pulsar's Java client
        # reconnects this producer alone and sends the entry again (ClientCnx.handleSendError, since
        # apache/pulsar#23038). This client ends the connection, so that all producers and consumers
        # on it reconnect (docs/decisions/041).
        if error.error in (api.NotAllowedError, api.ChecksumError):
            try:
                entry = self._parts[error.producer_id].rejected(error.sequence_id)
            except IndexError:
                return f"the broker rejected an entry of unknown producer {error.producer_id}"
            if entry is not None:
                self._answer(entry, now, Status.FAILED)
            return None
        return f"the broker rejected an entry: {error.message}"

    def _answer(self, entry: Unanswered, now: int, status: Status) -> None:
        self._in_flight.answered(entry.part, entry.count, now, entry.size)
        self._answered.append((entry, now, status))
        self._news = True

    def serve(self, now: int) -> int | None:
        """Do what is due. :returns: the time of the next batch, ns; None: no message waits."""
        if self.flush_at is not None and self.flush_at <= now:
            self.flush(now)
        self._give_up_late(now)
        return self.flush_at

    def _give_up_late(self, now: int) -> None:
        """Fail the entries that were not answered within ``sendTimeout``."""
        if not self._timeout or now < self._check_at:
            return
        # The oldest entries of a part come first, so only these are compared.
        self._check_at = now + _CHECK
        for part in self._in_flight.parts():
            unanswered = self._parts[part].unanswered
            while unanswered and unanswered[0].since < now - self._timeout:
                self._answer(unanswered.popleft(), now, Status.FAILED)

    def acks(self) -> Acks | None:
        """See :meth:`Driver.acks`."""
        counted = self._counted
        self._counted = []
        if self._answered:
            counted.append(self._answers())
        return join_acks(counted)

    def _answers(self) -> Acks:
        """Return the answered messages as columns."""
        answered = self._answered
        self._answered = []
        entries_, times, statuses = zip(*answered, strict=True)
        count = [entry.count for entry in entries_]
        resends = None
        if any(entry.sends > 1 for entry in entries_):
            resends = np.repeat(
                np.array([min(max(entry.sends - 1, 0), 255) for entry in entries_], np.uint8), count
            )
        status = np.repeat(np.array(statuses, np.int8), count)
        rows = np.concatenate([entry.rows for entry in entries_])
        return Acks(rows, np.repeat(np.array(times, np.int64), count), status, resends)

    @property
    def may_have_room(self) -> bool:
        """True if the last :meth:`send` refused messages and an entry was answered since."""
        return self.refused and self._news

    def disconnected(self) -> list[str]:
        """Return the names of producers that are not connected at present, with the reasons."""
        return [part.with_reason for part in self._parts if part.link is None]
