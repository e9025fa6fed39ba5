"""The worker's consumers at the loopback relay: their places, and what they got.

A paused consumer's messages wait in the relay, but for those already on their way: these wait here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Joined
from pytest_loadtest.drivers.loopback import messages
from pytest_loadtest.drivers.loopback.numbers import first_topic, run_number, subscription_numbers
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverContext, Received
    from pytest_loadtest.drivers.loopback.driver import RelayConnection
    from pytest_loadtest.wire.frames import Frame


class RelayConsumers:
    """Subscribes and collects; see :class:`~pytest_loadtest.drivers.base.Driver` for what each method promises.

    The relay answers in the order asked, so that a consumer's place is known when it asks.
    """

    def __init__(self, context: DriverContext, connection: RelayConnection) -> None:
        self.connection = connection
        self.established = 0  # places below it are
        self._context = context
        self._paused = np.empty(0, np.bool_)  # by place
        self._joining: deque[Joined] = deque()
        self._unread: list[tuple[Frame, int]] = []  # each with its instant
        self._arrived: list[Received] = []
        self._early: list[Received] = []  # on their way when their consumer paused

    def subscribe(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Ask for them; they are there when :attr:`established` is above their places, which are returned.

        :raises UsageError: one is none of this run's.
        """
        consumer = np.asarray(consumers, np.int64)
        topology = self._context.topology
        if len(consumer) and not 0 <= int(consumer.min()) <= int(consumer.max()) < topology.all_consumers:
            raise UsageError(f"consumer {int(consumer.max())}: the run has those from 0 to {topology.all_consumers - 1}")
        place = np.arange(len(self._paused), len(self._paused) + len(consumer), dtype=np.int32)
        self._paused = np.append(self._paused, np.zeros(len(place), np.bool_))
        topic = topology.topic_of_consumer(consumer) + first_topic(self._context)
        subscription = subscription_numbers(self._context, topology.subscription_of_consumer(consumer))
        columns = {"topic": topic, "subscription": subscription, "consumer": consumer, "place": place}
        self.connection.send(frames.encode(Kind.SUBSCRIBE, columns, run=run_number(self._context)))
        return place

    def attach(self, consumers: Sequence[int]) -> None:
        """As :meth:`Driver.attach`."""
        place = self.subscribe(consumers)
        self._joining.append(Joined(np.array(consumers, np.int32), place))

    def attached(self) -> Joined | None:
        """As :meth:`Driver.attached`."""
        joined = []
        while self._joining and self._joining[0].place[-1] < self.established:
            joined.append(self._joining.popleft())
        return Joined(*map(np.concatenate, zip(*joined, strict=True))) if joined else None

    def subscribed(self, frame: Frame) -> None:
        """A SUBSCRIBED came."""
        self.established = int(frame.columns["place"][-1]) + 1

    def pause(self, places: Sequence[int]) -> None:
        """As :meth:`Driver.pause`."""
        self._read()
        self._paused[places] = True
        self._tell(Kind.PAUSE, places)

    def resume(self, places: Sequence[int]) -> None:
        """As :meth:`Driver.resume`."""
        self._take_up(Kind.RESUME, places)

    def leave(self, places: Sequence[int]) -> None:
        """As :meth:`Driver.detach`: what is still on its way is taken; what waits in the relay goes to the others."""
        self._take_up(Kind.UNSUBSCRIBE, places)

    def _take_up(self, kind: Kind, places: Sequence[int]) -> None:
        self._read()
        now = self._context.clock()
        self._paused[places] = False
        early, self._early = self._early, []
        for received in early:
            self._sort(replace(received, time=np.full(len(received.time), now)))
        self._tell(kind, places)

    def _tell(self, kind: Kind, places: Sequence[int]) -> None:
        self.connection.send(frames.encode(kind, {"place": np.asarray(places, np.int32)}))

    def arrived(self, frame: Frame, now: int) -> None:
        """A DELIVER came."""
        self._unread.append((frame, now))

    def _read(self) -> None:
        if self._unread:
            unread, self._unread = self._unread, []
            try:
                received = messages.read(unread, checksum=self._context.checksum)
            except FrameError as error:
                raise TargetError(f"{self.connection.name}: {error}") from error
            self._sort(received)

    def _sort(self, received: Received) -> None:
        paused = self._paused.take(received.consumer)
        if paused.any():
            self._early.append(messages.choose(received, paused))
            received = messages.choose(received, ~paused)
        if len(received.time):
            self._arrived.append(received)

    def take(self) -> Received | None:
        """As :meth:`Driver.take`."""
        self._read()
        if not self._arrived:
            return None
        arrived, self._arrived = self._arrived, []
        return messages.join(arrived)
