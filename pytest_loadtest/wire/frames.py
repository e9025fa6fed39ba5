"""The loopback protocol, without I/O: a frame has many messages of any streams, as columns.

A frame is a head of 24 bytes, columns of n rows, concatenated payloads, and zeros up to a multiple
of 8 bytes; all little-endian. Head::

    magic u16 | kind u8 | version u8 | length u32 (of the frame without the zeros)
    | n u32 (at least 1) | run u32 | topics u32 | topic u32

=============  ==========================================  =================================
kind           columns                                     a row means
=============  ==========================================  =================================
SUBSCRIBE      ``topic`` u32, ``subscription`` u32,        subscribe this consumer
               ``consumer`` u32, ``place`` i32
SUBSCRIBED     ``place`` i32                               it is subscribed; in their order
PAUSE, RESUME  ``place`` i32                               hold its messages; send them
UNSUBSCRIBE    ``place`` i32                               give its messages to the others
PRODUCE        ``seq`` i64, ``stream`` i32, ``size`` i32   deliver this message
PRODUCE_LATER  ``seq`` i64, ``due`` i64, ``stream`` i32,   deliver it, not before ``due``
               ``size`` i32
ACK            none                                        the next message was accepted
DELIVER        ``place`` i32, ``size`` i32                 a message for this consumer
COUNT          none                                        a request for COUNTS
COUNTS         ``held`` i64, ``delivered`` i64             messages held, copies sent so far
=============  ==========================================  =================================

``run`` is the run's nonce, which separates runs on one relay; it is 0 for kinds with neither topic
nor subscription. Only PRODUCE and PRODUCE_LATER have ``topics`` (at least 1) and ``topic``: a
message goes to the topic with the number ``topic + stream mod topics``. ``place`` is the client's
number for a consumer, used once on a connection. ``size`` is the length of the message's payload.
``due`` is ms of wall time since the epoch; 0: at once.

Messages are acknowledged in order, for each run and connection. So an ACK of n rows means the next
n messages and is only a head.

A frame to send is a list of buffers for ``sendmsg``, without copies of large payloads. The columns
and payloads of a received frame are views of the memory into which the socket was read, aligned
because every frame is a multiple of 8 bytes.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.wire.buffers import ReceiveBuffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

VERSION: Final = 4
# Bytes: a longer frame means that its length is damaged.
LARGEST: Final = 1 << 30
# Most bytes of payload in one frame, unless one message is larger.
PORTION: Final = 1 << 22
_MAGIC: Final = 0x4C10
_LAYOUT: Final = struct.Struct("<HBBIIIII")
HEAD: Final = _LAYOUT.size
_ALIGN: Final = 8
_ZEROS: Final = memoryview(bytes(_ALIGN))
# Bytes per payload: smaller payloads are joined into one buffer, larger ones are given to the
# system without a copy.
_COPY_BELOW: Final = 2048


class FrameError(ValueError):
    """The received bytes are not this protocol."""


class Kind(enum.IntEnum):
    """The kinds of frames; see the table above."""

    SUBSCRIBE = 1
    SUBSCRIBED = 2
    PRODUCE = 3
    ACK = 4
    DELIVER = 5
    PAUSE = 6
    RESUME = 7
    UNSUBSCRIBE = 8
    PRODUCE_LATER = 9
    COUNT = 10
    COUNTS = 11


TAP: Final = (1 << 32) - 1
"""The subscription of consumers that get messages on their way to a service, not its outputs."""
PRODUCES: Final = (Kind.PRODUCE, Kind.PRODUCE_LATER)
_I64 = np.dtype("<i8")
_I32 = np.dtype("<i4")
_U32 = np.dtype("<u4")
_PLACE: Final = {"place": _I32}
# The widest columns come first, so that all are aligned.
_COLUMNS: Final[dict[Kind, dict[str, np.dtype[Any]]]] = {
    Kind.SUBSCRIBE: {"topic": _U32, "subscription": _U32, "consumer": _U32, "place": _I32},
    Kind.SUBSCRIBED: _PLACE,
    Kind.PRODUCE: {"seq": _I64, "stream": _I32, "size": _I32},
    Kind.PRODUCE_LATER: {"seq": _I64, "due": _I64, "stream": _I32, "size": _I32},
    Kind.ACK: {},
    Kind.DELIVER: {"place": _I32, "size": _I32},
    Kind.PAUSE: _PLACE,
    Kind.RESUME: _PLACE,
    Kind.UNSUBSCRIBE: _PLACE,
    Kind.COUNT: {},
    Kind.COUNTS: {"held": _I64, "delivered": _I64},
}
_KINDS: Final = {int(kind): kind for kind in Kind}


_WIDTH: Final = {
    kind: sum(dtype.itemsize for dtype in columns.values()) for kind, columns in _COLUMNS.items()
}


@dataclass(eq=False)
class Frame:
    """A received frame; its columns are made on first use.

    :param body: the bytes after the head, at least the columns of ``n`` rows.
    """

    kind: Kind
    n: int
    run: int
    topics: int
    topic: int
    body: memoryview

    @cached_property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """The columns of the table above, ``(n,)`` each; views.

        :raises FrameError: the sizes do not match the payloads.
        """
        columns = {}
        start = 0
        for name, dtype in _COLUMNS[self.kind].items():
            columns[name] = np.frombuffer(self.body, dtype, self.n, start)
            start += self.n * dtype.itemsize
        size = columns.get("size")
        payload = len(self.body) - start
        # Read as unsigned: a negative size becomes larger than a frame can be.
        if payload != (0 if size is None else np.add.reduce(size.view(_U32))):
            raise FrameError(
                f"{self.kind.name} of {self.n} rows: {payload} bytes of payload do not match its"
                " sizes"
            )
        return columns

    @property
    def payload(self) -> NDArray[np.uint8]:
        """The concatenated payloads, a view; empty for kinds without sizes."""
        return np.frombuffer(self.body[self.n * _WIDTH[self.kind] :], np.uint8)


def join(frames: Sequence[Frame]) -> Frame:
    """Concatenate at least one frame, all of one kind and for the same topics.

    Rows and payloads are copied.
    """
    first = frames[0]
    parts = []
    start = 0
    for width in (*(dtype.itemsize for dtype in _COLUMNS[first.kind].values()), LARGEST):
        # The last part is the payloads, which have no fixed width: a slice with LARGEST takes all
        # of them.
        parts += [frame.body[frame.n * start : frame.n * (start + width)] for frame in frames]
        start += width
    return Frame(
        first.kind,
        sum(frame.n for frame in frames),
        first.run,
        first.topics,
        first.topic,
        memoryview(b"".join(parts)),
    )


def encode_frame(
    kind: Kind,
    columns: Mapping[str, NDArray[Any]],
    *,
    n: int | None = None,
    run: int = 0,
    topics: int = 0,
    topic: int = 0,
    payloads: Sequence[bytes | memoryview] = (),
) -> Sequence[bytes | memoryview]:
    """Return a frame of at least one row, as buffers for the socket.

    :param columns: copied; any integer type that holds the numbers.
    :param n: number of rows, for a kind without columns.
    :param payloads: in total as long as the sum of ``size``; large ones are not copied, so do not
        change them later.
    """
    # Arrays are buffers: join() copies their bytes.
    parts: list[Any] = [
        np.ascontiguousarray(columns[name], dtype) for name, dtype in _COLUMNS[kind].items()
    ]
    n = len(parts[0]) if n is None else n
    total = sum(map(len, payloads))
    length = HEAD + n * _WIDTH[kind] + total
    head = _LAYOUT.pack(_MAGIC, kind, VERSION, length, n, run, topics, topic)
    zeros = _ZEROS[: -length % _ALIGN]
    # For small payloads one copy is cheaper than a list of many buffers for sendmsg.
    if total < _COPY_BELOW * len(payloads) or not payloads:
        return [b"".join([head, *parts, *payloads, zeros])]
    return [b"".join([head, *parts]), *payloads, zeros]


def portions(size: NDArray[np.int32]) -> list[slice]:
    """Split messages of these sizes into consecutive pieces for frames.

    A piece has at most :data:`PORTION` bytes, or one message.
    """
    if int(size.sum(dtype=np.int64)) <= PORTION:
        return [slice(0, len(size))]
    ends = np.cumsum(size, dtype=np.int64)
    pieces = []
    start = before = 0
    while start < len(size):
        end = max(start + 1, int(np.searchsorted(ends, before + PORTION, side="right")))
        pieces.append(slice(start, end))
        start = end
        before = int(ends[end - 1])
    return pieces


class Decoder(ReceiveBuffer):
    """The decoder of one connection.

    Read the socket into :meth:`space`, and pass the number of bytes to :meth:`filled`.

    :param piece: bytes of a piece of memory, see
        :class:`~pytest_loadtest.wire.buffers.ReceiveBuffer`.
    """

    def __init__(self, piece: int = 1 << 20) -> None:
        super().__init__(max(piece, HEAD))

    def filled(self, count: int) -> list[Frame]:
        """Return the frames that ``count`` more bytes complete.

        :raises FrameError: the bytes are no frame; nothing after them can be read.
        """
        self._end += count
        frames = []
        needed = HEAD
        while self._end - self._start >= HEAD:
            kind, length, n, run, topics, topic = self._peek()
            needed = length + -length % _ALIGN
            if self._end - self._start < needed:
                break
            frames.append(
                Frame(
                    kind,
                    n,
                    run,
                    topics,
                    topic,
                    self._memory[self._start + HEAD : self._start + length],
                )
            )
            self._start += needed
            needed = HEAD
        self._make_room(needed)
        return frames

    def _peek(self) -> tuple[Kind, int, int, int, int, int]:
        magic, number, version, length, n, run, topics, topic = _LAYOUT.unpack_from(
            self._memory, self._start
        )
        if magic != _MAGIC or version != VERSION:
            raise FrameError(
                f"not a frame of version {VERSION}: magic={magic:#06x} version={version}"
            )
        kind = _KINDS.get(number)
        # All numbers are checked against each other before any of them is used as a length.
        if (
            kind is None
            or n == 0
            or not HEAD + _WIDTH[kind] * n <= length <= LARGEST
            or (kind in PRODUCES and not topics)
        ):
            raise FrameError(
                f"impossible frame: kind={number} n={n} length={length} topics={topics}"
            )
        return kind, length, n, run, topics, topic
