"""Facts of a run as text that several reports share, and the parts of the terminal's summary that only some runs have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.document import OUTCOMES
from pytest_loadtest.values.quantities import format_duration, format_rate, format_size
from pytest_loadtest.values.wording import counted, exact, format_value, scale_word, with_version
from pytest_loadtest.verdict.observations import name_silent, samples_needed
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_loadtest.brokers.base import Restart
    from pytest_loadtest.report.document import (
        BacklogSection,
        RunDocument,
        StageEntry,
    )
    from pytest_loadtest.report.measurements_section import MeasurementsSection, PartLatency
    from pytest_loadtest.report.verdict_section import FindingEntry, PeakSection, StepEntry


Labelled = tuple[str, str]
"""A fact of the summary: its label and its text; the label is empty where the text continues the fact before."""
UNKNOWN = "unknown"
"""The text of a statistic of a latency whose clocks disagree."""
MARKS = {
    Outcome.MET: ("✓", "ok"), Outcome.MISSED: ("✗", "XX"), Outcome.NO_DATA: ("?", "??"), Outcome.GENERATOR_LIMITED: ("!", "!!"),
}  # fmt: skip


def worst_first(documents: Iterable[RunDocument]) -> list[RunDocument]:
    """Sort runs by outcome, the worst first; those of one outcome stay in their order."""
    return sorted(documents, key=lambda document: OUTCOMES.index(document.verdict.outcome))


def causes_and_remedy(document: RunDocument) -> tuple[tuple[str, ...], str]:
    """Return why the run cannot be judged, and what to change; the last reason of a slow generator is its remedy."""
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
    return (
        ""
        if document.scale is None
        else ", ".join(f"{name} {change}" for name, change in document.scale.changes.items())
    )


def target_text(broker: Mapping[str, Any]) -> str:
    """Return the target with its version and its address."""
    if not broker:
        return "none was started"
    stand_in = (
        "" if broker.get("evidence", True) else " — a stand-in, no evidence about the real broker"
    )
    subscribers = (
        f"{broker['subscriberUrl']} for subscribers" if broker.get("subscriberUrl") else None
    )
    where = ", ".join(
        str(part) for part in (broker.get("mode"), broker.get("url"), subscribers) if part
    )
    return (
        f"{with_version(str(broker.get('name')), str(broker.get('version')))} ({where}){stand_in}"
    )


def restart_text(restart: Restart) -> str:
    """Return how long after its stop the broker was ready again."""
    return (
        "not ready again"
        if restart.ready is None
        else f"ready {format_duration(restart.ready - restart.down)} later"
    )


def delivered_text(
    measured: MeasurementsSection,
    nothing: str = "none",
    no_consumers: str = "nowhere (nothing subscribes)",
) -> str:
    """Return the rate of delivery, or why there is none. :param nothing: text if nothing was received."""
    if measured.throughput is None:
        return nothing if measured.subscriptions else no_consumers
    return format_rate(measured.throughput)


def blocked_text(measured: MeasurementsSection) -> str:
    """Return how long messages waited for the target's full window, and the share of the send delay."""
    share = format_value(measured.blocked_share, "ratio", 2)
    return f"{format_duration(measured.blocked)} summed over messages, {share} of the send delay: the target's full window"


def all_findings(document: RunDocument) -> Iterator[tuple[str, FindingEntry]]:
    """Yield every finding with a prefix for its name: ``stage ramp: ``, or nothing for the whole run."""
    yield from (("", finding) for finding in document.verdict.findings)
    for stage in document.stages:
        yield from ((f"stage {stage.name}: ", finding) for finding in stage.verdict.findings)


def objective_name(finding: FindingEntry) -> str:
    """Return the name of an objective, with a note if it is implicit."""
    return finding.name + (" (implicit)" if finding.implicit else "")


def has_number(finding: FindingEntry) -> bool:
    """Return True if there is an observed value, or so many messages never came that none is needed."""
    return finding.observed is not None or bool(finding.shown.over)


def cause(finding: FindingEntry) -> str:
    """Return why an objective has no number, or by how much it was missed: the text of its finding after the colon."""
    return finding.text.removeprefix(finding.name).partition(": ")[2]


def mark(outcome: Outcome, unicode: bool) -> str:
    """Return one character for an outcome, or two of ASCII."""
    return MARKS[outcome][0 if unicode else 1]


def labelled(facts: Iterable[Labelled]) -> Iterator[str]:
    """Return the facts as lines of the terminal's summary: a column of labels, then the texts."""
    return (f"  {label:<10} {text}" for label, text in facts)


def aligned(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Return rows with columns as wide as their widest cell; ``align`` has ``<`` or ``>`` for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def stages(document: RunDocument, unicode: bool) -> Iterable[str]:
    """Yield a row for each stage, then the objectives that were missed in them."""
    if not document.stages:
        return
    rows: list[tuple[str, ...]] = [
        ("", "stage", "for", "offered", "delivered", "end-to-end p50", "p99", "max", "lost")
    ]
    rows += [
        (mark(stage.verdict.outcome, unicode), stage.name, *_stage_cells(stage))
        for stage in document.stages
    ]
    yield from (f"  {row}" for row in aligned(rows, "<<>>>>>>>"))
    for stage in document.stages:
        if stage.measurements is None:
            yield f"  {mark(stage.verdict.outcome, unicode)} stage {stage.name} {stage.verdict.reasons[0]}"
            continue
        missed = (
            finding for finding in stage.verdict.findings if finding.outcome is Outcome.MISSED
        )
        yield from (
            f"  {mark(Outcome.MISSED, unicode)} stage {stage.name}: {finding.text}"
            for finding in missed
        )


def _stage_cells(stage: StageEntry) -> tuple[str, ...]:
    m = stage.measurements
    if m is None:
        return ("-",) * 7
    return (
        format_duration(m.duration), format_rate(m.rate), "-" if m.throughput is None else format_rate(m.throughput),
        *percentiles(m.latencies["endToEnd"], "p50", "p99"), _lost(m.counts["lost"], m),
    )  # fmt: skip


def delay_facts(measured: MeasurementsSection) -> Iterator[Labelled]:
    """Yield the number of delayed messages that came out of order, and the size of the broker's index of them."""
    swapped, index = measured.counts.get("outOfDueOrder"), measured.delayed_index
    if swapped is not None:
        yield (
            "delayed",
            f"{counted(swapped, 'copy', 'copies')} after one that is due more than a tick later",
        )
    if index is not None:
        each = format_value(index.bytes_per_message, "B")
        yield (
            "index",
            f"{each} a message, {format_size(index.bytes)} for {exact(index.messages)} delayed",
        )


def buckets(document: RunDocument) -> Iterable[str]:
    """Yield a row for each size bucket if one of them has an objective or lost messages."""
    measured = document.measurements
    if measured is None:
        return
    parts = measured.buckets
    if not any(finding.bucket for finding in document.verdict.findings) and not any(
        part.lost for part in parts
    ):
        return
    rows: list[tuple[str, ...]] = [
        (
            "size bucket",
            "due",
            "sent",
            "received",
            "lost",
            "end-to-end p50",
            "p99",
            "max",
            "publish p99",
        )
    ]
    for part in parts:
        publish = percentiles(part.publish, "p99")[0]
        counts = (
            exact(part.offered),
            exact(part.sent),
            exact(part.received),
            _lost(part.lost, measured),
        )
        rows.append((part.name, *counts, *percentiles(part.end_to_end, "p50", "p99"), publish))
    yield from (f"  {row}" for row in aligned(rows, "<>>>>>>>>"))


def only_connects(measured: MeasurementsSection) -> bool:
    """Return True if the run had connections and no messages."""
    return measured.opening is not None and measured.opening.alone


def connection_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield the rate of opening connections if it was limited or the run did nothing else, and the number lost later."""
    measured = document.measurements
    opening = None if measured is None else measured.opening
    if measured is None or opening is None:
        return
    lost = document.driver.get("losses")
    pace = (
        "as fast as possible" if opening.rate is None else f"{_per_second(opening.rate)} requested"
    )
    held = f", held for {format_duration(measured.duration)}" if opening.alone else ""
    gone = "" if lost is None else f", {exact(lost) if lost else 'none'} lost after that"
    text = f"{exact(opening.connections)}, {pace}, {_per_second(opening.achieved)} in {format_duration(opening.took)}"
    yield "connected", f"{text} ({opening.busiest} {opening.cpu:.2f} cores){held}{gone}"


def incident_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield what happened to connections and sessions although the run went on, with the number of each."""
    incidents = document.driver.get("incidents")
    if incidents:
        yield (
            "incidents",
            "; ".join(f"{exact(count)} × {text}" for text, count in incidents.items()),
        )


def _per_second(rate: float) -> str:
    return format_rate(rate).replace("msg/s", "connections/s")


def custom(measured: MeasurementsSection) -> Iterable[str]:
    """Yield a row for each metric of the users' own code."""
    if measured.custom:
        rows = aligned([(name, value.shown) for name, value in measured.custom.items()], "<<")
        yield from (f"  {'' if at else 'custom':<10} {row}" for at, row in enumerate(rows))


def silent_text(measured: MeasurementsSection) -> str:
    """Name the subscriptions and streams of which nothing arrived, at most ten of each; '' if there are none, or that is unknown."""
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
        held = ", ".join(
            f"{finding.name} {finding.shown.bound}" for finding in document.verdict.findings
        )
        yield f"             the profile has no objectives, so the implicit ones had to hold: {held}; there is no bound on latency"
    rows = [
        ("", "step", "rate", "for", "delivered", "", ""),
        *(_step(step, section.unit, unicode) for step in section.steps),
    ]
    yield from (f"  {row}" for row in aligned(rows, "<>>>><<"))


def _step(step: StepEntry, unit: str, unicode: bool) -> tuple[str, ...]:
    delivered = "-" if step.throughput is None else precise(step.throughput, "msg/s")
    return (
        mark(step.outcome, unicode), str(step.number), precise(step.rate, unit), format_duration(step.duration), delivered,
        step_purpose(step), step.text,
    )  # fmt: skip


def step_purpose(step: StepEntry) -> str:
    """Return for example ``bracket, ended early``."""
    return step.purpose + (", ended early" if step.early else "")


def answer(section: PeakSection) -> str:
    """Return for example ``19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed``."""
    if section.rate is None:
        return "none: no rate held"
    held = [
        step.duration
        for step in section.steps
        if step.rate == section.rate and step.outcome is Outcome.MET
    ]
    text = f"{'at least ' if section.at_least else ''}{precise(section.rate, section.unit)}"
    if held:
        text += f", held for {format_duration(max(held))}"
    text += "" if section.confirmed else ", not confirmed by a longer hold"
    return (
        text
        if section.high is None
        else f"{text}; {precise(section.high, section.unit)} was missed"
    )


def precise(rate: float, unit: str) -> str:
    """Format a rate of a search with enough digits to distinguish rates that differ by 0.1 %."""
    if unit == "B/s":
        return f"{format_size(rate)}/s"
    return f"{exact(round(rate)) if rate >= 1000 else f'{rate:.5g}'} msg/s"


def backlog_facts(document: RunDocument) -> Iterator[Labelled]:
    """Yield the time in which a backlog was built and drained, and the publish latency during the drain."""
    backlog = document.backlog
    if backlog is None:
        return
    rate = (
        "at an unknown rate"
        if backlog.drain_rate is None
        else f"at {format_rate(backlog.drain_rate)}"
    )
    built = f"{exact(backlog.messages)} deliveries, {format_size(backlog.bytes)}, built in {format_duration(backlog.build)}"
    yield "backlog", f"{built}, {_drained(backlog)} {rate}"
    latency = backlog.publish_during_drain
    p50, p99, _ = percentiles(latency, "p50", "p99")
    yield (
        "",
        f"publish latency during the drain: {'not measured' if latency is None else f'p50 {p50}, p99 {p99}'}",
    )


def _drained(backlog: BacklogSection) -> str:
    if backlog.drained is None:
        first, last = backlog.drained_between or (None, None)
        start, until = (
            "an unknown time" if ns is None else format_duration(ns) for ns in (first, last)
        )
        return f"drained between {start} and {until} ({exact(backlog.uncounted)} second or doubtful copies)"
    if backlog.drained:
        return f"drained in {format_duration(backlog.drain or 0)}"
    # Older results have the time of the wait as that of the drain.
    waited = format_duration((backlog.drain if backlog.waited is None else backlog.waited) or 0)
    left = f"more than {exact(backlog.allowed)}" if backlog.left is None else exact(backlog.left)
    waiting = f"{left} still waiting, {exact(backlog.allowed)} would do"
    never = (
        "never: it did not shrink, and was "
        if backlog.left is not None and backlog.left >= backlog.messages
        else ""
    )
    return f"{never}NOT drained within {waited} (backlogDrainTimeout; {waiting})"


def limit(section: PeakSection) -> str:
    """Return the limit of a search as a sentence."""
    first = "" if section.broke_first is None else f"; {section.broke_first} broke first"
    if section.limit == "generator":
        return f"limit: the generator, not the target: add workers (-n) to see more{first}"
    if section.limit == "maximum":
        return f"limit: search.max, not the target: raise it to see more{first}"
    if section.limit == "none":
        return (
            f"limit: unknown{first}"
            if section.rate is not None
            else f"limit: the objectives held at no rate tried{first}"
        )
    return f"limit: the target{first}"


def percentiles(latency: PartLatency | None, *names: str, absent: str = "-") -> tuple[str, ...]:
    """Format these percentiles, and the largest value. :param absent: the text of each if nothing was measured."""
    if latency is None or latency.clocks_disagree:
        return (absent if latency is None else UNKNOWN,) * (len(names) + 1)
    due = latency.samples + latency.never_came
    values = ((latency.percentiles[name], due < samples_needed(float(name[1:]))) for name in names)
    shown = (
        format_duration(value) if value is not None else "too few" if too_few else "never"
        for value, too_few in values
    )
    return (*shown, "never" if latency.maximum is None else format_duration(latency.maximum))


def mean_text(latency: PartLatency) -> str:
    """Format the mean."""
    return UNKNOWN if latency.clocks_disagree else format_duration(latency.mean)


def samples_text(latency: PartLatency) -> str:
    """Return the number of samples; with the reason if no statistic of them is known."""
    return exact(latency.samples) + (", clocks disagree" if latency.clocks_disagree else "")


def _lost(lost: int | None, measured: MeasurementsSection) -> str:
    return exact(lost) if measured.subscriptions and lost is not None else "-"


def format_figure(value: float | None, unit: str, absent: str = "-") -> str:
    """Format a figure with its unit."""
    if value is None:
        return absent
    if unit == "cores":
        return f"{value:.2f} cores"
    return f"{format_size(value)}/s" if unit == "B/s" else format_value(value, unit)
