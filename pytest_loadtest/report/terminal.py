"""A run's document as lines that people read: the verdict first, then what it rests on."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report import bottleneck, sections
from pytest_loadtest.report.document import MISSES_FIRST
from pytest_loadtest.report.sections import aligned, mark
from pytest_loadtest.values.quantities import format_bits, format_count, format_duration, format_rate, format_size
from pytest_loadtest.values.wording import exact, format_value, with_version
from pytest_loadtest.verdict.observations import never_came

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.report.document import Document

COLUMNS = ("p50", "p90", "p99", "p99.9")
ROWS = {metric.key: metric.row or metric.label for metric in LATENCIES.values()}
"""The latencies of a table by their key in results: what stands at the head of the row."""
ALWAYS = tuple(metric.key for metric in LATENCIES.values() if metric.always)
"""Those that every run has a row for, also where they were not measured."""
_LABELS = {row.key: row.label for row in COUNTS}
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*#@"
MOST_RANGES = 5
WIDTH = 60
"""Seconds in a plot; a longer run shows the worst of several seconds in one place."""


def summary_lines(document: Document, *, unicode: bool = True) -> list[str]:
    """The summary of one run. ``unicode=False`` for terminals that cannot show more than ASCII."""
    found = [*_headline(document), *sections.peak(document, unicode), *_objectives(document, unicode)]
    found += sections.stages(document, unicode)
    measured = document["measurements"]
    if measured is not None and sections.only_connects(measured):
        found += [*sections.labelled(sections.connection_facts(document)), *_latencies(measured["latencies"], ()), *_generator(measured)]
    elif measured is not None:
        found += [
            *_rates(measured),
            *sections.labelled(sections.connection_facts(document)),
            *_latencies(measured["latencies"]),
            *sections.buckets(document),
            *sections.custom(measured),
            *_messages(measured, _looked_at(document)),
            *sections.labelled(sections.delay_facts(measured)),
            *sections.labelled(sections.backlog_facts(document)),
            *_generator(measured),
            *_plots(measured, unicode),
        ]
    found += sections.comparison_lines(document.get("comparison"), unicode=unicode)
    found += sections.labelled(bottleneck.broker_facts(document.get("bottleneck")))
    found += bottleneck.bottleneck_lines(document.get("bottleneck"))  # older results have none
    found.append(f"  results    {document['results']}")
    return found if unicode else [line.translate(_TO_ASCII) for line in found]


_TO_ASCII = str.maketrans({"×": "x", "µ": "u", "—": "-", "–": "-", "·": "|", "→": ">", "…": "."})


def _headline(document: Document) -> Iterable[str]:
    verdict = document["verdict"]
    findings = [finding for _, finding in sections.all_findings(document)]
    missed = sum(finding["outcome"] == "missed" for finding in findings)
    of = f" ({missed} of {len(findings)} objectives)" if verdict["outcome"] == "missed" else ""
    title = sections.titled(document["test"], document["profile"]["name"], document["workload"])
    yield f"{title} · {verdict['outcome'].upper()}{of}"
    if scale := sections.scale_of(document):
        changes = sections.scale_changes(document)
        yield f"  {scale.upper()} — says nothing about the full load{f' ({changes})' if changes else ''}"
    yield from _reasons(verdict)
    yield from (f"  note       {note}" for note in document["notes"])
    yield f"  target     {_target(document['broker'])}"
    for restart in document["broker"].get("restarts", ()):
        took = "not ready again" if restart["ready"] is None else f"ready {format_duration(restart['ready'] - restart['down'])} later"
        yield f"  broker     restarted {format_duration(restart['down'])} into the phase, {took}"
    yield from _driver(document)
    for name, losses in (document["driver"].get("applied") or {}).items():
        if name.startswith("connectionsLost"):
            yield f"  {name}: {losses}"
    unset = document["driver"].get("not_applied") or {}
    if unset:
        yield "  not set    " + "; ".join(f"{name}: {reason}" for name, reason in unset.items())


def _reasons(verdict: Document) -> Iterable[str]:
    """Why the run cannot be judged; what to change about a slow generator stands last."""
    for at, reason in enumerate(verdict["reasons"]):
        last = verdict["outcome"] == "generator-limited" and reason == verdict["reasons"][-1]
        yield f"  {'remedy' if last else '' if at else 'because':<10} {reason}"


def _target(broker: Document) -> str:
    if not broker:
        return "none was started"
    settings = ", ".join(f"{name}={value}" for name, value in (broker.get("settings") or {}).items())
    stand_in = "" if broker.get("evidence", True) else " — a stand-in, no evidence about the real broker"
    beside = f"{broker['subscriberUrl']} for subscribers" if broker.get("subscriberUrl") else None
    where = ", ".join(str(part) for part in (broker.get("mode"), broker.get("url"), beside) if part)
    return f"{with_version(str(broker.get('name')), str(broker.get('version')))} ({where}){stand_in}{f' · {settings}' if settings else ''}"


def _driver(document: Document) -> Iterable[str]:
    """The client that ran. A driver that has but one, named as the driver, tells nothing by it; of a run that broke early none is known."""
    client = document["driver"].get("client")
    if client and client != document["profile"]["document"].get("driver", {}).get("name"):
        yield f"  driver     {client} {document['driver'].get('version')}"


def _looked_at(document: Document) -> str:
    """What stands behind a number of corrupt messages: how far they were looked into."""
    return "" if document["profile"]["document"].get("checksum") else " (heads and sizes alone)"


def _objectives(document: Document, unicode: bool) -> Iterable[str]:
    """Misses and what could not be told first, otherwise in the order of the profile; implicit ones that held in one line."""
    verdict = document["verdict"]
    rows: list[tuple[str, ...]] = [("objective", "observed", "bound", "samples", "")]
    marks = [" "]
    findings = sorted(verdict["findings"], key=lambda finding: MISSES_FIRST.index(finding["outcome"]))
    held = [finding for finding in findings if finding["implicit"] and finding["outcome"] == "met"]
    for finding in findings:
        if finding not in held:
            rows.append(_row(finding, verdict["reasons"]))
            marks.append(mark(finding["outcome"], unicode))
    if len(rows) > 1:
        width = max(map(len, marks))
        yield from (f"  {mark:<{width}} {row}" for mark, row in zip(marks, aligned(rows, "<><><"), strict=True))
    if held:
        said = {"corrupt": _looked_at(document)}
        listed = ", ".join(f"{finding['name']} {finding['shown']['observed']}{said.get(finding['metric'], '')}" for finding in held)
        yield f"  {mark('met', unicode)} implicit: {listed}"


def _row(finding: Document, reasons: Sequence[str]) -> tuple[str, ...]:
    """The cells of one finding; why there is no number only where the headline does not say it already."""
    shown, name = finding["shown"], finding["name"] + (" (implicit)" if finding["implicit"] else "")
    if finding["observed"] is not None or shown["over"]:  # or so many never came that there is no number
        return name, shown["observed"], shown["bound"], _samples(finding), shown["over"]
    cause = finding["text"].partition(": ")[2]
    said = cause in reasons or finding["text"] in reasons
    return name, finding["outcome"], shown["bound"], _samples(finding), "" if said else cause


def _samples(finding: Document) -> str:
    return "-" if finding["samples"] is None else exact(finding["samples"])


def _rates(measured: Document) -> Iterable[str]:
    seconds = measured["duration"] / 1e9
    absent = "none" if measured["subscriptions"] else "nowhere (nothing subscribes)"
    throughput = absent if measured["throughput"] is None else format_rate(measured["throughput"])
    per_second = measured["bytesSent"] / seconds
    yield (
        f"  rate       offered {format_rate(measured['rate'])}, sent {format_rate(measured['publishRate'])}, delivered {throughput}"
        f" for {format_duration(measured['duration'])} · {format_size(per_second)}/s, {format_bits(per_second)}{_fanned_out(measured)}"
    )


def _fanned_out(measured: Document) -> str:
    """What the target gave out, where each message goes to several subscriptions: of each size bucket what came, in the mean size sent."""
    parts, seconds = [part for part in measured["buckets"] if part["sent"]], measured["duration"] / 1e9
    if measured["subscriptions"] < 2 or not parts:
        return ""
    came = sum(part["receivedInTime"] * part["bytesSent"] / part["sent"] for part in parts)
    return f"; out of the target {format_rate(measured['counts']['receivedInTime'] / seconds)}, {format_bits(came / seconds)}"


def latency_rows(latencies: Document, always: Sequence[str] = ALWAYS) -> list[str]:
    """The keys of the rows of a table of latencies: those of every run, then the others that this one has."""
    return [key for key in ROWS if key in always or (key in latencies and key not in ALWAYS)]


def _latencies(latencies: Document, always: Sequence[str] = ALWAYS) -> Iterable[str]:
    rows: list[tuple[str, ...]] = [("latency", *COLUMNS, "max", "mean", "samples")]
    for key in latency_rows(latencies, always):
        latency = latencies[key]
        if latency is None:
            rows.append((ROWS[key], *("-",) * 6, "not measured"))
            continue
        shown = sections.percentiles(latency, *COLUMNS)
        samples = exact(latency["samples"]) + never_came(latency["neverCame"])
        rows.append((ROWS[key], *shown, format_duration(latency["mean"]), samples))
    return (f"  {row}" for row in aligned(rows, "<>>>>>>>"))


def _messages(measured: Document, looked_at: str) -> Iterable[str]:
    counts = measured["counts"]
    due = counts["acked"] * measured["subscriptions"]
    yield "  out        " + _listed(counts, ("offered", "sent", "acked", "failed", "dropped", "unknown"))
    if not measured["subscriptions"]:
        yield "  in         not applicable: nothing subscribes in this run"
        yield from _silent(measured)
        return
    came = _listed(counts, ("received", "lost", "duplicates"))
    if counts["resent"]:
        came += f" ({exact(counts['duplicatesOfResent'])} of resent messages)"
    wrong = _listed(counts, ("outOfOrder", "foreign", "corrupt"))
    yield f"  in         {exact(due)} due, {came}, {wrong}{looked_at}"
    yield from _silent(measured)
    ranges = measured["lost"]
    for label, lost in zip(itertools.chain(("lost",), itertools.repeat("")), ranges[:MOST_RANGES], strict=False):
        last = "" if lost["last"] == lost["first"] else f"–{lost['last']}"
        yield f"  {label:<10} {lost['first']}{last} of stream {lost['stream']} (topic {lost['topic']}, subscription {lost['subscription']})"
    if len(ranges) > MOST_RANGES:
        yield f"             … and {exact(len(ranges) - MOST_RANGES)} more ranges in results.json"


def _silent(measured: Document) -> Iterable[str]:
    if text := sections.silent(measured):
        yield f"  silent     {text}"


def _listed(counts: Document, keys: Sequence[str]) -> str:
    return ", ".join(f"{_LABELS[key]} {'not applicable' if counts[key] is None else exact(counts[key])}" for key in keys)


def _generator(measured: Document) -> Iterable[str]:
    """The workers that fared worst; time before the target's full window stands apart, because it is the target's."""
    workers: list[dict[str, Any]] = sorted(measured["workers"], key=lambda worker: worker["cpu"], reverse=True)
    if workers:
        busiest = ", ".join(f"{worker['worker']} {worker['cpu']:.2f} cores" for worker in workers[:4])
        more = f" and {len(workers) - 4} more" if len(workers) > 4 else ""
        longest = max(worker["longestStall"] for worker in workers)
        stalled = f"longest stall {format_duration(longest)}" if longest else "no stalls"
        yield f"  generator  {busiest}{more} · {stalled} · GC {format_duration(max(worker['gc'] for worker in workers))}"
    if measured["blocked"]:
        share = format_value(measured["blockedShare"], "ratio", 2)
        blocked = format_duration(measured["blocked"])
        yield f"  blocked    {blocked} summed over messages, {share} of the send delay: the target's full window"


def _plots(measured: Document, unicode: bool) -> Iterable[str]:
    series = measured["series"]
    received = series["received"]
    if len(received) < 2:
        return
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    yield f"  received/s {sparkline(received, blocks, worst=min)}  {format_count(min(received))} to {format_count(max(received))}"
    tail = [value for value in series["endToEndP99"] if value is not None]
    if tail:
        spark = sparkline(series["endToEndP99"], blocks, worst=max)
        yield f"  p99/s      {spark}  {format_duration(min(tail))} to {format_duration(max(tail))}"


def sparkline(values: Sequence[float | None], blocks: str, *, worst: Any) -> str:
    """One character a second, from 0 to the largest value; a gap where nothing was measured.

    :param worst: ``min`` or ``max``, which of several seconds to show where the run is longer than the plot.
    """
    step = -(-len(values) // WIDTH)
    known = [[value for value in values[at : at + step] if value is not None] for at in range(0, len(values), step)]
    picked = [worst(group) if group else None for group in known]
    top = max((value for value in picked if value is not None), default=0) or 1
    return "".join(" " if value is None else blocks[min(int(value / top * len(blocks)), len(blocks) - 1)] for value in picked)
