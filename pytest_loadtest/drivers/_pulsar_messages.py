"""The path of each message through pulsar-client: everything here is paid per message, so it is short and does its sums in bulk.

Both classes take the client's own compiled producer or consumer: the Python wrapper around it checks eleven argument types per
message, a tenth of the cost of sending one. Its threads run our code in two places, the acknowledgement callback and the receive
loop; both only append to a deque, which the engine's thread empties without a lock. A callback that raises ends the process.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import deque
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import numpy as np

from pytest_loadtest.drivers._base import Acks, Burst, Received
from pytest_loadtest.drivers._pulsar_memory import Share
from pytest_loadtest.envelope import HEAD, encode_heads
from pytest_loadtest.errors import TargetError
from pytest_loadtest.payloads import body_ok, messages
from pytest_loadtest.quantities import MILLISECOND
from pytest_loadtest.samples import Flag, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers._base import DriverContext, ProducerSpec
    from pytest_loadtest.drivers._pulsar_memory import Memory

RECEIVE_TIMEOUT: Final = 500  # ms; only for a consumer that closing does not wake
_KEY: Final = "key-{}"
_REDELIVERED: Final = int(Flag.REDELIVERED)
_CORRUPT: Final = int(Flag.CORRUPT)


class PulsarProducer:
    """Sends one stream.

    :param client: the client's ``_pulsar.Producer``, which must not block.
    :param window: messages in flight at most; None: as many as the client takes.
    :param memory: bytes in flight at most, shared with other producers; None: no such limit.

    What finds no room waits with the caller under ``blockIfQueueFull``; otherwise it comes back as failed.
    """

    def __init__(self, client: Any, spec: ProducerSpec, context: DriverContext, window: int | None, memory: Memory | None = None) -> None:
        self.spec, self._client, self._window, self._clock = spec, client, window, context.clock
        self._pool, self._nonce = context.pool, context.nonce
        self._answers: deque[tuple[int, int, Any]] = deque()
        self._handed = self._answered = self._refused = self._last = 0
        self._share = None if memory is None else Share(memory)
        self._refuses = not context.settings.block_if_queue_full

    def send(self, burst: Burst) -> int:
        """As :meth:`pytest_loadtest.drivers._base.Producer.send`."""
        n = len(burst) if self._window is None else min(len(burst), self._window - self.in_flight)
        if self._share is not None and n > 0:
            sizes = self._pool.sizes[burst.payload[:n]].astype(np.int64)
            n = min(n, self._share.room(sizes, self._answered + len(self._answers) - self._refused))
            self._share.hold(sizes[:n])
        if n > 0:
            try:
                burst.sent[:n] = self._hand_over(burst, n)
            except _pulsar.PulsarException as error:
                raise TargetError(f"producer of stream {self.spec.stream}: {error}") from error
            self._handed += n
        if n < len(burst) and self._refuses:
            self._refuse(burst, n)
            return len(burst)
        return max(n, 0)

    def _refuse(self, burst: Burst, taken: int) -> None:
        """What has no room fails, as the client says it of a full queue."""
        burst.sent[taken:] = now = self._clock()
        self._answers.extend((number, now, _pulsar.Result.MemoryBufferIsFull) for number in burst.seq[taken:].tolist())
        self._handed += len(burst) - taken
        self._refused += len(burst) - taken

    def _hand_over(self, burst: Burst, n: int) -> list[int]:
        pool, payload, seq = self._pool, burst.payload[:n], burst.seq[:n]
        heads = encode_heads(pool, nonce=self._nonce, stream=self.spec.stream, seq=seq, intended=burst.intended[:n], payload=payload)
        keys = repeat(None) if burst.key is None else map(_KEY.format, burst.key[:n].tolist())
        send, clock, answered, build = self._client.send_async, self._clock, self._answers.append, _pulsar.MessageBuilder
        sent: list[int] = []
        stamp = sent.append
        for number, data, key in zip(seq.tolist(), messages(pool, heads, payload), keys, strict=False):
            message = build().content(data)
            if key is not None:
                message.partition_key(key)
            stamp(clock())
            # The answer carries no sequence of ours. Reading its result is dear: acks() does it, off the client's thread.
            send(message.build(), lambda result, _id, number=number: answered((number, clock(), result)))
        return sent

    def acks(self) -> Acks | None:
        """As :meth:`pytest_loadtest.drivers._base.Producer.acks`."""
        n = len(self._answers)
        if n == 0:
            return None
        take = self._answers.popleft
        seq, time, results = zip(*[take() for _ in range(n)], strict=True)
        times = np.array(time, np.int64)
        self._answered += n
        self._last = max(self._last, int(times.max()))
        failed = np.fromiter(map(attrgetter("value"), results), np.int32, n) != 0
        return Acks(np.array(seq, np.int64), times, np.where(failed, np.int8(Status.FAILED), np.int8(Status.ACKED)))

    @property
    def in_flight(self) -> int:
        """Messages handed over and not answered."""
        return self._handed - self._answered - len(self._answers)

    @property
    def idle_since(self) -> int:
        """The instant of the latest answer, ns."""
        return max(self._last, self._answers[-1][1]) if self._answers else self._last

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected())


def partition_of(message: Any) -> int:
    """Order within a partitioned topic is per partition."""
    partition: int = message.message_id().partition()
    return partition


def key_of(message: Any) -> int:
    """Order under Key_Shared is per key: the number in ours, a 31-bit hash of any other."""
    key = message.partition_key()
    number = key[4:]
    return int(number) if number.isdecimal() else zlib.crc32(key.encode()) & 0x7FFF_FFFF


class PulsarConsumer:
    """Receives from one subscription in a thread of its own.

    :param client: the client's ``_pulsar.Consumer``.
    :param order: what order is judged within, of a message; None: nothing besides the stream.
    :param gone: told why the consumer cannot go on.
    :param partitions: of its topic.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        context: DriverContext,
        order: Callable[[Any], int] | None,
        gone: Callable[[str], None],
        partitions: int = 1,
    ) -> None:
        self.name, self._client, self._clock, self._order, self._gone = name, client, context.clock, order, gone
        self._checksum = context.checksum
        self._copies: deque[tuple[int, bytes, int, int, int]] = deque()
        self._closing = False
        self._leaving = self._halted = False
        self._go = threading.Event()
        self._go.set()
        self._partitions, self._ended, self._leave_by = partitions, set[int](), 0
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        """Receive, stamp, acknowledge, until closed or told to leave."""
        try:
            while not (self._closing or self._leaving):
                try:
                    self._receive()
                except _pulsar.Timeout:
                    continue
        except Exception as error:  # the thread's last word: poll() raises it on the engine's thread
            if not self._closing:
                self._gone(f"{self.name}: {error}")

    def _receive(self) -> None:
        receive, acknowledge, clock, append = self._client.receive, self._client.acknowledge, self._clock, self._copies.append
        order, checksum = self._order, self._checksum
        while True:
            message = receive(RECEIVE_TIMEOUT)
            if self._halted:
                self._go.wait()
                if self._closing:
                    return
                if self._leaving and not self._begun(message):
                    if self._left():
                        return
                    continue
            now = clock()
            data = message.data()
            flags = _REDELIVERED if message.redelivery_count() else 0
            if checksum and not body_ok(data):
                flags |= _CORRUPT
            append((now, data[:HEAD], len(data), order(message) if order else 0, flags))
            acknowledge(message)  # synchronous, but the client groups acknowledgements and answers at once

    def take(self) -> Received | None:
        """As :meth:`pytest_loadtest.drivers._base.Consumer.take`."""
        n = len(self._copies)
        if n == 0:
            return None
        pop = self._copies.popleft
        time, fronts, size, order, flags = zip(*[pop() for _ in range(n)], strict=True)
        heads = b"".join(fronts)
        if len(heads) != n * HEAD:  # compact envelopes, and what is not ours
            heads = b"".join(front.ljust(HEAD, b"\0") for front in fronts)
        return Received(
            heads=np.frombuffer(heads, np.uint8).reshape(n, HEAD),
            size=np.array(size, np.int32),
            time=np.array(time, np.int64),
            order=np.array(order, np.int64),
            flags=np.array(flags, np.int8),
        )

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected())

    def pause(self) -> None:
        """As :meth:`pytest_loadtest.drivers._base.Consumer.pause`: the client's queue fills, receiverQueueSize bounds it."""
        self._go.clear()
        self._halted = True

    def resume(self) -> None:
        """As :meth:`pytest_loadtest.drivers._base.Consumer.resume`."""
        self._halted = self._leaving or self._closing
        self._go.set()

    def closing(self) -> None:
        """The client is about to be closed: what the thread then sees is no failure."""
        self._closing = self._halted = True
        self._go.set()

    def leave(self) -> None:
        """End the thread where nothing comes twice: see :meth:`close`."""
        self._leave_by = self._clock() + RECEIVE_TIMEOUT * MILLISECOND
        self._leaving = self._halted = True
        self._go.set()

    def close(self) -> None:
        """After :meth:`leave`: wait for the thread, and give what is not acknowledged to the others. Blocks."""
        self.thread.join()
        with contextlib.suppress(_pulsar.PulsarException):  # the broker is gone, and the consumer with it
            self._client.close()

    def _begun(self, message: Any) -> bool:
        """Whether the message belongs to a batch that was begun before the leave.

        The broker sends a batch again as a whole as long as one message of it is not acknowledged: what is begun is taken to its end, and
        the first message of the next entry ends it.
        """
        where = message.message_id()
        partition = where.partition()
        if where.batch_index() <= 0:  # -1: not in a batch
            self._ended.add(partition)
        return partition not in self._ended

    def _left(self) -> bool:
        """A partition where nothing more comes never ends its batch: hence the time."""
        return len(self._ended) >= self._partitions or self._clock() >= self._leave_by
