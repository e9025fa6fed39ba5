"""Stages: the measured phase in parts, each with its own rate over time, sizes, consumers and objectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from pytest_loadtest.message.payloads import Bucket, parse_range
from pytest_loadtest.profile.fields import Count, Distribution, Duration, PositiveDuration, Rate, Section, SloSection
from pytest_loadtest.values.quantities import MILLISECOND, ByteRate
from pytest_loadtest.verdict.objectives import Slo

PIECE = 100 * MILLISECOND
"""A rate that changes all the time is held this long: short beside any window that a rate is judged in."""

FINEST = 10_000
"""Pieces of a ramp, or of one period of a sine, at most: what lasts for days needs none of 100 ms."""
MOST_PIECES = 200_000
"""Pieces of one stage: a plan with more would take minutes to make."""

Steps = tuple[tuple[int, float], ...]


class Shape(Section):
    """How a rate goes over a stage."""

    def rates(self) -> dict[str, float]:
        """Every rate that is named, by its key inside the shape."""
        raise NotImplementedError

    def steps(self, duration: int) -> Steps:
        """Pieces of (duration ns, rate) that add up to ``duration``."""
        raise NotImplementedError

    def piece(self, duration: int) -> int:
        """How long a rate is held at least, ns."""
        return duration


class Ramp(Shape):
    """In a straight line."""

    from_: Rate = Field(alias="from")
    """Rate at the start."""
    to: Rate
    """Rate at the end."""

    def rates(self) -> dict[str, float]:
        """Both ends."""
        return {"from": self.from_, "to": self.to}

    def steps(self, duration: int) -> Steps:
        """The rate in the middle of each piece."""
        return _sampled(duration, self.piece(duration), lambda at: self.from_ + (self.to - self.from_) * at / duration)

    def piece(self, duration: int) -> int:
        """So short that a ramp is smooth."""
        return max(PIECE, duration // FINEST)


class Wave(Section):
    """mean + amplitude · sin(2π · t / period)."""

    mean: Rate
    """Around which it swings, and where it starts."""
    amplitude: Rate
    """How far up and down; not above the mean."""
    period: PositiveDuration
    """From peak to peak."""


class Sine(Shape):
    """Up and down."""

    sine: Wave
    """{mean: , amplitude: , period: }"""

    def rates(self) -> dict[str, float]:
        """Mean and amplitude."""
        return {"sine.mean": self.sine.mean, "sine.amplitude": self.sine.amplitude}

    def steps(self, duration: int) -> Steps:
        """The rate in the middle of each piece."""
        wave = self.sine

        def at(moment: float) -> float:
            return max(0.0, wave.mean + wave.amplitude * math.sin(2 * math.pi * moment / wave.period))

        return _sampled(duration, self.piece(duration), at)

    def piece(self, duration: int) -> int:
        """So short that a period is smooth."""
        return max(PIECE, self.sine.period // FINEST)


class BaseAndPeak(Section):
    """A base rate with one peak."""

    base: Rate
    """Before and after."""
    peak: Rate
    """Meanwhile."""
    at: Duration
    """When it begins, from the stage's start."""
    for_: PositiveDuration = Field(alias="for")
    """How long it lasts."""


class Spike(Shape):
    """Suddenly up, and back."""

    spike: BaseAndPeak
    """{base: , peak: , at: , for: }"""

    def rates(self) -> dict[str, float]:
        """Base and peak."""
        return {"spike.base": self.spike.base, "spike.peak": self.spike.peak}

    def steps(self, duration: int) -> Steps:
        """Base, peak, base; a part of no length is left out."""
        burst = self.spike
        parts = ((burst.at, burst.base), (burst.for_, burst.peak), (duration - burst.at - burst.for_, burst.base))
        return tuple((length, rate) for length, rate in parts if length > 0)


class Replay(Shape):
    """A series of rates as it was recorded."""

    replay: tuple[Rate, ...] = Field(min_length=1, strict=False)
    """One rate after the other; begins anew when the stage is longer."""
    every: PositiveDuration | None = None
    """How long each holds; default: the stage's duration over their number."""

    def rates(self) -> dict[str, float]:
        """All of them, by their place."""
        return {f"replay.{i}": rate for i, rate in enumerate(self.replay)}

    def steps(self, duration: int) -> Steps:
        """Each rate for its time, the last one until the stage's end."""
        if self.every is None:
            ends = [(i + 1) * duration // len(self.replay) for i in range(len(self.replay))]
        else:
            ends = [*range(self.every, duration, self.every), duration]
        lengths = (end - start for start, end in zip((0, *ends), ends, strict=False))
        return tuple((length, self.replay[i % len(self.replay)]) for i, length in enumerate(lengths) if length)

    def piece(self, duration: int) -> int:
        """As long as each rate holds."""
        return self.every or max(duration // len(self.replay), 1)


SHAPES: dict[str, type[Shape]] = {"from": Ramp, "to": Ramp, "sine": Sine, "spike": Spike, "replay": Replay, "every": Replay}
SHAPES_WRITTEN = (
    "write a number, or {from: , to: }, {sine: {mean: , amplitude: , period: }}, {spike: {base: , peak: , at: , for: }}, {replay: [ ]}"
)


def shape_of(value: object) -> str | None:
    """Which kind of rate a value is meant to be; None for a mapping of no known shape."""
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
    """One part of the measured phase."""

    name: str = ""
    """What reports call it; "stage 1", "stage 2" … when left out."""
    duration: PositiveDuration
    """How long it lasts."""
    rate: StageRate | None = None
    """Of all producers together: constant, as producerRate, or a ramp, sine, spike or replay. Default: producerRate."""
    message_size_distribution: Distribution | None = None
    """Sizes in this stage; default: the profile's."""
    consumer_per_subscription: Count | None = None
    """Consumers of each subscription that are attached in this stage; default, and at most: the profile's."""
    slo: SloSection = Field(default_factory=Slo)
    """What must hold in this stage alone."""

    @property
    def buckets(self) -> tuple[Bucket, ...] | None:
        """The stage's own size distribution; None where it has none."""
        return None if self.message_size_distribution is None else parse_buckets(self.message_size_distribution)

    @property
    def rates(self) -> dict[str, float]:
        """Every rate that the stage names, by its place below ``rate``."""
        if self.rate is None:
            return {}
        return self.rate.rates() if isinstance(self.rate, Shape) else {"": self.rate}

    @property
    def pieces(self) -> int:
        """Of constant rate, about."""
        return -(-self.duration // self.rate.piece(self.duration)) if isinstance(self.rate, Shape) else 1

    def steps(self, default_rate: float) -> Steps:
        """Pieces of constant rate.

        :param default_rate: of the profile, for a stage that names none.
        :returns: (duration in ns, rate) of each piece; the durations add up to the stage's. A rate is a ``ByteRate`` where it was given so.
        """
        if not isinstance(self.rate, Shape):
            return ((self.duration, default_rate if self.rate is None else self.rate),)
        kind = ByteRate if any(isinstance(rate, ByteRate) for rate in self.rates.values()) else float
        return tuple((length, kind(rate)) for length, rate in self.rate.steps(self.duration))


def parse_buckets(distribution: Mapping[str, int]) -> tuple[Bucket, ...]:
    """The ranges of a size distribution in the file's order."""
    ranges = ((text, *parse_range(text), weight) for text, weight in distribution.items())
    return tuple(Bucket(name=text, low=low, high=high, weight=weight) for text, low, high, weight in ranges)


def _sampled(duration: int, piece: int, rate: Callable[[float], float]) -> Steps:
    """``rate`` at the middle of each piece."""
    ends = ((start, min(start + piece, duration)) for start in range(0, duration, piece))
    return tuple((end - start, rate((start + end) / 2)) for start, end in ends)
