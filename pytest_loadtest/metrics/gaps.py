"""The longest time without delivery of each subscription of each topic.

The definitions share this code with Spark's workers, which reduce receipts to cells, and with the
controller, which merges the cells and has the receipts of suspect ones looked at again.

A pause of some topics is a small share of all messages: percentiles of latency over a long run do
not show it, nor how long it was.

The *delivery gap* of a subscription of a topic is the longest time between two successive first
copies of the topic's measured messages that it received, wherever they were sent from; also the
time from the phase's start to the first of them, and the time from the last of them to the phase's
end. A gap that began in the phase and ended in the drain counts to its end. A subscription that
received nothing of a topic has no gap: it is one of the ``pairs`` of
:class:`~pytest_loadtest.metrics.silent.Silent`, and later than any bound.

**Cells.** The receipts of a large run do not fit into one process. They are reduced to *cells* of
time, each with its number of receipts and the first and the last of them. Cells show the gaps
between them, and those inside cells of two receipts. A longer one can only be inside a cell that is
as long itself from its first to its last receipt: a *suspect* cell, whose receipts are looked at
again. A lower bound of the pair's longest gap is known by then. It is the length of the *pieces*
into which suspect cells are cut: the first and the last receipt of each piece are enough to find
every gap that is not shorter than the bound (:func:`ends_of_pieces`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.catalogue import with_own, without_own
from pytest_loadtest.metrics.histogram import Histogram, histogram
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

    Column = NDArray[np.int64]

# Most cells, of one length, that all subscriptions of all topics have in the phase, unless a cell
# is longer than the phase. Spark merges one row for each that is not empty, and the controller
# holds them; each pair has one more cell for the drain.
CELLS: Final = 1 << 21


@record
class DeliveryGaps:
    """The longest gap of each subscription of each topic that received something, the earliest one
    of several that are equally long.

    int64 columns with one entry for each pair, in the order of subscription and topic.

    :param began: ns, the receipt before it, or the phase's start.
    :param ended: ns, the receipt after it, or the phase's end.
    """

    subscription: Column
    topic: Column
    began: Column
    ended: Column

    @property
    def lengths(self) -> Column:
        """Their lengths, ns."""
        return self.ended - self.began

    def histogram(self) -> Histogram | None:
        """Return the lengths of all pairs; None without any."""
        return histogram(self.lengths)


def cell_length(run: Expected) -> int:
    """Return the length of a cell, ns: 1 ms, or more if there are too many topics and
    subscriptions, or the phase is too long.
    """
    return max(MILLISECOND, -(-run.duration * run.topics * run.subscriptions // CELLS))


def cells_of_pair(run: Expected) -> int:
    """Return the number of cells that each subscription of each topic has: those of the phase, and
    one for the drain.
    """
    return -(-run.duration // cell_length(run)) + 1


def gap_times(copies: Mapping[str, NDArray[Any]], run: Expected) -> Column:
    """Return the times of receipt, ns; those before the start, as by an error of a clock, are at
    the start.
    """
    times: Column = np.maximum(copies["received"], run.start)
    return times


def gap_latencies(measured: DeliveryGaps, without: DeliveryGaps | None) -> dict[str, Histogram]:
    """Return the gaps as latencies by kind; none if no pair received anything.

    :param without: the gaps without the generator's own delays, of the same pairs; None: it had no
        delays that lengthen gaps.
    """
    gaps = measured.histogram()
    if gaps is None:
        return {}
    latencies = {"delivery_gap": gaps}
    gaps_without = without.histogram() if without else None
    if gaps_without is not None:
        latencies[with_own("delivery_gap")] = gaps
        latencies[without_own("delivery_gap")] = gaps_without
    return latencies


def gap_cells(times: Column, run: Expected) -> Column:
    """Return the cell of each receipt, numbered from the phase's start; the last one has the whole
    drain.

    :param times: ns.
    """
    return np.minimum((times - run.start) // cell_length(run), cells_of_pair(run) - 1)


def delivery_gaps(
    run: Expected, subscription: Column, topic: Column, times: Column
) -> DeliveryGaps:
    """Return the delivery gaps of a run: the definition.

    :param times: ns, of all first copies.
    """
    cells = {
        "subscription": subscription,
        "topic": topic,
        "first": times,
        "last": times,
        "n": np.ones(len(times), np.int64),
    }
    return longest_gaps(run, gaps_of_cells(run, cells))


def gaps_of_cells(run: Expected, cells: Mapping[str, Column]) -> Mapping[str, Column]:
    """Return the gaps that cells show, those at the phase's edges included: ``pair``, ``began``,
    ``ended``.

    :param cells: int64 ``subscription``, ``topic``, ``first``, ``last``, ``n``: the earliest and
        latest receipt of each cell, ns, and the number of its receipts. Cells of one pair do not
        overlap.
    """
    pair = _pairs(run, cells)
    order = np.lexsort((cells["first"], pair))
    pair = pair[order]
    first = cells["first"][order]
    last = cells["last"][order]

    # Pairs [0, 0, 2] begin at the cells [0, 2] and end at [1, 2].
    begins = np.flatnonzero(np.diff(pair, prepend=-1))
    ends = np.append(begins[1:], len(pair))[: len(begins)] - 1
    before = np.roll(last, 1)
    before[begins] = run.start
    after = np.maximum(last[ends], run.start + run.duration)
    two = cells["n"][order] == 2

    # the gap before each cell, that after the last cell of each pair, and those inside of cells
    return {
        "pair": np.concatenate([pair, pair[ends], pair[two]]),
        "began": np.concatenate([before, last[ends], first[two]]),
        "ended": np.concatenate([first, after, last[two]]),
    }


def longest_gaps(run: Expected, gaps: Mapping[str, Column]) -> DeliveryGaps:
    """Return the longest gap of each pair.

    :param gaps: int64 ``pair``, ``began``, ``ended``, see :func:`gaps_of_cells`.
    """
    pair, began, ended = longest_of_each(gaps["pair"], gaps["began"], gaps["ended"])
    subscription, topic = np.divmod(pair, run.topics)
    return DeliveryGaps(subscription=subscription, topic=topic, began=began, ended=ended)


def longest_of_each(key: Column, began: Column, ended: Column) -> tuple[Column, Column, Column]:
    """Return the keys, each once and in order, with the longest gap of each; the earliest one of
    several that are equally long.
    """
    order = np.lexsort((began, key))
    key = key[order]
    began = began[order]
    ended = ended[order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    if not len(begins):
        return key, began, ended

    # Gaps of 5, 9, 9 and 4 of the keys 0, 0, 0 and 1 have the longest ones 9, 9, 9 and 4: the rows
    # 1, 2 and 3 have these lengths, of which 1 and 3 are the first ones of their keys. A sort by
    # length as well takes half as long again.
    length = ended - began
    longest = np.maximum.reduceat(length, begins)
    longest_of_key = np.repeat(longest, np.diff(begins, append=len(key)))
    rows = np.flatnonzero(length == longest_of_key)
    rows = rows[np.diff(key[rows], prepend=-1) != 0]
    return key[rows], began[rows], ended[rows]


def suspect_cells(
    run: Expected, cells: Mapping[str, Column], known: DeliveryGaps
) -> tuple[NDArray[np.intp], Column]:
    """Return the rows of the cells in which a pair's longest gap may be, and the length of the
    pieces of each, ns.

    :param cells: see :func:`gaps_of_cells`, with ``cell``.
    :param known: the longest ones of the gaps that the cells show.
    """
    span = cells["last"] - cells["first"]
    # n receipts have n − 1 gaps between them, of which one is at least as long as their mean.
    mean = -(-span // np.maximum(cells["n"] - 1, 1))
    place = np.searchsorted(known.subscription * run.topics + known.topic, _pairs(run, cells))
    least = np.maximum(known.lengths, 1)
    np.maximum.at(least, place, mean)
    piece = least[place]
    suspects = np.flatnonzero((cells["n"] > 2) & (span >= piece))
    return suspects, piece[suspects]


def ends_of_pieces(cell: Column, times: Column, piece: Column) -> NDArray[np.bool_]:
    """Return a mask of the receipts that are the first or the last of a piece of their cell.

    The others can be left out without a change of any gap that is at least as long as a piece: both
    of its ends are kept, since they are in different pieces, and a time between two kept receipts
    with others between them is shorter than a piece. This holds as well where each of several
    processes has a part of the receipts.

    :param cell: and
    :param times: in order.
    :param piece: the length of each receipt's pieces, ns, at least 1.
    """
    number = times // piece
    edges = np.flatnonzero((np.diff(cell, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
    mask = np.zeros(len(cell), np.bool_)
    mask[edges] = True
    mask[np.append(edges[1:], len(cell))[: len(edges)] - 1] = True
    return mask


def _pairs(run: Expected, cells: Mapping[str, Column]) -> Column:
    return cells["subscription"] * run.topics + cells["topic"]
