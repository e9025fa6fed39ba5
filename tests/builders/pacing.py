"""A pacer's messages stream by stream: message ``k`` of stream ``s`` has the number ``s + k·P`` in the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.schedule.pacing import Pacer


def share(pacer: Pacer, total: int, stream: int) -> int:
    """Return how many of the run's first ``total`` messages belong to ``stream``."""
    return max(0, -((stream - total) // pacer.streams))


def due_in_stream(pacer: Pacer, elapsed: int, stream: int) -> int:
    """Return how many messages of ``stream`` are due once ``elapsed`` ns have passed."""
    return share(pacer, pacer.due(elapsed), stream)


def offset(pacer: Pacer, stream: int, k: int) -> int:
    """Return the time of message ``k`` of ``stream``, ns after the start."""
    return pacer.time(stream + k * pacer.streams)


def offsets(pacer: Pacer, stream: int, first: int, count: int) -> NDArray[np.int64]:
    """Return the times of messages ``first … first+count-1`` of ``stream``, ns after the start."""
    return pacer.times(stream + np.arange(first, first + count, dtype=np.int64) * pacer.streams)
