"""What brokers answered to messages sent, gathered in parts until the engine asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Acks

if TYPE_CHECKING:
    from collections.abc import Sequence


def joined(parts: Sequence[Acks]) -> Acks | None:
    """One part after another; None of none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    row, time, status = (np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "time", "status"))
    again = [np.zeros(len(part.row), np.uint8) if part.resends is None else part.resends for part in parts]
    return Acks(row, time, status, None if all(part.resends is None for part in parts) else np.concatenate(again))
