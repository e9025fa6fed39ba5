"""The consumers of one worker on pulsar-client.

Their places and messages, and attaching and detaching during load.

Each attach and each detach has a thread of its own, because pulsar-client blocks for both.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import _pulsar
import numpy as np

from pytest_loadtest.drivers.base import DriverContext, Joined, Received
from pytest_loadtest.drivers.pulsar.names import OUTPUT_BITS, key_number
from pytest_loadtest.message.carried import carried_heads
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.route import PROPERTY, Carrier
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.metrics.strays import BEGINNING
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Copy = tuple[int, int, bytes, int, int, int, bytes]
    """Place of the consumer, time of arrival, what has the envelope, size, order, flags, and the
    first bytes of the body.

    See :class:`~pytest_loadtest.drivers.base.Received`."""


class _Attached(NamedTuple):
    """A consumer that receives already, but is not reported to the engine yet.

    ``number``: its number in the run.
    """

    number: int
    place: int
    consumer: PulsarConsumer


class PulsarConsumers:
    """All consumers. See :class:`~pytest_loadtest.drivers.base.Driver` for places.

    :param opening: subscribes consumers, all or none; it blocks, and
        is called in threads of this class too.
    :param carrier: what has the envelope of their messages.
    """

    def __init__(
        self,
        opening: Callable[[Sequence[int]], list[PulsarConsumer]],
        carrier: Carrier = Carrier.BODY,
    ) -> None:
        self._opening = opening
        self._carrier = carrier
        # Filled by the consumers' threads, emptied by the engine's: a
        # deque needs no lock for append and popleft.
        self._copies: deque[Copy] = deque()
        self._consumers: dict[int, PulsarConsumer] = {}  # by place
        self._leaving: list[PulsarConsumer] = []
        self._numbering = threading.Lock()
        self._places = 0
        self._attached: deque[_Attached] = deque()
        # Places that the engine does not know yet, and the messages for them.
        self._unreported: set[int] = set()
        self._early: list[Copy] = []
        self._threads: list[threading.Thread] = []
        self._failures: deque[Exception] = deque()

    def open(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Subscribe and receive. :returns: the places of the consumers.

        :raises TargetError: a consumer cannot subscribe.
        """
        opened = self._opening(consumers)
        with self._numbering:
            joined = self._begin(consumers, opened)
        return self._report(joined).place

    def attach(self, consumers: Sequence[int]) -> None:
        """Begin to subscribe in a thread; :meth:`attached` returns the consumers."""
        self._start("pulsar-attach", lambda: self._join(consumers))

    def _join(self, consumers: Sequence[int]) -> None:
        try:
            opened = self._opening(consumers)
            with self._numbering:
                # Held until they are in the queue, so that places are reported in their order.
                self._attached.extend(self._begin(consumers, opened))
        except Exception as error:
            # This is a thread of its own: attached() raises the error on the engine's thread.
            self._failures.append(error)

    def _begin(self, consumers: Sequence[int], opened: Sequence[PulsarConsumer]) -> list[_Attached]:
        """Give the consumers their places and start to receive."""
        joined = [
            _Attached(*row) for row in zip(consumers, count(self._places), opened, strict=False)
        ]
        self._places += len(joined)
        # This must precede start(): a message for an unknown place may arrive at once.
        self._unreported.update(new.place for new in joined)
        for new in joined:
            new.consumer.start(new.place, self._copies)
        return joined

    def _report(self, joined: Sequence[_Attached]) -> Joined:
        self._consumers.update((new.place, new.consumer) for new in joined)
        self._unreported.difference_update(new.place for new in joined)
        numbers = [new.number for new in joined]
        places = [new.place for new in joined]
        return Joined(np.array(numbers, np.int32), np.array(places, np.int32))

    def attached(self) -> Joined | None:
        """Consumers of :meth:`attach` that are established since the last call, or None.

        :raises TargetError: one could not be opened.
        """
        if self._failures:
            raise self._failures.popleft()
        joined = [self._attached.popleft() for _ in range(len(self._attached))]
        return self._report(joined) if joined else None

    def detach(self, places: Sequence[int]) -> None:
        """Begin to close consumers.

        Each receives its current batch to the end: otherwise all of
        it would be delivered again elsewhere.
        """
        leaving = [self._consumers.pop(place) for place in places]
        for consumer in leaving:
            consumer.leave()
        self._leaving = [
            consumer for consumer in self._leaving if consumer.thread.is_alive()
        ] + leaving
        self._start("pulsar-detach", lambda: _close_all(leaving))

    def pause(self, places: Sequence[int]) -> None:
        """Stop taking messages from the client.

        ``receiverQueueSize`` bounds what it fetches ahead.
        """
        for place in places:
            self._consumers[place].pause()

    def resume(self, places: Sequence[int]) -> None:
        """Go on."""
        for place in places:
            self._consumers[place].resume()

    def take(self) -> Received | None:
        """Return the messages since the last call, or None.

        Those of new consumers wait until :meth:`attached` has returned the places.
        """
        copies = self._early + [self._copies.popleft() for _ in range(len(self._copies))]
        self._early = []
        if self._unreported:
            self._early = [copy for copy in copies if copy[0] in self._unreported]
        if self._early:
            copies = [copy for copy in copies if copy[0] not in self._unreported]
        return received_columns(copies, self._carrier) if copies else None

    def disconnected(self) -> list[str]:
        """Return the names of consumers that are not connected at present."""
        return [consumer.name for consumer in self._consumers.values() if not consumer.connected]

    def expect_close(self) -> None:
        """Expect that the clients are closed.

        The errors that the threads then get are no failures.
        """
        for consumer in [
            *self._consumers.values(),
            *self._leaving,
            *(new.consumer for new in list(self._attached)),
        ]:
            consumer.expect_close()

    def join_threads(self, deadline: float) -> None:
        """Wait for the end of all threads. :param deadline: of ``time.monotonic()``."""
        for thread in [*(consumer.thread for consumer in self._consumers.values()), *self._threads]:
            thread.join(max(deadline - time.monotonic(), 0))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()


def _close_all(consumers: Sequence[PulsarConsumer]) -> None:
    for consumer in consumers:
        consumer.close()


# Messages arrive one by one through pulsar-client: a thread for each consumer timestamps,
# acknowledges and stores them.
#
# As in :mod:`~pytest_loadtest.drivers.pulsar.library.producers`, the driver uses the client's
# compiled consumer, and messages go into a deque that all consumers share and that the engine's
# thread empties without a lock.

RECEIVE_TIMEOUT: Final = 500  # ms; needed only for a consumer that close() does not wake
_REDELIVERED: Final = int(Flag.REDELIVERED)
_CORRUPT: Final = int(Flag.CORRUPT)


def partition_of(message: Any) -> int:
    """Return a message's partition: a partitioned topic keeps order per partition."""
    partition: int = message.message_id().partition()
    return partition


def key_of(message: Any) -> int:
    """Return the number of a message's key: Key_Shared keeps order per key."""
    return key_number(message.partition_key())


def topic_order(topics: Sequence[str], *, keyed: bool) -> Callable[[Any], int]:
    """Return the function that gives the group of a message of one of several topics.

    :param keyed: order is judged for each key of a topic.
    """
    numbers = {topic: number << OUTPUT_BITS for number, topic in enumerate(topics)}

    def order_of(message: Any) -> int:
        number = numbers[message.topic_name()]
        return number | key_of(message) if keyed else number

    return order_of


def received_columns(copies: Sequence[Copy], carrier: Carrier = Carrier.BODY) -> Received:
    """Return at least one message as columns."""
    place, time, values, size, order, flags, bodies = zip(*copies, strict=True)
    return Received(
        consumer=np.array(place, np.int32),
        heads=carried_heads(carrier, values),
        size=np.array(size, np.int32),
        time=np.array(time, np.int64),
        order=np.array(order, np.int64),
        flags=np.array(flags, np.int8),
        bodies=bodies.__getitem__,
    )


class PulsarConsumer:
    """A consumer of one subscription, which receives in a thread of its own.

    :param client: the client's ``_pulsar.Consumer``.
    :param order: message → the group in which order is judged; None: only the stream.
    :param gone: called with the reason why the consumer failed.
    :param partitions: the partitions of its topic.
    :param topics: several topics that it reads, which have no partitions.
    :ivar thread: exists after :meth:`start`.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        context: DriverContext,
        order: Callable[[Any], int] | None,
        gone: Callable[[str], None],
        partitions: int = 1,
        topics: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._client = client
        self._clock = context.clock
        self._order = order
        self._gone = gone
        self._checksum = context.checksum
        self._outside = context.received_place.outside
        self._tokens = context.token_reader()
        self._closing = False
        self._leaving = self._halted = False
        self._go = threading.Event()
        self._go.set()
        self._partitions = max(partitions, len(topics))
        self._part_of: Callable[[Any], int] = partition_of
        if len(topics) > 1:
            self._part_of = topic_order(topics, keyed=False)
        self._ended = set[int]()
        self._leave_by = 0
        self.thread: threading.Thread

    def start(self, place: int, copies: deque[Copy]) -> None:
        """Start to receive in a thread. :param copies: messages are appended to it."""
        self.thread = threading.Thread(
            target=self.run, args=(place, copies), name=self.name, daemon=True
        )
        self.thread.start()

    def run(self, place: int, copies: deque[Copy]) -> None:
        """Receive, timestamp and acknowledge, until it is closed or leaves."""
        try:
            while not (self._closing or self._leaving):
                try:
                    self._receive(place, copies)
                except _pulsar.Timeout:
                    continue
        except Exception as error:
            # The thread ends here; poll() raises the error on the engine's thread.
            if not self._closing:
                self._gone(f"{self.name}: {error}")

    def _receive(self, place: int, copies: deque[Copy]) -> None:
        # Local names: this loop runs once for each message.
        receive = self._client.receive
        acknowledge = self._client.acknowledge
        clock = self._clock
        append = copies.append
        order = self._order
        checksum = self._checksum
        tokens = self._tokens
        outside = self._outside
        while True:
            message = receive(RECEIVE_TIMEOUT)
            if self._halted:
                self._go.wait()
                if self._closing:
                    return
                if self._leaving and not self._in_begun_batch(message):
                    # A partition without further messages never shows the end of its batch, hence
                    # the time-out.
                    if len(self._ended) >= self._partitions or clock() >= self._leave_by:
                        return
                    continue
            now = clock()
            data = message.data()
            # Not the whole body: before load begins nothing may take messages for minutes.
            beginning = data[:BEGINNING]
            flags = _REDELIVERED if message.redelivery_count() else 0
            if checksum and not body_ok(data):
                flags |= _CORRUPT
            if outside:
                value = message.properties().get(PROPERTY, "").encode()
            elif tokens is not None:
                value = tokens.digits(data, 0, len(data))
            else:
                value = beginning
            group = order(message) if order else 0
            append((place, now, value, len(data), group, flags, beginning))
            # acknowledge() is synchronous, but returns at once, because
            # the client groups acknowledgements.
            acknowledge(message)

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected())

    def pause(self) -> None:
        """Stop taking messages from the client; ``receiverQueueSize`` bounds its queue."""
        self._go.clear()
        self._halted = True

    def resume(self) -> None:
        """Continue, unless the consumer is leaving."""
        self._halted = self._leaving or self._closing
        self._go.set()

    def expect_close(self) -> None:
        """Expect that the client is closed: the error that the thread then gets is no failure."""
        self._closing = self._halted = True
        self._go.set()

    def leave(self) -> None:
        """Begin to end the thread.

        It ends at a point from which no acknowledged message is delivered again: see :meth:`close`.
        """
        self._leave_by = self._clock() + RECEIVE_TIMEOUT * MILLISECOND
        self._leaving = self._halted = True
        self._go.set()

    def close(self) -> None:
        """Wait for the thread after :meth:`leave`, then close.

        The broker gives unacknowledged messages to other consumers.

        Blocks.
        """
        self.thread.join()
        # If the broker is gone, so is the consumer: nothing is left to close.
        with contextlib.suppress(_pulsar.PulsarException):
            self._client.close()

    def _in_begun_batch(self, message: Any) -> bool:
        """Return whether messages of the same batch were taken before the leave."""
        # The broker delivers a batch again as a whole as long as one of its messages is not
        # acknowledged. So a begun batch is received to its end; in each partition the first message
        # of the next entry shows that the end was reached.
        where = message.message_id()
        partition = self._part_of(message)
        if where.batch_index() <= 0:  # -1: not in a batch
            self._ended.add(partition)
        return partition not in self._ended
