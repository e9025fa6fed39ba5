"""The grammar of a profile's ``slo:`` section: one bound per metric, each with its own direction.

::

    slo:
      throughput: 99%                 # of the rate offered; or 5000/s. A lower bound, as is `sent`; all others are upper bounds
      sent: 99%                       # of the messages offered, handed over before the measured phase ended
      endToEndLatency: {p50: 20ms, p99: 100ms, max: 2s}
      publishLatency: {p99: {min: 1ms, max: 50ms}}
      broadcastCompletion: {p99: 2s}  # of a message to 64 subscriptions or more, until the last one has it
      connectRate: 95%                # of the connections, up in time at driver.connectRate
      silent: 0                       # topics of which a subscription got nothing, and streams of which nothing arrived
      loss: 0                         # a number of messages, or a share of the deliveries expected
      duplicates: 0.01%
      buckets: {"1048576-5242880": {endToEndLatency: {p99: 2s}, loss: 0}}     # by their keys in messageSizeDistribution
      lateness: {p99: 1.5s}           # of delayed messages, received − due; earliness: {max: 1s} bounds the other side
      delayedIndexBytesPerMessage: 2.5    # what the broker says of its index of delayed messages
      backlogDrain: 2min              # where the profile builds a backlog: how long it may take to drain
      regression: {endToEndLatency.p99: 10%}    # beside a baseline: how much worse it may be
      window: 10s                     # the latencies and the throughput hold in each of these; see pytest_loadtest.verdict.windowed

What is in :data:`IMPLICIT` holds where the section does not bound the same side of the same metric, so that no run passes that did not
do what it was asked to do. An absolute throughput leaves the implicit share in force.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.verdict import custom, grammar
from pytest_loadtest.verdict.grammar import (
    BUCKET_METRICS,
    CONNECT_RATE,
    FLOORS,
    LATENCIES,
    METRICS,
    REGRESSION,
    Path,
    Problems,
    WrongBound,
    nearest,
    read_bound,
    read_sides,
    read_statistic,
)
from pytest_loadtest.verdict.windowed import KEYS, WINDOWED, WindowTerms, read_drift, read_held

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One bound, or two, on one metric.

    :param metric: one of :data:`METRICS`, ``custom`` or ``regression``.
    :param statistic: of a latency: ``p99.9``, ``max``, ``mean``, ``min``; of a custom metric its name; of a regression the figure that may
        be worse by so much; otherwise empty.
    :param minimum: in ``unit``, inclusive. :param maximum: in ``unit``, inclusive.
    :param unit: ``ns``, ``msg/s``, ``ratio`` (0 to 1), ``messages``, ``B``, or the ``number`` that a custom metric is.
    :param implicit: holds because the profile says nothing else.
    :param bucket: the size bucket that it is about, by its key in the profile; empty for all messages.
    :param section: part of the section that it stands in: ``whole``, ``drift``; otherwise empty.
    :param window: ns: it holds in each stretch of that length, but in a share ``violations`` of them; None: in the whole run.
        The bounds of a drift are what the last tenth may be below (at most 0) and above the first, as shares of it.
    :param tolerances: of a bound on ``max``: the profile's own bounds on what may never come (:mod:`pytest_loadtest.verdict.tolerance`).
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
        """Its place in the section: ``endToEndLatency.p99``, ``loss``, ``buckets.0-256.loss``, ``whole.throughput``."""
        own = f"{self.metric}.{self.statistic}" if self.statistic else self.metric
        own = f"buckets.{self.bucket}.{own}" if self.bucket else own
        return f"{self.section}.{own}" if self.section else own

    @property
    def key(self) -> str:
        """The key of the section that it stands under."""
        return self.section or ("buckets" if self.bucket else self.metric)

    @property
    def percentile(self) -> float | None:
        """99.9 for ``p99.9``; None for ``max``, ``mean``, ``min`` and all that is no latency."""
        return float(self.statistic[1:]) if self.statistic.startswith("p") and self.metric != "custom" else None


PARTS = ("buckets", "custom", REGRESSION)
"""Keys of the section that are no metrics."""


class ObjectiveErrors(ValueError):
    """An ``slo`` section has values that make no sense.

    :param problems: all of them, each with its path inside the section, what is wrong, and what to write instead.
    """

    def __init__(self, problems: Problems) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(
            f"{'.'.join(map(str, path)) or 'slo'}: {message}" + (f" ({hint})" if hint else "") for path, message, hint in self.problems
        )


IMPLICIT = (
    Objective(metric="loss", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="corrupt", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="dropped", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="sent", minimum=0.99, maximum=None, unit="ratio", implicit=True),
    # a client takes messages until its window is full, so all may be "sent" in time; only deliveries show that the target was too slow
    Objective(metric="throughput", minimum=0.95, maximum=None, unit="ratio", implicit=True),
    Objective(metric="failed", minimum=None, maximum=0.01, unit="ratio", implicit=True),
    # one dead topic of 200 is half a percent of the messages: within every share above
    Objective(metric="silent", minimum=None, maximum=0, unit="messages", implicit=True),
)

NEVER = tuple(objective.metric for objective in IMPLICIT if objective.maximum == 0)
"""Metrics of what must not be."""

NO_FOREIGN = Objective(metric="foreign", minimum=None, maximum=0, unit="messages", implicit=True)
"""The implicit objective of a workload on topics of its own: only the run itself publishes into them."""

EXACTLY_ONCE = Objective(metric="duplicates", minimum=None, maximum=0, unit="messages", implicit=True)
"""The implicit objective where the protocol promises to deliver exactly once."""

AT_RATE = Objective(metric=CONNECT_RATE, minimum=0.95, maximum=None, unit="ratio", implicit=True)
"""The implicit objective of a workload whose connections are opened at a rate."""


def not_early(allowed: int) -> Objective:
    """The implicit objective of delayed messages. :param allowed: ns before they are due."""
    return Objective(metric="earliness", statistic="max", minimum=None, maximum=allowed, unit="ns", implicit=True)


def drained_within(timeout: int) -> Objective:
    """The implicit objective of a workload that builds a backlog. :param timeout: ns."""
    return Objective(metric="backlogDrain", minimum=None, maximum=timeout, unit="ns", implicit=True)


def parse(
    section: Mapping[str, object], buckets: Collection[str] | None = None, implicit: Sequence[Objective] = IMPLICIT
) -> tuple[Objective, ...]:
    """The objectives of a section in its own order, then the implicit ones that it does not override. An empty section is allowed.

    :param buckets: keys of the profile's ``messageSizeDistribution``, which the section's ``buckets`` may name; None allows any.
    :param implicit: each holds unless the section bounds the same side of the same metric.
    :raises ObjectiveErrors: with everything that is wrong.
    """
    problems: Problems = []
    held = read_held(section, problems)
    found = [_in_windows(one, held) for one in _part(section, buckets, (*PARTS, *KEYS), problems)]
    if "whole" in section and "window" in section:
        wrong: Problems = []
        found += (replace(one, section="whole") for one in _whole(section["whole"], buckets, wrong))
        problems += ((("whole", *path), message, hint) for path, message, hint in wrong)
    for metric, statistic, (low, high, unit) in read_drift(section["drift"], problems) if "drift" in section else ():
        found.append(Objective(metric=metric, statistic=statistic, minimum=low, maximum=high, unit=unit, section="drift"))
    for name, low, high, unit in custom.bounds(section["custom"], problems) if "custom" in section else ():
        found.append(Objective(metric="custom", statistic=name, minimum=low, maximum=high, unit=unit))
    list(grammar.regression_bounds(section[REGRESSION], problems) if REGRESSION in section else ())  # read by changes.gates()
    if problems:
        raise ObjectiveErrors(problems)
    left = (objective for objective in implicit if not any(_overrides(one, objective) for one in found))
    return (*found, *(_beside(found, objective) for objective in left))


def _part(
    section: Mapping[str, object], buckets: Collection[str] | None, beside: tuple[str, ...], problems: Problems
) -> list[Objective]:  # fmt: skip
    """The bounds of a section, or of its part ``whole``. :param beside: what else may stand in it."""
    found = _metrics({metric: value for metric, value in section.items() if metric not in beside}, (*METRICS, *beside), problems)
    return found + (_buckets(section["buckets"], buckets, problems) if "buckets" in section else [])


def _whole(section: object, buckets: Collection[str] | None, problems: Problems) -> list[Objective]:
    """What a section asks of the whole run, beside its windows."""
    if not isinstance(section, Mapping) or not section:
        problems.append(((), "has no objective", "write, for example, {endToEndLatency: {p99: 80ms}}"))
        return []
    for metric in section:
        if metric in METRICS and metric not in WINDOWED:
            problems.append(((metric,), f"{metric!r} is of the whole run anyway", "write it beside window"))
    return _part({key: value for key, value in section.items() if key in WINDOWED or key not in METRICS}, buckets, ("buckets",), problems)


def _in_windows(objective: Objective, held: WindowTerms) -> Objective:
    if held.window is None or objective.metric not in WINDOWED or objective.bucket:
        return objective
    return replace(objective, window=held.window, violations=held.violations)


def _beside(found: Iterable[Objective], implicit: Objective) -> Objective:
    """An implicit objective, which is of the whole run, named so where the section bounds the same in windows."""
    same = (one for one in found if one.window is not None and (one.metric, one.statistic) == (implicit.metric, implicit.statistic))
    return replace(implicit, section="whole") if any(same) else implicit


def _overrides(given: Objective, implicit: Objective) -> bool:
    """Return whether the section bounds what the implicit objective bounds.

    An upper bound on throughput leaves the lower one, and an absolute rate leaves the share: ``throughput: 1/s`` must not pass where half
    of the messages are missing. A bound that some windows may miss overrides nothing: those could be much worse.
    """
    same = given.metric == implicit.metric and given.statistic == implicit.statistic and not given.bucket
    if given.unit == "msg/s" and implicit.unit == "ratio":
        return False
    if not same or given.section == "drift" or given.violations:
        return False
    return given.minimum is not None if implicit.minimum is not None else given.maximum is not None


def explicit(objectives: Iterable[Objective]) -> tuple[Objective, ...]:
    """Those that the profile names: without any, ``assert_slo()`` has nothing to assert."""
    return tuple(objective for objective in objectives if not objective.implicit)


def _metrics(section: Mapping[str, object], known: tuple[str, ...], problems: Problems) -> list[Objective]:
    found: list[Objective] = []
    for metric, value in section.items():
        if metric not in known:
            whole = f"{metric} is judged for the whole run, not by bucket"
            problems.append(((metric,), whole if metric in (*METRICS, *KEYS) else f"{metric!r} is not a metric", nearest(metric, known)))
        elif metric in LATENCIES:
            found += _latencies(metric, value, problems)
        else:
            found += _bounds(metric, "", value, (metric,), problems)
    return found


def _buckets(section: object, known: Collection[str] | None, problems: Problems) -> list[Objective]:
    if not isinstance(section, Mapping) or not section:
        problems.append((("buckets",), "names no bucket", 'write buckets: {"1048576-5242880": {endToEndLatency: {p99: 2s}}}'))
        return []
    found: list[Objective] = []
    for key, metrics in section.items():
        wrong: Problems = []
        if known is not None and key not in known:
            hint = nearest(key, tuple(known)) if known else "without messageSizeDistribution there are none"
            wrong.append(((), f"{key!r} is not a size bucket of this profile", hint))
        elif not isinstance(metrics, Mapping) or not metrics:
            wrong.append(((), "has no objective", "write, for example, {endToEndLatency: {p99: 2s}, loss: 0}"))
        else:
            found += (replace(objective, bucket=str(key)) for objective in _metrics(metrics, BUCKET_METRICS, wrong))
        problems += ((("buckets", key, *path), message, hint) for path, message, hint in wrong)
    return found


def _latencies(metric: str, value: object, problems: Problems) -> list[Objective]:
    if not isinstance(value, Mapping) or not value:
        message = "has no statistic" if isinstance(value, Mapping) or value is None else f"{value!r} does not say which statistic it bounds"
        problems.append(((metric,), message, f"write {metric}: {{p99: {value if isinstance(value, str) else '100ms'}}}"))
        return []
    found: list[Objective] = []
    for key, bound in value.items():
        try:
            statistic = read_statistic(key)
            if any(statistic == other.statistic for other in found):
                raise WrongBound(f"{key!r} is the same percentile as one before it", "remove one")
            if statistic == "min" and not isinstance(bound, Mapping):
                raise WrongBound(
                    "a bound on the smallest latency can go either way", f"write min: {{min: {bound}}} or min: {{max: {bound}}}"
                )
        except WrongBound as wrong:
            problems.append(((metric, key), *wrong.args))
        else:
            found += _bounds(metric, statistic, bound, (metric, key), problems)
    return found


def _bounds(metric: str, statistic: str, value: object, path: Path, problems: Problems) -> list[Objective]:
    """One objective, or a problem noted."""
    sides = read_sides(value, "min" if metric in FLOORS else "max", partial(read_bound, metric), path, problems)
    if sides is None:
        return []
    if metric in NEVER and sides.maximum is None and isinstance(value, Mapping):  # by itself a bound there is a maximum
        hint = f"write {{min: {value['min']}, max: …}}"
        problems.append((path, "min without max: nothing would say how much is too much", hint))
        return []
    return [Objective(metric=metric, statistic=statistic, minimum=sides.minimum, maximum=sides.maximum, unit=sides.unit)]


# The objectives of a profile as they bound a scaled run.


def scale(objectives: Iterable[Objective], rate: float, messages: float, written: Collection[str] = ()) -> tuple[Objective, ...]:
    """The objectives of a scaled run: absolute throughput and counts shrink with the load, shares and durations stay.

    :param rate: of the run, by the profile's. :param messages: that the run plans, by those that the profile does.
    :param written: keys of the section (``loss``, ``buckets``) that were written for a scaled run: those stay too.
    """
    return tuple(objective if objective.key in written else _scaled(objective, rate, messages) for objective in objectives)


def _scaled(objective: Objective, rate: float, messages: float) -> Objective:
    """Counts are rounded down: a tolerance never grows by it."""
    if objective.unit == "msg/s":
        low, high = (bound and bound * rate for bound in (objective.minimum, objective.maximum))
    elif objective.unit == "messages":
        low, high = (bound and math.floor(bound * messages + 1e-9) for bound in (objective.minimum, objective.maximum))
    else:
        return objective
    return replace(objective, minimum=low, maximum=high)
