"""Sizes of payloads: the sizes that represent a range, the sizes that can be sent, and the joining
of ranges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

UNIFORM_SIZES: Final = 16


def representatives(low: int, high: int, kind: str, count: int) -> list[int]:
    """Return the sizes that represent [low, high).

    :param kind: ``midpoint`` or ``max`` (the last size inside): ``count`` times the same size.
        ``uniform``: ``count`` sizes spread evenly, each in the middle of its part; if ``count`` is
        1, :data:`UNIFORM_SIZES`, or every size of a narrower range once.
    :raises ValueError: an unknown kind.
    """
    if kind == "midpoint":
        return [(low + high) // 2] * count
    if kind == "max":
        return [high - 1] * count
    if kind == "uniform":
        width = high - low
        count = min(UNIFORM_SIZES, width) if count == 1 else count
        return [low + (2 * i + 1) * width // (2 * count) for i in range(count)]
    raise ValueError(f"representative {kind!r} is unknown: write midpoint, max or uniform")


def check_payload_count(payloads: Sequence[int], per_bucket: int, most: int) -> None:
    """Check the number of payloads.

    :param payloads: payloads of each bucket: ``per_bucket``, or, for the first,
        ``randomizedPayloadPoolSize``.
    :raises ValueError: more than ``most`` together.
    """
    if sum(payloads) <= most:
        return
    rest = len(payloads) - (payloads[0] != per_bucket)
    if rest * per_bucket > most:
        what, remedy = (
            f"payloadsPerBucket {per_bucket} for {rest} size buckets",
            f"payloadsPerBucket: {most // rest}",
        )
    else:
        what, remedy = (
            f"randomizedPayloadPoolSize {payloads[0]}",
            f"randomizedPayloadPoolSize: {most - rest * per_bucket}",
        )
    raise ValueError(
        f"{what}: a message chooses among at most {most} payloads, write {remedy} or less"
    )


class Sized(Protocol):
    """A size bucket of a profile."""

    @property
    def name(self) -> str: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...


class SizeLimits:
    """The sizes that can be sent: with room for head and ``tail`` bytes of checksum, and not above
    the target's limit.

    ``moved`` counts the sizes that had to be changed.
    """

    def __init__(self, tail: int, max_size: int | None) -> None:
        self._tail, self._max = tail, max_size
        self.moved = 0

    def fit(self, size: int, low: int, high: int, name: str) -> int:
        """Return ``size``, or the nearest size in [low, high) that can be sent.

        :raises ValueError: no size can be sent; the message begins with ``name``.
        """
        last = high - 1 if self._max is None else min(high - 1, self._max)
        compact = max(low, COMPACT_HEAD + self._tail), min(last, HEAD - 1)
        full = max(low, HEAD + self._tail), last
        nearest = [
            min(max(size, lowest), highest)
            for lowest, highest in (compact, full)
            if lowest <= highest
        ]
        if not nearest:
            raise ValueError(f"{name} cannot be sent: {self._reason(low)}")
        fitting = min(nearest, key=lambda candidate: abs(candidate - size))
        self.moved += fitting != size
        return fitting

    def sizes(self, bucket: Sized, kind: str, payloads: int, randomized: bool) -> list[int]:
        """Return the sizes of a bucket's payloads; several of one size only if their bodies are
        random: others would be equal.
        """
        low, high, count = bucket.low, bucket.high, payloads
        if not randomized:
            count = min(payloads, high - low) if kind == "uniform" else 1
        name = (
            f"messageSize {bucket.name}"
            if bucket.name.isdecimal()
            else f"size range {bucket.name!r}"
        )
        return [self.fit(size, low, high, name) for size in representatives(low, high, kind, count)]

    def _reason(self, low: int) -> str:
        if self._max is not None and low > self._max:
            return f"the target takes at most {self._max} bytes"
        tail = f" and the checksum {self._tail}" if self._tail else ""
        return f"the envelope takes {COMPACT_HEAD} bytes ({HEAD} in payloads of {HEAD} bytes or more){tail}"


@dataclass(frozen=True, slots=True)
class Range:
    """The sizes from ``low`` up to, but without, ``high``, with their weight."""

    low: int
    high: int
    weight: Fraction

    def joined(self, other: Range) -> Range:
        return Range(
            min(self.low, other.low), max(self.high, other.high), self.weight + other.weight
        )


def join_smallest(ranges: Sequence[Range]) -> list[Range]:
    """Join the ascending ranges below the smallest message (16 B) into one that includes it.

    Their messages are sent with the nearest size that can be sent, and counted as moved.
    """
    least = COMPACT_HEAD + 1
    if not ranges or ranges[0].high >= least:
        return list(ranges)
    small = [each for each in ranges if each.low < least]
    joined = reduce(Range.joined, small)
    return [Range(joined.low, max(joined.high, least), joined.weight), *ranges[len(small) :]]


def join_ranges(ranges: Sequence[Range], most: int) -> list[Range]:
    """Join neighbouring ranges (ascending) until at most ``most`` are left, so that sizes move as
    few bytes as possible.

    No joined range exceeds a product of weight and width, the smallest that leaves at most ``most``
    ranges. So ranges are narrow where most messages are, and the few large messages, which make
    most of the bytes, keep their sizes too.
    """
    if len(ranges) <= most:
        return list(ranges)
    total = float(sum(each.weight for each in ranges))
    rows = [(each.low, each.high, float(each.weight) / total) for each in ranges]
    too_low, enough = 1e-12, 2.0 * rows[-1][1]
    for _ in range(20):  # bisection of the logarithm: its steps end far below a byte
        limit = math.sqrt(too_low * enough)
        if len(_ends(rows, limit)) > most:
            too_low = limit
        else:
            enough = limit
    ends = _ends(rows, enough)
    return [reduce(Range.joined, ranges[start:end]) for start, end in pairwise([0, *ends])]


def _ends(rows: Sequence[tuple[int, int, float]], limit: float) -> list[int]:
    """Return the end of each joined range, which takes neighbours as long as weight times width is
    within the limit.
    """
    ends, first, weight = [], 0, 0.0
    for number, (_, high, more) in enumerate(rows):
        if number > first and (weight + more) * (high - rows[first][0]) > limit:
            ends.append(number)
            first, weight = number, 0.0
        weight += more
    return [*ends, len(rows)]
