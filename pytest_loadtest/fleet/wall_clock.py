"""The offset between the wall clock and the run's monotonic clock, by which all is measured.

Brokers deliver delayed messages by the wall clock. The controller reads it for each phase of a
workload, in the threads that answer steps. A run with delayed messages never passes if the
wall clock was set during a phase.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.due import wall_offset
from pytest_loadtest.values.quantities import MILLISECOND, format_duration

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile

MAX_DRIFT: Final = 10 * MILLISECOND


class WallClock:
    """The wall clock during one phase.

    :param start: the phase's start, ns of the run's clock.
    :ivar offset: wall clock minus the run's clock, ns.
    :ivar drift: the change of ``offset`` until the end of the phase; None before it.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.offset = _offset()
        self.drift: int | None = None

    @property
    def started(self) -> float:
        """The phase's start, seconds since the epoch."""
        return (self.start + self.offset) / 1e9

    def at(self, moment: int | None) -> str | None:
        """Return the moment in ISO 8601.

        :param moment: ns after the phase's start.
        """
        if moment is None:
            return None
        time_there = datetime.fromtimestamp(self.started + moment / 1e9, UTC)
        return time_there.isoformat(timespec="milliseconds")

    def delays(self, profile: Profile) -> dict[str, Any] | None:
        """Return the values that due times are computed from; None if no message is delayed."""
        if profile.delays is None:
            return None
        delays = replace(profile.delays, start=self.start, wall=self.offset)
        return delays.document() | {"drift": self.drift}

    def check(self, profile: Profile) -> None:
        """Note the drift at the end of the phase.

        :raises NoData: the wall clock was set by more than 10 ms during the phase, and messages
            were delayed.
        """
        self.drift = _offset() - self.offset
        if profile.delays is not None and abs(self.drift) > MAX_DRIFT:
            way = "forward" if self.drift > 0 else "back"
            by = format_duration(abs(self.drift))
            raise NoData(
                f"the wall clock was set {way} by {by} while delayed messages were under way: "
                "their due times are unknown"
            )


def _offset() -> int:
    return wall_offset(time.time_ns, time.monotonic_ns)
