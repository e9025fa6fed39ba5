"""The grammar of a profile's ``abort:`` section, and the arithmetic of when a run is lost. Decision 022.

::

    abort:
      endToEndLatency.p99: 5s     # in each second of `for` more than 1 % of the deliveries took longer, or have not come
      for: 30s
      failed: 1%                  # of all messages that the measured phase plans; or a number of messages
      dropped: 1000
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.histogram import rank
from pytest_loadtest.values.quantities import HOUR, SECOND, format_duration, parse_duration
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.early import evaluate_ended
from pytest_loadtest.verdict.finding import bounds
from pytest_loadtest.verdict.grammar import Path, Problems, nearest
from pytest_loadtest.verdict.objectives import ObjectiveErrors, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.schedule.changes import Aborted
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import EvidenceLimits, Verdict

LATENCY: Final = "endToEndLatency"
COUNTS: Final = ("failed", "dropped")
LOSS: Final = "what is under way may still come until the drain ends, so loss is not known while load runs"
_KNOWN: Final = (f"{LATENCY}.p99", *COUNTS, "for")
_DEFAULT: Final = 30 * SECOND
LONGEST: Final = HOUR
"""ns, of ``for`` and of a latency: workers keep counts of so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """When a run is lost.

    :param latencies: upper bounds on percentiles of the end-to-end latency. :param hold: seconds in a row for which one must be broken.
    :param counts: upper bounds on ``failed`` and ``dropped`` over the whole measured phase.
    """

    latencies: tuple[Objective, ...]
    counts: tuple[Objective, ...]
    hold: int

    @property
    def latest(self) -> int:
        """The longest latency of all, ns."""
        return max((int(one.maximum or 0) for one in self.latencies), default=0)

    def lines(self) -> list[str]:
        """What ends the run, and what cannot."""
        held = [f"{one.name} {_beyond(one)} in every second of {self.hold} s" for one in self.latencies]
        counted = [f"{one.name} {_beyond(one)}{' of the messages planned' if one.unit == 'ratio' else ''}" for one in self.counts]
        return [*held, *counted, LOSS]


def _beyond(objective: Objective) -> str:
    return f"> {bounds(objective).removeprefix('<= ')}"


def read(section: Mapping[str, object]) -> Abort:
    """The section as it bounds a run.

    :raises ObjectiveErrors: with everything that is wrong, by paths inside the section.
    """
    problems: Problems = []
    written: dict[Path, Path] = {}
    nested = _nested({key: value for key, value in section.items() if key != "for"}, written, problems)
    found: tuple[Objective, ...] = ()
    try:
        found = parse(nested, implicit=())
    except ObjectiveErrors as errors:
        problems += ((written.get(path, path), message, hint) for path, message, hint in errors.problems)
    for one in found:
        path = written.get((one.metric, one.statistic), (one.metric, one.statistic) if one.statistic else (one.metric,))
        problems += ((path, message, hint) for message, hint in _unfit(one))
    latencies = tuple(one for one in found if one.metric == LATENCY)
    hold = _hold(section["for"], bool(latencies) or LATENCY in nested, problems) if "for" in section else _DEFAULT
    if not nested and not problems:
        problems.append(((), "says nothing that would end the run", f"write {LATENCY}.p99: 5s, for: 30s"))
    if problems:
        raise ObjectiveErrors(problems)
    return Abort(latencies=latencies, counts=tuple(one for one in found if one.metric in COUNTS), hold=hold // SECOND)


def _nested(section: Mapping[str, object], written: dict[Path, Path], problems: Problems) -> dict[str, object]:
    """As an ``slo`` section has it. :param written: gets, for the path of each bound there, its path here."""
    nested: dict[str, object] = {}
    for key, value in section.items():
        metric, _, statistic = str(key).partition(".")
        if metric == "loss":
            problems.append(((key,), LOSS, f"write {LATENCY}.p99: 5s, for which what never comes is later than any bound"))
        elif metric not in (LATENCY, *COUNTS) or (statistic and metric != LATENCY):
            problems.append(((key,), f"{key!r} does not end a run", nearest(key, _KNOWN)))
        elif statistic or isinstance(value, Mapping):
            at: dict[object, object] = nested.setdefault(metric, {})  # type: ignore[assignment]
            given: Mapping[object, object] = {statistic: value} if statistic or not isinstance(value, Mapping) else value
            problems += (((key,), f"{metric}.{one} is bounded twice", "remove one") for one in given if one in at)
            at.update(given)
            written |= {(metric, statistic): (key,)} if statistic else {}
        else:
            nested[metric] = value
    return nested


def _unfit(objective: Objective) -> list[tuple[str, str]]:
    """What an objective may say that does not end a run."""
    if objective.minimum is not None or objective.maximum is None:
        return [("only an upper bound ends a run", "write the bound alone")]
    if objective.metric == LATENCY and objective.percentile is None:
        return [
            (f"{objective.statistic} is of single messages, or hides them", f"write {LATENCY}.p99: {format_duration(objective.maximum)}")
        ]
    if objective.metric == LATENCY and objective.maximum > LONGEST:
        return [("workers do not look back so far", f"write {format_duration(LONGEST)} or less")]
    return []


def _hold(value: object, wanted: bool, problems: Problems) -> int:
    """``for``, ns."""
    try:
        hold = parse_duration(str(value))
    except ValueError:
        problems.append((("for",), f"{value!r} is not a duration", "write 30s"))
        return _DEFAULT
    if not wanted:
        problems.append((("for",), "a count that is too high stays so: only a latency has to be so for some time", "remove it"))
    elif hold % SECOND or not SECOND <= hold <= LONGEST:
        problems.append((("for",), f"{value} is no whole number of seconds from 1s to {format_duration(LONGEST)}", "write 30s"))
    return hold


def lost_seconds(due: Sequence[int], prompt: Sequence[int], percentile: float) -> int:
    """How many seconds up to the last one, without a gap, a percentile was beyond its bound; one in which nothing is due is a gap.

    By nearest rank over all that was due: what has not come within the bound is later than it, wherever it is.

    :param due: deliveries intended in each second. :param prompt: of these, copies that took no longer than the bound. A second copy
        counts as if it were a first one, so the seconds may be more than this, and not fewer.
    """
    for count, (n, came) in enumerate(zip(reversed(due), reversed(prompt), strict=True)):
        if not n or came >= rank(percentile, n):
            return count
    return len(due)


def too_many(objective: Objective, count: int, planned: int) -> str:
    """``failed 1 234 > 1 % of the 100 000 messages planned``."""
    of = f" of the {exact(planned)} messages planned" if objective.unit == "ratio" else ""
    return f"{objective.name} {exact(count)} {_beyond(objective)}{of}"


def too_late(objective: Objective, hold: int, first: int, due: int, prompt: int) -> str:
    """``endToEndLatency.p99 > 5.00 s in each of the 30 s from second 12 on: 3 of 30 000 deliveries took no longer``."""
    held = f"in each of the {hold} s from second {first} on"
    return f"{objective.name} {_beyond(objective)} {held}: {exact(prompt)} of {exact(due)} deliveries took no longer"


def evaluate_aborted(objectives: Sequence[Objective], measurements: Measurements, limits: EvidenceLimits, lost: Aborted) -> Verdict:
    """Judge a run that was ended because it was lost: *missed*, whatever the part that ran comes to, and why.

    A run in which nothing was received at all, or which the generator's own pauses spoiled, is what it would be without that. How long a
    dropped message stood before a full window is not recorded: where some did when the run was lost, drops are the target's doing.
    """
    verdict = evaluate_ended(objectives, measurements, limits, "", our_drops=not lost.blocked)
    return replace(verdict, reasons=(lost.reason, *verdict.reasons))
