"""How even each split algorithm leaves the bundles of a namespace, and how many splits that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.pulsar.bundle_ring import Bundle, Ring
from pytest_loadtest.drivers.pulsar.bundle_split import SplitLimits, TopicRate, by_count, flow_or_qps, middle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Cut = Callable[[Bundle, Sequence[TopicRate], SplitLimits], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What an algorithm came to.

    :param splits: that were asked for one after another. :param rates: msg/s of each bundle, in and out, in the order of positions.
    """

    splits: int
    ring: Ring
    rates: tuple[float, ...]

    @property
    def imbalance(self) -> float | None:
        """See :func:`imbalance`."""
        return _imbalance(self.rates)


def balance(algorithm: str, topics: Sequence[TopicRate], limits: SplitLimits, ring: Ring | None = None) -> Balance:
    """Split every bundle that is beyond a limit, again and again, as long as it has two active topics and the algorithm finds a place.

    :param algorithm: one of :data:`ALGORITHMS`. :param topics: of the namespace, idle ones included.
    :param ring: as it is in the beginning; one bundle unless said.
    """
    cut, now, splits = ALGORITHMS[algorithm], ring or Ring(), 0
    waiting = list(now.bundles)
    while waiting:
        bundle = waiting.pop()
        inside = [topic for topic in topics if topic.position in bundle]
        at = [place for place in cut(bundle, inside, limits) if bundle.low < place < bundle.high] if _beyond(inside, limits) else []
        if at:
            splits += 1
            now = now.cut(at)
            waiting += Ring((bundle.low, bundle.high)).cut(at).bundles
    return Balance(splits=splits, ring=now, rates=rates(now, topics))


def rates(ring: Ring, topics: Sequence[TopicRate]) -> tuple[float, ...]:
    """msg/s of each bundle, in and out."""
    return tuple(sum(topic.rate for topic in topics if topic.position in bundle) for bundle in ring.bundles)


def imbalance(ring: Ring, topics: Sequence[TopicRate]) -> float | None:
    """The busiest bundle's rate, by the mean of all of them: 1 is even. None where there is no load."""
    return _imbalance(rates(ring, topics))


def _imbalance(found: Sequence[float]) -> float | None:
    return max(found) * len(found) / sum(found) if sum(found) else None


def _beyond(topics: Sequence[TopicRate], limits: SplitLimits) -> bool:
    active = {topic.position for topic in topics if topic.active}
    return len(active) > 1 and limits.exceeded(sum(topic.rate for topic in topics), sum(topic.throughput for topic in topics))


def _by_flow(_: Bundle, topics: Sequence[TopicRate], limits: SplitLimits) -> tuple[int, ...]:
    return flow_or_qps(topics, limits)


def _by_count(_: Bundle, topics: Sequence[TopicRate], limits: SplitLimits) -> tuple[int, ...]:
    found = by_count(topics)
    return () if found is None else (found,)


def _by_range(bundle: Bundle, topics: Sequence[TopicRate], limits: SplitLimits) -> tuple[int, ...]:
    return (middle(bundle),)


ALGORITHMS: Final[Mapping[str, Cut]] = {
    "flow_or_qps_equally_divide": _by_flow,
    "topic_count_equally_divide": _by_count,
    "range_equally_divide": _by_range,
}
