"""One stream's messages in the order they are due, whatever is paced: messages, or bytes.

A :class:`ByteTrain` is paced by the bytes really due: message ``k`` of stream ``s`` is due when the run's byte train reaches
``P · (bytes of messages 0 … k-1 of the stream) + s · mean``: each stream carries its share of the byte rate, whatever sizes it draws,
and the streams do not start together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pytest_loadtest.pacing import Pacer

_AHEAD = 4096


class Train(Protocol):
    """When the messages of one stream are due, ns after the phase's start; messages are numbered from 0 in the phase."""

    def due(self, elapsed: int) -> int:
        """How many are due once ``elapsed`` ns have passed."""

    def offset(self, k: int) -> int:
        """When message ``k`` is due."""

    def offsets(self, first: int, count: int) -> NDArray[np.int64]:
        """When messages ``first … first+count-1`` are due."""

    def repace(self, pacer: Pacer) -> None:
        """The rate has changed."""


class MessageTrain:
    """So many messages a second."""

    def __init__(self, pacer: Pacer, stream: int) -> None:
        self._pacer, self._stream = pacer, stream

    def due(self, elapsed: int) -> int:
        return self._pacer.due_in_stream(elapsed, self._stream)

    def offset(self, k: int) -> int:
        return self._pacer.offset(self._stream, k)

    def offsets(self, first: int, count: int) -> NDArray[np.int64]:
        return self._pacer.offsets(self._stream, first, count)

    def repace(self, pacer: Pacer) -> None:
        self._pacer = pacer


class ByteTrain:
    """So many bytes a second.

    :param pacer: counts bytes over all streams. :param sizes: of messages ``first … first+count-1`` of this stream in this phase, bytes.
    :param mean: bytes of a message, for the streams' places.
    """

    def __init__(self, pacer: Pacer, stream: int, mean: float, sizes: Callable[[int, int], NDArray[np.int32]]) -> None:
        self._pacer, self._sizes, self._place = pacer, sizes, round(stream * mean)
        self._first, self._starts = 0, np.array([self._place], np.int64)  # where in the byte train messages first … begin

    def due(self, elapsed: int) -> int:
        reached = self._pacer.due(elapsed)
        while self._starts[-1] < reached:
            self._extend()
        return self._first + int(np.searchsorted(self._starts, reached))

    def offset(self, k: int) -> int:
        return self._pacer.time(int(self._span(k, 1)[0]))

    def offsets(self, first: int, count: int) -> NDArray[np.int64]:
        return self._pacer.times(self._span(first, count))

    def repace(self, pacer: Pacer) -> None:
        self._pacer = pacer

    def resize(self, k: int) -> None:
        """From message ``k`` on the sizes are others."""
        del_from = max(k + 1 - self._first, 1)  # where k begins depends on the messages before it
        self._starts = self._starts[:del_from]

    def forget(self, k: int) -> None:
        """Messages before ``k`` are not asked for again."""
        if k - self._first > _AHEAD:
            self._starts, self._first = self._starts[k - self._first :].copy(), k

    def _span(self, first: int, count: int) -> NDArray[np.int64]:
        while self._first + len(self._starts) < first + count:
            self._extend()
        return self._starts[first - self._first : first - self._first + count]

    def _extend(self) -> None:
        known = self._first + len(self._starts) - 1  # the last message whose beginning is known
        ends = self._starts[-1] + np.cumsum(self._sizes(known, _AHEAD).astype(np.int64) * self._pacer.streams)
        self._starts = np.concatenate([self._starts, ends])
