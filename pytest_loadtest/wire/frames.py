"""The loopback protocol: one frame is one burst. Bytes ⇄ columns, no I/O.

A frame is a head of 32 bytes and a body, all little-endian::

    magic u16 | kind u8 | version u8 | length u32 (of the whole frame) | run u32 | topic u32 | stream u32 | subscription u32 | consumer
    u32 | n u32

======================  ===================================================  ======================================================
kind                    body                                                 meaning
======================  ===================================================  ======================================================
SUBSCRIBE, SUBSCRIBED   nothing (n = 0)                                      a consumer of a subscription of a topic; so be it
PAUSE, RESUME           nothing (n = 0)                                      keep its messages back; send them
UNSUBSCRIBE             nothing (n = 0)                                      it is none any more: its messages go to the others
PRODUCE, DELIVER        ``seq`` i64 × n, ``size`` i32 × n, then n payloads   messages of one stream
ACK                     ``seq`` i64 × n                                      messages of one stream that were taken
======================  ===================================================  ======================================================

Outwards a frame is a list of buffers for ``sendmsg``: payloads are never copied to be framed. Inwards its columns and payloads are
views into the memory that the socket was read into.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

VERSION: Final = 1
HEAD: Final = 32
LARGEST: Final = 1 << 30  # bytes; a longer frame is a damaged length, not a burst
_MAGIC: Final = 0x4C10
_LAYOUT: Final = struct.Struct("<HBBIIIIIII")
_BUFFERS: Final = 512  # of one sendmsg; Linux takes 1024 (IOV_MAX)
_SEQ: Final = np.dtype("<i8")
_SIZE: Final = np.dtype("<i4")


class FrameError(ValueError):
    """What came is not this protocol."""


class Kind(enum.IntEnum):
    SUBSCRIBE = 1
    SUBSCRIBED = 2
    PRODUCE = 3
    ACK = 4
    DELIVER = 5
    PAUSE = 6
    RESUME = 7
    UNSUBSCRIBE = 8


class Address(NamedTuple):
    """What a frame is about; numbers that its kind does not use are 0.

    :param run: the run's nonce, so that runs on one relay never meet.
    """

    run: int
    topic: int
    stream: int = 0
    subscription: int = 0
    consumer: int = 0


class Frame(NamedTuple):
    """One frame. ``seq`` int64 ``(n,)``, ``size`` int32 ``(n,)``, ``payload`` uint8 ``(sum of size,)``; empty if its kind has none."""

    kind: Kind
    address: Address
    seq: NDArray[np.int64]
    size: NDArray[np.int32]
    payload: NDArray[np.uint8]


def wish(kind: Kind, address: Address) -> list[memoryview]:
    """What a consumer asks for, or the relay's answer to it, with the same address: a kind that carries no messages."""
    return [_head(kind, address, 0, 0)]


def ack(address: Address, seq: NDArray[np.int64]) -> list[memoryview]:
    """At least one message was taken."""
    body = _bytes(seq, _SEQ)
    return [_head(Kind.ACK, address, len(seq), len(body)), body]


def produce(address: Address, seq: NDArray[np.int64], size: NDArray[np.int32], payloads: Sequence[memoryview]) -> list[memoryview]:
    """At least one message; ``payloads`` end to end are as long as ``size`` says in sum. Nothing is copied: don't change buffers later."""
    return _messages(Kind.PRODUCE, address, seq, size, payloads)


def deliver(address: Address, seq: NDArray[np.int64], size: NDArray[np.int32], payloads: Sequence[memoryview]) -> list[memoryview]:
    """Like :func:`produce`, on the way to a consumer."""
    return _messages(Kind.DELIVER, address, seq, size, payloads)


def _messages(
    kind: Kind, address: Address, seq: NDArray[np.int64], size: NDArray[np.int32], payloads: Sequence[memoryview]
) -> list[memoryview]:
    columns = [_bytes(seq, _SEQ), _bytes(size, _SIZE)]
    length = 12 * len(seq) + sum(map(len, payloads))
    return [_head(kind, address, len(seq), length), *columns, *payloads]


def _bytes(column: NDArray[Any], dtype: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(column, dtype).data.cast("B")


def _head(kind: Kind, address: Address, n: int, body: int) -> memoryview:
    return memoryview(_LAYOUT.pack(_MAGIC, kind, VERSION, HEAD + body, *address, n))


class Decoder:
    """Bytes of one connection → frames.

    Read the socket into :meth:`space` and say how much came with :meth:`filled`. Frames keep the memory they lie in; only the part of
    a frame at the end of a full piece of memory is ever moved.

    :param piece: bytes of a piece of memory; a larger frame gets one of its own.
    """

    def __init__(self, piece: int = 1 << 20) -> None:
        self._piece = max(piece, HEAD)
        self._memory = np.empty(self._piece, np.uint8)
        self._start = 0  # of the frame that is not complete
        self._end = 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._memory.data[self._end :]

    def filled(self, count: int) -> list[Frame]:
        """The frames that ``count`` more bytes complete.

        :raises FrameError: these bytes are no frame; nothing after them can be read.
        """
        self._end += count
        frames = []
        wanted = HEAD
        while self._end - self._start >= HEAD:
            kind, n, wanted, address = self._peek()
            if self._end - self._start < wanted:
                break
            frames.append(_frame(kind, address, n, self._memory[self._start + HEAD : self._start + wanted]))
            self._start += wanted
            wanted = HEAD
        self._make_room(wanted)
        return frames

    def _peek(self) -> tuple[Kind, int, int, Address]:
        magic, kind, version, length, *address, n = _LAYOUT.unpack_from(self._memory.data, self._start)
        if magic != _MAGIC or version != VERSION:
            raise FrameError(f"not a frame of version {VERSION}: magic={magic:#06x} version={version}")
        if kind not in _COLUMNS or not HEAD + _COLUMNS[kind] * n <= length <= LARGEST:
            raise FrameError(f"impossible frame: kind={kind} n={n} length={length}")
        return Kind(kind), n, length, Address(*address)

    def _make_room(self, wanted: int) -> None:
        if self._start + wanted <= len(self._memory) and self._end < len(self._memory):
            return
        rest = self._memory[self._start : self._end]
        self._memory = np.empty(max(self._piece, wanted), np.uint8)
        self._memory[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


# Bytes of columns a message.
_COLUMNS: Final = dict.fromkeys(Kind, 0) | {Kind.PRODUCE: 12, Kind.ACK: 8, Kind.DELIVER: 12}


def _frame(kind: Kind, address: Address, n: int, body: NDArray[np.uint8]) -> Frame:
    """``body`` is at least as long as the columns of ``n`` messages."""
    columns = _COLUMNS[kind]
    seq = body[: 8 * n if columns else 0].view(_SEQ)
    size = body[8 * n : 12 * n if columns == 12 else 8 * n].view(_SIZE)
    payload = body[columns * n :]
    if (n == 0) != (columns == 0) or len(payload) != int(size.sum(dtype=np.int64)) or (len(size) and int(size.min()) < 0):
        raise FrameError(f"{kind.name} of {n} messages: {len(payload)} bytes of payload do not match its sizes")
    return Frame(kind, address, seq, size, payload)


class Outbox:
    """Buffers on their way into a socket, in order."""

    def __init__(self) -> None:
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def add(self, buffers: Iterable[memoryview]) -> None:
        self._buffers.extend(buffer for buffer in buffers if len(buffer))

    def next(self) -> list[memoryview]:
        """What to give to one ``sendmsg``."""
        return list(islice(self._buffers, _BUFFERS))

    def sent(self, count: int) -> None:
        """``count`` bytes are gone."""
        while count:
            first = self._buffers[0]
            if count < len(first):
                self._buffers[0] = first[count:]
                return
            count -= len(first)
            self._buffers.popleft()
