"""Models of Pulsar's bundle split algorithms: the boundaries that each adds for given rates of topics.

:func:`flow_or_qps` is ``flow_or_qps_equally_divide`` (PIP-169, apache/pulsar#16782) as released in 2.11
(``FlowOrQpsEquallyDivideBundleSplitAlgorithm``), :func:`range_boundary` is ``range_equally_divide``, and :func:`topic_count_boundary` is
``topic_count_equally_divide``.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MB: Final = 1024 * 1024
MARGIN: Final = 0.05
"""A sum so near a limit, as a share of it, may be on the other side when the broker looks."""


class TopicRate(NamedTuple):
    """A topic as the broker sees it. :param rate: msg/s, in and out together. :param throughput: bytes/s, in and out together."""

    position: int
    rate: float
    throughput: float

    @property
    def active(self) -> bool:
        """Whether there is anything of it; the algorithm skips the others."""
        return self.rate > 0 or self.throughput > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLimits:
    """The broker's settings of those names.

    :param rate: ``loadBalancerNamespaceBundleMaxMsgRate``. :param megabytes: ``loadBalancerNamespaceBundleMaxBandwidthMbytes``, of 1024².
    :param threshold: ``flowOrQpsDifferenceThresholdPercentage``, a percentage: what goes less than that beyond both limits stays whole.
    """

    rate: int = 30_000
    megabytes: int = 100
    threshold: int = 10

    @property
    def throughput(self) -> int:
        """Bytes/s."""
        return self.megabytes * MB

    def exceeded(self, rate: float, throughput: float, factor: float = 1.0) -> bool:
        """Whether either sum is above ``factor`` of its limit."""
        return rate > self.rate * factor or throughput > self.throughput * factor

    @property
    def _least(self) -> float:
        return 1 + self.threshold / 100.0

    def worth_it(self, rate: float, throughput: float, factor: float = 1.0) -> bool:
        """Whether a bundle of so much is split at all."""
        least = self._least * factor
        return rate >= self.rate * least or throughput >= self.throughput * least


class SplitStep(NamedTuple):
    """The algorithm comes to a topic.

    :param rate, throughput: of the part so far with it. :param middle: between it and the topic before.
    :param boundary: the same, where the part would be too much with it.
    """

    rate: float
    throughput: float
    boundary: int | None
    middle: int


def flow_or_qps(topics: Sequence[TopicRate], limits: SplitLimits) -> tuple[int, ...]:
    """The boundaries that the released algorithm adds: parts are filled in the order of positions, each up to a limit.

    :returns: none where fewer than two topics are active, or the whole is not far enough beyond a limit. The broker's answer is a
        success then, and it splits nothing.
    """
    if not _splits(topics, limits):
        return ()
    return tuple(step.boundary for step in _steps(topics, limits) if step.boundary is not None)


def undecided(topics: Sequence[TopicRate], limits: SplitLimits, margin: float = MARGIN) -> str | None:
    """Why the broker, whose rates are those of another moment, might find otherwise; None where it must find what the oracle does.

    A comparison is decided where one sum is above its limit by more than the margin, or both are below by more than that.
    """
    active = [topic for topic in topics if topic.active]
    if len({topic.position for topic in active}) < 2:
        return None
    rate, throughput = _sums(active)
    if limits.worth_it(rate, throughput, 1 - margin) != limits.worth_it(rate, throughput, 1 + margin):
        least = f"{limits.threshold} % above {_limits(limits)}"
        return f"the whole, {_told(rate, throughput)}, is within {margin:.0%} of the least that is split, {least}"
    if not limits.worth_it(rate, throughput):
        return None
    for step in _steps(topics, limits):
        if limits.exceeded(step.rate, step.throughput, 1 - margin) != limits.exceeded(step.rate, step.throughput, 1 + margin):
            part = f"a part of {_told(step.rate, step.throughput)}"
            return f"{part} is within {margin:.0%} of {_limits(limits)}: whether 0x{step.middle:08x} is a boundary is luck"
    return None


def _told(rate: float, throughput: float) -> str:
    return f"{rate:.1f} msg/s and {throughput / MB:.2f} MB/s"


def _limits(limits: SplitLimits) -> str:
    return f"{limits.rate} msg/s or {limits.megabytes} MB/s"


def _sums(topics: Sequence[TopicRate]) -> tuple[float, float]:
    return sum(topic.rate for topic in topics), sum(topic.throughput for topic in topics)


def _splits(topics: Sequence[TopicRate], limits: SplitLimits) -> bool:
    active = [topic for topic in topics if topic.active]
    return len({topic.position for topic in active}) >= 2 and limits.worth_it(*_sums(active))


def _steps(topics: Sequence[TopicRate], limits: SplitLimits) -> Iterator[SplitStep]:
    """From the second topic on. Of topics on one position the last counts, as often as there are some: so the broker keeps them."""
    by_position = {topic.position: topic for topic in topics if topic.active}
    ordered = sorted(topic.position for topic in topics if topic.active)
    _, rate, throughput = by_position[ordered[0]]
    for before, here in pairwise(ordered):
        _, more, bytes_more = by_position[here]
        middle = before + (here - before) // 2 + 1
        if limits.exceeded(rate + more, throughput + bytes_more):
            yield SplitStep(rate + more, throughput + bytes_more, middle, middle)
            rate, throughput = more, bytes_more
        else:
            rate, throughput = rate + more, throughput + bytes_more
            yield SplitStep(rate, throughput, None, middle)


def range_boundary(bundle: Bundle) -> int:
    """``range_equally_divide``: halfway between the ends, whatever the topics are."""
    return bundle.low + (bundle.high - bundle.low) // 2


def topic_count_boundary(topics: Sequence[TopicRate]) -> int | None:
    """``topic_count_equally_divide``: between the two topics in the middle, idle ones and the broker's own counted too; None below two."""
    if len(topics) < 2:
        return None
    ordered = sorted(topic.position for topic in topics)
    half = len(ordered) // 2
    return ordered[half - 1] + (ordered[half] - ordered[half - 1]) // 2


# The ring of hashes that a Pulsar namespace is cut into bundles by, and names for topics that fall where they are wanted.
#
# A topic's position is the CRC-32 (as in zlib) of its full name in UTF-8, ``persistent://tenant/namespace/name``; each partition is a
# topic of its own, ``…-partition-0`` (Pulsar's ``NamespaceBundleFactory``: Guava's ``Hashing.crc32()``, padded to a long). A bundle holds
# the positions from its lower end up to, but without, its upper one; the last bundle has the last position too.

LAST: Final = 0xFFFFFFFF
"""The last position there is."""
_DIGITS: Final = 12  # octal: 36 free bits, of which some combination gives any 32
_BITS: Final = 3


def position(topic: str) -> int:
    """Where a topic falls. :param topic: its full name."""
    return zlib.crc32(topic.encode())


def suffix(prefix: str, wanted: int) -> str:
    """Twelve octal digits by which ``prefix + suffix`` falls on a position.

    CRC-32 of texts of one length is affine in their bits, and the three low bits of an octal digit are free: so this is a system of 32
    equations over 36 unknown bits, which has a solution whatever the prefix is. Of several, always the same.

    :raises ValueError: no position.
    """
    if not 0 <= wanted <= LAST:
        raise ValueError(f"{wanted} is no position: 0 to {LAST} (0xffffffff)")
    zero = ["0"] * _DIGITS
    base = position(prefix + "".join(zero))
    chosen, left = 0, wanted ^ base
    for effect, bits in _eliminated(prefix, base):
        if left ^ effect < left:
            left, chosen = left ^ effect, chosen ^ bits
    assert not left
    return f"{chosen:0{_DIGITS}o}"


def _eliminated(prefix: str, base: int) -> list[tuple[int, int]]:
    """What the free bits do to the position, combined so that each has a highest bit of its own; descending. (effect, bits)."""
    rows: list[tuple[int, int]] = []
    for bit in range(_DIGITS * _BITS):
        bits = 1 << bit
        effect = position(f"{prefix}{bits:0{_DIGITS}o}") ^ base
        for other, others in rows:
            if effect ^ other < effect:
                effect, bits = effect ^ other, bits ^ others
        if effect:
            rows = sorted([*rows, (effect, bits)], reverse=True)
    return rows


class Bundle(NamedTuple):
    """One bundle, by its two ends."""

    low: int
    high: int

    def __str__(self) -> str:
        """As the admin REST spells it: ``0x00000000_0xffffffff``."""
        return f"0x{self.low:08x}_0x{self.high:08x}"

    def __contains__(self, where: object) -> bool:
        """Whether a position is in it."""
        return isinstance(where, int) and (self.low <= where < self.high or where == self.high == LAST)


@dataclass(frozen=True, slots=True)
class Ring:
    """How a namespace is cut. :param boundaries: ascending, both ends included."""

    boundaries: tuple[int, ...] = (0, LAST)

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """In the order of their positions."""
        return tuple(Bundle(low, high) for low, high in pairwise(self.boundaries))

    def bundle(self, where: int) -> Bundle:
        """The bundle that a position is in."""
        return self.bundles[min(bisect_right(self.boundaries, where), len(self.boundaries) - 1) - 1]

    def cut(self, at: Iterable[int]) -> Ring:
        """The ring with more boundaries; the position of a boundary belongs to the upper bundle."""
        return Ring(tuple(sorted({*self.boundaries, *at})))
