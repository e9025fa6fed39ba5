"""The definitions: what is counted, and how. Plain numpy over all rows at once; whatever else measures a run must agree to the bit.

A row is *measured* when its sequence lies in its stream's ``[first, end)``; all other rows are ignored. A *delivery* is one message to one
subscription of its stream's topic. Of the measured received rows

- *misplaced* ones, which a subscription got that does not subscribe to the message's topic, count as foreign;
- *corrupt* ones (``Flag.CORRUPT``) count as corrupt, together with the damaged heads that the manifests count, and as nothing else;
- the others are *copies*. A delivery is received when it has a copy, whatever became of the send; further copies are duplicates, told
  apart by whether the message was *resent*: the client sent it again after a lost connection (``resends`` above 0).

A delivery is *lost* when the message was acked and has no copy, *out of order* when all its copies are ``Flag.LATE``, *in time* when a copy
came within the measured phase, moved as a whole by the median end-to-end latency. Of delayed messages in time counts from when each is due:
the delay that was asked for is taken off its arrival, and the phase is moved by the median lateness.

Latencies are those of *first copies*: of each delivery the copy that was received first, wherever it was recorded, and of several at that
instant one that is not ``Flag.UNDUE``. This holds for the whole run, topics, buckets, seconds, intervals, windows, tenths and stages, for
lateness, and for the median above. Messages out of due order are those whose first copy is ``Flag.UNDUE``. The latencies of all other
copies are a figure of their own, ``later_copies``. What arrived by the second counts every copy.

Topic and size bucket of a message are the same in its sent row and in all its copies; by them, deliveries are broken down.

A *stage* is measured like a run: the same samples, its own start, duration, rate, ``[first, end)`` of each stream, and its seconds of what
the workers say of themselves. When they counted foreign messages and damaged heads is not known: a stage's foreign ones are None, its
corrupt ones those with a good head. Without
subscriptions there are no deliveries, and whatever is received is foreign.

Of a run that *broadcasts*, each message that every subscription got has a *completion*, from its intended time until the last
subscription got its first copy, and a *spread*, from the earliest of these first copies to that one.

Of the *windows* of a run, and its first and last *tenth*, each has the messages that were intended in it, their latencies, and their
deliveries; such a delivery is in time when a copy came before the window's end, which is moved by the median latency of the whole.

Series are defined in :mod:`pytest_loadtest.metrics.series`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Lost, Measurements
from pytest_loadtest.metrics.series import by_second, by_second_and_bucket
from pytest_loadtest.metrics.signed import with_lateness
from pytest_loadtest.metrics.silent import Silent, heard_of, marked, silence
from pytest_loadtest.metrics.sliced_counts import before_ends, by_piece, intervals, sliced_stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected, Recorded
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.sliced_counts import Rows

LOST_RANGES: Final = 10_000

Columns = Mapping[str, "NDArray[np.int64]"]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """One entry per planned delivery, ``subscription × offered + number of the message``: its copies, and copies with a property; whether
    it is lost, and whether its message was resent."""

    copies: NDArray[np.int64]
    punctual: NDArray[np.int64]
    in_time: NDArray[np.int64]
    lost: NDArray[np.bool_]
    resent: NDArray[np.bool_]
    before_end: Mapping[str, NDArray[np.int64]]


def measure(sent: Columns, received: Columns, run: Expected, recorded: Recorded) -> Measurements:
    """Measure a run whose every planned message has exactly one sent row.

    :param sent: the columns of ``samples.SENT``. :param received: the columns of ``samples.RECEIVED``.
    """
    sent, received = _measured(sent, run), _measured(received, run)
    misplaced = (received["topic"] != run.stream_topics[received["stream"]]) | ~_within(received["subscription"], run.subscriptions)
    damaged = ~misplaced & (received["flags"] & Flag.CORRUPT != 0)
    copies = _take(received, ~misplaced & ~damaged)
    is_first = _is_first(copies, run)
    first, later = _take(copies, is_first), _take(copies, ~is_first)
    acked, out = _take(sent, sent["status"] == Status.ACKED), _take(sent, sent["sent"] > 0)
    kinds = _latencies(acked, out, (first, later), run)
    deliveries = _deliveries(sent, acked, copies, run, median_shift(_histograms(kinds)))
    kinds |= _completions(first, deliveries, run) if run.broadcasts else {}
    foreign = None if recorded.foreign is None else recorded.foreign + int(misplaced.sum())
    corrupt = recorded.corrupt + int(damaged.sum())
    sliced = by_piece(kinds, run)
    series, counted = by_second(sent, out, acked, (copies, first), run), _deliveries_by_piece(sent, copies, deliveries, run)
    return Measurements(
        duration=run.duration,
        rate=run.rate,
        subscriptions=run.subscriptions,
        counts=replace(
            _counts(sent, deliveries, run, foreign, corrupt),
            out_of_due_order=_out_of_due_order(first, run),
            corrupt_heads=recorded.corrupt,
        ),
        bytes_sent=int(sent["size"][sent["status"] != Status.DROPPED].sum()),
        latencies={**_histograms(kinds), **recorded.latencies},
        blocked=int(sent["blocked"].sum()),
        series=series,
        intervals=intervals(run, sliced),
        over_time=by_second_and_bucket(first, run),
        windows=sliced_stats(run, "windows", sliced, series.offered, counted),
        tenths=sliced_stats(run, "tenths", sliced, series.offered, counted),
        topics=_breakdown("topic", run.topic_names(), sent, acked, first, kinds, deliveries, run),
        buckets=_breakdown("bucket", run.buckets, sent, acked, first, kinds, deliveries, run),
        workers=recorded.workers,
        lost=_lost(deliveries.lost, run),
        broadcasts=run.broadcasts,
        opening=recorded.opening,
        clocks=recorded.clocks,
        silent=_silent(acked, copies, run),
    )


def _latencies(acked: Columns, out: Columns, copies: tuple[Columns, Columns], run: Expected) -> dict[str, Rows]:
    """Return each kind of latencies with the rows that have it. :param copies: the first of each delivery, and all others."""
    first, later = copies
    delay = out["sent"] - out["intended"]
    kinds = {
        "end_to_end": (first, first["received"] - first["intended"]),
        "later_copies": (later, later["received"] - later["intended"]),
        "send_delay": (out, delay),
        "own_send_delay": (out, np.maximum(delay - out["blocked"], 0)),
    }
    if run.publish_acks:
        kinds["publish"] = acked, acked["acked"] - acked["intended"]
    if run.delays is not None:
        late = run.lateness(first)
        kinds["lateness"] = _take(first, late >= 0), late[late >= 0]
        kinds["earliness"] = _take(first, late < 0), -late[late < 0]
    return kinds


def _histograms(kinds: Mapping[str, Rows]) -> dict[str, Histogram | Lateness]:
    return with_lateness({kind: found for kind, (_, values) in kinds.items() if (found := histogram(values)) is not None})


def _take(rows: Columns, pick: NDArray[np.bool_]) -> Columns:
    return {name: column[pick] for name, column in rows.items()}


def _within(values: NDArray[np.int64], end: int) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (values >= 0) & (values < end)
    return inside


def _measured(rows: Columns, run: Expected) -> Columns:
    rows = {name: column.astype(np.int64) for name, column in rows.items()}
    rows = _take(rows, _within(rows["stream"], len(run.first)))
    return _take(rows, (rows["seq"] >= run.first[rows["stream"]]) & (rows["seq"] < run.end[rows["stream"]]))


def _numbers(rows: Columns, run: Expected) -> NDArray[np.int64]:
    """Number of each row's message, from 0 over all streams."""
    before: NDArray[np.int64] = np.cumsum(run.end - run.first) - (run.end - run.first)
    numbers: NDArray[np.int64] = before[rows["stream"]] + rows["seq"] - run.first[rows["stream"]]
    return numbers


def _is_first(copies: Columns, run: Expected) -> NDArray[np.bool_]:
    """Which copies are the first of their delivery."""
    delivery = copies["subscription"] * int((run.end - run.first).sum()) + _numbers(copies, run)
    order = np.lexsort((copies["flags"] & Flag.UNDUE, copies["received"], delivery))
    found = np.zeros(len(delivery), np.bool_)
    found[order[np.diff(delivery[order], prepend=-1) != 0]] = True
    return found


def median_shift(latencies: Mapping[str, Histogram | Lateness]) -> int:
    """Return the delay, ns, by which the span is moved in which a copy must come to be in time."""
    middle = latencies.get("lateness") or latencies.get("end_to_end")
    return middle.percentile(50) if middle else 0


def _out_of_due_order(first: Columns, run: Expected) -> int | None:
    return None if run.delays is None else int((first["flags"] & Flag.UNDUE != 0).sum())


def _deliveries(sent: Columns, acked: Columns, copies: Columns, run: Expected, moved: int) -> Deliveries:
    offered = int((run.end - run.first).sum())

    def each_of(rows: Columns) -> NDArray[np.bool_]:
        """The deliveries of these messages."""
        found = np.zeros(offered, np.bool_)
        found[_numbers(rows, run)] = True
        return np.tile(found, run.subscriptions)

    place = copies["subscription"] * offered + _numbers(copies, run)
    size = run.subscriptions * offered
    begin, came = run.start + moved, copies["intended"] + run.lateness(copies)  # less the delay that was asked for
    in_time = (came >= begin) & (came < begin + run.duration)
    count = np.bincount(place, minlength=size)
    return Deliveries(
        copies=count,
        punctual=np.bincount(place[copies["flags"] & Flag.LATE == 0], minlength=size),
        in_time=np.bincount(place[in_time], minlength=size),
        lost=each_of(acked) & (count == 0),
        resent=each_of(_take(sent, sent["resends"] > 0)),
        before_end={name: np.bincount(place[early], minlength=size) for name, early in before_ends(copies, came - moved, run).items()},
    )


def _deliveries_by_piece(sent: Columns, copies: Columns, deliveries: Deliveries, run: Expected) -> dict[str, NDArray[np.int64]]:
    """Deliveries received, and in time of their window or tenth, by the pieces that objectives ask for."""
    if run.slice_cut is None:
        return {}
    piece_of = np.zeros(int((run.end - run.first).sum()), np.int64)
    piece_of[_numbers(sent, run)] = run.slice_cut.of(run.seconds(sent["intended"]))
    pieces = np.tile(piece_of, run.subscriptions)
    found = {"received": deliveries.copies, **deliveries.before_end}
    return {name: np.bincount(pieces[count > 0], minlength=len(run.slice_cut.starts)) for name, count in found.items()}


def _completions(copies: Columns, deliveries: Deliveries, run: Expected) -> dict[str, Rows]:
    """How long messages took to reach all subscriptions: completion and spread. :param copies: the first of each delivery."""
    offered, number = int((run.end - run.first).sum()), _numbers(copies, run)
    least = np.iinfo(np.int64)
    first, last, due = np.full(offered, least.max), np.full(offered, least.min), np.zeros(offered, np.int64)
    np.minimum.at(first, number, copies["received"])
    np.maximum.at(last, number, copies["received"])
    due[number] = copies["intended"]
    all_got = (deliveries.copies.reshape(run.subscriptions, offered) > 0).all(axis=0)
    rows = {"intended": due[all_got]}
    return {"completion": (rows, (last - due)[all_got]), "spread": (rows, (last - first)[all_got])}


def _counts(sent: Columns, deliveries: Deliveries, run: Expected, foreign: int | None, corrupt: int) -> Counts:
    status = {member: int((sent["status"] == member).sum()) for member in Status}
    received = deliveries.copies > 0
    duplicates = deliveries.copies - received
    return Counts(
        offered=len(sent["seq"]),
        sent=status[Status.ACKED] + status[Status.FAILED] + status[Status.UNKNOWN],
        sent_in_time=int(((sent["sent"] > 0) & (sent["sent"] < run.start + run.duration)).sum()),
        acked=status[Status.ACKED],
        failed=status[Status.FAILED],
        dropped=status[Status.DROPPED],
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


def _silent(acked: Columns, copies: Columns, run: Expected) -> Silent | None:
    heard = heard_of(run, copies["subscription"], run.stream_topics[copies["stream"]])
    return silence(run, heard, marked(run, (copies if run.subscriptions else acked)["stream"]))


def _breakdown(
    key: str,
    names: tuple[str, ...],
    sent: Columns,
    acked: Columns,
    first: Columns,
    kinds: Mapping[str, Rows],
    deliveries: Deliveries,
    run: Expected,
) -> tuple[Breakdown, ...]:
    offered = int((run.end - run.first).sum())
    key_of = np.zeros(offered, np.int64)
    key_of[_numbers(sent, run)] = sent[key]
    keys = np.tile(key_of, run.subscriptions)
    lost, in_time = keys[deliveries.lost], keys[deliveries.in_time > 0]
    parts = []
    for i, name in enumerate(names):
        part_sent, part_acked, part_first = (_take(rows, rows[key] == i) for rows in (sent, acked, first))
        out = part_sent["status"] != Status.DROPPED
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
                    kind: found
                    for kind, (rows, values) in kinds.items()
                    if getattr(LATENCIES[kind], f"per_{key}") and (found := histogram(values[rows[key] == i])) is not None
                },
            )
        )
    return tuple(parts)


def _lost(lost: NDArray[np.bool_], run: Expected) -> tuple[Lost, ...]:
    """The ranges of lost messages by topic, subscription, stream and sequence; the first 10 000 of them."""
    ranges = []
    after = np.cumsum(run.end - run.first)
    by_subscription = lost.reshape(run.subscriptions, int((run.end - run.first).sum()))
    for stream in range(len(run.first)):
        start, stop = int(after[stream] - run.end[stream] + run.first[stream]), int(after[stream])
        for subscription in range(run.subscriptions):
            edges = np.diff(np.concatenate([[0], by_subscription[subscription, start:stop].astype(np.int8), [0]]))
            firsts, lasts = np.flatnonzero(edges == 1) + run.first[stream], np.flatnonzero(edges == -1) + run.first[stream] - 1
            topic = int(run.stream_topics[stream])
            ranges += [
                Lost(topic=topic, subscription=subscription, stream=stream, first=int(first), last=int(last))
                for first, last in zip(firsts, lasts, strict=True)
            ]
    return tuple(sorted(ranges, key=lambda lost: (lost.topic, lost.subscription, lost.stream, lost.first))[:LOST_RANGES])
