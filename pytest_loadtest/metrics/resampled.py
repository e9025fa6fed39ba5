"""The standard error of a figure of one run, estimated from the run itself.

Messages close in time have similar latencies, because they wait in the same queue. So blocks of
time are resampled, not messages: the run is cut into blocks of a tenth of it, of 2 s to 5 s, and
the bootstrap (``scipy.stats.bootstrap``) repeatedly draws as many of them as there are, with
replacement. The standard error is the deviation of the logarithm of the figure over these draws;
for few blocks it is too small by √(1 − 1/n), which is corrected.

Two runs are compared by the ratio of their figures. Its interval is Welch's for the two logarithms:
Student's t with the degrees of freedom of so many blocks. It covers variation *within* a run. A
difference between runs that lasts for a whole run (the placement of a process, another tenant of
the host) is not visible in a single run, and not part of any interval here.

The controller calls this for the verdict on a regression, and the commands that compare runs.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.metrics.histogram import midpoint, rank
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

# Blocks are longer than the queues and stalls that make neighbouring seconds alike;
# benchmarks/regression_power.py compares other lengths.
SHORTEST: Final = 2 * SECOND
LONGEST: Final = 5 * SECOND
# The fewest blocks for an estimate, which are 20 s.
FEWEST: Final = 10
# The most blocks of a long run; more would cost time and add nothing.
MOST: Final = 200
RESAMPLES: Final = 1000
# The confidence level of all intervals.
LEVEL: Final = 0.95
# A smaller variance of logarithms is rounding alone.
NEGLIGIBLE: Final = 1e-20


class Estimate(NamedTuple):
    """A figure above 0.

    :param error: standard error of its natural logarithm.
    :param blocks: the number of blocks it is estimated from.
    """

    value: float
    error: float
    blocks: int


class RelativeChange(NamedTuple):
    """A relative change, 0.1 for 10 % more, with the ends of its interval."""

    change: float
    low: float
    high: float


def latency_errors(
    blocks: Sequence[Mapping[int, int] | None],
    block: int,
    percentiles: Sequence[float],
    never_came: int = 0,
) -> tuple[list[float | None], int]:
    """Return the standard errors of the logarithms of percentiles (None if unknown), and the number
    of blocks they are estimated from.

    :param blocks: counts by HDR bucket of seven bits, of the messages intended in each; None
        without any.
    :param block: its length, ns.
    :param never_came: messages later than any, see
        :meth:`~pytest_loadtest.metrics.histogram.Histogram.percentile_of_due`.
    """
    size = _size(len(blocks), block)
    whole = len(blocks) // size
    used: set[int] = set()
    for counts in blocks:
        used.update(counts or ())
    if whole < FEWEST or not used:
        return [None] * len(percentiles), whole

    # (blocks for resampling, HDR buckets): the number of messages
    index = np.array(sorted(used), np.int64)
    table = np.zeros((whole, len(index)))
    for number, counts in enumerate(blocks[: whole * size]):
        if counts:
            columns = np.searchsorted(index, list(counts))
            table[number // size, columns] += list(counts.values())
    # The statistic is the logarithm of a percentile; one of 0 ns has none, so it counts as 1 ns.
    middles = np.log(np.maximum(midpoint(index, SERIES_BITS), 1))
    statistic = partial(_percentiles, table, middles, percentiles, never_came)
    return _errors(statistic, whole), whole


def rate_error(per_second: Sequence[int]) -> tuple[float | None, int]:
    """Return the standard error of the logarithm of a rate, and the number of blocks it is
    estimated from.

    :param per_second: counts.
    """
    size = _size(len(per_second), SECOND)
    whole = len(per_second) // size
    if whole < FEWEST:
        return None, whole
    sums = np.array(per_second[: whole * size], np.float64).reshape(whole, size).sum(axis=1)
    return _errors(lambda drawn: _log(drawn @ sums[:, None]).T, whole)[0], whole


def between(baseline: Estimate, now: Estimate) -> RelativeChange:
    """Return the relative change of a figure from one run to another."""
    from scipy import stats

    logarithm = math.log(now.value / baseline.value)
    change = math.expm1(logarithm)
    before = _variance(baseline)
    after = _variance(now)
    variance = before + after
    if variance < NEGLIGIBLE:
        return RelativeChange(change, change, change)
    # Welch–Satterthwaite: the two runs can have different variances and numbers of blocks.
    freedom = variance**2 / (before**2 / (baseline.blocks - 1) + after**2 / (now.blocks - 1))
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)
    high = math.expm1(min(logarithm + half, 700.0))  # beyond, a float overflows
    return RelativeChange(change, math.expm1(logarithm - half), high)


def _variance(figure: Estimate) -> float:
    """Return the variance of a figure's logarithm, corrected for few blocks."""
    return figure.error**2 * figure.blocks / (figure.blocks - 1)


def length(duration: int) -> int:
    """Return the length of the blocks of a run, ns, whole seconds.

    :param duration: of its measured phase, ns.
    """
    return min(max(duration // FEWEST // SECOND * SECOND, SHORTEST), LONGEST)


def _size(many: int, block: int) -> int:
    """Return the number of the given blocks that form one block for resampling."""
    return max(-(-length(many * block) // block), -(-many // MOST))


def _errors(statistic: Statistic, blocks: int) -> list[float | None]:
    """Return the standard error of each figure.

    :param statistic: returns logarithms ``(figures, draws)`` for the number of times that each
        block was drawn, ``(draws, blocks)``.
    """
    from scipy import stats

    def of(drawn: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:
        # (draws, blocks): the blocks 0, 2, 2 were drawn [1, 0, 2] times
        rows = drawn.reshape(-1, blocks)
        times = [np.bincount(row, minlength=blocks) for row in rows]
        return statistic(np.array(times, np.float64))

    # A rank among messages that never came is inf in some draws, and inf − inf is no error here:
    # the result is checked below. A fixed seed makes the same results give the same interval.
    with np.errstate(invalid="ignore"):
        drawn = stats.bootstrap(
            (np.arange(blocks),),
            of,
            vectorized=True,
            axis=-1,
            n_resamples=RESAMPLES,
            batch=RESAMPLES // 4,
            method="percentile",
            rng=np.random.default_rng(0),
        )
    errors: list[float | None] = []
    for error in np.atleast_1d(drawn.standard_error).tolist():
        errors.append(error if math.isfinite(error) else None)
    return errors


def _percentiles(
    table: NDArray[np.float64],
    middles: NDArray[np.float64],
    percentiles: Sequence[float],
    never_came: int,
    drawn: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return nearest ranks over the drawn latencies and those that never came; inf if a rank is one
    of the latter.
    """
    below = np.cumsum(drawn @ table, axis=1)
    figures = np.full((len(percentiles), len(drawn)), np.inf)
    for row, percentile in zip(figures, percentiles, strict=True):
        ranks = [rank(percentile, int(total)) for total in below[:, -1] + never_came]
        reached = below >= np.array(ranks)[:, None]
        reachable = reached[:, -1]
        row[reachable] = middles[reached[reachable].argmax(axis=1)]
    return figures


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        logarithms: NDArray[np.float64] = np.log(values)
    return logarithms
