"""Build the results document of a run from its verdict and its measurements."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pytest_loadtest.report.document import (
    VERSION,
    BacklogSection,
    BottleneckSection,
    ProfileSection,
    RunDocument,
    ScaleSection,
    StageEntry,
    TimelineSection,
)
from pytest_loadtest.report.measured import (
    finite,
    latency_section,
    measurements_section,
    section_of,
)
from pytest_loadtest.report.verdict_section import (
    ComparisonSection,
    FindingEntry,
    PeakSection,
    ShownSection,
    StepEntry,
    TenthsSection,
    VerdictSection,
    WindowEntry,
    WindowsSection,
)
from pytest_loadtest.values.records import record
from pytest_loadtest.verdict.changes import with_changes
from pytest_loadtest.verdict.finding import show, write_bounds
from pytest_loadtest.verdict.observations import Latencies
from pytest_loadtest.verdict.slo import Finding, Outcome, Verdict, overall
from pytest_loadtest.verdict.tolerance import joint_tolerances, tolerances

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.brokers.base import BrokerFacts
    from pytest_loadtest.drivers.base import DriverFacts
    from pytest_loadtest.metrics.measurements import Backlog, Measurements
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.peak import Peak


@record
class RunFacts:
    """The facts of a run apart from its measurements. All mappings are plain JSON values.

    :param test: the test's node id. :param started: wall clock at the start of the measured phase,
        ISO 8601 with zone; None if it never started.
    :param scale: factor; None where the profile ran as written.
    :param scaling: the reductions, ``{"rate": "2.50 M → 2 000 msg/s"}``.
    :param workload: its name if several ran together; otherwise empty.
    :param profile: the profile as a document. :param plan: summary of the plan.
    :param broker: name, version, mode, url, settings, restarts.
    :param driver: client, version, applied, not_applied.
    :param versions: versions of this package and its environment.
    :param machine: host, cores, memory. :param results: the run's folder.
    :param notes: events apart from the load, in sentences.
    """

    test: str
    profile_name: str
    profile: Mapping[str, Any]
    seed: int
    started: str | None
    results: str
    scale: float | None = None
    scaling: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, Any]
    broker: Mapping[str, Any]
    driver: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    workload: str = ""
    notes: tuple[str, ...] = ()


def build_document(
    facts: RunFacts,
    verdict: Verdict,
    measurements: Measurements | None,
    *,
    stages: Sequence[tuple[str, Verdict, Measurements | None]] = (),
    peak: Peak | None = None,
    backlog: Backlog | None = None,
    bottleneck: BottleneckSection | None = None,
    timeline: TimelineSection | None = None,
) -> RunDocument:
    """Build the document of a run.

    :param measurements: None if the run broke before anything could be measured.
    :param stages: name, verdict and measurements of each stage, None for one that never began; the
        outcome of the whole is the worst of ``verdict`` and theirs.
    :param bottleneck: from :func:`pytest_loadtest.report.bottleneck.bottleneck_section`; None where
        nothing was sampled.
    :param timeline: from :func:`pytest_loadtest.report.measured.timeline_section`.
    """
    verdicts = [("", verdict)]
    entries = []
    for name, judged, measured in stages:
        verdicts.append((f"stage {name}: ", judged))
        entries.append(_stage(name, judged, measured, verdict))
    whole = overall(verdicts)
    scale = None
    if facts.scale is not None:
        scale = ScaleSection(factor=facts.scale, changes=facts.scaling)
    section = None
    if measurements is not None:
        section = measurements_section(measurements, tolerances=tolerances(_objectives(verdict)))
    return section_of(
        RunDocument,
        facts,
        version=VERSION,
        profile=ProfileSection(name=facts.profile_name, document=facts.profile),
        workload=facts.workload or None,
        scale=scale,
        verdict=replace(_verdict(verdict), outcome=whole.outcome, reasons=whole.reasons),
        measurements=section,
        stages=tuple(entries),
        peak=peak and _peak(peak, facts.profile, verdict),
        backlog=backlog and _backlog(backlog),
        bottleneck=bottleneck,
        timeline=timeline,
        comparison=None,
    )


def _stage(name: str, judged: Verdict, measured: Measurements | None, whole: Verdict) -> StageEntry:
    """Return the entry of a stage.

    :param whole: the verdict on the whole profile, whose tolerances apply where the stage has none
        of its own.
    """
    section = None
    if measured is not None:
        bounds = joint_tolerances(_objectives(judged), _objectives(whole))
        section = measurements_section(measured, tolerances=bounds, over_time=False)
    return StageEntry(name=name, verdict=_verdict(judged), measurements=section)


def _objectives(verdict: Verdict) -> list[Objective]:
    return [finding.objective for finding in verdict.findings]


def with_comparison(
    document: RunDocument, section: ComparisonSection, findings: Sequence[Finding]
) -> RunDocument:
    """Return the document with the result of a comparison.

    It gets the section, and the findings are added to the verdict.
    """
    verdict = document.verdict
    outcome, reasons = with_changes(verdict.outcome, verdict.reasons, findings)
    judged = VerdictSection(
        outcome=outcome,
        reasons=reasons,
        findings=(*verdict.findings, *map(_finding, findings)),
    )
    return replace(document, verdict=judged, comparison=section)


def _verdict(verdict: Verdict) -> VerdictSection:
    return section_of(VerdictSection, verdict, findings=tuple(map(_finding, verdict.findings)))


def _finding(finding: Finding) -> FindingEntry:
    objective = finding.objective
    shown = ShownSection(observed="", bound=write_bounds(objective), over="")
    written = finding.shown
    if written is None and finding.observed is not None:
        written = show(objective, finding.observed)
    if written is not None:
        observed, bound, over = written
        shown = ShownSection(observed=observed, bound=bound, over=over)
    return section_of(
        FindingEntry,
        objective,
        statistic=objective.statistic or None,
        bucket=objective.bucket or None,
        outcome=finding.outcome,
        observed=finite(finding.observed),
        # The samples of users' own code are unknown.
        samples=None if objective.metric == "custom" else finding.samples,
        text=finding.text,
        shown=shown,
        windows=_windows(finding),
        tenths=_tenths(finding),
    )


def _peak(peak: Peak, profile: Mapping[str, Any], verdict: Verdict) -> PeakSection:
    """A search is in bytes where the profile gives its first rate in bytes."""
    in_bytes = str((profile.get("search") or {}).get("start")).endswith("B/s")
    steps = [section_of(StepEntry, step, **asdict(step.ask)) for step in peak.steps]
    return section_of(
        PeakSection,
        peak,
        unit="B/s" if in_bytes else "msg/s",
        implicit_only=all(finding.objective.implicit for finding in verdict.findings),
        steps=tuple(steps),
    )


def _backlog(backlog: Backlog) -> BacklogSection:
    drain = finite(backlog.drain)
    return section_of(
        BacklogSection,
        backlog,
        messages=backlog.size_messages,
        bytes=backlog.size_bytes,
        drain=None if drain is None else int(drain),
        drained_between=backlog.between,
        publish_during_drain=latency_section(Latencies(backlog.publish_during_drain, 0)),
    )


MOST: Final = 1000
"""The largest number of windows that are listed.

If there are more, the first of those that are not met are listed.
"""


def _windows(finding: Finding) -> WindowsSection | None:
    windows, width = finding.windows, finding.objective.window
    if not windows or width is None:
        return None
    listed = windows
    if len(windows) > MOST:
        listed = tuple(window for window in windows if window.outcome is not Outcome.MET)[:MOST]
    count = Counter(window.outcome for window in windows)
    return WindowsSection(
        width=width,
        violations=finding.objective.violations,
        number=len(windows),
        missed=count[Outcome.MISSED],
        generator_limited=count[Outcome.GENERATOR_LIMITED],
        no_data=count[Outcome.NO_DATA],
        listed=tuple(
            section_of(WindowEntry, window, observed=finite(window.observed)) for window in listed
        ),
    )


def _tenths(finding: Finding) -> TenthsSection | None:
    if finding.tenths is None:
        return None
    first, last = map(finite, finding.tenths)
    unit: Literal["ns", "ratio"] = "ratio" if finding.objective.metric == "throughput" else "ns"
    return TenthsSection(unit=unit, first=first, last=last)


# Facts of the target and the client, as ``run.json`` keeps them for the document.


def broker_document(facts: BrokerFacts) -> dict[str, Any]:
    """Return the facts of the target as JSON values."""
    document: dict[str, Any] = {
        "name": facts.name,
        "version": facts.version,
        "mode": facts.mode,
        "url": facts.url,
        "adminUrl": facts.admin_url,
    }
    if facts.subscriber_url:
        document["subscriberUrl"] = facts.subscriber_url
    return document | {"settings": dict(facts.settings), "evidence": facts.evidence}


def driver_document(facts: DriverFacts | None) -> dict[str, Any]:
    """Return the facts of the client as JSON values; empty if there are none."""
    return {} if facts is None else asdict(facts)
