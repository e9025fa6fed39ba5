"""Waits for events in other processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(holds: Callable[[], object], what: str, seconds: float) -> None:
    """Poll until the condition holds; fails with its name after the time limit."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)


def gone(pid: int | None) -> bool:
    """Return True if no such process runs; a zombie does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"
