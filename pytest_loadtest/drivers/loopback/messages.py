"""Columns ⇄ the bytes of messages end to end, as the loopback relay carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.wire import frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.wire.frames import Frame

_TABLE_BELOW = 2048  # bytes: the system gets larger messages where they lie
_JOIN_BELOW = 1 << 15  # bytes: frames that are smaller on average are read as one
_COLUMNS = ("consumer", "heads", "size", "time", "order", "flags")


class Packer:
    """Heads and payload numbers → the bytes of the messages, end to end.

    :ivar largest: bytes of the largest message.
    """

    def __init__(self, pool: PayloadPool) -> None:
        self.pool = pool
        self.largest = int(pool.sizes.max())
        self._bodies, self._head_sizes = pool.bodies, pool.head_size.tolist()
        self._table: NDArray[np.uint8] | None = None  # all bodies as rows, where they are small and of one size
        if len(set(pool.sizes.tolist())) == 1 and self.largest < _TABLE_BELOW:
            self._table = np.frombuffer(b"".join(pool.bodies), np.uint8).reshape(len(pool.bodies), -1)

    def pack(self, heads: NDArray[np.uint8], payload: NDArray[np.uint16]) -> Sequence[bytes | memoryview]:
        """The bytes of these messages."""
        if self._table is not None:
            whole = np.concatenate([heads[:, : self._head_sizes[0]], self._table.take(payload, axis=0)], axis=1)
            return [whole.data.cast("B")]
        parts: list[bytes | memoryview] = []
        front = heads.tobytes()
        for start, number in zip(range(0, len(front), HEAD), payload.tolist(), strict=True):
            parts += (front[start : start + self._head_sizes[number]], self._bodies[number])
        return parts


def read(came: Sequence[tuple[Frame, int]], *, checksum: bool) -> Received:
    """What at least one DELIVER frame brought, with the instant of each frame; ``checksum``: whether the bodies are verified.

    :raises FrameError: a frame contradicts itself.
    """
    parts, times = zip(*came, strict=True)
    counts = [frame.n for frame in parts]
    if sum(len(frame.body) for frame in parts) < _JOIN_BELOW * len(parts):
        parts = (frames.join(parts),)
    messages = [(frame.columns["size"], frame.payload) for frame in parts]
    return Received(
        consumer=np.concatenate([frame.columns["place"] for frame in parts]),
        heads=np.concatenate([_heads(*part) for part in messages]),
        size=np.concatenate([size for size, _ in messages]),
        time=np.repeat(np.array(times, np.int64), counts),
        order=np.zeros(sum(counts), np.int64),
        flags=np.concatenate([_body_flags(*part) for part in messages]) if checksum else np.zeros(sum(counts), np.int8),
    )


def _heads(size: NDArray[np.int32], payload: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """``(n, 32)``, the first bytes of each payload, zero padded."""
    n, first = len(size), int(size[0])
    if np.all(size == first) and first >= HEAD:
        return payload.reshape(n, first)[:, :HEAD].copy()
    heads = np.zeros((n, HEAD), np.uint8)
    if len(payload):
        starts = np.cumsum(size, dtype=np.int64) - size
        columns = np.arange(HEAD)
        bytes_ = payload.take(starts[:, None] + columns, mode="clip")
        np.copyto(heads, bytes_, where=columns < size[:, None])
    return heads


def _body_flags(size: NDArray[np.int32], payload: NDArray[np.uint8]) -> NDArray[np.int8]:
    """CORRUPT for each message whose checksum says so."""
    ends = np.cumsum(size, dtype=np.int64).tolist()
    whole = [body_ok(bytes(payload.data[start:end])) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return np.where(whole, np.int8(0), np.int8(Flag.CORRUPT))


def choose(received: Received, mask: NDArray[np.bool_]) -> Received:
    """Copies of those at which ``mask`` is true."""
    return Received(*(getattr(received, name)[mask] for name in _COLUMNS))


def join(parts: Sequence[Received]) -> Received:
    """All of at least one part, one behind the other."""
    return parts[0] if len(parts) == 1 else Received(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))
