"""The ``abort:`` section of a profile, and the arithmetic that decides when a run is lost. Decision 022.

::

    abort:
      endToEndLatency.p99: 5s     # more than 1 % of the deliveries of each second took longer, or have not arrived
      for: 30s                    # in each of so many seconds
      failed: 1%                  # of all messages planned for the measured phase; or a number of messages
      dropped: 1000
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from pytest_loadtest.errors import Path, Problem
from pytest_loadtest.metrics.histogram import rank
from pytest_loadtest.values.quantities import HOUR, SECOND, format_duration, parse_duration
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.early import evaluate_ended
from pytest_loadtest.verdict.finding import write_bounds
from pytest_loadtest.verdict.grammar import nearest
from pytest_loadtest.verdict.objectives import Slo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.schedule.changes import Aborted
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import EvidenceLimits, Verdict

LATENCY: Final = "endToEndLatency"
COUNTS: Final = ("failed", "dropped")
LOSS: Final = "loss cannot end a run: messages under way may arrive until the drain ends"
_KEYS: Final = (f"{LATENCY}.p99", *COUNTS, "for")
_DEFAULT: Final = 30 * SECOND
LONGEST: Final = HOUR
"""ns, of ``for`` and of a latency: workers keep counts of so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The ``abort`` section: as it is written, and when a run is lost by it.

    :param latencies: upper bounds on percentiles of the end-to-end latency.
    :param hold: seconds in a row in which a latency bound must be broken.
    :param counts: upper bounds on ``failed`` and ``dropped`` over the whole measured phase.
    :param problems: everything wrong with the section, by paths inside it; empty in a valid
        profile.
    """

    written: Mapping[str, object]
    latencies: tuple[Objective, ...]
    counts: tuple[Objective, ...]
    hold: int
    problems: tuple[Problem, ...] = ()

    @classmethod
    def read(cls, section: Mapping[str, object]) -> Self:
        """Parse the section. Never raises."""
        problems: list[Problem] = []
        written: dict[Path, Path] = {}
        nested = _nested(
            {key: value for key, value in section.items() if key != "for"}, written, problems
        )
        slo = Slo.read(nested)
        problems += (
            replace(problem, path=written.get(problem.path, problem.path))
            for problem in slo.problems
        )
        for one in slo.objectives if not slo.problems else ():
            path: Path = (one.metric, one.statistic) if one.statistic else (one.metric,)
            problems += (problem.below(*written.get(path, path)) for problem in _unfit(one))
        latencies = tuple(one for one in slo.objectives if one.metric == LATENCY)
        hold = (
            _hold(section["for"], bool(latencies) or LATENCY in nested, problems)
            if "for" in section
            else _DEFAULT
        )
        if not nested and not problems:
            problems.append(
                Problem(
                    (),
                    "has no condition that ends the run",
                    f"write {LATENCY}.p99: 5s, for: 30s",
                    at_key=True,
                )
            )
        counts = tuple(one for one in slo.objectives if one.metric in COUNTS)
        return cls(
            written=section,
            latencies=latencies,
            counts=counts,
            hold=hold // SECOND,
            problems=tuple(problems),
        )

    @property
    def latest(self) -> int:
        """The longest latency of all bounds, ns."""
        return max((int(one.maximum or 0) for one in self.latencies), default=0)

    def lines(self) -> list[str]:
        """Describe what ends the run, and why loss cannot."""
        held = [
            f"{one.name} {_beyond(one)} in every second of {self.hold} s" for one in self.latencies
        ]
        counted = [
            f"{one.name} {_beyond(one)}{' of the messages planned' if one.unit == 'ratio' else ''}"
            for one in self.counts
        ]
        return [*held, *counted, LOSS]


def _beyond(objective: Objective) -> str:
    return f"> {write_bounds(objective).removeprefix('<= ')}"


def _nested(
    section: Mapping[str, object], written: dict[Path, Path], problems: list[Problem]
) -> dict[str, object]:
    """Return the section in the form of an ``slo`` section. :param written: is filled: path of a bound there → its path here."""
    nested: dict[str, object] = {}
    for key, value in section.items():
        metric, _, statistic = str(key).partition(".")
        if metric == "loss":
            remedy = (
                f"write {LATENCY}.p99: 5s; a message that never arrives breaks any bound on latency"
            )
            problems.append(Problem((key,), LOSS, remedy, at_key=True))
        elif metric not in (LATENCY, *COUNTS) or (statistic and metric != LATENCY):
            problems.append(
                Problem((key,), f"{key!r} does not end a run", nearest(key, _KEYS), at_key=True)
            )
        elif metric in nested and not (
            isinstance(nested[metric], dict) and (statistic or isinstance(value, Mapping))
        ):
            problems.append(Problem((key,), f"{metric} is bounded twice", "remove one"))
        elif statistic or isinstance(value, Mapping):
            at: dict[object, object] = nested.setdefault(metric, {})  # type: ignore[assignment]
            sides: Mapping[object, object] = (
                {statistic: value} if statistic or not isinstance(value, Mapping) else value
            )
            problems += (
                Problem((key,), f"{metric}.{one} is bounded twice", "remove one")
                for one in sides
                if one in at
            )
            at.update(sides)
            written |= {(metric, statistic): (key,)} if statistic else {}
        else:
            nested[metric] = value
    return nested


def _unfit(objective: Objective) -> list[Problem]:
    """Return why a valid objective cannot end a run, by paths inside its bound; nothing if it can."""
    if objective.minimum is not None or objective.maximum is None:
        return [Problem((), "only an upper bound ends a run", "write the bound alone")]
    if objective.metric == LATENCY and objective.percentile is None:
        message = (
            f"{objective.statistic} cannot end a run: it depends on single messages, or hides them"
        )
        return [Problem((), message, f"write {LATENCY}.p99: {format_duration(objective.maximum)}")]
    if objective.metric == LATENCY and objective.maximum > LONGEST:
        longest = format_duration(LONGEST)
        return [Problem((), f"workers keep counts of {longest} only", f"write {longest} or less")]
    return []


def _hold(value: object, has_latency: bool, problems: list[Problem]) -> int:
    """Read ``for``, ns."""
    try:
        hold = parse_duration(str(value))
    except ValueError:
        problems.append(Problem(("for",), f"{value!r} is not a duration", "write 30s"))
        return _DEFAULT
    if not has_latency:
        problems.append(
            Problem(("for",), "applies to latencies only: a count never falls again", "remove it")
        )
    elif hold % SECOND or not SECOND <= hold <= LONGEST:
        message = f"{value} is not a whole number of seconds from 1s to {format_duration(LONGEST)}"
        problems.append(Problem(("for",), message, "write 30s"))
    return hold


def lost_seconds(due: Sequence[int], timely: Sequence[int], percentile: float) -> int:
    """Count the seconds in a row, up to the last one, in which a percentile was beyond its bound. A second without deliveries ends the row.

    The percentile is the nearest rank over all due deliveries; one that has not arrived within the
    bound counts as later than it.

    :param due: deliveries intended in each second.
    :param timely: the copies of these that arrived within the bound. A second copy counts as a
        first one, so the true number of seconds may be higher, never lower.
    """
    for count, (n, came) in enumerate(zip(reversed(due), reversed(timely), strict=True)):
        if not n or came >= rank(percentile, n):
            return count
    return len(due)


def describe_count(objective: Objective, count: int, planned: int, *, at_most: bool = False) -> str:
    """Describe a count beyond its bound: ``failed 1 234 > 1 % of the 100 000 messages planned``.

    :param at_most: ``planned`` is the most messages that there can be.
    """
    messages = f"at most {exact(planned)} messages" if at_most else f"the {exact(planned)} messages"
    of = f" of {messages} planned" if objective.unit == "ratio" else ""
    return f"{objective.name} {exact(count)} {_beyond(objective)}{of}"


def describe_latency(objective: Objective, hold: int, first: int, due: int, timely: int) -> str:
    """Describe a latency: ``endToEndLatency.p99 > 5.00 s in each of the 30 s from second 12 on: 3 of 30 000 deliveries took no longer``."""
    held = f"in each of the {hold} s from second {first} on"
    return f"{objective.name} {_beyond(objective)} {held}: {exact(timely)} of {exact(due)} deliveries took no longer"


def evaluate_aborted(
    objectives: Sequence[Objective],
    measurements: Measurements,
    limits: EvidenceLimits,
    lost: Aborted,
) -> Verdict:
    """Judge a run that was ended because it was lost: *missed*, with the reason, whatever its measured part shows.

    A run in which nothing was received, or which the generator's own pauses spoiled, is judged as
    any other.
    """
    verdict = evaluate_ended(objectives, measurements, limits, "")
    return replace(verdict, reasons=(lost.reason, *verdict.reasons))
