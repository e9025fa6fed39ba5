"""Masks of the copies in time, and of those that would be without the generator's own delays.

In time is within the measured phase, or before the end of a window or tenth, both shifted by the
median latency; the phase also so that its first and its last message have the same room (decision
004). Without own delays each copy comes earlier by the part of it that they explain, and so does
each first copy for the median (decision 049).

The definitions (:mod:`pytest_loadtest.metrics.stats`) and Spark's workers share this code. The
controller computes the shifts from the latencies that it has by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Begins(NamedTuple):
    """The starts of the times in which a copy is in time.

    :param shifted: the phase's start plus the median latency, ns.
    :param without_own: the same without the generator's own delays; None: what would be in time
        without them is not counted.
    :param earlier: ns by which the phase, but no window or tenth, is moved back again.
    """

    shifted: int
    without_own: int | None = None
    earlier: int = 0


def begins_in_time(
    latencies: Latencies, intended: NDArray[np.int64], offered: int, run: Expected
) -> Begins:
    """Return when the times of a run or stage begin.

    :param intended: intended times of messages, the first and the last one among them.
    :param offered: the number of all messages.
    """
    kind = "lateness" if "lateness" in latencies else "end_to_end"
    shifted = run.start
    if kind in latencies:
        shifted += latencies[kind].percentile(50)

    shifted_without_own = None
    lengthened = latencies.get(with_own(kind))
    # None of the first copies of most runs has a part of the generator's own delays.
    if run.explains_throughput and lengthened is not None:
        rest = latencies[without_own(kind)]
        assert not isinstance(lengthened, Lateness)
        assert not isinstance(rest, Lateness)
        middle = exchanged(latencies[kind], lengthened, rest).percentile(50)
        shifted_without_own = run.start + middle
    return Begins(shifted, shifted_without_own, _earlier(intended, offered, run))


def _earlier(intended: NDArray[np.int64], offered: int, run: Expected) -> int:
    # Ten messages, one a second from the start on: without this, the first one must not take less
    # than the median latency, and the last one may take a second more. Moved by 500 ms, the phase
    # leaves so much to both.
    if not offered:
        return 0
    room_of_first = int(intended.min()) - run.start
    room_of_last = run.start + run.duration - int(intended.max())
    most = run.duration // (2 * offered)
    # After a pause at its start the phase does not move later: a burst at its end has many messages
    # in half a mean interval, and a target that is too slow for it would have them in time.
    least = -most if room_of_first <= 2 * most else 0
    return max(min((room_of_last - room_of_first) // 2, most), least)


def masks_in_time(
    copies: Copies, arrived: NDArray[np.int64], begins: Begins, run: Expected
) -> Masks:
    """Return masks of the copies in time by what they are in time for: ``in_time`` for the phase,
    ``windows``, ``tenths``; and of those that would be, by the same names ``…_without_own``.

    :param arrived: ns, without the delays of delayed messages.
    """
    masks = _masks(copies, arrived - begins.shifted, begins.earlier, run)
    if begins.without_own is not None:
        part = of_copies(copies, run, copies["received"] - run.lateness(copies))
        elapsed = arrived - part - begins.without_own
        would_be = _masks(copies, elapsed, begins.earlier, run)
        masks |= {without_own(name): mask for name, mask in would_be.items()}
    return masks


def _masks(copies: Copies, elapsed: NDArray[np.int64], earlier: int, run: Expected) -> Masks:
    """:param elapsed: ns since the shifted start."""
    within = (elapsed >= -earlier) & (elapsed < run.duration - earlier)
    return {"in_time": within, **before_ends(copies, elapsed, run)}
