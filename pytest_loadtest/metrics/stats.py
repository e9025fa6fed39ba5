"""The definitions of all measurements, in plain numpy over all rows at once.

Spark's counting must agree with them to the bit.

**Rows.** A row is *measured* if its sequence lies in its stream's ``[first, end)``; other rows are
ignored. A *delivery* is one message to one subscription of its stream's topic. Each measured
received row is one of

- *misplaced*: the subscription does not belong to the message's topic. It counts as foreign, as do
  messages of other runs.
- *corrupt*: it has ``Flag.CORRUPT``. It counts as corrupt, as do damaged heads, which the manifests
  count, and as nothing else.
- a *copy* of its delivery. Without subscriptions there are no deliveries, and every received row is
  misplaced.

**Counts.** A delivery is *received* if it has a copy, whether or not its message was acknowledged;
further copies are *duplicates*, those of messages that the client sent again after a lost
connection (``resends`` above 0) also *duplicates of resent*. A delivery is *lost* if its message
was acknowledged and it has no copy, and *out of order* if all its copies have ``Flag.LATE``. It is
*in time* if a copy arrived within the measured phase, shifted as a whole by the median end-to-end
latency (decision 004). The delay of a delayed message is first subtracted from its arrival, and the
phase is shifted by the median lateness instead. A message is *out of due order* if the first copy
of a delivery of it has ``Flag.UNDUE``.

**Latencies** belong to *first copies* (decision 024): for each delivery the copy that was received
first, wherever it was recorded; among copies of one instant, one without ``Flag.UNDUE``, and of
these the one that was taken first, then that of the first worker. The kinds are, with the rows that
have one:

- ``publish``: acknowledged − intended, of acknowledged messages, if acknowledgement is applicable.
- ``end_to_end``: received − intended, of first copies. ``later_copies``: the same of all other
  copies.
- ``send_delay``: sent − intended, of sent messages. ``own_send_delay``: the same less the time
  blocked by the target's full window, at least 0.
- ``receive_lag``: taken by the client − received, of first copies for which the kernel stamped the
  receipt (``lag`` not below 0); whole µs.
- ``lateness``: received − due, of first copies of delayed messages; below zero if early.
  ``earliness``: due − received, 0 if not early.
- ``completion``: last first copy received − intended, and ``spread``: last first copy − earliest
  first copy, of each broadcast message that every subscription received.
- ``delivery_gap``: of each subscription of each topic, see :mod:`pytest_loadtest.metrics.gaps`.
- ``connect``, ``subscribe`` and ``reconnect``: recorded by the workers, not counted from rows.

**Without the generator's own delays.** If the pauses of all workers are known,
:mod:`pytest_loadtest.metrics.own_delays` defines for each message and first copy the part that our
own delays explain. The values with such a part are counted again: ``…_with_own`` as they are,
``…_without_own`` less that part (``publish``, ``send_delay``, ``end_to_end``, ``lateness`` of what
was not early). In ``completion`` and ``spread`` each copy comes earlier by its part; what is ahead
in ``spread`` is the earliest copy as it came. ``delivery_gap`` is that of all first copies, and
again with each copy earlier by its part; only if some worker stalled.

**Parts.** A message's topic and size bucket are the same in its sent row and in all its copies;
counts and latencies are broken down by them. *Windows* and *tenths* have the messages intended in
them, with their latencies and deliveries; such a delivery is in time if a copy arrived before the
end of its window, shifted by the median of the whole run (decision 021). A *stage* is measured like
a run: the same samples, its own start, duration, rate, ``[first, end)`` of each stream, and its
seconds of the workers' evidence. Foreign messages and damaged heads are not recorded by time, so a
stage's foreign messages are None, and its corrupt ones have a good head.

A message is *dropped* if it has one of ``NEVER_SENT``; those with ``Status.BLOCKED`` were dropped
before full windows, see
:mod:`pytest_loadtest.metrics.full_windows`.

A message is *late by the generator* if it was sent after the phase (or after its window, or tenth),
but would have been sent before without its own send delay.

The windows in which the offered load is compared with the plan are defined in
:mod:`pytest_loadtest.metrics.offering`.

Series by second are defined in :mod:`pytest_loadtest.metrics.series`, silent subscriptions and
streams in
:mod:`pytest_loadtest.metrics.silent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.samples import NEVER_SENT, Flag, Status
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES, with_own, without_own
from pytest_loadtest.metrics.expected import with_latencies
from pytest_loadtest.metrics.full_windows import FullWindows, full_windows
from pytest_loadtest.metrics.gaps import delivery_gaps, gap_latencies, gap_times
from pytest_loadtest.metrics.histogram import exact_total, histogram
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Lost, Measurements
from pytest_loadtest.metrics.offering import count_offers, offered_windows
from pytest_loadtest.metrics.own_delays import (
    gap_times_without_own,
    of_acknowledgements,
    of_copies,
    of_sends,
)
from pytest_loadtest.metrics.series import by_second, by_second_and_bucket
from pytest_loadtest.metrics.signed import with_lateness
from pytest_loadtest.metrics.silent import Silent, heard_of, marked, silence
from pytest_loadtest.metrics.sliced_counts import (
    before_ends,
    by_piece,
    intervals,
    late_by_generator,
    sliced_stats,
)
from pytest_loadtest.values.quantities import MICROSECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected, Recorded
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.sliced_counts import Rows

# Ranges of lost messages that are listed; Counts.lost has the exact number.
LOST_RANGES: Final = 10_000

Columns = Mapping[str, "NDArray[np.int64]"]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Columns with one entry per planned delivery, at
    ``subscription × offered + number of the message``.

    :param copies: their number.
    :param punctual: copies without ``Flag.LATE``.
    :param in_time: copies within the shifted phase.
    :param resent: its message was sent again.
    :param before_end: copies before the end of the window, or tenth, by its name.
    """

    copies: NDArray[np.int64]
    punctual: NDArray[np.int64]
    in_time: NDArray[np.int64]
    lost: NDArray[np.bool_]
    resent: NDArray[np.bool_]
    before_end: Mapping[str, NDArray[np.int64]]


def measure(sent: Columns, received: Columns, run: Expected, recorded: Recorded) -> Measurements:
    """Measure a run in which every planned message has exactly one sent row.

    :param sent: the columns of ``samples.SENT``.
    :param received: the columns of ``samples.RECEIVED``, and ``host``, the number of the consumer's
        host, if the run has ``stream_hosts``. Both have ``worker``, the number of the worker that
        recorded the row, if the run has ``workers``.
    """
    sent, received = _measured(sent, run), _measured(received, run)
    # A message of another topic, or at a subscription that the run does not have, is foreign even
    # if it is damaged.
    misplaced = (received["topic"] != run.stream_topics[received["stream"]]) | ~_within(
        received["subscription"], run.subscriptions
    )
    damaged = ~misplaced & (received["flags"] & Flag.CORRUPT != 0)
    copies = _take(received, ~misplaced & ~damaged)
    is_first = _is_first(copies, run)
    first, later = _take(copies, is_first), _take(copies, ~is_first)
    acked, out = _take(sent, sent["status"] == Status.ACKED), _take(sent, sent["sent"] > 0)
    kinds = _latencies(acked, out, (first, later), run)
    # The median is that of first copies, but any copy can make a delivery in time (decision 004).
    deliveries = _deliveries(sent, acked, copies, run, median_shift(_histograms(kinds)))
    kinds |= _completions(first, deliveries, run) if run.broadcasts else {}
    kinds |= _without_own(kinds, run)
    foreign = None if recorded.foreign is None else recorded.foreign + int(misplaced.sum())
    corrupt = recorded.corrupt + int(damaged.sum())
    sliced = by_piece(kinds, run)
    series, counted = (
        by_second(sent, out, acked, (copies, first), run),
        _counts_by_piece(sent, out, deliveries, run),
    )
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        counts=replace(
            _counts(sent, deliveries, run, foreign, corrupt),
            out_of_due_order=_out_of_due_order(first, run),
            corrupt_heads=recorded.corrupt,
        ),
        bytes_sent=int(sent["size"][~_is_dropped(sent)].sum()),
        latencies={**_histograms(kinds), **_gaps(first, run), **recorded.latencies},
        blocked=exact_total(sent["blocked"]),
        own_late=int(sent_late_by_us(out, run).sum()),
        full_windows=_full_windows(_take(sent, sent["status"] == Status.BLOCKED), run),
        series=series,
        intervals=intervals(run, sliced),
        over_time=by_second_and_bucket(first, run),
        windows=sliced_stats(run, "windows", sliced, series.offered, counted),
        tenths=sliced_stats(run, "tenths", sliced, series.offered, counted),
        topics=_breakdown("topic", run.topic_names(), (sent, acked, first), kinds, deliveries, run),
        buckets=_breakdown("bucket", run.buckets, (sent, acked, first), kinds, deliveries, run),
        workers=with_latencies(recorded.workers, _by_worker(kinds, run)),
        lost=_lost(deliveries.lost, run),
        offering=offered_windows(
            run.planned, run.planned_windows, *count_offers(sent, run.start, run.planned_windows)
        ),
        broadcasts=run.broadcasts,
        opening=recorded.opening,
        clocks=recorded.clocks,
        within_hosts=run.count_within_hosts(lambda: int(run.within_host(first).sum())),
        silent=_silent(acked, copies, run),
        pauses_known=bool(run.pauses),
    )


def _latencies(
    acked: Columns, out: Columns, copies: tuple[Columns, Columns], run: Expected
) -> dict[str, Rows]:
    """Return each kind of latencies with the rows that have it.

    :param copies: the first of each delivery, and all others.
    """
    first, later = copies
    delay = out["sent"] - out["intended"]
    kinds = {
        "end_to_end": (first, first["received"] - first["intended"]),
        "later_copies": (later, later["received"] - later["intended"]),
        "send_delay": (out, delay),
        "own_send_delay": (out, np.maximum(delay - out["blocked"], 0)),
    }
    known = first["lag"] >= 0
    kinds["receive_lag"] = _take(first, known), first["lag"][known] * MICROSECOND
    if run.publish_acks:
        kinds["publish"] = acked, acked["acked"] - acked["intended"]
    if run.delays is not None:
        late = run.lateness(first)
        kinds["lateness"] = _take(first, late >= 0), late[late >= 0]
        kinds["earliness"] = _take(first, late < 0), -late[late < 0]
    return kinds


def _histograms(kinds: Mapping[str, Rows]) -> dict[str, Histogram | Lateness]:
    return with_lateness(
        {
            kind: counted
            for kind, (_, values) in kinds.items()
            if (counted := histogram(values)) is not None
        }
    )


def _by_worker(kinds: Mapping[str, Rows], run: Expected) -> dict[str, dict[str, Histogram]]:
    """Return the latencies of each worker."""
    own = {kind: rows for kind, rows in kinds.items() if COUNTED_LATENCIES[kind].per_worker}
    return {
        name: {
            kind: counted
            for kind, (rows, values) in own.items()
            if (counted := histogram(values[rows["worker"] == number])) is not None
        }
        for number, name in enumerate(run.workers)
    }


def _gaps(first: Columns, run: Expected) -> dict[str, Histogram]:
    measured = delivery_gaps(run, first["subscription"], first["topic"], gap_times(first, run))
    if not run.stalled:
        return gap_latencies(measured, None)
    earlier = gap_times_without_own(first, run)
    return gap_latencies(
        measured, delivery_gaps(run, first["subscription"], first["topic"], earlier)
    )


def _without_own(kinds: Mapping[str, Rows], run: Expected) -> dict[str, Rows]:
    """Return the latencies with a part of the generator's own delays, and the same without it."""
    if not run.pauses:
        return {}
    apart: dict[str, Rows] = {}
    for kind, (rows, values) in kinds.items():
        if (part := _own_part(kind, rows, values, run)) is not None and part.any():
            affected = _take(rows, part > 0)
            apart[with_own(kind)] = affected, values[part > 0]
            apart[without_own(kind)] = affected, (values - part)[part > 0]
    return apart


def _own_part(
    kind: str, rows: Columns, values: NDArray[np.int64], run: Expected
) -> NDArray[np.int64] | None:
    """Return the part of each value that our own delays explain; None for kinds that they do not
    lengthen.
    """
    match kind:
        case "publish":
            return of_acknowledgements(rows, run)
        case "send_delay":
            return of_sends(rows)
        case "end_to_end":
            return of_copies(rows, run)
        case "lateness":
            return of_copies(rows, run, rows["received"] - values)
        case "completion" | "spread":
            # The latest copy would have come earlier; see _completions.
            earlier: NDArray[np.int64] = np.minimum(rows["last"] - rows["last_without_own"], values)
            return earlier
    return None


def _take(rows: Columns, pick: NDArray[np.bool_]) -> Columns:
    return {name: column[pick] for name, column in rows.items()}


def _within(values: NDArray[np.int64], end: int) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (values >= 0) & (values < end)
    return inside


def _measured(rows: Columns, run: Expected) -> Columns:
    rows = {name: column.astype(np.int64) for name, column in rows.items()}
    rows = _take(rows, _within(rows["stream"], len(run.first)))
    return _take(
        rows, (rows["seq"] >= run.first[rows["stream"]]) & (rows["seq"] < run.end[rows["stream"]])
    )


def _numbers(rows: Columns, run: Expected) -> NDArray[np.int64]:
    """Return the number of each row's message, from 0 over all streams."""
    before: NDArray[np.int64] = np.cumsum(run.end - run.first) - (run.end - run.first)
    numbers: NDArray[np.int64] = before[rows["stream"]] + rows["seq"] - run.first[rows["stream"]]
    return numbers


def _is_first(copies: Columns, run: Expected) -> NDArray[np.bool_]:
    """Return a mask of the copies that are the first of their delivery."""
    delivery = copies["subscription"] * int((run.end - run.first).sum()) + _numbers(copies, run)
    # Sorted by delivery, then by arrival, then with copies out of due order last, then with those
    # between hosts last, then by receive lag, then by worker: the first row of each delivery is its
    # first copy.
    between = () if run.stream_hosts is None else (~run.within_host(copies),)
    worker = (copies["worker"],) if run.workers else ()
    order = np.lexsort(
        (
            *worker,
            copies["lag"],
            *between,
            copies["flags"] & Flag.UNDUE,
            copies["received"],
            delivery,
        )
    )
    mask = np.zeros(len(delivery), np.bool_)
    mask[order[np.diff(delivery[order], prepend=-1) != 0]] = True
    return mask


def median_shift(latencies: Mapping[str, Histogram | Lateness]) -> int:
    """Return the median by which the measured phase is shifted to decide which copies are in time,
    ns.
    """
    middle = latencies.get("lateness") or latencies.get("end_to_end")
    return middle.percentile(50) if middle else 0


def _out_of_due_order(first: Columns, run: Expected) -> int | None:
    return None if run.delays is None else int((first["flags"] & Flag.UNDUE != 0).sum())


def _deliveries(
    sent: Columns, acked: Columns, copies: Columns, run: Expected, shift: int
) -> Deliveries:
    offered = int((run.end - run.first).sum())

    def each_of(rows: Columns) -> NDArray[np.bool_]:
        """Return a mask of the deliveries of these messages."""
        mask = np.zeros(offered, np.bool_)
        mask[_numbers(rows, run)] = True
        return np.tile(mask, run.subscriptions)

    place = copies["subscription"] * offered + _numbers(copies, run)
    size = run.subscriptions * offered
    # The delay of a delayed message is subtracted: intended + (received − due).
    begin, came = run.start + shift, copies["intended"] + run.lateness(copies)
    in_time = (came >= begin) & (came < begin + run.duration)
    count = np.bincount(place, minlength=size)
    return Deliveries(
        copies=count,
        punctual=np.bincount(place[copies["flags"] & Flag.LATE == 0], minlength=size),
        in_time=np.bincount(place[in_time], minlength=size),
        lost=each_of(acked) & (count == 0),
        resent=each_of(_take(sent, sent["resends"] > 0)),
        before_end={
            name: np.bincount(place[early], minlength=size)
            for name, early in before_ends(copies, came - shift, run).items()
        },
    )


def _counts_by_piece(
    sent: Columns, out: Columns, deliveries: Deliveries, run: Expected
) -> dict[str, NDArray[np.int64]]:
    """Return, by piece, deliveries received, those in time of their window or tenth, and messages
    late by the generator.

    :param out: rows of sent messages.
    """
    if run.slice_cut is None:
        return {}
    piece_of = np.zeros(int((run.end - run.first).sum()), np.int64)
    piece_of[_numbers(sent, run)] = run.slice_cut.of(run.seconds(sent["intended"]))
    pieces = np.tile(piece_of, run.subscriptions)
    copies = {"received": deliveries.copies, **deliveries.before_end}
    counted = {name: pieces[count > 0] for name, count in copies.items()}
    counted |= {
        name: run.slice_cut.of(run.seconds(out["intended"][late]))
        for name, late in late_by_generator(out, run).items()
    }
    return {
        name: np.bincount(piece, minlength=len(run.slice_cut.starts))
        for name, piece in counted.items()
    }


def sent_late_by_us(out: Mapping[str, NDArray[Any]], run: Expected) -> NDArray[np.bool_]:
    """Return a mask of the messages that only the generator's own send delay kept from being sent
    within the phase.

    :param out: rows of sent messages.
    """
    late: NDArray[np.bool_] = (out["sent"] >= run.start + run.duration) & (
        out["intended"] + out["blocked"] < run.start + run.duration
    )
    return late


def _completions(copies: Columns, deliveries: Deliveries, run: Expected) -> dict[str, Rows]:
    """Return completion and spread of the messages that every subscription received.

    :param copies: the first of each delivery.
    """
    offered, number = int((run.end - run.first).sum()), _numbers(copies, run)
    int64 = np.iinfo(np.int64)
    first, last, due = (
        np.full(offered, int64.max),
        np.full(offered, int64.min),
        np.zeros(offered, np.int64),
    )
    np.minimum.at(first, number, copies["received"])
    np.maximum.at(last, number, copies["received"])
    due[number] = copies["intended"]
    # A message that some subscription did not receive is not complete: it ranks above any bound,
    # see NeverCame.
    all_got = (deliveries.copies.reshape(run.subscriptions, offered) > 0).all(axis=0)
    earlier = np.full(offered, int64.min)
    np.maximum.at(earlier, number, copies["received"] - of_copies(copies, run))
    rows = {"intended": due[all_got], "last": last[all_got], "last_without_own": earlier[all_got]}
    return {"completion": (rows, (last - due)[all_got]), "spread": (rows, (last - first)[all_got])}


def _counts(
    sent: Columns, deliveries: Deliveries, run: Expected, foreign: int | None, corrupt: int
) -> Counts:
    status = {member: int((sent["status"] == member).sum()) for member in Status}
    received = deliveries.copies > 0
    duplicates = deliveries.copies - received
    return Counts(
        offered=len(sent["seq"]),
        sent=status[Status.ACKED] + status[Status.FAILED] + status[Status.UNKNOWN],
        sent_in_time=int(((sent["sent"] > 0) & (sent["sent"] < run.start + run.duration)).sum()),
        acked=status[Status.ACKED],
        failed=status[Status.FAILED],
        dropped=sum(status[dropped] for dropped in NEVER_SENT),
        unknown=status[Status.UNKNOWN],
        received=int(received.sum()),
        received_in_time=int((deliveries.in_time > 0).sum()),
        lost=int(deliveries.lost.sum()),
        duplicates=int(duplicates.sum()),
        out_of_order=int((received & (deliveries.punctual == 0)).sum()) if run.ordered else None,
        foreign=foreign,
        corrupt=corrupt,
        resent=int((sent["resends"] > 0).sum()),
        duplicates_of_resent=int(duplicates[deliveries.resent].sum()),
    )


def _is_dropped(sent: Columns) -> NDArray[np.bool_]:
    return np.isin(sent["status"], NEVER_SENT)


def _full_windows(blocked: Columns, run: Expected) -> FullWindows | None:
    """:param blocked: rows of the messages that were dropped before full windows."""
    topics, place, dropped = np.unique(blocked["topic"], return_inverse=True, return_counts=True)
    int64 = np.iinfo(np.int64)
    first = np.full(len(topics), int64.max)
    last = np.full(len(topics), int64.min)
    np.minimum.at(first, place, blocked["intended"])
    np.maximum.at(last, place, blocked["intended"] + blocked["blocked"])
    return full_windows(run, exact_total(blocked["blocked"]), topics, dropped, first, last)


def _silent(acked: Columns, copies: Columns, run: Expected) -> Silent | None:
    heard = heard_of(run, copies["subscription"], run.stream_topics[copies["stream"]])
    return silence(run, heard, marked(run, (copies if run.subscriptions else acked)["stream"]))


def _breakdown(
    key: str,
    names: tuple[str, ...],
    rows: tuple[Columns, Columns, Columns],
    kinds: Mapping[str, Rows],
    deliveries: Deliveries,
    run: Expected,
) -> tuple[Breakdown, ...]:
    """Return the parts of a run.

    :param key: ``topic`` or ``bucket``.
    :param rows: sent, acknowledged, and first copies.
    """
    offered, sent = int((run.end - run.first).sum()), rows[0]
    # A lost delivery has no received row, so keys are those of the sent rows.
    key_of = np.zeros(offered, np.int64)
    key_of[_numbers(sent, run)] = sent[key]
    keys = np.tile(key_of, run.subscriptions)
    lost, in_time = keys[deliveries.lost], keys[deliveries.in_time > 0]
    parts = []
    for i, name in enumerate(names):
        part_sent, part_acked, part_first = (_take(some, some[key] == i) for some in rows)
        out = ~_is_dropped(part_sent)
        parts.append(
            Breakdown(
                name=name,
                offered=len(part_sent["seq"]),
                sent=int(out.sum()),
                acked=len(part_acked["seq"]),
                received=len(part_first["seq"]),
                received_in_time=int((in_time == i).sum()),
                lost=int((lost == i).sum()),
                bytes_sent=int(part_sent["size"][out].sum()),
                latencies={
                    kind: counted
                    for kind, (timed, values) in kinds.items()
                    if getattr(COUNTED_LATENCIES[kind], f"per_{key}")
                    and (counted := histogram(values[timed[key] == i])) is not None
                },
            )
        )
    return tuple(parts)


def _lost(lost: NDArray[np.bool_], run: Expected) -> tuple[Lost, ...]:
    """Return the first :data:`LOST_RANGES` ranges of lost messages, by topic, subscription, stream
    and sequence.
    """
    ranges = []
    after = np.cumsum(run.end - run.first)
    by_subscription = lost.reshape(run.subscriptions, int((run.end - run.first).sum()))
    for stream in range(len(run.first)):
        start, stop = int(after[stream] - run.end[stream] + run.first[stream]), int(after[stream])
        for subscription in range(run.subscriptions):
            # 1 where a range of lost messages begins, −1 behind its end.
            edges = np.diff(
                np.concatenate(
                    [[0], by_subscription[subscription, start:stop].astype(np.int8), [0]]
                )
            )
            firsts, lasts = (
                np.flatnonzero(edges == 1) + run.first[stream],
                np.flatnonzero(edges == -1) + run.first[stream] - 1,
            )
            topic = int(run.stream_topics[stream])
            ranges += [
                Lost(
                    topic=topic,
                    subscription=subscription,
                    stream=stream,
                    first=int(first),
                    last=int(last),
                )
                for first, last in zip(firsts, lasts, strict=True)
            ]
    return tuple(
        sorted(ranges, key=lambda lost: (lost.topic, lost.subscription, lost.stream, lost.first))[
            :LOST_RANGES
        ]
    )
