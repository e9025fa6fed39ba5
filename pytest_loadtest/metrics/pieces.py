"""The definitions for pieces of the measured phase, in plain numpy: each has what was intended in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.metrics.hdr import histogram
from pytest_loadtest.metrics.stretches import of_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.stretches import Histograms

Columns = Mapping[str, "NDArray[np.int64]"]
Rows = tuple[Columns, "NDArray[np.int64]"]
"""Rows with ``intended``, and a time of each."""


def kinds_of(acked: Columns, out: Columns, copies: Columns, run: Expected) -> dict[str, Rows]:
    """What latencies there are, each with the rows that have them. :param copies: the first of each delivery."""
    delay = out["sent"] - out["intended"]
    kinds = {"end_to_end": (copies, copies["received"] - copies["intended"]), "send_delay": (out, delay)}
    if run.publish_acks:
        kinds["publish"] = acked, acked["acked"] - acked["intended"]
    if run.spans:
        kinds["own_send_delay"] = out, np.maximum(delay - out["blocked"], 0)
    if run.spans and run.delays is not None:
        late = run.lateness(copies)
        for kind, side, values in (("late", late >= 0, late), ("early", late < 0, -late)):
            kinds[kind] = {"intended": copies["intended"][side]}, values[side]
    return kinds


def by_piece(kinds: Mapping[str, Rows], run: Expected) -> dict[str, Histograms]:
    """Of each kind of latencies a histogram for every piece that the phase is cut into.

    :param kinds: the rows that have them, and the latencies.
    """
    if run.cut is None:
        return {}
    found = {}
    for kind, (rows, values) in kinds.items():
        piece = run.cut.of(run.seconds(rows["intended"]))
        found[kind] = of_parts([histogram(values[piece == number]) for number in range(len(run.cut.starts))])
    return {kind: parts for kind, parts in found.items() if parts is not None}


def before_ends(copies: Columns, came: NDArray[np.int64], run: Expected) -> dict[str, NDArray[np.bool_]]:
    """Of each copy, whether it came before the end of its window, or tenth. :param came: when, less the median."""
    if run.asked is None:
        return {}
    piece = run.asked.of(run.seconds(copies["intended"]))
    return {name: came - run.start < spans.ends(run.asked)[piece] for name, spans in run.spans.items()}
