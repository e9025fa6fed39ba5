"""Changes while a phase runs, each at one instant for all workers.

The controller decides on a change :data:`CHANGE_IN` ahead and sends it to all workers. Their
engines apply it to the messages that are due from its instant on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pytest_loadtest.values.records import record

CHANGE_IN: Final = 2_000_000_000
"""ns from a decision to its instant: every worker must hear of it, also one that stalls."""
UNDER_WAY: Final = 100_000_000
"""Messages sent in the last 100 ms (ns) count as under way when a backlog is drained."""


@record
class Aborted:
    """The end of a run that is lost.

    :param reason: when and why.
    """

    reason: str


@record
class Change:
    """A change from ``at`` on (ns after the phase's start); None leaves a value as it is.

    :param rate: per second over all streams: messages, or bytes if the profile paces by bytes.
    :param distribution: the number of a distribution of the payload pool, or weights by size
        bucket.
    :param paused: consumers pause, or resume.
    :param consumers: number of consumers of each subscription that take messages.
    :param end: the phase ends: it has no messages that would be due at ``at`` or later.
    :param unattainable: for an end, the objective that can no longer be met; None if the end has
        another reason.
    :param aborted: for an end, set if the run is lost.
    """

    at: int
    rate: float | None = None
    distribution: int | Mapping[str, int] | None = None
    paused: bool | None = None
    consumers: int | None = None
    end: bool = False
    unattainable: str | None = None
    aborted: Aborted | None = None

    def document(self, *, in_bytes: bool) -> dict[str, Any]:
        """Return the change as ``run.json`` has it.

        :param in_bytes: true if the rate is in bytes.
        """
        return {
            "at": self.at,
            "rate": self.rate,
            "bytes": in_bytes,
            "distribution": self.distribution is not None,
            "paused": self.paused,
            "consumers": self.consumers,
            "end": self.end,
            "unattainable": self.unattainable,
            "aborted": None if self.aborted is None else self.aborted.reason,
        }
