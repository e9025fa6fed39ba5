"""Buffers between a protocol core and a socket.

They are the bytes to write, and the memory into which the socket is read.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUFFERS: Final = 512  # buffers of one sendmsg; Linux takes 1024 (IOV_MAX)
# Bytes of memory that a frame may announce and get before its bytes have arrived.
_AHEAD: Final = 1 << 24


class Outbox:
    """The buffers to write to a socket, in order."""

    def __init__(self) -> None:
        self.buffers: deque[bytes | memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self.buffers)

    def add(self, buffers: Iterable[bytes | memoryview]) -> None:
        """Append buffers; empty ones are left out, and none may change later."""
        self.buffers.extend(filter(len, buffers))

    def next(self) -> list[bytes | memoryview]:
        """Return the buffers for one ``sendmsg``."""
        return list(islice(self.buffers, _BUFFERS))

    def sent(self, count: int) -> None:
        """Remove ``count`` written bytes."""
        buffers = self.buffers
        while count:
            first = buffers[0]
            if count < len(first):
                buffers[0] = memoryview(first)[count:]
                return
            count -= len(first)
            buffers.popleft()


class ReceiveBuffer:
    """Memory for received bytes, in pieces.

    Frames are views of a piece, which lives as long as they do. Bytes are copied only for the
    incomplete frame at the end of a full piece. A frame that announces more than 16 MiB gets its
    memory as its bytes arrive: a damaged or hostile length alone takes none.

    :param piece: bytes of a piece of memory; a larger frame gets its own.
    """

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._memory = _new_memory(piece)
        self._start = self._end = 0  # the bytes of the incomplete frame

    def space(self) -> memoryview:
        """Return the memory for the next bytes; never empty."""
        return self._memory[self._end :]

    def _make_room(self, needed: int) -> None:
        """Take a new piece if the incomplete frame does not fit into this one.

        :param needed: bytes of the frame, as far as known.
        """
        if self._start + min(needed, _AHEAD) <= len(self._memory) and self._end < len(self._memory):
            return
        rest = self._memory[self._start : self._end]
        self._memory = _new_memory(max(self._piece, min(needed, max(_AHEAD, 2 * len(rest)))))
        self._memory[: len(rest)] = rest
        self._start = 0
        self._end = len(rest)


def _new_memory(size: int) -> memoryview:
    # numpy's memory is aligned, so that columns in it can be views, and it is not filled with zeros
    # first, as a bytearray is.
    return np.empty(size, np.uint8).data
