"""Which sizes stand for a range of sizes, and which of them can be sent at all."""

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
    """The sizes that stand for [low, high).

    :param kind: ``midpoint`` or ``max`` (the last size inside): ``count`` times the same. ``uniform``: ``count`` sizes spread
        evenly, each in the middle of its part; with a count of 1 :data:`UNIFORM_SIZES`, or every size of a narrower range once.
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
    raise ValueError(f"representative {kind!r}: one of midpoint, max, uniform")


def check_number(payloads: Sequence[int], per_bucket: int, most: int) -> None:
    """:param payloads: how many payloads each bucket asks for: ``per_bucket``, or, the first, ``randomizedPayloadPoolSize``.

    :raises ValueError: more than ``most`` together.
    """
    if sum(payloads) <= most:
        return
    rest = len(payloads) - (payloads[0] != per_bucket)
    if rest * per_bucket > most:
        what, remedy = f"payloadsPerBucket {per_bucket} for {rest} size buckets", f"payloadsPerBucket: {most // rest}"
    else:
        what, remedy = f"randomizedPayloadPoolSize {payloads[0]}", f"randomizedPayloadPoolSize: {most - rest * per_bucket}"
    raise ValueError(f"{what}: a message chooses among at most {most} payloads, write {remedy} or less")


class Sized(Protocol):
    """A size bucket, as a profile names it."""

    @property
    def name(self) -> str: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...


class Limits:
    """Which sizes can be sent: room for head and ``tail`` bytes of checksum, and not above the target's limit.

    ``moved`` counts the sizes that were asked for and could not be sent as they were.
    """

    def __init__(self, tail: int, max_size: int | None) -> None:
        self._tail, self._max = tail, max_size
        self.moved = 0

    def fit(self, size: int, low: int, high: int, name: str) -> int:
        """The size asked for, or the nearest in [low, high) that can be sent.

        :raises ValueError: there is none; the message begins with ``name``.
        """
        last = high - 1 if self._max is None else min(high - 1, self._max)
        compact = max(low, COMPACT_HEAD + self._tail), min(last, HEAD - 1)
        full = max(low, HEAD + self._tail), last
        nearest = [min(max(size, lowest), highest) for lowest, highest in (compact, full) if lowest <= highest]
        if not nearest:
            raise ValueError(f"{name} cannot be sent: {self._reason(low)}")
        fitting = min(nearest, key=lambda one: abs(one - size))
        self.moved += fitting != size
        return fitting

    def sizes(self, bucket: Sized, kind: str, payloads: int, randomized: bool) -> list[int]:
        """The sizes of a bucket's payloads; several of one size only where their bodies are random, and so differ."""
        low, high, count = bucket.low, bucket.high, payloads
        if not randomized:
            count = min(payloads, high - low) if kind == "uniform" else 1
        name = f"messageSize {bucket.name}" if bucket.name.isdecimal() else f"size range {bucket.name!r}"
        return [self.fit(size, low, high, name) for size in representatives(low, high, kind, count)]

    def _reason(self, low: int) -> str:
        if self._max is not None and low > self._max:
            return f"the target takes at most {self._max} bytes"
        tail = f" and the checksum {self._tail}" if self._tail else ""
        return f"the envelope takes {COMPACT_HEAD} bytes ({HEAD} in payloads of {HEAD} bytes or more){tail}"


@dataclass(frozen=True, slots=True)
class Range:
    """Sizes from ``low`` up to, but without, ``high``, and what they weigh."""

    low: int
    high: int
    weight: Fraction

    def joined(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high), self.weight + other.weight)


def join_smallest(ranges: Sequence[Range]) -> list[Range]:
    """Ascending ranges, those without a size that an envelope fits in (16 B) joined into one that has it.

    What they stand for is sent as the nearest size there is, and counted as moved.
    """
    least = COMPACT_HEAD + 1
    if not ranges or ranges[0].high >= least:
        return list(ranges)
    small = [one for one in ranges if one.low < least]
    joined = reduce(Range.joined, small)
    return [Range(joined.low, max(joined.high, least), joined.weight), *ranges[len(small) :]]


def join_ranges(ranges: Sequence[Range], most: int) -> list[Range]:
    """Ascending ranges, neighbours joined until at most ``most`` are left.

    Joined where it moves the fewest bytes: every joined range has at most the same product of weight and width, the least that will
    do. So ranges are narrow where most messages are, and the few large messages, which make most of the bytes, keep their sizes too.
    """
    if len(ranges) <= most:
        return list(ranges)
    total = float(sum(one.weight for one in ranges))
    rows = [(one.low, one.high, float(one.weight) / total) for one in ranges]
    too_low, enough = 1e-12, 2.0 * rows[-1][1]
    for _ in range(20):  # bisected in the logarithm, to far less than a byte
        limit = math.sqrt(too_low * enough)
        if len(_ends(rows, limit)) > most:
            too_low = limit
        else:
            enough = limit
    ends = _ends(rows, enough)
    return [reduce(Range.joined, ranges[start:end]) for start, end in pairwise([0, *ends])]


def _ends(rows: Sequence[tuple[int, int, float]], limit: float) -> list[int]:
    """Where each joined range ends, taking in neighbours as long as weight times width stays within the limit."""
    ends, first, weight = [], 0, 0.0
    for number, (_, high, more) in enumerate(rows):
        if number > first and (weight + more) * (high - rows[first][0]) > limit:
            ends.append(number)
            first, weight = number, 0.0
        weight += more
    return [*ends, len(rows)]
