"""Payloads where each topic has messages of one size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_loadtest.message import draws
from pytest_loadtest.message.payloads import PayloadChooser

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool

_32 = np.uint64(32)


class Chooser(Protocol):
    """Whose draws say which payload a message has."""

    def draw(self, index: NDArray[np.int64], seq: NDArray[np.int64], table: draws.WeightedChoice) -> NDArray[np.uint16]:
        """See :class:`~pytest_loadtest.message.payloads.PayloadChooser`."""


class TopicChooser:
    """A message's payload is one of its topic's size, equally likely where there are several: a function of (seed, stream, n) alone.

    :param topics: index of the topic of each of the streams.
    """

    def __init__(self, pool: PayloadPool, seed: int, streams: range, topics: NDArray[np.int64]) -> None:
        self._keys = draws.subkeys(seed, streams)
        buckets = np.array(pool.of_topics, np.int64)[topics]
        self._first = np.searchsorted(pool.buckets, buckets)  # the pool has the payloads of a bucket one after another
        self._count = (np.searchsorted(pool.buckets, buckets, side="right") - self._first).astype(np.uint64)

    def draw(self, index: NDArray[np.int64], seq: NDArray[np.int64], table: draws.WeightedChoice) -> NDArray[np.uint16]:
        """One payload for each message; ``table`` says nothing here, as sizes are by topic."""
        word = draws.words_of(self._keys.take(index), seq) >> _32
        within = (word * self._count[index]) >> _32
        return (self._first[index] + within.astype(np.int64)).astype(np.uint16)


def chooser(pool: PayloadPool, seed: int, streams: range, topics: int) -> Chooser:
    """How the messages of some streams get their payloads. :param topics: of the run, over which streams are dealt in turn."""
    if not pool.of_topics:
        return PayloadChooser(pool, seed, streams)
    return TopicChooser(pool, seed, streams, np.arange(streams.start, streams.stop, streams.step) % topics)
