"""The loopback protocol: one frame is many messages, of any streams, as columns. Bytes ⇄ columns, no I/O.

A frame is a head of 24 bytes, columns of n rows, payloads end to end, and zeros up to a multiple of 8 bytes; all little-endian. The head::

    magic u16 | kind u8 | version u8 | length u32 (of the frame without the zeros) | n u32 (at least 1) | run u32 | topics u32 | topic u32

===========================  ======================================================================  =====================================
kind                         columns                                                                 a row says
===========================  ======================================================================  =====================================
SUBSCRIBE                    ``topic`` u32, ``subscription`` u32, ``consumer`` u32, ``place`` i32    this consumer wants to read
SUBSCRIBED                   ``place`` i32                                                           it does now; in the order asked
PAUSE, RESUME                ``place`` i32                                                           keep its messages back; send them
UNSUBSCRIBE                  ``place`` i32                                                           its messages go to the others now
PRODUCE                      ``seq`` i64, ``stream`` i32, ``size`` i32                               a message to be passed on
PRODUCE_LATER                ``seq`` i64, ``due`` i64, ``stream`` i32, ``size`` i32                  the same, not before ``due``
ACK                          none                                                                    the next message was taken
DELIVER                      ``place`` i32, ``size`` i32                                             a message for this consumer
===========================  ======================================================================  =====================================

``run`` is the run's nonce, so that runs on one relay never meet; it is 0 where a kind has neither topic nor subscription. ``topics`` (at
least 1) and ``topic`` are those two's alone: a message goes to the topic with the number ``topic + stream mod topics``. ``place`` is the
client's own number of a consumer, used once on a connection. ``size`` is the bytes of the message's payload. ``due`` is ms of wall time
since the epoch; 0: at once.

The messages of one run that came over one connection are acknowledged in the order in which they came. An ACK of n rows so means the next
n of them and is a head alone.

Outwards a frame is a list of buffers for ``sendmsg``: large payloads are not copied to be framed. Inwards its columns and payloads are
views into the memory that the socket was read into, aligned because every frame is a multiple of 8 bytes.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

VERSION: Final = 3
LARGEST: Final = 1 << 30  # bytes; a longer frame is a damaged length
PORTION: Final = 1 << 22  # bytes of payload that one frame is to have at most
_MAGIC: Final = 0x4C10
_LAYOUT: Final = struct.Struct("<HBBIIIII")
HEAD: Final = _LAYOUT.size
_ALIGN: Final = 8
_ZEROS: Final = memoryview(bytes(_ALIGN))
_COPY_BELOW: Final = 2048  # bytes a payload: smaller ones are put together for the system, larger ones are handed over where they lie
_BUFFERS: Final = 512  # of one sendmsg; Linux takes 1024 (IOV_MAX)


class FrameError(ValueError):
    """What came is not this protocol."""


class Kind(enum.IntEnum):
    """What a frame is about; see the table above."""

    SUBSCRIBE = 1
    SUBSCRIBED = 2
    PRODUCE = 3
    ACK = 4
    DELIVER = 5
    PAUSE = 6
    RESUME = 7
    UNSUBSCRIBE = 8
    PRODUCE_LATER = 9


PRODUCES: Final = (Kind.PRODUCE, Kind.PRODUCE_LATER)
_I64, _I32, _U32 = np.dtype("<i8"), np.dtype("<i4"), np.dtype("<u4")
_PLACE: Final = {"place": _I32}
_COLUMNS: Final[dict[Kind, dict[str, np.dtype[Any]]]] = {  # the widest first, for alignment
    Kind.SUBSCRIBE: {"topic": _U32, "subscription": _U32, "consumer": _U32, "place": _I32},
    Kind.SUBSCRIBED: _PLACE,
    Kind.PRODUCE: {"seq": _I64, "stream": _I32, "size": _I32},
    Kind.PRODUCE_LATER: {"seq": _I64, "due": _I64, "stream": _I32, "size": _I32},
    Kind.ACK: {},
    Kind.DELIVER: {"place": _I32, "size": _I32},
    Kind.PAUSE: _PLACE,
    Kind.RESUME: _PLACE,
    Kind.UNSUBSCRIBE: _PLACE,
}
_KINDS: Final = {int(kind): kind for kind in Kind}
_WIDTH: Final = {kind: sum(dtype.itemsize for dtype in columns.values()) for kind, columns in _COLUMNS.items()}  # bytes a row


class Frame:
    """One frame as it came; its columns are made when they are looked at, which may be much later.

    :param body: what follows the head, at least as long as the columns of ``n`` rows.
    """

    def __init__(self, kind: Kind, n: int, run: int, topics: int, topic: int, body: memoryview) -> None:
        self.kind, self.n, self.run, self.topics, self.topic, self.body = kind, n, run, topics, topic, body

    @cached_property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """As the table above has them, ``(n,)`` each; views.

        :raises FrameError: the sizes among them are not those of the payloads.
        """
        columns = {}
        start = 0
        for name, dtype in _COLUMNS[self.kind].items():
            columns[name] = np.frombuffer(self.body, dtype, self.n, start)
            start += self.n * dtype.itemsize
        size, payload = columns.get("size"), len(self.body) - start
        if payload != (0 if size is None else np.add.reduce(size.view(_U32))):  # a negative size counts for more than a frame can be long
            raise FrameError(f"{self.kind.name} of {self.n} rows: {payload} bytes of payload do not match its sizes")
        return columns

    @property
    def payload(self) -> NDArray[np.uint8]:
        """End to end, a view; empty where no row has a size."""
        return np.frombuffer(self.body[self.n * _WIDTH[self.kind] :], np.uint8)


def join(frames: Sequence[Frame]) -> Frame:
    """At least one frame, all of one kind and for the same topics, as one: rows and payloads one behind the other, copied."""
    first, parts, start = frames[0], [], 0
    for width in (*(dtype.itemsize for dtype in _COLUMNS[first.kind].values()), LARGEST):  # the last are the payloads
        parts += [frame.body[frame.n * start : frame.n * (start + width)] for frame in frames]
        start += width
    return Frame(first.kind, sum(frame.n for frame in frames), first.run, first.topics, first.topic, memoryview(b"".join(parts)))


def encode(
    kind: Kind, columns: Mapping[str, NDArray[Any]], *, n: int | None = None, run: int = 0, topics: int = 0, topic: int = 0,
    payloads: Sequence[bytes | memoryview] = (),
) -> Sequence[bytes | memoryview]:  # fmt: skip
    """One frame of at least one row, as buffers for the socket.

    :param columns: copied; any integer type that holds the numbers. :param n: rows, of a kind without columns.
    :param payloads: end to end as long as ``size`` says in sum; large ones are not copied, so don't change them later.
    """
    parts: list[Any] = [np.ascontiguousarray(columns[name], dtype) for name, dtype in _COLUMNS[kind].items()]  # arrays are buffers
    n = len(parts[0]) if n is None else n
    total = sum(map(len, payloads))
    length = HEAD + n * _WIDTH[kind] + total
    head, zeros = _LAYOUT.pack(_MAGIC, kind, VERSION, length, n, run, topics, topic), _ZEROS[: -length % _ALIGN]
    if total < _COPY_BELOW * len(payloads) or not payloads:
        return [b"".join([head, *parts, *payloads, zeros])]
    return [b"".join([head, *parts]), *payloads, zeros]


def portions(size: NDArray[np.int32]) -> list[slice]:
    """Neighbouring messages of these sizes, all of them, in pieces that are each fit for a frame: :data:`PORTION` bytes or one message."""
    if int(size.sum(dtype=np.int64)) <= PORTION:
        return [slice(0, len(size))]
    ends = np.cumsum(size, dtype=np.int64)
    pieces = []
    start = before = 0
    while start < len(size):
        end = max(start + 1, int(np.searchsorted(ends, before + PORTION, side="right")))
        pieces.append(slice(start, end))
        start, before = end, int(ends[end - 1])
    return pieces


class Decoder:
    """Bytes of one connection → frames.

    Read the socket into :meth:`space` and say how much came with :meth:`filled`. Frames keep the memory they lie in; only the part of
    a frame at the end of a full piece of memory is ever moved.

    :param piece: bytes of a piece of memory; a larger frame gets one of its own.
    """

    def __init__(self, piece: int = 1 << 20) -> None:
        self._piece = max(piece, HEAD)
        self._memory = _new_memory(self._piece)
        self._start = 0  # of the frame that is not complete
        self._end = 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._memory[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """The frames that ``count`` more bytes complete.

        :raises FrameError: these bytes are no frame; nothing after them can be read.
        """
        self._end += count
        frames = []
        wanted = HEAD
        while self._end - self._start >= HEAD:
            kind, length, n, run, topics, topic = self._peek()
            wanted = length + -length % _ALIGN
            if self._end - self._start < wanted:
                break
            frames.append(Frame(kind, n, run, topics, topic, self._memory[self._start + HEAD : self._start + length]))
            self._start += wanted
            wanted = HEAD
        if self._start + wanted > len(self._memory) or self._end == len(self._memory):
            self._move(wanted)
        return frames

    def _peek(self) -> tuple[Kind, int, int, int, int, int]:
        magic, number, version, length, n, run, topics, topic = _LAYOUT.unpack_from(self._memory, self._start)
        if magic != _MAGIC or version != VERSION:
            raise FrameError(f"not a frame of version {VERSION}: magic={magic:#06x} version={version}")
        kind = _KINDS.get(number)
        if kind is None or n == 0 or not HEAD + _WIDTH[kind] * n <= length <= LARGEST or (kind in PRODUCES and not topics):
            raise FrameError(f"impossible frame: kind={number} n={n} length={length} topics={topics}")
        return kind, length, n, run, topics, topic

    def _move(self, wanted: int) -> None:
        rest = self._memory[self._start : self._end]
        self._memory = _new_memory(max(self._piece, wanted))
        self._memory[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


def _new_memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data  # aligned, and not filled with zeros first


class Outbox:
    """Buffers on their way into a socket, in order."""

    def __init__(self) -> None:
        self._buffers: deque[bytes | memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def add(self, buffers: Iterable[bytes | memoryview]) -> None:
        """Put them behind the others."""
        self._buffers.extend(filter(len, buffers))

    def next(self) -> list[bytes | memoryview]:
        """What to give to one ``sendmsg``."""
        return list(islice(self._buffers, _BUFFERS))

    def sent(self, count: int) -> None:
        """``count`` bytes are gone."""
        while count:
            first = self._buffers[0]
            if count < len(first):
                self._buffers[0] = memoryview(first)[count:]
                return
            count -= len(first)
            self._buffers.popleft()
