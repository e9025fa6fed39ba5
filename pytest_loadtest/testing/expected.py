"""What must have come of the messages of a burst: answers and copies, whole, and once each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing.rig import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Acks, Burst, Received
    from pytest_loadtest.testing.rig import Rig


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
