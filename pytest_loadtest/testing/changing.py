"""The promises of a driver whose consumers pause, come and go while messages flow."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.quantities import MILLISECOND
from pytest_loadtest.testing.rig import Rig, Subject, rig

if TYPE_CHECKING:
    from collections.abc import Callable


def check_pause(subject: Subject) -> None:
    """A paused consumer takes nothing while all is acked; after ``resume`` everything comes, stamped later than that."""
    with rig(subject) as r:
        r.send(20)
        r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
        r.consumers[0].pause()
        r.send(100, first=20)
        r.until(lambda: r.acked >= 120, "acked while the consumer is paused")
        for _ in range(20):
            r.driver.poll(MILLISECOND)
        r.collect()
        assert r.copies == 20, f"a paused consumer took {r.copies - 20} messages"
        assert r.driver.disconnected() is None, f"pausing cost the connection: {r.driver.disconnected()}"
        resumed = time.monotonic_ns()
        r.consumers[0].resume()
        r.until(lambda: r.copies >= 120, "received after resume")
        seq, times = r.heads(0).seq, np.concatenate([part.time for part in r.received[0]])
        assert sorted(seq.tolist()) == list(range(120)), f"{len(seq)} copies of {len(np.unique(seq))} messages, 120 sent"
        assert np.all(times[seq >= 20] >= resumed), "what waited must be stamped when it is handed over, after resume"


def check_attach_and_detach(subject: Subject) -> None:
    """A second consumer joins and the first leaves while messages flow: each message comes once, and the last ones to who stayed."""
    with rig(replace(subject, settings=subject.shared or subject.settings), streams=4) as r:
        sent = _while_flowing(r, 0, lambda: r.attach(1))
        r.until(lambda: r.copies >= 4 * sent, "received by two")
        sent = _while_flowing(r, sent, lambda: r.driver.detach([r.consumers[0]]))
        r.until(lambda: r.acked >= 4 * sent and r.copies >= 4 * sent, "acked, and received after one has left")
        before = sum(len(part.time) for part in r.received[0])
        r.send(50, first=sent)
        r.until(lambda: r.copies >= 4 * sent + 200, "received by the one that stayed")
        got = [(stream, seq) for i in (0, 1) for stream, seq in zip(r.heads(i).stream.tolist(), r.heads(i).seq.tolist(), strict=True)]
        assert len(set(got)) == len(got) == 4 * sent + 200, f"{len(got)} copies of {len(set(got))} messages, {4 * sent + 200} sent"
        after = sum(len(part.time) for part in r.received[0])
        assert after == before, f"a consumer took {after - before} messages after it had left"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_detach_while_paused(subject: Subject) -> None:
    """A paused consumer that leaves loses nothing: what it held comes, whoever takes it."""
    with rig(replace(subject, settings=subject.shared or subject.settings), streams=2, consumers=2) as r:
        r.consumers[0].pause()
        r.send(100)
        r.until(lambda: r.acked >= 200, "acked while one consumer is paused")
        r.driver.detach([r.consumers[0]])
        r.until(lambda: r.copies >= 200, "received after the paused one has left")
        got = {(stream, seq) for i in (0, 1) for stream, seq in zip(r.heads(i).stream.tolist(), r.heads(i).seq.tolist(), strict=True)}
        assert len(got) == r.copies == 200, f"{r.copies} copies of {len(got)} messages, 200 sent"


def check_attach_again(subject: Subject) -> None:
    """A consumer that left can come again at once, under the same number."""
    with rig(replace(subject, settings=subject.shared or subject.settings), consumers=2) as r:
        for _ in range(2):
            r.driver.detach([r.consumers[-1]])
            r.attach(1)
        r.send(100)
        r.until(lambda: r.acked >= 100 and r.copies >= 100, "acked and received")
        assert r.copies == 100, f"{r.copies} copies, 100 sent"


def _while_flowing(r: Rig, first: int, change: Callable[[], None]) -> int:
    """Send on every producer from ``first`` on, with the change in the midst of it; return the next sequence."""
    r.send(150, first)
    change()
    r.send(150, first + 150)
    return first + 300
