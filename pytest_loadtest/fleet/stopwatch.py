"""The time that the parts of a session take, which ``-vv`` prints.

The rule: a part lasts until the next one begins, so the parts add up to the session. The controller
begins them in the thread that answers a step, and reads them at the end of the session.
"""

from __future__ import annotations

import time

from pytest_loadtest.values.quantities import SECOND, format_duration


class Stopwatch:
    """Adds up the wall time of parts by their name."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._part = "collection, workers"
        self._since = time.monotonic()
        self._made = self._since

    def begin(self, part: str) -> None:
        """End the part in progress, and begin another one."""
        now = time.monotonic()
        self._spent[self._part] = self._spent.get(self._part, 0.0) + now - self._since
        self._part = part
        self._since = now

    def text(self, started: float) -> str:
        """Return the parts of 1 ms or more, in the order in which each began first.

        :param started: the time since which this process has run, s of the system's clock.
        """
        self.begin(self._part)
        before = time.time() - started - (time.monotonic() - self._made)
        spent = {"pytest": max(before, 0.0), **self._spent}
        texts = []
        for part, seconds in spent.items():
            if seconds >= 0.001:
                texts.append(f"{part} {format_duration(seconds * SECOND)}")
        return ", ".join(texts)
