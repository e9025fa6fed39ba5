"""What must have come of the messages of a burst: answers and copies, whole, and once each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing.rig import rig, rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Acks, Burst, Received
    from pytest_loadtest.testing.rig import Rig, Subject


def some_of(burst: Burst, mine: NDArray[np.bool_]) -> Burst:
    """Some of the messages of a burst."""
    return rows(burst, np.flatnonzero(mine))


def expect_acked(r: Rig, burst: Burst, start: int) -> None:
    """Every message of the burst is acked once, and nothing else is."""
    _expect_columns(r.acks, {"row": np.int64, "time": np.int64, "status": np.int8})
    resends = [acks.resends for acks in r.acks if acks.resends is not None]
    assert all(column.dtype == np.uint8 for column in resends), f"resends is {resends[0].dtype}, wanted uint8"
    assert not any(column.any() for column in resends), "messages were sent again though no connection was lost"
    assert np.all(burst.sent >= start), "sent is stamped with the clock given, for every message"
    for stream in r.streams:
        answers, mine = r.answers(stream), burst.stream == stream
        seq, sent = burst.seq[mine], burst.sent[mine]
        assert np.array_equal(np.sort(answers.seq), seq), (
            f"stream {stream}: {len(answers.seq)} acks of {len(np.unique(answers.seq))} messages, {len(seq)} sent"
        )
        assert np.all(answers.status == Status.ACKED), f"stream {stream}: not every message was acked"
        times = answers.time[np.argsort(answers.seq)]
        assert np.all(times >= sent), "acked before it was sent: stamp sent before the client gets the message"


def expect_received(r: Rig, place: int, burst: Burst, ordered: bool) -> None:
    """Exactly the messages of the burst, whole."""
    wanted = {"consumer": np.int32, "heads": np.uint8, "size": np.int32, "time": np.int64, "order": np.int64, "flags": np.int8}
    _expect_columns(r.received, wanted)
    heads, sizes = r.heads(place), r.column(place, "size")
    kinds = np.bincount(heads.kind, minlength=3).tolist()
    assert kinds[1:] == [0, 0], f"consumer {place}: {kinds[0]} of ours, {kinds[1]} foreign, {kinds[2]} corrupt"
    assert not np.any(r.column(place, "flags")), f"flags {np.unique(r.column(place, 'flags')).tolist()} on whole messages"
    strange = np.setdiff1d(heads.stream, burst.stream).tolist()
    assert not strange, f"consumer {place} got messages of the streams {strange}"
    for stream in np.unique(burst.stream).tolist():
        mine, sent = heads.stream == stream, some_of(burst, burst.stream == stream)
        seq, size = heads.seq[mine], sizes[mine]
        assert np.array_equal(np.sort(seq), sent.seq), f"stream {stream}: got {len(seq)} copies of {len(np.unique(seq))}, {len(sent)} sent"
        assert not ordered or np.all(np.diff(seq) > 0), f"stream {stream}: out of order"
        payload = sent.payload[seq - sent.seq[0]]
        assert np.array_equal(size, r.pool.sizes[payload]), f"stream {stream}: sizes differ from those sent"
        assert np.array_equal(heads.bucket[mine], r.pool.buckets[payload]), f"stream {stream}: buckets differ from those sent"
        carried = heads.intended[mine]
        assert np.all((carried == seq + 1_000_000) | (carried == -1)), f"stream {stream}: intended time was not carried"


def _expect_columns(parts: Sequence[Acks] | Sequence[Received], wanted: Mapping[str, type]) -> None:
    """All columns of each part have one length and their types."""
    for part in parts:
        n = len(part.time)
        for name, kind in wanted.items():
            column: NDArray[Any] = getattr(part, name)
            assert len(column) == n and column.dtype == kind, f"{name} is {column.dtype}[{len(column)}], wanted {np.dtype(kind)}[{n}]"
            shape = (n, envelope.HEAD) if name == "heads" else (n,)
            assert column.shape == shape, f"{name} has the shape {column.shape}, wanted {shape}"


# The promises of a driver whose streams have windows: what it refuses, and what it says about a window that ran empty.


def check_window(subject: Subject) -> None:
    """A burst beyond the window is taken as far as the window goes, ``send`` returns at once, and the window empties."""
    window = subject.window
    if window is None:
        return
    for streams in (1, 3):
        with rig(subject, streams=streams) as r:
            burst = r.burst(2 * window)
            left = r.offer(burst)
            taken = np.bincount(np.delete(burst.stream, left), minlength=streams)
            assert np.all((taken > 0) & (taken <= window)), f"took {taken.tolist()} messages at once with a window of {window}"
            r.until(lambda taken=taken: r.acked >= taken.sum(), "the window emptied")  # type: ignore[misc]
            again = r.offer(burst, left)
            more = np.bincount(np.delete(burst.stream, again), minlength=streams) - taken
            assert np.all(more > 0), "an empty window took nothing"
            r.finish(burst)
            r.until(lambda burst=burst: r.acked >= len(burst), "acked after the window was full")  # type: ignore[misc]


def check_full_stream_alone(subject: Subject) -> None:
    """A stream that is full holds up no other, not even in the same burst."""
    window = subject.window
    if window is None:
        return
    start = time.monotonic_ns()
    with rig(subject, streams=2) as r:
        burst = r.burst(2 * window)
        other = np.flatnonzero(burst.stream == 1)
        left = r.offer(burst, np.concatenate([np.flatnonzero(burst.stream == 0), other[:1]]))
        assert len(left), f"took {2 * window} messages at once with a window of {window}"
        assert other[0] not in left, "a message was refused because of another stream's full window"
        r.finish(burst)
        r.until(lambda: r.acked >= len(burst) and r.copies >= len(burst), "acked and received")
        expect_acked(r, burst, start)
        expect_received(r, r.places[0], burst, subject.ordered)


def check_idle(subject: Subject) -> None:
    """``idle`` is the instant of the answer that emptied the window, for a message that finds it empty; 0 for every other one."""
    if subject.window is None:
        return
    with rig(subject, streams=2) as r:
        count = min(subject.window, 20)
        for stream in r.streams:  # one after the other, so that their windows run empty at different instants
            r.finish(r.burst(count, streams=[stream]))
            r.until(lambda sent=(stream + 1) * count: r.acked >= sent, "acked")  # type: ignore[misc]
        for first in (count, 2 * count):
            r.until(lambda sent=2 * first: r.acked >= sent, "the window emptied")  # type: ignore[misc]
            last = [int(r.answers(stream).time.max()) for stream in r.streams]
            burst = r.burst(count, first)
            r.offer(burst)
            assert burst.idle[:2].tolist() == last, f"idle is {burst.idle[:2].tolist()}, the last answers came at {last}"
            r.finish(burst)
        r.until(lambda: r.acked >= 6 * count, "acked")
        for stream in r.streams:
            _expect_idle(r, stream)


def _expect_idle(r: Rig, stream: int) -> None:
    """Where a message of this stream has ``idle``, all before it were answered, the last of them at that instant."""
    answers = r.answers(stream)
    answered = np.maximum.accumulate(answers.time[np.argsort(answers.seq)])
    idle = np.concatenate([burst.idle[burst.stream == stream] for burst in r.bursts])
    assert idle[0] == 0, f"stream {stream}: idle is {idle[0]} before anything was answered"
    assert np.all((idle[1:] == 0) | (idle[1:] == answered[:-1])), f"stream {stream}: idle is set while messages are in flight"
