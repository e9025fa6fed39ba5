"""What a loopback relay does with frames, without sockets: who sent a message is told that it was taken, and who subscribed gets it.

Each subscription of a topic gets every message; consumers of one subscription share its streams (stream modulo consumers, by index), so
that a stream stays in order. A topic without subscriptions keeps nothing. What a paused consumer does not want waits in memory; of a
consumer that unsubscribes, the others get it. Clients are the numbers of their connections.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.drivers.loopback.batch import Batch, bundle, pick, within
from pytest_loadtest.drivers.loopback.batch import DelayQueue
from pytest_loadtest.drivers.loopback.faults import Faults, Gate, HalfPairs, damage, delivered
from pytest_loadtest.drivers.loopback.subscription_table import SEAT, Kept, SubscriptionTable, holder_of
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
        due = columns["due"] * MILLISECOND - self._wall if frame.kind is Kind.PRODUCE_LATER else None
        for release, count in gate.release(now, len(batch)):
            part, batch = batch.split(count) if count < len(batch) else (batch, batch)
            mine, due = (None, None) if due is None else (due[:count], due[count:])
            heapq.heappush(self._waiting, Parcel(release, next(self._numbers), sender, part, mine))

    def _deliver(self, batch: Batch) -> None:
        index = delivered(self._faults, batch)
        message, row = self._seats.route(pick(batch.topic, index), pick(batch.producer, index))
        self._hand(batch, within(index, message), row)

    def _hand(self, batch: Batch, message: Index, row: NDArray[np.intp]) -> None:
        """Send messages to consumers, or keep them for those that are paused; ``row`` has the consumer of each message of the index."""
        seats = self._seats
        if seats.any_paused and (paused := seats.paused.take(row)).any():
            waiting, going = np.flatnonzero(paused), np.flatnonzero(~paused)
            self._kept.add(batch.take(within(message, waiting)), seats.holder.take(row[waiting]))
            message, row = within(message, going), row[going]
        if not len(row):
            return
        if seats.one_connection:
            self._send(int(seats.connection[0]), batch, message, seats.place.take(row))
            return
        connection = seats.connection.take(row)
        for client in np.unique(connection).tolist():
            chosen = np.flatnonzero(connection == client)
            self._send(client, batch, within(message, chosen), seats.place.take(row[chosen]))

    def _send(self, client: int, batch: Batch, message: Index, place: NDArray[np.int64]) -> None:
        size = pick(batch.size, message)
        if message is None and len(batch.payload) <= frames.PORTION:
            self._post(client, frames.encode(Kind.DELIVER, {"place": place, "size": size}, payloads=batch.pieces(None)))
            return
        message = np.arange(len(batch)) if message is None else message
        for part in frames.portions(size):
            pieces = batch.pieces(message[part])
            self._post(client, frames.encode(Kind.DELIVER, {"place": place[part], "size": size[part]}, payloads=pieces))
