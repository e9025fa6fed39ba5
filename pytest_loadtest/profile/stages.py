"""Stages: parts of the measured phase, each with its own rate, sizes, consumers and objectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from pytest_loadtest.message.payloads import Bucket, parse_range
from pytest_loadtest.profile.fields import (
    Count,
    Distribution,
    Duration,
    PositiveDuration,
    Rate,
    Section,
    SloSection,
)
from pytest_loadtest.values.quantities import MILLISECOND, ByteRate
from pytest_loadtest.verdict.objectives import Slo

PIECE = 100 * MILLISECOND
"""A rate that changes continuously is held for this time: short compared with any window in which a
rate is judged."""

COARSEST = 10
"""Fewest pieces of one period of a sine."""
FINEST = 10_000
"""Largest number of pieces of a ramp, or of one period of a sine: a shape that lasts for days does
not need pieces of 100 ms."""
MOST_PIECES = 200_000
"""Largest number of pieces of one stage: a plan with more would take minutes to compute."""

Steps = tuple[tuple[int, float], ...]


class Shape(Section):
    """The rate over a stage as a function of time."""

    def rates(self) -> dict[str, float]:
        """Return every rate in the shape by its key."""
        raise NotImplementedError

    def steps(self, duration: int) -> Steps:
        """Return pieces of (duration ns, rate), which add up to ``duration``."""
        raise NotImplementedError

    def piece(self, duration: int) -> int:
        """Return the shortest time for which a rate is held, ns."""
        return duration


class Ramp(Shape):
    """A rate that changes in a straight line."""

    from_: Rate = Field(alias="from")
    """Rate at the start."""
    to: Rate
    """Rate at the end."""

    def rates(self) -> dict[str, float]:
        return {"from": self.from_, "to": self.to}

    def steps(self, duration: int) -> Steps:
        def at(moment: float) -> float:
            return self.from_ + (self.to - self.from_) * moment / duration

        return _sampled(duration, self.piece(duration), at)

    def piece(self, duration: int) -> int:
        return max(PIECE, duration // FINEST)


class Wave(Section):
    """mean + amplitude · sin(2π · t / period)."""

    mean: Rate
    """Mean rate, which is also the rate at the start."""
    amplitude: Rate
    """Largest difference from the mean, up and down; not above the mean."""
    period: PositiveDuration
    """Time from peak to peak."""


class Sine(Shape):
    """A rate that rises and falls periodically."""

    sine: Wave
    """{mean: , amplitude: , period: }"""

    def rates(self) -> dict[str, float]:
        return {"sine.mean": self.sine.mean, "sine.amplitude": self.sine.amplitude}

    def steps(self, duration: int) -> Steps:
        wave = self.sine

        def at(moment: float) -> float:
            phase = 2 * math.pi * moment / wave.period
            return max(0.0, wave.mean + wave.amplitude * math.sin(phase))

        return _sampled(duration, self.piece(duration), at)

    def piece(self, duration: int) -> int:
        period = self.sine.period
        return max(min(PIECE, period // COARSEST), period // FINEST, 1)


class BaseAndPeak(Section):
    """A base rate with one peak."""

    base: Rate
    """Rate before and after the peak."""
    peak: Rate
    """Rate during the peak."""
    at: Duration
    """Start of the peak, from the start of the stage."""
    for_: PositiveDuration = Field(alias="for")
    """Length of the peak."""


class Spike(Shape):
    """A sudden peak."""

    spike: BaseAndPeak
    """{base: , peak: , at: , for: }"""

    def rates(self) -> dict[str, float]:
        return {"spike.base": self.spike.base, "spike.peak": self.spike.peak}

    def steps(self, duration: int) -> Steps:
        burst = self.spike
        rest = duration - burst.at - burst.for_
        parts = ((burst.at, burst.base), (burst.for_, burst.peak), (rest, burst.base))
        return tuple((length, rate) for length, rate in parts if length > 0)


class Replay(Shape):
    """A recorded series of rates."""

    replay: tuple[Rate, ...] = Field(min_length=1, strict=False)
    """Rates in their order; repeated if the stage is longer."""
    every: PositiveDuration | None = None
    """Time for which each rate holds; default: the stage's duration / the number of rates."""

    def rates(self) -> dict[str, float]:
        return {f"replay.{i}": rate for i, rate in enumerate(self.replay)}

    def steps(self, duration: int) -> Steps:
        """Return each rate for its time; the last one holds until the end of the stage."""
        number = len(self.replay)
        if self.every is None:
            ends = [(i + 1) * duration // number for i in range(number)]
        else:
            ends = [*range(self.every, duration, self.every), duration]
        steps = []
        start = 0
        for index, end in enumerate(ends):
            if end > start:
                steps.append((end - start, self.replay[index % number]))
            start = end
        return tuple(steps)

    def piece(self, duration: int) -> int:
        return self.every or max(duration // len(self.replay), 1)


SHAPES: dict[str, type[Shape]] = {
    "from": Ramp,
    "to": Ramp,
    "sine": Sine,
    "spike": Spike,
    "replay": Replay,
    "every": Replay,
}
SHAPES_WRITTEN = (
    "write a number, or {from: , to: }, {sine: {mean: , amplitude: , period: }}, "
    "{spike: {base: , peak: , at: , for: }}, {replay: [ ]}"
)


def shape_of(value: object) -> str | None:
    """Return the tag of the kind of rate that a value is; None for a mapping of unknown shape."""
    if isinstance(value, Shape):
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        return next((f"<{SHAPES[key].__name__}>" for key in value if key in SHAPES), None)
    return "<rate>"


StageRate = Annotated[
    Annotated[Rate, Tag("<rate>")]
    | Annotated[Ramp, Tag("<Ramp>")]
    | Annotated[Sine, Tag("<Sine>")]
    | Annotated[Spike, Tag("<Spike>")]
    | Annotated[Replay, Tag("<Replay>")],
    Discriminator(shape_of),
]


class Stage(Section):
    """A part of the measured phase."""

    name: str = ""
    """Name in reports; "stage 1", "stage 2" … by default."""
    duration: PositiveDuration
    """Length of the stage."""
    rate: StageRate | None = None
    """Rate of all producers together: constant, 0 for a pause, or a ramp, sine, spike or replay.
    Default: producerRate."""
    message_size_distribution: Distribution | None = None
    """Sizes in this stage; default: the profile's."""
    consumer_per_subscription: Count | None = None
    """Attached consumers of each subscription in this stage; the profile's number is the default
    and the maximum."""
    slo: SloSection = Field(default_factory=Slo)
    """Objectives of this stage alone."""

    @property
    def buckets(self) -> tuple[Bucket, ...] | None:
        """The stage's own size distribution, or None."""
        if self.message_size_distribution is None:
            return None
        return parse_buckets(self.message_size_distribution)

    @property
    def rates(self) -> dict[str, float]:
        """Every rate of the stage by its key below ``rate``."""
        if self.rate is None:
            return {}
        return self.rate.rates() if isinstance(self.rate, Shape) else {"": self.rate}

    def pauses(self, default_rate: float) -> bool:
        """Return whether nothing is due in the stage.

        :param default_rate: the profile's rate, for a stage without one.
        """
        rates = self.rates or {"": default_rate}
        return not any(rates.values())

    @property
    def pieces(self) -> int:
        """Approximate number of pieces of constant rate."""
        if not isinstance(self.rate, Shape):
            return 1
        return -(-self.duration // self.rate.piece(self.duration))

    def steps(self, default_rate: float) -> Steps:
        """Return the stage as pieces of constant rate.

        :param default_rate: the profile's rate, for a stage without one.
        :returns: (duration in ns, rate) of each piece; the durations add up to the stage's. A rate
            in bytes is a ``ByteRate``.
        """
        if not isinstance(self.rate, Shape):
            return ((self.duration, default_rate if self.rate is None else self.rate),)
        in_bytes = any(isinstance(rate, ByteRate) for rate in self.rates.values())
        kind = ByteRate if in_bytes else float
        return tuple((length, kind(rate)) for length, rate in self.rate.steps(self.duration))


def parse_buckets(distribution: Mapping[str, int]) -> tuple[Bucket, ...]:
    """Parse the ranges of a size distribution, in the file's order."""
    buckets = []
    for text, weight in distribution.items():
        low, high = parse_range(text)
        buckets.append(Bucket(name=text, low=low, high=high, weight=weight))
    return tuple(buckets)


def _sampled(duration: int, piece: int, rate: Callable[[float], float]) -> Steps:
    """Return pieces with the rate at the middle of each."""
    steps = []
    for start in range(0, duration, piece):
        end = min(start + piece, duration)
        steps.append((end - start, rate((start + end) / 2)))
    return tuple(steps)
