"""Objectives, and the ``slo:`` section of a profile that has them: bounds on metrics.

::

    slo:
      throughput: 99%       # a lower bound: a share of the rate offered, or 5000/s
      sent: 99%             # a lower bound: of the messages offered, those sent in time
      connectRate: 95%      # a lower bound, the last one: of the connections, those up in time
      endToEndLatency: {p50: 20ms, p99: 100ms, max: 2s}
      publishLatency: {p99: {min: 1ms, max: 50ms}}
      broadcastCompletion: {p99: 2s}    # until the last of 64 subscriptions or more has the message
      silent: 0             # subscriptions and streams of topics on which nothing arrived
      loss: 0               # a number of messages, or a share of the deliveries expected
      duplicates: 0.01%
      buckets:              # by their keys in messageSizeDistribution
        "1048576-5242880": {endToEndLatency: {p99: 2s}, loss: 0}
      lateness: {p99: 1.5s} # of delayed messages, received − due; earliness bounds the other side
      delayedIndexBytesPerMessage: 2.5    # as the broker reports its index of delayed messages
      backlogDrain: 2min    # the longest time to drain the backlog that the profile builds
      regression: {endToEndLatency.p99: 10%}    # how much worse than the baseline it may be
      window: 10s           # latencies and throughput hold in each 10 s: see verdict.windowed

The rule: the objectives in :data:`IMPLICIT` apply where the section does not bound the same side of
the same metric, so that a run which did not apply its load never passes. An absolute throughput
leaves the implicit share in force.

A profile's reader calls :meth:`Slo.read` once, when tests are collected, in every process. The
plan, the verdict and a later comparison share its objectives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Self

from pytest_loadtest.errors import Invalid, Path, Problem, did_you_mean, invalid
from pytest_loadtest.values.records import record
from pytest_loadtest.verdict.custom import read_custom
from pytest_loadtest.verdict.grammar import (
    BUCKET_METRICS,
    CONNECT_RATE,
    FLOORS,
    LATENCIES,
    METRICS,
    OUTPUT_SHARE,
    REGRESSION,
    nearest,
    read_bound,
    read_sides,
    read_statistic,
    regression_bounds,
)
from pytest_loadtest.verdict.windowed import KEYS, WINDOWED, WindowTerms, read_drift, read_windows


@record
class Objective:
    """A bound on one side or both of one metric.

    :param metric: one of :data:`METRICS`, ``custom`` or ``regression``.
    :param statistic: ``p99.9``, ``max``, ``mean`` or ``min`` of a latency; the name of a custom
        metric; the figure of a regression; otherwise empty.
    :param minimum: in ``unit``, inclusive.
    :param maximum: in ``unit``, inclusive.
    :param unit: ``ns``, ``msg/s``, ``ratio`` (0 to 1), ``messages``, ``B``, or ``number`` for a
        custom metric without unit.
    :param implicit: it applies because the profile does not bound the metric.
    :param bucket: the size bucket that it applies to, by its key in the profile; empty for all
        messages.
    :param section: the part of the section that has it, ``whole`` or ``drift``; otherwise empty.
        The bounds of a drift are the shares by which the last tenth may be below (0 or less) and
        above the first.
    :param window: ns: it must hold in each window of that length, except in a share ``violations``
        of them; None: in the whole run.
    :param tolerances: for a bound on ``max``: the profile's own bounds on messages that never came
        (:mod:`pytest_loadtest.verdict.tolerance`).
    """

    metric: str
    statistic: str = ""
    minimum: float | None
    maximum: float | None
    unit: str
    implicit: bool = False
    bucket: str = ""
    section: str = ""
    window: int | None = None
    violations: float = 0.0
    tolerances: tuple[Objective, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """The path in the section: ``endToEndLatency.p99``, ``buckets.0-256.loss``."""
        name = f"{self.metric}.{self.statistic}" if self.statistic else self.metric
        if self.bucket:
            name = f"buckets.{self.bucket}.{name}"
        if self.section:
            name = f"{self.section}.{name}"
        return name

    @property
    def key(self) -> str:
        """The top-level key of the section that has it."""
        if self.section:
            return self.section
        return "buckets" if self.bucket else self.metric

    @property
    def percentile(self) -> float | None:
        """99.9 for ``p99.9``; None for other statistics, and metrics other than latencies."""
        if self.metric == "custom" or not self.statistic.startswith("p"):
            return None
        return float(self.statistic[1:])


PARTS = ("buckets", "custom", REGRESSION)
"""Keys of the section that are not metrics."""
_STATISTIC = re.compile(r"p[\d.]+|max|mean|min")


IMPLICIT = (
    Objective(metric="loss", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="corrupt", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="dropped", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="sent", minimum=0.99, maximum=None, unit="ratio", implicit=True),
    # A client takes messages until its window is full, so all may be "sent" in time: only
    # deliveries show that the target was too slow.
    Objective(metric="throughput", minimum=0.95, maximum=None, unit="ratio", implicit=True),
    Objective(metric="failed", minimum=None, maximum=0.01, unit="ratio", implicit=True),
    # One dead topic of 200 is half a percent of the messages: within every share above.
    Objective(metric="silent", minimum=None, maximum=0, unit="messages", implicit=True),
)

UNKNOWN_OF_CHOICE: Final = ("loss", "throughput")
"""Metrics of what was due, which is unknown where a service chooses which messages have an output.
"""

NEVER = tuple(objective.metric for objective in IMPLICIT if objective.maximum == 0)
"""Metrics that must be 0 unless the profile allows more."""

NO_FOREIGN = Objective(metric="foreign", minimum=None, maximum=0, unit="messages", implicit=True)
"""The implicit objective of a workload on topics of its own, where only the run publishes."""

EXACTLY_ONCE = Objective(
    metric="duplicates", minimum=None, maximum=0, unit="messages", implicit=True
)
"""The implicit objective where the protocol promises to deliver exactly once."""

AT_RATE = Objective(metric=CONNECT_RATE, minimum=0.95, maximum=None, unit="ratio", implicit=True)
"""The implicit objective of a workload whose connections are opened at a rate."""


def not_early(allowed: int) -> Objective:
    """Return the implicit objective of delayed messages.

    :param allowed: ns that they may come before they are due.
    """
    return Objective(
        metric="earliness", statistic="max", minimum=None, maximum=allowed, unit="ns", implicit=True
    )


def chosen_share(share: float, within: float) -> Objective:
    """Return the implicit objective of a service that chooses which messages have an output.

    :param share: of the messages. :param within: how far it may be off.
    """
    return Objective(
        metric=OUTPUT_SHARE,
        minimum=max(share - within, 0.0),
        maximum=min(share + within, 1.0),
        unit="ratio",
        implicit=True,
    )


def drained_within(timeout: int) -> Objective:
    """Return the implicit objective of a workload that builds a backlog. :param timeout: ns."""
    return Objective(metric="backlogDrain", minimum=None, maximum=timeout, unit="ns", implicit=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Slo(Mapping[str, object]):
    """An ``slo`` section: the mapping as it is written, and what it was parsed to.

    :param written: the section.
    :param base: the section whose keys this one replaces, for ``scaled.slo``; otherwise empty.
    :param objectives: its bounds, with those of ``base`` that it keeps, in the order of the
        section; none on regression.
    :param gates: the bounds on regression: ``maximum`` is the share by which a figure may be worse
        than the baseline.
    :param window: ns, in which the latencies and the throughput hold; None: in the whole run.
    :param problems: everything wrong with the section, by paths inside it; empty in a valid
        profile.
    """

    written: Mapping[str, object] = field(default_factory=dict)
    base: Mapping[str, object] = field(default_factory=dict)
    objectives: tuple[Objective, ...] = ()
    gates: tuple[Objective, ...] = ()
    window: int | None = None
    problems: tuple[Problem, ...] = ()

    @classmethod
    def read(
        cls, section: Mapping[str, object], base: Mapping[str, object] = MappingProxyType({})
    ) -> Self:
        """Parse a section. Never raises.

        :param base: a section whose keys this one replaces; its own problems are left out.
        """
        merged = {**base, **section}
        problems: list[Problem] = []
        terms = read_windows(merged, problems)
        objectives = [
            _in_windows(objective, terms) for objective in _part(merged, (*PARTS, *KEYS), problems)
        ]
        if "whole" in merged and "window" in merged:
            objectives += _whole(merged["whole"], problems)
        if "drift" in merged:
            objectives += _drifts(merged["drift"], problems)
        if "custom" in merged:
            objectives += _customs(merged["custom"], problems)
        gates: list[Objective] = []
        if REGRESSION in merged:
            gates += _gates(merged[REGRESSION], problems)
        of_section = [
            problem for problem in problems if not problem.path or problem.path[0] in section
        ]
        return cls(
            written=section,
            base=dict(base),
            objectives=tuple(objectives),
            gates=tuple(gates),
            window=terms.window,
            problems=tuple(of_section),
        )

    def merged(self) -> Self:
        """Return the section together with the keys of ``base`` that it does not replace."""
        return replace(self, written={**self.base, **self.written}, base={})

    def completed(self, implicit: Iterable[Objective]) -> tuple[Objective, ...]:
        """Return the objectives, then the implicit ones that they do not override."""
        completed = list(self.objectives)
        for objective in implicit:
            if not any(_overrides(explicit, objective) for explicit in self.objectives):
                completed.append(_named_apart(self.objectives, objective))
        return tuple(completed)

    def __getitem__(self, key: str) -> object:
        return self.written[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.written)

    def __len__(self) -> int:
        return len(self.written)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.written)!r})"


def _part(
    section: Mapping[str, object], others: tuple[str, ...], problems: list[Problem]
) -> list[Objective]:
    """Read the metrics and buckets of a section, or of its part ``whole``.

    :param others: its other keys.
    """
    metrics = {key: value for key, value in section.items() if key not in others}
    objectives = _metrics(metrics, (*METRICS, *others), problems)
    if "buckets" in section:
        objectives += _buckets(section["buckets"], problems)
    return objectives


def _whole(section: object, problems: list[Problem]) -> list[Objective]:
    """Read the bounds on the whole run of a section that has windows."""
    if not isinstance(section, Mapping) or not section:
        remedy = "write, for example, {endToEndLatency: {p99: 80ms}}"
        problems.append(Problem(("whole",), "has no objective", remedy))
        return []
    faults = []
    metrics = {}
    for key, value in section.items():
        if key in METRICS and key not in WINDOWED:
            message = f"{key!r} is judged over the whole run anyway"
            faults.append(Problem((key,), message, "write it next to window", at_key=True))
        else:
            metrics[key] = value
    objectives = _part(metrics, ("buckets",), faults)
    problems += (fault.below("whole") for fault in faults)
    return [replace(objective, section="whole") for objective in objectives]


def _drifts(section: object, problems: list[Problem]) -> Iterator[Objective]:
    """Yield the bounds on drift."""
    for metric, statistic, sides in read_drift(section, problems):
        yield Objective(
            metric=metric,
            statistic=statistic,
            minimum=sides.minimum,
            maximum=sides.maximum,
            unit=sides.unit,
            section="drift",
        )


def _customs(section: object, problems: list[Problem]) -> Iterator[Objective]:
    """Yield the bounds on custom metrics."""
    for bound in read_custom(section, problems):
        yield Objective(
            metric="custom",
            statistic=bound.name,
            minimum=bound.minimum,
            maximum=bound.maximum,
            unit=bound.unit,
        )


def _gates(section: object, problems: list[Problem]) -> Iterator[Objective]:
    """Yield the bounds on regression."""
    for figure, share in regression_bounds(section, problems):
        yield Objective(
            metric=REGRESSION, statistic=figure, minimum=None, maximum=share, unit="ratio"
        )


def _in_windows(objective: Objective, terms: WindowTerms) -> Objective:
    if terms.window is None or objective.metric not in WINDOWED or objective.bucket:
        return objective
    return replace(objective, window=terms.window, violations=terms.violations)


def _named_apart(objectives: Iterable[Objective], implicit: Objective) -> Objective:
    """Return an implicit objective, named ``whole.…`` if the section bounds its metric in windows.

    It applies to the whole run.
    """
    for objective in objectives:
        same = (objective.metric, objective.statistic) == (implicit.metric, implicit.statistic)
        if same and objective.window is not None:
            return replace(implicit, section="whole")
    return implicit


def _overrides(objective: Objective, implicit: Objective) -> bool:
    """Return whether an objective of the section bounds what the implicit objective bounds.

    An upper bound on throughput leaves the lower one, and an absolute rate leaves the share:
    ``throughput: 1/s`` must not pass where half of the messages are missing. A bound that some
    windows may miss overrides nothing: those could be much worse.
    """
    same = (objective.metric, objective.statistic) == (implicit.metric, implicit.statistic)
    if not same or objective.bucket or objective.section == "drift" or objective.violations:
        return False
    if objective.unit == "msg/s" and implicit.unit == "ratio":
        return False
    if implicit.minimum is not None:
        return objective.minimum is not None
    return objective.maximum is not None


def explicit(objectives: Iterable[Objective]) -> tuple[Objective, ...]:
    """Return the objectives that the profile names.

    Without any, ``assert_slo()`` has nothing to assert.
    """
    return tuple(objective for objective in objectives if not objective.implicit)


def _unknown_metric(key: str, keys: tuple[str, ...]) -> Problem:
    """Return the problem of a key that is not one of ``keys``; its remedy lists metrics only."""
    metrics = tuple(name for name in keys if name in METRICS)
    if _STATISTIC.fullmatch(str(key)):
        message = f"{key!r} is a statistic, not a metric"
        remedy = f"write endToEndLatency: {{{key}: 50ms}}"
    elif key in (*METRICS, *KEYS):
        message = f"{key} is judged for the whole run, not by bucket"
        remedy = nearest(key, metrics)
    else:
        message = f"{key!r} is not a metric"
        remedy = did_you_mean(str(key), keys, most=2, listed=0) or nearest(key, metrics)
    return Problem((key,), message, remedy, at_key=True)


def _metrics(
    section: Mapping[str, object], keys: tuple[str, ...], problems: list[Problem]
) -> list[Objective]:
    objectives = []
    for metric, value in section.items():
        if metric not in keys:
            problems.append(_unknown_metric(metric, keys))
        elif metric in LATENCIES:
            objectives += _latencies(metric, value, problems)
        else:
            objectives += _bounds(metric, "", value, (metric,), problems)
    return objectives


def _buckets(section: object, problems: list[Problem]) -> list[Objective]:
    if not isinstance(section, Mapping) or not section:
        remedy = 'write buckets: {"1048576-5242880": {endToEndLatency: {p99: 2s}}}'
        problems.append(Problem(("buckets",), "names no size bucket", remedy))
        return []
    objectives = []
    for key, metrics in section.items():
        if not isinstance(metrics, Mapping) or not metrics:
            remedy = "write, for example, {endToEndLatency: {p99: 2s}, loss: 0}"
            problems.append(Problem(("buckets", key), "has no objective", remedy))
            continue
        faults: list[Problem] = []
        for objective in _metrics(metrics, BUCKET_METRICS, faults):
            objectives.append(replace(objective, bucket=str(key)))
        problems += (fault.below("buckets", key) for fault in faults)
    return objectives


def _latencies(metric: str, value: object, problems: list[Problem]) -> list[Objective]:
    if not isinstance(value, Mapping) or not value:
        problems.append(_without_statistic(metric, value))
        return []
    objectives: list[Objective] = []
    for key, bound in value.items():
        try:
            statistic = read_statistic(key)
            if any(statistic == other.statistic for other in objectives):
                message = f"{key!r} is the same percentile as one before it"
                raise invalid(message, "remove one", at_key=True)
            if statistic == "min" and not isinstance(bound, Mapping):
                message = "a bound on the smallest latency can go either way"
                raise invalid(message, f"write min: {{min: {bound}}} or min: {{max: {bound}}}")
        except Invalid as error:
            problems.append(error.problem.below(metric, key))
        else:
            objectives += _bounds(metric, statistic, bound, (metric, key), problems)
    return objectives


def _without_statistic(metric: str, value: object) -> Problem:
    """Return the problem of a latency whose value is not a section of statistics."""
    message = f"{value!r} does not say which statistic it bounds"
    if isinstance(value, Mapping) or value is None:
        message = "has no statistic"
    bound = value if isinstance(value, str) else "100ms"
    return Problem((metric,), message, f"write {metric}: {{p99: {bound}}}")


def _bounds(
    metric: str, statistic: str, value: object, path: Path, problems: list[Problem]
) -> list[Objective]:
    alone = "min" if metric in FLOORS else "max"
    sides = read_sides(value, alone, partial(read_bound, metric), path, problems)
    if sides is None:
        return []
    # A bound alone is a maximum for the metrics that must be 0, so only a section can be without
    # one.
    if metric in NEVER and sides.maximum is None and isinstance(value, Mapping):
        message = "min without max: a count needs an upper bound"
        problems.append(Problem(path, message, f"write {{min: {value['min']}, max: …}}"))
        return []
    return [
        Objective(
            metric=metric,
            statistic=statistic,
            minimum=sides.minimum,
            maximum=sides.maximum,
            unit=sides.unit,
        )
    ]


# The objectives of a scaled run.


def scale_objectives(
    objectives: Iterable[Objective], rate: float, messages: float, written: Collection[str] = ()
) -> tuple[Objective, ...]:
    """Return the objectives of a scaled run.

    Absolute throughput and counts shrink with the load; shares and durations stay.

    :param rate: the run's rate / the profile's rate.
    :param messages: messages that the run plans / those that the profile plans.
    :param written: keys of ``scaled.slo`` (``loss``, ``buckets``): their objectives are for scaled
        runs, and stay as they are.
    """
    scaled = []
    for objective in objectives:
        if objective.key in written:
            scaled.append(objective)
        elif objective.unit == "msg/s":
            scaled.append(_scaled(objective, lambda bound: bound * rate))
        elif objective.unit == "messages":
            # Counts are rounded down, so that a tolerance never grows.
            scaled.append(_scaled(objective, lambda bound: math.floor(bound * messages + 1e-9)))
        else:
            scaled.append(objective)
    return tuple(scaled)


def _scaled(objective: Objective, scale: Callable[[float], float]) -> Objective:
    minimum = objective.minimum
    if minimum is not None:
        minimum = scale(minimum)
    maximum = objective.maximum
    if maximum is not None:
        maximum = scale(maximum)
    return replace(objective, minimum=minimum, maximum=maximum)
