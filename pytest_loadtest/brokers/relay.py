"""The loopback relay: frames in, frames out, with faults on order (:mod:`~pytest_loadtest.brokers.faults`).

``python -m pytest_loadtest.brokers.relay --port 0 --settings '{"delay": "20ms"}'`` prints ``{"port": N}`` when it listens on 127.0.0.1 and
ends on SIGTERM, or when its standard input is a pipe and that is closed.

Each subscription of a topic gets every message; consumers of one subscription share its streams (stream modulo consumers, by index), so
that a stream stays in order. A topic without subscriptions keeps nothing. What a consumer does not read waits in memory, and so does
what a paused one does not want; of a consumer that unsubscribes, the others get it.
One thread; ``select`` rather than ``epoll``, whose time-outs are whole milliseconds in Python; that bounds it to about 1000 connections.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import selectors
import signal
import socket
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.brokers import faults as what
from pytest_loadtest.brokers.faults import Batch, Faults, Gate
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Address, Decoder, Frame, FrameError, Kind, Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    import numpy as np
    from numpy.typing import NDArray

Stream = tuple[int, int]  # run, stream
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass(eq=False, slots=True)
class Connection:
    """One client's socket."""

    socket: socket.socket
    inbox: Decoder = field(default_factory=Decoder)
    outbox: Outbox = field(default_factory=Outbox)
    waits_to_write: bool = False


Delivery = tuple[Address, "NDArray[np.int64]", "NDArray[np.int32]", "Sequence[memoryview]"]


@dataclass(eq=False, slots=True)
class Seat:
    """A consumer, where it sits, and what waits for it while it is paused."""

    consumer: int
    connection: Connection
    paused: bool = False
    kept: list[Delivery] = field(default_factory=list)


class Parcel(NamedTuple):
    """Messages that wait for their time. ``sender`` is None when they are acknowledged already."""

    time: int
    number: int  # parcels of one time leave in the order they came
    address: Address
    batch: Batch
    sender: Connection | None


class Relay:
    """All state of one relay."""

    def __init__(self, listener: socket.socket, faults: Faults) -> None:
        self._faults = faults
        self._listener = listener
        self._selector = selectors.SelectSelector()
        self._selector.register(listener, READ)
        self._seats: dict[tuple[int, int], dict[int, list[Seat]]] = {}  # (run, topic) → subscription → consumers
        self._gates: dict[int, Gate] = {}
        self._waiting: list[Parcel] = []
        self._number = 0
        self._held: dict[Stream, Parcel] = {}
        self._touched: set[Connection] = set()

    def watch(self, descriptor: int) -> None:
        """End when this reaches its end."""
        self._selector.register(descriptor, READ)

    def run(self) -> None:
        """Until a watched descriptor ends."""
        while True:
            for key, events in self._selector.select(self._timeout()):
                connection: Connection | None = key.data
                if key.fileobj is self._listener:
                    self._accept()
                elif connection is None:
                    if not os.read(key.fd, 4096):
                        return
                else:
                    if events & WRITE:
                        self._touched.add(connection)
                    if events & READ:
                        self._read(connection)
            self._release()
            self._flush()

    def _timeout(self) -> float | None:
        return max(0.0, (self._waiting[0].time - time.monotonic_ns()) / 1e9) if self._waiting else None

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, READ, Connection(client))

    def _read(self, connection: Connection) -> None:
        try:
            count = connection.socket.recv_into(connection.inbox.space())
            now = time.monotonic_ns()
            came = connection.inbox.filled(count)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        except FrameError as error:
            print(f"relay: closed a connection: {error}", file=sys.stderr, flush=True)
            self._drop(connection)
            return
        for frame in came:
            self._take(connection, frame, now)
        if not count:
            self._drop(connection)

    def _take(self, connection: Connection, frame: Frame, now: int) -> None:
        if frame.kind is Kind.PRODUCE:
            self._produce(connection, frame, now)
        elif frame.kind is Kind.SUBSCRIBE:
            a = frame.address
            seats = self._seats.setdefault((a.run, a.topic), {}).setdefault(a.subscription, [])
            seats.append(Seat(a.consumer, connection))
            seats.sort(key=lambda seat: seat.consumer)
            self._post(connection, frames.wish(Kind.SUBSCRIBED, a))
        else:
            self._change(connection, frame)

    def _change(self, connection: Connection, frame: Frame) -> None:
        """A consumer pauses, goes on or leaves."""
        a = frame.address
        seats = self._seats.get((a.run, a.topic), {}).get(a.subscription, [])
        for seat in [seat for seat in seats if seat.consumer == a.consumer and seat.connection is connection]:
            seat.paused = frame.kind is Kind.PAUSE
            if frame.kind is Kind.UNSUBSCRIBE:
                seats.remove(seat)
            if not seat.paused:
                kept, seat.kept = seat.kept, []
                for delivery in kept:
                    self._hand(seats if frame.kind is Kind.UNSUBSCRIBE else [seat], delivery)

    def _produce(self, sender: Connection, frame: Frame, now: int) -> None:
        run = frame.address.run
        batch = Batch(frame.seq, frame.size, frame.payload)
        what.damage(self._faults, batch)
        gate = self._gates.get(run) or self._gates.setdefault(run, Gate(self._faults, now))
        for release, count in gate.release(now, len(batch)):
            part, batch = batch.split(count) if count < len(batch) else (batch, batch)
            self._wait(release, frame.address, part, sender)

    def _wait(self, release: int, address: Address, batch: Batch, sender: Connection | None) -> Parcel:
        self._number += 1
        parcel = Parcel(release, self._number, address, batch, sender)
        heapq.heappush(self._waiting, parcel)
        return parcel

    def _release(self) -> None:
        now = time.monotonic_ns()
        while self._waiting and self._waiting[0].time <= now:
            parcel = heapq.heappop(self._waiting)
            stream = parcel.address.run, parcel.address.stream
            if parcel.sender is not None:
                self._post(parcel.sender, frames.ack(parcel.address, parcel.batch.seq))
                self._deliver(parcel.address, self._pair(stream, parcel, now))
            elif self._held.get(stream) is parcel:  # the second of the pair did not come in time
                self._deliver(parcel.address, self._held.pop(stream).batch)

    def _pair(self, stream: Stream, parcel: Parcel, now: int) -> Batch:
        """The batch with what was held for it in front, and without what it holds back."""
        held = self._held.pop(stream, None)
        batch = parcel.batch if held is None else held.batch.join(parcel.batch)
        if what.hold_back(self._faults, batch):
            batch, last = batch.split(len(batch) - 1)
            self._held[stream] = self._wait(now + what.HOLD, parcel.address, last, None)
        return batch

    def _deliver(self, address: Address, batch: Batch) -> None:
        topic = self._seats.get((address.run, address.topic))
        if topic is None:
            return
        seq, size, payloads = what.delivered(self._faults, batch)
        if not len(seq):
            return
        for subscription, seats in topic.items():
            self._hand(seats, (address._replace(subscription=subscription), seq, size, payloads))

    def _hand(self, seats: Sequence[Seat], delivery: Delivery) -> None:
        if not seats:
            return
        address, seq, size, payloads = delivery
        seat = seats[address.stream % len(seats)]
        if seat.paused:
            seat.kept.append(delivery)
        else:
            self._post(seat.connection, frames.deliver(address._replace(consumer=seat.consumer), seq, size, payloads))

    def _post(self, connection: Connection, buffers: Sequence[memoryview]) -> None:
        connection.outbox.add(buffers)
        self._touched.add(connection)

    def _flush(self) -> None:
        for connection in self._touched:
            try:
                while connection.outbox:
                    connection.outbox.sent(connection.socket.sendmsg(connection.outbox.next()))
            except BlockingIOError:
                pass
            except OSError:
                self._drop(connection)
            if connection.waits_to_write != bool(connection.outbox) and connection.socket.fileno() >= 0:
                connection.waits_to_write = bool(connection.outbox)
                self._selector.modify(connection.socket, READ | WRITE if connection.waits_to_write else READ, connection)
        self._touched.clear()

    def _drop(self, connection: Connection) -> None:
        if connection.socket.fileno() < 0:
            return
        self._selector.unregister(connection.socket)
        connection.socket.close()
        for key, subscriptions in list(self._seats.items()):
            left = {
                number: kept
                for number, seats in subscriptions.items()
                if (kept := [seat for seat in seats if seat.connection is not connection])
            }
            if left:
                self._seats[key] = left
            else:
                del self._seats[key]


def main(argv: Sequence[str]) -> int:
    """Serve until told to end; 2 when the settings are wrong."""
    parser = argparse.ArgumentParser(prog="python -m pytest_loadtest.brokers.relay", description="A loopback relay with faults on order.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--settings", default="{}", help='JSON object of texts: {"delay": "20ms", "loseEvery": "1000"}')
    options = parser.parse_args(argv)
    try:
        faults = what.parse(json.loads(options.settings))
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, _end)
    with socket.create_server(("127.0.0.1", options.port), backlog=128) as listener:
        relay = Relay(listener, faults)
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            relay.watch(0)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        relay.run()
    return 0


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
