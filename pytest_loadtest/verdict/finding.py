"""What became of objectives: one found to hold or not, and the verdict that all of them make."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.shown import Shown


class Outcome(enum.Enum):
    """What a run says about its target, best first."""

    MET = "met"
    MISSED = "missed"
    GENERATOR_LIMITED = "generator-limited"
    NO_DATA = "no data"


class Window(NamedTuple):
    """One window judged.

    :param start: and :param end: ns since the measured phase's start. :param observed: None where it cannot be told; inf where too many
        never came. :param reason: why it cannot be told, or why it is the generator's doing; otherwise empty.
    """

    start: int
    end: int
    observed: float | None
    samples: int
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One objective judged.

    :param observed: in windows the worst; of a drift the change, as a share of the first tenth.
    :param text: observed, bound, how far over, of how many, in one line. :param own: why it is *generator-limited*, otherwise None.
    :param shown: the same in pieces, where the observed value beside the bound would not tell it. :param windows: all of them, in order.
    :param tenths: of a drift, what was observed in the first and in the last tenth.
    """

    objective: Objective
    outcome: Outcome
    observed: float | None
    samples: int
    text: str
    own: str | None = None
    shown: Shown | None = None
    windows: tuple[Window, ...] = ()
    tenths: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a run.

    :param reasons: the causes of *no data*, or the evidence of *generator-limited* with what to change last.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()

    def having(self, outcome: Outcome) -> tuple[Finding, ...]:
        """The findings with this outcome."""
        return tuple(finding for finding in self.findings if finding.outcome is outcome)
