"""How a load comes through something that was done to its target: how long nobody could publish, and when all was as before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

QUIET: Final = SECOND
"""ns without a slow message, after which a stream is as before: what is slow later has another reason."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Times in ns.

    :param pause: the longest that a stream went without an answer, from the disturbance on; None where none was answered after it.
    :param recovered: from the disturbance until, of the stream that took longest, the last message arrived that was slower than all before
        it; 0 where none was. None where nothing had arrived before, so that nobody knows what is usual.
    """

    pause: int | None
    recovered: int | None


def recovery(at: int, answered: tuple[Column, Column], arrived: tuple[Column, Column, Column]) -> Recovery:
    """What came of a disturbance.

    :param at: ns, its instant. :param answered: stream and ``acked`` of every answer.
    :param arrived: stream, ``intended`` and ``received`` of the first copy of each delivery.
    """
    stream, intended, received = arrived
    latency, after = received - intended, received >= at
    if after.all():
        return Recovery(_pause(at, *answered), None)
    slow = after & (latency > latency[~after].max())
    ends = [_end(np.sort(received[slow & (stream == one)])) for one in np.unique(stream[slow])]
    return Recovery(_pause(at, *answered), max(ends, default=at) - at)


def is_first(subscription: NDArray[np.integer[Any]], stream: NDArray[np.integer[Any]], seq: Column, received: Column) -> NDArray[np.bool_]:
    """Which copies are the first of their delivery: what came again after a restart says nothing of how slow messages are."""
    order = np.lexsort((received, seq, stream, subscription))
    again = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in (subscription, stream, seq):
        ordered = column[order]
        again &= ordered[1:] == ordered[:-1]
    found = np.ones(len(order), np.bool_)
    found[order[1:][again]] = False
    return found


def _end(times: Column) -> int:
    """Of the first stretch of slow messages."""
    return int(times[np.append(np.diff(times) > QUIET, True).argmax()])


def _pause(at: int, stream: Column, acked: Column) -> int | None:
    """The longest time between two answers of a stream of which the second came after ``at``."""
    order = np.lexsort((acked, stream))
    times, same = acked[order], np.diff(stream[order]) == 0
    gaps = np.diff(times)[same & (times[1:] >= at)]
    return int(gaps.max()) if len(gaps) else None
