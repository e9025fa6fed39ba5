"""Frames on a connection: ``total size u32 | command size u32 | command | what belongs to it``, big-endian, as the protocol has it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from pytest_loadtest.wire.pulsar.api_pb2 import Command

MAX_MESSAGE: Final = 5 * 1024**2  # bytes; what a broker takes that names no other limit
OVERHEAD: Final = 10 * 1024  # bytes that a frame may have beyond its message: Pulsar's MESSAGE_SIZE_FRAME_PADDING
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")


class ProtocolError(ValueError):
    """What came is not Pulsar's protocol, or contradicts itself; nothing after it on that connection can be read."""


def encode_command(command: Command) -> bytes:
    """One command as a frame of its own."""
    body = command.SerializeToString()
    return _SIZES.pack(len(body) + 4, len(body)) + body


def split_frame(frame: memoryview) -> tuple[memoryview, memoryview]:
    """A frame without its total size → its command, and what follows it.

    :raises ProtocolError: the command is longer than the frame.
    """
    size = _SIZE.unpack_from(frame)[0]
    if size + 4 > len(frame):
        raise ProtocolError(f"a command of {size} bytes in a frame of {len(frame)}")
    return frame[4 : 4 + size], frame[4 + size :]


class FrameDecoder:
    """Bytes of one connection → frames. Read into :meth:`space` and tell :meth:`filled` how much came.

    Frames are views of the memory they were read into, which lives as long as they do; only the part of a frame at the end of a full
    piece of memory is ever moved.

    :param piece: bytes of a piece of memory; a larger frame gets one of its own.
    :ivar most: bytes that a frame may have.
    """

    def __init__(self, piece: int = 1 << 18, most: int = MAX_MESSAGE + OVERHEAD) -> None:
        self.most = most
        self._piece = piece
        self._memory = _new_memory(piece)
        self._start = self._end = 0  # of the bytes that are no frame yet

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._memory[self._end :]

    def filled(self, count: int) -> list[memoryview]:
        """The frames that ``count`` more bytes complete, each without its total size.

        :raises ProtocolError: no frame can be so long, or so short.
        """
        self._end += count
        memory, start, end = self._memory, self._start, self._end
        frames: list[memoryview] = []
        wanted = 4
        while end - start >= 4:
            total = _SIZE.unpack_from(memory, start)[0]
            if not 4 <= total <= self.most:
                raise ProtocolError(f"a frame of {total} bytes, where 4 to {self.most} are possible")
            wanted = total + 4
            if end - start < wanted:
                break
            frames.append(memory[start + 4 : start + wanted])
            start += wanted
            wanted = 4
        self._start = start
        if start + wanted > len(memory) or end == len(memory):
            self._move(wanted)
        return frames

    def _move(self, wanted: int) -> None:
        rest = self._memory[self._start : self._end]
        self._memory = _new_memory(max(self._piece, wanted))
        self._memory[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


def _new_memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data  # not filled with zeros first
