"""The phases of a workload: their messages, stages and planned changes."""

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
    """A stage of the measured phase, with its objectives. Times are ns from the phase's start.

    :param rate: mean msg/s.
    """

    name: str
    start: int
    duration: int
    rate: float
    slo: Slo


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of the whole run, the same for all workers.

    :param duration: ns in which its messages are due. :param before: the messages of each stream before this phase.
    :param recorded: true if samples are kept (measure), false if not (warm-up).
    :param mean_size: mean bytes of a message if the pacer counts bytes; None if it counts messages.
    :param changes: the planned changes. :param paused: consumers are paused until a change resumes them.
    :param consumers: number of consumers of each subscription that take messages from the beginning; None: all.
    :param turns: the order of streams of a skewed workload; None: round robin.
    :param steps: the requested rates, from which the pacer is made, as in :class:`PacedTraffic`; the last one never ends. Empty: unknown.
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
    steps: Steps = ()

    @property
    def idle(self) -> bool:
        """True if the run sends nothing: it only reads messages of others, or only holds connections."""
        return not self.pacer.highest

    @property
    def streams(self) -> int:
        """The number of streams of the run; 0 without producers."""
        return self.before.streams

    @property
    def first(self) -> NDArray[np.int64]:
        """The sequence of each stream's first message, ``(P,)``; computed at each access."""
        return self.before.column()

    def first_of(self, streams: range | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the sequence of the first message of some streams, in their order; a stream may be there several times."""
        return self.before.of(streams)

    @cached_property
    def total(self) -> int:
        """The number of messages; approximate if bytes are paced."""
        due = self.pacer.total(self.duration)
        return due if self.mean_size is None else round(due / self.mean_size)

    @property
    def ends(self) -> StreamCounts:
        """The messages of each stream until the end of the phase; approximate if bytes are paced."""
        return self.after(self.total)

    def after(self, total: int) -> StreamCounts:
        """Return the messages of each stream once ``total`` messages of the phase were due, if messages are paced."""
        return self.before.plus(total, self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedTraffic:
    """The pacing of the measured phase: its rates, in messages or bytes per second, and the changes at its stages."""

    steps: Steps
    in_bytes: bool
    stages: tuple[StageSpan, ...] = ()
    changes: tuple[Change, ...] = ()
    mean_size: float

    @property
    def duration(self) -> int:
        """The duration, ns."""
        return sum(length for length, _ in self.steps)

    @property
    def rate(self) -> float:
        """The mean rate, msg/s."""
        total = sum(length * rate for length, rate in self.steps) / max(self.duration, 1)
        return total / self.mean_size if self.in_bytes else total

    @property
    def highest(self) -> float:
        """The highest rate, msg/s."""
        top = max((rate for _, rate in self.steps), default=0.0)
        return top / self.mean_size if self.in_bytes else top


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogPlan:
    """The backlog to build before consumers resume.

    :param messages: over all subscriptions. :param size: the same in bytes. :param drain_ratio: share of it that must be drained.
    :param drain_timeout: ns. :param after: ns for which load goes on after the drain. :param rate: msg/s, during build and drain.
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
        """The number of undelivered messages at which the backlog is drained: those always under way, or those that the ratio leaves."""
        under_way = self.rate * UNDER_WAY / SECOND * self.subscriptions
        return max(round(under_way), round((1 - self.drain_ratio) * self.messages))

    def phases(self, planned: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """Return phases whose measured phase is long enough for build, drain and the time after, and for the three changes in it.

        The changes are announced while load runs: consumers resume, the backlog is drained, and the end.
        """
        build = int(self.messages / self.subscriptions / self.rate * SECOND)
        measure = replace(
            planned[-1],
            duration=2 * build + self.drain_timeout + self.after + 3 * CHANGE_IN,
            paused=True,
        )
        return (*planned[:-1], measure)


def paced_traffic(
    profile: Profile, pool: PayloadPool, factor: float, cap: int | None
) -> PacedTraffic:
    """Return the measured phase at ``factor`` times the profile's rates, at most ``cap`` ns long: stages shrink in proportion."""
    rate = float(profile.producer_rate) * factor
    if profile.stages:
        return _staged(profile, pool, factor, cap)
    duration = profile.test_duration
    if profile.messages:
        # until the next message would be due: a phase that ended with the last one would have it sent after its end
        duration = Pacer.of(rate, 1).time(max(round(profile.messages * factor), 1))
    steps = ((min(duration, cap or duration), rate),)
    return PacedTraffic(steps=steps, in_bytes=profile.in_bytes, mean_size=pool.mean_size)


def _staged(profile: Profile, pool: PayloadPool, factor: float, cap: int | None) -> PacedTraffic:
    whole = sum(stage.duration for stage in profile.stages)
    share = Fraction(min(cap or whole, whole), whole)
    steps: list[tuple[int, float]] = []
    spans, changes, own_distributions, start, weights = [], [], 0, 0, 0.0
    for stage in profile.stages:
        segments = _shrunk(stage.steps(float(profile.producer_rate)), share, factor)
        length = sum(each for each, _ in segments)
        distribution = 0
        if stage.message_size_distribution is not None:
            own_distributions += 1
            distribution = own_distributions
        mean = pool.mean_sizes[distribution]
        quantity = sum(each * rate for each, rate in segments)
        messages = quantity / mean if profile.in_bytes else quantity
        consumers = stage.consumer_per_subscription or profile.consumer_per_subscription
        changes.append(Change(at=start, distribution=distribution, consumers=consumers))
        spans.append(
            StageSpan(
                name=stage.name, start=start, duration=length, rate=messages / length, slo=stage.slo
            )
        )
        steps, start, weights = steps + list(segments), start + length, weights + messages * mean
    total = sum(span.rate * span.duration for span in spans)
    mean_size = (
        weights / total if total else pool.mean_size
    )  # a run that only consumes has no messages
    return PacedTraffic(
        steps=tuple(steps),
        in_bytes=profile.in_bytes,
        stages=tuple(spans),
        changes=_different(changes),
        mean_size=mean_size,
    )


def _different(changes: list[Change]) -> tuple[Change, ...]:
    """Remove the values that are equal to those of the stage before. One without values is kept: it marks the stage's first message."""
    kept, distribution, consumers = [], 0, None
    for change in changes:
        assert isinstance(change.distribution, int)
        new = None if change.distribution == distribution else change.distribution
        kept.append(
            Change(
                at=change.at,
                distribution=new,
                consumers=None if change.consumers == consumers else change.consumers,
            )
        )
        distribution, consumers = change.distribution, change.consumers
    return tuple(kept)


def _shrunk(steps: Steps, share: Fraction, factor: float) -> Steps:
    """Move the end of each segment to ``share`` of it, so that the whole is exact to the nanosecond; empty segments are removed."""
    ends = [int(end * share) for end in accumulate(length for length, _ in steps)]
    starts = [0, *ends[:-1]]
    return tuple(
        (end - start, rate * factor)
        for start, end, (_, rate) in zip(starts, ends, steps, strict=True)
        if end > start
    )


def warmup_and_measure(
    traffic: PacedTraffic, streams: int, warmup: int, turns: Turns | None = None
) -> tuple[Phase, ...]:
    """Return the phases of a run with given rates."""
    before, size = StreamCounts(streams=streams), traffic.mean_size if traffic.in_bytes else None
    consumers = next(
        (change.consumers for change in traffic.changes if change.at == 0 and change.consumers),
        None,
    )
    pacer = (
        Pacer.through(traffic.steps, streams)
        if streams
        else Pacer.through([(traffic.duration, 0.0)], 1)
    )
    measure = Phase(
        name="measure", duration=traffic.duration, pacer=pacer, before=before, recorded=True, mean_size=size, changes=traffic.changes,
        consumers=consumers, stages=traffic.stages, turns=turns, steps=traffic.steps if streams else (),
    )  # fmt: skip
    if not warmup or not streams:
        return (measure,)
    steps = ((warmup, next((rate for _, rate in traffic.steps if rate), 0.0)),)
    pacer = Pacer.through(steps, streams)
    first = replace(
        measure,
        name="warm-up",
        duration=warmup,
        pacer=pacer,
        recorded=False,
        changes=(),
        stages=(),
        steps=steps,
    )
    return first, replace(measure, before=first.ends)


def search_phases(
    rate: float,
    *,
    in_bytes: float | None,
    warmup: int,
    hold: int,
    number: int,
    streams: int,
    turns: Turns | None = None,
) -> tuple[Phase, ...]:
    """Return the phases of a step of a peak search: a warm-up and a judged hold. :param in_bytes: mean size if bytes are paced."""
    pacer, phases, before = Pacer.of(rate, streams), [], StreamCounts(streams=streams)
    for name, length, recorded in (
        (f"step {number} warm-up", warmup, False),
        (f"step {number}", hold, True),
    ):
        if length:
            phases.append(
                Phase(
                    name=name,
                    duration=length,
                    pacer=pacer,
                    before=before,
                    recorded=recorded,
                    mean_size=in_bytes,
                    turns=turns,
                    steps=((length, rate),),
                )
            )
            before = phases[-1].ends
    return tuple(phases)
