"""Columns ⇄ the bytes of messages end to end, as the loopback relay carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.envelope import HEAD
from pytest_loadtest.payloads import body_ok
from pytest_loadtest.samples import Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.payloads import PayloadPool
    from pytest_loadtest.wire.frames import Frame

_COPY_BELOW = 2048  # bytes: smaller messages are put together for the system, larger ones are handed over where they lie


class Packer:
    """Heads and payload numbers → the bytes of the messages, end to end."""

    def __init__(self, pool: PayloadPool) -> None:
        self.pool = pool
        self._copy = pool.mean_size < _COPY_BELOW
        self._bodies = [memoryview(body) for body in pool.bodies]
        self._table: NDArray[np.uint8] | None = None  # all bodies as rows, where they are small and of one size
        if self._copy and len(set(pool.sizes.tolist())) == 1:
            self._table = np.frombuffer(b"".join(pool.bodies), np.uint8).reshape(len(pool.bodies), -1)

    def pack(self, heads: NDArray[np.uint8], payload: NDArray[np.uint16]) -> list[memoryview]:
        if self._table is not None:
            head = int(self.pool.head_size[0])
            whole = np.empty((len(payload), head + self._table.shape[1]), np.uint8)
            whole[:, :head] = heads[:, :head]
            whole[:, head:] = self._table[payload] if len(self._table) > 1 else self._table
            return [whole.data.cast("B")]
        parts: list[Any] = [None] * (2 * len(payload))
        front = heads.data.cast("B")
        ends = (np.arange(len(payload)) * HEAD + self.pool.head_size[payload]).tolist()
        parts[0::2] = [front[start:end] for start, end in zip(range(0, len(front), HEAD), ends, strict=True)]
        parts[1::2] = map(self._bodies.__getitem__, payload.tolist())
        return [memoryview(b"".join(parts))] if self._copy else parts


def heads_of(frame: Frame) -> NDArray[np.uint8]:
    """``(n, 32)``, the first bytes of each payload, zero padded."""
    n, size = len(frame.seq), frame.size
    heads = np.zeros((n, HEAD), np.uint8)
    if np.all(size == size[0]):
        width = min(int(size[0]), HEAD)
        heads[:, :width] = frame.payload.reshape(n, int(size[0]))[:, :width]
    elif len(frame.payload):
        starts = np.cumsum(size, dtype=np.int64) - size
        columns = np.arange(HEAD)
        read = frame.payload.take(starts[:, None] + columns, mode="clip")
        np.copyto(heads, read, where=columns < size[:, None])
    return heads


def body_flags(frame: Frame) -> NDArray[np.int8]:
    """CORRUPT for each message whose checksum says so."""
    ends = np.cumsum(frame.size, dtype=np.int64).tolist()
    payload = frame.payload.data
    whole = [body_ok(bytes(payload[start:end])) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return np.where(whole, np.int8(0), np.int8(Flag.CORRUPT))
