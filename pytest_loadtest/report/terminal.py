"""The summary of a run for the terminal: the verdict, then the measurements it rests on.

With ``-v`` it is complete (:func:`summary_lines`). Otherwise a met run has two lines, and another
run its causes and at most :data:`MOST_LINES` lines in all (:func:`brief_lines`); with ``-q`` only
what is wrong is left (:func:`quiet_lines`). What a run has changed or could not apply is in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report import arrival_facts, bottleneck, comparison, hosts, nodes, sections
from pytest_loadtest.report.document import MISSES_FIRST, RunDocument
from pytest_loadtest.report.margins import bound_text, margin_text, tightest_first
from pytest_loadtest.report.sections import cause, known_of, mark
from pytest_loadtest.report.strays import stray_facts
from pytest_loadtest.report.tables import Table, terminal_lines
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

    from pytest_loadtest.metrics.measurements import Lost
    from pytest_loadtest.report.measurements_section import LatencySection, MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry

COLUMNS = ("p50", "p90", "p99", "p99.9")
ROWS = {
    metric.key: "  " * metric.indented + metric.label
    for metric in LATENCIES.values()
    if not metric.route_part
}
"""The first cell of each row in a table of latencies, by the key in results."""
ALWAYS = tuple(metric.key for metric in LATENCIES.values() if metric.always)
"""The latencies that have a row for every run, measured or not."""
COUNT_LABELS = {row.key: row.label for row in COUNTS}
"""The names of counts, by the key in results."""
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*#@"
MOST_RANGES = 5
MOST_LINES = 25
"""Lines of the brief summary of a run that was not met."""
WIDTH = 60
"""Characters of a plot; in a longer run each shows the worst of several seconds."""


def summary_lines(document: RunDocument, *, unicode: bool = True) -> list[str]:
    """Return the summary of one run. :param unicode: False for terminals that show only ASCII."""
    lines = [
        _title(document),
        *_causes(document),
        *_changed(document),
        *_circumstances(document),
        *sections.peak(document, unicode),
        *_objectives(document, unicode),
        *sections.stages(document, unicode),
        *_measured(document, unicode),
        *comparison.comparison_lines(document.comparison, unicode=unicode),
        *_hosts_and_broker(document),
        *bottleneck.bottleneck_lines(document.bottleneck),
        f"  results    {document.results}",
    ]
    return _printable(lines, unicode)


def brief_lines(document: RunDocument, *, unicode: bool = True) -> list[str]:
    """Return the summary of one run that is printed without ``-v``.

    A met run has two lines, and its notes.
    """
    outcome = document.verdict.outcome
    title = f"{mark(outcome, unicode)} {_title(document)}"
    if outcome is Outcome.MET:
        scale = sections.scale_of(document)
        if scale:
            changes = sections.scale_changes(document)
            title += f" · {scale.upper()}" + (f" ({changes})" if changes else "")
        return _printable([title, f"  {_figures(document)}", *_changed(document)], unicode)
    first = [title, *_causes(document), *_changed(document)]
    rest = [
        *_not_met(document, unicode),
        *bottleneck.bottleneck_lines(document.bottleneck),
        *_circumstances(document),
        *sections.peak(document, unicode),
        *_measured(document, unicode),
        *comparison.comparison_lines(document.comparison, unicode=unicode),
        *_hosts_and_broker(document),
    ]
    # One line for the results, one for the number of those left out.
    room = max(MOST_LINES - len(first) - 2, 0)
    lines = first + rest[:room]
    if len(rest) > room:
        lines.append(f"  … {counted(len(rest) - room, 'more line')} with -v")
    return _printable([*lines, f"  results    {document.results}"], unicode)


def quiet_lines(document: RunDocument, *, unicode: bool = True) -> list[str]:
    """Return what is printed of one run with ``-q``: its causes, or only the notes of a met run."""
    outcome = document.verdict.outcome
    changed = list(_changed(document))
    if outcome is Outcome.MET and not changed:
        return []
    lines = [f"{mark(outcome, unicode)} {_title(document)}"]
    if outcome is not Outcome.MET:
        lines += _causes(document)
    return _printable([*lines, *changed, *_not_met(document, unicode)], unicode)


def session_line(outcomes: Iterable[Outcome], reduced: int) -> str:
    """Return the session in one line: ``load tests: 1 missed, 6 met; 7 scaled or shortened``.

    :param reduced: runs that did not have the whole load of their profile.
    """
    text = f"load tests: {sections.counts_text(outcomes)}"
    return f"{text}; {reduced} scaled or shortened" if reduced else text


def _printable(lines: Iterable[str], unicode: bool) -> list[str]:
    if not unicode:
        lines = [line.translate(_TO_ASCII) for line in lines]
    return [visible(line) for line in lines]


def _hosts_and_broker(document: RunDocument) -> Iterable[str]:
    yield from sections.labelled(hosts.host_use_facts(document))
    yield from sections.labelled(nodes.node_facts(document))
    yield from sections.labelled(bottleneck.broker_facts(document.bottleneck))


def _figures(document: RunDocument) -> str:
    """Return the most important figures of a met run, and its tightest objective."""
    measured = document.measurements
    parts = []
    if document.peak is not None:
        parts.append(f"peak {sections.answer(document.peak)}")
    if measured is not None and sections.only_connects(measured):
        parts += [f"{label} {text}" for label, text in sections.connection_facts(document)]
    elif measured is not None:
        metric = LATENCIES["end_to_end" if measured.subscriptions else "publish"]
        p50, p99, _ = sections.percentiles(measured.latencies.get(metric.key), "p50", "p99")
        rate = sections.delivered_text(measured, no_consumers=format_rate(measured.publish_rate))
        lost = count_text(measured.applicable_count("lost"))
        parts.append(f"{rate}, {metric.label} p50 {p50}, p99 {p99}, lost {lost}")
    tightest = next(iter(tightest_first(document)), None)
    if tightest is not None:
        margin = margin_text(tightest[1])
        parts.append(f"tightest {bound_text(tightest)}" + (f", {margin}" if margin else ""))
    return " · ".join(parts)


def _not_met(document: RunDocument, unicode: bool) -> Iterable[str]:
    """Yield a line for each objective that was not met, those of stages too, misses first.

    One without a number, whose cause the headline states already, is left out.
    """
    for prefix, finding in tightest_first(document):
        if finding.outcome is Outcome.MET:
            continue
        if not _is_stated(finding, document.verdict.reasons):
            yield f"  {mark(finding.outcome, unicode)} {prefix}{finding.text}"


def _measured(document: RunDocument, unicode: bool) -> list[str]:
    """Return the lines of the measurements; none if nothing was measured."""
    measured = document.measurements
    routed = document.profile.route is not None
    lines = []
    if measured is not None and sections.only_connects(measured):
        lines += [
            *sections.labelled(sections.connection_facts(document)),
            *_latencies(measured.latencies, ()),
            *_generator(measured),
        ]
    elif measured is not None:
        lines += [
            *_rates(measured, routed=routed),
            *sections.labelled(sections.connection_facts(document)),
            *_latencies(measured.latencies),
            *sections.labelled(arrival_facts.stamp_facts(document)),
            *sections.labelled(arrival_facts.broker_time_facts(measured, routed=routed)),
            *sections.buckets(document),
            *sections.custom(measured),
            *_messages(measured, _checked_parts(document)),
            *sections.labelled(sections.delay_facts(measured)),
            *sections.labelled(sections.backlog_facts(document)),
            *_generator(measured),
            *_plots(measured, unicode),
        ]
    return lines


_TO_ASCII = str.maketrans({"×": "x", "µ": "u", "—": "-", "–": "-", "·": "|", "→": ">", "…": "."})


def _title(document: RunDocument) -> str:
    verdict = document.verdict
    title = sections.titled(document.test, document.profile.name, document.workload)
    title += f" · {verdict.outcome.upper()}"
    if verdict.outcome is Outcome.MISSED:
        missed = len(sections.missed_texts(document))
        title += f" ({missed} of {len(list(sections.all_findings(document)))} objectives)"
    return title


def _causes(document: RunDocument) -> Iterable[str]:
    """Yield whether the run says nothing about the full load, and why it is not met."""
    if scale := sections.scale_of(document):
        line = f"  {scale.upper()} — says nothing about the full load"
        changes = sections.scale_changes(document)
        yield f"{line} ({changes})" if changes else line
    causes, remedy = sections.causes_and_remedy(document)
    yield from sections.labelled(sections.continued("because", causes))
    if remedy:
        yield f"  remedy     {remedy}"


def _changed(document: RunDocument) -> Iterable[str]:
    """Yield what the run has changed, or could not apply."""
    for note in document.notes:
        yield f"  note       {note}"
    if unset := document.driver.get("not_applied"):
        yield "  not set    " + "; ".join(f"{name}: {reason}" for name, reason in unset.items())


def _circumstances(document: RunDocument) -> Iterable[str]:
    """Yield target, client, and what happened to them during the run."""
    yield f"  target     {_target(document.broker)}"
    if document.profile.route is not None:
        yield f"  route      {document.profile.route}"
    for restart in document.restarts:
        ended = f"{restart.node} ended" if restart.node else "restarted"
        when = f"{format_duration(restart.down)} into the phase"
        yield f"  broker     {ended} {when}, {sections.restart_text(restart)}"
    yield from _driver(document)
    yield from sections.labelled(sections.incident_facts(document))


def _target(broker: Mapping[str, Any]) -> str:
    text = sections.target_text(broker)
    if settings := broker.get("settings"):
        text += " · " + ", ".join(f"{name}={value}" for name, value in settings.items())
    return text


def _driver(document: RunDocument) -> Iterable[str]:
    """Yield the client that ran, unless its name is the driver's.

    It is unknown if the run broke early.
    """
    client = document.driver.get("client")
    if client and client != document.profile.document.get("driver", {}).get("name"):
        yield f"  driver     {client} {document.driver.get('version')}"


def _checked_parts(document: RunDocument) -> str:
    """Return a note on the number of corrupt messages if only parts of them are checked."""
    checked = document.profile.checked_parts
    return "" if checked is None else f" ({checked} alone)"


def _objectives(document: RunDocument, unicode: bool) -> Iterable[str]:
    """Yield misses and unknown results first, the others in the order of the profile.

    Implicit objectives that held share a line.
    """
    rows = []
    marks = []
    held = []
    notes = {"corrupt": _checked_parts(document)}
    findings = document.verdict.findings
    for finding in sorted(findings, key=lambda finding: MISSES_FIRST.index(finding.outcome)):
        if finding.implicit and finding.outcome is Outcome.MET:
            note = notes.get(finding.metric, "")
            held.append(f"{finding.name} {finding.shown.observed}{note}")
        else:
            rows.append(_row(finding, document.verdict.reasons))
            marks.append(mark(finding.outcome, unicode))
    if rows:
        head = ("objective", "observed", "bound", "samples", "")
        yield from terminal_lines(Table(head=head, align="<><><", rows=rows), marks)
    if held:
        yield f"  {mark(Outcome.MET, unicode)} implicit: {', '.join(held)}"


def _is_stated(finding: FindingEntry, reasons: Sequence[str]) -> bool:
    """Return True if the headline states the cause of a finding already."""
    return finding.text in reasons or cause(finding) in reasons


def _row(finding: FindingEntry, reasons: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of a finding, with the cause if there is no number.

    A cause that the headline states already is left out.
    """
    shown = finding.shown
    observed = shown.observed
    note = shown.over
    if not sections.has_number(finding):
        observed = finding.outcome
        note = cause(finding)
        if _is_stated(finding, reasons):
            note = ""
    samples = "-" if finding.samples is None else exact(finding.samples)
    return sections.objective_name(finding), observed, shown.bound, samples, note


def _rates(measured: MeasurementsSection, *, routed: bool) -> Iterable[str]:
    offered = format_rate(measured.rate)
    sent = format_rate(measured.publish_rate)
    delivered = sections.delivered_text(measured)
    messages = f"offered {offered}, sent {sent}, delivered {delivered}"
    per_second = measured.bytes_sent / (measured.duration / 1e9)
    payload = f"{format_size(per_second)}/s, {format_bits(per_second * 8)}"
    payload += _fanned_out(measured, routed=routed)
    yield f"  rate       {messages} for {format_duration(measured.duration)} · {payload}"


def _fanned_out(measured: MeasurementsSection, *, routed: bool) -> str:
    """Return the rate out of the target if several deliveries are due for each message.

    Its bits are the sum of received messages × mean size, by size bucket. The bodies that a service
    makes have sizes of their own, which are not counted.
    """
    parts = [part for part in measured.buckets if part.sent]
    if measured.fan_out < 2 or not parts:
        return ""
    seconds = measured.duration / 1e9
    received = sum(part.received_in_time * part.bytes_sent / part.sent for part in parts)
    rate = format_rate(measured.count("receivedInTime") / seconds)
    bits = "" if routed else f", {format_bits(received * 8 / seconds)}"
    return f"; out of the target {rate}{bits}"


def latency_rows(
    latencies: Mapping[str, LatencySection | None], always: Sequence[str] = ALWAYS
) -> list[str]:
    """Return the keys of the rows in a table of latencies.

    Those that every run has come first, then the others of this run.
    """
    return [key for key in ROWS if key in always or (key in latencies and key not in ALWAYS)]


def _latencies(
    latencies: Mapping[str, LatencySection | None], always: Sequence[str] = ALWAYS
) -> Iterable[str]:
    rows: list[tuple[str, ...]] = []
    for key in latency_rows(latencies, always):
        latency = latencies[key]
        if latency is None:
            rows.append((ROWS[key], *("-",) * 6, "not measured"))
            continue
        shown = sections.percentiles(latency, *COLUMNS)
        samples = sections.samples_text(latency) + never_came(latency.never_came)
        rows.append((ROWS[key], *shown, sections.mean_text(latency), samples))
    head = ("latency", *COLUMNS, "max", "mean", "samples")
    return terminal_lines(Table(head=head, rows=rows))


def _messages(measured: MeasurementsSection, checked: str) -> Iterable[str]:
    counts = measured.counts
    sent = ("offered", "sent", "acked", "failed", "dropped", "unknown")
    yield f"  out        {_listed(counts, sent)}"
    if not measured.subscriptions:
        yield "  in         not applicable: nothing subscribes in this run"
        yield from _silent(measured)
        return
    if measured.others_send:
        yield f"  in         {_listed(counts, ('received',))}; the rest is unknown: others send"
        return
    due = f"{exact(measured.count('acked') * measured.fan_out)} due"
    if measured.answered is not None:
        due = f"{exact(measured.answered)} of {due} at most (percentiles are of those that came)"
    received = _listed(counts, ("received", "lost", "duplicates"))
    if counts["resent"]:
        received += f" ({exact(measured.count('duplicatesOfResent'))} of resent messages)"
    wrong = _listed(counts, ("outOfOrder", "foreign", "corrupt"))
    yield f"  in         {due}, {received}, {wrong}{checked}"
    yield from sections.labelled(stray_facts(measured))
    yield from _silent(measured)
    ranges = map(_range_text, measured.lost[:MOST_RANGES])
    yield from sections.labelled(sections.continued("lost", ranges))
    more = len(measured.lost) - MOST_RANGES
    if more > 0:
        yield f"             … and {counted(more, 'more range')} in results.json"


def _range_text(lost: Lost) -> str:
    last = "" if lost.last == lost.first else f"–{lost.last}"
    where = f"topic {lost.topic}, subscription {lost.subscription}"
    return f"{lost.first}{last} of stream {lost.stream} ({where})"


def _silent(measured: MeasurementsSection) -> Iterable[str]:
    if text := sections.silent_text(measured):
        yield f"  silent     {text}"


def _listed(counts: Mapping[str, int | None], keys: Sequence[str]) -> str:
    return ", ".join(f"{COUNT_LABELS[key]} {count_text(counts[key])}" for key in keys)


def count_text(count: int | None) -> str:
    """Format a count; None: it does not apply to the run."""
    return "not applicable" if count is None else exact(count)


def _generator(measured: MeasurementsSection) -> Iterable[str]:
    """Yield the busiest workers.

    The time of waiting for the target's full window has its own line, because the target causes it.
    """
    workers = sorted(measured.workers, key=lambda worker: worker.cpu, reverse=True)
    if workers:
        busiest = ", ".join(f"{worker.worker} {worker.cpu:.2f} cores" for worker in workers[:4])
        if len(workers) > 4:
            busiest += f" and {len(workers) - 4} more"
        longest = max(worker.longest_stall for worker in workers)
        stalled = f"longest stall {format_duration(longest)}" if longest else "no stalls"
        collected = format_duration(max(worker.gc for worker in workers))
        yield f"  generator  {busiest} · {stalled} · GC {collected}"
    if measured.blocked:
        yield f"  blocked    {sections.blocked_text(measured)}"


def _plots(measured: MeasurementsSection, unicode: bool) -> Iterable[str]:
    # The seconds of the drain have no rate.
    received = measured.series.received[: measured.duration // SECOND or 1]
    if len(received) < 2 or not measured.subscriptions:
        return
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    ends = f"{format_count(min(received))} to {format_count(max(received))}"
    yield f"  received/s {sparkline(received, blocks, worst=min)}  {ends}"
    latencies = measured.series.end_to_end_p99
    known = known_of(latencies)
    if known:
        ends = f"{format_duration(min(known))} to {format_duration(max(known))}"
        yield f"  p99/s      {sparkline(latencies, blocks, worst=max)}  {ends}"


def sparkline(values: Sequence[float | None], blocks: str, *, worst: Any) -> str:
    """Return one character for each second, from 0 to the largest value; a space for unknown ones.

    :param worst: ``min`` or ``max``: selects one of several seconds if the run is longer than the
        plot.
    """
    step = -(-len(values) // WIDTH)
    picked = []
    for at in range(0, len(values), step):
        picked.append(worst(known_of(values[at : at + step]), default=None))
    return "".join(spark_cells(picked, blocks))


def spark_cells(values: Sequence[float | None], blocks: str) -> list[str]:
    """Return a character for each value, from 0 to the largest; a space for missing ones."""
    top = max(known_of(values), default=0) or 1
    cells = []
    for value in values:
        height = int(max(value or 0, 0) / top * len(blocks))
        cells.append(" " if value is None else blocks[min(height, len(blocks) - 1)])
    return cells
