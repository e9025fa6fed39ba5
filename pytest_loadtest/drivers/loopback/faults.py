"""The deterministic faults of a loopback relay.

The time at which a message is released, and what happens to it.

*Time*, in this order: the relay takes messages as fast as its ``capacity`` allows, holds each for
``delay``, then acknowledges and delivers it at the same instant. During a stall the relay's clock
does not advance.

*Content*, by the message's sequence in its stream, counted from 0 (``every`` = N selects seq N−1,
2N−1, …):

* ``corruptHeaderEvery``, ``corruptBodyEvery``: one byte of the envelope, or of the rest, is
  changed, at a position that advances with each selected message. A message that consists of its
  envelope has no body to damage.
* ``loseEvery``: the message is acknowledged but never delivered.
* ``swapEvery``: of the pairs (0, 1), (2, 3), … every N-th (seq 2N−2 and 2N−1, …) is delivered in
  reverse order, if its messages arrive one after the other. The first message is held until the
  second arrives, for at most one second.
* ``duplicateEvery``: the message is delivered twice, one copy after the other.

Several faults can apply to one message; a lost message is not delivered, whatever else applies.

*Service*, for a route: what is released goes through a service before it is delivered. It counts
its inputs, from 0, over all streams of a run.

* ``serviceLose``: the input has no output. ``serviceDouble``: it has one output more.
* ``serviceSlow``: the input takes ``serviceSlowBy``; others take no time. Each input is handled by
  one of ``serviceThreads``, in order of arrival, when one is free.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.drivers.loopback.batch import Batch, Index, join_batches
from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, parse_duration
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


HOLD: Final = SECOND  # time for which the first message of a pair waits for the second
# Messages that the capacity releases within one millisecond leave together at its end.
_GRAIN: Final = MILLISECOND
# XOR with a constant that is not 0 changes any byte.
_DAMAGE: Final = 0x55


_DURATIONS: Final = ("delay", "stall_at", "stall_duration", "service_slow_by")
_SERVICE: Final = "service_"


@record
class Faults:
    """The settings of a relay.

    Durations are in ns, ``capacity`` in msg/s of one run, ``capacity_depth`` in messages that may
    leave at once, ``…_every`` in messages (``swap_every`` in pairs), ``service_lose``, ``…_double``
    and ``…_slow`` in inputs. ``stall_at`` counts from the run's first message at the relay,
    including the warm-up.

    :raises ValueError: a value is out of range.
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
    service_lose: int | None = None
    service_double: int | None = None
    service_slow: int | None = None
    service_slow_by: int = 25 * MILLISECOND
    service_threads: int = 1

    def __post_init__(self) -> None:
        least: dict[str, float] = {**dict.fromkeys(_DURATIONS, 0), "capacity": 1e-3}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value < least.get(field.name, 1):
                raise ValueError(
                    f"{_yaml(field.name)}={value} is too small: at least {least.get(field.name, 1)}"
                )

    @property
    def has_service(self) -> bool:
        """True if what is released goes through a faulty service."""
        found = (self.service_lose, self.service_double, self.service_slow)
        return any(every is not None for every in found)


def relay_settings(settings: Any) -> dict[str, str]:
    """Return the relay's settings as texts from the profile's ``LoopbackSettings``.

    Only those that differ from the defaults.
    """
    stall = settings.stall
    service = settings.service
    values = {
        field.name: getattr(settings, field.name)
        for field in fields(Faults)
        if not field.name.startswith(("stall_", _SERVICE))
    }
    if stall:
        values |= {"stall_at": stall.at, "stall_duration": stall.duration}
    if service:
        for name in type(service).model_fields:
            values[_SERVICE + name] = getattr(service, name)
    faults = Faults(**values)
    return {
        _yaml(field.name): _text(field.name, value)
        for field in fields(Faults)
        if (value := getattr(faults, field.name)) != field.default
    }


def parse_faults(settings: Mapping[str, str]) -> Faults:
    """Return the faults for settings as texts, such as ``{"delay": "20ms", "loseEvery": "1000"}``.

    :raises ValueError: an unknown name, or a value that is not valid.
    """
    names = {_yaml(field.name): field.name for field in fields(Faults)}
    if unknown := sorted(set(settings) - set(names)):
        raise ValueError(
            f"unknown relay settings {', '.join(unknown)}: choose from {', '.join(names)}"
        )
    return Faults(**{names[name]: _value(names[name], text) for name, text in settings.items()})


def _yaml(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _text(name: str, value: float) -> str:
    if name not in _DURATIONS:
        return f"{value:.15g}" if name == "capacity" else str(value)
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value}ns"


def _value(name: str, text: str) -> Any:
    if name in _DURATIONS:
        return parse_duration(text)
    return float(text) if name == "capacity" else int(text)


class Gate:
    """The times at which messages of one run are released.

    :param first: ns, when the run's first message arrived.
    """

    # The capacity is a token bucket as a virtual schedule (GCRA, ITU-T I.371): message k of a
    # backlog is taken at ``ideal + k·interval − (depth − 1)·interval``. ``ideal`` advances by one
    # interval for each message and is never before the current time.

    def __init__(self, faults: Faults, first: int) -> None:
        self._faults = faults
        self._first = first
        self._ideal = 0.0

    def release(self, arrival: int, n: int) -> list[tuple[int, int]]:
        """Split ``n`` messages that arrived at ``arrival``, ns, by the time of their release.

        Return pairs of release time (ns) and number of messages, in order.
        """
        time = self._relay_time(arrival - self._first)
        if self._faults.capacity is None:
            return [(self._resume(time + self._faults.delay), n)]
        # All n messages in one computation: the bucket's state after them is one number.
        interval = 1e9 / self._faults.capacity
        self._ideal = max(self._ideal, time)
        taken = np.maximum(
            time, self._ideal + (np.arange(n) - (self._faults.capacity_depth - 1)) * interval
        )
        self._ideal += n * interval
        grains, counts = np.unique(np.ceil(taken / _GRAIN).astype(np.int64), return_counts=True)
        return [
            (self._resume(grain * _GRAIN + self._faults.delay), count)
            for grain, count in zip(grains.tolist(), counts.tolist(), strict=True)
        ]

    def _relay_time(self, time: int) -> int:
        """Convert the time since the first message to the relay's clock.

        That clock stops during a stall.
        """
        at = self._faults.stall_at
        duration = self._faults.stall_duration
        return time if time < at else max(at, time - duration)

    def _resume(self, time: int) -> int:
        """Convert a time of the relay's clock to ns.

        Messages due at the start of the stall leave after it.
        """
        stalled = self._faults.stall_duration if time >= self._faults.stall_at else 0
        return self._first + time + stalled


def damage(faults: Faults, batch: Batch) -> None:
    """Change bytes in place, according to ``corruptHeaderEvery`` and ``corruptBodyEvery``."""
    if faults.corrupt_header_every is None and faults.corrupt_body_every is None:
        return
    # Messages smaller than the full envelope have the compact one.
    head = np.where(batch.size < HEAD, COMPACT_HEAD, HEAD)
    head = np.minimum(head, batch.size)
    start = batch.offsets()[:-1]
    for every, offset, room in (
        (faults.corrupt_header_every, start, head),
        (faults.corrupt_body_every, start + head, batch.size - head),
    ):
        if every is not None:
            # The position advances by one byte with each selected message, so
            # that every byte is damaged at some time.
            hit = _hits(batch.seq, every) & (room > 0)
            batch.payload[offset[hit] + (batch.seq[hit] // every) % room[hit]] ^= _DAMAGE


def delivery_order(faults: Faults, batch: Batch) -> Index:
    """Return the index of the messages that are delivered, in the order of delivery.

    With swaps, losses and duplicates.
    """
    if faults.swap_every is None and faults.lose_every is None and faults.duplicate_every is None:
        return None
    index = np.arange(len(batch))
    if faults.swap_every is not None:
        # Sorted by stream, the messages of a pair are neighbours, whatever messages of other
        # streams are between them.
        by = np.argsort(batch.producer, kind="stable")
        seq = batch.seq[by]
        producer = batch.producer[by]
        pair = (
            _hits(seq[1:], 2 * faults.swap_every)
            & (seq[1:] == seq[:-1] + 1)
            & (producer[1:] == producer[:-1])
        )
        first = by[:-1][pair]
        second = by[1:][pair]
        index[first], index[second] = second, first
    # After the swaps, and before the duplicates: a lost message is
    # lost wherever it is, and has no copies.
    if faults.lose_every is not None:
        index = index[~_hits(batch.seq[index], faults.lose_every)]
    if faults.duplicate_every is not None:
        index = np.repeat(index, 1 + _hits(batch.seq[index], faults.duplicate_every))
    return index


class FaultyService:
    """The service between the inputs and the outputs of one run.

    :param faults: with ``service_…``.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._taken = 0
        self._free = [0] * faults.service_threads  # when each thread has nothing to do, ns

    def outputs(self, inputs: Batch, now: int) -> tuple[Batch, NDArray[np.int64]]:
        """Return the outputs of inputs that arrive at ``now``, and the time of each, ns."""
        faults = self._faults
        number = np.arange(self._taken, self._taken + len(inputs))
        self._taken += len(inputs)
        sent = self._sent(number, now)
        if faults.service_lose is None and faults.service_double is None:
            return inputs, sent
        copies = np.ones(len(inputs), np.int64)
        if faults.service_lose is not None:
            copies -= _hits(number, faults.service_lose)
        if faults.service_double is not None:
            copies += _hits(number, faults.service_double)
        index = np.repeat(np.arange(len(inputs)), copies)
        return inputs.take(index), sent[index]

    def _sent(self, number: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        """Return when the service is done with each input."""
        sent = np.empty(len(number), np.int64)
        free = self._free
        next_one = 0
        # An input that takes no time occupies no thread: only the slow ones are looked at singly.
        slow = self._faults.service_slow
        positions = [] if slow is None else np.flatnonzero(_hits(number, slow)).tolist()
        for position in positions:
            begin = max(now, min(free))
            sent[next_one:position] = begin
            sent[position] = begin + self._faults.service_slow_by
            free[free.index(min(free))] = int(sent[position])
            next_one = position + 1
        sent[next_one:] = max(now, min(free))
        return sent


class HalfPairs:
    """First messages of pairs that wait for the second, to be delivered after it.

    At most one of each stream.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        # Ends of the waits, ns. They are ascending, because all waits have the same length.
        none = self._until = np.empty(0, np.int64)
        self._batch = Batch(none, none, none, np.empty(0, np.int32), np.empty(0, np.uint8))

    @property
    def count(self) -> int:
        return len(self._until)

    def complete(self, batch: Batch, now: int) -> Batch:
        """Return the messages to deliver now.

        Those that waited for a message of ``batch``, and ``batch`` without those that must wait.
        """
        # Any message of the same stream ends the wait; delivery_order()
        # swaps the two only if they are a pair.
        ended = np.isin(self._batch.producer, batch.producer)
        whole = join_batches([self._batch.where(ended), batch])
        waits = self._wait(whole)
        self._until = np.concatenate(
            [self._until[~ended], np.full(np.count_nonzero(waits), now + HOLD)]
        )
        self._batch = join_batches([self._batch.where(~ended), whole.where(waits)])
        return whole.where(~waits)

    def _wait(self, batch: Batch) -> NDArray[np.bool_]:
        """Return a mask of the messages that are the first of a pair.

        They are the last of their stream in the batch.
        """
        by = np.argsort(batch.producer, kind="stable")
        producer = batch.producer[by]
        last = by[np.concatenate([producer[1:] != producer[:-1], [True]])]
        waits = np.zeros(len(batch), np.bool_)
        waits[last] = batch.seq[last] % (2 * self._every) == 2 * self._every - 2
        return waits

    def next_due(self) -> int | None:
        """Return when the first message has waited long enough, ns; None: no message waits."""
        return int(self._until[0]) if len(self._until) else None

    def expired(self, now: int) -> Batch:
        """Remove and return the messages that have waited long enough; they are delivered alone."""
        count = int(np.searchsorted(self._until, now, side="right"))
        expired, self._batch = self._batch.split(count)
        self._until = self._until[count:]
        return expired


def _hits(seq: NDArray[np.int64], every: int) -> NDArray[np.bool_]:
    hits: NDArray[np.bool_] = seq % every == every - 1
    return hits
