"""How far a figure of one run can be trusted: its standard error, from the run's own course.

Messages of one moment fare alike (they stand in one queue), so not messages but blocks of time are drawn: the run is cut into blocks of a
tenth of it, of 2 s to 5 s, and the bootstrap (``scipy.stats.bootstrap``) draws as many of them as there are, with repetition, again and
again. How much the logarithm of the figure varies over these draws is its standard error; of few blocks it is too small by √(1 − 1/n),
which is put right.

Two runs are compared by the ratio of their figures. Its interval is Welch's, of the two logarithms: Student's t with the degrees of freedom
that so many blocks have. It covers what changes *within* a run. What differs from run to run and stays for all of it (where the system
placed a process, what a neighbour does) is in no single run, and in no interval here.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.metrics.histogram import midpoint
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

SHORTEST, LONGEST = 2 * SECOND, 5 * SECOND
"""Blocks are longer than the queues and stalls that make neighbouring seconds alike; ``benchmarks/regression_power.py`` tries others."""
FEWEST: Final = 10
"""Blocks of a run from which anything is told: 20 s."""
MOST: Final = 200
"""Blocks of a long run; its seconds are put together to so many."""
RESAMPLES: Final = 1000
LEVEL: Final = 0.95
"""Of all intervals."""
NONE: Final = 1e-20
"""A variance of logarithms that is rounding alone."""


class Estimate(NamedTuple):
    """A figure, above 0. :param error: standard error of its natural logarithm. :param blocks: it rests on so many."""

    value: float
    error: float
    blocks: int


class RelativeChange(NamedTuple):
    """A relative change, 0.1 for 10 % more, with the ends of its interval."""

    change: float
    low: float
    high: float


def latency_errors(
    blocks: Sequence[Mapping[int, int] | None], block: int, wanted: Sequence[float], never_came: int = 0
) -> tuple[list[float | None], int]:
    """Standard errors of the logarithms of percentiles, and on how many blocks they rest; None where one is not known.

    :param blocks: counts by HDR bucket of seven bits, of the messages intended in each; None where there are none. :param block: ns.
    :param never_came: messages later than any, see :meth:`~pytest_loadtest.metrics.histogram.Histogram.percentile_of_due`.
    """
    size = _size(len(blocks), block)
    whole = len(blocks) // size
    index = np.array(sorted({at for counts in blocks for at in counts or ()}), np.int64)
    if whole < FEWEST or not len(index):
        return [None] * len(wanted), whole
    table, place = np.zeros((whole, len(index))), {at: i for i, at in enumerate(index.tolist())}
    for number, counts in enumerate(blocks[: whole * size]):
        for at, count in (counts or {}).items():
            table[number // size, place[at]] += count
    middles = np.log(np.maximum(midpoint(index, SERIES_BITS), 1))
    return _errors(partial(_percentiles, table, middles, wanted, never_came), whole), whole


def rate_error(per_second: Sequence[int]) -> tuple[float | None, int]:
    """Standard error of the logarithm of a rate, from what came in each second, and on how many blocks it rests."""
    size = _size(len(per_second), SECOND)
    whole = len(per_second) // size
    if whole < FEWEST:
        return None, whole
    sums = np.array(per_second[: whole * size], np.float64).reshape(whole, size).sum(axis=1)
    return _errors(lambda drawn: _log(drawn @ sums[:, None]).T, whole)[0], whole


def between(baseline: Estimate, now: Estimate) -> RelativeChange:
    """The relative change of a figure from one run to another."""
    from scipy import stats

    change = math.log(now.value / baseline.value)
    own, other = (one.error**2 * one.blocks / (one.blocks - 1) for one in (baseline, now))
    variance = own + other
    if variance < NONE:
        return RelativeChange(math.expm1(change), math.expm1(change), math.expm1(change))
    freedom = variance**2 / (own**2 / (baseline.blocks - 1) + other**2 / (now.blocks - 1))
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)
    return RelativeChange(math.expm1(change), math.expm1(change - half), _grown(change + half))


def _grown(logarithm: float) -> float:
    return math.expm1(min(logarithm, 700.0))  # what is beyond is no number, and no answer either


def length(duration: int) -> int:
    """Of the blocks that are drawn of a run, ns: whole seconds. :param duration: of its measured phase, ns."""
    return min(max(duration // FEWEST // SECOND * SECOND, SHORTEST), LONGEST)


def _size(many: int, block: int) -> int:
    """How many of the given blocks make one that is drawn."""
    return max(-(-length(many * block) // block), -(-many // MOST))


def _errors(statistic: Statistic, blocks: int) -> list[float | None]:
    """:param statistic: of how often each block was drawn, ``(draws, blocks)``; its logarithms are ``(figures, draws)``."""
    from scipy import stats

    def of(drawn: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:
        rows = drawn.reshape(-1, blocks)
        return statistic(np.array([np.bincount(row, minlength=blocks) for row in rows], np.float64))

    with np.errstate(invalid="ignore"):
        found = stats.bootstrap(
            (np.arange(blocks),), of, vectorized=True, axis=-1, n_resamples=RESAMPLES, batch=RESAMPLES // 4, method="percentile",
            rng=np.random.default_rng(0),
        )  # fmt: skip
    return [float(error) if math.isfinite(error) else None for error in np.atleast_1d(found.standard_error)]


def _percentiles(
    table: NDArray[np.float64], middles: NDArray[np.float64], wanted: Sequence[float], never_came: int, drawn: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Nearest ranks over what was drawn and what never came; inf where a rank lies among the latter."""
    below = np.cumsum(drawn @ table, axis=1)
    found = np.full((len(wanted), len(drawn)), np.inf)
    for row, percentile in zip(found, wanted, strict=True):
        rank = np.maximum(np.ceil(percentile / 100 * (below[:, -1] + never_came) - 1e-9), 1)
        reached = below >= rank[:, None]
        at, known = reached.argmax(axis=1), reached[:, -1]
        row[known] = middles[at[known]]
    return found


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        logarithms: NDArray[np.float64] = np.log(values)
    return logarithms
