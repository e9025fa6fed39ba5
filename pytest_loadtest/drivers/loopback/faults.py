"""What a loopback relay does wrong on purpose, deterministically: when a message is released, and what becomes of it.

*When*, in this order: the relay takes messages as fast as its ``capacity`` allows, holds each for ``delay``, then acknowledges and
delivers it in one instant. During a stall the relay's clock stands still, for all of it.

*What*, by the message's sequence in its stream, counted from 0 (``every`` = N hits seq N−1, 2N−1, …):

* ``corruptHeaderEvery``, ``corruptBodyEvery``: one byte of the envelope, or of what follows it, is changed; which one moves on from hit
  to hit. A message of nothing but its envelope has no body to damage.
* ``loseEvery``: acknowledged, never delivered.
* ``swapEvery``: of the pairs (0, 1), (2, 3), … every N-th is delivered in the other order (seq 2N−2 and 2N−1, …), when the two come one
  after the other. The first of the two is held for the second, at most for one second.
* ``duplicateEvery``: delivered twice, one copy behind the other.

A message can be hit by several; a lost message is not delivered whatever else would become of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.drivers.loopback.batch import Batch, join_batches
from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.loopback.batch import Index

HOLD: Final = SECOND  # how long the first of a pair waits for the second
_GRAIN: Final = MILLISECOND  # messages that the capacity lets out within it go together, at its end
_DAMAGE: Final = 0x55


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Settings of a relay.

    Durations are in ns, ``capacity`` is in msg/s of one run, ``capacity_depth`` in messages that may go at once, ``…_every`` in messages
    (``swap_every`` in pairs).

    ``stall_at`` counts from the first message of a run that the relay sees: with a warm-up phase, from the first message of the warm-up.

    :raises ValueError: a value that cannot be.
    """

    delay: int = 0
    stall_at: int = 0
    stall_duration: int = 0
    capacity: float | None = None
    capacity_depth: int = 1
    lose_every: int | None = None
    duplicate_every: int | None = None
    swap_every: int | None = None
    corrupt_header_every: int | None = None
    corrupt_body_every: int | None = None

    def __post_init__(self) -> None:
        least = {"delay": 0, "stall_at": 0, "stall_duration": 0, "capacity": 1e-3}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value < least.get(field.name, 1):
                raise ValueError(f"{_yaml(field.name)}={value} is too small: at least {least.get(field.name, 1)}")


def relay_settings(settings: Any) -> dict[str, str]:
    """The profile's ``LoopbackSettings`` → settings of the relay as text, only those that differ from a relay without faults."""
    stall = settings.stall
    values = {field.name: getattr(settings, field.name) for field in fields(Faults) if not field.name.startswith("stall_")}
    faults = Faults(**values, stall_at=stall.at if stall else 0, stall_duration=stall.duration if stall else 0)
    return {
        _yaml(field.name): _text(field.name, value) for field in fields(Faults) if (value := getattr(faults, field.name)) != field.default
    }


def parse_faults(settings: Mapping[str, str]) -> Faults:
    """The other way round, from ``{"delay": "20ms", "loseEvery": "1000"}``.

    :raises ValueError: an unknown name or a value that cannot be.
    """
    names = {_yaml(field.name): field.name for field in fields(Faults)}
    if unknown := sorted(set(settings) - set(names)):
        raise ValueError(f"unknown relay settings {', '.join(unknown)}: choose from {', '.join(names)}")
    return Faults(**{names[name]: _value(names[name], text) for name, text in settings.items()})


def _yaml(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _text(name: str, value: float) -> str:
    if name not in ("delay", "stall_at", "stall_duration"):
        return f"{value:.15g}" if name == "capacity" else str(value)
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value}ns"


def _value(name: str, text: str) -> Any:
    if name in ("delay", "stall_at", "stall_duration"):
        return parse_duration(text)
    return float(text) if name == "capacity" else int(text)


class Gate:
    """When messages of one run are released.

    :param first: ns, when the run's first message came.

    The capacity is a token bucket in its virtual form (GCRA, ITU-T I.371): message k of a backlog is taken at ``ideal + k·interval −
    (depth − 1)·interval``, where ``ideal`` moves on by an interval a message and never lies behind the clock.
    """

    def __init__(self, faults: Faults, first: int) -> None:
        self._faults = faults
        self._first = first
        self._ideal = 0.0

    def release(self, arrival: int, n: int) -> list[tuple[int, int]]:
        """Split ``n`` messages that came at ``arrival`` into ``(ns when to release, how many)``, in order."""
        time = self._stand_still(arrival - self._first)
        if self._faults.capacity is None:
            return [(self._resume(time + self._faults.delay), n)]
        interval = 1e9 / self._faults.capacity
        self._ideal = max(self._ideal, time)
        taken = np.maximum(time, self._ideal + (np.arange(n) - (self._faults.capacity_depth - 1)) * interval)
        self._ideal += n * interval
        grains, counts = np.unique(np.ceil(taken / _GRAIN).astype(np.int64), return_counts=True)
        return [
            (self._resume(grain * _GRAIN + self._faults.delay), count)
            for grain, count in zip(grains.tolist(), counts.tolist(), strict=True)
        ]

    def _stand_still(self, time: int) -> int:
        """Time since the first message → time on the relay's clock."""
        at, duration = self._faults.stall_at, self._faults.stall_duration
        return time if time < at else max(at, time - duration)

    def _resume(self, time: int) -> int:
        """Time on the relay's clock → ns; what is due at the instant of the stall comes after it."""
        stalled = self._faults.stall_duration if time >= self._faults.stall_at else 0
        return self._first + time + stalled


def damage(faults: Faults, batch: Batch) -> None:
    """Change bytes in place, as ``corruptHeaderEvery`` and ``corruptBodyEvery`` say."""
    if faults.corrupt_header_every is None and faults.corrupt_body_every is None:
        return
    head = np.where(batch.size < HEAD, COMPACT_HEAD, HEAD)
    head = np.minimum(head, batch.size)
    start = batch.offsets()[:-1]
    for every, offset, room in ((faults.corrupt_header_every, start, head), (faults.corrupt_body_every, start + head, batch.size - head)):
        if every is not None:
            hit = _hits(batch.seq, every) & (room > 0)
            batch.payload[offset[hit] + (batch.seq[hit] // every) % room[hit]] ^= _DAMAGE


def delivered(faults: Faults, batch: Batch) -> Index:
    """Which messages of a batch are delivered, in the order of delivery: swapped, lost and doubled as said above."""
    if faults.swap_every is None and faults.lose_every is None and faults.duplicate_every is None:
        return None
    index = np.arange(len(batch))
    if faults.swap_every is not None:
        by = np.argsort(batch.producer, kind="stable")
        seq, producer = batch.seq[by], batch.producer[by]
        pair = _hits(seq[1:], 2 * faults.swap_every) & (seq[1:] == seq[:-1] + 1) & (producer[1:] == producer[:-1])
        first, second = by[:-1][pair], by[1:][pair]
        index[first], index[second] = second, first
    if faults.lose_every is not None:
        index = index[~_hits(batch.seq[index], faults.lose_every)]
    if faults.duplicate_every is not None:
        index = np.repeat(index, 1 + _hits(batch.seq[index], faults.duplicate_every))
    return index


class HalfPairs:
    """Messages that wait for the one behind them, to be delivered after it: at most one of each stream."""

    def __init__(self, every: int) -> None:
        self._every = every
        none = self._until = np.empty(0, np.int64)  # ns, ascending
        self._batch = Batch(none, none, none, np.empty(0, np.int32), np.empty(0, np.uint8))

    def complete(self, batch: Batch, now: int) -> Batch:
        """What goes now: the messages that waited for one of ``batch``, and ``batch`` without those that begin to wait."""
        ended = np.isin(self._batch.producer, batch.producer)
        whole = join_batches([self._batch.where(ended), batch])
        waits = self._wait(whole)
        self._until = np.concatenate([self._until[~ended], np.full(np.count_nonzero(waits), now + HOLD)])
        self._batch = join_batches([self._batch.where(~ended), whole.where(waits)])
        return whole.where(~waits)

    def _wait(self, batch: Batch) -> NDArray[np.bool_]:
        """Whether a message is the last of its stream in the batch, and the first of a pair."""
        by = np.argsort(batch.producer, kind="stable")
        producer = batch.producer[by]
        last = by[np.concatenate([producer[1:] != producer[:-1], [True]])]
        waits = np.zeros(len(batch), np.bool_)
        waits[last] = batch.seq[last] % (2 * self._every) == 2 * self._every - 2
        return waits

    def next(self) -> int | None:
        """When the first of them has waited long enough, ns; None: nothing waits."""
        return int(self._until[0]) if len(self._until) else None

    def expired(self, now: int) -> Batch:
        """Those that have waited long enough go alone."""
        count = int(np.searchsorted(self._until, now, side="right"))
        gone, self._batch = self._batch.split(count)
        self._until = self._until[count:]
        return gone


def _hits(seq: NDArray[np.int64], every: int) -> NDArray[np.bool_]:
    hits: NDArray[np.bool_] = seq % every == every - 1
    return hits
