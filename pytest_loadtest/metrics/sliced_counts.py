"""Intervals, windows and tenths from counts by piece of the measured phase; the definitions and
Spark share this code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.metrics.time_slices import Histograms, Intervals, SlicedStats, Spans, of_parts
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.histogram import Histogram


ByPiece = Mapping[str, Histograms]
"""Latencies by kind; the pieces are those of ``Expected.cut``."""


def intervals(run: Expected, latencies: ByPiece) -> Sequence[Mapping[str, Histogram]]:
    """Return the latencies of every ten seconds; empty if the phase is one interval."""
    if run.cut is None or not run.intervals:
        return ()
    # Windows have more kinds than intervals, and share the same pieces.
    kinds = {
        kind: parts for kind, parts in latencies.items() if COUNTED_LATENCIES[kind].per_interval
    }
    begin, after = run.interval_spans.pieces(run.cut)
    return Intervals(begin=begin, after=after, latencies=kinds)


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
        under ``name``, and messages late by the generator under ``name_own_late``.
    """
    spans = run.spans.get(name)
    if spans is None or run.cut is None or run.slice_cut is None:
        return None
    begin, after = spans.pieces(run.cut)
    return SlicedStats(
        start=spans.start, end=spans.end, begin=begin, after=after, offered=_by_second(offered, spans, run.duration),
        received=spans.sums(counted["received"], run.slice_cut), in_time=spans.sums(counted[name], run.slice_cut),
        own_late=spans.sums(counted[f"{name}_own_late"], run.slice_cut), subscriptions=run.subscriptions, latencies=latencies,
    )  # fmt: skip


def _by_second(counts: NDArray[np.int64], spans: Spans, duration: int) -> NDArray[np.int64]:
    """Return the sums over the seconds of each; counts after the phase's end belong to its last
    second.
    """
    # With cumulative counts the sum of each slice is one subtraction, however many slices there
    # are.
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    ends = np.where(
        spans.end == duration, len(counts), np.minimum(spans.end // SECOND, len(counts))
    )
    total: NDArray[np.int64] = below[ends] - below[np.minimum(spans.start // SECOND, len(counts))]
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
        by_kind[kind] = of_parts(
            [histogram(values[piece == number]) for number in range(len(run.cut.starts))]
        )
    return {kind: parts for kind, parts in by_kind.items() if parts is not None}


def before_ends(
    copies: Columns, came: NDArray[np.int64], run: Expected
) -> dict[str, NDArray[np.bool_]]:
    """Return masks of the copies that came before the end of their window, or tenth.

    :param came: arrivals less the median, ns.
    """
    if run.slice_cut is None:
        return {}
    piece = run.slice_cut.of(run.seconds(copies["intended"]))
    return {
        name: came - run.start < spans.ends(run.slice_cut)[piece]
        for name, spans in run.spans.items()
    }


def late_by_generator(out: Columns, run: Expected) -> dict[str, NDArray[np.bool_]]:
    """Return masks of the messages that only their own send delay kept from being sent before the
    end of their window, or tenth.

    :param out: rows of sent messages.
    """
    sent, without = (
        before_ends(out, out["sent"], run),
        before_ends(out, out["intended"] + out["blocked"], run),
    )
    return {f"{name}_own_late": without[name] & ~early for name, early in sent.items()}
