"""The second judge of a world that was played: who is to blame (docs/decisions/048, 049).

:func:`check_blame` compares a world with the same world and a perfect generator, so that the product's rules need not be known.
A difference that a margin explains (margins.py) is yielded with the name of the margin.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulation.asked import span_of
from simulation.facts import all_facts, documents, has_key, median_shift, stages
from simulation.figures import RESOLUTION, has_even_clocks, latencies, statistic_of
from simulation.margins import DOUBT, EDGE, MESSAGES, TICK, TICKS, holds, margin_between
from simulation.own_delays import own_p99, reactions, sent_late
from simulation.violation import Violation
from simulation.world import FOREVER, GENERATOR, MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.facts import Facts
    from simulation.truth import Copy, Played, Sent

Finding = dict[str, Any]

LATE: Final = MS
"""ns by which a perfect generator is late: messages that become due between two ticks leave at the second (docs/decisions/011)."""
UNNOTICED: Final = 5 * MS
"""ns: a loop that waits a little may not notice the first instants of a stop."""
UNREAD: Final = 27 * MS
"""ns: the same of a worker that receives nothing, whose loop looks 40 times a second (docs/decisions/037)."""
STALL: Final = 50 * MS
LIMIT: Final = re.compile(r"\(generator\.(\w+)\)")
IN_DOUBT: Final = (
    "publishLatency",
    "endToEndLatency",
    "lateness",
    "broadcastCompletion",
    "broadcastSpread",
)
"""Latencies whose end may have come in a stop of its worker."""
SEND_DELAY: Final = "sendDelayP99"
"""Keys of ``generator`` (docs/howto/read-a-verdict.md, Generator-limited), as reasons name them."""
DEFAULT: Final = 100 * MS


def check_blame(played: Played, calm: Played | None) -> list[Violation]:
    """Judge who is to blame. :param calm: the same world with a perfect generator; None if that is not needed, or the same."""
    found = list(_stops(played))
    if played.world.has_perfect_generator:
        found += _reactions(played)
    if played.outcome == "generator-limited":
        found += _limits(played)
        if played.world.has_perfect_generator:
            found += _perfect(played)
    if calm is None:
        return found
    if played.outcome == "missed" and calm.outcome == "met":
        text = f"missed, and met with a perfect generator{missed(played)}"
        found.append(Violation("blame.target", text, margin_between(played, calm)))
    if played.outcome == "generator-limited" and "workloads" not in played.world.profile:
        found += _excused(played, calm)
    return found


def is_comparable(played: Played) -> bool:
    """Return whether a play can be compared with that of a perfect generator.

    Not a search, whose steps depend on each other, and an abort, which may end the load before a fault.
    """
    return not played.truth.killed and not has_key(played.world.profile, "search", "abort")


def needs_counterfactual(played: Played) -> bool:
    """Return whether blame depends on the world with a perfect generator.

    Not that of a run without data, which blames nobody; of a run that was met, which is the subject of a law (laws.py); and of one beyond
    a limit of the generator, which excuses everything.
    """
    if played.world.has_perfect_generator or not is_comparable(played):
        return False
    if played.outcome == "generator-limited":
        return all(_is_miss(reason) for reason in _reasons(played))
    return played.outcome == "missed"


def _reasons(played: Played) -> list[str]:
    """Return the reasons of the verdict; of several workloads, those of each that is *generator-limited*."""
    verdicts = [results["verdict"] for results, _ in documents(played)]
    if "workloads" not in played.world.profile:
        verdicts = verdicts[-1:]
    limited = [verdict for verdict in verdicts if verdict["outcome"] == "generator-limited"]
    return [reason for verdict in limited for reason in verdict["reasons"]]


def _is_miss(reason: str) -> bool:
    """Return whether a reason is a missed objective that is excused, and not a limit, a drop, or a load that was not offered."""
    is_other = "were dropped" in reason or "planned" in reason
    return not is_other and LIMIT.search(reason) is None


# --- the limits of ``generator`` (docs/howto/read-a-verdict.md, Generator-limited)


def _perfect(played: Played) -> Iterator[Violation]:
    """A perfect generator is late by ticks at most, which alone may exceed a limit or excuse a miss."""
    limits = played.world.profile.get("generator", {})
    excesses: list[tuple[str, float]] = []
    for reason in _reasons(played):
        limit = LIMIT.search(reason)
        if limit is not None and limit[1] == SEND_DELAY:
            # It may be late by a tick for each message that waited before a full window.
            most = span_of(limits.get(SEND_DELAY, f"{DEFAULT // MS}ms"))
            excesses.append((reason, most - _largest_own_delay(played)))
        elif not _is_miss(reason):
            excesses.append((reason, math.inf))
    for facts, part, finding in _excused_findings(played):
        is_late = finding["metric"] in ("sent", "throughput") and _is_late(facts, part, finding)
        excesses.append((finding["text"], 0 if is_late else _excess(finding)))
    if not excesses:
        excesses.append((played.error or "no reason", math.inf))
    for text, excess in excesses:
        margin = TICK if excess <= LATE else ""
        yield Violation("blame.generator", f"the generator is perfect: {text}", margin)


def _largest_own_delay(played: Played) -> int:
    """Return the largest p99 of own delays of a phase or a stage."""
    parts = [part for facts in all_facts(played) for part in (facts, *stages(facts).values())]
    return max((own_p99(part) or 0 for part in parts), default=0)


def _reactions(played: Played) -> Iterator[Violation]:
    """A perfect generator hands over each message within two ticks after it is due and its stream has room."""
    for facts in all_facts(played):
        latest = max((sent.at - room for sent, room in reactions(facts)), default=0)
        if latest > TICKS + facts.error:
            yield Violation("blame.late", f"a message was handed over {latest} ns late")


def _excused_findings(played: Played) -> Iterator[tuple[Facts, Facts, Finding]]:
    """Yield the facts of the phase, those of the part that a finding is about, and the finding."""
    for facts in all_facts(played):
        sections = [(facts, facts.results["verdict"])]
        parts = stages(facts)
        for stage in facts.results.get("stages") or ():
            if stage.get("verdict"):
                sections.append((parts[stage["name"]], stage["verdict"]))
        for part, verdict in sections:
            for finding in verdict["findings"]:
                if finding["outcome"] == "generator-limited":
                    yield facts, part, finding


def _is_late(facts: Facts, part: Facts, finding: Finding) -> bool:
    """Return whether a lower bound would hold with the messages that ticks before full windows, which add up, made late."""
    if finding["windows"] or finding["tenths"] or None in (finding["observed"], part.offered):
        return False
    base = part.offered if finding["unit"] == "ratio" else (part.end - part.begin) / SECOND
    holds: bool = finding["observed"] + sent_late(facts, part) / base >= finding["minimum"]
    return holds


def _excess(finding: Finding) -> float:
    """Return by how much a latency is beyond its upper bound, ns; inf for everything else."""
    if finding["unit"] != "ns" or None in (finding["observed"], finding["maximum"]):
        return math.inf
    excess: float = finding["observed"] * (1 - RESOLUTION) - finding["maximum"]
    return excess


def _limits(played: Played) -> Iterator[Violation]:
    """A limit that a verdict names was exceeded, in the phase or in the stage that it is about."""
    for facts in all_facts(played):
        yield from _limits_of(played, facts, facts.results["verdict"])
        parts = stages(facts)
        for stage in facts.results.get("stages") or ():
            if stage.get("verdict"):
                yield from _limits_of(played, parts[stage["name"]], stage["verdict"])


def _limits_of(played: Played, facts: Facts, verdict: dict[str, Any]) -> Iterator[Violation]:
    if verdict["outcome"] != "generator-limited" or not has_even_clocks(facts):
        return  # A worker whose clock is set believes that it stood still, or is late.
    own = (reason for reason in verdict["reasons"] if not reason.startswith("stage "))
    named = {limit[1] for reason in own if (limit := LIMIT.search(reason))}
    limits = facts.profile.get("generator", {})
    if SEND_DELAY in named:
        limit = span_of(limits.get(SEND_DELAY, f"{DEFAULT // MS}ms"))
        delay = own_p99(facts)
        if delay is not None and delay < limit - LATE:
            text = f"own send delay p99 is {delay} ns, the limit {limit}"
            yield Violation("blame.limit", text)
    if "stalled" in named and _only_pauses(played):
        duration = facts.end - facts.begin
        longest = max(_stopped(played, _in_seconds(facts)).values(), default=0)
        if longest < limits.get("stalled", 0.1) * duration - UNNOTICED:
            text = f"no worker was stopped for more than {longest / duration:.1%}, and the run is limited by it"
            yield Violation("blame.limit", text)


def _in_seconds(facts: Facts) -> Facts:
    """Return the facts of the whole seconds of a part, by which it is judged (docs/howto/read-a-verdict.md, Generator-limited)."""
    start = facts.phase.start
    first = (facts.begin - start) // SECOND
    last = -(-(facts.end - start) // SECOND)
    end = min(start + last * SECOND, facts.phase_end)
    return replace(facts, begin=start + first * SECOND, end=end)


def _only_pauses(played: Played) -> bool:
    return {fault.kind for fault in played.world.of_side(GENERATOR)} == {"pause"}


def _stopped(played: Played, facts: Facts, shortest: int = 0) -> Counter[int]:
    """Return for how long each worker was stopped in the phase, or the part of it, ns. :param shortest: shorter stops do not count."""
    stopped: Counter[int] = Counter()
    for worker, begin, end in played.truth.pauses:
        if end - begin < shortest:
            continue
        within = min(end, facts.end) - max(begin, facts.begin)
        stopped[worker] += max(within, 0)
    return stopped


def _stops(played: Played) -> Iterator[Violation]:
    """Beyond the limit ``stalled`` a run is generator-limited; stops of up to 50 ms are none (docs/decisions/049)."""
    workers = [worker for worker, _, _ in played.truth.pauses]
    # Two stops of a worker may overlap.
    if played.truth.killed or len(set(workers)) < len(workers):
        return
    for facts in all_facts(played):
        outcome = facts.results["verdict"]["outcome"]
        if outcome in ("generator-limited", "no data") or facts.run.get("aborted"):
            continue
        limit = facts.profile.get("generator", {}).get("stalled", 0.1)
        duration = facts.phase_end - facts.phase.start
        readers = {copy.worker for copy in played.truth.copies}
        for worker in dict.fromkeys(workers):
            unnoticed = UNNOTICED if worker in readers else UNREAD
            stopped = _stopped(played, facts, STALL + unnoticed)[worker]
            if stopped > limit * duration + unnoticed:
                share = f"{stopped / duration:.1%} of the phase"
                text = f"worker {worker} was stopped for {share}, and the run is {outcome}"
                yield Violation("blame.limit", text)


# --- a miss that is excused


def _excused(played: Played, calm: Played) -> Iterator[Violation]:
    """A miss is excused only if the generator's fault changes the objective (docs/decisions/049)."""
    if not all(_is_miss(reason) for reason in _reasons(played)):
        return
    theirs = {
        one["name"]: one for one in (calm.results or {}).get("verdict", {}).get("findings", ())
    }
    for finding in (played.results or {})["verdict"]["findings"]:
        other = theirs.get(finding["name"])
        if finding["outcome"] != "generator-limited" or finding["windows"] or other is None:
            continue
        if finding["metric"] == "throughput" and not finding["tenths"]:
            yield from _excused_throughput(played, finding, other)
            continue
        values = (finding["observed"], other["observed"])
        if finding["unit"] != "ns" or finding["tenths"] or None in values:
            continue
        change = abs(values[0] - values[1])
        if other["outcome"] == "missed" and change <= TICKS + RESOLUTION * values[1]:
            text = f"{finding['name']} is excused; with a perfect generator it is missed all the same, by {values[1]:.9g}"
            yield Violation("blame.excused", text, _margin_of_excuse(played, finding, other))


def _excused_throughput(played: Played, finding: Finding, other: Finding) -> Iterator[Violation]:
    """A throughput that a perfect generator misses too is not excused.

    What was read after a stop may have come at once, and messages may have been sent after the end.
    """
    if other["outcome"] != "missed" or other["minimum"] is None:
        return
    text = f"{finding['name']} is excused; with a perfect generator it is missed all the same, by {other['observed']:.9g}"
    is_open = finding["bucket"] or any(
        _is_late(facts, facts, finding)
        or holds(_moved_at_once(played, facts), finding) is not False
        for facts in all_facts(played)
    )
    margin = DOUBT if is_open else ""
    # The median by which the phase is moved has an error, too.
    if other["observed"] * (1 + MESSAGES / max(other["samples"], 1)) >= other["minimum"]:
        margin = EDGE
    yield Violation("blame.excused", text, margin)


def _moved_at_once(played: Played, facts: Facts) -> Facts:
    at_once = _at_once(played, facts)
    at_once.shift = median_shift(at_once)
    return at_once


def _margin_of_excuse(played: Played, finding: Finding, other: Finding) -> str:
    """Return why an excuse is right all the same.

    What a late message waited counts as a whole, so that without it the message left at once, and not at the next tick.
    """
    if _excess(other) <= LATE:
        return TICK
    return DOUBT if _is_in_doubt(played, finding) else ""


def _is_in_doubt(played: Played, finding: Finding) -> bool:
    """Return whether an upper bound would hold if what came while its worker stood still had come at once.

    Nobody who stood still can know that it did not (docs/decisions/049, In doubt). A stop has consequences for as long again as it took.
    """
    if finding["metric"] not in IN_DOUBT or finding["bucket"]:
        return False
    for facts in all_facts(played):
        values, never = latencies(facts, finding["metric"])
        lowest, _ = latencies(_at_once(played, facts), finding["metric"])
        true = statistic_of(lowest, never, finding["statistic"], facts.error)
        if lowest != values and true is not None and true[0] <= (finding["maximum"] or 0):
            return True
    return False


def _at_once(played: Played, facts: Facts) -> Facts:
    """Return the facts as if each copy that waited for its worker had come when its message was due, and each answer earlier by the stop."""
    copies = {}
    for key, found in facts.copies.items():
        sent = facts.message(*key[:2])
        firsts = found[: facts.outputs]
        for place, first in enumerate(firsts):
            if _came_in_a_stop(played, first):
                earliest = min(sent.due or sent.intended, first.stamped or 0)
                firsts[place] = replace(first, stamped=earliest)
        copies[key] = [*firsts, *found[facts.outputs :]]
    messages = [_answered_at_once(played, sent) for sent in facts.messages]
    return replace(facts, copies=copies, messages=messages)


def _answered_at_once(played: Played, sent: Sent) -> Sent:
    """Return a message whose answer came earlier by the stop of its worker that it came in, or soon after."""
    if sent.answered is None:
        return sent
    since = played.truth.phases[0].start
    stops = [
        (begin, 2 * end - begin, end - begin)
        for worker, begin, end in played.truth.pauses
        if worker == sent.worker
    ]
    for fault in played.world.faults:
        if fault.kind == "slow-read" and fault.values["worker"] == sent.worker:
            by = int(fault.values["by"])
            begin = since + fault.at
            stops.append((begin, begin + (fault.duration or FOREVER) + 2 * by, by))
    stopped = max((by for begin, end, by in stops if begin <= sent.answered <= end), default=0)
    return replace(sent, answered=max(sent.answered - stopped, sent.at))


def _came_in_a_stop(played: Played, copy: Copy) -> bool:
    """Return whether a copy waited for its reader, or came soon after a stop of it."""
    if (copy.taken or 0) - copy.arrived > TICKS:
        return True
    return any(
        worker == copy.worker and begin <= copy.arrived <= 2 * end - begin
        for worker, begin, end in played.truth.pauses
    )


def missed(played: Played) -> str:
    """Return what a run missed, as the end of a sentence."""
    verdict = (played.results or {}).get("verdict", {})
    texts = [one["text"] for one in verdict.get("findings", ()) if one["outcome"] == "missed"]
    return f": {'; '.join([*texts, *verdict.get('reasons', ())])}" if texts else ""
