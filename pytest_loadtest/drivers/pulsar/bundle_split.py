"""Models of Pulsar's bundle split algorithms.

The boundaries that each adds for given rates of topics.

:func:`flow_or_qps` is ``flow_or_qps_equally_divide`` (PIP-169, apache/pulsar#16782) as released in
    2.11 (``FlowOrQpsEquallyDivideBundleSplitAlgorithm``), :func:`range_boundary` is
    ``range_equally_divide``, and :func:`topic_count_boundary` is ``topic_count_equally_divide``.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MB: Final = 1024 * 1024
# A sum within this share of a limit may be on its other side when the broker compares it.
MARGIN: Final = 0.05


class TopicRate(NamedTuple):
    """A topic's rates by the broker's statistics, in and out together.

    :param rate: msg/s.
    :param throughput: bytes/s.
    """

    position: int
    rate: float
    throughput: float

    @property
    def active(self) -> bool:
        """True if the topic has traffic; the algorithm skips idle topics."""
        return self.rate > 0 or self.throughput > 0


@record
class SplitLimits:
    """The broker's limits for a bundle.

    :param rate: ``loadBalancerNamespaceBundleMaxMsgRate``.
    :param megabytes: ``loadBalancerNamespaceBundleMaxBandwidthMbytes``, of 1024².
    :param threshold: ``flowOrQpsDifferenceThresholdPercentage``: a bundle that exceeds both limits
        by less than these percent stays whole.
    """

    rate: int = 30_000
    megabytes: int = 100
    threshold: int = 10

    @property
    def throughput(self) -> int:
        """The limit in bytes/s."""
        return self.megabytes * MB

    def exceeded(self, rate: float, throughput: float, factor: float = 1.0) -> bool:
        """Return whether a sum is above its limit times ``factor``."""
        return rate > self.rate * factor or throughput > self.throughput * factor

    @property
    def _least(self) -> float:
        return 1 + self.threshold / 100.0

    def worth_it(self, rate: float, throughput: float, factor: float = 1.0) -> bool:
        """Return whether a bundle with these sums is split at all.

        The limits are multiplied by ``factor``.
        """
        least = self._least * factor
        return rate >= self.rate * least or throughput >= self.throughput * least


class SplitStep(NamedTuple):
    """One step of the algorithm, at a topic.

    :param rate, throughput: sums of the current part, this topic included.
    :param middle: the position between this topic and the previous.
    :param boundary: ``middle`` if this topic would exceed a limit and
        therefore begins the next part; None otherwise.
    """

    rate: float
    throughput: float
    boundary: int | None
    middle: int


def flow_or_qps(topics: Sequence[TopicRate], limits: SplitLimits) -> tuple[int, ...]:
    """Return the boundaries that ``flow_or_qps_equally_divide`` adds.

    Parts are filled in the order of positions, each up to a limit.

    :returns: empty if fewer than two topics are active, or the bundle does not exceed a limit by
        the threshold. The broker then answers with a success and splits nothing.
    """
    active = [topic for topic in topics if topic.active]
    several = len({topic.position for topic in active}) > 1
    if not several or not limits.worth_it(*summed_traffic(active)):
        return ()
    return tuple(step.boundary for step in _steps(topics, limits) if step.boundary is not None)


def undecided(topics: Sequence[TopicRate], limits: SplitLimits) -> str | None:
    """Return why the broker's result may differ from :func:`flow_or_qps`, None if it cannot.

    Its rates are those of another moment.

    A comparison is decided if one sum is above its limit by more than the
    margin, or both are below by more than the margin.
    """
    active = [topic for topic in topics if topic.active]
    if len({topic.position for topic in active}) < 2:
        return None
    rate, throughput = summed_traffic(active)
    if limits.worth_it(rate, throughput, 1 - MARGIN) != limits.worth_it(
        rate, throughput, 1 + MARGIN
    ):
        return (
            f"the whole, {_sums_text(rate, throughput)}, is within {MARGIN:.0%} of the least that"
            f" is split, {limits.threshold} % above {_limits(limits)}"
        )
    if not limits.worth_it(rate, throughput):
        return None
    for step in _steps(topics, limits):
        if limits.exceeded(step.rate, step.throughput, 1 - MARGIN) != limits.exceeded(
            step.rate, step.throughput, 1 + MARGIN
        ):
            return (
                f"a part of {_sums_text(step.rate, step.throughput)} is within {MARGIN:.0%} of"
                f" {_limits(limits)}: whether 0x{step.middle:08x} is a boundary is luck"
            )
    return None


def _sums_text(rate: float, throughput: float) -> str:
    return f"{rate:.1f} msg/s and {throughput / MB:.2f} MB/s"


def _limits(limits: SplitLimits) -> str:
    return f"{limits.rate} msg/s or {limits.megabytes} MB/s"


def summed_traffic(topics: Sequence[TopicRate]) -> tuple[float, float]:
    """Return the messages and the bytes per second of topics together."""
    rate = sum(topic.rate for topic in topics)
    throughput = sum(topic.throughput for topic in topics)
    return rate, throughput


def _steps(topics: Sequence[TopicRate], limits: SplitLimits) -> Iterator[SplitStep]:
    """Yield a step for each active topic from the second on."""
    # The broker keeps rates in a map by position: of topics on one position the last one counts, as
    # often as there are such topics.
    by_position = {topic.position: topic for topic in topics if topic.active}
    ordered = sorted(topic.position for topic in topics if topic.active)
    # A part is closed before the topic that would exceed a limit,
    # so a single topic may exceed it alone.
    _, rate, throughput = by_position[ordered[0]]
    for before, here in pairwise(ordered):
        _, more, bytes_more = by_position[here]
        middle = before + (here - before) // 2 + 1
        if limits.exceeded(rate + more, throughput + bytes_more):
            yield SplitStep(rate + more, throughput + bytes_more, middle, middle)
            rate = more
            throughput = bytes_more
        else:
            rate += more
            throughput += bytes_more
            yield SplitStep(rate, throughput, None, middle)


def range_boundary(bundle: Bundle) -> int:
    """Return the boundary of ``range_equally_divide``.

    Halfway between the ends, whatever the topics are.
    """
    return bundle.low + (bundle.high - bundle.low) // 2


def topic_count_boundary(topics: Sequence[TopicRate]) -> int | None:
    """Return the boundary of ``topic_count_equally_divide``: between the two topics in the middle.

    None for fewer than two topics.

    Idle topics and system topics count.
    """
    if len(topics) < 2:
        return None
    ordered = sorted(topic.position for topic in topics)
    half = len(ordered) // 2
    return ordered[half - 1] + (ordered[half] - ordered[half - 1]) // 2


# Positions and bundles of a namespace, and topic names for given positions.
#
# A topic's position is the CRC-32 (as in zlib) of its full name in UTF-8,
# ``persistent://tenant/namespace/name``; each partition is a topic of its own, ``…-partition-0``
# (Pulsar's ``NamespaceBundleFactory``: Guava's ``Hashing.crc32()``, padded to a long). A bundle
# holds the positions from its lower end up to, but not including, its upper end; the last bundle
# also has the last position.

# The last position.
LAST: Final = 0xFFFFFFFF
_DIGITS: Final = 12  # octal digits: 36 free bits, enough for any position of 32 bits
_BITS: Final = 3


def position(topic: str) -> int:
    """Return the position of a topic. :param topic: its full name."""
    return zlib.crc32(topic.encode())


def suffix(prefix: str, target: int) -> str:
    """Return twelve octal digits such that ``prefix + digits`` has the position ``target``.

    Always the same for the same arguments.

    :raises ValueError: ``target`` is not a position.
    """
    if not 0 <= target <= LAST:
        raise ValueError(f"{target} is not a position: 0 to {LAST} (0xffffffff)")
    # CRC-32 of texts of one length is affine in their bits, and the three low
    # bits of an octal digit are free: this is a system of 32 equations over 36
    # unknown bits, which has a solution for every prefix.
    base = position(prefix + "0" * _DIGITS)
    chosen = 0
    left = target ^ base
    for effect, bits in _eliminated(prefix, base):
        if left ^ effect < left:
            left ^= effect
            chosen ^= bits
    assert not left
    return f"{chosen:0{_DIGITS}o}"


def _eliminated(prefix: str, base: int) -> list[tuple[int, int]]:
    """Return pairs of an effect on the position and the bits that have it.

    Each effect has a highest bit of its own, descending (Gaussian elimination).
    """
    rows: list[tuple[int, int]] = []
    for bit in range(_DIGITS * _BITS):
        bits = 1 << bit
        effect = position(f"{prefix}{bits:0{_DIGITS}o}") ^ base
        for other, others in rows:
            if effect ^ other < effect:
                effect ^= other
                bits ^= others
        if effect:
            rows = sorted([*rows, (effect, bits)], reverse=True)
    return rows


class Bundle(NamedTuple):
    """One bundle, as its two ends."""

    low: int
    high: int

    def __str__(self) -> str:
        """Return the admin REST's spelling: ``0x00000000_0xffffffff``."""
        return f"0x{self.low:08x}_0x{self.high:08x}"

    def __contains__(self, where: object) -> bool:
        return isinstance(where, int) and (
            self.low <= where < self.high or where == self.high == LAST
        )


@immutable
class Ring:
    """The bundles of a namespace. :param boundaries: ascending, both ends included."""

    boundaries: tuple[int, ...] = (0, LAST)

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """The bundles in the order of their positions."""
        return tuple(Bundle(low, high) for low, high in pairwise(self.boundaries))

    def bundle(self, where: int) -> Bundle:
        """Return the bundle that contains a position."""
        return self.bundles[min(bisect_right(self.boundaries, where), len(self.boundaries) - 1) - 1]

    def cut(self, at: Iterable[int]) -> Ring:
        """Return the ring with more boundaries.

        The position of a boundary belongs to the upper bundle.
        """
        return Ring(tuple(sorted({*self.boundaries, *at})))
