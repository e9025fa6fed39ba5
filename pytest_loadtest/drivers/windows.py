"""Which messages of a burst find room in the windows of their streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def beyond(stream: NDArray[np.integer], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions, ascending, of the messages that find no room: of each stream, those after its first ``room[stream]``.

    :param stream: of each message, numbered as ``room`` is. :param room: messages that each stream takes now.
    """
    if not len(stream) or int(room.take(stream).min()) >= len(stream):  # room for all of them, whosever they are: the rule
        return np.empty(0, np.int64)
    order = np.argsort(stream, kind="stable")
    ordered = stream[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    rank = np.arange(len(stream)) - np.repeat(starts, np.diff(starts, append=len(stream)))
    return np.sort(order[rank >= room[ordered]])
