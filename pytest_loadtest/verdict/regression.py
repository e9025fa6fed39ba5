"""The part ``regression`` of an ``slo:`` section: how much worse than a baseline a run may be.

::

    slo:
      regression:
        endToEndLatency.p99: 10%      # at most so much later than the baseline's
        throughput: 5%                # at most so much less

It is judged where a baseline is given: :mod:`pytest_loadtest.verdict.changes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pytest_loadtest.verdict.grammar import PERCENT, Problems, WrongBound, nearest, read_statistic

REGRESSION: Final = "regression"
LATENCY: Final = "endToEndLatency"
THROUGHPUT: Final = "throughput"
_KNOWN = (THROUGHPUT, *(f"{LATENCY}.{statistic}" for statistic in ("p50", "p90", "p99", "p99.9")))


def bounds(section: object, problems: Problems) -> Iterator[tuple[str, float]]:
    """Each figure that is bounded, by its one name, and the share by which it may be worse.

    :param problems: gets what is wrong with the others: path, message, what to write instead.
    """
    if not isinstance(section, Mapping) or not section:
        problems.append(((REGRESSION,), "names nothing", f"write {REGRESSION}: {{{LATENCY}.p99: 10%}}"))
        return
    seen: set[str] = set()
    for key, bound in section.items():
        try:
            name = _figure(key)
            if name in seen:
                raise WrongBound(f"{key!r} is the same percentile as one before it", "remove one")
            seen.add(name)
            yield name, _share(name, bound)
        except WrongBound as wrong:
            problems.append(((REGRESSION, key), *wrong.args))


def _figure(key: object) -> str:
    metric, _, statistic = str(key).partition(".")
    if metric == THROUGHPUT and not statistic:
        return THROUGHPUT
    if metric == LATENCY and statistic:
        found = read_statistic(statistic)
        if found.startswith("p"):
            return f"{LATENCY}.{found}"
    raise WrongBound(f"{key!r} is not a figure whose noise is known", nearest(key, _KNOWN))


def _share(name: str, bound: object) -> float:
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise WrongBound("has no value" if bound is None else f"{bound!r} is not a percentage", "write 10%")
    share = float(match[1]) / 100
    if share == 0:
        raise WrongBound(f"{bound!r} is less than noise: no two runs are alike", "write 5%")
    if name == THROUGHPUT and share >= 1:
        raise WrongBound(f"{bound!r} holds for every run", "write 5%")
    return share
