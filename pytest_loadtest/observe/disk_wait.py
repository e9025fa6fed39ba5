"""How much of the time a process sleeps for the disk. A source of its own: a look at hundreds of threads costs more than a second may."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKS: Final = 10  # within a sample: a wait for the disk is over in milliseconds
_APART: Final = 0.004  # s


class DiskWaitSource:
    """Samples a broker with its children.

    :param pid: asked at each sample, for a broker may be restarted; None while there is none.
    """

    def __init__(self, pid: Callable[[], int | None]) -> None:
        self._pid, self.used = pid, 0.0
        self.missing: list[str] = []

    def read(self, now: int) -> dict[str, float]:
        """The share of the looks in which a thread slept for the disk; nothing where there is no such process."""
        pid = self._pid()
        try:
            pids = [] if pid is None else [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        except psutil.NoSuchProcess:
            return {}
        if not pids:
            return {}
        waits = 0
        for number in range(_LOOKS):
            time.sleep(_APART if number else 0)
            waits += any(state == "D" for one in pids for state in _states(one))
        return {"broker.diskWait": waits / _LOOKS}

    def close(self) -> dict[str, float]:
        """Nothing is held, and nothing left to say."""
        return {}


def _states(pid: int) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
