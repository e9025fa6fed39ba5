"""Two judges of a world that was played. They share no code with the product: only the truth, the documents, and the docs.

:func:`check_truth` counts what happened, by brute force over the messages, and compares it with ``results.json``. :func:`check_blame`
compares the world with the same world without the generator's faults. Each rule names the page that it comes from. A rule is left out
where it is not certain; the comments say where.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from simulation.violation import Violation
from simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.truth import Copy, Played, PlayedPhase, Sent

MARGIN: Final = 2 * SECOND
"""ns: every worker has learned within this time that the drain is over. What happens in it may be counted or not."""
RESOLUTION: Final = 0.0011
"""Relative error of a percentile: histograms keep three digits (docs/reference/results.md)."""

Delivery = tuple[int, int, int]  # stream, seq, subscription


@dataclass
class Facts:
    """The truth about the measured phase of a world, as far as it is certain.

    :param messages: those of the phase, with the answers that came before its end.
    :param first: delivery → its first copy. :param copies: all of them, with heads that can be read.
    :param is_settled: nothing happened around the end of the drain, where it is open whether it is counted.
    """

    messages: list[Sent]
    copies: list[Copy]
    first: dict[Delivery, Copy]
    damaged_heads: int
    is_settled: bool


def decidable(played: Played) -> bool:
    """Return whether the rules below are certain in a world.

    Left out: several workloads and searches (the results are those of one part), runs without results, workers that were killed, a load
    that was cut short, targets that acknowledge nothing, and runs without producers of their own.
    """
    profile, results, run = played.world.profile, played.results, played.run
    if results is None or run is None or results["measurements"] is None:
        return False
    if "workloads" in profile or _has_key(profile, "search", "consumerBacklogSizeGB"):
        return False
    if played.truth.killed or run.get("aborted") or run.get("unattainable"):
        return False
    acknowledged: bool = profile["driver"].get("acknowledged", True)
    phase = _measured_phase(played)
    return acknowledged and phase is not None and phase.ended is not None


def _has_key(profile: dict[str, Any], *keys: str) -> bool:
    """Return whether a profile, or one of its workloads, has one of these keys."""
    sections = (profile, *profile.get("workloads", ()))
    return any(key in section for section in sections for key in keys)


def _measured_phase(played: Played) -> PlayedPhase | None:
    recorded = [phase for phase in played.truth.phases if phase.recorded]
    return recorded[0] if len(recorded) == 1 else None


def facts_of(played: Played) -> Facts:
    """Return the facts of a decidable world."""
    phase = _measured_phase(played)
    assert phase is not None
    assert phase.ended is not None
    end = phase.ended
    # No message of a warm-up is sent after its drain, which ends 200 ms before the measured phase begins. A worker on another host may
    # begin a little early, by the error of its clock.
    messages = [sent for sent in played.truth.sent if sent.at >= phase.start - SECOND // 20]
    numbers = {(sent.stream, sent.seq) for sent in messages}
    arrived = [
        copy
        for copy in played.truth.copies
        if (copy.stream, copy.seq) in numbers and copy.arrived <= end + MARGIN
    ]
    # A damaged message counts as corrupt, and as nothing else; without a checksum a damaged body is not noticed.
    noticed = ("head", "body") if played.world.profile.get("checksum") else ("head",)
    copies = [copy for copy in arrived if copy.taken is not None and copy.damage not in noticed]
    first: dict[Delivery, Copy] = {}
    for copy in copies:
        delivery = copy.stream, copy.seq, copy.subscription
        if delivery not in first or copy.arrived < first[delivery].arrived:
            first[delivery] = copy
    times = [copy.arrived for copy in arrived]
    for number, sent in enumerate(messages):
        if sent.answered is None:
            continue
        if sent.answered <= end + MARGIN:
            times.append(sent.answered)
        else:  # the answer came when nobody waited for it any more
            messages[number] = replace(sent, answered=None, failed=False)
    return Facts(
        messages=messages,
        copies=copies,
        first=first,
        damaged_heads=sum(copy.damage == "head" and copy.taken is not None for copy in arrived),
        is_settled=all(time <= end for time in times),
    )


# --- the first judge: counts and latencies


def check_truth(played: Played) -> list[Violation]:
    """Compare the results of a world with the truth."""
    if not decidable(played):
        return []
    facts = facts_of(played)
    found = list(_offered(played))
    if facts.is_settled:
        found += _counts(played, facts)
        found += _latencies(played, facts)
        found += _objectives(played, facts)
    return found


def _counts(played: Played, facts: Facts) -> Iterator[Violation]:
    """Counts are equal (docs/glossary.md: sent, failed, delivery, lost, duplicate, corrupt)."""
    assert played.results is not None
    shown = played.results["measurements"]["counts"]
    subscriptions = played.results["measurements"]["subscriptions"]
    acknowledged = [
        sent for sent in facts.messages if sent.answered is not None and not sent.failed
    ]
    lost = 0
    for sent in acknowledged:
        for subscription in range(subscriptions):
            lost += (sent.stream, sent.seq, subscription) not in facts.first
    true = {
        "sent": len(facts.messages),
        "acked": len(acknowledged),
        "unknown": sum(sent.answered is None for sent in facts.messages),
        "received": len(facts.first),
        "lost": lost,
        "duplicates": len(facts.copies) - len(facts.first),
        "resent": sum(sent.sends > 1 for sent in facts.messages),
    }
    if played.world.profile["driver"].get("blockIfQueueFull", True):
        # otherwise the client itself rejects messages, which never reach the target
        true["failed"] = sum(sent.failed for sent in facts.messages)
    if len(played.truth.phases) == 1:
        # damaged heads are counted over all phases, because their phase cannot be known
        true["corruptHeads"] = facts.damaged_heads
    if subscriptions == 0:
        for name in ("received", "lost", "duplicates", "corruptHeads"):
            true.pop(name, None)
    for name, value in true.items():
        if shown.get(name) is not None and shown[name] != value:
            yield Violation(f"counts.{name}", f"{name} is {value}, reported are {shown[name]}")


def _offered(played: Played) -> Iterator[Violation]:
    """Every message that is due is offered (docs/howto/shape-the-load.md): rate × duration, or the number of messages.

    Both are read from the profile, so that a phase which the product planned too short is found. Left out: rates in bytes and stages.
    """
    assert played.results is not None
    profile = played.world.profile
    rate = profile.get("producerRate")
    if "stages" in profile or not isinstance(rate, int | float):
        return
    offered = played.results["measurements"]["counts"]["offered"]
    if "messages" in profile:
        due = profile["messages"]
        tolerance = 0
    elif "testDuration" in profile:
        due = math.floor(rate * _span(profile["testDuration"]) / SECOND)
        tolerance = 1
    else:
        return
    if abs(offered - due) > tolerance:
        yield Violation("offered", f"{due} messages are due, reported are {offered}")


def _span(text: str) -> float:
    """Return a duration of a profile, ns: ``2500ms``."""
    match = re.fullmatch(r"([\d.]+)(us|ms|s|min)", text)
    assert match is not None, text
    return float(match[1]) * {"us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}[match[2]]


def _with_true_clocks(played: Played) -> bool:
    """Return whether every time is of one clock; others have a stated error."""
    return not any(played.world.host_of(number) for number in range(len(played.world.workers)))


def _values(played: Played, facts: Facts) -> dict[str, list[int]]:
    """Return the latencies by metric, ns (docs/reference/profile.md, slo): from the intended time on, of first copies alone."""
    publish = [
        sent.answered - sent.intended
        for sent in facts.messages
        if sent.answered is not None and not sent.failed
    ]
    intended = {(sent.stream, sent.seq): sent.intended for sent in facts.messages}
    end_to_end = []
    for (stream, seq, _), copy in facts.first.items():
        assert copy.stamped is not None
        end_to_end.append(copy.stamped - intended[stream, seq])
    return {"publishLatency": publish, "endToEndLatency": end_to_end}


_SECTIONS: Final = {"publishLatency": "publish", "endToEndLatency": "endToEnd"}


def _latencies(played: Played, facts: Facts) -> Iterator[Violation]:
    """Samples, extremes and mean of latencies are those of the truth (docs/reference/results.md).

    Left out: other hosts, delayed messages (their latency counts from when they are due), and merged stamps, which move first copies.
    """
    assert played.results is not None
    if not _with_true_clocks(played) or "deliverAfter" in str(played.world.profile):
        return
    shown = played.results["measurements"]["latencies"]
    for metric, values in _values(played, facts).items():
        section = shown.get(_SECTIONS[metric])
        if section is None or not values:
            continue
        true = {
            "samples": len(values),
            "minimum": min(values),
            "largest": max(values),
            "total": sum(values),
        }
        if metric == "endToEndLatency" and len(facts.copies) > len(facts.first):
            del true["total"]  # which of two copies with one stamp is the first is open
        for name, value in true.items():
            if section.get(name) is not None and section[name] != value:
                yield Violation(
                    f"{metric}.{name}", f"{name} is {value}, reported is {section[name]}"
                )


def _objectives(played: Played, facts: Facts) -> Iterator[Violation]:
    """*met* only if the truth is within the bound (docs/howto/read-a-verdict.md). The largest false pass is looked for: whole run, no windows."""
    assert played.results is not None
    if not _with_true_clocks(played) or "deliverAfter" in str(played.world.profile):
        return
    values = _values(played, facts)
    for finding in played.results["verdict"]["findings"]:
        metric, statistic = finding["metric"], finding["statistic"]
        if finding["unit"] != "ns":  # a drift, which bounds a change of the latency
            continue
        if metric not in values or finding["bucket"] or finding["windows"] or not values[metric]:
            continue
        true = _statistic(sorted(values[metric]), statistic)
        if true is None or finding["maximum"] is None or finding["outcome"] != "met":
            continue
        if true > finding["maximum"] * (1 + RESOLUTION) + 1:
            text = f"{metric}.{statistic} is {true} ns, above {finding['maximum']}, and met with {finding['observed']}"
            yield Violation("false pass", text)


def _statistic(ordered: list[int], name: str | None) -> float | None:
    """Return a percentile, the mean or an extreme of ordered values; None for another statistic."""
    if name == "max":
        return ordered[-1]
    if name == "mean":
        return sum(ordered) / len(ordered)
    match = re.fullmatch(r"p([\d.]+)", name or "")
    if match is None:
        return None
    # the smallest value that is not below so much of all (nearest rank); one rank less, as ranks of ties may differ
    rank = math.ceil(float(match[1]) / 100 * len(ordered)) - 1
    return ordered[max(rank - 1, 0)]


# --- the second judge: who is to blame


def check_blame(played: Played, calm: Played | None) -> list[Violation]:
    """Compare a world with the same world and a perfect generator. :param calm: None if the world's generator is perfect."""
    found = []
    if played.outcome == "generator-limited" and calm is None:
        reasons = (played.results or {}).get("verdict", {}).get("reasons", [])
        found.append(
            Violation("blame.generator", f"the generator is perfect: {'; '.join(reasons)}")
        )
    if calm is not None and not played.truth.killed:
        # Left out: searches, whose steps depend on each other, and an abort, which may end the load before a fault.
        if _has_key(played.world.profile, "search", "abort"):
            return found
        if played.outcome == "missed" and calm.outcome == "met":
            found.append(
                Violation(
                    "blame.target", f"missed, and met with a perfect generator{_missed(played)}"
                )
            )
        if played.outcome == "met" and calm.outcome == "missed":
            found.append(
                Violation(
                    "blame.hidden", f"met, and missed with a perfect generator{_missed(calm)}"
                )
            )
    return found


def _missed(played: Played) -> str:
    verdict = (played.results or {}).get("verdict", {})
    texts = [one["text"] for one in verdict.get("findings", ()) if one["outcome"] == "missed"]
    return f": {'; '.join([*texts, *verdict.get('reasons', ())])}" if texts else ""
