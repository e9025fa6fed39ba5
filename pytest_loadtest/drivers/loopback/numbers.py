"""The numbers by which the relay knows topics and subscriptions.

Runs do not meet, for each has its nonce, except on a topic that they name: that is one of the run 0, and each run has subscriptions of its
own there.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverContext


def run_number(context: DriverContext) -> int:
    """The run whose topics these are."""
    return context.nonce if context.topology.name is None else 0


def first_topic(context: DriverContext) -> int:
    """The number of the topic with the index 0, 32 bits; the others follow it."""
    name = context.topology.name
    return 0 if name is None else zlib.crc32(name.encode())


def subscription_numbers(context: DriverContext, subscription: NDArray[Any]) -> NDArray[Any]:
    """By index of the subscription within its topic, those of the relay, 32 bits."""
    if context.topology.name is None:
        return subscription
    return np.array([zlib.crc32(f"{context.nonce}-{index}".encode()) for index in subscription.tolist()])


def listed(numbers: Sequence[int]) -> str:
    """``0, 1, 2, 3, 4 and 7 more``: never long."""
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
