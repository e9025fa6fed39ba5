"""What may change while a phase runs, at one instant agreed by all workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

CHANGE_IN: Final = 2_000_000_000
"""ns from a decision to its instant: every worker must have heard of it, one that stalls too."""
UNDER_WAY: Final = 100_000_000
"""ns: what was sent in so long is taken to be under way, not left over, when a backlog is drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """A run that is ended because it is lost. :param reason: when and why. :param blocked: messages stood before full windows then."""

    reason: str
    blocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From ``at`` on (ns after the phase's start) something is different; None leaves a thing as it is.

    :param rate: per second over all streams: messages, or bytes where the profile paces by bytes.
    :param distribution: the number of a distribution of the payload pool, or weights by size bucket.
    :param paused: consumers stop taking messages, or go on. :param consumers: how many of each subscription take messages.
    :param end: the phase has no messages that would be due at ``at`` or later.
    :param foregone: of such an end, the objective that could no longer hold; None where the end has another reason.
    :param aborted: of such an end, that the run was lost; None where it was not.
    """

    at: int
    rate: float | None = None
    distribution: int | Mapping[str, int] | None = None
    paused: bool | None = None
    consumers: int | None = None
    end: bool = False
    foregone: str | None = None
    aborted: Aborted | None = None

    def document(self, *, in_bytes: bool) -> dict[str, Any]:
        """As ``run.json`` keeps it. :param in_bytes: whether its rate is of bytes."""
        return {
            "at": self.at, "rate": self.rate, "bytes": in_bytes, "distribution": self.distribution is not None,
            "paused": self.paused, "consumers": self.consumers, "end": self.end, "foregone": self.foregone,
            "aborted": None if self.aborted is None else self.aborted.reason,
        }  # fmt: skip
