"""What the rules look at: the samples of the measured phase, and in which of them a queue stood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.observe.telemetry import Telemetry

    Held = NDArray[np.bool_]

QUEUED: Final = 64 * 1024
"""Bytes that any number of sockets may hold without anybody waiting for them."""
QUEUED_FOR: Final = SECOND // 50
"""A queue stands when it holds more than :data:`QUEUED` and more than the traffic of so many ns."""
QUEUES: Final = ("workers.unsent", "workers.unread", "broker.unsent", "broker.unread")
SHUT: Final = 0.5
"""Share of the time in which one side's window was shut, from which on that side, not what lies between, holds things up."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """:param telemetry: of the measured phase. :param sent_rate: payload bytes a second to the broker. :param received_rate: from it.

    :param cores: of this machine.
    """

    telemetry: Telemetry
    sent_rate: float
    received_rate: float
    cores: int

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.telemetry.column(name)

    @property
    def broker(self) -> str:
        """What it is called."""
        return self.telemetry.broker

    def known(self, *names: str) -> Held:
        """In which samples there is a number for one of these."""
        known: Held = np.any([np.isfinite(self[name]) for name in names], axis=0)
        return known

    def stands(self, name: str) -> Held:
        """In which samples that queue stands."""
        rate = self.sent_rate if name in ("workers.unsent", "broker.unread") else self.received_rate
        held: Held = self[name] > max(QUEUED, rate * QUEUED_FOR / SECOND)
        return held

    def unread(self, side: str) -> Held:
        """In which samples one side did not read: the queue stands, or a hundredth of its connections has left something for long."""
        stale = self[f"{side}.stale"]
        held: Held = self.stands(f"{side}.unread") | ((stale > 0) & (stale >= self[f"{side}.connections"] / 100))
        return held

    def refused(self, side: str) -> Held:
        """In which samples one side could not send because the other's window was shut. Of a relay's window that says nothing."""
        held: Held = self.stands(f"{side}.unsent") & ~(self["broker.relayed"] > 0) & (self[f"{side}.shut"] >= SHUT)
        return held

    def stuck(self, side: str) -> Held:
        """In which samples one side could not send although the other's window was open, or the window was a relay's."""
        held: Held = self.stands(f"{side}.unsent") & ((self["broker.relayed"] > 0) | (self[f"{side}.shut"] < SHUT))
        return held

    def mean(self, name: str, held: Held) -> float:
        """Over the samples chosen; NaN where none has a number: what costs much is not sampled every second."""
        found = self[name][held]
        return float(np.nanmean(found)) if np.isfinite(found).any() else math.nan

    def most(self, name: str, held: Held) -> str:
        """The most bytes in the samples chosen."""
        found = self[name][held]
        return format_size(float(np.nanmax(found))) if np.isfinite(found).any() else "nobody knows how much"

    def thread(self, whose: str, name: str, held: Held) -> str:
        """What somebody's busiest thread did."""
        ran, wanted = self.mean(f"{whose}.busiest", held), self.mean(f"{whose}.busiestWanted", held)
        waited = f" and waited for one {format_value(wanted - ran, 'ratio', 2)} of the time" if wanted - ran >= 0.05 else ""
        return f"{name}'s busiest thread used {ran:.2f} of a core{waited}"
