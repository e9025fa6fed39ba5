"""The summary of a run for the terminal: the verdict first, then the measurements that it rests on."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report import arrival_facts, bottleneck, comparison, hosts, nodes, sections
from pytest_loadtest.report.document import MISSES_FIRST
from pytest_loadtest.report.sections import aligned, mark
from pytest_loadtest.values.quantities import (
    SECOND,
    format_bits,
    format_count,
    format_duration,
    format_rate,
    format_size,
)
from pytest_loadtest.values.wording import counted, exact, visible
from pytest_loadtest.verdict.observations import never_came
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import LatencySection, MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry

COLUMNS = ("p50", "p90", "p99", "p99.9")
ROWS = {metric.key: metric.row or metric.label for metric in LATENCIES.values()}
"""The first cell of each row in a table of latencies, by the key in results."""
ALWAYS = tuple(metric.key for metric in LATENCIES.values() if metric.always)
"""The latencies that have a row for every run, measured or not."""
_LABELS = {row.key: row.label for row in COUNTS}
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*#@"
MOST_RANGES = 5
WIDTH = 60
"""Characters of a plot; in a longer run each shows the worst of several seconds."""


def summary_lines(document: RunDocument, *, unicode: bool = True) -> list[str]:
    """Return the summary of one run. :param unicode: False for terminals that show only ASCII."""
    lines = [
        *_headline(document),
        *sections.peak(document, unicode),
        *_objectives(document, unicode),
    ]
    lines += sections.stages(document, unicode)
    measured = document.measurements
    if measured is not None and sections.only_connects(measured):
        lines += [
            *sections.labelled(sections.connection_facts(document)),
            *_latencies(measured.latencies, ()),
            *_generator(measured),
        ]
    elif measured is not None:
        lines += [
            *_rates(measured),
            *sections.labelled(sections.connection_facts(document)),
            *_latencies(measured.latencies),
            *sections.labelled(arrival_facts.stamp_facts(document)),
            *sections.labelled(arrival_facts.broker_time_facts(measured)),
            *sections.buckets(document),
            *sections.custom(measured),
            *_messages(measured, _checked_parts(document)),
            *sections.labelled(sections.delay_facts(measured)),
            *sections.labelled(sections.backlog_facts(document)),
            *_generator(measured),
            *_plots(measured, unicode),
        ]
    lines += comparison.comparison_lines(document.comparison, unicode=unicode)
    lines += sections.labelled(hosts.host_use_facts(document))
    lines += sections.labelled(nodes.node_facts(document))
    lines += sections.labelled(bottleneck.broker_facts(document.bottleneck))
    lines += bottleneck.bottleneck_lines(document.bottleneck)
    lines.append(f"  results    {document.results}")
    return [visible(line if unicode else line.translate(_TO_ASCII)) for line in lines]


_TO_ASCII = str.maketrans({"×": "x", "µ": "u", "—": "-", "–": "-", "·": "|", "→": ">", "…": "."})


def _headline(document: RunDocument) -> Iterable[str]:
    verdict, driver = document.verdict, document.driver
    findings = [finding for _, finding in sections.all_findings(document)]
    missed = sum(finding.outcome is Outcome.MISSED for finding in findings)
    of = f" ({missed} of {len(findings)} objectives)" if verdict.outcome is Outcome.MISSED else ""
    title = sections.titled(document.test, document.profile.name, document.workload)
    yield f"{title} · {verdict.outcome.upper()}{of}"
    if scale := sections.scale_of(document):
        changes = sections.scale_changes(document)
        yield f"  {scale.upper()} — says nothing about the full load{f' ({changes})' if changes else ''}"
    yield from _reasons(document)
    yield from (f"  note       {note}" for note in document.notes)
    yield f"  target     {_target(document.broker)}"
    for restart in document.restarts:
        ended = f"{restart.node} ended" if restart.node else "restarted"
        yield f"  broker     {ended} {format_duration(restart.down)} into the phase, {sections.restart_text(restart)}"
    yield from _driver(document)
    yield from sections.labelled(sections.incident_facts(document))
    if unset := driver.get("not_applied"):
        yield "  not set    " + "; ".join(f"{name}: {reason}" for name, reason in unset.items())


def _reasons(document: RunDocument) -> Iterable[str]:
    causes, remedy = sections.causes_and_remedy(document)
    yield from (f"  {'' if at else 'because':<10} {cause}" for at, cause in enumerate(causes))
    if remedy:
        yield f"  {'remedy':<10} {remedy}"


def _target(broker: Mapping[str, Any]) -> str:
    settings = ", ".join(
        f"{name}={value}" for name, value in (broker.get("settings") or {}).items()
    )
    return sections.target_text(broker) + (f" · {settings}" if settings else "")


def _driver(document: RunDocument) -> Iterable[str]:
    """Yield the client that ran, unless its name is the driver's; it is unknown if the run broke early."""
    client = document.driver.get("client")
    if client and client != document.profile.document.get("driver", {}).get("name"):
        yield f"  driver     {client} {document.driver.get('version')}"


def _checked_parts(document: RunDocument) -> str:
    """Return a note on the number of corrupt messages if payloads have no checksum."""
    return "" if document.profile.document.get("checksum") else " (heads and sizes alone)"


def _objectives(document: RunDocument, unicode: bool) -> Iterable[str]:
    """Yield misses and unknown results first, the others in the order of the profile; implicit ones that held share a line."""
    verdict = document.verdict
    rows: list[tuple[str, ...]] = [("objective", "observed", "bound", "samples", "")]
    marks = [" "]
    findings = sorted(verdict.findings, key=lambda finding: MISSES_FIRST.index(finding.outcome))
    held = [finding for finding in findings if finding.implicit and finding.outcome is Outcome.MET]
    for finding in findings:
        if finding not in held:
            rows.append(_row(finding, verdict.reasons))
            marks.append(mark(finding.outcome, unicode))
    if len(rows) > 1:
        width = max(map(len, marks))
        yield from (
            f"  {sign:<{width}} {row}"
            for sign, row in zip(marks, aligned(rows, "<><><"), strict=True)
        )
    if held:
        notes = {"corrupt": _checked_parts(document)}
        listed = ", ".join(
            f"{finding.name} {finding.shown.observed}{notes.get(finding.metric, '')}"
            for finding in held
        )
        yield f"  {mark(Outcome.MET, unicode)} implicit: {listed}"


def _row(finding: FindingEntry, reasons: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of a finding, with the cause if there is no number and the headline does not state it already."""
    shown, name, samples = finding.shown, sections.objective_name(finding), _samples(finding)
    if sections.has_number(finding):
        return name, shown.observed, shown.bound, samples, shown.over
    cause = sections.cause(finding)
    return (
        name,
        finding.outcome,
        shown.bound,
        samples,
        "" if cause in reasons or finding.text in reasons else cause,
    )


def _samples(finding: FindingEntry) -> str:
    return "-" if finding.samples is None else exact(finding.samples)


def _rates(measured: MeasurementsSection) -> Iterable[str]:
    per_second = measured.bytes_sent / (measured.duration / 1e9)
    offered, sent, delivered = (
        format_rate(measured.rate),
        format_rate(measured.publish_rate),
        sections.delivered_text(measured),
    )
    yield (
        f"  rate       offered {offered}, sent {sent}, delivered {delivered}"
        f" for {format_duration(measured.duration)} · {format_size(per_second)}/s, {format_bits(per_second * 8)}{_fanned_out(measured)}"
    )


def _fanned_out(measured: MeasurementsSection) -> str:
    """Return the rate out of the target if each message goes to several subscriptions: received messages × mean size, by size bucket."""
    parts, seconds = [part for part in measured.buckets if part.sent], measured.duration / 1e9
    if measured.subscriptions < 2 or not parts:
        return ""
    received = sum(part.received_in_time * part.bytes_sent / part.sent for part in parts)
    return f"; out of the target {format_rate(measured.count('receivedInTime') / seconds)}, {format_bits(received * 8 / seconds)}"


def latency_rows(
    latencies: Mapping[str, LatencySection | None], always: Sequence[str] = ALWAYS
) -> list[str]:
    """Return the keys of the rows in a table of latencies: those that every run has, then the others of this run."""
    return [key for key in ROWS if key in always or (key in latencies and key not in ALWAYS)]


def _latencies(
    latencies: Mapping[str, LatencySection | None], always: Sequence[str] = ALWAYS
) -> Iterable[str]:
    rows: list[tuple[str, ...]] = [("latency", *COLUMNS, "max", "mean", "samples")]
    for key in latency_rows(latencies, always):
        latency = latencies[key]
        if latency is None:
            rows.append((ROWS[key], *("-",) * 6, "not measured"))
            continue
        shown = sections.percentiles(latency, *COLUMNS)
        samples = sections.samples_text(latency) + never_came(latency.never_came)
        rows.append((ROWS[key], *shown, sections.mean_text(latency), samples))
    return (f"  {row}" for row in aligned(rows, "<>>>>>>>"))


def _messages(measured: MeasurementsSection, checked: str) -> Iterable[str]:
    counts = measured.counts
    yield "  out        " + _listed(
        counts, ("offered", "sent", "acked", "failed", "dropped", "unknown")
    )
    if not measured.subscriptions:
        yield "  in         not applicable: nothing subscribes in this run"
        yield from _silent(measured)
        return
    received = _listed(counts, ("received", "lost", "duplicates"))
    if counts["resent"]:
        received += f" ({exact(measured.count('duplicatesOfResent'))} of resent messages)"
    wrong = _listed(counts, ("outOfOrder", "foreign", "corrupt"))
    yield f"  in         {exact(measured.count('acked') * measured.subscriptions)} due, {received}, {wrong}{checked}"
    yield from _silent(measured)
    ranges = measured.lost
    for label, lost in zip(
        itertools.chain(("lost",), itertools.repeat("")), ranges[:MOST_RANGES], strict=False
    ):
        last = "" if lost.last == lost.first else f"–{lost.last}"
        yield f"  {label:<10} {lost.first}{last} of stream {lost.stream} (topic {lost.topic}, subscription {lost.subscription})"
    if len(ranges) > MOST_RANGES:
        yield f"             … and {counted(len(ranges) - MOST_RANGES, 'more range')} in results.json"


def _silent(measured: MeasurementsSection) -> Iterable[str]:
    if text := sections.silent_text(measured):
        yield f"  silent     {text}"


def _listed(counts: Mapping[str, int | None], keys: Sequence[str]) -> str:
    values = ((_LABELS[key], counts[key]) for key in keys)
    return ", ".join(
        f"{label} {'not applicable' if value is None else exact(value)}" for label, value in values
    )


def _generator(measured: MeasurementsSection) -> Iterable[str]:
    """Yield the busiest workers; the time of waiting for the target's full window has its own line, because the target causes it."""
    workers = sorted(measured.workers, key=lambda worker: worker.cpu, reverse=True)
    if workers:
        busiest = ", ".join(f"{worker.worker} {worker.cpu:.2f} cores" for worker in workers[:4])
        more = f" and {len(workers) - 4} more" if len(workers) > 4 else ""
        longest = max(worker.longest_stall for worker in workers)
        stalled = f"longest stall {format_duration(longest)}" if longest else "no stalls"
        yield f"  generator  {busiest}{more} · {stalled} · GC {format_duration(max(worker.gc for worker in workers))}"
    if measured.blocked:
        yield f"  blocked    {sections.blocked_text(measured)}"


def _plots(measured: MeasurementsSection, unicode: bool) -> Iterable[str]:
    seconds = measured.duration // SECOND or 1  # the seconds of the drain have no rate
    received, latencies = measured.series.received[:seconds], measured.series.end_to_end_p99
    if len(received) < 2:
        return
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    yield f"  received/s {sparkline(received, blocks, worst=min)}  {format_count(min(received))} to {format_count(max(received))}"
    known = [value for value in latencies if value is not None]
    if known:
        yield f"  p99/s      {sparkline(latencies, blocks, worst=max)}  {format_duration(min(known))} to {format_duration(max(known))}"


def sparkline(values: Sequence[float | None], blocks: str, *, worst: Any) -> str:
    """Return one character for each second, from 0 to the largest value; a space where nothing was measured.

    :param worst: ``min`` or ``max``: selects one of several seconds if the run is longer than the plot.
    """
    step = -(-len(values) // WIDTH)
    known = [
        [value for value in values[at : at + step] if value is not None]
        for at in range(0, len(values), step)
    ]
    picked = [worst(group) if group else None for group in known]
    top = max((value for value in picked if value is not None), default=0) or 1
    return "".join(
        " " if value is None else blocks[min(int(value / top * len(blocks)), len(blocks) - 1)]
        for value in picked
    )
