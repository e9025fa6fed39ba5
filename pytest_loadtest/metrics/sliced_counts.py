"""Intervals, windows and tenths from counts by piece of the measured phase: each is the sum of the
pieces into which the phase is cut at its edges (:mod:`pytest_loadtest.metrics.time_slices`).

The definitions (:mod:`pytest_loadtest.metrics.stats`) share this code with Spark's workers, which
mark what came before the end of its slice, and with the controller, which assembles their counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES, without_own
from pytest_loadtest.metrics.histogram import Histogram, histogram
from pytest_loadtest.metrics.time_slices import Histograms, Intervals, SlicedStats, Spans, of_parts
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected


ByPiece = Mapping[str, Histograms]
"""Latencies by kind; the pieces are those of ``Expected.cut``."""


def intervals(run: Expected, latencies: ByPiece) -> Sequence[Mapping[str, Histogram]]:
    """Return the latencies of every ten seconds; empty if the phase is one interval."""
    if run.cut is None or not run.intervals:
        return ()
    # Windows have more kinds than intervals, and share the same pieces.
    of_intervals = dict(latencies)
    for kind in latencies:
        if not COUNTED_LATENCIES[kind].per_interval:
            del of_intervals[kind]
    begin, after = run.interval_spans.pieces(run.cut)
    return Intervals(begin=begin, after=after, latencies=of_intervals)


def sliced_stats(
    run: Expected,
    name: str,
    latencies: ByPiece,
    offered: NDArray[np.int64],
    counted: Mapping[str, NDArray[np.int64]],
) -> SlicedStats | None:
    """Return the ``windows`` or ``tenths`` of a run; None if they are not measured, or the phase is
    too short.

    :param offered: int64, messages by the second of their intended time.
    :param counted: int64, by piece of ``run.slice_cut``: deliveries ``received``, those in time
        under ``name``, those that would be without the generator's own delays under
        ``name_without_own``, and messages late by the generator under ``name_own_late``.
    """
    spans = run.spans.get(name)
    if spans is None or run.cut is None or run.slice_cut is None:
        return None
    begin, after = spans.pieces(run.cut)
    return SlicedStats(
        start=spans.start,
        end=spans.end,
        begin=begin,
        after=after,
        offered=_by_second(offered, spans, run.duration),
        received=spans.sums(counted["received"], run.slice_cut),
        in_time=spans.sums(counted[name], run.slice_cut),
        in_time_without_own=spans.sums(counted[without_own(name)], run.slice_cut),
        own_late=spans.sums(counted[f"{name}_own_late"], run.slice_cut),
        fan_out=run.fan_out,
        selective=run.selective,
        latencies=latencies,
    )


def _by_second(counts: NDArray[np.int64], spans: Spans, duration: int) -> NDArray[np.int64]:
    """Return the sums over the seconds of each; counts after the phase's end belong to its last
    second.
    """
    # Cumulative counts make the sum of each slice one subtraction, however many there are: the
    # counts [5, 3, 4] are [0, 5, 8, 12] below each second, so seconds 1 and 2 have 12 - 5.
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    starts = np.minimum(spans.start // SECOND, len(counts))
    ends = np.minimum(spans.end // SECOND, len(counts))
    ends[spans.end == duration] = len(counts)
    total: NDArray[np.int64] = below[ends] - below[starts]
    return total


Columns = Mapping[str, "NDArray[np.int64]"]
Rows = tuple[Columns, "NDArray[np.int64]"]
"""Rows with ``intended``, and a latency of each."""


def by_piece(kinds: Mapping[str, Rows], run: Expected) -> dict[str, Histograms]:
    """Return histograms for every piece that the phase is cut into, by kind.

    :param kinds: the rows that have these latencies, and the latencies; kinds that are not counted
        by piece are left out.
    """
    by_kind = {}
    for kind, (rows, values) in kinds.items():
        if run.cut is None or not run.slices(COUNTED_LATENCIES[kind]):
            continue
        # By the intended time, as everywhere: a stall belongs to the slice in which it began.
        piece = run.cut.of(run.seconds(rows["intended"]))
        pieces = range(len(run.cut.starts))
        parts = of_parts([histogram(values[piece == number]) for number in pieces])
        if parts is not None:
            by_kind[kind] = parts
    return by_kind


def before_ends(
    copies: Columns, elapsed: NDArray[np.int64], run: Expected
) -> dict[str, NDArray[np.bool_]]:
    """Return masks of the copies that came before the end of their window, or tenth.

    :param elapsed: ns since the phase's start, at which they arrived, less the median.
    """
    if run.slice_cut is None:
        return {}
    piece = run.slice_cut.of(run.seconds(copies["intended"]))
    masks = {}
    for name, spans in run.spans.items():
        ends = spans.ends(run.slice_cut)
        masks[name] = elapsed < ends[piece]
    return masks


def late_by_generator(out: Columns, run: Expected) -> dict[str, NDArray[np.bool_]]:
    """Return masks of the messages that only their own send delay kept from being sent before the
    end of their window, or tenth.

    :param out: rows of sent messages.
    """
    was_in_time = before_ends(out, out["sent"] - run.start, run)
    would_be_sent = out["intended"] + out["blocked"] - run.start
    would_be_in_time = before_ends(out, would_be_sent, run)
    return {f"{name}_own_late": would_be_in_time[name] & ~was_in_time[name] for name in was_in_time}


def sent_late_by_us(out: Columns, run: Expected) -> NDArray[np.bool_]:
    """Return a mask of the messages that only the generator's own send delay kept from being sent
    within the phase.

    :param out: rows of sent messages.
    """
    end = run.start + run.duration
    would_be_in_time = out["intended"] + out["blocked"] < end
    return (out["sent"] >= end) & would_be_in_time
