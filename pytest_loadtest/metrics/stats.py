"""The definitions of all measurements, in plain numpy over all rows at once.

Spark's counting must agree with them to the bit: tests compare it with :func:`measure`. Spark's
workers and the controller, which assembles their counts, share the definitions of single rows.

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
latency, and so that its first and its last message have the same room (decision 004). The delay of
a delayed message is first subtracted from its arrival, and the phase is shifted by the median
lateness instead. A message is *out of due order* if the first copy of a delivery of it has
``Flag.UNDUE``.

Through a service with ``outputs`` N above 1, N deliveries of a message are due to each
subscription. They are not told apart: of c copies min(N, c) are received, max(0, c − N) duplicates,
and max(0, N − c) lost; of those in time, or without ``Flag.LATE``, at most N count. If the service
chooses, *lost* is None, and deliveries of acknowledged messages with a copy are *answered*.

**Latencies** belong to *first copies* (decision 024): for each delivery the copy that was received
first, wherever it was recorded (of N deliveries the first N copies); among copies of one instant,
one without ``Flag.UNDUE``, and of these the one that was taken first, then that of the first
worker. The kinds are, with the rows that have one:

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
- ``to_tap``, ``after_tap`` and ``past_tap``: see :mod:`pytest_loadtest.metrics.tapped`.
- ``delivery_gap``: of each subscription of each topic, see :mod:`pytest_loadtest.metrics.gaps`.
- ``connect``, ``subscribe`` and ``reconnect``: recorded by the workers, not counted from rows.

**Without the generator's own delays.** If the pauses of all workers are known,
:mod:`pytest_loadtest.metrics.own_delays` defines for each message and first copy the part that our
own delays explain. The values with such a part are counted again: ``…_with_own`` as they are,
``…_without_own`` less that part (``publish``, ``send_delay``, ``end_to_end``, ``lateness`` of what
was not early). In ``completion`` each copy comes earlier by its part, in ``spread`` by the part
after the target; what is ahead there is the earliest copy as it came. ``delivery_gap`` is of all
first copies, and again with each copy earlier by its part, if some worker stalled or it is bounded.

**Parts.** A message's topic and size bucket are the same in its sent row and in all its copies;
counts and latencies are broken down by them. *Windows* and *tenths* have the messages intended in
them, with their latencies and deliveries; such a delivery is in time if a copy arrived before the
end of its window, shifted by the median of the whole run (decision 021). A *stage* is measured like
a run: the same samples, its own start, duration, rate, ``[first, end)`` of each stream, and its
seconds of the workers' evidence. Foreign messages and damaged heads are not recorded by time, so a
stage's foreign messages are None, and its corrupt ones have a good head.

A message is *dropped* if it has one of ``NEVER_SENT``; those with ``Status.BLOCKED`` were dropped
before full windows, see :mod:`pytest_loadtest.metrics.full_windows`.

A message is *late by the generator* if it was sent after the phase (or after its window, or tenth),
but would have been sent before without its own send delay.

The windows in which the offered load is compared with the plan are defined in
:mod:`pytest_loadtest.metrics.offering`.

Series by second are defined in :mod:`pytest_loadtest.metrics.series`, silent subscriptions and
streams in :mod:`pytest_loadtest.metrics.silent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.samples import NEVER_SENT, Flag, Status
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES, with_own, without_own
from pytest_loadtest.metrics.expected import with_latencies
from pytest_loadtest.metrics.full_windows import full_windows_of_rows
from pytest_loadtest.metrics.gaps import delivery_gaps, gap_latencies, gap_times
from pytest_loadtest.metrics.histogram import exact_total, histogram
from pytest_loadtest.metrics.in_time import begins_in_time, masks_in_time
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Lost, Measurements
from pytest_loadtest.metrics.offering import count_offers, offered_windows
from pytest_loadtest.metrics.own_delays import (
    gap_times_without_own,
    of_acknowledgements,
    of_copies,
    of_sends,
    parts_of_copies,
)
from pytest_loadtest.metrics.series import by_second, by_second_and_bucket, ranks_of_equal
from pytest_loadtest.metrics.signed import with_lateness
from pytest_loadtest.metrics.silent import answered_of, heard_of, marked, silence, unheard_pairs
from pytest_loadtest.metrics.sliced_counts import (
    by_piece,
    intervals,
    late_by_generator,
    sent_late_by_us,
    sliced_stats,
)
from pytest_loadtest.metrics.tapped import tapped_rows
from pytest_loadtest.values.quantities import MICROSECOND
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected, Recorded
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.sliced_counts import Rows

# Ranges of lost messages that are listed; Counts.lost has the exact number.
LOST_RANGES: Final = 10_000

Columns = Mapping[str, "NDArray[np.int64]"]


@immutable
class Deliveries:
    """Columns with one entry per planned delivery, at
    ``subscription × offered + number of the message``.

    With several outputs such an entry has all of one message to one subscription.

    :param copies: their number.
    :param received: the number of those that count: of the other columns too at most the outputs.
    :param punctual: copies without ``Flag.LATE``.
    :param in_time: copies in time, by the names of :func:`~.in_time.masks_in_time`.
    :param lost: deliveries that never came.
    :param resent: its message was sent again.
    """

    copies: NDArray[np.int64]
    received: NDArray[np.int64]
    punctual: NDArray[np.int64]
    in_time: Mapping[str, NDArray[np.int64]]
    lost: NDArray[np.int64]
    resent: NDArray[np.bool_]


def measure(
    sent: Columns, received: Columns, run: Expected, recorded: Recorded, taps: Columns | None = None
) -> Measurements:
    """Measure a run in which every planned message has exactly one sent row.

    :param sent: the columns of ``samples.SENT``.
    :param received: the columns of ``samples.RECEIVED``, and ``host``, the number of the consumer's
        host, if the run has ``stream_hosts``. Both have ``worker``, the number of the worker that
        recorded the row, if the run has ``workers``.
    :param taps: the columns of ``samples.TAP``, if the run has a tap.
    """
    sent = _measured(sent, run)
    acked = _take(sent, sent["status"] == Status.ACKED)
    out = _take(sent, sent["sent"] > 0)

    received = _measured(received, run)
    misplaced = _misplaced(received, run)
    damaged = ~misplaced & (received["flags"] & Flag.CORRUPT != 0)
    copies = _take(received, ~misplaced & ~damaged)
    is_first = _is_first(copies, run)
    first = _take(copies, is_first)
    later = _take(copies, ~is_first)

    kinds = _latencies(acked, out, (first, later), run)
    kinds |= _without_own(kinds, run)
    # The median is that of first copies, but any copy can make a delivery in time (decision 004).
    deliveries = _deliveries(sent, acked, copies, run, _histograms(kinds))
    if run.broadcasts:
        completions = _completions(first, deliveries, run)
        kinds |= completions | _without_own(completions, run)
    if taps is not None:
        taps = _measured(taps, run)
        kinds |= tapped_rows(first, taps, (_numbers(first, run), _numbers(taps, run)), run)

    foreign = recorded.foreign
    if foreign is not None:
        foreign += int(misplaced.sum())
    corrupt = recorded.corrupt + int(damaged.sum())
    counts = _counts(sent, deliveries, run, foreign, corrupt)
    counts = replace(counts, corrupt_heads=recorded.corrupt)
    if run.delays is not None:
        undue = first["flags"] & Flag.UNDUE != 0
        counts = replace(counts, out_of_due_order=int(undue.sum()))

    lost = deliveries.lost.reshape(run.subscriptions, _offered(run))
    answered = answered_of(run, lost.sum(axis=1), counts.acked)
    heard = heard_of(run, copies["subscription"], run.stream_topics[copies["stream"]])
    # Without subscriptions a stream is silent if none of its messages was acknowledged.
    arrived = copies if run.subscriptions else acked
    sliced = by_piece(kinds, run)
    counted = _counts_by_piece(sent, out, deliveries, run)
    series = by_second(sent, out, acked, (copies, first), run)
    offers = count_offers(sent, run.start, run.planned_windows)
    by_worker = {}
    for number, name in enumerate(run.workers):
        by_worker[name] = _of_part(kinds, "worker", number)
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        outputs=run.outputs,
        answered=answered,
        tapped=run.tapped,
        counts=counts,
        bytes_sent=int(sent["size"][~_is_dropped(sent)].sum()),
        latencies={**_histograms(kinds), **_gaps(first, run), **recorded.latencies},
        blocked=exact_total(sent["blocked"]),
        in_time_without_own=int(deliveries.in_time["in_time_without_own"].sum()),
        own_late=int(sent_late_by_us(out, run).sum()),
        full_windows=full_windows_of_rows(_take(sent, sent["status"] == Status.BLOCKED), run),
        series=series,
        intervals=intervals(run, sliced),
        over_time=by_second_and_bucket(first, run),
        windows=sliced_stats(run, "windows", sliced, series.offered, counted),
        tenths=sliced_stats(run, "tenths", sliced, series.offered, counted),
        topics=_breakdown("topic", run.topic_names(), (sent, acked, first), kinds, deliveries, run),
        buckets=_breakdown("bucket", run.buckets, (sent, acked, first), kinds, deliveries, run),
        workers=with_latencies(recorded.workers, by_worker),
        lost=() if run.selective else _lost(deliveries.lost > 0, run),
        offering=offered_windows(run.planned, run.planned_windows, *offers),
        broadcasts=run.broadcasts,
        opening=recorded.opening,
        clocks=recorded.clocks,
        strays=recorded.strays,
        within_hosts=run.count_within_hosts(lambda: int(run.within_host(first).sum())),
        silent=silence(run, heard, marked(run, arrived["stream"]), answered),
        unheard=unheard_pairs(run, heard),
        pauses_known=bool(run.pauses),
    )


def _misplaced(received: Columns, run: Expected) -> NDArray[np.bool_]:
    """Return a mask of messages of another topic, or subscription; damaged ones are foreign too."""
    misplaced: NDArray[np.bool_] = received["topic"] != run.stream_topics[received["stream"]]
    return misplaced | ~_within(received["subscription"], run.subscriptions)


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
    counted = {}
    for kind, (_, values) in kinds.items():
        counts = histogram(values)
        if counts is not None:
            counted[kind] = counts
    return with_lateness(counted)


def _of_part(kinds: Mapping[str, Rows], key: str, number: int) -> dict[str, Histogram]:
    """Return the latencies of one topic, size bucket or worker.

    :param key: ``topic``, ``bucket`` or ``worker``.
    """
    counted = {}
    for kind, (rows, values) in kinds.items():
        if getattr(COUNTED_LATENCIES[kind], f"per_{key}"):
            counts = histogram(values[rows[key] == number])
            if counts is not None:
                counted[kind] = counts
    return counted


def _gaps(first: Columns, run: Expected) -> dict[str, Histogram]:
    pair = first["subscription"], first["topic"]
    measured = delivery_gaps(run, *pair, gap_times(first, run))
    if not run.explains_gaps:
        return gap_latencies(measured, None)
    earlier = delivery_gaps(run, *pair, gap_times_without_own(first, run))
    return gap_latencies(measured, earlier)


def _without_own(kinds: Mapping[str, Rows], run: Expected) -> dict[str, Rows]:
    """Return the latencies with a part of the generator's own delays, and the same without it."""
    if not run.pauses:
        return {}
    apart: dict[str, Rows] = {}
    for kind, (rows, values) in kinds.items():
        part = _own_part(kind, rows, values, run)
        if part is not None and part.any():
            affected = part > 0
            affected_rows = _take(rows, affected)
            apart[with_own(kind)] = affected_rows, values[affected]
            apart[without_own(kind)] = affected_rows, (values - part)[affected]
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
            earlier: NDArray[np.int64] = np.minimum(rows["own_delay"], values)
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
    stream = rows["stream"]
    return _take(rows, (rows["seq"] >= run.first[stream]) & (rows["seq"] < run.end[stream]))


def _offered(run: Expected) -> int:
    """Return the number of planned messages."""
    return int((run.end - run.first).sum())


def _numbers(rows: Columns, run: Expected) -> NDArray[np.int64]:
    """Return the number of each row's message, from 0 over all streams."""
    # two streams with the sequences 5 … 7 and 0 … 1: the messages 0 … 2 and 3 … 4
    offered = run.end - run.first
    number_of_first = np.cumsum(offered) - offered
    stream = rows["stream"]
    numbers: NDArray[np.int64] = number_of_first[stream] + rows["seq"] - run.first[stream]
    return numbers


def _is_first(copies: Columns, run: Expected) -> NDArray[np.bool_]:
    """Return a mask of the copies that are the first of their delivery."""
    delivery = copies["subscription"] * _offered(run) + _numbers(copies, run)
    # Sorted by delivery, then by arrival, then with copies out of due order last, then with those
    # between hosts last, then by receive lag, then by worker: the first rows of each delivery are
    # its first copies.
    keys: list[NDArray[Any]] = [delivery, copies["received"], copies["flags"] & Flag.UNDUE]
    if run.stream_hosts is not None:
        keys.append(~run.within_host(copies))
    keys.append(copies["lag"])
    if run.workers:
        keys.append(copies["worker"])
    order = np.lexsort(keys[::-1])
    mask = np.zeros(len(delivery), np.bool_)
    mask[order[ranks_of_equal(delivery[order]) < run.outputs]] = True
    return mask


def _deliveries(
    sent: Columns,
    acked: Columns,
    copies: Columns,
    run: Expected,
    latencies: Mapping[str, Histogram | Lateness],
) -> Deliveries:
    offered = _offered(run)
    place = copies["subscription"] * offered + _numbers(copies, run)

    all_copies = np.bincount(place, minlength=run.subscriptions * offered)

    def count(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the number of these copies, by delivery; at most that of the outputs."""
        copies_of_each = np.bincount(place[mask], minlength=len(all_copies))
        return np.minimum(copies_of_each, run.outputs)

    def each_of(rows: Columns) -> NDArray[np.bool_]:
        """Return a mask of the deliveries of these messages."""
        mask = np.zeros(offered, np.bool_)
        mask[_numbers(rows, run)] = True
        return np.tile(mask, run.subscriptions)

    # The delay of a delayed message is subtracted: intended + (received − due).
    arrived = copies["intended"] + run.lateness(copies)
    begins = begins_in_time(latencies, sent["intended"], len(sent["seq"]), run)
    masks = masks_in_time(copies, arrived, begins, run)
    none = np.zeros(len(place), np.bool_)
    in_time = {without_own(name): none for name in masks} | masks
    received = np.minimum(all_copies, run.outputs)
    return Deliveries(
        copies=all_copies,
        received=received,
        punctual=count(copies["flags"] & Flag.LATE == 0),
        in_time={name: count(mask) for name, mask in in_time.items()},
        lost=each_of(acked) * (run.outputs - received),
        resent=each_of(_take(sent, sent["resends"] > 0)),
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
    cut = run.slice_cut
    piece_of = np.zeros(_offered(run), np.int64)
    piece_of[_numbers(sent, run)] = cut.of(run.seconds(sent["intended"]))
    piece_of_delivery = np.tile(piece_of, run.subscriptions)

    pieces = {}
    for name, copies in {"received": deliveries.received, **deliveries.in_time}.items():
        pieces[name] = np.repeat(piece_of_delivery, copies)
    for name, late in late_by_generator(out, run).items():
        pieces[name] = cut.of(run.seconds(out["intended"][late]))
    return {name: np.bincount(piece, minlength=len(cut.starts)) for name, piece in pieces.items()}


def _completions(copies: Columns, deliveries: Deliveries, run: Expected) -> dict[str, Rows]:
    """Return completion and spread of the messages that every subscription received.

    :param copies: the first of each delivery.
    """
    # by the number of the message
    offered = _offered(run)
    number = _numbers(copies, run)
    intended = np.zeros(offered, np.int64)
    intended[number] = copies["intended"]
    first = np.full(offered, np.iinfo(np.int64).max)
    np.minimum.at(first, number, copies["received"])

    def latest(times: NDArray[np.int64]) -> NDArray[np.int64]:
        last = np.full(offered, np.iinfo(np.int64).min)
        np.maximum.at(last, number, times)
        return last

    last = latest(copies["received"])
    before, after = parts_of_copies(copies, run)
    without_waits = copies["received"] - after
    # The latest copy would have come earlier. A late send delays all copies alike: it lengthens no
    # spread.
    kinds = {
        "completion": (last - intended, last - latest(without_waits - before)),
        "spread": (last - first, last - latest(without_waits)),
    }

    # A message that some subscription did not receive is not complete: it ranks above any bound,
    # see NeverCame.
    by_subscription = deliveries.copies.reshape(run.subscriptions, offered)
    complete: NDArray[np.bool_] = np.all(by_subscription > 0, axis=0)
    of_complete = {}
    for kind, (values, own_delay) in kinds.items():
        rows = _take({"intended": intended, "own_delay": own_delay}, complete)
        of_complete[kind] = rows, values[complete]
    return of_complete


def _counts(
    sent: Columns, deliveries: Deliveries, run: Expected, foreign: int | None, corrupt: int
) -> Counts:
    status = {member: int((sent["status"] == member).sum()) for member in Status}
    received = deliveries.received
    duplicates = deliveries.copies - received
    out_of_order = None
    if run.ordered:
        out_of_order = int((received - deliveries.punctual).sum())
    lost = None if run.selective else int(deliveries.lost.sum())
    return Counts(
        offered=len(sent["seq"]),
        sent=status[Status.ACKED] + status[Status.FAILED] + status[Status.UNKNOWN],
        sent_in_time=int(((sent["sent"] > 0) & (sent["sent"] < run.start + run.duration)).sum()),
        acked=status[Status.ACKED],
        failed=status[Status.FAILED],
        dropped=sum(status[dropped] for dropped in NEVER_SENT),
        unknown=status[Status.UNKNOWN],
        received=int(received.sum()),
        received_in_time=int(deliveries.in_time["in_time"].sum()),
        lost=lost,
        duplicates=int(duplicates.sum()),
        out_of_order=out_of_order,
        foreign=foreign,
        corrupt=corrupt,
        resent=int((sent["resends"] > 0).sum()),
        duplicates_of_resent=int(duplicates[deliveries.resent].sum()),
    )


def _is_dropped(sent: Columns) -> NDArray[np.bool_]:
    return np.isin(sent["status"], NEVER_SENT)


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
    sent, acked, first = rows
    # A lost delivery has no received row, so keys are those of the sent rows.
    key_of = np.zeros(_offered(run), np.int64)
    key_of[_numbers(sent, run)] = sent[key]
    keys = np.tile(key_of, run.subscriptions)
    in_time = deliveries.in_time

    parts = []
    for number, name in enumerate(names):
        part_sent = _take(sent, sent[key] == number)
        out = ~_is_dropped(part_sent)
        of_part = keys == number
        parts.append(
            Breakdown(
                name=name,
                offered=len(part_sent["seq"]),
                sent=int(out.sum()),
                acked=int((acked[key] == number).sum()),
                received=int((first[key] == number).sum()),
                received_in_time=int(in_time["in_time"][of_part].sum()),
                in_time_without_own=int(in_time["in_time_without_own"][of_part].sum()),
                lost=None if run.selective else int(deliveries.lost[of_part].sum()),
                bytes_sent=int(part_sent["size"][out].sum()),
                latencies=_of_part(kinds, key, number),
            )
        )
    return tuple(parts)


def _lost(lost: NDArray[np.bool_], run: Expected) -> tuple[Lost, ...]:
    """Return the first :data:`LOST_RANGES` ranges of lost messages, by topic, subscription, stream
    and sequence.
    """
    ranges = []
    by_subscription = lost.reshape(run.subscriptions, _offered(run))
    offered = run.end - run.first
    for stream, stop in enumerate(np.cumsum(offered).tolist()):
        start = stop - int(offered[stream])
        for subscription in range(run.subscriptions):
            # 1 where a range of lost messages begins, −1 behind its end: of the messages 0, 1, 1
            # (lost) the differences of 0, 0, 1, 1, 0 are 0, 1, 0, −1.
            messages = by_subscription[subscription, start:stop].astype(np.int8)
            edges = np.diff(messages, prepend=0, append=0)
            firsts = np.flatnonzero(edges == 1) + run.first[stream]
            ends = np.flatnonzero(edges == -1) + run.first[stream]
            for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
                topic = int(run.stream_topics[stream])
                ranges.append((topic, subscription, stream, first, end - 1))

    lost_ranges = []
    for topic, subscription, stream, first, last in sorted(ranges)[:LOST_RANGES]:
        lost_ranges.append(
            Lost(topic=topic, subscription=subscription, stream=stream, first=first, last=last)
        )
    return tuple(lost_ranges)
