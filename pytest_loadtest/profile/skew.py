"""The ``skew`` section: topics of which each has its own share of the rate, its own size, and its own place on Pulsar's ring of hashes."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field

from pytest_loadtest.message.payloads import Bucket
from pytest_loadtest.profile.fields import Count, PositiveDuration, Section, Size
from pytest_loadtest.values.quantities import SECOND

_LAST_HASH = 0xFFFFFFFF  # the ring of hashes has 32 bits
_ZIPF_TURNS = 10_000  # of a cycle, or a hundred a topic where that is more: shares are exact to as much


class SkewSection(Section):
    """How topics differ; every list has a value for each of them, in their order."""

    weights: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(default=None, strict=False)
    """Of producerRate, the share of each topic: whole numbers, in proportion."""
    zipf: float | None = Field(default=None, gt=0, le=10)
    """In place of weights: the share of topic number n is as 1/n to this power."""
    swing: PositiveDuration | None = None
    """Every so long the shares move on by one topic: what the first had, the second has, until they are where they were."""
    message_sizes: Annotated[tuple[Size, ...], Field(min_length=1)] | None = Field(default=None, strict=False)
    """In place of messageSize: of the messages of each topic, envelope included."""
    hashes: Annotated[tuple[Annotated[int, Field(ge=0, le=_LAST_HASH)], ...], Field(min_length=1)] | None = Field(
        default=None, strict=False
    )
    """Pulsar: where each topic falls among the hashes that bundles are made of; topics get names for it."""

    def shares(self, topics: int) -> tuple[int, ...]:
        """Turns of each topic in a round: the weights; of a Zipf law the nearest whole numbers of ten thousand, or of a hundred a topic."""
        if self.zipf is None:
            return self.weights or (1,) * topics
        exact = [(number + 1) ** -self.zipf for number in range(topics)]
        whole, total = max(_ZIPF_TURNS, 100 * topics), sum(exact)
        return tuple(max(round(one / total * whole), 1) for one in exact)

    def period(self, rate: float) -> int:
        """Messages after which the shares move on, at so many msg/s; 0: never."""
        return 0 if self.swing is None else max(round(self.swing * rate / SECOND), 1)

    def buckets(self, topics: int) -> tuple[Bucket, ...] | None:
        """A size bucket for each size, of the weight of its topics; None where topics do not differ in it."""
        if self.message_sizes is None:
            return None
        weights = Counter[int]()
        for size, share in zip(self.message_sizes, (1,) * topics if self.swing else self.shares(topics), strict=False):
            weights[size] += share
        return tuple(Bucket(name=str(size), low=size, high=size + 1, weight=weight) for size, weight in weights.items())
