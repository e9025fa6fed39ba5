"""Frames on a connection, big-endian.

``total size u32 | command size u32 | command | its payload``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from pytest_loadtest.wire.buffers import ReceiveBuffer

if TYPE_CHECKING:
    from pytest_loadtest.wire.pulsar.api_pb2 import Command

# Bytes: the limit of a broker that does not state another one in CONNECTED.
MAX_MESSAGE: Final = 5 * 1024**2
# Most bytes of a frame in addition to its message: Pulsar's MESSAGE_SIZE_FRAME_PADDING.
OVERHEAD: Final = 10 * 1024
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")


class ProtocolError(ValueError):
    """The received bytes are not Pulsar's protocol, or contradict each other.

    Nothing after them on the connection can be read.
    """


def encode_command(command: Command) -> bytes:
    """Return a command as a frame."""
    body = command.SerializeToString()
    return _SIZES.pack(len(body) + 4, len(body)) + body


def split_frame(frame: memoryview) -> tuple[memoryview, memoryview]:
    """Split a frame, without its total size, into its command and the rest.

    :raises ProtocolError: the command is longer than the frame.
    """
    size = _SIZE.unpack_from(frame)[0]
    if size + 4 > len(frame):
        raise ProtocolError(f"a command of {size} bytes in a frame of {len(frame)}")
    return frame[4 : 4 + size], frame[4 + size :]


class FrameDecoder(ReceiveBuffer):
    """The decoder of one connection.

    Read into :meth:`space`, and pass the number of bytes to :meth:`filled`.

    :param piece: bytes of a piece of memory, see
        :class:`~pytest_loadtest.wire.buffers.ReceiveBuffer`. :ivar most: most bytes of a frame.
    """

    def __init__(self, piece: int = 1 << 18, most: int = MAX_MESSAGE + OVERHEAD) -> None:
        super().__init__(piece)
        self.most = most

    def filled(self, count: int, *, single: bool = False) -> list[memoryview]:
        """Return the frames that ``count`` more bytes complete, each without its total size.

        :param single: return at most one, because ``most`` may change with it; a call with 0
            continues.
        :raises ProtocolError: a frame has an impossible length.
        """
        # Local names: this loop runs once for each frame.
        self._end += count
        memory = self._memory
        start = self._start
        end = self._end
        frames = []
        needed = 4
        while end - start >= 4:
            total = _SIZE.unpack_from(memory, start)[0]
            if not 4 <= total <= self.most:
                raise ProtocolError(
                    f"a frame of {total} bytes, where 4 to {self.most} are possible"
                )
            # The total size does not include its own four bytes.
            needed = total + 4
            if end - start < needed:
                break
            frames.append(memory[start + 4 : start + needed])
            start += needed
            needed = 4
            if single:
                break
        self._start = start
        self._make_room(needed)
        return frames
