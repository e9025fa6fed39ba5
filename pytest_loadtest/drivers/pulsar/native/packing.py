"""Envelopes and payload numbers → the payloads of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.wire.pulsar.batches import prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool

    Buffer = bytes | memoryview

_TABLE_BELOW: Final = 2048  # bytes: larger bodies are handed to the socket where they lie
_JOIN_BELOW: Final = 2048  # bytes a message on average: smaller ones are put together


class EntryPacker:
    """:param batched: whether payloads are batches, where every message has a prefix of its own."""

    def __init__(self, pool: PayloadPool, *, batched: bool) -> None:
        self._pool, self._batched = pool, batched
        self._heads = pool.head_size.tolist()
        sizes = pool.sizes.tolist()
        self._prefixes = [prefix(size) if batched else b"" for size in sizes]
        self._table: NDArray[np.uint8] | None = None
        if len(set(sizes)) == 1 and sizes[0] < _TABLE_BELOW:
            rows = [front + bytes(head) + body for front, head, body in zip(self._prefixes, self._heads, pool.bodies, strict=True)]
            self._table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)

    def pack(
        self, heads: NDArray[np.uint8], payload: NDArray[np.uint16], key: NDArray[np.int32] | None, starts: Sequence[int],
        stops: Sequence[int],
    ) -> list[list[Buffer]]:  # fmt: skip
        """Of each entry, its payload.

        :param heads: of the messages, ``(n, 32)``. :param starts: where entries begin among them. :param stops: where they end.
        """
        if self._table is not None and (key is None or not self._batched):
            return self._pack_even(heads, payload, starts, stops)
        fronts = heads.tobytes()
        numbers = payload.tolist()
        prefixes = [self._prefixes[number] for number in numbers]
        if key is not None and self._batched:
            sizes = self._pool.sizes.take(payload).tolist()
            prefixes = [prefix(size, b"key-%d" % each) for size, each in zip(sizes, key.tolist(), strict=True)]
        return [self._parts(fronts, numbers, prefixes, start, stop) for start, stop in zip(starts, stops, strict=True)]

    def _pack_even(
        self, heads: NDArray[np.uint8], payload: NDArray[np.uint16], starts: Sequence[int], stops: Sequence[int]
    ) -> list[list[Buffer]]:
        assert self._table is not None
        rows, before = self._table.take(payload, axis=0), len(self._prefixes[0])
        length, head = rows.shape[1], self._heads[0]
        rows[:, before : before + head] = heads[:, :head]
        whole = rows.data.cast("B")
        return [[whole[start * length : stop * length]] for start, stop in zip(starts, stops, strict=True)]

    def _parts(self, fronts: bytes, numbers: list[int], prefixes: list[bytes], start: int, stop: int) -> list[Buffer]:
        parts: list[Buffer] = []
        bodies = self._pool.bodies
        for place in range(start, stop):
            number = numbers[place]
            at = place * HEAD
            parts += (prefixes[place] + fronts[at : at + self._heads[number]], bodies[number])
        if sum(map(len, parts)) < _JOIN_BELOW * (stop - start):
            return [b"".join(parts)]
        return [part for part in parts if len(part)]
