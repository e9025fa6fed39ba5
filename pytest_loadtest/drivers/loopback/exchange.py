"""What a loopback relay does with frames, without sockets: who sent a message is told that it was taken, and who subscribed gets it.

Each subscription of a topic gets every message; consumers of one subscription share its streams (stream modulo consumers, by index), so
that a stream stays in order. A topic without subscriptions keeps nothing. What a paused consumer does not want waits in memory; of a
consumer that unsubscribes, the others get it. Clients are the numbers of their connections.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.loopback.batch import STREAM, Batch, DelayQueue, Index, bundle, compose_index, join_batches, pick
from pytest_loadtest.drivers.loopback.faults import Faults, Gate, HalfPairs, damage, delivered
from pytest_loadtest.message.due import AT_ONCE
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Frame, FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.loopback.batch import Index


class Parcel(NamedTuple):
    """Messages of one sender that wait for their time."""

    time: int
    number: int  # parcels of one time leave in the order they came
    sender: int
    batch: Batch
    due: NDArray[np.int64] | None = None  # ns, where consumers are to get them later than they are acknowledged


class Exchange:
    """All messages and consumers of one relay.

    :param post: takes a client and the buffers of a frame for it; a client that has left gets nothing.
    :param wall: wall clock less the clock of all other times here, ns: delayed messages name the former.
    """

    def __init__(self, faults: Faults, post: Callable[[int, Sequence[bytes | memoryview]], None], wall: int = 0) -> None:
        self._faults, self._wall = faults, wall
        self._post = post
        self._runs: dict[int, int] = {}  # nonce → a number of the exchange's own
        self._gates: dict[int, Gate] = {}
        self._seats = SubscriptionTable()
        self._kept = Kept()
        self._waiting: list[Parcel] = []
        self._later = DelayQueue()
        self._numbers = itertools.count()
        self._halves = HalfPairs(faults.swap_every) if faults.swap_every else None

    def take(self, client: int, frame: Frame, now: int) -> None:
        """A frame came, at ``now`` ns; messages of it go when :meth:`release` is called.

        :raises FrameError: it is none that a client sends.
        """
        if frame.kind in frames.PRODUCES:
            self._produce(client, frame, now)
        elif frame.kind is Kind.SUBSCRIBE:
            self._subscribe(client, frame)
        elif frame.kind in (Kind.PAUSE, Kind.RESUME, Kind.UNSUBSCRIBE):
            self._change(frame.kind, holder_of(client, frame.columns["place"]))
        else:
            raise FrameError(f"nobody asks a relay for {frame.kind.name}")

    def leave(self, client: int) -> None:
        """A client is gone: its consumers are forgotten, with all that waited for them."""
        gone = self._seats.of_connection(client)
        self._seats.leave(gone)
        self._kept.take(gone)

    def next(self) -> int | None:
        """When :meth:`release` has something to do, ns; None: when another frame has come."""
        times = [parcel.time for parcel in self._waiting[:1]]
        times += [time for time in (self._halves.next() if self._halves else None, self._later.next()) if time is not None]
        return min(times, default=None)

    def release(self, now: int) -> None:
        """Acknowledge and deliver what is due."""
        due = []
        while self._waiting and self._waiting[0].time <= now:
            due.append(heapq.heappop(self._waiting))
        for sender, parcels in itertools.groupby(due, lambda parcel: parcel.sender):
            self._post(sender, frames.encode(Kind.ACK, {}, n=sum(len(parcel.batch) for parcel in parcels)))
        for parcel in due:
            if parcel.due is not None:
                self._later.add(parcel.batch, parcel.due)
        for batch in bundle(parcel.batch for parcel in due if parcel.due is None):
            self._deliver(self._halves.complete(batch, now) if self._halves else batch)
        if self._halves:
            self._deliver(self._halves.expired(now))
        if (ready := self._later.release(now)) is not None:
            self._deliver(ready)

    def _run(self, frame: Frame) -> int:
        """What to add to the numbers of topics, so that different runs have different ones."""
        return self._runs.setdefault(frame.run, len(self._runs)) << 32

    def _subscribe(self, client: int, frame: Frame) -> None:
        place = frame.columns["place"]
        seats = np.zeros(len(place), SEAT)
        seats["topic"], seats["holder"] = frame.columns["topic"].astype(np.int64) + self._run(frame), holder_of(client, place)
        seats["subscription"], seats["consumer"] = frame.columns["subscription"], frame.columns["consumer"]
        self._seats.add(seats)
        self._post(client, frames.encode(Kind.SUBSCRIBED, {"place": place}))

    def _change(self, kind: Kind, changed: NDArray[np.int64]) -> None:
        """Consumers pause, go on or leave; what waited for those that do not pause is handed over, or on to who stays."""
        if kind is Kind.PAUSE:
            self._seats.pause(changed, True)
        elif kind is Kind.RESUME:
            self._seats.pause(changed, False)
            for batch, of in self._kept.take(changed):
                self._hand(batch, None, self._seats.rows(of))
        else:
            left = self._seats.leave(changed)
            left = left[np.argsort(left["holder"])]
            for batch, of in self._kept.take(changed):
                subscription = left["subscription"][np.searchsorted(left["holder"], of)]
                self._hand(batch, *self._seats.route(batch.topic, batch.producer, subscription))

    def _produce(self, sender: int, frame: Frame, now: int) -> None:
        columns = frame.columns
        stream = columns["stream"]
        topic = np.remainder(stream, frame.topics, dtype=np.int64)
        topic += frame.topic + self._run(frame)
        producer = np.add(stream, sender << 32, dtype=np.int64)
        batch = Batch(topic, producer, columns["seq"], columns["size"], frame.payload)
        damage(self._faults, batch)
        gate = self._gates.get(frame.run) or self._gates.setdefault(frame.run, Gate(self._faults, now))
        due = columns["due"] if frame.kind is Kind.PRODUCE_LATER else None
        for release, count in gate.release(now, len(batch)):
            part, batch = batch.split(count) if count < len(batch) else (batch, batch)
            mine, due = (None, None) if due is None else (self._due(due[:count], release), due[count:])
            heapq.heappush(self._waiting, Parcel(release, next(self._numbers), sender, part, mine))

    def _due(self, due: NDArray[np.int64], release: int) -> NDArray[np.int64]:
        """Return due times, ns of the relay's clock, of messages that leave the gate at ``release``. :param due: as in the frame.

        A message that is not delayed is due at ``release``. An earlier time would let it overtake delayed messages that are due already
        and still wait, because the relay looked at its queue late.
        """
        return np.where(due == AT_ONCE, release, due * MILLISECOND - self._wall)

    def _deliver(self, batch: Batch) -> None:
        index = delivered(self._faults, batch)
        message, row = self._seats.route(pick(batch.topic, index), pick(batch.producer, index))
        self._hand(batch, compose_index(index, message), row)

    def _hand(self, batch: Batch, message: Index, row: NDArray[np.intp]) -> None:
        """Send messages to consumers, or keep them for those that are paused; ``row`` has the consumer of each message of the index."""
        seats = self._seats
        if seats.any_paused and (paused := seats.paused.take(row)).any():
            waiting, going = np.flatnonzero(paused), np.flatnonzero(~paused)
            self._kept.add(batch.take(compose_index(message, waiting)), seats.holder.take(row[waiting]))
            message, row = compose_index(message, going), row[going]
        if not len(row):
            return
        if seats.one_connection:
            self._send(int(seats.connection[0]), batch, message, seats.place.take(row))
            return
        connection = seats.connection.take(row)
        for client in np.unique(connection).tolist():
            chosen = np.flatnonzero(connection == client)
            self._send(client, batch, compose_index(message, chosen), seats.place.take(row[chosen]))

    def _send(self, client: int, batch: Batch, message: Index, place: NDArray[np.int64]) -> None:
        size = pick(batch.size, message)
        if message is None and len(batch.payload) <= frames.PORTION:
            self._post(client, frames.encode(Kind.DELIVER, {"place": place, "size": size}, payloads=batch.pieces(None)))
            return
        message = np.arange(len(batch)) if message is None else message
        for part in frames.portions(size):
            pieces = batch.pieces(message[part])
            self._post(client, frames.encode(Kind.DELIVER, {"place": place[part], "size": size[part]}, payloads=pieces))


# Who gets which message of a loopback relay: the consumers that are there, and the way from a topic and a stream to one of them.
#
# Each subscription of a topic gets every message of it; within a subscription the stream decides, modulo the consumers present, in the
# order of their index. Consumers come and go by the thousand in one step; the way is worked out again when the next message needs it.

SEAT: Final = np.dtype([("topic", "i8"), ("subscription", "u4"), ("consumer", "u4"), ("holder", "i8"), ("paused", "?")])
"""A consumer: its number is that in its subscription's order; for the holder see :func:`holder_of`."""

_PLACE: Final = (1 << 32) - 1
_SPARSE: Final = 16  # a table over the numbers of topics is made when it is at most so many times as long as there are topics
_SMALL: Final = 1 << 16  # bytes of payload that are joined rather than listed


def holder_of(connection: int, place: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Who sits on a seat, as one number: a connection, and one of its places; never used again."""
    return (place.astype(np.int64) & _PLACE) | connection << 32


class SubscriptionTable:
    """All consumers of a relay.

    They stand in *rows*, which :meth:`route` and :meth:`rows` give and which hold until somebody comes or leaves. Of each row:

    :ivar holder: int64. :ivar connection: int64. :ivar place: int64. :ivar paused: bool.
    :ivar one_connection: they are all of one. :ivar any_paused: one of them is paused.
    """

    holder: NDArray[np.int64]
    connection: NDArray[np.int64]
    place: NDArray[np.int64]
    paused: NDArray[np.bool_]
    one_connection: bool
    any_paused: bool

    def __init__(self) -> None:
        self._table = np.empty(0, SEAT)
        self._routes: _Routes | None = None

    def add(self, seats: NDArray[np.void]) -> None:
        """Consumers come; :data:`SEAT`."""
        self._table, self._routes = np.concatenate([self._table, seats]), None

    def leave(self, holders: NDArray[np.int64]) -> NDArray[np.void]:
        """Consumers leave; who did, :data:`SEAT`."""
        gone = np.isin(self._table["holder"], holders)
        left = self._table[gone]
        self._table, self._routes = self._table[~gone], None
        return left

    def pause(self, holders: NDArray[np.int64], paused: bool) -> None:
        """They do not want messages, or want them again."""
        self._table["paused"][np.isin(self._table["holder"], holders)] = paused
        self._note_paused()

    def _note_paused(self) -> None:
        self.paused = self._table["paused"].copy()
        self.any_paused = bool(self.paused.any())

    def of_connection(self, connection: int) -> NDArray[np.int64]:
        """All consumers of a connection."""
        holder: NDArray[np.int64] = self._table["holder"]
        return holder.take(np.flatnonzero(holder >> 32 == connection))

    def rows(self, holders: NDArray[np.int64]) -> NDArray[np.intp]:
        """Where consumers stand that are present."""
        self._arranged()
        order = np.argsort(self.holder)
        return order[np.searchsorted(self.holder, holders, sorter=order)]

    def route(
        self, topic: NDArray[np.int64], producer: NDArray[np.int64], only: NDArray[np.uint32] | None = None
    ) -> tuple[Index, NDArray[np.intp]]:
        """Who gets what: messages, and for each the row of a consumer; those of one consumer in the order of the messages.

        :param producer: as a :class:`Batch` has it.
        :param only: by message, the one subscription that gets it; None: every subscription of its topic does.
        """
        routes = self._arranged()
        slot = routes.find(topic)
        message: Index = None
        subscription = routes.first.take(slot)
        if only is not None or routes.most > 1:
            message, subscription = routes.every_subscription(slot)
        if only is not None:
            own = np.flatnonzero(routes.subscription.take(subscription) == pick(only, message))
            message, subscription = compose_index(message, own), subscription[own]
        seats = routes.seats.take(subscription)
        if not seats.all():
            taken = np.flatnonzero(seats)
            message, subscription, seats = compose_index(message, taken), subscription[taken], seats[taken]
        row = routes.start.take(subscription)
        if routes.most_seats > 1:
            row += (pick(producer, message) & STREAM) % seats
        return message, row

    def _arranged(self) -> _Routes:
        if self._routes is None:
            table = self._table
            self._table = table = table[np.lexsort((table["consumer"], table["subscription"], table["topic"]))]
            self._note_paused()
            self.holder = table["holder"].copy()
            self.connection, self.place = self.holder >> 32, self.holder & _PLACE
            self.one_connection = len(np.unique(self.connection)) == 1
            self._routes = _find_routes(table["topic"], table["subscription"])
        return self._routes


@dataclass(frozen=True, slots=True)
class _Routes:
    """From a topic to its subscriptions, and from those to their seats, which are neighbours among the rows.

    ``topic``: numbers, in order; behind the last stands one that no topic has. ``first``, ``count``: its subscriptions.
    ``most``: of one topic.
    ``subscription``: number within the topic. ``start``, ``seats``: its rows; behind the last subscription stands one without any.
    ``most_seats``: of one subscription.
    ``table``: topics by their numbers from ``base`` on, where these lie close together; otherwise None.
    """

    topic: NDArray[np.int64]
    first: NDArray[np.intp]
    count: NDArray[np.intp]
    most: int
    subscription: NDArray[np.uint32]
    start: NDArray[np.intp]
    seats: NDArray[np.intp]
    most_seats: int
    table: NDArray[np.intp] | None
    base: int

    def find(self, topic: NDArray[np.int64]) -> NDArray[np.intp]:
        """Topics by number; behind the last where nobody reads it."""
        if self.table is not None:
            return self.table.take(topic - self.base, mode="clip")
        found = np.searchsorted(self.topic[:-1], topic)
        return np.where(self.topic.take(found) == topic, found, len(self.topic) - 1)

    def every_subscription(self, slot: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """By topic of each message: a message and one of its topic's subscriptions, for all of them.

        First come all messages for the first subscription of their topics, then all for the second ones: neighbours stay neighbours.
        """
        count = self.count.take(slot)
        message = np.repeat(np.arange(len(slot)), count)
        nth = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count)
        by = np.argsort(nth, kind="stable")
        return message[by], (np.repeat(self.first.take(slot), count) + nth)[by]


def _find_routes(topic: NDArray[np.int64], subscription: NDArray[np.uint32]) -> _Routes:
    """From two columns of the rows."""
    starts = np.flatnonzero((np.diff(topic, prepend=-1) != 0) | (np.diff(subscription.astype(np.int64), prepend=-1) != 0))
    topics, first, count = np.unique(topic[starts], return_index=True, return_counts=True)
    seats = np.diff(starts, append=len(topic))
    base, table = 0, None
    if len(topics) and topics[-1] - topics[0] < _SPARSE * len(topics):
        base = int(topics[0]) - 1
        table = np.full(int(topics[-1]) - base + 2, len(topics))  # one more at both ends, for whatever lies outside
        table[topics - base] = np.arange(len(topics))
    return _Routes(
        topic=np.append(topics, -1),
        first=np.append(first, len(starts)),
        count=np.append(count, 0),
        most=int(count.max(initial=0)),
        subscription=subscription[starts],
        start=np.append(starts, 0),
        seats=np.append(seats, 0),
        most_seats=int(seats.max(initial=0)),
        table=table,
        base=base,
    )


class Kept:
    """Copies that wait in the relay for consumers that are paused: messages, and who is to get each of them."""

    def __init__(self) -> None:
        self._copies: list[tuple[Batch, NDArray[np.int64]]] = []

    def add(self, batch: Batch, holders: NDArray[np.int64]) -> None:
        """One message for each of these consumers."""
        if self._copies and len(self._copies[-1][0].payload) < _SMALL:
            last, of = self._copies.pop()
            batch, holders = join_batches([last, batch]), np.concatenate([of, holders])
        self._copies.append((batch, holders))

    def take(self, holders: NDArray[np.int64]) -> list[tuple[Batch, NDArray[np.int64]]]:
        """What waited for these consumers, in order."""
        if not self._copies:
            return []
        ends = np.cumsum([len(of) for _, of in self._copies])
        masks = np.split(np.isin(np.concatenate([of for _, of in self._copies]), holders), ends[:-1])
        waited = [(batch, of, mask) for (batch, of), mask in zip(self._copies, masks, strict=True)]
        self._copies = [(batch.where(~mask), of[~mask]) for batch, of, mask in waited if not mask.all()]
        return [(batch.where(mask), of[mask]) for batch, of, mask in waited if mask.any()]
