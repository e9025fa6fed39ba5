"""What happened by the second, and the latencies of the messages that were due in each.

Seconds are whole ones since the start; what has an earlier time counts in second 0. A message is offered in the second of its intended
time; sent, acked and received (every copy) in the seconds in which that happened; the end-to-end latency of a first copy belongs to the
second of its *intended* time, so that a stall shows where it began. What is missing goes by the intended time too, of both sides:
acknowledged messages, once for each subscription, less copies, all of them. The two percentiles of a
second come from HDR buckets with seven bits (at most 0.4 % off), nearest rank, within that second's exact minimum and maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.metrics.hdr import hdr_index, midpoint
from pytest_loadtest.metrics.measurements import Series
from pytest_loadtest.metrics.over_time import over_time
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.over_time import OverTime

    Columns = Mapping[str, NDArray[np.int64]]

SERIES_BITS: Final = 7
SERIES_PERCENTILES: Final = (50, 99)


def by_second(sent: Columns, out: Columns, acked: Columns, received: tuple[Columns, Columns], run: Expected) -> Series:
    """The series of a run, of one value a message or copy.

    :param sent: those that were due (int64 ``intended``, ns, as all times here). :param out: those handed over (``sent``, ``blocked``).
    :param acked: those acknowledged (``intended``, ``acked``). :param received: all copies, and the first one of each delivery (both
        ``intended``, ``received``).
    """
    copies, first = received
    second = run.seconds(first["intended"])
    happened = (sent["intended"], out["sent"], acked["acked"], copies["received"])
    counted = [np.bincount(run.seconds(times)) for times in happened]
    blocked = np.zeros(int(run.seconds(out["sent"]).max(initial=-1)) + 1, np.int64)
    np.add.at(blocked, run.seconds(out["sent"]), out["blocked"])
    counted += [blocked, np.bincount(run.seconds(acked["intended"])), np.bincount(run.seconds(copies["intended"]))]
    latency = first["received"] - first["intended"]
    seconds = np.unique(second)
    rows = [_one_second(latency[second == s]) for s in seconds]
    return Series.padded(-(-run.duration // SECOND), counted, seconds, np.array(rows, np.float64).reshape(-1, 3), run.subscriptions)


def by_second_and_bucket(first: Columns, run: Expected) -> OverTime | None:
    """Their end-to-end latencies. :param first: the first copy of each delivery (``intended``, ``received``)."""
    return over_time(run.seconds(first["intended"]), hdr_index(first["received"] - first["intended"], SERIES_BITS))


def _one_second(latency: NDArray[np.int64]) -> list[float]:
    index = np.sort(hdr_index(latency, SERIES_BITS))
    ranks = [-(-p * len(index) // 100) for p in SERIES_PERCENTILES]
    middles = midpoint(index[[rank - 1 for rank in ranks]], SERIES_BITS)
    return [*np.clip(middles, latency.min(), latency.max()).tolist(), float(latency.max())]
