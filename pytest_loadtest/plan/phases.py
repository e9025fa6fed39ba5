"""The phases of a workload: what is due when, and what changes on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pytest_loadtest.schedule.changes import CHANGE_IN, UNDER_WAY, Change
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.profile.stages import Steps
    from pytest_loadtest.schedule.stream_order import Turns
    from pytest_loadtest.verdict.objectives import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpan:
    """One stage of the measured phase: ns from the phase's start, and what must hold in it.

    :param rate: msg/s, on the average.
    """

    name: str
    start: int
    duration: int
    rate: float
    slo: Slo


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase as all workers see it.

    :param duration: ns in which its messages are due. :param before: what each stream has sent before this phase.
    :param recorded: whether samples are kept (measure) or not (warm-up).
    :param mean_size: bytes of a message where the pacer counts bytes; None where it counts messages.
    :param changes: what is planned to change. :param paused: consumers take nothing until a change lets them.
    :param consumers: of each subscription, those that take messages from the beginning; None: all.
    :param turns: of a skewed workload, whose turn each message is; None: the streams have theirs one after another.
    """

    name: str
    duration: int
    pacer: Pacer
    before: StreamCounts
    recorded: bool
    mean_size: float | None = None
    changes: tuple[Change, ...] = ()
    paused: bool = False
    consumers: int | None = None
    stages: tuple[StageSpan, ...] = field(default=())
    turns: Turns | None = None

    @property
    def idle(self) -> bool:
        """Nobody of the run sends in it: it only reads what others send, or only holds connections."""
        return not self.pacer.highest

    @property
    def streams(self) -> int:
        """All streams of the run; 0 where nobody sends."""
        return self.before.streams

    @property
    def first(self) -> NDArray[np.int64]:
        """``(P,)``, sequence of each stream's first message; worked out anew each time."""
        return self.before.column()

    def first_of(self, streams: range | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The same of some streams, in their order; a stream may be there several times."""
        return self.before.of(streams)

    @cached_property
    def total(self) -> int:
        """Messages; where bytes are paced, about so many."""
        due = self.pacer.total(self.duration)
        return due if self.mean_size is None else round(due / self.mean_size)

    @property
    def ends(self) -> StreamCounts:
        """What each stream has sent when the phase is over; where bytes are paced, about so much."""
        return self.after(self.total)

    def after(self, total: int) -> StreamCounts:
        """What each stream has sent once ``total`` messages of the phase were due; where messages are paced."""
        return self.before.plus(total, self.turns)

    def following(self, before: StreamCounts) -> Phase:
        """This phase with its sequences after those that were used before."""
        return replace(self, before=before)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedTraffic:
    """How a workload is paced: the measured phase's rates, messages or bytes per second, and what its stages change."""

    steps: Steps
    in_bytes: bool
    stages: tuple[StageSpan, ...] = ()
    changes: tuple[Change, ...] = ()
    mean_size: float

    @property
    def duration(self) -> int:
        """ns."""
        return sum(length for length, _ in self.steps)

    @property
    def rate(self) -> float:
        """msg/s, on the average."""
        total = sum(length * rate for length, rate in self.steps) / max(self.duration, 1)
        return total / self.mean_size if self.in_bytes else total

    @property
    def highest(self) -> float:
        """msg/s at the busiest moment."""
        top = max((rate for _, rate in self.steps), default=0.0)
        return top / self.mean_size if self.in_bytes else top


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogPlan:
    """What is to pile up before consumers read on.

    :param messages: over all subscriptions. :param size: the same in bytes. :param drain_ratio: share of it that must be drained.
    :param drain_timeout: ns. :param after: ns that load goes on once it is drained. :param rate: msg/s, while it is built and drained.
    """

    messages: int
    size: int
    drain_ratio: float
    drain_timeout: int
    after: int
    subscriptions: int
    rate: float

    @property
    def drained(self) -> int:
        """At so many undelivered messages it is drained: what is always under way does not count, and what the ratio leaves need not go."""
        under_way = self.rate * UNDER_WAY / SECOND * self.subscriptions
        return max(round(under_way), round((1 - self.drain_ratio) * self.messages))

    def phases(self, planned: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """The measured phase becomes as long as it may take, with the three changes that are agreed on the way: consumers go on, it is
        drained, and the end, when load has gone on long enough after that."""
        build = int(self.messages / self.subscriptions / self.rate * SECOND)
        measure = replace(planned[-1], duration=2 * build + self.drain_timeout + self.after + 3 * CHANGE_IN, paused=True)
        return (*planned[:-1], measure)


def paced_traffic(profile: Profile, pool: PayloadPool, factor: float, cap: int | None) -> PacedTraffic:
    """The measured phase at ``factor`` times the profile's rates, ``cap`` ns long at most: stages shrink in proportion."""
    rate = float(profile.producer_rate) * factor
    if profile.stages:
        return _staged(profile, pool, factor, cap)
    duration = profile.test_duration
    if profile.messages:
        duration = Pacer.of(rate, 1).time(max(round(profile.messages * factor), 1) - 1) + 1
    steps = ((min(duration, cap or duration), rate),)
    return PacedTraffic(steps=steps, in_bytes=profile.in_bytes, mean_size=pool.mean_size)


def _staged(profile: Profile, pool: PayloadPool, factor: float, cap: int | None) -> PacedTraffic:
    whole = sum(stage.duration for stage in profile.stages)
    share = Fraction(min(cap or whole, whole), whole)
    steps: list[tuple[int, float]] = []
    spans, changes, own, start, weights = [], [], 0, 0, 0.0
    for stage in profile.stages:
        pieces = _shrunk(stage.steps(float(profile.producer_rate)), share, factor)
        length = sum(piece for piece, _ in pieces)
        distribution = 0
        if stage.message_size_distribution is not None:
            own += 1
            distribution = own
        mean = pool.mean_sizes[distribution]
        quantity = sum(piece * rate for piece, rate in pieces)
        messages = quantity / mean if profile.in_bytes else quantity
        consumers = stage.consumer_per_subscription or profile.consumer_per_subscription
        changes.append(Change(at=start, distribution=distribution, consumers=consumers))
        spans.append(StageSpan(name=stage.name, start=start, duration=length, rate=messages / length, slo=stage.slo))
        steps, start, weights = steps + list(pieces), start + length, weights + messages * mean
    total = sum(span.rate * span.duration for span in spans)
    mean_size = weights / total if total else pool.mean_size  # nobody sends in a run that only consumes
    return PacedTraffic(
        steps=tuple(steps), in_bytes=profile.in_bytes, stages=tuple(spans), changes=_different(changes), mean_size=mean_size
    )


def _different(changes: list[Change]) -> tuple[Change, ...]:
    """What differs from the stage before. A stage where nothing does is marked all the same: so it is known which messages are its own."""
    kept, distribution, consumers = [], 0, None
    for change in changes:
        assert isinstance(change.distribution, int)
        new = None if change.distribution == distribution else change.distribution
        kept.append(Change(at=change.at, distribution=new, consumers=None if change.consumers == consumers else change.consumers))
        distribution, consumers = change.distribution, change.consumers
    return tuple(kept)


def _shrunk(steps: Steps, share: Fraction, factor: float) -> Steps:
    """Each piece's end moves to ``share`` of where it was, so that the whole is exact to the nanosecond."""
    ends = [int(end * share) for end in accumulate(length for length, _ in steps)]
    starts = [0, *ends[:-1]]
    return tuple((end - start, rate * factor) for start, end, (_, rate) in zip(starts, ends, steps, strict=True) if end > start)


def warmup_and_measure(profile: Profile, made: PacedTraffic, streams: int, warmup: int, turns: Turns | None = None) -> tuple[Phase, ...]:
    """The phases of a run whose rates are known."""
    phases, before = [], StreamCounts(streams=streams)
    size = made.mean_size if made.in_bytes else None
    consumers = next((change.consumers for change in made.changes if change.at == 0 and change.consumers), None)
    if warmup and streams:
        pacer = Pacer.through([(warmup, next((rate for _, rate in made.steps if rate), 0.0))], streams)
        phases.append(
            Phase(
                name="warm-up", duration=warmup, pacer=pacer, before=before, recorded=False, mean_size=size, consumers=consumers,
                turns=turns,
            )
        )  # fmt: skip
        before = phases[0].ends
    pacer = Pacer.through(made.steps, streams) if streams else Pacer.through([(made.duration, 0.0)], 1)
    phases.append(
        Phase(
            name="measure", duration=made.duration, pacer=pacer, before=before, recorded=True, mean_size=size, changes=made.changes,
            consumers=consumers, stages=made.stages, turns=turns,
        )
    )  # fmt: skip
    return tuple(phases)


def search_phases(
    rate: float, *, in_bytes: float | None, warmup: int, hold: int, number: int, streams: int, turns: Turns | None = None
) -> tuple[Phase, ...]:
    """One step of a peak search: a warm-up at its rate, and a hold that is judged. :param in_bytes: mean size where bytes are paced."""
    pacer, phases, before = Pacer.of(rate, streams), [], StreamCounts(streams=streams)
    for name, length, recorded in ((f"step {number} warm-up", warmup, False), (f"step {number}", hold, True)):
        if length:
            phases.append(Phase(name=name, duration=length, pacer=pacer, before=before, recorded=recorded, mean_size=in_bytes, turns=turns))
            before = phases[-1].ends
    return tuple(phases)
