"""Keys of messages, as OMB's key distributors give them: a key is a number, which the driver spells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message import draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Keys = Callable[["NDArray[np.int64]", "NDArray[np.int64]"], "NDArray[np.int32] | None"]

KEYS: Final = 10_000  # as many as OMB has
_APART: Final = 1 << 40  # from the draws of payloads and their bodies


def key_column(distributor: str, seed: int, streams: range) -> Keys:
    """What gives messages their keys, from the places of their streams among ``streams`` and their sequences; None for no keys.

    ``RANDOM_NANO`` is a draw of (seed, stream, sequence), so that a run has the same keys however many workers share it.
    """
    if distributor == "NO_KEY":
        return lambda index, seq: None
    if distributor == "KEY_ROUND_ROBIN":
        return lambda index, seq: (seq % KEYS).astype(np.int32)
    drawn = draws.subkeys(draws.subkey(~seed, _APART), streams)
    return lambda index, seq: (draws.words_of(drawn.take(index), seq) % np.uint64(KEYS)).astype(np.int32)
