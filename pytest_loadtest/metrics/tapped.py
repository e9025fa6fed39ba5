"""The parts of the end-to-end latency through a service, by what a tap on its input received.

The definitions (:mod:`pytest_loadtest.metrics.stats`) and Spark's workers share this code. The
values are those of first copies of messages that the tap received too, so that means of the parts
add up to that of the whole:

- ``to_tap``: received by the tap − intended; a time after the arrival of the copy counts as that.
- ``after_tap``: received − received by the tap.
- ``past_tap``: received − intended.
- ``own_past_tap``: the part of it that the generator's own delays explain, if they are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.metrics.own_delays import of_copies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

    Rows = Mapping[str, NDArray[Any]]


def tapped_latencies(first: Rows, taps: Rows, run: Expected) -> dict[str, NDArray[np.int64]]:
    """Return the values of each kind.

    :param first: first copies, with the ``number`` of each one's delivery.
    :param taps: ``received``, and the ``number`` of each delivery that is due for the message.
    """
    # The earliest row of each number comes first. The number behind the last is that of no copy.
    order = np.lexsort((taps["received"], taps["number"]))
    number = np.append(taps["number"][order], -1)
    at = np.searchsorted(number[:-1], first["number"])
    seen = number[at] == first["number"]
    copies = {name: column[seen] for name, column in first.items()}
    # No output precedes its input: what the tap received later had waited for the tap.
    tapped = np.minimum(taps["received"][order][at[seen]], copies["received"])
    kinds = {
        "to_tap": tapped - copies["intended"],
        "after_tap": copies["received"] - tapped,
        "past_tap": copies["received"] - copies["intended"],
    }
    if run.pauses:
        kinds["own_past_tap"] = of_copies(copies, run)
    return kinds


def tapped_rows(
    first: Rows,
    taps: Rows,
    numbers: tuple[NDArray[np.int64], NDArray[np.int64]],
    run: Expected,
) -> dict[str, tuple[Rows, NDArray[np.int64]]]:
    """Return the values of each kind, without the rows that have them.

    :param numbers: those of the messages of both, from 0 over all streams.
    """
    offered = int((run.end - run.first).sum())
    of_first, of_taps = numbers
    starts = np.arange(run.subscriptions) * offered
    every = {
        "number": (starts[:, None] + of_taps).ravel(),
        "received": np.tile(taps["received"], run.subscriptions),
    }
    delivery = first["subscription"] * offered + of_first
    latencies = tapped_latencies({**first, "number": delivery}, every, run)
    return {kind: ({}, values) for kind, values in latencies.items()}
