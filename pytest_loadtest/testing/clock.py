"""A clock that stands still."""

from __future__ import annotations


class FakeClock:
    """A clock for the engine and its drivers that moves only when told to; ns."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, ns: int) -> None:
        """Let time pass."""
        if ns < 0:
            raise ValueError(f"time does not run backwards: ns={ns}")
        self.now += ns

    sleep = advance
