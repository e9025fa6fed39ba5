"""The wall clock beside the run's: brokers deliver delayed messages by the one, and everything is measured by the other."""

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

MOST_DRIFT: Final = 10 * MILLISECOND


class WallClock:
    """Of one phase.

    :param start: of the phase, ns of the run's clock.
    :ivar offset: wall clock less the run's clock, ns. :ivar drift: by how much that changed until the phase was over; None: it is not.
    """

    def __init__(self, start: int = 0) -> None:
        self.start, self.offset = start, _offset()
        self.drift: int | None = None

    @property
    def started(self) -> float:
        """The phase's start, seconds since the epoch."""
        return (self.start + self.offset) / 1e9

    def at(self, moment: int | None) -> str | None:
        """ISO 8601. :param moment: ns after the phase's start."""
        return None if moment is None else datetime.fromtimestamp(self.started + moment / 1e9, UTC).isoformat(timespec="milliseconds")

    def delays(self, profile: Profile) -> dict[str, Any] | None:
        """By what due times can be worked out again; None where no message is delayed."""
        if profile.delays is None:
            return None
        return replace(profile.delays, start=self.start, wall=self.offset).document() | {"drift": self.drift}

    def check(self, profile: Profile) -> None:
        """The phase is over.

        :raises NoData: the wall clock was set by more than 10 ms meanwhile, and messages were delayed.
        """
        self.drift = _offset() - self.offset
        if profile.delays is not None and abs(self.drift) > MOST_DRIFT:
            way = "forward" if self.drift > 0 else "back"
            by = format_duration(abs(self.drift))
            raise NoData(f"the wall clock was set {way} by {by} while delayed messages were under way: when they were due is not known")


def _offset() -> int:
    return wall_offset(time.time_ns, time.monotonic_ns)
