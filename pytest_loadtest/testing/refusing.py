"""The promises of a driver whose streams have windows: what it refuses, and what it says about a window that ran empty."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.testing.expected import expect_acked, expect_received
from pytest_loadtest.testing.rig import rig

if TYPE_CHECKING:
    from pytest_loadtest.testing.rig import Rig, Subject


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
