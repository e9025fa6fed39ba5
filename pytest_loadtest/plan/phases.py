"""The phases of a workload: their messages, stages and planned changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_loadtest.schedule.changes import CHANGE_IN, UNDER_WAY, Change
from pytest_loadtest.schedule.pacing import LEAST_RATE, Pacer, StreamCounts
from pytest_loadtest.schedule.topology import scaled_count
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.profile.stages import Steps
    from pytest_loadtest.schedule.stream_order import Turns
    from pytest_loadtest.verdict.objectives import Slo


@record
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

    :param duration: ns in which its messages are due.
    :param before: the messages of each stream before this phase.
    :param recorded: true if samples are kept (measure), false if not (warm-up).
    :param mean_size: mean bytes of a message if the pacer counts bytes; None if it counts messages.
    :param changes: the planned changes.
    :param paused: consumers are paused until a change resumes them.
    :param consumers: number of consumers of each subscription that take messages from the
        beginning; None: all.
    :param turns: the order of streams of a skewed workload; None: round robin.
    :param steps: the requested rates, from which the pacer is made, as in :class:`PacedTraffic`;
        the last one never ends. Empty: unknown.
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
        """True if the run sends nothing: it only reads messages of others, or holds connections."""
        return not self.pacer.highest

    @property
    def streams(self) -> int:
        """The number of streams of the run; 0 without producers."""
        return self.before.streams

    @property
    def first(self) -> NDArray[np.int64]:
        """The sequence of each stream's first message, ``(P,)``; computed at each access."""
        return self.before.column()

    def first_of(self, streams: Streams) -> NDArray[np.int64]:
        """Return the sequence of the first message of some streams, in their order.

        A stream may be there several times.
        """
        return self.before.of(streams)

    @cached_property
    def total(self) -> int:
        """The number of messages; approximate if bytes are paced."""
        due = self.pacer.total(self.duration)
        return due if self.mean_size is None else round(due / self.mean_size)

    @property
    def ends(self) -> StreamCounts:
        """The messages of each stream until the end of the phase.

        Approximate if bytes are paced.
        """
        return self.after(self.total)

    def after(self, total: int) -> StreamCounts:
        """Return the messages of each stream once ``total`` messages of the phase were due.

        This applies if messages are paced.
        """
        return self.before.plus(total, self.turns)


@record
class PacedTraffic:
    """The pacing of the measured phase: its rates, and the changes at its stages.

    Rates are in messages or bytes per second.
    """

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
        total = sum(length * rate for length, rate in self.steps)
        return self.messages(total / max(self.duration, 1))

    @property
    def highest(self) -> float:
        """The highest rate, msg/s."""
        return self.messages(max((rate for _, rate in self.steps), default=0.0))

    def messages(self, rate: float) -> float:
        """Return a rate of the profile in msg/s."""
        return rate / self.mean_size if self.in_bytes else rate


@record
class BacklogPlan:
    """The backlog to build before consumers resume.

    :param messages: over all subscriptions. :param size: the same in bytes.
    :param drain_ratio: share of it that must be drained.
    :param drain_timeout: ns. :param after: ns for which load goes on after the drain.
    :param rate: msg/s, during build and drain.
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
        """The number of undelivered messages at which the backlog is drained.

        These are the messages always under way, or those that the ratio leaves.
        """
        under_way = self.rate * UNDER_WAY / SECOND * self.subscriptions
        return max(round(under_way), round((1 - self.drain_ratio) * self.messages))

    @property
    def longest(self) -> int:
        """The planned duration of the phase, ns: long enough for build, drain, and the time after.

        The changes are announced while load runs: consumers resume, the backlog is drained, and the
        end. On a busy machine the controller hears late of each.
        """
        build = int(self.messages / self.subscriptions / self.rate * SECOND)
        return 2 * build + self.drain_timeout + self.after + 3 * (CHANGE_IN + SECOND)

    def phases(self, planned: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """Return phases with a measured phase that builds and drains the backlog."""
        return (*planned[:-1], replace(planned[-1], duration=self.longest, paused=True))


def paced_traffic(
    profile: Profile, pool: PayloadPool, factor: float, cap: int | None, consumers: int
) -> PacedTraffic:
    """Return the measured phase at ``factor`` times the profile's rates, at most ``cap`` ns long.

    Stages shrink in proportion, and so do their consumers.

    :param consumers: of each subscription in the run.
    """
    rate = float(profile.producer_rate) * factor
    if profile.stages:
        return _staged(profile, pool, factor, cap, consumers)
    duration = profile.test_duration
    if profile.messages:
        # until the next message would be due: a phase that ended with the last one would have it
        # sent after its end
        duration = Pacer.of(rate, 1).time(max(round(profile.messages * factor), 1))
    steps = ((min(duration, cap or duration), rate),)
    return PacedTraffic(steps=steps, in_bytes=profile.in_bytes, mean_size=pool.mean_size)


def _staged(
    profile: Profile, pool: PayloadPool, factor: float, cap: int | None, consumers: int
) -> PacedTraffic:
    whole = sum(stage.duration for stage in profile.stages)
    share = Fraction(min(cap or whole, whole), whole)
    steps: list[tuple[int, float]] = []
    spans: list[StageSpan] = []
    changes: list[Change] = []
    start = 0
    bytes_in_all = 0.0
    own_distributions = 0
    for stage in profile.stages:
        distribution = 0
        if stage.message_size_distribution is not None:
            own_distributions += 1
            distribution = own_distributions
        mean = pool.mean_sizes[distribution]
        attached = consumers
        if stage.consumer_per_subscription is not None:
            share_attached = consumers / profile.consumer_per_subscription
            attached = scaled_count(stage.consumer_per_subscription, share_attached)
        changes.append(Change(at=start, distribution=distribution, consumers=attached))

        segments = _shrunk(stage.steps(float(profile.producer_rate)), share, factor)
        steps += segments
        length = sum(duration for duration, _ in segments)
        messages = sum(duration * rate for duration, rate in segments)
        if profile.in_bytes:
            messages /= mean
        rate = messages / length
        spans.append(
            StageSpan(name=stage.name, start=start, duration=length, rate=rate, slo=stage.slo)
        )
        start += length
        bytes_in_all += messages * mean
    total = sum(span.rate * span.duration for span in spans)
    return PacedTraffic(
        steps=tuple(steps),
        in_bytes=profile.in_bytes,
        stages=tuple(spans),
        changes=_different(changes),
        # a run that only consumes has no messages
        mean_size=bytes_in_all / total if total else pool.mean_size,
    )


def _different(changes: list[Change]) -> tuple[Change, ...]:
    """Remove the values that are equal to those of the stage before.

    A change without values is kept: it marks the stage's first message.
    """
    kept = []
    before = Change(at=0, distribution=0, consumers=None)
    for change in changes:
        new = change
        if change.distribution == before.distribution:
            new = replace(new, distribution=None)
        if change.consumers == before.consumers:
            new = replace(new, consumers=None)
        kept.append(new)
        before = change
    return tuple(kept)


def _shrunk(steps: Steps, share: Fraction, factor: float) -> Steps:
    """Move the end of each segment to ``share`` of it, and remove empty segments.

    The whole is exact to the nanosecond.
    """
    shrunk = []
    whole = 0
    start = 0
    for length, rate in steps:
        whole += length
        end = int(whole * share)
        if end > start:
            shrunk.append((end - start, rate * factor))
        start = end
    return tuple(shrunk)


def warmup_and_measure(
    traffic: PacedTraffic, streams: int, warmup: int, size: float, turns: Turns | None = None
) -> tuple[Phase, ...]:
    """Return the phases of a run with given rates.

    :param size: mean bytes of a message in the warm-up, which has no stages.
    """
    steps = traffic.steps if streams else ()
    pacer = Pacer.through(steps or [(traffic.duration, 0.0)], max(streams, 1))
    at_start = (change.consumers for change in traffic.changes if change.at == 0)
    measure = Phase(
        name="measure",
        duration=traffic.duration,
        pacer=pacer,
        before=StreamCounts(streams=streams),
        recorded=True,
        mean_size=traffic.mean_size if traffic.in_bytes else None,
        changes=traffic.changes,
        consumers=next(filter(None, at_start), None),
        stages=traffic.stages,
        turns=turns,
        steps=steps,
    )
    if not streams or not warmup:
        return (measure,)
    # A ramp from 0 may begin with rates that are too low for a phase of their own.
    first_rate = next((rate for _, rate in traffic.steps if rate >= LEAST_RATE), 0.0)
    steps = ((warmup, first_rate),)
    first = replace(
        measure,
        name="warm-up",
        duration=warmup,
        pacer=Pacer.through(steps, streams),
        recorded=False,
        mean_size=size if traffic.in_bytes else None,
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
    """Return the phases of a step of a peak search: a warm-up and a judged hold.

    :param in_bytes: mean size if bytes are paced.
    """
    first = Phase(
        name=f"step {number} warm-up",
        duration=warmup,
        pacer=Pacer.of(rate, streams),
        before=StreamCounts(streams=streams),
        recorded=False,
        mean_size=in_bytes,
        turns=turns,
        steps=((warmup, rate),),
    )
    judged = replace(
        first,
        name=f"step {number}",
        duration=hold,
        before=first.ends,
        recorded=True,
        steps=((hold, rate),),
    )
    return (first, judged) if warmup else (judged,)
