"""Masks of the copies in time, and of those that would be without the generator's own delays.

In time is within the measured phase, or before the end of a window or tenth, both shifted by the
median latency (decision 004). Without own delays each copy comes earlier by the part of it that
they explain, and so does each first copy for the median (decision 049).

The definitions (:mod:`pytest_loadtest.metrics.stats`) and Spark's workers share this code. The
controller computes the shifts from the latencies that it has by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_loadtest.metrics.catalogue import with_own, without_own
from pytest_loadtest.metrics.own_delays import of_copies
from pytest_loadtest.metrics.signed import Lateness, exchanged
from pytest_loadtest.metrics.sliced_counts import before_ends

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.histogram import Histogram

    Latencies = Mapping[str, Histogram | Lateness]
    Copies = Mapping[str, NDArray[Any]]
    Masks = dict[str, NDArray[np.bool_]]


def median_shift(latencies: Latencies) -> int:
    """Return the median by which the measured phase is shifted to decide which copies are in time,
    ns.
    """
    middle = latencies.get("lateness") or latencies.get("end_to_end")
    return middle.percentile(50) if middle else 0


def shift_without_own(latencies: Latencies, run: Expected) -> int | None:
    """Return that median without the generator's own delays, ns.

    None if no first copy has a part of them, or if what would be in time is not counted.
    """
    kind = "lateness" if "lateness" in latencies else "end_to_end"
    lengthened = latencies.get(with_own(kind))
    if not run.explains_throughput or lengthened is None:
        return None
    rest = latencies[without_own(kind)]
    assert not isinstance(lengthened, Lateness)
    assert not isinstance(rest, Lateness)
    return exchanged(latencies[kind], lengthened, rest).percentile(50)


def masks_in_time(
    copies: Copies,
    arrived: NDArray[np.int64],
    begins: tuple[int, int | None],
    duration: int,
    run: Expected,
) -> Masks:
    """Return masks of the copies in time by what they are in time for: ``in_time`` for the phase,
    ``windows``, ``tenths``; and of those that would be, by the same names ``…_without_own``.

    :param arrived: ns, without the delays of delayed messages.
    :param begins: the shifted start of the phase, and the same without the generator's own delays;
        None: what would be in time is not counted.
    """
    begin, begin_without_own = begins
    masks = _masks(copies, arrived - begin, duration, run)
    if begin_without_own is not None:
        part = of_copies(copies, run, copies["received"] - run.lateness(copies))
        earlier = _masks(copies, arrived - part - begin_without_own, duration, run)
        masks |= {without_own(name): mask for name, mask in earlier.items()}
    return masks


def _masks(copies: Copies, elapsed: NDArray[np.int64], duration: int, run: Expected) -> Masks:
    """:param elapsed: ns since the shifted start."""
    within = (elapsed >= 0) & (elapsed < duration)
    return {"in_time": within, **before_ends(copies, elapsed, run)}
