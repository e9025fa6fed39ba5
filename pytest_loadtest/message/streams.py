"""The numbers of a worker's streams.

They are evenly spaced, a ``range``, unless consumers are paired with producers by host
(:mod:`pytest_loadtest.schedule.pairing`): then they are a column of ascending numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Streams = range | NDArray[np.int64]


def stream_column(streams: Streams) -> NDArray[np.int64]:
    """Return the numbers as a column."""
    if not isinstance(streams, range):
        return streams
    return np.arange(streams.start, streams.stop, streams.step, dtype=np.int64)


def stream_list(streams: Streams) -> range | list[int]:
    """Return the numbers as a sequence of Python's integers, which drivers take."""
    if isinstance(streams, range):
        return streams
    numbers: list[int] = streams.tolist()
    return numbers


def stream_at(streams: Streams, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stream at each position."""
    # Arithmetic where possible: this is done for each message.
    if isinstance(streams, range):
        return index * streams.step + streams.start
    return streams.take(index)


def position_of(streams: Streams, stream: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the position of each stream: the inverse of :func:`stream_at`."""
    if isinstance(streams, range):
        return (stream.astype(np.int64) - streams.start) // streams.step
    return streams.searchsorted(stream)


def streams_below(streams: Streams, end: int) -> int:
    """Return how many of the streams have numbers below ``end``."""
    if isinstance(streams, range):
        return len(range(streams.start, min(end, streams.stop), streams.step))
    return int(streams.searchsorted(end))


def streams_document(streams: Streams) -> list[int] | dict[str, list[int]]:
    """Return the numbers for a worker's manifest: start, stop and step, or all of them."""
    if isinstance(streams, range):
        return [streams.start, streams.stop, streams.step]
    return {"numbers": streams.tolist()}


def streams_of_document(document: Any) -> Streams:
    """Read the numbers from a manifest.

    :raises KeyError, TypeError, ValueError: they are not there.
    """
    if isinstance(document, dict):
        return np.array(document["numbers"], np.int64)
    start, stop, step = map(int, document)
    return range(start, stop, step)
