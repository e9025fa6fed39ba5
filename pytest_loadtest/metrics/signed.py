"""Times on both sides of an instant: late or early.

There is a histogram for each side, so that each keeps its three digits.

The controller joins the sides after the load, for results, the verdict and reports; in tables and
slices they are ordinary histograms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.metrics.histogram import Histogram, merge, rank

if TYPE_CHECKING:
    from collections.abc import Mapping

SIDES: Final = ("lateness", "earliness")
"""The kinds that are counted on one side of due only, until :func:`with_lateness` joins them."""


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """received − due of each delivery's first copy; below zero if it came early.

    :param early: due − received of the early ones.
    :param late: received − due of the others. None without any.
    """

    early: Histogram | None
    late: Histogram | None

    # Histogram.negative counts clock errors; an early delivery is none.
    negative = 0

    @property
    def n(self) -> int:
        """Number of values."""
        return _count(self.early) + _count(self.late)

    @property
    def minimum(self) -> int:
        """ns, exact."""
        if self.early:
            return -self.early.maximum
        return _some(self.late).minimum

    @property
    def maximum(self) -> int:
        """ns, exact."""
        if self.late:
            return self.late.maximum
        return -_some(self.early).minimum

    @property
    def total(self) -> int:
        """Sum in ns, exact."""
        total = 0
        if self.late:
            total += self.late.total
        if self.early:
            total -= self.early.total
        return total

    @property
    def mean(self) -> float:
        """Arithmetic mean, ns."""
        return self.total / self.n

    def percentile(self, p: float) -> int:
        """Return the nearest rank, see :meth:`Histogram.percentile`."""
        return self._at(rank(p, self.n))

    def percentile_of_due(self, p: float, never_came: int) -> float:
        """Return the nearest rank over all due, see :meth:`Histogram.percentile_of_due`."""
        at = rank(p, self.n + never_came)
        if at > self.n:
            return math.inf
        return self._at(at)

    def _at(self, at: int) -> int:
        # Ranks begin with the earliest value, which is the largest one of its side.
        early = _count(self.early)
        if at <= early:
            return -_some(self.early).at(early + 1 - at)
        return _some(self.late).at(at - early)

    @property
    def earliness(self) -> Histogram:
        """due − received of each first copy, 0 if it was not early."""
        # Deliveries that were not early are zeros, in bucket 0, in addition to the early ones.
        zeros = _count(self.late)
        if self.early is not None and not zeros:
            return self.early
        not_early = Histogram(
            index=np.zeros(1, np.int64), count=np.array([zeros]), minimum=0, maximum=0, total=0
        )
        both = merge([not_early, self.early])
        return replace(_some(both), negative=0)


def with_lateness(kinds: Mapping[str, Histogram]) -> dict[str, Histogram | Lateness]:
    """Return latencies as measurements have them, from histograms by kind.

    Both sides of due are counted apart: ``lateness`` of what did not come early, ``earliness`` of
    what did. Together they become the signed ``lateness`` of all, and ``earliness`` gets a zero for
    each value that was not early.
    """
    early = kinds.get("earliness")
    late = kinds.get("lateness")
    if early is None and late is None:
        return dict(kinds)
    # In tables and slices both sides are ordinary histograms, which can be merged; only results
    # need them joined.
    both = Lateness(early=early, late=late)
    return {**kinds, "lateness": both, "earliness": both.earliness}


def exchanged(
    whole: Histogram | Lateness, lengthened: Histogram, rest: Histogram
) -> Histogram | Lateness:
    """Return latencies with the lengthened ones replaced by the rest of each."""
    if isinstance(whole, Lateness):
        # What came early was not late because of anything.
        late = merge([_some(whole.late).without(lengthened), rest])
        return Lateness(early=whole.early, late=late)
    return _some(merge([whole.without(lengthened), rest]))


def _count(part: Histogram | None) -> int:
    return 0 if part is None else part.n


def _some(part: Histogram | None) -> Histogram:
    assert part is not None
    return part
