"""The truth about one measured phase, by brute force over the messages: what was due, sent, acknowledged, and delivered.

Nothing of the product is used but its documents, which say where the phase began and how long it was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from simulation.asked import Due, span_of
from simulation.coverage import workloads
from simulation.player import clock_of
from simulation.world import GENERATOR, SECOND

if TYPE_CHECKING:
    from collections.abc import Set

    from simulation.truth import Connection, Copy, Played, PlayedPhase, Sent

MARGIN: Final = 2 * SECOND
"""ns: every worker has learned within this time that the drain is over. What happens in it may be counted or not."""

Delivery = tuple[int, int, int]  # stream, seq, subscription
Profile = dict[str, Any]
Document = dict[str, Any]


@dataclass(kw_only=True)
class Facts:
    """The truth about a measured phase, or about a part of its messages.

    :param profile: the keys of the workload. :param results: and ``run``: the documents about the phase.
    :param begin: and ``end``: of the part, ns of true time: messages due in it belong to it. :param phase_end: of the whole phase.
    :param messages: those sent, with answers that came before the drain's end. :param offered: messages due; None: unknown.
    :param copies: by delivery, in the order of arrival; the first is the one that counts.
    :param damaged: copies with a damaged body that was found. :param heads: damaged heads, also those of the warm-up.
    :param settled: nothing happened around the end of the drain, where it is open whether it is counted. :param error: of latencies
        between hosts, ns. :param exact: every time is of one clock. :param shift: the median by which the phase is moved, ns.
    :param later: copies that arrive after the phase. :param foreign: messages of other runs, also in the warm-up, and
        those of the phase at consumers of another topic. :param connections: of the run, before the load. :param steady: no worker has a fault.
    :param heads_settled: no damaged head was taken around the end of the drain.
    :param taps: when the tap of a service had each message that it received; None: open. :param earlier: messages of the phases before.
    """

    profile: Profile
    results: Document
    run: Document
    phase: PlayedPhase
    begin: int
    end: int
    phase_end: int
    messages: list[Sent]
    offered: int | None
    copies: dict[Delivery, list[Copy]]
    damaged: list[Copy]
    heads: list[Copy]
    settled: bool
    error: int = 0
    exact: bool = True
    shift: float = 0.0
    bucket: str = ""
    later: list[Copy] = field(default_factory=list)
    foreign: list[Copy] = field(default_factory=list)
    steady: bool = True
    heads_settled: bool = True
    connections: list[Connection] = field(default_factory=list)
    taps: dict[tuple[int, int], int] | None = None
    earlier: list[Sent] = field(default_factory=list)
    _by_message: dict[tuple[int, int], Sent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_message = {(sent.stream, sent.seq): sent for sent in self.messages}

    @property
    def subscriptions(self) -> int:
        number: int = self.profile.get("subscriptionsPerTopic", 1)
        return number

    @property
    def outputs(self) -> int:
        """The outputs due for each message and subscription: those of a service (docs/howto/test-a-service.md), or the message itself."""
        number = self.profile.get("route", {}).get("outputs", 1)
        return 1 if self.chooses else int(number)

    @property
    def chooses(self) -> bool:
        """Whether a service chooses the messages that have an output: then nobody knows which were due, and those that came count."""
        return isinstance(self.profile.get("route", {}).get("outputs"), dict)

    @property
    def answered(self) -> int:
        """Deliveries of acknowledged messages that have an output."""
        return sum(self.answered_on(subscription) for subscription in range(self.subscriptions))

    def answered_on(self, subscription: int) -> int:
        """Return the deliveries on one subscription of acknowledged messages that have an output."""
        return sum((sent.stream, sent.seq, subscription) in self.copies for sent in self.acked)

    @property
    def fan_out(self) -> int:
        """The deliveries due for each message."""
        return self.subscriptions * self.outputs

    @property
    def acknowledges(self) -> bool:
        return bool(self.profile["driver"].get("acknowledged", True))

    @property
    def acked(self) -> list[Sent]:
        return [sent for sent in self.messages if sent.answered is not None and not sent.failed]

    @property
    def dropped(self) -> int | None:
        return None if self.offered is None else self.offered - len(self.messages)

    @property
    def received(self) -> int:
        """Deliveries that came: of several outputs of a message, which are not told apart, as many as are due."""
        outputs = self.outputs
        return sum(min(len(copies), outputs) for copies in self.copies.values())

    @property
    def lost(self) -> int:
        """Deliveries of acknowledged messages that did not come; none of a service that chooses."""
        due = 0 if self.chooses else self.outputs
        return sum(
            max(due - len(self.copies.get((sent.stream, sent.seq, subscription), ())), 0)
            for sent in self.acked
            for subscription in range(self.subscriptions)
        )

    def message(self, stream: int, seq: int) -> Sent:
        return self._by_message[stream, seq]

    def firsts(self) -> Iterator[tuple[Sent, Copy]]:
        """Yield each delivery that came, with its first copy (docs/decisions/024); of several outputs, the first ones."""
        outputs = self.outputs
        for (stream, seq, _), copies in self.copies.items():
            sent = self._by_message[stream, seq]
            for copy in copies[:outputs]:
                yield sent, copy

    def part(self, begin: int, end: int, bucket: str = "") -> Facts:
        """Return the facts about the messages due in a time, and in a size bucket. Times are ns after the phase's start."""
        low, high = self.phase.start + begin, self.phase.start + end
        messages = [sent for sent in self.messages if low <= sent.intended < high]
        offered: int | None = None
        if bucket:
            least, _, most = bucket.partition("-")
            above = int(most) if most else int(least) + 1
            messages = [sent for sent in messages if int(least) <= sent.size < above]
        if self.dropped == 0:
            offered = len(messages)
        elif not bucket and not self.run.get("unattainable") and not self.run.get("aborted"):
            due = Due.of(self.profile, self.phase_end - self.phase.start)
            before, until = due.messages(begin), due.messages(end)
            if before is not None and until is not None:
                offered = until - before
        kept = {(sent.stream, sent.seq) for sent in messages}
        copies = {key: found for key, found in self.copies.items() if key[:2] in kept}
        return replace(
            self,
            begin=low,
            end=high,
            messages=messages,
            offered=offered,
            copies=copies,
            bucket=bucket,
        )

    def without(self, messages: Set[tuple[int, int]]) -> Facts:
        """Return the facts without some messages, by stream and sequence, as if they had never been due."""
        kept = [sent for sent in self.messages if (sent.stream, sent.seq) not in messages]
        copies = {key: found for key, found in self.copies.items() if key[:2] not in messages}
        damaged = [copy for copy in self.damaged if (copy.stream, copy.seq) not in messages]
        heads = [copy for copy in self.heads if (copy.stream, copy.seq) not in messages]
        offered = self.offered
        if offered is not None:
            offered -= len(self.messages) - len(kept)
        return replace(
            self, messages=kept, copies=copies, damaged=damaged, heads=heads, offered=offered
        )


def stages(facts: Facts) -> dict[str, Facts]:
    """Return the facts of each stage, by its name (docs/howto/shape-the-load.md)."""
    parts = {}
    begin = 0
    for stage in facts.profile.get("stages", ()):
        end = begin + span_of(stage["duration"])
        parts[stage["name"]] = facts.part(begin, end)
        begin = end
    return parts


def has_key(profile: Profile, *keys: str) -> bool:
    """Return whether a profile, or one of its workloads, has one of these keys."""
    sections = (profile, *profile.get("workloads", ()))
    return any(key in section for section in sections for key in keys)


def documents(played: Played) -> list[tuple[Document, Document | None]]:
    """Return the results and the run file of each phase that has results; the one with the verdict is the last."""
    if played.results is None:
        return list(played.documents)
    return [*played.documents[:-1], (played.results, played.run)]


def all_facts(played: Played) -> list[Facts]:
    """Return the facts of each phase with a results document: of each workload, of each step of a search."""
    found = [
        facts_of(played, results, run)
        for results, run in documents(played)
        if run is not None and results["measurements"] is not None
    ]
    return [facts for facts in found if facts is not None]


def facts_of(played: Played, results: Document, run: Document) -> Facts | None:
    """Return the facts of one phase; None if it never ended."""
    named = {keys.get("name"): keys for keys in workloads(played.world)}
    profile = named.get(results["workload"], played.world.profile)
    of_workload = [
        phase for phase in played.truth.phases if results["workload"] in (None, phase.workload)
    ]
    phase = next((one for one in of_workload if one.recorded and one.start == run["start"]), None)
    if phase is None or phase.ended is None:
        return None
    ends = (one.ended for one in of_workload if one.recorded and one.start < phase.start)
    since = max((at for at in ends if at is not None), default=0)
    following = min((one.start for one in of_workload if one.start > phase.start), default=1 << 62)
    end = phase.ended
    # A worker whose clock was set ends the warm-up before the time of its last messages.
    earlier = of_workload[: of_workload.index(phase)]
    begun = max((one.ended or 0 for one in earlier), default=0)
    sent = [
        one
        for one in played.truth.sent
        if one.run == run["run"] and phase.start <= one.intended < following and one.at >= begun
    ]
    acknowledged = profile["driver"].get("acknowledged", True)
    messages, times = _answered(sent, end, acknowledged=acknowledged)
    arrived = [
        copy
        for copy in played.truth.copies
        if copy.run == run["run"] and not copy.foreign and copy.arrived <= end + MARGIN
    ]
    # On whatever topic it came, a message without a readable head is corrupt, and not foreign.
    unreadable = [
        copy
        for copy in played.truth.copies
        if copy.run == run["run"] and copy.damage == "head" and copy.arrived <= end + MARGIN
    ]
    numbers = {(one.stream, one.seq) for one in messages}
    of_phase = [copy for copy in arrived if (copy.stream, copy.seq) in numbers]
    times += [copy.arrived for copy in of_phase]
    whole = Facts(
        profile=profile, results=results, run=run, phase=phase,
        begin=phase.start, end=phase.start + run["duration"], phase_end=phase.start + run["duration"],
        messages=messages, offered=results["measurements"]["counts"]["offered"], copies={},
        damaged=[], heads=[copy for copy in unreadable if (copy.taken or 0) > since],
        settled=all(time <= end for time in times),
    )  # fmt: skip
    _add_copies(whole, of_phase)
    errors = sorted(clock["fit"]["error"] for clock in run.get("clocks", ()))
    whole.error = sum(errors[-1:])
    whole.exact = not run.get("clocks", ())
    whole.shift = median_shift(whole)
    whole.later = [
        copy
        for copy in played.truth.copies
        if copy.run == run["run"] and copy.arrived > end and (copy.stream, copy.seq) in numbers
    ]
    heads = [copy.taken or 0 for copy in unreadable]
    whole.heads_settled = not any(end < taken <= end + MARGIN for taken in heads)
    whole.steady = not played.world.of_side(GENERATOR)
    whole.foreign = [
        copy
        for copy in played.truth.copies
        if copy.foreign and copy.run == run["run"] and since < copy.arrived < end
        if copy.damage != "head"
        if copy.stream < 0 or (copy.stream, copy.seq) in numbers
    ]
    whole.earlier = [
        one for one in played.truth.sent if one.run == run["run"] and one.intended < phase.start
    ]
    whole.taps = _taps(played, run["run"], numbers, end)
    whole.connections = [one for one in played.truth.connections if one.run == run["run"]]
    return whole


def _answered(sent: list[Sent], end: int, *, acknowledged: bool) -> tuple[list[Sent], list[int]]:
    """Return the messages with the answers that came in time, and the times of all answers until a moment after the end."""
    messages, times = [], []
    for one in sent:
        message = one
        is_own = one.failed and one.answered == one.at  # rejected by the client itself
        if not acknowledged and not is_own:
            message = replace(one, answered=one.at, failed=False)
        elif one.answered is not None and one.answered > end + MARGIN:
            message = replace(one, answered=None, failed=False)
        if message.answered is not None:
            times.append(message.answered)
        messages.append(message)
    return messages, times


def _taps(
    played: Played, run: str, numbers: Set[tuple[int, int]], end: int
) -> dict[tuple[int, int], int] | None:
    """Return when the tap of a service had each message that it received; None if it received some too late, or never."""
    times: dict[tuple[int, int], int] = {}
    for copy in played.truth.tapped:
        message = copy.stream, copy.seq
        if copy.run != f"{run}-tap" or message not in numbers:
            continue
        if copy.stamped is None or copy.taken is None or copy.taken > end:
            return None
        times[message] = min(copy.stamped, times.get(message, copy.stamped))
    return times


def _add_copies(facts: Facts, arrived: list[Copy]) -> None:
    """Sort copies by delivery; a copy with a damage that is found counts as corrupt and as nothing else (docs/glossary.md)."""
    by_delivery: dict[Delivery, list[Copy]] = defaultdict(list)
    for copy in arrived:
        if copy.taken is None or copy.damage == "head":
            continue
        if copy.damage == "body" and facts.profile.get("checksum"):
            facts.damaged.append(copy)
            continue
        by_delivery[copy.stream, copy.seq, copy.subscription].append(copy)
    for copies in by_delivery.values():
        copies.sort(key=lambda copy: (copy.stamped or 0, copy.arrived))
    facts.copies = dict(by_delivery)


def lateness(sent: Sent, copy: Copy) -> int:
    """Return received - due, ns; a message that is not delayed is never early (docs/howto/delay-messages.md)."""
    late = (copy.stamped or 0) - (sent.due or sent.intended)
    return max(late, 0) if sent.due is None else late


def median_shift(facts: Facts) -> float:
    """Return the median latency, by which a phase is moved to decide what is in time (docs/decisions/004)."""
    is_delayed = any(sent.due is not None for sent in facts.messages)
    values = sorted(
        lateness(sent, copy) if is_delayed else (copy.stamped or 0) - sent.intended
        for sent, copy in facts.firsts()
    )
    return values[math.ceil(len(values) / 2) - 1] if values else 0.0


def true_offset(played: Played, worker: str, at: int) -> int:
    """Return the clock of a worker's host less the controller's at an instant of true time, ns."""
    origin = played.truth.phases[0].start
    host = played.world.host_of(int(worker[1:]))
    return clock_of(host, lambda: origin)(at) - at
