"""A driver without a target, for the engine's own cost and for runs with known latencies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from null_target import DueRows, Members, Windows, concatenate_columns

from pytest_loadtest.drivers.base import Acks, DriverFacts, Joined, Received
from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing.rig import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from null_target import Columns
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Burst, DriverContext

Latency = Callable[["NDArray[np.int64]"], "NDArray[np.int64]"]


class NullDriver:
    """Takes everything that the windows allow and answers after ``latency``, in memory; no target, no threads.

    :param deliver: hand every message to this driver's own consumers: each subscription of the topic, shared by stream modulo consumers.
    :param latency: sequence numbers → ns from sent to acked and to received, each stamped exactly then; None: 0.
    :param window: messages that one stream may have in flight; None: no bound, and ``idle`` stays 0.

    With a :class:`FakeClock`, ``poll`` lets exactly its time-out pass; with a real clock it sleeps.
    """

    def __init__(
        self,
        context: DriverContext,
        *,
        deliver: bool = True,
        latency: Latency | None = None,
        window: int | None = None,
    ) -> None:
        self._context, self._clock, self._latency = context, context.clock, latency
        self._windows = None if window is None else Windows(window, context.topology.streams)
        self._members = Members(context.topology)
        self._deliver = deliver
        self._answers = DueRows(steady=latency is None)  # time, row, stream
        self._answered: list[Columns] = []
        self._copies = DueRows(steady=latency is None)  # time, place, head, size
        self._seen: list[Columns] = []
        self._paused: set[int] = set()
        self._joined: list[Joined] = []

    def facts(self) -> DriverFacts:
        return DriverFacts(client="null", version="1")

    def prepare(self) -> None:
        """Do nothing: there is no target."""

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Establish all consumers at once."""
        return self._members.join(np.array(consumers, np.int32))

    def open_producers(self, streams: Sequence[int]) -> None:
        """Do nothing: every stream may send at any time."""

    def attach(self, consumers: Sequence[int]) -> None:
        """Establish more consumers."""
        if consumers:
            self._joined.append(
                Joined(np.array(consumers, np.int32), self.open_consumers(consumers))
            )

    def attached(self) -> Joined | None:
        """Return the consumers of :meth:`attach` since the last call, or None."""
        done, self._joined = self._joined, []
        return Joined(*map(np.concatenate, zip(*done, strict=True))) if done else None

    def detach(self, places: Sequence[int]) -> None:
        """Give their remaining messages to the first other consumer of the subscription, or keep them if there is none."""
        self._look()
        self.resume([place for place in places if place in self._paused])
        heirs = self._members.leave(np.array(places, np.int32))
        if (copies := self._copies.everything()) is not None:
            due, place, *rest = copies
            self._copies.add(due, heirs[place], *rest)

    def pause(self, places: Sequence[int]) -> None:
        """Stop consumers; their earlier arrivals can still be taken."""
        self._look()
        self._paused.update(places)

    def resume(self, places: Sequence[int]) -> None:
        """Continue; messages that came during the pause get the present time."""
        self._paused.difference_update(places)
        if len(places) and (copies := self._copies.everything()) is not None:
            due, place, *rest = copies
            self._copies.add(
                np.where(np.isin(place, places), np.maximum(due, self._clock()), due), place, *rest
            )

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Take the messages that the windows allow, all at the same time.

        :returns: the positions of the rest, ascending int64, or None if there is no rest.
        """
        now, refused = self._clock(), None
        keep: slice | NDArray[np.int64] = slice(None)
        if self._windows is not None:
            self._settle(now)
            refused = self._windows.admit(burst)
            if refused is not None:
                keep = np.delete(np.arange(len(burst)), refused)
        burst.sent[keep] = now
        row, stream, seq = burst.row[keep].copy(), burst.stream[keep].copy(), burst.seq[keep]
        due = np.full(len(row), now) if self._latency is None else now + self._latency(seq)
        self._answers.add(due, row, stream)
        if self._deliver and self._members.present:
            payload = burst.payload[keep]
            heads = envelope.encode_heads(
                self._context.pool,
                nonce=self._context.nonce,
                stream=stream,
                seq=seq,
                intended=burst.intended[keep],
                payload=payload,
            )
            self._hand_out(stream, due, heads, self._context.pool.sizes.take(payload))
        return refused

    def _hand_out(self, stream: NDArray[np.int32], *message: NDArray[Any]) -> None:
        """Add a copy of each message for one consumer of each subscription; ``message``: columns due, head and size."""
        which, place = self._members.serve(stream)
        due, heads, size = message if which is None else (column[which] for column in message)
        self._copies.add(due, place, heads, size)

    def _settle(self, now: int) -> None:
        """Answer the messages that are due, and free their windows."""
        if (came := self._answers.take(now)) is not None:
            self._answered.append(came)
            if self._windows is not None:
                self._windows.release(came[2], came[0])

    def acks(self) -> Acks | None:
        """Return the new answers, or None."""
        self._settle(self._clock())
        if not self._answered:
            return None
        due, row, _ = concatenate_columns(self._answered)
        self._answered.clear()
        return Acks(row, due, np.full(len(row), Status.ACKED, np.int8))

    def _look(self) -> None:
        """Move the copies that are due to the seen ones, except those of paused consumers."""
        if (came := self._copies.take(self._clock())) is None:
            return
        if self._paused:
            held = np.isin(came[1], list(self._paused))
            self._copies.add(*(column[held] for column in came))
            came = tuple(column[~held] for column in came)
        if len(came[0]):
            self._seen.append(came)

    def take(self) -> Received | None:
        """Return the new arrivals, or None."""
        self._look()
        if not self._seen:
            return None
        due, place, heads, size = concatenate_columns(self._seen)
        self._seen.clear()
        return Received(
            place, heads, size, due, np.zeros(len(due), np.int64), np.zeros(len(due), np.int8)
        )

    def poll(self, timeout_ns: int) -> None:
        """Let exactly this time pass with a fake clock, or sleep."""
        if isinstance(self._clock, FakeClock):
            self._clock.sleep(timeout_ns)
        elif timeout_ns > 0:
            time.sleep(timeout_ns / 1e9)

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Return nothing: they are unknown."""
        return {}

    def disconnected(self) -> str | None:
        """Return None: there is no connection to lose."""
        return None

    def close(self) -> None:
        """Deliver nothing more; earlier arrivals can still be taken."""
        self._members.leave_all()

    def cleanup(self) -> None:
        """Do nothing: there is nothing to remove."""
