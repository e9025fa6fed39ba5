"""The first judge of a world that was played. It shares no code with the product: only the truth, the documents, and the docs.

:func:`check_truth` compares every figure and every objective of the results with the truth (facts.py, figures.py); blame.py is the second
judge. Each rule names the page that it comes from. A rule is left out where it is not certain; the comments say where.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from simulation.asked import FINE, Due, rate_of, span_of
from simulation.chosen import check_share, check_silence
from simulation.connecting import check_connecting
from simulation.coverage import objectives
from simulation.facts import all_facts, has_key, median_shift, stages, true_offset
from simulation.figures import (
    LATENCIES,
    NEVER,
    PARTS_OF_A_ROUTE,
    RESOLUTION,
    clock_error,
    count,
    figure,
    has_even_clocks,
    is_latency_certain,
    latencies,
    needed,
    silence,
    statistic_of,
)
from simulation.margins import CLOCK, DRAIN, ROUNDED
from simulation.violation import Violation
from simulation.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.facts import Delivery, Facts
    from simulation.truth import Played

LOOK: Final = 1_200 * MS
"""ns: the controller sees the workers' counts, from which it tells the drain of a backlog, by so much later at most."""
ROUNDING: Final = 1e-9
IN_TIME: Final = ("throughput", "sent")
"""Counts by the times of hosts (docs/howto/many-hosts.md, Clocks)."""
FEWEST: Final = 10
"""Messages of a step of a search: what every one has an objective on, its throughput, is moved by a median (docs/decisions/004)."""

Finding = dict[str, Any]


def check_truth(played: Played) -> list[Violation]:
    """Compare the results of a world with the truth."""
    found = list(_ends(played))
    for facts in all_facts(played):
        found += _offered(facts)
        found += _clocks(played, facts)
        found += _drained(played, facts)
        found += _verdict(facts)
        if not facts.settled:
            found.append(
                Violation("open", "what came at the end of the drain may be counted or not", DRAIN)
            )
        elif not has_even_clocks(facts):
            found.append(Violation("open", "a clock was set", CLOCK))
        if facts.settled and not played.truth.killed:
            found += _counts(facts)
            found += check_connecting(facts)
            found += _latencies(facts)
            found += _objectives(facts)
            found += _early_end(facts)
            found += _backlog(facts)
    found += _peak(played)
    return found


# --- how a run ends (docs/howto/read-a-verdict.md, No data)

BREAKING: Final = (
    "kill",
    "cut-resend",
    "cut-lose",
    "restart",
    "hang",
    "stall",
    "pause",
    "lose-unanswered",
    "counters",
    "slow-disk",
    "forget",
)
"""Faults that may end a run without results: what is gone, or does not answer."""


def _ends(played: Played) -> Iterator[Violation]:
    """A run without measurements has a reason; one that lost a worker has no data.

    A search ends with its first step without data (docs/howto/find-the-peak.md), which is judged itself. It does not begin if its highest rate
    is too low for the samples that a percentile needs.
    """
    if played.outcome == "wrong profile":
        return
    kinds = {fault.kind for fault in played.world.faults}
    measured = played.results is not None and played.results["measurements"] is not None
    is_set = any(host.steps for host in played.world.hosts)
    is_judged = any(results["verdict"]["outcome"] == "no data" for results, _ in played.documents)
    is_explained = kinds.intersection(BREAKING) or is_set or is_judged or _is_search_too_low(played)
    if not measured and not is_explained and played.outcome == "no data":
        yield Violation("no data", f"nothing explains it: {played.error}")
    ends = [phase.ended for phase in played.truth.phases]
    loaded = not played.truth.phases or None in ends
    last = max((end for end in ends if end is not None), default=0)
    if any(loaded or at < last for _, at in played.truth.killed) and played.outcome != "no data":
        yield Violation(
            "lost worker",
            f"a worker was killed while load ran, and the outcome is {played.outcome}",
        )


def _is_search_too_low(played: Played) -> bool:
    """Return whether a search did not begin, because even its highest rate has too few samples."""
    search = played.world.profile.get("search")
    if search is None or "max" not in search or played.truth.phases:
        return False
    statistics = [statistic for _, statistic in objectives(played.world)]
    samples = max([FEWEST, *(needed(statistic) for statistic in statistics)])
    # A step is planned with a reserve.
    return rate_of(search["max"]) * span_of(search.get("hold", "30s")) / SECOND < 1.1 * samples


def _verdict(facts: Facts) -> Iterator[Violation]:
    """The outcome is the first of *no data*, *generator-limited*, *missed*, *met* that applies (docs/howto/read-a-verdict.md)."""
    verdict = facts.results["verdict"]
    stages = [
        stage["verdict"] for stage in facts.results.get("stages") or () if stage.get("verdict")
    ]
    outcomes = {finding["outcome"] for one in (verdict, *stages) for finding in one["findings"]}
    outcomes |= {stage["outcome"] for stage in stages}
    outcome = verdict["outcome"]
    if outcome == "met" and outcomes - {"met"}:
        yield Violation("verdict", f"met, with objectives that are {sorted(outcomes - {'met'})}")
    ended = facts.run.get("aborted") or facts.run.get("unattainable") or facts.run.get("went_away")
    if (
        outcome == "missed"
        and "missed" not in outcomes
        and not ended
        and not facts.results.get("peak")
    ):
        yield Violation("verdict", "missed, and no objective is")


# --- the load (docs/howto/shape-the-load.md)


def _offered(facts: Facts) -> Iterator[Violation]:
    """What is due is offered, when it is due: the n-th message is intended when the integral of the rate has reached n."""
    profile, phase = facts.profile, facts.phase
    if "search" in profile or not isinstance(profile.get("producerRate"), str | int | float):
        return
    duration = facts.phase_end - phase.start
    due = Due.of(profile, duration)
    offered = facts.offered or 0
    is_cut = facts.run.get("aborted") or has_key(profile, "consumerBacklogSizeGB")
    if not is_cut and "messages" not in profile:
        asked = span_of(profile["testDuration"]) if "testDuration" in profile else due.length
        if asked != duration:
            yield Violation("offered", f"the phase is {asked} ns long, the product's {duration}")
    exact = profile["messages"] if "messages" in profile else due.messages(duration)
    tolerance = 1 if is_cut else 0
    if exact is not None and abs(offered - exact) > tolerance:
        yield Violation("offered", f"{exact} messages are due, reported are {offered}")
    if facts.dropped == 0:
        yield from _due_times(facts, due)


def _due_times(facts: Facts, due: Due) -> Iterator[Violation]:
    """Compare the intended time of each message with the profile. Left out where some were dropped: their times are unknown."""
    reached = 0
    largest = max((sent.size for sent in facts.messages), default=0)
    for sent in sorted(facts.messages, key=lambda sent: sent.intended):
        time = sent.intended - facts.phase.start
        asked = due.amount(time)
        # Instants are exact to a nanosecond.
        allowed = 0.05 + FINE * time / SECOND
        if due.in_bytes:
            # Of messages that are due at one instant, any may be the first: one message (read-a-verdict.md).
            allowed = 2 + largest + asked * 1e-6
        if abs(asked - reached) > allowed:
            what = "bytes" if due.in_bytes else "messages"
            yield Violation(
                "due",
                f"{reached} {what} are before a message that is intended {time} ns into the phase: {asked:.3f} are due",
            )
            return
        reached += sent.size if due.in_bytes else 1


def shares(profile: dict[str, Any]) -> list[float] | None:
    """Return the share of each topic (docs/reference/profile.md, skew); None where it changes, or is not in whole numbers."""
    topics = profile.get("topics", 1)
    skew = profile.get("skew", {})
    if "zipf" in skew or "swing" in skew:
        return None
    weights = skew.get("weights", [1] * topics)
    return [weight / sum(weights) for weight in weights]


# --- clocks (docs/clocks.md, docs/howto/many-hosts.md)


def _clocks(played: Played, facts: Facts) -> Iterator[Violation]:
    """A time that is converted by the stated line is wrong by the stated error at most, in the whole phase, or the clock counts as set."""
    for clock in facts.run.get("clocks", ()):
        fit = clock["fit"]
        line = fit["line"]
        for at in range(facts.phase.start, facts.phase_end, 100 * MS):
            host = at + true_offset(played, clock["worker"], at)
            converted = host - line["offset"] - round(line["drift"] * (host - line["at"]))
            if fit["holds"] and abs(converted - at) > fit["error"] + 1:
                text = f"{clock['host']} is wrong by {converted - at} ns, {(at - facts.phase.start) / 1e9:.1f} s into the phase"
                yield Violation("clock", f"{text}; the stated error is {fit['error']}")
                break
    # What was sent, by the clock of its worker: the engine must not take a message before it is due by more than its clock is wrong.


# --- the drain (docs/decisions/032)


def _drained(played: Played, facts: Facts) -> Iterator[Violation]:
    """A phase ends before its drain's time is over only if nothing more can come."""
    end = facts.phase.ended
    assert end is not None
    timeout = span_of(facts.profile.get("drainTimeout", "30s"))
    latest = max([sent.at for sent in facts.messages] + [facts.phase_end])
    # The last worker notices its end a little later; a delayed message is waited for from when it is due.
    due = max((sent.due or 0 for sent in facts.messages), default=0)
    if end >= max(latest, due) + timeout - SECOND // 2:
        return
    if any(fault.kind == "counters" for fault in played.world.faults):
        return  # The broker's own answer that nothing is left was wrong.
    came = {
        key
        for key, copies in facts.copies.items()
        if sum(copy.arrived <= end for copy in copies) >= facts.outputs
    }
    late = set()
    for copy in facts.later:
        key = (copy.stream, copy.seq, copy.subscription)
        sent = facts.message(copy.stream, copy.seq)
        is_due = sent.answered is not None and sent.answered <= end and not sent.failed
        if is_due and key not in came and copy.arrived <= max(latest, due) + timeout - SECOND:
            late.add(key)
    if late:
        yield Violation(
            "drain",
            f"the drain ended {(end - latest) / 1e9:.2f} s after the load; {len(late)} deliveries came before its time was over",
        )


# --- counts and latencies (docs/glossary.md, docs/reference/results.md)


def _counts(facts: Facts) -> Iterator[Violation]:
    """Counts are equal."""
    shown = facts.results["measurements"]["counts"]
    acked = facts.acked
    outputs = facts.outputs
    duplicates = {key: max(len(copies) - outputs, 0) for key, copies in facts.copies.items()}
    # The client reports with the answer how often it sent a message again.
    resent = {
        (sent.stream, sent.seq)
        for sent in facts.messages
        if sent.sends > 1 and sent.answered is not None
    }
    true: dict[str, int | None] = {
        "sent": len(facts.messages),
        "acked": len(acked),
        "failed": sum(sent.failed for sent in facts.messages),
        "unknown": sum(sent.answered is None for sent in facts.messages),
        "dropped": facts.dropped,
        "resent": len(resent),
    }
    if facts.subscriptions:
        true |= {
            "received": facts.received,
            "lost": None if facts.chooses else facts.lost,
            "duplicates": sum(duplicates.values()),
            "duplicatesOfResent": sum(
                number for key, number in duplicates.items() if key[:2] in resent
            ),
        }
        if facts.heads_settled:
            heads = len(facts.heads)
            true |= {"corruptHeads": heads, "corrupt": len(facts.damaged) + heads}
        if not facts.foreign:
            true["foreign"] = 0
        elif shown["foreign"] == 0 and any(copy.taken is not None for copy in facts.foreign):
            yield Violation("counts.foreign", "foreign messages came, and none is counted")
        if not facts.damaged and not facts.heads:
            true["outOfOrder"] = _out_of_order(facts)
    for name, value in true.items():
        if shown.get(name) is not None and value is not None and shown[name] != value:
            yield Violation(f"counts.{name}", f"{name} is {value}, reported are {shown[name]}")
    yield from _silent(facts)
    yield from _topics(facts)


def _out_of_order(facts: Facts) -> int | None:
    """Return the deliveries whose copies all came after a later message of their stream at their consumer, from the same topic.

    Of several outputs as many count as are due less those in order. None: unknown.
    """
    if any(sent.due is not None for sent in facts.messages):
        return None
    highest: dict[tuple[int, int, int], int] = {}
    punctual: Counter[Delivery] = Counter()
    every = [copy for copies in facts.copies.values() for copy in copies]
    for copy in sorted(every, key=lambda copy: (copy.taken or 0, copy.stamped or 0, copy.arrived)):
        group = (copy.consumer, copy.stream, copy.output)
        before = highest.get(group, -1)
        punctual[copy.stream, copy.seq, copy.subscription] += copy.seq >= before
        highest[group] = max(before, copy.seq)
    outputs = facts.outputs
    in_order = sum(min(number, outputs) for number in punctual.values())
    return facts.received - in_order


def _silent(facts: Facts) -> Iterator[Violation]:
    """Silent subscriptions and streams are those that had messages due and got none (docs/howto/read-a-verdict.md)."""
    shown, true = facts.results["measurements"]["silent"], silence(facts)
    if facts.chooses and shown is not None:
        yield from check_silence(facts, shown)
    if shown is None or true is None:
        return
    if (shown["pairs"], shown["streams"]) != true[:2]:
        yield Violation(
            "silent",
            f"{true[0]} pairs and {true[1]} streams are silent, reported are {shown['pairs']} and {shown['streams']}",
        )


def _topics(facts: Facts) -> Iterator[Violation]:
    """Every topic has its share of the messages (docs/reference/profile.md, skew), and its own losses."""
    topics = facts.results["measurements"]["topics"]
    sent = [0] * len(topics)
    acked = [0] * len(topics)
    for message in facts.messages:
        sent[message.stream % len(topics)] += 1
    for message in facts.acked:
        acked[message.stream % len(topics)] += 1
    for number, topic in enumerate(topics):
        if (topic["sent"], topic["acked"]) != (sent[number], acked[number]):
            yield Violation(
                "topics",
                f"topic {number} has {sent[number]} and {acked[number]}, reported are {topic['sent']} and {topic['acked']}",
            )
            return
    parts = shares(facts.profile)
    if parts is None or len(parts) != len(topics):
        return
    for number, topic in enumerate(topics):
        asked = parts[number] * (facts.offered or 0)
        # Turns are spread over a round; rounds do not begin with the phase.
        if abs(topic["offered"] - asked) > 2 + facts.profile.get("producersPerTopic", 1):
            yield Violation(
                "topics",
                f"topic {number} has a share of {asked:.1f} messages, offered are {topic['offered']}",
            )
            return


def _latencies(facts: Facts) -> Iterator[Violation]:
    """Latencies are those of the truth: samples, extremes and totals equal, percentiles within the resolution of the histogram."""
    measured = facts.results["measurements"]
    yield from _sections(facts, measured["latencies"], "")
    for bucket in measured["buckets"]:
        if facts.profile.get("payloadsPerBucket", 1) == 1 and facts.dropped == 0:
            part = facts.part(0, facts.phase_end - facts.phase.start, bucket["name"])
            sections = {key: bucket[key] for key in ("publish", "endToEnd") if bucket.get(key)}
            yield from _sections(part, sections, f"{bucket['name']}.")


def _sections(facts: Facts, shown: dict[str, Any], prefix: str) -> Iterator[Violation]:
    for metric, key in (LATENCIES | PARTS_OF_A_ROUTE).items():
        section = shown.get(key)
        if (
            section is None
            or not is_latency_certain(facts, metric)
            or metric in ("earliness", "lateness")
        ):
            continue
        values, never = latencies(facts, metric)
        error = clock_error(facts, metric)
        if len(values) != section["samples"]:
            yield Violation(
                f"{metric}.samples",
                f"{prefix}samples are {len(values)}, reported are {section['samples']}",
            )
            continue
        exact = {"minimum": min(values), "largest": max(values), "total": sum(values)}
        for name, value in exact.items():
            allowed = error * (len(values) if name == "total" else 1)
            if section.get(name) is not None and abs(section[name] - value) > allowed:
                yield Violation(
                    f"{metric}.{name}", f"{prefix}{name} is {value}, reported is {section[name]}"
                )
        for statistic, value in section["percentiles"].items():
            true = statistic_of(values, never, statistic, error)
            if value is not None and true is not None and not true[0] <= value <= true[1]:
                yield Violation(
                    f"{metric}.percentile", f"{prefix}{statistic} is {true}, reported is {value}"
                )


# --- objectives (docs/howto/read-a-verdict.md, docs/howto/hold-over-time.md)


def _objectives(facts: Facts) -> Iterator[Violation]:
    """Each objective is met only if the truth meets it, missed only if the truth misses it, and without data only for a reason."""
    profile = facts.profile
    slo = profile.get("slo", {})
    yield from _implicit(facts)
    for finding in facts.results["verdict"]["findings"]:
        yield from _finding(facts, finding, slo)
        if finding["metric"] == "outputShare":
            yield from check_share(facts, finding)
    parts = stages(facts)
    for stage in profile.get("stages", ()):
        section = _stage(facts, stage["name"])
        if section is None or not section.get("verdict") or facts.run.get("aborted"):
            continue
        part = parts[stage["name"]]
        part.shift = median_shift(part)
        bounds = {**slo, **stage.get("slo", {})}
        for finding in section["verdict"]["findings"]:
            yield from _finding(part, finding, bounds, f"stage {stage['name']}: ")
        if stage.get("slo") and not section["verdict"]["findings"]:
            yield Violation("objectives", f"stage {stage['name']} was not judged")


def _findings(facts: Facts, **values: Any) -> list[Finding]:
    """Return the findings of the run with these values."""
    every = facts.results["verdict"]["findings"]
    return [one for one in every if all(one[key] == value for key, value in values.items())]


def _stage(facts: Facts, name: str) -> dict[str, Any] | None:
    sections = facts.results.get("stages") or ()
    return next((stage for stage in sections if stage["name"] == name), None)


def _implicit(facts: Facts) -> Iterator[Violation]:
    """Implicit objectives apply unless the profile changes them (docs/howto/read-a-verdict.md, Missed)."""
    bounded = set()
    for finding in facts.results["verdict"]["findings"]:
        if finding["tenths"] is None and not finding["bucket"]:
            if finding["maximum"] is not None:
                bounded.add((finding["metric"], "max", ""))
            if finding["minimum"] is not None:
                bounded.add((finding["metric"], "min", finding["unit"]))
    wanted = [("dropped", "max", ""), ("failed", "max", ""), ("sent", "min", "ratio")]
    if facts.subscriptions:
        wanted.append(("corrupt", "max", ""))
        if facts.chooses:
            # What a lost output would be is unknown, and which topics and streams should have some.
            wanted += [
                ("outputShare", side, unit) for side, unit in (("max", ""), ("min", "ratio"))
            ]
        else:
            wanted += [("loss", "max", ""), ("silent", "max", ""), ("throughput", "min", "ratio")]
        if "route" not in facts.profile:  # Others may use the topics of a service.
            wanted.append(("foreign", "max", ""))
    if "connectRate" in facts.profile["driver"]:
        wanted.append(("connectRate", "min", "ratio"))
    if "window" in facts.profile.get("slo", {}):
        wanted = [one for one in wanted if one[0] != "throughput"]
    for one in wanted:
        if one not in bounded:
            yield Violation("objectives", f"nothing bounds {one[0]} ({one[1]})")


def _finding(
    facts: Facts, finding: Finding, slo: dict[str, Any], prefix: str = ""
) -> Iterator[Violation]:
    metric, name = finding["metric"], f"{prefix}{finding['name']}"
    if metric in ("backlogDrain", "regression", "custom"):
        return
    if metric in IN_TIME and not has_even_clocks(facts):
        if finding["outcome"] != "no data":
            yield Violation("clock", f"{name} is {finding['outcome']}, and a clock was set")
        return
    if finding["name"].startswith("drift."):
        yield from _drift(facts, finding, name)
        return
    if finding["windows"] is not None:
        yield from _windows(facts, finding, slo, name)
        return
    tolerance: dict[str, Any] | None = slo
    part = facts
    if finding["bucket"]:
        if facts.profile.get("payloadsPerBucket", 1) > 1:
            return
        part = facts.part(
            facts.begin - facts.phase.start, facts.end - facts.phase.start, finding["bucket"]
        )
        tolerance = None
        if part.offered is None or not part.offered:
            return
    true = figure(part, metric, finding["statistic"], finding["unit"], tolerance)
    if true is not None:
        yield from _compare(part, finding, finding["outcome"], finding["observed"], true, name)
    if finding["outcome"] == "no data":
        yield from _no_data(part, finding, true, name)
    elif metric in LATENCIES and not _enough(part, finding) and not _is_foregone(finding):
        yield Violation("too few samples", f"{name} is {finding['outcome']}")


def _compare(
    facts: Facts,
    finding: Finding,
    outcome: str,
    observed: float | None,
    true: tuple[float, float],
    name: str,
) -> Iterator[Violation]:
    low, high = true
    bounds = finding["minimum"], finding["maximum"]
    shown = f"{name} is {low:.9g} to {high:.9g}, bounds {bounds}, {outcome} with {observed}"
    if outcome == "met" and _is_outside(finding, true):
        yield Violation("false pass", shown)
    is_missed = outcome in ("missed", "generator-limited")
    if is_missed and _is_within(finding, true) and not _is_foregone(finding):
        yield Violation("false miss", shown)
    if (
        observed is not None
        and not low - abs(low) * ROUNDING <= observed <= high + abs(high) * ROUNDING
    ):
        yield Violation("observed", shown)
    if any(bound is not None and low < bound < high for bound in bounds):
        yield Violation("open", shown, CLOCK if facts.error else ROUNDED)


def _is_outside(finding: Finding, true: tuple[float, float]) -> bool:
    """Return whether the truth is outside of the bounds of an objective for certain."""
    low, high = true
    least, most = finding["minimum"], finding["maximum"]
    above = most is not None and low > most * (1 + ROUNDING)
    below = least is not None and high < least * (1 - ROUNDING)
    return above or below


def _is_within(finding: Finding, true: tuple[float, float]) -> bool:
    """Return whether the truth is within the bounds of an objective for certain."""
    low, high = true
    least, most = finding["minimum"], finding["maximum"]
    return (most is None or high <= most) and (least is None or low >= least)


def _is_foregone(finding: Finding) -> bool:
    """Return whether a step of a search ended early, because a bound could no longer hold (docs/howto/find-the-peak.md)."""
    return "could no longer be met" in finding["text"]


def _enough(facts: Facts, finding: Finding) -> bool:
    """Return whether there are as many samples as the statistic needs."""
    if finding["metric"] not in LATENCIES or not is_latency_certain(facts, finding["metric"]):
        return True
    values, never = latencies(facts, finding["metric"])
    return never is None or len(values) + never >= needed(finding["statistic"])


def _no_data(
    facts: Facts, finding: Finding, true: tuple[float, float] | None, name: str
) -> Iterator[Violation]:
    """An objective has no data only if there is too little to judge, or clocks leave it open (docs/howto/read-a-verdict.md, No data)."""
    if not facts.copies or not facts.acked or not facts.offered or not _enough(facts, finding):
        return
    window = facts.profile.get("slo", {}).get("window")
    is_whole = window is None or finding["name"].startswith("whole.")
    if not is_whole and facts.phase_end - facts.phase.start < span_of(window):
        return  # An abort has left no window.
    if finding["metric"] in LATENCIES:
        if true is None or not latencies(facts, finding["metric"])[0]:
            return
        error = 2 * clock_error(facts, finding["metric"])
        bounds = [bound for bound in (finding["minimum"], finding["maximum"]) if bound is not None]
        if any(true[0] - error <= bound <= true[1] + error for bound in bounds) and not facts.exact:
            return
        if min(latencies(facts, finding["metric"])[0]) < 0 and not facts.exact:
            return
    elif finding["metric"] not in ("throughput", "sent", "loss", "failed", "dropped"):
        return
    yield Violation("no data", f"{name} is known: {true}; {finding['text']}")


def _windows(facts: Facts, finding: Finding, slo: dict[str, Any], name: str) -> Iterator[Violation]:
    """An objective in windows is that of the messages due in each; as many may miss it as ``violations`` allows."""
    windows = finding["windows"]
    missed = possible = 0
    base = facts.begin - facts.phase.start
    for window in windows["listed"]:
        part = facts.part(base + window["start"], base + window["end"])
        true = figure(
            part, finding["metric"], finding["statistic"], finding["unit"], slo, whole=facts
        )
        if true is None or part.offered is None:
            possible += 1
            continue
        at = f"{name} at {window['start'] / 1e9:g} s"
        yield from _compare(part, finding, window["outcome"], window["observed"], true, at)
        is_outside = _is_outside(finding, true)
        missed += is_outside
        possible += not is_outside and not _is_within(finding, true)
    allowed = math.floor(windows["violations"] * windows["number"] + 1e-6)
    if finding["outcome"] == "met" and missed > allowed:
        yield Violation(
            "false pass",
            f"{name} is missed in {missed} windows of {windows['number']}, allowed are {allowed}, and met",
        )
    listed = len(windows["listed"]) == windows["number"]
    own = windows["generatorLimited"] + windows["noData"]
    if finding["outcome"] == "missed" and listed and not possible and missed + own <= allowed:
        yield Violation(
            "false miss",
            f"{name} is missed in {missed} windows of {windows['number']}, allowed are {allowed}, and missed",
        )


def _drift(facts: Facts, finding: Finding, name: str) -> Iterator[Violation]:
    """Drift compares the last tenth of the phase with the first, in whole seconds (docs/howto/hold-over-time.md)."""
    duration = facts.end - facts.begin
    tenth = duration // 10 // SECOND * SECOND
    if duration % SECOND or not tenth:
        return
    base = facts.begin - facts.phase.start
    unit = "ratio" if finding["metric"] == "throughput" else "ns"
    parts = [facts.part(base, base + tenth), facts.part(base + duration - tenth, base + duration)]
    values = [
        figure(part, finding["metric"], finding["statistic"], unit, None, whole=facts)
        for part in parts
    ]
    first, last = values
    if first is None or last is None or first == NEVER or first[0] <= 0:
        return
    change = (last[0] / first[1] - 1, last[1] / first[0] - 1)
    shown = {**finding, "text": ""}
    at = f"drift of {name}"
    yield from _compare(facts, shown, finding["outcome"], finding["observed"], change, at)


# --- loads that were cut (docs/decisions/022, docs/howto/find-the-peak.md)


def _early_end(facts: Facts) -> Iterator[Violation]:
    """A load ends early only if the truth shows why."""
    if facts.run.get("aborted") and not _is_lost(facts):
        yield Violation("abort", f"nothing explains it: {facts.run['aborted']}")
    if facts.run.get("unattainable"):
        yield from _foregone(facts, facts.run["unattainable"])


def _is_lost(facts: Facts) -> bool:
    """Return whether a bound of ``abort`` was broken: a count, or a percentile in each of so many seconds in a row."""
    abort = facts.profile["abort"]
    for metric in ("failed", "dropped"):
        counted = count(facts, metric)
        if metric in abort and (counted is None or counted[1] > 0):
            return True
    hold = span_of(abort.get("for", "30s")) // SECOND
    seconds = -(-(facts.phase_end - facts.phase.start) // SECOND)
    for key, bound in abort.items():
        metric, _, statistic = key.partition(".")
        row = longest = 0
        for second in range(seconds if metric == "endToEndLatency" else 0):
            part = facts.part(second * SECOND, (second + 1) * SECOND)
            true = figure(part, metric, statistic, "ns", None)
            row = row + 1 if true is None or true[1] > span_of(bound) else 0
            longest = max(longest, row)
        if longest >= hold:
            return True
    return False


def _foregone(facts: Facts, name: str) -> Iterator[Violation]:
    """A step of a search ends early only if more deliveries are later than its bound than the whole step may have."""
    finding = next(iter(_findings(facts, name=name, unit="ns", windows=None)), None)
    if finding is None or finding["maximum"] is None or finding["statistic"] == "max":
        return
    values, never = latencies(facts, finding["metric"])
    if never is None or facts.error:
        return
    late = sum(value > finding["maximum"] * (1 - RESOLUTION) for value in values) + never
    hold = facts.profile["search"].get("hold", "30s")
    planned = facts.results["measurements"]["rate"] * span_of(hold) / 1e9 * facts.fan_out
    allowed = planned * (1 - float(finding["statistic"][1:]) / 100)
    if late + 1 < allowed:
        yield Violation(
            "unattainable",
            f"{name}: {late} of {planned:.0f} deliveries are too late, {allowed:.1f} may be",
        )


# --- a backlog and its drain (docs/howto/shape-the-load.md)


def _backlog(facts: Facts) -> Iterator[Violation]:
    """A backlog counts as drained only if no more deliveries wait than may, and has a time unless it never shrank."""
    section = facts.results.get("backlog")
    finding = next(iter(_findings(facts, metric="backlogDrain")), None)
    if section is None or finding is None:
        return
    if facts.damaged or facts.heads or facts.foreign:
        return  # It is left open whether a message that came damaged, or elsewhere, still waits.
    resumed = facts.phase.start + section["build"] + 2 * SECOND
    # A message waits in its subscriptions once the target has it.
    stored = sorted(
        max(sent.stored, sent.answered or 0) for sent in facts.acked if sent.stored is not None
    )
    acked = {(sent.stream, sent.seq) for sent in facts.acked}
    # What has come to a paused or a slow client no longer waits in its subscription.
    came = sorted(
        copies[0].stamped or 0 for key, copies in facts.copies.items() if key[:2] in acked
    )

    def waiting(at: int) -> int:
        return bisect_right(stored, at) * facts.subscriptions - bisect_right(came, at)

    if finding["outcome"] == "met" and finding["maximum"] is not None:
        by = resumed + round(finding["maximum"])
        steps = range(resumed, by + 1, 50 * MS)
        least = min((waiting(at) for at in steps), default=0)
        if least > section["allowed"]:
            yield Violation(
                "false pass",
                f"backlogDrain: {least} deliveries wait at least until its bound, {section['allowed']} may",
            )
    if section["drained"] and section["drain"] is not None:
        end = resumed + section["drain"]
        least = min(waiting(at) for at in range(end - LOOK, end + 1, 10 * MS))
        if least > section["allowed"]:
            yield Violation(
                "backlog",
                f"{least} deliveries wait when it is drained, {section['allowed']} may",
            )
    is_judged = finding["outcome"] != "no data"
    if section["drained"] is False and section["waited"] is not None and is_judged:
        end = resumed + section["waited"]
        left = [waiting(at) for at in range(end - LOOK, end + 1, 50 * MS)]
        # With second copies it is unknown how many are left: then it took longer than the wait.
        shrank = section["left"] is None or min(left) < section["messages"]
        if not shrank and "never" not in finding["shown"]["observed"]:
            yield Violation(
                "backlog",
                f"{min(left)} of {section['messages']} wait at the end: never, and not {finding['shown']['observed']}",
            )


# --- a search (docs/howto/find-the-peak.md)


def _has_held(peak: dict[str, Any], rate: float) -> bool:
    """Return whether a rate held: its last confirmation, or else the majority of its steps."""
    steps = [step for step in peak["steps"] if step["rate"] == rate]
    confirmed = [step["outcome"] for step in steps if step["purpose"] == "confirm"]
    votes = [step["outcome"] for step in steps if step["purpose"] != "confirm"]
    return confirmed[-1] == "met" if confirmed else 2 * votes.count("met") > len(votes)


def _peak(played: Played) -> Iterator[Violation]:
    """The peak is a rate that held, as did all lower ones."""
    peak = (played.results or {}).get("peak")
    if not peak or peak["rate"] is None:
        return
    if not _has_held(peak, peak["rate"]):
        yield Violation("peak", f"{peak['rate']} did not hold")
    unmet = sorted({step["rate"] for step in peak["steps"] if not _has_held(peak, step["rate"])})
    if unmet and unmet[0] < peak["rate"]:
        yield Violation("peak", f"{peak['rate']} is above {unmet[0]}, which did not hold")
    throttles = [
        fault
        for fault in played.world.faults
        if fault.kind == "throttle" and fault.duration is None and fault.at == 0
    ]
    if throttles and "B/s" not in str(played.world.profile["search"]):
        limit = min(rate_of(fault.values["rate"]) for fault in throttles)
        findings = (played.results or {})["verdict"]["findings"]
        shares = [
            one["minimum"]
            for one in findings
            if one["metric"] == "throughput" and one["unit"] == "ratio"
        ]
        floor = min([0.95, *filter(None, shares)])
        # Throughput is moved by the median latency, by which more is delivered in time: a step is twice as long then at most.
        if peak["rate"] * floor > 2 * limit + 1:
            yield Violation("peak", f"{peak['rate']}, and the target can do {limit}")
