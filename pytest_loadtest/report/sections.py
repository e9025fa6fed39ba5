"""Lines of the summary that only some runs have: stages, size buckets, the search for the peak, a backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.metrics.silent import Silent
from pytest_loadtest.report.document import OUTCOMES
from pytest_loadtest.values.quantities import SECOND, format_duration, format_rate, format_size
from pytest_loadtest.values.wording import exact, format_value, scale_word
from pytest_loadtest.verdict.changes import percent
from pytest_loadtest.verdict.observations import name_silent, samples_needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_loadtest.report.document import Document


Labelled = tuple[str, str]
"""A fact of the summary as its label and its text; the label is empty where the text continues the fact before."""
MARKS = {"met": ("✓", "ok"), "missed": ("✗", "XX"), "no data": ("?", "??"), "generator-limited": ("!", "!!")}


def worst_first(documents: Iterable[Document]) -> list[Document]:
    """Runs as people look at them; those of one outcome stay in their order."""
    return sorted(documents, key=lambda document: OUTCOMES.index(document["verdict"]["outcome"]))


def run_name(document: Document) -> str:
    """The test, and of several workloads which."""
    return f"{document['test']}{_workload(document['workload'])}"


def titled(test: str, profile: str, workload: str | None) -> str:
    """The same with its profile. :param workload: None where there is but one."""
    return f"{test} · profile {profile}{_workload(workload)}"


def _workload(name: str | None) -> str:
    return "" if name is None else f" · workload {name}"


def scale_of(document: Document) -> str:
    """``scaled ×0.01``, or ``shortened``; empty where the profile ran as written."""
    return "" if document["scale"] is None else scale_word(document["scale"]["factor"])


def scale_changes(document: Document) -> str:
    """What a scaled run changed: ``rate 2.50 M → 2 000 msg/s``."""
    return ", ".join(f"{name} {change}" for name, change in document["scale"]["changes"].items())


def all_findings(document: Document) -> Iterator[tuple[str, Document]]:
    """Every objective judged, each with what stands before its name: ``stage ramp: ``, or nothing where it is of the whole run."""
    yield from (("", finding) for finding in document["verdict"]["findings"])
    for stage in document["stages"]:
        yield from ((f"stage {stage['name']}: ", finding) for finding in stage["verdict"]["findings"])


def mark(outcome: str, unicode: bool) -> str:
    """One character for an outcome, or two of ASCII."""
    return MARKS[outcome][0 if unicode else 1]


def labelled(facts: Iterable[Labelled]) -> Iterator[str]:
    """The facts as lines of the terminal's summary: a column of labels, then the texts."""
    return (f"  {label:<10} {text}" for label, text in facts)


def aligned(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Columns, each as wide as its widest cell; ``align`` has ``<`` or ``>`` for each."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip() for row in rows]


def stages(document: Document, unicode: bool) -> Iterable[str]:
    """A row for each stage, then what they missed."""
    found = document["stages"]
    if not found:
        return
    rows = [("", "stage", "for", "offered", "delivered", "end-to-end p50", "p99", "max", "lost")]
    for stage in found:
        m = stage["measurements"]
        if m is None:
            rows.append((mark(stage["verdict"]["outcome"], unicode), stage["name"], *("-",) * 7))
            continue
        rows.append(
            (
                mark(stage["verdict"]["outcome"], unicode), stage["name"], format_duration(m["duration"]), format_rate(m["rate"]),
                _rate(m["throughput"]), *percentiles(m["latencies"]["endToEnd"], "p50", "p99"), _lost(m["counts"]["lost"], m),
            )
        )  # fmt: skip
    yield from (f"  {row}" for row in aligned(rows, "<<>>>>>>>"))
    for stage in found:
        if stage["measurements"] is None:
            yield f"  {mark(stage['verdict']['outcome'], unicode)} stage {stage['name']} {stage['verdict']['reasons'][0]}"
            continue
        missed = (finding for finding in stage["verdict"]["findings"] if finding["outcome"] == "missed")
        yield from (f"  {mark('missed', unicode)} stage {stage['name']}: {finding['text']}" for finding in missed)


def delay_facts(measured: Document) -> Iterator[Labelled]:
    """The order in which delayed messages came, and the size of the broker's index of them."""
    swapped, index = measured["counts"].get("outOfDueOrder"), measured.get("delayedIndex")  # older results have neither
    if swapped is not None:
        yield "delayed", f"{exact(swapped)} copies after one that is due more than a tick later"
    if index is not None:
        each = format_value(index["bytesPerMessage"], "B")
        yield "index", f"{each} a message, {format_size(index['bytes'])} for {exact(index['messages'])} delayed"


def buckets(document: Document) -> Iterable[str]:
    """A row for each size bucket, where one has an objective or lost something."""
    measured, parts = document["measurements"], document["measurements"]["buckets"]
    if not any(finding["bucket"] for finding in document["verdict"]["findings"]) and not any(part["lost"] for part in parts):
        return
    rows = [("size bucket", "due", "sent", "received", "lost", "end-to-end p50", "p99", "max", "publish p99")]
    for part in parts:
        publish = percentiles(part["publish"], "p99")[0]
        counts = (exact(part["offered"]), exact(part["sent"]), exact(part["received"]), _lost(part["lost"], measured))
        rows.append((part["name"], *counts, *percentiles(part["endToEnd"], "p50", "p99"), publish))
    yield from (f"  {row}" for row in aligned(rows, "<>>>>>>>>"))


def only_connects(measured: Document) -> bool:
    """Whether the run had connections and no messages."""
    opening = measured.get("opening")  # older results have none
    return opening is not None and bool(opening["alone"])


def connection_facts(document: Document) -> Iterator[Labelled]:
    """The pace at which connections were opened, where it was limited or is all that the run did; and how many were lost later."""
    measured = document["measurements"]
    opening, lost = measured.get("opening"), document["driver"].get("losses")
    if opening is None:
        return
    asked = "as fast as they came" if opening["rate"] is None else f"{_per_second(opening['rate'])} asked"
    held = f", held for {format_duration(measured['duration'])}" if opening["alone"] else ""
    gone = "" if lost is None else f", {exact(lost) if lost else 'none'} lost after that"
    text = f"{exact(opening['connections'])}, {asked}, {_per_second(opening['achieved'])} in {format_duration(opening['took'])}"
    yield "connected", f"{text} ({opening['busiest']} {opening['cpu']:.2f} cores meanwhile){held}{gone}"


def _per_second(rate: float) -> str:
    return format_rate(rate).replace("msg/s", "connections/s")


def custom(measured: Document) -> Iterable[str]:
    """A row for each metric that users measured themselves."""
    if measured["custom"]:
        rows = aligned([(name, value["shown"]) for name, value in measured["custom"].items()], "<<")
        yield from (f"  {'' if at else 'custom':<10} {row}" for at, row in enumerate(rows))


def silent(measured: Document) -> str:
    """Subscriptions and streams of which nothing arrived, the first few by name; '' where there are none, or that is unknown."""
    found = measured.get("silent")  # older results lack it
    if not found or not found["pairs"] + found["streams"]:
        return ""
    pairs = tuple((one["topic"], one["subscription"]) for one in found["firstPairs"])
    streams = tuple((one["stream"], one["topic"]) for one in found["firstStreams"])
    counts = {"pairs": found["pairs"], "pairs_due": found["pairsDue"], "streams": found["streams"], "streams_due": found["streamsDue"]}
    return name_silent(Silent(**counts, first_pairs=pairs, first_streams=streams), most=len(pairs) + len(streams))


def peak(document: Document, unicode: bool) -> Iterable[str]:
    """The answer with its interval and what limited it, then a row for each step."""
    found = document["peak"]
    if found is None:
        return
    yield f"  peak       {answer(found)}"
    yield f"             {limit(found)}"
    if found.get("implicitOnly"):  # in older results there always were others
        held = ", ".join(f"{finding['name']} {finding['shown']['bound']}" for finding in document["verdict"]["findings"])
        yield f"             the profile has no objectives, so the implicit ones had to hold: {held}; no latency was asked for"
    rows = [("", "step", "rate", "for", "delivered", "", ""), *(_step(step, found["unit"], unicode) for step in found["steps"])]
    yield from (f"  {row}" for row in aligned(rows, "<>>>><<"))


def _step(step: Document, unit: str, unicode: bool) -> tuple[str, ...]:
    purpose = step["purpose"] + (", ended early" if step["early"] else "")
    delivered = "-" if step["throughput"] is None else precise(step["throughput"], "msg/s")
    return (
        mark(step["outcome"], unicode), str(step["number"]), precise(step["rate"], unit), format_duration(step["duration"]),
        delivered, purpose, step["text"],
    )  # fmt: skip


def answer(found: Document) -> str:
    """``19 843 msg/s, held for 60.0 s; the next rate missed was 20 240 msg/s``."""
    if found["rate"] is None:
        return "none: no rate held"
    held = [step["duration"] for step in found["steps"] if step["rate"] == found["rate"] and step["outcome"] == "met"]
    text = f"{'at least ' if found['atLeast'] else ''}{precise(found['rate'], found['unit'])}"
    if held:
        text += f", held for {format_duration(max(held))}"
    text += "" if found["confirmed"] else ", not confirmed by a longer hold"
    return text if found["high"] is None else f"{text}; {precise(found['high'], found['unit'])} was missed"


def precise(rate: float, unit: str) -> str:
    """A rate of a search, told apart from one a per mille beside it."""
    if unit == "B/s":
        return f"{format_size(rate)}/s"
    return f"{exact(round(rate)) if rate >= 1000 else f'{rate:.5g}'} msg/s"


def backlog_facts(document: Document) -> Iterator[Labelled]:
    """The time in which a backlog was built and drained, and the publish latency while it was drained."""
    found = document["backlog"]
    if found is None:
        return
    rate = "at an unknown rate" if found["drainRate"] is None else f"at {format_rate(found['drainRate'])}"
    built = f"{exact(found['messages'])} deliveries, {format_size(found['bytes'])}, built in {format_duration(found['build'])}"
    yield "backlog", f"{built}, {_drained(found)} {rate}"
    p50, p99, _ = percentiles(found["publishDuringDrain"], "p50", "p99")
    yield "", f"publish latency meanwhile: {'not measured' if p50 == '-' else f'p50 {p50}, p99 {p99}'}"


def _drained(found: Document) -> str:
    if found["drain"] is None:
        first, last = found["drainedBetween"]
        until = "an unknown time" if last is None else format_duration(last)
        return f"drained between {format_duration(first)} and {until} ({exact(found['uncounted'])} second or doubtful copies)"
    if found["drained"]:
        return f"drained in {format_duration(found['drain'])}"
    left = f"more than {exact(found['allowed'])}" if found["left"] is None else exact(found["left"])
    told = f"{left} still waiting, {exact(found['allowed'])} would do"
    return f"NOT drained within {format_duration(found['drain'])} (backlogDrainTimeout; {told})"


def limit(found: Document) -> str:
    broke = found["brokeFirst"]
    first = "" if broke is None else f"; {broke} broke first"
    if found["limit"] == "generator":
        return f"limit: the generator, not the target: add workers (-n) to see more{first}"
    if found["limit"] == "maximum":
        return f"limit: search.max, not the target: raise it to see more{first}"
    if found["limit"] == "none":
        return f"limit: unknown{first}" if found["rate"] is not None else f"limit: the objectives held at no rate tried{first}"
    return f"limit: the target{first}"


def percentiles(latency: Document | None, *wanted: str) -> tuple[str, ...]:
    """Those asked for, and the largest value."""
    if latency is None:
        return ("-",) * (len(wanted) + 1)
    due = latency["samples"] + latency["neverCame"]
    values = ((latency["percentiles"][name], due < samples_needed(float(name[1:]))) for name in wanted)
    shown = (format_duration(value) if value is not None else "too few" if too_few else "never" for value, too_few in values)
    return (*shown, format_duration(latency["maximum"]))


def _rate(rate: float | None) -> str:
    return "-" if rate is None else format_rate(rate)


def _lost(lost: int, measured: Document) -> str:
    return exact(lost) if measured["subscriptions"] else "-"


# The section ``comparison`` of a run's document as lines that people read.

MOST_DIFFERENCES = 8


def comparison_lines(section: Document | None, *, unicode: bool = True) -> Iterable[str]:
    """What the run was held against, what differs, then a row for each figure; nothing where there was no comparison."""
    if section is None:
        return
    yield from _baseline_lines(section)
    yield from _difference_lines(section)
    yield from (f"             {note}" for note in section["notes"] if section["baseline"] is not None)
    if section["rows"]:
        yield from _figure_rows(section["rows"], unicode)


def _baseline_lines(section: Document) -> Iterable[str]:
    baseline, blocks = section["baseline"], section["blocks"]
    if baseline is None:
        yield f"  baseline   none: {'; '.join(section['notes'])}"
        return
    yield f"  baseline   {baseline['results']} ({baseline['started']}, {baseline['outcome']})"
    if blocks is None:
        yield "             no interval: noise is told from 20 s of measured phase on, in both runs, of results of this version or later"
    else:
        many = f"{blocks['baseline']} and {blocks['now']} blocks of {blocks['length'] // SECOND} s"
        yield f"             intervals of {blocks['level'] * 100:.0f} % from {many}: noise within the runs, not from run to run"


def _difference_lines(section: Document) -> Iterable[str]:
    deciding = [one for one in section["differences"] if one["decides"]]
    if deciding:
        forced = "; judged all the same (--load-baseline-force)" if section["forced"] else ""
        yield f"  NOT COMPARABLE  what decides differs{forced}:"
    for many, kind in ((deciding, "decides"), ([one for one in section["differences"] if not one["decides"]], "beside")):
        shown = many[:MOST_DIFFERENCES]
        yield from (f"             {kind:<8} {one['name']}: {one['baseline']} → {one['now']}" for one in shown)
        if len(many) > len(shown):
            yield f"             {kind:<8} … and {len(many) - len(shown)} more in results.json"


def _figure_rows(rows: list[dict[str, Any]], unicode: bool) -> Iterable[str]:
    cells = [("compared", "baseline", "now", "change", "interval", "")]
    cells += [
        (row["name"], format_figure(row["baseline"], row["unit"]), format_figure(row["now"], row["unit"]), *_change_cells(row))
        for row in rows
    ]
    marks = [" ", *(mark(row["outcome"], unicode) if row["outcome"] else " " for row in rows)]
    width = max(map(len, marks))
    yield from (f"  {sign:<{width}} {line}" for sign, line in zip(marks, aligned(cells, "<>>>><"), strict=True))


def _change_cells(row: dict[str, Any]) -> tuple[str, str, str]:
    if row["change"] is None:
        return "-", "-", ""
    if row["low"] is None:
        return percent(row["change"]), "-", ""
    return percent(row["change"]), f"{percent(row['low'])} to {percent(row['high'])}", change_word(row)


def change_word(row: dict[str, Any]) -> str:
    """``worse`` or ``better`` where the whole interval says so; ``within noise`` where it holds no change; empty where there is none."""
    if row["low"] is None:
        return ""
    if row["low"] <= 0 <= row["high"]:
        return "within noise"
    return "better" if (row["low"] > 0) == (row["better"] == "more") else "worse"


def format_figure(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    if value is None:
        return "-"
    if unit == "cores":
        return f"{value:.2f} cores"
    return f"{format_size(value)}/s" if unit == "B/s" else format_value(value, unit)
