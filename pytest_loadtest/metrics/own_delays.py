"""The part of each latency that the generator's own delays explain (decision 049).

The definitions and Spark's workers share this code.

Workers record the *pauses* of their loops: times in which they neither sent nor looked at their
connections. From these and from the delays of the message itself follows, for each message and
copy, the time that the generator may have added:

- *Before the target*: a sent row has the own send delay, which counts if it is longer than
  :data:`~pytest_loadtest.metrics.pauses.SHORTEST`. For copies, the producer's worker records its
  late sends in steps (:mod:`pytest_loadtest.engine.late_sends`), from which follows how late a
  message was sent at least.
- *After the target*: what came in a pause of the worker that took it may have been there since the
  pause began, or since it was sent. A copy with a known receive lag has a stamp of the kernel, and
  the lag shows by how much that can be late.
- *After a stall*, a pause longer than :data:`~pytest_loadtest.metrics.pauses.STALL`, a target that
  waits for its clients is late too, and a client works off what has gathered. For as long again as
  the stall took, a copy or an acknowledgement may be late by the length of the stall.

No part reaches back beyond the instant at which the message was due or sent, so a latency without
our delays is never below zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.gaps import gap_times
from pytest_loadtest.metrics.pauses import SHORTEST, STALL, Pauses
from pytest_loadtest.values.quantities import MICROSECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected

    Rows = Mapping[str, NDArray[Any]]

_UNKNOWN: Final = np.int64(-1)


def of_acknowledgements(acked: Rows, run: Expected) -> NDArray[np.int64]:
    """Return the part of each publish latency that the generator's own delays explain, ns.

    :param acked: rows of acknowledged messages.
    """
    own = of_sends(acked)
    unknown = np.full(len(own), _UNKNOWN)
    for mine, pauses in _workers(acked, "worker", run):
        waited = pauses.waited(acked["acked"][mine], acked["sent"][mine], unknown[mine])
        if pauses.exact:  # a short pause changes no stamp of the kernel
            waited[waited <= STALL] = 0
        own[mine] += waited
    return own


def of_sends(sent: Rows) -> NDArray[np.int64]:
    """Return the own send delay of each sent message, ns; 0 if it is short."""
    own = np.maximum(sent["sent"] - sent["intended"] - sent["blocked"], 0)
    return np.where(own > SHORTEST, own, 0)


def of_copies(
    copies: Rows, run: Expected, due: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the part of the time from ``due`` to each copy that the generator's own delays
    explain, ns.

    :param due: ns; None: the intended times, or those until which delayed messages were kept.
    """
    before, after = parts_of_copies(copies, run, due)
    return before + after


def parts_of_copies(
    copies: Rows, run: Expected, due: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the parts of that time before the target and after it, ns."""
    after = np.zeros(len(copies["received"]), np.int64)
    if not run.pauses:
        return after, after
    if due is None:
        due = copies["intended"]
        if run.delays is not None:
            # The target keeps a delayed message until it is due, whenever it was sent. One that
            # came earlier was not kept.
            late = run.lateness(copies)
            due = np.where(late < 0, due, copies["received"] - late)
    # A message that was sent late could not come earlier; one that came had been sent.
    sent = np.minimum(copies["intended"] + _before_target(copies, run), copies["received"])
    floor = np.maximum(due, sent)
    lag = copies["lag"].astype(np.int64)
    lag = np.where(lag < 0, _UNKNOWN, lag * MICROSECOND)
    for mine, pauses in _workers(copies, "worker", run):
        after[mine] = pauses.waited(copies["received"][mine], floor[mine], lag[mine])
    return floor - due, after


def gap_times_without_own(copies: Rows, run: Expected) -> NDArray[np.int64]:
    """Return the times of receipt for delivery gaps, each earlier by the part that the generator's
    own delays explain, ns.
    """
    return gap_times({"received": copies["received"] - of_copies(copies, run)}, run)


def _before_target(copies: Rows, run: Expected) -> NDArray[np.int64]:
    late = np.zeros(len(copies["intended"]), np.int64)
    if run.stream_workers is not None:
        senders = {"sender": run.stream_workers[copies["stream"]]}
        for mine, pauses in _workers(senders, "sender", run):
            late[mine] = pauses.until_sent(copies["intended"][mine])
    return late


def _workers(
    rows: Rows, name: str, run: Expected
) -> Iterator[tuple[NDArray[np.intp] | slice, Pauses]]:
    """Yield the places of the rows of each worker that paused or sent late, with its pauses.

    :param name: of the column with the worker's number.
    """
    if not run.pauses or not len(rows[name]):
        return
    first = int(rows[name].min())
    last = int(rows[name].max())
    for number in range(max(first, 0), last + 1):
        pauses = run.pauses[number]
        if not len(pauses.begin) and not len(pauses.due):
            continue
        if first == last:  # fast path: a file has the rows of one worker
            yield slice(None), pauses
        else:
            yield np.flatnonzero(rows[name] == number), pauses
