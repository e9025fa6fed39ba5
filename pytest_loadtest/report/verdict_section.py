"""The sections of a results document that judge.

They are the verdict, the search for the highest rate, and the comparison with a baseline.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pytest_loadtest.values.fields import Count, Number, Positive
from pytest_loadtest.values.records import record
from pytest_loadtest.verdict.peak import Limit, Purpose
from pytest_loadtest.verdict.slo import Outcome


@record
class ShownSection:
    """Observed value and bound as text."""

    observed: str
    """for people; empty where it is unknown"""
    bound: str
    """for example <= 50.0 ms"""
    over: str
    """for example over by 66 %; empty where the bound holds"""


@record
class WindowEntry:
    """The result of one window."""

    start: Count
    """ns since the start of the measured phase"""
    end: Count
    """ns since the start of the measured phase"""
    observed: Number | None
    """in the objective's unit; null where it is unknown, or too many messages never came"""
    outcome: Outcome
    """of this window"""


@record
class WindowsSection:
    """The windows of an objective."""

    width: Positive
    """ns; the last window lasts until the end of the phase, and is less than twice as long"""
    violations: Annotated[Number, Field(json_schema_extra={"minimum": 0})]
    """share of the windows that may miss"""
    number: Positive
    """number of windows"""
    missed: Count
    """windows in which the objective did not hold"""
    generator_limited: Count
    """windows in which it would have held without the generator's own pauses"""
    no_data: Count
    """windows in which too little was measured"""
    listed: Annotated[tuple[WindowEntry, ...], Field(max_length=1000)]
    """the windows in the order of time; if there are more than 1000, the first 1000 that are not
    met"""


@record
class TenthsSection:
    """The first and the last tenth of the measured phase."""

    unit: Literal["ns", "ratio"]
    """of both; for throughput a share of what was offered"""
    first: Number | None
    """observed in the first tenth of the measured phase"""
    last: Number | None
    """observed in the last tenth; null where too many messages never came"""


@record
class FindingEntry:
    """The result of one objective."""

    name: str
    """its place in the slo section: endToEndLatency.p99, buckets.0-256.loss, whole.throughput,
    drift.endToEndLatency.p99"""
    metric: str
    """the metric that is bounded"""
    statistic: str | None
    """p99.9, max, mean or min of a latency, or the name of a custom metric; null for all other
    metrics"""
    bucket: str | None
    """size bucket by its key in the profile; null for the whole run"""
    unit: Annotated[
        str, Field(json_schema_extra={"enum": ["ns", "msg/s", "ratio", "messages", "number", "B"]})
    ]
    """of minimum, maximum and observed; a ratio is 0 to 1, for a drift the change as a share of the
    first tenth"""
    minimum: Number | None
    """inclusive lower bound"""
    maximum: Number | None
    """inclusive upper bound"""
    implicit: bool
    """the profile does not contain it; it applies to every run"""
    outcome: Outcome
    """of this objective alone"""
    observed: Number | None
    """with windows the worst one's value, for a drift the change; null where it is unknown, and for
    a percentile among messages that never came"""
    samples: Count | None
    """messages or deliveries that it rests on; null for a custom metric"""
    text: str
    """the finding in one line"""
    shown: ShownSection
    """observed and bound as text"""
    windows: WindowsSection | None = None
    """for an objective that holds in windows of the measured phase; null for others, and if there
    are none"""
    tenths: TenthsSection | None = None
    """for an objective on drift, where both tenths are known; null for others"""


@record
class VerdictSection:
    """The verdict on a run or a stage."""

    outcome: Outcome
    """for a run the worst of its own outcome and its stages'"""
    reasons: tuple[str, ...]
    """causes of no data, or evidence of generator-limited with the remedy last"""
    findings: tuple[FindingEntry, ...]
    """every objective of the whole run; those of a stage are in the stage"""


@record
class StepEntry:
    """One step of the search."""

    number: Positive
    """from 1"""
    rate: Number
    """offered"""
    duration: Count
    """ns, as planned"""
    warmup: Count
    """ns before it"""
    purpose: Purpose
    """why it was run"""
    outcome: Outcome
    """of the step"""
    broke: tuple[str, ...]
    """objectives that did not hold, the first to break in front"""
    text: str
    """the reason in one line"""
    early: bool
    """ended as soon as an objective could no longer be met"""
    throughput: Number | None
    """delivered msg/s; null where it was not measured"""


@record
class PeakSection:
    """The result of the search for the highest rate."""

    rate: Number | None
    """highest rate at which every objective held; null if there was none"""
    low: Number | None
    """lower end of the interval, equal to rate"""
    high: Number | None
    """lowest rate above it that the target missed; null if no step showed one"""
    unit: Literal["msg/s", "B/s"]
    """of rate, low, high and the rates of steps"""
    limit: Limit
    """what kept the rate from being higher; maximum is search.max, none: no rate held"""
    at_least: bool
    """the target may be capable of more: the generator or the maximum was the limit"""
    confirmed: bool
    """the rate held for the longer time of search.confirm, too"""
    broke_first: str | None
    """objective that broke at the lowest rate missed; null where none was missed"""
    implicit_only: bool = False
    """the profile has no objectives: the rate is the one at which the implicit ones hold, whatever
    the latency"""
    steps: tuple[StepEntry, ...]
    """in the order in which they ran"""


@record
class BaselineSection:
    """The run that this run was compared with."""

    test: str
    """node id"""
    results: str
    """its folder"""
    started: str | None
    """wall clock, ISO 8601"""
    outcome: Outcome
    """of the baseline itself"""
    histogram: str | None
    """as in latencies.endToEnd"""


@record
class DifferenceEntry:
    """One fact that differs between the two runs."""

    name: str
    """for example machine.cores"""
    baseline: str
    """as text"""
    now: str
    """as text"""
    decides: bool
    """it makes the two incomparable"""


@record
class BlocksSection:
    """The blocks of the two runs that the intervals are computed from."""

    length: int
    """ns"""
    baseline: int
    """blocks of the baseline"""
    now: int
    """blocks of this run"""
    level: Number
    """level of confidence"""


@record
class FigureEntry:
    """One figure of both runs."""

    name: str
    """metric and statistic"""
    unit: Annotated[
        str,
        Field(
            json_schema_extra={
                "enum": ["ns", "msg/s", "B/s", "ratio", "messages", "B", "number", "cores"]
            }
        ),
    ]
    """of both values"""
    better: Literal["more", "less"]
    """which direction is an improvement"""
    baseline: Number | None
    """value of the baseline"""
    now: Number | None
    """value of this run"""
    change: Number | None
    """relative to the baseline: 0.1 is 10 % more"""
    low: Number | None
    """lower end of the interval of the change"""
    high: Number | None
    """upper end of the interval of the change"""
    outcome: Outcome | None
    """of a bound on regression; null where there is none"""


@record
class ComparisonSection:
    """The run compared with its baseline."""

    baseline: BaselineSection | None
    """the run that it was compared with; null if there was none"""
    comparable: bool
    """nothing that decides differs, and both runs have an outcome of their own"""
    forced: bool
    """judged although the two are not comparable (--load-baseline-force)"""
    best: tuple[str, ...] = ()
    """folders of the earlier runs that were met and are the best by a figure that slo.regression
    bounds; the run is compared with them too"""
    differences: tuple[DifferenceEntry, ...]
    """what differs, as text; what decides makes the two incomparable"""
    blocks: BlocksSection | None
    """blocks that the intervals are computed from; null where noise is unknown"""
    rows: tuple[FigureEntry, ...]
    """figures side by side"""
    notes: tuple[str, ...]
    """why there is no baseline, or why one of the two runs has no valid outcome"""
