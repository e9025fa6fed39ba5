"""The ``abort:`` section of a profile, and the arithmetic that decides when a run is lost.

::

    abort:
      endToEndLatency.p99: 5s   # more than 1 % of the deliveries took longer, or have not arrived,
      for: 30s                  # in each of so many seconds
      failed: 1%                # of all messages planned for the phase; or a number of messages
      dropped: 1000

The rule (decision 022): a run is lost if a latency is beyond its bound in each of so many seconds,
or a count beyond its own at any time. A lost run is *missed*, whatever its measured part shows.

Profiles read the section when tests are collected. While load runs, the watches of
:mod:`pytest_loadtest.fleet.watches` count and describe, in the controller's process and under the
rendezvous' lock. The run is judged in the controller's thread that answers the last meeting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from pytest_loadtest.errors import Path, Problem
from pytest_loadtest.metrics.histogram import rank
from pytest_loadtest.values.quantities import HOUR, SECOND, format_duration, parse_duration
from pytest_loadtest.values.records import record
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.early import evaluate_ended
from pytest_loadtest.verdict.finding import write_bounds
from pytest_loadtest.verdict.grammar import nearest
from pytest_loadtest.verdict.objectives import Objective, Slo

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.schedule.changes import Aborted
    from pytest_loadtest.verdict.slo import EvidenceLimits, Verdict

LATENCY: Final = "endToEndLatency"
COUNTS: Final = ("failed", "dropped")
LOSS: Final = "loss cannot end a run: messages under way may arrive until the drain ends"
_KEYS: Final = (f"{LATENCY}.p99", *COUNTS, "for")
_DEFAULT: Final = 30 * SECOND
LONGEST: Final = HOUR
"""ns, of ``for`` and of a latency: workers keep counts of so many seconds."""


@record
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
        paths: dict[Path, Path] = {}
        conditions = {key: value for key, value in section.items() if key != "for"}
        nested = _nested(conditions, paths, problems)
        slo = Slo.read(nested)
        for problem in slo.problems:
            problems.append(replace(problem, path=paths.get(problem.path, problem.path)))
        if not slo.problems:
            for objective in slo.objectives:
                problems += _unfit(objective, paths)
        latencies = tuple(bound for bound in slo.objectives if bound.metric == LATENCY)
        counts = tuple(bound for bound in slo.objectives if bound.metric in COUNTS)
        hold = _DEFAULT
        if "for" in section:
            has_latency = bool(latencies) or LATENCY in nested
            hold = _hold(section["for"], has_latency, problems)
        if not nested and not problems:
            remedy = f"write {LATENCY}.p99: 5s, for: 30s"
            message = "has no condition that ends the run"
            problems.append(Problem((), message, remedy, at_key=True))
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
        return max((int(bound.maximum or 0) for bound in self.latencies), default=0)

    def lines(self) -> list[str]:
        """Describe what ends the run, and why loss cannot."""
        lines = []
        for bound in self.latencies:
            lines.append(f"{bound.name} {_beyond(bound)} in every second of {self.hold} s")
        for bound in self.counts:
            base = " of the messages planned" if bound.unit == "ratio" else ""
            lines.append(f"{bound.name} {_beyond(bound)}{base}")
        return [*lines, LOSS]


def _beyond(objective: Objective) -> str:
    return f"> {write_bounds(objective).removeprefix('<= ')}"


def _nested(
    section: Mapping[str, object], paths: dict[Path, Path], problems: list[Problem]
) -> dict[str, object]:
    """Return the section in the form of an ``slo`` section: statistics below their metric.

    :param paths: the path of each moved bound in that form → its path in this section is added to
        it.
    """
    nested: dict[str, object] = {}
    for key, value in section.items():
        metric, _, statistic = str(key).partition(".")
        if metric == "loss":
            consequence = "a message that never arrives breaks any bound on latency"
            remedy = f"write {LATENCY}.p99: 5s; {consequence}"
            problems.append(Problem((key,), LOSS, remedy, at_key=True))
        elif metric not in (LATENCY, *COUNTS) or (statistic and metric != LATENCY):
            message = f"{key!r} does not end a run"
            problems.append(Problem((key,), message, nearest(key, _KEYS), at_key=True))
        elif statistic:
            if _add(metric, {statistic: value}, key, nested, problems):
                paths[metric, statistic] = (key,)
        elif isinstance(value, Mapping):
            _add(metric, value, key, nested, problems)
        elif metric in nested:
            problems.append(Problem((key,), f"{metric} is bounded twice", "remove one"))
        else:
            nested[metric] = value
    return nested


def _add(
    metric: str,
    bounds: Mapping[str, object],
    key: str,
    nested: dict[str, object],
    problems: list[Problem],
) -> bool:
    """Add bounds to those of a metric. Return whether that is possible.

    :param bounds: statistic (of a count: side) → bound. :param key: their place in the section.
    """
    same = nested.setdefault(metric, {})
    if not isinstance(same, dict):
        problems.append(Problem((key,), f"{metric} is bounded twice", "remove one"))
        return False
    for statistic in bounds:
        if statistic in same:
            message = f"{metric}.{statistic} is bounded twice"
            problems.append(Problem((key,), message, "remove one"))
    same.update(bounds)
    return True


def _unfit(objective: Objective, paths: Mapping[Path, Path]) -> Iterator[Problem]:
    """Yield why a valid objective cannot end a run. :param paths: see :func:`_nested`."""
    path: Path = (objective.metric,)
    if objective.statistic:
        path = (objective.metric, objective.statistic)
    path = paths.get(path, path)
    if objective.minimum is not None or objective.maximum is None:
        yield Problem(path, "only an upper bound ends a run", "write the bound alone")
    elif objective.metric != LATENCY:
        return
    elif objective.percentile is None:
        cause = "it depends on single messages, or hides them"
        remedy = f"write {LATENCY}.p99: {format_duration(objective.maximum)}"
        yield Problem(path, f"{objective.statistic} cannot end a run: {cause}", remedy)
    elif objective.maximum > LONGEST:
        longest = format_duration(LONGEST)
        yield Problem(path, f"workers keep counts of {longest} only", f"write {longest} or less")


def _hold(value: object, has_latency: bool, problems: list[Problem]) -> int:
    """Read ``for``, ns."""
    try:
        hold = parse_duration(str(value))
    except ValueError:
        problems.append(Problem(("for",), f"{value!r} is not a duration", "write 30s"))
        return _DEFAULT
    if not has_latency:
        message = "applies to latencies only: a count never falls again"
        problems.append(Problem(("for",), message, "remove it"))
    elif hold % SECOND or not SECOND <= hold <= LONGEST:
        message = f"{value} is not a whole number of seconds from 1s to {format_duration(LONGEST)}"
        problems.append(Problem(("for",), message, "write 30s"))
    return hold


def lost_seconds(due: Sequence[int], timely: Sequence[int], percentile: float) -> int:
    """Count the seconds in a row, up to the last one, in which a percentile was beyond its bound.

    A second without deliveries ends the row. The percentile is the nearest rank over all due
    deliveries; one that has not arrived within the bound counts as later than it.

    :param due: deliveries intended in each second.
    :param timely: the copies of these that arrived within the bound. A second copy counts as a
        first one, so the true number of seconds may be higher, never lower.
    """
    latest_first = zip(reversed(due), reversed(timely), strict=True)
    for seconds, (deliveries, in_time) in enumerate(latest_first):
        if not deliveries or in_time >= rank(percentile, deliveries):
            return seconds
    return len(due)


def describe_count(objective: Objective, count: int, planned: int, *, at_most: bool = False) -> str:
    """Describe a count beyond its bound: ``failed 1 234 > 1 % of the 100 000 messages planned``.

    :param at_most: ``planned`` is the most messages that there can be.
    """
    base = ""
    if objective.unit == "ratio":
        bounded = "at most" if at_most else "the"
        base = f" of {bounded} {exact(planned)} messages planned"
    return f"{objective.name} {exact(count)} {_beyond(objective)}{base}"


def describe_latency(objective: Objective, hold: int, first: int, due: int, timely: int) -> str:
    """Describe a latency that was beyond its bound in each second of ``hold``.

    ``endToEndLatency.p99 > 5.00 s in each of the 30 s from second 12 on: 3 of 30 000 deliveries
    took no longer``.
    """
    period = f"in each of the {hold} s from second {first} on"
    share = f"{exact(timely)} of {exact(due)} deliveries"
    return f"{objective.name} {_beyond(objective)} {period}: {share} took no longer"


def evaluate_aborted(
    objectives: Sequence[Objective],
    measurements: Measurements,
    limits: EvidenceLimits,
    lost: Aborted,
) -> Verdict:
    """Judge a run that was ended because it was lost: *missed*, with the reason.

    A run in which nothing was received, or which the generator's own pauses spoiled, is judged as
    any other.
    """
    verdict = evaluate_ended(objectives, measurements, limits, "")
    return replace(verdict, reasons=(lost.reason, *verdict.reasons))
