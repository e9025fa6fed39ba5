"""The path of each message through pulsar-client: everything here is paid per message, so it is short and does its sums in bulk.

Both classes take the client's own compiled producer or consumer: the Python wrapper around it checks eleven argument types per
message, a tenth of the cost of sending one. Its threads run our code in two places, the acknowledgement callback and the receive
loop; both only append to a deque, which the engine's thread empties without a lock. A callback that raises ends the process.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import numpy as np

from pytest_loadtest.drivers._base import Acks, Burst, Received
from pytest_loadtest.envelope import HEAD, encode_heads
from pytest_loadtest.errors import TargetError
from pytest_loadtest.payloads import body_ok, messages
from pytest_loadtest.samples import Flag, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers._base import DriverContext, ProducerSpec

RECEIVE_TIMEOUT: Final = 500  # ms; only for a consumer that closing does not wake
_KEY: Final = "key-{}"
_REDELIVERED: Final = int(Flag.REDELIVERED)
_CORRUPT: Final = int(Flag.CORRUPT)


class PulsarProducer:
    """Sends one stream.

    :param client: the client's ``_pulsar.Producer``, which must not block.
    :param window: messages in flight at most; None hands over everything, and what the client refuses comes back as failed.
    """

    def __init__(self, client: Any, spec: ProducerSpec, context: DriverContext, window: int | None) -> None:
        self.spec, self._client, self._window, self._clock = spec, client, window, context.clock
        self._pool, self._nonce = context.pool, context.nonce
        self._answers: deque[tuple[int, int, Any]] = deque()
        self._handed = self._answered = self._last = 0

    def send(self, burst: Burst) -> int:
        """As :meth:`pytest_loadtest.drivers._base.Producer.send`."""
        n = len(burst) if self._window is None else min(len(burst), self._window - self.in_flight)
        if n <= 0:
            return 0
        try:
            burst.sent[:n] = self._hand_over(burst, n)
        except _pulsar.PulsarException as error:
            raise TargetError(f"producer of stream {self.spec.stream}: {error}") from error
        self._handed += n
        return n

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
    """

    def __init__(
        self, client: Any, name: str, context: DriverContext, order: Callable[[Any], int] | None, gone: Callable[[str], None]
    ) -> None:
        self.name, self._client, self._clock, self._order, self._gone = name, client, context.clock, order, gone
        self._checksum = context.checksum
        self._copies: deque[tuple[int, bytes, int, int, int]] = deque()
        self._closing = False
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        """Receive, stamp, acknowledge, until closed."""
        try:
            while not self._closing:
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

    def closing(self) -> None:
        """The client is about to be closed: what the thread then sees is no failure."""
        self._closing = True
