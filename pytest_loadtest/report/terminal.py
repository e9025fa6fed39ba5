"""A run's document as lines that people read: the verdict first, then what it rests on."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from pytest_loadtest.quantities import format_bits, format_count, format_duration, format_rate, format_size
from pytest_loadtest.report import sections
from pytest_loadtest.report.sections import aligned, mark
from pytest_loadtest.wording import exact, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.report.document import Document

COLUMNS = ("p50", "p90", "p99", "p99.9")
KINDS = {"publish": "publish", "endToEnd": "end-to-end", "sendDelay": "send delay", "ownSendDelay": "  of it our own"}
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*#@"
MOST_RANGES = 5
WIDTH = 60
"""Seconds in a plot; a longer run shows the worst of several seconds in one place."""


def lines(document: Document, *, unicode: bool = True) -> list[str]:
    """The summary of one run. ``unicode=False`` for terminals that cannot show more than ASCII."""
    found = [*_headline(document), *sections.peak(document, unicode), *_objectives(document["verdict"], unicode)]
    found += sections.stages(document, unicode)
    measured = document["measurements"]
    if measured is not None:
        found += [
            *_rates(measured),
            *_latencies(measured["latencies"]),
            *sections.buckets(document),
            *_messages(measured),
            *sections.backlog(document),
            *_generator(measured),
            *_plots(measured, unicode),
        ]
    found.append(f"  results    {document['results']}")
    return found if unicode else [line.translate(_TO_ASCII) for line in found]


_TO_ASCII = str.maketrans({"×": "x", "µ": "u", "—": "-", "–": "-", "·": "|", "→": ">", "…": "."})


def _headline(document: Document) -> Iterable[str]:
    verdict = document["verdict"]
    findings = [*verdict["findings"], *(finding for stage in document["stages"] for finding in stage["verdict"]["findings"])]
    missed = sum(finding["outcome"] == "missed" for finding in findings)
    of = f" ({missed} of {len(findings)} objectives)" if verdict["outcome"] == "missed" else ""
    workload = "" if document["workload"] is None else f" · workload {document['workload']}"
    yield f"{document['test']} · profile {document['profile']['name']}{workload} · {verdict['outcome'].upper()}{of}"
    if document["scale"] is not None:
        changes = ", ".join(f"{name} {change}" for name, change in document["scale"]["changes"].items())
        yield f"  SCALED ×{document['scale']['factor']:g} — says nothing about the full load{f' ({changes})' if changes else ''}"
    yield from _reasons(verdict)
    yield f"  target     {_target(document['broker'])}"
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
    where = ", ".join(str(broker[key]) for key in ("mode", "url") if broker.get(key))
    return f"{broker.get('name')} {broker.get('version')} ({where}){stand_in}{f' · {settings}' if settings else ''}"


def _objectives(verdict: Document, unicode: bool) -> Iterable[str]:
    """Misses and what could not be told first, otherwise in the order of the profile; implicit ones that held in one line."""
    order = ("missed", "no data", "met")
    rows: list[tuple[str, ...]] = [("objective", "observed", "bound", "samples", "")]
    marks = [" "]
    findings = sorted(verdict["findings"], key=lambda finding: order.index(finding["outcome"]))
    held = [finding for finding in findings if finding["implicit"] and finding["outcome"] == "met"]
    for finding in findings:
        if finding not in held:
            rows.append(_row(finding, verdict["reasons"]))
            marks.append(mark(finding["outcome"], unicode))
    if len(rows) > 1:
        width = max(map(len, marks))
        yield from (f"  {mark:<{width}} {row}" for mark, row in zip(marks, aligned(rows, "<><><"), strict=True))
    if held:
        listed = ", ".join(f"{finding['name']} {finding['shown']['observed']}" for finding in held)
        yield f"  {mark('met', unicode)} implicit: {listed}"


def _row(finding: Document, reasons: Sequence[str]) -> tuple[str, ...]:
    """A cause that the headline gives already is not said again."""
    shown, name = finding["shown"], finding["name"] + (" (implicit)" if finding["implicit"] else "")
    if finding["outcome"] != "no data":
        return name, shown["observed"], shown["bound"], exact(finding["samples"]), shown["over"]
    cause = finding["text"].partition(": ")[2]
    said = cause in reasons or finding["text"] in reasons
    return name, "no data", shown["bound"], exact(finding["samples"]), "" if said else cause


def _rates(measured: Document) -> Iterable[str]:
    seconds = measured["duration"] / 1e9
    absent = "none" if measured["subscriptions"] else "nowhere (nothing subscribes)"
    throughput = absent if measured["throughput"] is None else format_rate(measured["throughput"])
    per_second = measured["bytesSent"] / seconds
    yield (
        f"  rate       offered {format_rate(measured['rate'])}, sent {format_rate(measured['publishRate'])}, delivered {throughput}"
        f" for {format_duration(measured['duration'])} · {format_size(per_second)}/s, {format_bits(per_second)}"
    )


def _latencies(latencies: Document) -> Iterable[str]:
    rows: list[tuple[str, ...]] = [("latency", *COLUMNS, "max", "mean", "samples")]
    for kind, title in KINDS.items():
        latency = latencies[kind]
        if latency is None:
            rows.append((title, *("-",) * 6, "not measured"))
            continue
        percentiles = (latency["percentiles"][column] for column in COLUMNS)
        shown = ("too few" if value is None else format_duration(value) for value in percentiles)
        rows.append((title, *shown, format_duration(latency["maximum"]), format_duration(latency["mean"]), exact(latency["samples"])))
    return (f"  {row}" for row in aligned(rows, "<>>>>>>>"))


def _messages(measured: Document) -> Iterable[str]:
    counts = measured["counts"]
    due = counts["acked"] * measured["subscriptions"]
    yield "  out        " + _listed(counts, ("offered", "sent", "acked", "failed", "dropped", "unknown"), {"unknown": "unanswered"})
    if not measured["subscriptions"]:
        yield "  in         not applicable: nothing subscribes in this run"
        return
    order = {"outOfOrder": "out of order"}
    yield f"  in         {exact(due)} due, " + _listed(
        counts, ("received", "lost", "duplicates", "outOfOrder", "corrupt", "foreign"), order
    )
    ranges = measured["lost"]
    for label, lost in zip(itertools.chain(("lost",), itertools.repeat("")), ranges[:MOST_RANGES], strict=False):
        last = "" if lost["last"] == lost["first"] else f"–{lost['last']}"
        yield f"  {label:<10} {lost['first']}{last} of stream {lost['stream']} (topic {lost['topic']}, subscription {lost['subscription']})"
    if len(ranges) > MOST_RANGES:
        yield f"             … and {exact(len(ranges) - MOST_RANGES)} more ranges in results.json"


def _listed(counts: Document, keys: Sequence[str], words: dict[str, str]) -> str:
    return ", ".join(f"{words.get(key, key)} {'not applicable' if counts[key] is None else exact(counts[key])}" for key in keys)


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
