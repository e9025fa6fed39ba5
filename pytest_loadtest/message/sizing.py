"""Sizes of payloads: the sizes that represent a range, the sizes that can be sent, and the joining
of ranges.
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.values.records import immutable

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
        if count == 1:
            count = min(UNIFORM_SIZES, width)
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
        cause = f"payloadsPerBucket {per_bucket} for {rest} size buckets"
        remedy = f"payloadsPerBucket: {most // rest}"
    else:
        cause = f"randomizedPayloadPoolSize {payloads[0]}"
        remedy = f"randomizedPayloadPoolSize: {most - rest * per_bucket}"
    raise ValueError(
        f"{cause}: a message chooses among at most {most} payloads, write {remedy} or less"
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

    :param enveloped: bodies begin with the envelope.
    :ivar moved: number of the sizes that had to be changed.
    """

    def __init__(self, tail: int, max_size: int | None, *, enveloped: bool = True) -> None:
        self._tail = tail
        self._enveloped = enveloped
        self._max = max_size
        self.moved = 0

    def fit(self, size: int, low: int, high: int, name: str) -> int:
        """Return ``size``, or the nearest size in [low, high) that can be sent.

        :raises ValueError: no size can be sent; the message begins with ``name``.
        """
        last = high - 1
        if self._max is not None:
            last = min(last, self._max)
        compact = max(low, COMPACT_HEAD + self._tail), min(last, HEAD - 1)
        full = max(low, HEAD + self._tail), last
        possible = [compact, full] if self._enveloped else [(max(low, 1), last)]
        candidates = []
        for lowest, highest in possible:
            if lowest <= highest:
                candidates.append(min(max(size, lowest), highest))
        if not candidates:
            raise ValueError(f"{name} cannot be sent: {self._reason(low)}")
        fitting = min(candidates, key=lambda candidate: abs(candidate - size))
        self.moved += fitting != size
        return fitting

    def sizes(self, bucket: Sized, kind: str, payloads: int, randomized: bool) -> list[int]:
        """Return the sizes of a bucket's payloads; several of one size only if their bodies are
        random: others would be equal.
        """
        low = bucket.low
        high = bucket.high
        count = payloads
        if not randomized:
            count = min(payloads, high - low) if kind == "uniform" else 1
        name = f"size range {bucket.name!r}"
        if bucket.name.isdecimal():
            name = f"messageSize {bucket.name}"
        return [self.fit(size, low, high, name) for size in representatives(low, high, kind, count)]

    def _reason(self, low: int) -> str:
        if self._max is not None and low > self._max:
            return f"the target takes at most {self._max} bytes"
        if not self._enveloped:
            return "a message has a byte at least"
        tail = f" and the checksum {self._tail}" if self._tail else ""
        return (
            f"the envelope takes {COMPACT_HEAD} bytes"
            f" ({HEAD} in payloads of {HEAD} bytes or more){tail}"
        )


@immutable
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
    small = sum(each.low < least for each in ranges)
    joined = reduce(Range.joined, ranges[:small])
    return [Range(joined.low, max(joined.high, least), joined.weight), *ranges[small:]]


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
    shares = [float(each.weight) / total for each in ranges]
    too_low = 1e-12
    enough = 2.0 * ranges[-1].high
    for _ in range(20):  # bisection of the logarithm: its steps end far below a byte
        limit = math.sqrt(too_low * enough)
        if len(_ends(ranges, shares, limit)) > most:
            too_low = limit
        else:
            enough = limit
    ends = _ends(ranges, shares, enough)
    return [reduce(Range.joined, ranges[start:end]) for start, end in pairwise([0, *ends])]


def _ends(ranges: Sequence[Range], shares: Sequence[float], limit: float) -> list[int]:
    """Return the end of each joined range, which takes neighbours as long as share times width is
    within the limit.
    """
    ends = []
    first = 0
    joined_share = 0.0
    for number, share in enumerate(shares):
        width = ranges[number].high - ranges[first].low
        if number > first and (joined_share + share) * width > limit:
            ends.append(number)
            first = number
            joined_share = 0.0
        joined_share += share
    return [*ends, len(ranges)]
