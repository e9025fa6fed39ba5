"""The worker's consumers at the loopback relay: their places and received messages."""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.base import DriverContext, Joined, Received
from pytest_loadtest.drivers.columns import choose_received, join_received
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message.carried import VALUE_SIZES, carried_heads
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.route import Carrier
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.message.token import TokenReader, decode_digits
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Frame, FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.loopback.connection import RelayConnection, Stamped

_JOIN_BELOW = (
    1 << 15
)  # bytes; frames with a smaller average size are joined before they are decoded


class RelayConsumers:
    """Subscribes consumers and collects their messages.

    See :class:`~pytest_loadtest.drivers.base.Driver` for the contract.

    :ivar established: number of established consumers. The relay confirms subscriptions in order,
        so these are the places below it.
    """

    def __init__(self, context: DriverContext, connection: RelayConnection) -> None:
        self.connection = connection
        self.established = 0
        self._context = context
        self._tokens = context.token_reader()
        self._paused = np.empty(0, np.bool_)  # by place
        self._joining: deque[Joined] = deque()
        self._undecoded: list[Stamped] = []
        self._arrived: list[Received] = []
        # Messages that were under way when their consumer was paused. Later ones wait in the relay.
        self._held: list[Received] = []

    def subscribe(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Request subscriptions; return the places.

        A consumer is established once :attr:`established` is above its place.

        :raises UsageError: the run has no such consumer.
        """
        consumer = np.asarray(consumers, np.int64)
        topology = self._context.topology
        if (
            len(consumer)
            and not 0 <= int(consumer.min()) <= int(consumer.max()) < topology.all_consumers
        ):
            raise UsageError(
                f"consumer {int(consumer.max())}: the run has those from 0 to"
                f" {topology.all_consumers - 1}"
            )
        place = np.arange(len(self._paused), len(self._paused) + len(consumer), dtype=np.int32)
        self._paused = np.append(self._paused, np.zeros(len(place), np.bool_))
        topic = topology.topic_of_consumer(consumer) + self.connection.first_topic
        subscription = self._subscription_numbers(topology.subscription_of_consumer(consumer))
        columns = {
            "topic": topic,
            "subscription": subscription,
            "consumer": consumer,
            "place": place,
        }
        self.connection.send(frames.encode_frame(Kind.SUBSCRIBE, columns, run=self.connection.run))
        return place

    def _subscription_numbers(self, subscription: NDArray[Any]) -> NDArray[Any]:
        """Return the relay's numbers of these subscriptions, 32 bits."""
        if self._context.tap:
            return np.full(len(subscription), frames.TAP)
        # On an existing topic the number depends on the nonce, so
        # that runs do not share a subscription.
        if self._context.topology.name is None:
            return subscription
        return np.array(
            [
                zlib.crc32(f"{self._context.nonce}-{index}".encode())
                for index in subscription.tolist()
            ]
        )

    def attach(self, consumers: Sequence[int]) -> None:
        place = self.subscribe(consumers)
        self._joining.append(Joined(np.array(consumers, np.int32), place))

    def attached(self) -> Joined | None:
        joined = []
        while self._joining and self._joining[0].place[-1] < self.established:
            joined.append(self._joining.popleft())
        return Joined(*map(np.concatenate, zip(*joined, strict=True))) if joined else None

    def subscribed(self, frame: Frame) -> None:
        """Handle SUBSCRIBED."""
        self.established = int(frame.columns["place"][-1]) + 1

    def pause(self, places: Sequence[int]) -> None:
        self._decode()
        self._paused[places] = True
        self._send(Kind.PAUSE, places)

    def resume(self, places: Sequence[int]) -> None:
        self._release(Kind.RESUME, places)

    def detach(self, places: Sequence[int]) -> None:
        # Messages under way are still received; those that wait in the
        # relay go to the others of the subscription.
        self._release(Kind.UNSUBSCRIBE, places)

    def _release(self, kind: Kind, places: Sequence[int]) -> None:
        self._decode()
        now = self._context.clock()
        self._paused[places] = False
        held = self._held
        self._held = []
        for received in held:
            self._divide(
                replace(
                    received,
                    time=np.full(len(received.time), now),
                    lag=np.zeros(len(received.time), np.int64),
                )
            )
        self._send(kind, places)

    def _send(self, kind: Kind, places: Sequence[int]) -> None:
        self.connection.send(frames.encode_frame(kind, {"place": np.asarray(places, np.int32)}))

    def arrived(self, came: Stamped) -> None:
        """Handle DELIVER."""
        # Decoded when the engine takes messages, so that small
        # frames are joined and decoded together.
        self._undecoded.append(came)

    def _decode(self) -> None:
        if self._undecoded:
            undecoded = self._undecoded
            self._undecoded = []
            try:
                received = read_deliveries(
                    undecoded,
                    checksum=self._context.checksum,
                    tokens=self._tokens,
                    carrier=self._context.received_place.carrier,
                )
            except FrameError as error:
                raise TargetError(f"{self.connection.name}: {error}") from error
            self._divide(received)

    def _divide(self, received: Received) -> None:
        paused = self._paused.take(received.consumer)
        if paused.any():
            self._held.append(choose_received(received, paused))
            received = choose_received(received, ~paused)
        if len(received.time):
            self._arrived.append(received)

    def take(self) -> Received | None:
        self._decode()
        arrived = self._arrived
        self._arrived = []
        return join_received(arrived)


def read_deliveries(
    deliveries: Sequence[Stamped],
    *,
    checksum: bool,
    tokens: TokenReader | None = None,
    carrier: Carrier = Carrier.BODY,
) -> Received:
    """Decode DELIVER frames, at least one.

    :param checksum: verify the checksum of bodies.
    :param tokens: finds the token of a message; None: bodies have none.
    :param carrier: the part of messages that has their envelopes.
    :raises FrameError: a frame is inconsistent.
    """
    parts, times, lags = zip(*deliveries, strict=True)
    counts = [frame.n for frame in parts]
    if sum(len(frame.body) for frame in parts) < _JOIN_BELOW * len(parts):
        parts = (frames.join(parts),)
    messages = [(frame.columns["size"], frame.payload) for frame in parts]
    places = [frame.columns["place"] for frame in parts]
    value = VALUE_SIZES.get(carrier, 0)
    if tokens is not None:
        heads = [_token_heads(*part, tokens) for part in messages]
    elif value:
        heads = [_value_heads(*part, carrier) for part in messages]
    else:
        heads = [_heads(*part) for part in messages]
    sizes = [size for size, _ in messages]
    if value:
        # Another run may have sent a message that is shorter than the value before bodies.
        sizes = [np.maximum(size - value, 0, dtype=np.int32) for size in sizes]
    if checksum:
        flags = np.concatenate([_body_flags(*part) for part in messages])
    else:
        flags = np.zeros(sum(counts), np.int8)
    return Received(
        consumer=np.concatenate(places),
        heads=np.concatenate(heads),
        size=np.concatenate(sizes),
        time=np.repeat(np.array(times, np.int64), counts),
        lag=np.repeat(np.array(lags, np.int64), counts),
        order=np.zeros(sum(counts), np.int64),
        flags=flags,
        bodies=partial(_body, messages, value),
    )


def _body(
    parts: Sequence[tuple[NDArray[np.int32], NDArray[np.uint8]]], value: int, row: int
) -> bytes:
    """Return the body of a message.

    :param parts: sizes and bytes of the messages of some frames.
    :param value: bytes before each body.
    """
    for sizes, payload in parts:
        if row < len(sizes):
            start = int(sizes[:row].sum())
            return payload[start : start + int(sizes[row])].tobytes()[value:]
        row -= len(sizes)
    raise IndexError(row)


def _heads(size: NDArray[np.int32], payload: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the first bytes of each payload, zero padded, ``(n, 32)``."""
    n = len(size)
    first = int(size[0])
    # Fast path for messages of one size, which most loads have.
    if np.all(size == first) and first >= HEAD:
        return payload.reshape(n, first)[:, :HEAD].copy()
    heads = np.zeros((n, HEAD), np.uint8)
    if len(payload):
        starts = np.cumsum(size, dtype=np.int64) - size
        columns = np.arange(HEAD)
        bytes_ = payload.take(starts[:, None] + columns, mode="clip")
        np.copyto(heads, bytes_, where=columns < size[:, None])
    return heads


def _token_heads(
    size: NDArray[np.int32], payload: NDArray[np.uint8], tokens: TokenReader
) -> NDArray[np.uint8]:
    """Return the envelopes of the tokens in payloads, ``(n, 32)``."""
    data = payload.tobytes()
    ends = np.cumsum(size, dtype=np.int64).tolist()
    starts = [0, *ends[:-1]]
    return decode_digits(
        [tokens.digits(data, start, end) for start, end in zip(starts, ends, strict=True)]
    )


def _value_heads(
    size: NDArray[np.int32], payload: NDArray[np.uint8], carrier: Carrier
) -> NDArray[np.uint8]:
    """Return the envelopes of the values before bodies, ``(n, 32)``."""
    data = payload.tobytes()
    ends = np.cumsum(size, dtype=np.int64).tolist()
    length = VALUE_SIZES[carrier]
    values = []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        values.append(data[start : min(start + length, end)])
    return carried_heads(carrier, values)


def _body_flags(size: NDArray[np.int32], payload: NDArray[np.uint8]) -> NDArray[np.int8]:
    ends = np.cumsum(size, dtype=np.int64).tolist()
    whole = [
        body_ok(bytes(payload.data[start:end]))
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return np.where(whole, np.int8(0), np.int8(Flag.CORRUPT))
