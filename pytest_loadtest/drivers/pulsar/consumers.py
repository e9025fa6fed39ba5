"""All consumers of one worker: their places, what they got, and their coming and going while messages flow.

Each attach and each detach works in a thread of its own, for pulsar-client blocks for both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.drivers.base import Joined
from pytest_loadtest.drivers.pulsar.consumer import received_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Received
    from pytest_loadtest.drivers.pulsar.consumer import Copy, PulsarConsumer


class _Newcomer(NamedTuple):
    """A consumer that receives, and that the engine does not know of yet. ``number``: in the run."""

    number: int
    place: int
    consumer: PulsarConsumer


class PulsarConsumers:
    """See :class:`~pytest_loadtest.drivers.base.Driver` for places.

    :param opening: subscribes consumers, all or none; blocks. Called in threads of this class too.
    """

    def __init__(self, opening: Callable[[Sequence[int]], list[PulsarConsumer]]) -> None:
        self._opening = opening
        self._copies: deque[Copy] = deque()  # as the consumers' threads left them
        self._here: dict[int, PulsarConsumer] = {}  # by place
        self._leaving: list[PulsarConsumer] = []
        self._numbering, self._places = threading.Lock(), 0
        self._newcomers: deque[_Newcomer] = deque()
        self._untold: set[int] = set()  # places that the engine does not know yet
        self._early: list[Copy] = []  # what came to these
        self._threads: list[threading.Thread] = []
        self._failures: deque[Exception] = deque()

    def open(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Subscribe and receive. :returns: their places. :raises TargetError: one of them cannot."""
        opened = self._opening(consumers)
        with self._numbering:
            joined = self._begin(consumers, opened)
        return self._tell(joined).place

    def attach(self, consumers: Sequence[int]) -> None:
        """The same without waiting for it: :meth:`attached` tells."""
        self._start("pulsar-attach", lambda: self._join(consumers))

    def _join(self, consumers: Sequence[int]) -> None:
        try:
            opened = self._opening(consumers)
            with self._numbering:  # until they are in the queue, so that places are told in their order
                self._newcomers.extend(self._begin(consumers, opened))
        except Exception as error:  # raised on the engine's thread, by attached()
            self._failures.append(error)

    def _begin(self, consumers: Sequence[int], opened: Sequence[PulsarConsumer]) -> list[_Newcomer]:
        """Give them their places and let them receive."""
        joined = [_Newcomer(*row) for row in zip(consumers, count(self._places), opened, strict=False)]
        self._places += len(joined)
        self._untold.update(one.place for one in joined)  # before anything comes
        for one in joined:
            one.consumer.start(one.place, self._copies)
        return joined

    def _tell(self, joined: Sequence[_Newcomer]) -> Joined:
        self._here.update((one.place, one.consumer) for one in joined)
        self._untold.difference_update(one.place for one in joined)
        return Joined(np.array([one.number for one in joined], np.int32), np.array([one.place for one in joined], np.int32))

    def attached(self) -> Joined | None:
        """Consumers of :meth:`attach` that are established since the last call, or None.

        :raises TargetError: one could not be opened.
        """
        if self._failures:
            raise self._failures.popleft()
        joined = [self._newcomers.popleft() for _ in range(len(self._newcomers))]
        return self._tell(joined) if joined else None

    def detach(self, places: Sequence[int]) -> None:
        """Begin to close them. Each takes the batch that it has begun to its end: half of it would come again as a whole, elsewhere."""
        leaving = [self._here.pop(place) for place in places]
        for consumer in leaving:
            consumer.leave()
        self._leaving = [one for one in self._leaving if one.thread.is_alive()] + leaving
        self._start("pulsar-detach", lambda: _close_all(leaving))

    def pause(self, places: Sequence[int]) -> None:
        """Take no more from the client; ``receiverQueueSize`` bounds what it fetches ahead."""
        for place in places:
            self._here[place].pause()

    def resume(self, places: Sequence[int]) -> None:
        """Go on."""
        for place in places:
            self._here[place].resume()

    def take(self) -> Received | None:
        """What all of them got since the last call, or None; what newcomers got waits until :meth:`attached` has told their places."""
        came = self._early + [self._copies.popleft() for _ in range(len(self._copies))]
        self._early = [copy for copy in came if copy[0] in self._untold] if self._untold else []
        if self._early:
            came = [copy for copy in came if copy[0] not in self._untold]
        return received_columns(came) if came else None

    def disconnected(self) -> list[str]:
        """Names of those that have no connection just now."""
        return [consumer.name for consumer in self._here.values() if not consumer.connected]

    def expect_close(self) -> None:
        """The clients are about to be closed: what the threads then see is no failure."""
        for consumer in [*self._here.values(), *self._leaving, *(one.consumer for one in list(self._newcomers))]:
            consumer.expect_close()

    def join_threads(self, deadline: float) -> None:
        """Wait for the end of all threads. :param deadline: of ``time.monotonic()``."""
        for thread in [*(consumer.thread for consumer in self._here.values()), *self._threads]:
            thread.join(max(deadline - time.monotonic(), 0))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()


def _close_all(consumers: Sequence[PulsarConsumer]) -> None:
    for consumer in consumers:
        consumer.close()
