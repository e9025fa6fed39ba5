"""What the judges accept without proof, each with a name, so that its use is counted.

Within one play:

- :data:`DRAIN`: what comes in the two seconds in which workers learn that the drain is over may be counted or not: no rules about counts,
  also between two plays;
- :data:`CLOCK`: a clock was set, or its stated error (docs/clocks.md) leaves open whether a bound holds;
- :data:`ROUNDED`: the three digits of a histogram (docs/reference/results.md) leave it open.

Between two plays:

- :data:`TICK`: a worker's loop hands over messages at its ticks, a millisecond apart (docs/decisions/011); where they fall depends on
  clocks and on everything before.
- :data:`EDGE`: a throughput counts messages in a time that is moved by the median latency (docs/decisions/004), so that the first or the
  last one may fall out of it.
- :data:`FATE`: a message at the edge of a fault is struck by it in one play and not in the other, and holds up those behind it. Faults
  count from the start of the first phase; a later phase begins when all workers have met again, some ms earlier or later, and messages
  leave at ticks. At each edge there are as many of them as are sent in that time.
- :data:`SHIFT`: a phase after the first began at another time, so that faults struck other messages: a stopped worker holds up the meeting
  before it.
- :data:`REJECTS`: a client with ``blockIfQueueFull: false`` rejects messages that a late generator hands over at once, which excuses no
  count (docs/decisions/049).
- :data:`DOUBT`: when a delivery came that was read after a stop of its worker is unknown (docs/decisions/049), so a miss is excused if it
  could have come at once.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulation.facts import all_facts, documents, facts_of
from simulation.figures import LATENCIES, RESOLUTION, figure, latencies, statistic_of
from simulation.world import MS, TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.facts import Document, Facts
    from simulation.figures import Interval
    from simulation.truth import Copy, Played, Sent

TICK: Final = "a tick"
EDGE: Final = "the edge of a throughput"
FATE: Final = "a message at the edge of a fault"
DRAIN: Final = "the end of the drain"
CLOCK: Final = "a clock"
ROUNDED: Final = "the resolution of histograms"
DOUBT: Final = "what came in a stop"
SHIFT: Final = "a phase that began later"
REJECTS: Final = "messages that a client rejected"
MARGINS: Final = (TICK, EDGE, FATE, SHIFT, REJECTS, DOUBT, DRAIN, CLOCK, ROUNDED)

TICKS: Final = 2 * MS
"""ns by which a latency or an instant may differ: a tick on the way out, and one of the reading loop."""
MEETING: Final = 50 * MS
"""ns by which a phase after the first may begin earlier or later: reports that end a phase are COLLECT apart (docs/decisions/002)."""
MESSAGES: Final = 2
"""Messages at an edge: more than so many are no coincidence."""

Finding = dict[str, Any]
Key = tuple[Any, ...]


def margin_between(played: Played, other: Played, later: int = 0) -> str:
    """Return the margins that explain every objective which one play meets and the other misses.

    Empty if one is not explained, or if no objective differs: then something else decided.

    :param later: ns by which the other play sends later.
    """
    if _shift(played, other) > MEETING:
        return SHIFT
    drain = margin_of_drains(played, other)
    if drain:
        return drain
    ours, theirs = dict(_findings(played)), dict(_findings(other))
    different = [key for key in {**ours, **theirs} if _outcome(ours, key) != _outcome(theirs, key)]
    used = set()
    for key in different:
        if key not in ours or key not in theirs:
            return ""
        margin = _margin(key, ours[key], theirs[key], played, other, later)
        if not margin:
            return ""
        used.add(margin)
    return ", ".join(sorted(used))


def margin_of_drains(played: Played, other: Played) -> str:
    """Return :data:`DRAIN` if something came at the end of a drain in one of the plays: in the other one it ended a little later."""
    plays = (played, other)
    is_open = any(not facts.settled for play in plays for facts in all_facts(play))
    return DRAIN if is_open else ""


def _shift(played: Played, other: Played) -> int:
    """Return by how much a phase began at another time, as the times of faults count, ns."""
    starts = zip(_starts(played), _starts(other), strict=False)
    return max((abs(ours - theirs) for ours, theirs in starts), default=0)


def _starts(played: Played) -> list[int]:
    starts = sorted(phase.start for phase in played.truth.phases)
    return [start - starts[0] for start in starts]


def _findings(played: Played) -> Iterator[tuple[Key, Finding]]:
    """Yield the findings of each workload and stage, by where they belong."""
    for results, _ in documents(played):
        sections = [(None, results.get("verdict"))]
        sections += [(stage["name"], stage.get("verdict")) for stage in results.get("stages") or ()]
        for stage, verdict in sections:
            for finding in (verdict or {}).get("findings", ()):
                bounds = (finding["maximum"], finding["minimum"])
                yield (results.get("workload"), stage, finding["name"], *bounds), finding


def _outcome(findings: dict[Key, Finding], key: Key) -> str | None:
    return findings[key]["outcome"] if key in findings else None


def _margin(
    key: Key, finding: Finding, other: Finding, played: Played, calm: Played, later: int
) -> str:
    """Return the name of the margin that explains one objective, or ''."""
    if finding["windows"]:
        margin = TICK if _are_windows_close(finding, other) else ""
    else:
        margin = _margin_of_values(finding, other, played, calm)
    workload, stage, *_ = key
    if not margin and stage is None and _is_a_tick_beyond_own_part(workload, finding, played):
        margin = TICK
    if margin or stage is not None or finding["bucket"] or finding["tenths"]:
        return margin
    return _margin_of_messages(workload, finding, played, calm, later)


def _margin_of_values(finding: Finding, other: Finding, played: Played, calm: Played) -> str:
    if finding["tenths"] and finding["tenths"]["unit"] == "ns":
        pairs = [(finding["tenths"][part], other["tenths"][part]) for part in ("first", "last")]
        return TICK if all(_is_close(*pair) for pair in pairs) else ""
    if finding["metric"] == "throughput":
        measured = (played.results or {})["measurements"]
        deliveries = max(measured["subscriptions"], 1) * measured.get("outputs", 1)
        counted = abs(finding["samples"] - other["samples"])
        return EDGE if counted <= MESSAGES * deliveries else ""
    if finding["unit"] != "ns":
        return ""
    values = (finding["observed"], other["observed"])
    if _is_close(*values):
        return TICK
    return SHIFT if _is_close(*values, _shift(played, calm)) else ""


def _is_a_tick_beyond_own_part(workload: str | None, finding: Finding, played: Played) -> bool:
    """Return whether a latency misses its bound by a tick or less once each message that was sent late counts from when it was sent.

    What a late generator hands over at once waits for the answers to one another, which is excused up to a tick after the pause, and send
    delays of a tick are not excused at all (docs/decisions/049).
    """
    facts = _facts(played, workload)
    bound = finding["maximum"]
    is_other = finding["metric"] not in ("publishLatency", "endToEndLatency", "sendDelay")
    if facts is None or bound is None or finding["windows"] or is_other:
        return False
    if finding["bucket"]:
        facts = facts.part(0, facts.phase_end - facts.phase.start, finding["bucket"])
    messages = [
        replace(sent, intended=sent.at) if sent.at - sent.intended > TICKS else sent
        for sent in facts.messages
    ]
    # Within one host, too, whose clock is not that of the truth: a margin needs no certainty.
    values, never = latencies(replace(facts, messages=messages), finding["metric"])
    if never != 0:  # then its tolerance decides too
        return False
    true = statistic_of(values, never, finding["statistic"], facts.error)
    return true is not None and bound < true[1] and true[0] <= bound + TICKS


def _margin_of_messages(
    workload: str | None, finding: Finding, played: Played, other: Played, later: int
) -> str:
    """Return the margin of messages without which an objective holds, or does not, in both plays alike."""
    plays = (played, other)
    edge = at_an_edge(played, other, later)
    most = MESSAGES + math.ceil(2 * _shift(played, other) * _sent_per_ns(played))
    is_edge = 0 < len(edge) <= most * len(played.world.of_side(TARGET))
    late = held_up(played, edge) | held_up(other, edge)
    if is_edge and _are_alike(workload, finding, *((play, late) for play in plays)):
        return FATE
    rejected = [(play, _rejected(play)) for play in plays]
    is_rejected = any(messages for _, messages in rejected)
    return REJECTS if is_rejected and _are_alike(workload, finding, *rejected) else ""


def _sent_per_ns(played: Played) -> float:
    """Return the mean rate: a fault has so many other messages at its begin and at its end if a phase began earlier."""
    times = [sent.at for sent in played.truth.sent]
    if not times:
        return 0.0
    return len(times) / max(max(times) - min(times), 1)


def _are_windows_close(finding: Finding, other: Finding) -> bool:
    """Return whether a tick explains each window that one play meets and the other misses."""
    if finding["unit"] != "ns":
        return False
    theirs = {window["start"]: window for window in other["windows"]["listed"]}
    different = [
        (window["observed"], theirs[window["start"]]["observed"])
        for window in finding["windows"]["listed"]
        if window["start"] in theirs and window["outcome"] != theirs[window["start"]]["outcome"]
    ]
    return bool(different) and all(_is_close(*both) for both in different)


def _is_close(observed: float | None, other: float | None, shift: int = 0) -> bool:
    """:param shift: ns by which a fault struck other messages, and the same ones for longer."""
    if observed is None or other is None:
        return False
    return abs(observed - other) <= TICKS + shift + RESOLUTION * max(observed, other)


# --- a message at the edge of a fault


Fate = tuple[int, int, Key]


def fates(played: Played) -> dict[Key, Fate]:
    """Return of each message when it was sent, as the times of faults count, how late that was, and what became of it."""
    origin = min((phase.start for phase in played.truth.phases), default=0)
    copies = Counter(
        (copy.run, copy.stream, copy.seq) for copy in played.truth.copies if not copy.foreign
    )
    found = {}
    for sent in played.truth.sent:
        key = _key(sent)
        became = (sent.failed, sent.answered is None, sent.stored is None, sent.sends, copies[key])
        fate = (*became, frozenset(sent.struck))
        found[key] = (sent.at - origin, sent.at - sent.intended, fate)
    return found


def _key(message: Sent | Copy) -> Key:
    return (message.run, message.stream, message.seq)


def at_an_edge(played: Played, other: Played, later: int = 0) -> set[Key]:
    """Return the messages that were sent about as late in both plays, about at the same time, and have another fate.

    :param later: ns by which the other play sends later.
    """
    theirs = fates(other)
    edge = set()
    for key, (at, delay, fate) in fates(played).items():
        their_at, their_delay, their_fate = theirs.get(key, (at, delay, fate))
        is_same = abs(at - their_at) <= MEETING and abs(delay - their_delay) <= TICKS + later
        if is_same and fate != their_fate:
            edge.add(key)
    return edge


def held_up(played: Played, edge: set[Key]) -> set[Key]:
    """Return messages at an edge with all that waited for one: those of the same throttle, and those behind any of these in its stream."""
    sent_at_edge = [sent for sent in played.truth.sent if _key(sent) in edge]
    throttles = {fault for sent in sent_at_edge for fault in sent.struck if fault[0] == "throttle"}
    arrived = {_key(copy): copy.arrived for copy in played.truth.copies if not copy.foreign}
    held = set()
    busy: dict[Key, int] = {}  # run and stream → until when its messages wait
    for sent in sorted(played.truth.sent, key=lambda sent: sent.at):
        key, stream = _key(sent), (sent.run, sent.stream)
        waits = sent.at < busy.get(stream, 0)
        if waits or key in edge or throttles & sent.struck:
            held.add(key)
            until = max(sent.stored or 0, sent.answered or 0, arrived.get(key, 0))
            busy[stream] = max(busy.get(stream, 0), until)
    return held


def _rejected(played: Played) -> set[Key]:
    """Return the messages that clients rejected themselves."""
    return {_key(sent) for sent in played.truth.sent if sent.failed and sent.answered == sent.at}


def _are_alike(workload: str | None, finding: Finding, *plays: tuple[Played, set[Key]]) -> bool:
    """Return whether an objective holds, or does not, in all plays alike. :param plays: each with the messages to leave out."""
    sides = set()
    for play, left_out in plays:
        facts = _facts(play, workload)
        if facts is None:
            return False
        rest = facts.without({key[1:] for key in left_out})
        side = holds(rest, finding)
        sides.add(_holds_by_any_clock(rest, finding) if side is None else side)
    return None not in sides and len(sides) == 1


def _holds_by_any_clock(facts: Facts, finding: Finding) -> bool | None:
    """Return whether a latency meets its bounds by the clock of one host, which is not that of the truth; None: unknown.

    A margin needs no certainty.
    """
    if finding["windows"] or finding["metric"] not in LATENCIES:
        return None
    values, never = latencies(facts, finding["metric"])
    if never != 0:  # then its tolerance decides too
        return None
    return _is_within_bounds(
        statistic_of(values, never, finding["statistic"], facts.error), finding
    )


def _facts(played: Played, workload: str | None) -> Facts | None:
    for results, run in documents(played):
        if results["workload"] == workload and run is not None:
            return facts_of(played, results, run)
    return None


def holds(facts: Facts, finding: Finding) -> bool | None:
    """Return whether the truth meets an objective for certain; None if that is open."""
    if not finding["windows"]:
        return _holds_in(facts, finding, None)
    windows = finding["windows"]
    base = facts.begin - facts.phase.start
    parts = [
        facts.part(base + window["start"], base + window["end"]) for window in windows["listed"]
    ]
    held = [_holds_in(part, finding, facts) for part in parts]
    allowed = math.floor(windows["violations"] * windows["number"] + 1e-6)
    if held.count(False) > allowed:
        return False
    return True if held.count(True) >= windows["number"] - allowed else None


def _holds_in(facts: Facts, finding: Finding, whole: Facts | None) -> bool | None:
    """:param whole: the phase, if ``facts`` is a window of it."""
    slo: Document = facts.profile.get("slo", {})
    measure = (finding["metric"], finding["statistic"], finding["unit"])
    return _is_within_bounds(figure(facts, *measure, slo, whole=whole), finding)


def _is_within_bounds(true: Interval | None, finding: Finding) -> bool | None:
    """Return whether a value meets the bounds of an objective for certain; None: open."""
    if true is None:
        return None
    low, high = true
    most, least = finding["maximum"], finding["minimum"]
    if (most is None or high <= most) and (least is None or low >= least):
        return True
    if (most is not None and low > most) or (least is not None and high < least):
        return False
    return None
