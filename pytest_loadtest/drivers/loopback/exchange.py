"""The loopback relay's handling of frames, without sockets.

Messages are acknowledged to their sender and delivered to subscribers.

Each subscription of a topic gets every message. Consumers of one subscription share its
streams (stream modulo consumers, by index), so that each stream stays in order.
Messages of a topic without subscriptions are dropped. Messages for a paused consumer
wait in memory; if it unsubscribes, the other consumers of its subscription get them. A
client is identified by the number of its connection.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.loopback.batch import (
    STREAM,
    Batch,
    DelayQueue,
    HeldCopies,
    Index,
    compose_index,
    merge_small_batches,
    pick,
)
from pytest_loadtest.drivers.loopback.faults import (
    Faults,
    FaultyService,
    Gate,
    HalfPairs,
    damage,
    delivery_order,
)
from pytest_loadtest.message.due import AT_ONCE
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.values.records import immutable
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Frame, FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class PendingBatch(NamedTuple):
    """Messages of one sender that wait for their time, ns.

    :param number: orders batches with the same time by arrival.
    :param due: ns, if consumers get the messages after their acknowledgement.
    """

    time: int
    number: int
    sender: int
    batch: Batch
    due: NDArray[np.int64] | None = None


class Exchange:
    """All messages and consumers of one relay.

    :param post: called with a client and the buffers of a frame for it;
        ignores a client that has disconnected.
    :param wall: wall clock minus the relay's clock, ns. Delayed messages carry wall clock times.
    """

    def __init__(
        self,
        faults: Faults,
        post: Callable[[int, Sequence[bytes | memoryview]], None],
        wall: int = 0,
    ) -> None:
        self._faults = faults
        self._wall = wall
        self._post = post
        self._runs: dict[int, int] = {}  # nonce of the run → number of the run in this exchange
        self._gates: dict[int, Gate] = {}
        self._consumers = SubscriptionTable()
        self._taps = SubscriptionTable()
        self._held = HeldCopies()
        self._pending: list[PendingBatch] = []
        self._delayed = DelayQueue()
        self._numbers = itertools.count()
        self._half_pairs = HalfPairs(faults.swap_every) if faults.swap_every else None
        self._services: dict[int, FaultyService] = {}  # by the number of the run
        self._delivered: Counter[int] = (
            Counter()
        )  # copies by client, whose driver counts what it takes

    def handle_frame(self, client: int, frame: Frame, now: int) -> None:
        """Handle a frame that arrived at ``now``, ns; :meth:`release` sends its messages.

        :raises FrameError: clients do not send such frames.
        """
        if frame.kind in frames.PRODUCES:
            self._produce(client, frame, now)
        elif frame.kind is Kind.SUBSCRIBE:
            self._subscribe(client, frame)
        elif frame.kind is Kind.COUNT:
            self._answer_count(client)
        elif frame.kind in (Kind.PAUSE, Kind.RESUME, Kind.UNSUBSCRIBE):
            self._change_consumers(frame.kind, consumer_key(client, frame.columns["place"]))
        else:
            raise FrameError(f"a client must not send {frame.kind.name}")

    def disconnect(self, client: int) -> None:
        """Remove the consumers of a client, with the messages that waited for them."""
        keys = self._consumers.of_connection(client)
        self._consumers.leave(keys)
        self._held.take(keys)
        self._taps.leave(self._taps.of_connection(client))
        self._delivered.pop(client, None)

    def _answer_count(self, client: int) -> None:
        """Send the numbers of messages that may still be delivered.

        They are followed by the numbers of copies sent to all clients that are connected.
        """
        held = (
            sum(len(pending_batch.batch) for pending_batch in self._pending)
            + self._delayed.count
            + self._held.count
        )
        held += self._half_pairs.count if self._half_pairs else 0
        counts = {"held": np.array([held]), "delivered": np.array([self._delivered.total()])}
        self._post(client, frames.encode_frame(Kind.COUNTS, counts))

    def next_due(self) -> int | None:
        """Return when :meth:`release` has something to do, ns.

        None: not before another frame arrives.
        """
        pending = self._pending[0].time if self._pending else None
        times = (
            pending,
            self._half_pairs.next_due() if self._half_pairs else None,
            self._delayed.next_due(),
        )
        return min((time for time in times if time is not None), default=None)

    def release(self, now: int) -> None:
        """Acknowledge and deliver the messages that are due."""
        due = []
        while self._pending and self._pending[0].time <= now:
            due.append(heapq.heappop(self._pending))
        # An ACK only has a number: a client knows its messages by the order of sending. So one
        # frame acknowledges neighbouring batches.
        for sender, pending in itertools.groupby(due, lambda pending_batch: pending_batch.sender):
            self._post(
                sender,
                frames.encode_frame(
                    Kind.ACK, {}, n=sum(len(pending_batch.batch) for pending_batch in pending)
                ),
            )
        for pending_batch in due:
            if pending_batch.due is not None:
                self._delayed.add(pending_batch.batch, pending_batch.due)
        for batch in merge_small_batches(
            pending_batch.batch for pending_batch in due if pending_batch.due is None
        ):
            self._serve(self._half_pairs.complete(batch, now) if self._half_pairs else batch, now)
        if self._half_pairs:
            self._serve(self._half_pairs.expired(now), now)
        if (ready := self._delayed.release(now)) is not None:
            self._deliver(ready)

    def _serve(self, batch: Batch, now: int) -> None:
        """Send messages through the service, if there is one, to their consumers; and to taps."""
        if len(self._taps):
            routed = self._taps.route(batch.topic, batch.producer)
            self._distribute(batch, *routed, self._taps)
        if not self._faults.has_service:
            self._deliver(batch)
            return
        runs = batch.topic >> 32
        for run in np.unique(runs).tolist():
            service = self._services.setdefault(run, FaultyService(self._faults))
            self._delayed.add(*service.outputs(batch.where(runs == run), now))

    def _run(self, frame: Frame) -> int:
        """Return the offset of the run's topic numbers, so that runs do not share topics."""
        # A run's nonce has 32 bits, and so have its topic numbers; small numbers instead of nonces
        # keep topics close together for _Routes.
        return self._runs.setdefault(frame.run, len(self._runs)) << 32

    def _subscribe(self, client: int, frame: Frame) -> None:
        place = frame.columns["place"]
        consumers = np.zeros(len(place), CONSUMER_DTYPE)
        consumers["topic"] = frame.columns["topic"].astype(np.int64) + self._run(frame)
        consumers["key"] = consumer_key(client, place)
        consumers["subscription"] = frame.columns["subscription"]
        consumers["consumer"] = frame.columns["consumer"]
        # A tap has a connection of its own.
        is_tap = (consumers["subscription"] == frames.TAP).any()
        table = self._taps if is_tap else self._consumers
        table.add(consumers)
        self._post(client, frames.encode_frame(Kind.SUBSCRIBED, {"place": place}))

    def _change_consumers(self, kind: Kind, changed: NDArray[np.int64]) -> None:
        """Pause, resume or remove consumers.

        Messages that waited for them go to them, or to the others of their subscription.
        """
        if kind is Kind.PAUSE:
            self._consumers.pause(changed, True)
        # Flags and rows change first, so that the held messages go to consumers that can take them.
        elif kind is Kind.RESUME:
            self._consumers.pause(changed, False)
            for batch, of in self._held.take(changed):
                self._distribute(batch, None, self._consumers.rows(of))
        else:
            left = self._consumers.leave(changed)
            left = left[np.argsort(left["key"])]
            for batch, of in self._held.take(changed):
                subscription = left["subscription"][np.searchsorted(left["key"], of)]
                self._distribute(
                    batch, *self._consumers.route(batch.topic, batch.producer, subscription)
                )

    def _produce(self, sender: int, frame: Frame, now: int) -> None:
        columns = frame.columns
        # The sender is part of the producer: runs on an existing
        # topic have streams with the same numbers.
        stream = columns["stream"]
        topic = np.remainder(stream, frame.topics, dtype=np.int64)
        topic += frame.topic + self._run(frame)
        producer = np.add(stream, sender << 32, dtype=np.int64)
        batch = Batch(topic, producer, columns["seq"], columns["size"], frame.payload)
        damage(self._faults, batch)
        gate = self._gates.get(frame.run) or self._gates.setdefault(
            frame.run, Gate(self._faults, now)
        )
        due = columns["due"] if frame.kind is Kind.PRODUCE_LATER else None
        for release, count in gate.release(now, len(batch)):
            part, batch = batch.split(count) if count < len(batch) else (batch, batch)
            mine, due = (
                (None, None) if due is None else (self._due(due[:count], release), due[count:])
            )
            heapq.heappush(
                self._pending, PendingBatch(release, next(self._numbers), sender, part, mine)
            )

    def _due(self, due: NDArray[np.int64], release: int) -> NDArray[np.int64]:
        """Return due times of messages that leave the gate at ``release``.

        Times are ns of the relay's clock.

        :param due: as in the frame. A message that is not delayed is due at ``release``. An earlier
            time would let it overtake delayed messages that are due already and still wait, because
            the relay looked at its queue late.
        """
        return np.where(due == AT_ONCE, release, due * MILLISECOND - self._wall)

    def _deliver(self, batch: Batch) -> None:
        index = delivery_order(self._faults, batch)
        message, row = self._consumers.route(pick(batch.topic, index), pick(batch.producer, index))
        self._distribute(batch, compose_index(index, message), row)

    def _distribute(
        self,
        batch: Batch,
        message: Index,
        row: NDArray[np.intp],
        table: SubscriptionTable | None = None,
    ) -> None:
        """Send messages to consumers, or hold them for paused ones.

        ``row`` has the consumer of each message of the index, in ``table``.
        """
        table = self._consumers if table is None else table
        if table.any_paused and (paused := table.paused.take(row)).any():
            waiting = np.flatnonzero(paused)
            going = np.flatnonzero(~paused)
            self._held.add(
                batch.take(compose_index(message, waiting)), table.key.take(row[waiting])
            )
            message = compose_index(message, going)
            row = row[going]
        if not len(row):
            return
        # Fast path: with one worker all consumers are on one connection.
        if table.one_connection:
            self._send(int(table.connection[0]), batch, message, table.place.take(row))
            return
        connection = table.connection.take(row)
        for client in np.unique(connection).tolist():
            chosen = np.flatnonzero(connection == client)
            self._send(client, batch, compose_index(message, chosen), table.place.take(row[chosen]))

    def _send(self, client: int, batch: Batch, message: Index, place: NDArray[np.int64]) -> None:
        self._delivered[client] += len(place)
        size = pick(batch.size, message)
        # Fast path: a whole batch that fits into one frame is sent without copying its payloads.
        if message is None and len(batch.payload) <= frames.PORTION:
            self._post(
                client,
                frames.encode_frame(
                    Kind.DELIVER, {"place": place, "size": size}, payloads=batch.pieces(None)
                ),
            )
            return
        message = np.arange(len(batch)) if message is None else message
        for part in frames.portions(size):
            pieces = batch.pieces(message[part])
            self._post(
                client,
                frames.encode_frame(
                    Kind.DELIVER, {"place": place[part], "size": size[part]}, payloads=pieces
                ),
            )


# Routing: from the topic and the stream of a message to the consumers that get it.
# Thousands of consumers can join or leave in one step, so routes are not updated
# but computed again when the next message needs them.

CONSUMER_DTYPE: Final = np.dtype(
    [("topic", "i8"), ("subscription", "u4"), ("consumer", "u4"), ("key", "i8"), ("paused", "?")]
)
"""A consumer. ``consumer``: its index, which orders the consumers of a subscription. ``key``.

See :func:`consumer_key`."""

_PLACE: Final = (1 << 32) - 1
# A lookup table over topic numbers is made if it has at most this many entries for each topic;
# otherwise topics are found by search.
_SPARSE: Final = 16


def consumer_key(connection: int, place: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return a consumer's unique number, which combines its connection and its place there."""
    return (place.astype(np.int64) & _PLACE) | connection << 32


class SubscriptionTable:
    """All consumers of a relay, in *rows*.

    :meth:`route` and :meth:`rows` return row numbers, which are valid until a consumer joins or
    leaves.

    Columns by row:

    :ivar key: int64.
    :ivar connection: int64.
    :ivar place: int64.
    :ivar paused: bool.
    :ivar one_connection: all consumers have the same connection.
    :ivar any_paused: at least one is paused.
    """

    key: NDArray[np.int64]
    connection: NDArray[np.int64]
    place: NDArray[np.int64]
    paused: NDArray[np.bool_]
    one_connection: bool
    any_paused: bool

    def __init__(self) -> None:
        self._table = np.empty(0, CONSUMER_DTYPE)
        self._routes: _Routes | None = None

    def __len__(self) -> int:
        """Return the number of consumers."""
        return len(self._table)

    def add(self, consumers: NDArray[np.void]) -> None:
        """Add consumers, as :data:`CONSUMER_DTYPE`."""
        self._table = np.concatenate([self._table, consumers])
        self._routes = None

    def leave(self, keys: NDArray[np.int64]) -> NDArray[np.void]:
        """Remove consumers; return those that were present, as :data:`CONSUMER_DTYPE`."""
        leaving = np.isin(self._table["key"], keys)
        removed = self._table[leaving]
        self._table = self._table[~leaving]
        self._routes = None
        return removed

    def pause(self, keys: NDArray[np.int64], paused: bool) -> None:
        """Pause or resume consumers."""
        self._table["paused"][np.isin(self._table["key"], keys)] = paused
        self._note_paused()

    def _note_paused(self) -> None:
        self.paused = self._table["paused"].copy()
        self.any_paused = bool(self.paused.any())

    def of_connection(self, connection: int) -> NDArray[np.int64]:
        """Return the keys of all consumers of a connection."""
        key: NDArray[np.int64] = self._table["key"]
        return key.take(np.flatnonzero(key >> 32 == connection))

    def rows(self, keys: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the rows of these consumers, which must be present."""
        self._arranged()
        order = np.argsort(self.key)
        return order[np.searchsorted(self.key, keys, sorter=order)]

    def route(
        self,
        topic: NDArray[np.int64],
        producer: NDArray[np.int64],
        only: NDArray[np.uint32] | None = None,
    ) -> tuple[Index, NDArray[np.intp]]:
        """Return messages, and for each the row of a consumer that gets it.

        Messages of one consumer keep their order.

        :param topic: topic of each message.
        :param producer: as in :class:`Batch`.
        :param only: the single subscription that gets each message;
            None: every subscription of its topic.
        """
        routes = self._arranged()
        slot = routes.find(topic)
        # Fast path: with one subscription for each topic every message
        # has one recipient, and no index is needed.
        message: Index = None
        subscription = routes.first.take(slot)
        if only is not None or routes.most_subscriptions > 1:
            message, subscription = routes.every_subscription(slot)
        if only is not None:
            own = np.flatnonzero(routes.subscription.take(subscription) == pick(only, message))
            message = compose_index(message, own)
            subscription = subscription[own]
        consumers = routes.consumers.take(subscription)
        if not consumers.all():
            taken = np.flatnonzero(consumers)
            message = compose_index(message, taken)
            subscription = subscription[taken]
            consumers = consumers[taken]
        row = routes.start.take(subscription)
        if routes.most_consumers > 1:
            row += (pick(producer, message) & STREAM) % consumers
        return message, row

    def _arranged(self) -> _Routes:
        if self._routes is None:
            # Sorted like this, the consumers of a subscription have
            # consecutive rows, in the order of their indexes.
            table = self._table
            self._table = table = table[
                np.lexsort((table["consumer"], table["subscription"], table["topic"]))
            ]
            self._note_paused()
            self.key = table["key"].copy()
            self.connection = self.key >> 32
            self.place = self.key & _PLACE
            self.one_connection = len(np.unique(self.connection)) == 1
            self._routes = _find_routes(table["topic"], table["subscription"])
        return self._routes


@immutable
class _Routes:
    """The way from a topic to its subscriptions, and from these to their consumers.

    The consumers of a subscription have consecutive rows. Topics: ``topic`` has their numbers,
    ascending, and a last entry for unknown topics. ``first`` and ``count`` are the index of a
    topic's first subscription and the number of its subscriptions, ``most_subscriptions`` is the
    highest number. Subscriptions: ``subscription`` has their numbers within the topic. ``start``
    and ``consumers`` are the row of the first consumer and the number of consumers, with a last
    entry without consumers; ``most_consumers`` is the highest number. ``table`` maps topic numbers
    from ``base`` on to indexes of topics, if the numbers are close together; otherwise it is None.
    """

    topic: NDArray[np.int64]
    first: NDArray[np.intp]
    count: NDArray[np.intp]
    most_subscriptions: int
    subscription: NDArray[np.uint32]
    start: NDArray[np.intp]
    consumers: NDArray[np.intp]
    most_consumers: int
    table: NDArray[np.intp] | None
    base: int

    def find(self, topic: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the index of each topic; the last index for a topic without subscriptions."""
        if self.table is not None:
            return self.table.take(topic - self.base, mode="clip")
        index = np.searchsorted(self.topic[:-1], topic)
        return np.where(self.topic.take(index) == topic, index, len(self.topic) - 1)

    def every_subscription(
        self, slot: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return every pair of a message and a subscription of its topic.

        :param slot: index of the topic of each message.
        """
        # First all messages for the first subscription of their topics, then all for the second:
        # neighbours stay neighbours, so that their payloads can be sent without copying.
        count = self.count.take(slot)
        message = np.repeat(np.arange(len(slot)), count)
        nth = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count)
        by = np.argsort(nth, kind="stable")
        return message[by], (np.repeat(self.first.take(slot), count) + nth)[by]


def _find_routes(topic: NDArray[np.int64], subscription: NDArray[np.uint32]) -> _Routes:
    starts = np.flatnonzero(
        (np.diff(topic, prepend=-1) != 0)
        | (np.diff(subscription.astype(np.int64), prepend=-1) != 0)
    )
    topics, first, count = np.unique(topic[starts], return_index=True, return_counts=True)
    consumers = np.diff(starts, append=len(topic))
    base = 0
    table = None
    if len(topics) and topics[-1] - topics[0] < _SPARSE * len(topics):
        base = int(topics[0]) - 1
        # One more entry at both ends: find() clips the numbers of unknown topics to them.
        table = np.full(int(topics[-1]) - base + 2, len(topics))
        table[topics - base] = np.arange(len(topics))
    return _Routes(
        topic=np.append(topics, -1),
        first=np.append(first, len(starts)),
        count=np.append(count, 0),
        most_subscriptions=int(count.max(initial=0)),
        subscription=subscription[starts],
        start=np.append(starts, 0),
        consumers=np.append(consumers, 0),
        most_consumers=int(consumers.max(initial=0)),
        table=table,
        base=base,
    )
