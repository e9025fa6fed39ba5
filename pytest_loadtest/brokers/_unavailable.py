"""Why one way to a broker does not exist on this machine."""

from __future__ import annotations

from pytest_loadtest.errors import TargetError


class UnavailableError(TargetError):
    """Nothing installed, no engine: ``auto`` goes on to the next way.

    :param reason: what is missing.
    :param remedy: what to do about it, one line.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason
