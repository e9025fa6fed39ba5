"""Facts of a run as text that several reports share, and parts of the terminal's summary.

The parts are those that only some runs have: stages, size buckets, a search, a backlog.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_loadtest.report.document import OUTCOMES, BacklogSection, RunDocument, StageEntry
from pytest_loadtest.report.tables import Table, aligned, terminal_lines
from pytest_loadtest.values.quantities import format_duration, format_rate, format_size
from pytest_loadtest.values.wording import counted, exact, format_value, scale_word, with_version
from pytest_loadtest.verdict.observations import name_silent, never_came, samples_needed
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_loadtest.brokers.base import Restart
    from pytest_loadtest.report.measurements_section import (
        BreakdownEntry,
        MeasurementsSection,
        PartLatency,
    )
    from pytest_loadtest.report.verdict_section import FindingEntry, PeakSection, StepEntry


Labelled = tuple[str, str]
"""A fact of the summary: its label and its text; no label where the text continues another."""
UNKNOWN = "unknown"
"""The text of a statistic of a latency whose clocks disagree."""
MARKS = {
    Outcome.MET: ("✓", "ok"), Outcome.MISSED: ("✗", "XX"), Outcome.NO_DATA: ("?", "??"),
    Outcome.GENERATOR_LIMITED: ("!", "!!"),
}  # fmt: skip


class Absences(NamedTuple):
    """A report's words for what has no number.

    :param value: not measured. :param part: a stage that never began.
    :param lost: lost messages of a run in which nothing subscribes.
    :param received: the delivered rate where nothing was received.
    """

    value: str
    part: str
    lost: str
    received: str


IN_TERMINAL: Final = Absences("-", "-", "-", "-")


def worst_first(documents: Iterable[RunDocument]) -> list[RunDocument]:
    """Sort runs by outcome, the worst first; those of one outcome stay in their order."""
    return sorted(documents, key=lambda document: OUTCOMES.index(document.verdict.outcome))


def outcome_counts(documents: Iterable[RunDocument]) -> str:
    """Return the number of runs with each outcome, ``1 missed, 2 met``."""
    return counts_text(document.verdict.outcome for document in documents)


def counts_text(outcomes: Iterable[Outcome]) -> str:
    """Return how often each outcome came, the worst first: ``1 missed, 2 met``."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])


def causes_and_remedy(document: RunDocument) -> tuple[tuple[str, ...], str]:
    """Return why the run cannot be judged, and what to change.

    The last reason of a slow generator is its remedy.
    """
    reasons = document.verdict.reasons
    if document.verdict.outcome is Outcome.GENERATOR_LIMITED and len(reasons) > 1:
        return reasons[:-1], reasons[-1]
    return reasons, ""


def run_name(document: RunDocument) -> str:
    """Return the test, with the workload if there are several."""
    return f"{document.test}{_workload(document.workload)}"


def titled(test: str, profile: str, workload: str | None) -> str:
    """Return test, profile and workload as a title. :param workload: None if there is only one."""
    return f"{test} · profile {profile}{_workload(workload)}"


def _workload(name: str | None) -> str:
    return "" if name is None else f" · workload {name}"


def scale_of(document: RunDocument) -> str:
    """Return ``scaled ×0.01``, or ``shortened``; empty where the profile ran as written."""
    return "" if document.scale is None else scale_word(document.scale.factor)


def short_scale(factor: float) -> str:
    """Return ``×0.01``, or ``shortened`` where only the duration is less."""
    return scale_word(factor).removeprefix("scaled ")


def scale_changes(document: RunDocument) -> str:
    """Return the reductions of a scaled run, ``rate 2.50 M → 2 000 msg/s``; empty for others."""
    if document.scale is None:
        return ""
    return ", ".join(f"{name} {change}" for name, change in document.scale.changes.items())


def scale_warning(document: RunDocument) -> str:
    """Return a sentence on a run with less than the load of its profile; empty for others."""
    if document.scale is None:
        return ""
    text = f"{scale_of(document).upper()}: says nothing about the full load"
    return f"{text} ({scale_changes(document)})"


def version_text(broker: Mapping[str, Any]) -> str:
    """Return the name of the target with its version."""
    return with_version(str(broker.get("name")), str(broker.get("version")))


def target_text(broker: Mapping[str, Any]) -> str:
    """Return the target with its version and its address."""
    if not broker:
        return "none was started"
    where = [str(broker[name]) for name in ("mode", "url") if broker.get(name)]
    if broker.get("subscriberUrl"):
        where.append(f"{broker['subscriberUrl']} for subscribers")
    text = f"{version_text(broker)} ({', '.join(where)})"
    if not broker.get("evidence", True):
        text += " — a stand-in, no evidence about the real broker"
    return text


def restart_text(restart: Restart) -> str:
    """Return how long after its stop the broker was ready again."""
    if restart.ready is None:
        return "not ready again"
    return f"ready {format_duration(restart.ready - restart.down)} later"


def delivered_text(
    measured: MeasurementsSection,
    nothing: str = "none",
    no_consumers: str = "nowhere (nothing subscribes)",
) -> str:
    """Return the rate of delivery, or why there is none.

    :param nothing: text if nothing was received.
    """
    if measured.throughput is None:
        return nothing if measured.subscriptions else no_consumers
    return format_rate(measured.throughput)


def blocked_text(measured: MeasurementsSection) -> str:
    """Return how long messages waited for the target's full window, and the share of that delay."""
    waited = f"{format_duration(measured.blocked)} summed over messages"
    share = format_value(measured.blocked_share, "ratio", 2)
    return f"{waited}, {share} of the send delay: the target's full window"


def all_findings(document: RunDocument) -> Iterator[tuple[str, FindingEntry]]:
    """Yield every finding with a prefix for its name: ``stage ramp: ``, or nothing."""
    for finding in document.verdict.findings:
        yield "", finding
    for stage in document.stages:
        for finding in stage.verdict.findings:
            yield f"stage {stage.name}: ", finding


def missed_texts(document: RunDocument) -> list[str]:
    """Return a sentence for each miss."""
    return [
        prefix + finding.text
        for prefix, finding in all_findings(document)
        if finding.outcome is Outcome.MISSED
    ]


def objective_name(finding: FindingEntry) -> str:
    """Return the name of an objective, with a note if it is implicit."""
    return finding.name + (" (implicit)" if finding.implicit else "")


def has_number(finding: FindingEntry) -> bool:
    """Return True if there is an observed value, or a miss so certain that none is needed.

    It is certain if too many messages never came.
    """
    return finding.observed is not None or bool(finding.shown.over)


def cause(finding: FindingEntry) -> str:
    """Return why an objective has no number, or by how much it was missed.

    It is the text of its finding after the colon.
    """
    return finding.text.removeprefix(finding.name).partition(": ")[2]


def mark(outcome: Outcome, unicode: bool) -> str:
    """Return one character for an outcome, or two of ASCII."""
    return MARKS[outcome][0 if unicode else 1]


def labelled(facts: Iterable[Labelled]) -> Iterator[str]:
    """Return the facts as lines of the terminal's summary: a column of labels, then the texts."""
    return (f"  {label:<10} {text}" for label, text in facts)


def continued(label: str, texts: Iterable[str]) -> Iterator[Labelled]:
    """Yield the texts as one fact: only the first has the label."""
    for text in texts:
        yield label, text
        label = ""


STAGE_HEAD: Final = ("for", "offered", "delivered", "end-to-end p50", "p99", "max", "lost")


def stages(document: RunDocument, unicode: bool) -> Iterable[str]:
    """Yield a row for each stage, then the objectives that were missed in them."""
    if not document.stages:
        return
    rows = []
    for stage in document.stages:
        outcome = mark(stage.verdict.outcome, unicode)
        rows.append((outcome, stage.name, *stage_cells(stage, IN_TERMINAL)))
    yield from terminal_lines(Table(head=("", "stage", *STAGE_HEAD), align="<<>>>>>>>", rows=rows))
    for stage in document.stages:
        if stage.measurements is None:
            outcome = mark(stage.verdict.outcome, unicode)
            yield f"  {outcome} stage {stage.name} {stage.verdict.reasons[0]}"
            continue
        for finding in stage.verdict.findings:
            if finding.outcome is Outcome.MISSED:
                yield f"  {mark(Outcome.MISSED, unicode)} stage {stage.name}: {finding.text}"


def stage_cells(stage: StageEntry, absences: Absences) -> tuple[str, ...]:
    """Return the cells of a stage below :data:`STAGE_HEAD`."""
    measured = stage.measurements
    if measured is None:
        return (absences.part,) * len(STAGE_HEAD)
    return (
        format_duration(measured.duration),
        format_rate(measured.rate),
        delivered_text(measured, absences.received, absences.received),
        *percentiles(measured.latencies["endToEnd"], "p50", "p99", absent=absences.value),
        _lost(measured.counts["lost"], measured, absences),
    )


def delay_facts(measured: MeasurementsSection) -> Iterator[Labelled]:
    """Yield the number of delayed messages out of order, and the size of the broker's index."""
    swapped = measured.counts.get("outOfDueOrder")
    if swapped is not None:
        copies = counted(swapped, "copy", "copies")
        yield "delayed", f"{copies} after one that is due more than a tick later"
    index = measured.delayed_index
    if index is not None:
        each = format_value(index.bytes_per_message, "B")
        whole = f"{format_size(index.bytes)} for {exact(index.messages)} delayed"
        yield "index", f"{each} a message, {whole}"


PART_HEAD: Final = (
    "due", "sent", "received", "lost", "end-to-end p50", "p99", "max", "publish p99",
)  # fmt: skip


def part_table(
    kind: str,
    parts: Sequence[BreakdownEntry],
    measured: MeasurementsSection,
    absences: Absences = IN_TERMINAL,
    caption: str = "",
) -> Table:
    """Return a row for each topic or size bucket. :param kind: the head of its first column."""
    rows = []
    for part in parts:
        cells = [part.name, exact(part.offered), exact(part.sent), exact(part.received)]
        cells.append(_lost(part.lost, measured, absences))
        cells += percentiles(part.end_to_end, "p50", "p99", absent=absences.value)
        publish_p99, _ = percentiles(part.publish, "p99", absent=absences.value)
        rows.append((*cells, publish_p99))
    return Table(caption=caption, head=(kind, *PART_HEAD), rows=rows)


def buckets(document: RunDocument) -> Iterable[str]:
    """Yield a row for each size bucket if one of them has an objective or lost messages."""
    measured = document.measurements
    if measured is None:
        return
    bounded = any(finding.bucket for finding in document.verdict.findings)
    if bounded or any(part.lost for part in measured.buckets):
        yield from terminal_lines(part_table("size bucket", measured.buckets, measured))


def only_connects(measured: MeasurementsSection) -> bool:
    """Return True if the run had connections and no messages."""
    return measured.opening is not None and measured.opening.alone


def connection_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield the rate of opening connections, and the number lost later.

    There is such a fact if the rate was limited, or the run did nothing else.
    """
    measured = document.measurements
    opening = None if measured is None else measured.opening
    if measured is None or opening is None:
        return
    pace = "as fast as possible"
    if opening.rate is not None:
        pace = f"{_per_second(opening.rate)} requested"
    achieved = f"{_per_second(opening.achieved)} in {format_duration(opening.took)}"
    text = f"{exact(opening.connections)}, {pace}, {achieved}"
    text += f" ({opening.busiest} {opening.cpu:.2f} cores)"
    if opening.alone:
        text += f", held for {format_duration(measured.duration)}"
    lost = document.driver.get("losses")
    if lost is not None:
        text += f", {exact(lost) if lost else 'none'} lost after that"
    yield "connected", text


def incident_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield what happened to connections and sessions although the run went on, and how often."""
    incidents = document.driver.get("incidents")
    if incidents:
        texts = (f"{exact(count)} × {text}" for text, count in incidents.items())
        yield "incidents", "; ".join(texts)


def _per_second(rate: float) -> str:
    return format_rate(rate).replace("msg/s", "connections/s")


def custom(measured: MeasurementsSection) -> Iterable[str]:
    """Yield a row for each metric of the users' own code."""
    if measured.custom:
        rows = aligned([(name, value.shown) for name, value in measured.custom.items()], "<<")
        yield from labelled(continued("custom", rows))


def silent_text(measured: MeasurementsSection) -> str:
    """Name the subscriptions and streams of which nothing arrived, at most ten of each.

    The text is empty if there are none, or that is unknown.
    """
    silent = measured.silent
    if silent is None or not silent.count:
        return ""
    return name_silent(silent, most=len(silent.first_pairs) + len(silent.first_streams))


def peak(document: RunDocument, unicode: bool) -> Iterable[str]:
    """Yield the highest rate with its interval and limit, then a row for each step."""
    section = document.peak
    if section is None:
        return
    yield f"  peak       {answer(section)}"
    yield f"             {limit(section)}"
    if section.implicit_only:
        findings = document.verdict.findings
        held = ", ".join(f"{finding.name} {finding.shown.bound}" for finding in findings)
        why = "the profile has no objectives, so the implicit ones had to hold"
        yield f"             {why}: {held}; there is no bound on latency"
    rows = []
    for step in section.steps:
        figures = step_cells(step, section.unit, "-")
        rows.append(
            (mark(step.outcome, unicode), str(step.number), *figures, step_purpose(step), step.text)
        )
    head = ("", "step", "rate", "for", "delivered", "", "")
    yield from terminal_lines(Table(head=head, align="<>>>><<", rows=rows))


def step_cells(step: StepEntry, unit: str, absent: str) -> tuple[str, str, str]:
    """Return the rate of a step, how long it was held, and the delivered rate."""
    delivered = absent
    if step.throughput is not None:
        delivered = precise(step.throughput, "msg/s")
    return precise(step.rate, unit), format_duration(step.duration), delivered


def step_purpose(step: StepEntry) -> str:
    """Return for example ``bracket, ended early``."""
    return step.purpose + (", ended early" if step.early else "")


def answer(section: PeakSection) -> str:
    """Return for example ``19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed``."""
    if section.rate is None:
        return "none: no rate held"
    text = "at least " if section.at_least else ""
    text += precise(section.rate, section.unit)
    held = [
        step.duration
        for step in section.steps
        if step.rate == section.rate and step.outcome is Outcome.MET
    ]
    if held:
        text += f", held for {format_duration(max(held))}"
    if not section.confirmed:
        text += ", not confirmed by a longer hold"
    if section.high is not None:
        text += f"; {precise(section.high, section.unit)} was missed"
    return text


def precise(rate: float, unit: str) -> str:
    """Format a rate of a search with digits that distinguish rates that differ by 0.1 %."""
    if unit == "B/s":
        return f"{format_size(rate, 5)}/s"
    number = exact(round(rate)) if rate >= 1000 else f"{rate:.5g}"
    return f"{number} msg/s"


def backlog_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield how long a backlog was built and drained, and the publish latency during the drain."""
    backlog = document.backlog
    if backlog is None:
        return
    size = f"{exact(backlog.messages)} deliveries, {format_size(backlog.bytes)}"
    rate = "at an unknown rate"
    if backlog.drain_rate is not None:
        rate = f"at {format_rate(backlog.drain_rate)}"
    built = f"built in {format_duration(backlog.build)}"
    yield "backlog", f"{size}, {built}, {_drained(backlog)} {rate}"
    shown = "not measured"
    if backlog.publish_during_drain is not None:
        p50, p99, _ = percentiles(backlog.publish_during_drain, "p50", "p99")
        shown = f"p50 {p50}, p99 {p99}"
    yield "", f"publish latency during the drain: {shown}"


def _drained(backlog: BacklogSection) -> str:
    if backlog.drained is None:
        first, last = backlog.drained_between or (None, None)
        copies = f"{exact(backlog.uncounted)} second or doubtful copies{never_came(backlog.lost)}"
        return f"drained between {_end_of_drain(first)} and {_end_of_drain(last)} ({copies})"
    if backlog.drained:
        return f"drained in {format_duration(backlog.drain or 0)}"
    # Older results have the time of the wait as that of the drain.
    waited = backlog.drain if backlog.waited is None else backlog.waited
    left = f"more than {exact(backlog.allowed)}"
    text = ""
    if backlog.left is not None:
        left = exact(backlog.left)
        if backlog.left >= backlog.messages:
            text = "never: it did not shrink, and was "
    waiting = f"{left} still waiting, at most {exact(backlog.allowed)} are allowed"
    return (
        f"{text}NOT drained within {format_duration(waited or 0)} (backlogDrainTimeout; {waiting})"
    )


def _end_of_drain(ns: int | None) -> str:
    return "an unknown time" if ns is None else format_duration(ns)


def limit(section: PeakSection) -> str:
    """Return the limit of a search as a sentence."""
    match section.limit:
        case "generator":
            text = "the generator, not the target: add workers (-n) to see more"
        case "maximum":
            text = "search.max, not the target: raise it to see more"
        case "none":
            text = "unknown" if section.rate is not None else "every rate tried missed an objective"
        case _:
            text = "the target"
    first = "" if section.broke_first is None else f"; {section.broke_first} broke first"
    return f"limit: {text}{first}"


def percentiles(latency: PartLatency | None, *names: str, absent: str = "-") -> tuple[str, ...]:
    """Format these percentiles, and the largest value.

    :param absent: the text of each if nothing was measured.
    """
    if latency is None:
        return (absent,) * (len(names) + 1)
    if latency.clocks_disagree:
        return (UNKNOWN,) * (len(names) + 1)
    shown = [_percentile_text(latency, name) for name in names]
    largest = _beyond(latency) if latency.maximum is None else format_duration(latency.maximum)
    return (*shown, largest)


def _percentile_text(latency: PartLatency, name: str) -> str:
    value = latency.percentiles[name]
    if value is not None:
        return format_duration(value)
    due = latency.samples + latency.never_came
    return "too few" if due < samples_needed(float(name[1:])) else _beyond(latency)


def _beyond(latency: PartLatency) -> str:
    """Return the text of a value that is among messages that never came, or unknown ones."""
    return "never" if latency.never_came else UNKNOWN


def mean_text(latency: PartLatency) -> str:
    """Format the mean."""
    return UNKNOWN if latency.clocks_disagree else format_duration(latency.mean)


def samples_text(latency: PartLatency) -> str:
    """Return the number of samples; with the reason if no statistic of them is known."""
    return exact(latency.samples) + (", clocks disagree" if latency.clocks_disagree else "")


def _lost(lost: int | None, measured: MeasurementsSection, absences: Absences) -> str:
    if lost is None or not measured.subscriptions:
        return absences.lost
    return exact(lost)


def format_figure(value: float | None, unit: str, absent: str = "-") -> str:
    """Format a figure with its unit."""
    if value is None:
        return absent
    if unit == "cores":
        return f"{value:.2f} cores"
    return f"{format_size(value)}/s" if unit == "B/s" else format_value(value, unit)


def known_of(values: Iterable[float | None]) -> list[float]:
    """Return the values without those that are unknown."""
    return [value for value in values if value is not None]
