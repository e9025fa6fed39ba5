"""A run as a JSON document, version 4: everything that any report shows.

Nothing has to be computed again. Each object of the JSON text is one frozen dataclass; the text
below a field is its description in ``results.schema.json``. Times are ns, rates msg/s, sizes bytes;
None means "not measured" or "not applicable", never zero. Unknown keys are errors, so that a reader
can rely on ``version``. Fields with a default are missing in older results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, WithJsonSchema

from pytest_loadtest.brokers.base import Restart, restarts_of
from pytest_loadtest.metrics.measurements import checked_parts
from pytest_loadtest.report.measurements_section import LatencySection, MeasurementsSection
from pytest_loadtest.report.verdict_section import ComparisonSection, PeakSection, VerdictSection
from pytest_loadtest.values.fields import Count, Number
from pytest_loadtest.values.records import record
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = 4
OLDEST: Final = 3
"""The oldest version that can be read: earlier ones have other histograms."""
OUTCOMES: Final = (Outcome.NO_DATA, Outcome.GENERATOR_LIMITED, Outcome.MISSED, Outcome.MET)
"""Worst first."""
MISSES_FIRST: Final = (Outcome.MISSED, Outcome.GENERATOR_LIMITED, Outcome.NO_DATA, Outcome.MET)
"""The order of objectives: those that were missed, then those that could not be judged."""


def json_key(attribute: str) -> str:
    """Return the key of an attribute in the JSON text: ``end_to_end_p50`` → ``endToEndP50``."""
    first, *words = attribute.split("_")
    return first + "".join(map(str.capitalize, words))


@record
class ProfileSection:
    """The profile of the run."""

    name: str
    """the name that the test uses"""
    document: Mapping[str, Any]
    """the whole profile"""

    @property
    def checked_parts(self) -> str | None:
        """The parts of messages whose damage is detected; None: all of each message."""
        checksum = bool(self.document.get("checksum"))
        return checked_parts(checksum=checksum, routed=self.route is not None)

    @property
    def route(self) -> str | None:
        """The topics before and after the service under test; None without one."""
        route = self.document.get("route")
        if route is None:
            return None
        return f"{route['input']} → service → {', '.join(route['output'])}"


@record
class ScaleSection:
    """A run with less load than its profile has."""

    factor: Number
    """value of --load-scale"""
    changes: Mapping[str, str]
    """what was reduced, and how"""


@record
class StageEntry:
    """One stage of the profile."""

    name: str
    """as in the profile"""
    verdict: VerdictSection
    """by the stage's own objectives"""
    measurements: MeasurementsSection | None
    """of the messages due in the stage; null where it never began"""


_BETWEEN: Final = WithJsonSchema(
    {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0}}
)


@record
class BacklogSection:
    """A backlog that was built while consumers were paused, and then read."""

    messages: Count
    """deliveries waiting when consumers resumed, over all subscriptions"""
    bytes: Count
    """the same in payload bytes"""
    build: Count
    """ns from the pause until the size was reached"""
    drain: Count | None
    """ns from the resumption until only the share backlogDrainRatio was left; null: never, or
    longer than the run waited, or second copies or lost messages leave it open"""
    waited: Count | None = None
    """ns from the resumption until the wait was given up; null where it was not"""
    drained: bool | None
    """only that share was left within backlogDrainTimeout; null: second copies or lost messages
    leave it open"""
    drained_between: Annotated[tuple[Count, Count | None], _BETWEEN] | None = None
    """where drain is open: ns until it may have been drained first, and until it certainly was;
    null if that was not seen during load"""
    uncounted: Count = 0
    """copies that are no first copies of acknowledged messages: second ones, damaged ones, those of
    another topic or of messages without acknowledgement"""
    lost: Count = 0
    """deliveries that never came, if a bound on loss allows them: the target dropped them, or they
    still wait"""
    left: Count | None
    """deliveries that still waited then; null: unknown because of second copies or lost messages"""
    allowed: Count
    """deliveries that may be left of a backlog that counts as drained"""
    drain_rate: Number | None
    """deliveries per second during the drain; null: second copies or lost messages leave it open"""
    publish_during_drain: LatencySection | None
    """publish latency of the messages due during the drain"""


@record
class SaturationEntry:
    """One side that was saturated."""

    conclusion: str
    """the side"""
    evidence: str
    """a sentence with numbers"""


@record
class SampledHostEntry:
    """Another host than the controller's, whose workers were sampled there."""

    name: str
    """as in the list of hosts"""
    workers: tuple[str, ...]
    """names"""
    cores: int | None
    """cores that its workers may use; null if sampling failed"""
    cost: Number | None
    """cores that sampling used; null if sampling failed"""


@record
class BottleneckSection:
    """The side that limited the run, and everything that was sampled during the load to find it."""

    conclusion: str | None
    """the side that was saturated most of the time; null where too little was sampled to decide"""
    evidence: str
    """a sentence with numbers"""
    also: tuple[SaturationEntry, ...]
    """other sides that were saturated"""
    missing: tuple[str, ...]
    """what could not be sampled, and why"""
    cost: Number
    """cores that sampling used, on the controller's host"""
    time: tuple[int, ...]
    """ns after the phase's start, of each sample; those after the measured phase belong to its
    drain"""
    columns: Mapping[str, tuple[Number | None, ...]]
    """a number for each sample, by name: cores, bytes, events or bytes per second; null where it is
    unknown"""
    hosts: tuple[SampledHostEntry, ...] = ()
    """the other hosts with workers"""


@record
class TimelineStage:
    """A stage of the profile."""

    name: str
    """as in the profile"""
    start: int
    """ns"""
    end: int
    """ns"""


@record
class TimelineChange:
    """A change by the test's body."""

    at: int
    """ns"""
    text: str
    """the change in words"""


@record
class TimelineStall:
    """Seconds in a row in which a worker woke up late for 50 ms or more."""

    worker: str
    """name"""
    start: int
    """ns"""
    end: int
    """ns"""


@record
class TimelineBlocked:
    """Seconds in a row in which messages waited for the target's full window."""

    start: int
    """ns"""
    end: int
    """ns"""


@record
class TimelineSection:
    """Events during the measured phase."""

    stages: tuple[TimelineStage, ...]
    """of the profile"""
    changes: tuple[TimelineChange, ...]
    """changes by the test's body"""
    restarts: tuple[Restart, ...]
    """of the broker, by the test's body"""
    stalls: tuple[TimelineStall, ...]
    """seconds in which a worker woke up late for 50 ms or more; at most 500 spans of each worker"""
    blocked: tuple[TimelineBlocked, ...]
    """seconds in which messages waited for the target's full window, a millisecond or more each on
    average; at most 500 spans"""


CONFIG: Final = ConfigDict(
    extra="forbid", strict=True, allow_inf_nan=False, alias_generator=json_key
)


@record
class RestartEntry(Restart):
    """A restart of the broker during the load, among its facts."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    down_at: str | None = None
    """down on the wall clock, ISO 8601"""
    ready_at: str | None = None
    """ready on the wall clock, ISO 8601"""


def _check_restarts(broker: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the restarts; all other facts of a broker are free.

    :raises ValidationError: an entry of ``restarts`` is wrong.
    """
    if "restarts" in broker:
        TypeAdapter(list[RestartEntry]).validate_json(json.dumps(broker["restarts"]))
    return broker


@record
class RunDocument:
    """One load run.

    Times are ns, rates msg/s, sizes bytes; null means not measured or not applicable, never
    zero.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    version: Annotated[Literal[3, 4], WithJsonSchema({"const": VERSION})] = VERSION
    """of this schema"""
    test: str
    """node id of the test"""
    profile: ProfileSection
    """the profile as it was used"""
    workload: str | None
    """name of the workload if several ran together; null otherwise"""
    seed: int
    """of all random choices"""
    scale: ScaleSection | None
    """null where the profile ran as written; a scaled run says nothing about the full load"""
    started: str | None
    """wall clock at the start of the measured phase, ISO 8601; null when it never started"""
    results: str
    """the run's folder"""
    plan: Mapping[str, Any]
    """summary of the plan"""
    broker: Annotated[Mapping[str, Any], AfterValidator(_check_restarts)]
    """the target: name, version (``4.0.0, then 4.2.4`` if it changed during the load), how it was
    provided, settings; restarts by the test's body: when it was stopped (down) and when clients
    could work again (ready, null: never), ns after the start of the measured phase, and both on the
    wall clock (downAt, readyAt)"""
    driver: Mapping[str, Any]
    """client, version, settings applied and not applied, connections lost during the run (null:
    unknown, for example where the run broke), how many producers connected again to a broker that
    had lost their session, and incidents: what happened to connections and sessions although the
    run went on, text → how often"""
    versions: Mapping[str, str]
    """of this package and its environment"""
    machine: Mapping[str, Any]
    """host, cores, memory"""
    notes: tuple[str, ...]
    """events apart from the load that a reader must know, such as a crash and restart of Spark's
    Java process"""
    verdict: VerdictSection
    """the verdict on the run"""
    measurements: MeasurementsSection | None
    """what was observed; null where the run broke before anything could be measured"""
    stages: tuple[StageEntry, ...]
    """the profile's stages in their order, each with its own verdict and measurements; empty where
    it has none"""
    peak: PeakSection | None
    """result of the search for the highest rate; null where the rate was fixed"""
    backlog: BacklogSection | None
    """a backlog built while consumers were paused, then read; null where the profile has none"""
    bottleneck: BottleneckSection | None = None
    """the side that limited the run, and what was sampled during the load to find it; null where
    nothing was sampled"""
    timeline: TimelineSection | None = None
    """events during the measured phase; ns since its start"""
    comparison: ComparisonSection | None = None
    """the run compared with its baseline (--load-baseline); null without one"""

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Restarts of the broker by the test's body."""
        return restarts_of(self.broker)


def results_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the document. ``scripts/schemas`` writes it."""
    schema: dict[str, Any] = json.loads(
        files("pytest_loadtest.report").joinpath("results.schema.json").read_text(encoding="utf-8")
    )
    return schema


def read_document(path: Path) -> RunDocument:
    """Read a results document.

    :raises ValueError: the file cannot be read, is not a results document, or of another version.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {error}") from error
    return parse_document(text)


def parse_document(text: str) -> RunDocument:
    """Return the document of a JSON text. :raises ValueError: as :func:`read_document`."""
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        raise ValueError(_explain(text, error)) from error


@cache
def _adapter() -> TypeAdapter[RunDocument]:
    return TypeAdapter(RunDocument)


def _explain(text: str, error: ValidationError) -> str:
    """Return the first problem: no JSON, another version, or the place of a wrong value."""
    try:
        whole = json.loads(text)
    except ValueError as wrong:
        return f"cannot be read: {wrong}"
    version = whole.get("version") if isinstance(whole, dict) else None
    if version not in range(OLDEST, VERSION + 1):
        return f"is not a results document of version {OLDEST} to {VERSION}: version {version!r}"
    first = error.errors(include_url=False, include_input=False)[0]
    return f"is not a results document: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def dumps(document: RunDocument) -> str:
    """Return the JSON text.

    Each key and each entry of a list of sections has a line; the numbers of a list share one.

    :raises ValueError: the document has a NaN or an infinity, which JSON does not have.
    """
    return _text(document, "\n") + "\n"


def _text(node: Any, line: str) -> str:
    """:param line: the line break before the node's own line, with its indentation."""
    inner = f"{line} "
    if is_dataclass(node):
        node = json_members(node)
    if isinstance(node, Mapping) and node:
        members = [f"{inner}{_short(key)}: {_text(value, inner)}" for key, value in node.items()]
        return f"{{{','.join(members)}{line}}}"
    if isinstance(node, list | tuple) and any(
        is_dataclass(entry) or isinstance(entry, Mapping | list | tuple) for entry in node
    ):
        entries = [inner + _short(entry) for entry in node]
        return f"[{','.join(entries)}{line}]"
    return _short(node)


def _short(node: Any) -> str:
    return json.dumps(node, ensure_ascii=False, allow_nan=False, default=json_members)


def json_members(section: Any) -> dict[str, Any]:
    """Return the members of a section's JSON object; for ``default`` of :func:`json.dumps`."""
    return {key: getattr(section, name) for name, key in _keys(section.__class__)}


@cache
def _keys(section: Any) -> list[tuple[str, str]]:
    return [(field.name, json_key(field.name)) for field in fields(section)]
