"""Helpers for drivers: answers and deliveries as columns, and the limit of windows.

A client library answers and delivers one message at a time; drivers return columns.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.base import Acks, Received
from pytest_loadtest.message import payloads
from pytest_loadtest.message.carried import body_tokens, carried_heads
from pytest_loadtest.message.route import IN_BODY, EnvelopePlace
from pytest_loadtest.message.samples import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class AnswerColumns:
    """Answers to all producers, collected until they are taken."""

    # Lists, because an append takes less than half of an assignment to an element of a numpy array
    # (measured: 10 against 26 ns).

    def __init__(self) -> None:
        self._row: list[int] = []
        self._time: list[int] = []
        self._status: list[int] = []
        self._resends: dict[int, int] = {}  # index of the answer → number of resends, where not 0

    def add(self, rows: Sequence[int], time: int, status: int, resends: int = 0) -> None:
        """Add answers that came at one instant. :param resends: resends of the first one."""
        if resends:
            self._resends[len(self._row)] = resends
        self._row.extend(rows)
        self._time.extend([time] * len(rows))
        self._status.extend([status] * len(rows))

    def add_one(self, row: int, time: int, status: int, resends: int = 0) -> None:
        if resends:
            self._resends[len(self._row)] = resends
        self._row.append(row)
        self._time.append(time)
        self._status.append(status)

    def take(self) -> Acks | None:
        """Return the answers since the last call as columns, or None."""
        if not self._row:
            return None
        # Resends are rare: without any, the column is left out,
        # and the dict costs nothing per answer.
        row = self._row
        time = self._time
        status = self._status
        again = self._resends
        self._row = []
        self._time = []
        self._status = []
        self._resends = {}
        resends = np.zeros(len(row), np.uint8) if again else None
        if resends is not None:
            resends[list(again)] = list(again.values())
        return Acks(
            np.array(row, np.int64), np.array(time, np.int64), np.array(status, np.int8), resends
        )


class ArrivedMessages:
    """Received messages, collected until they are taken: lists of one length.

    :param checksum: bodies end in a checksum to verify.
    :param envelope_place: the place of their envelopes.
    :ivar place: place of the consumer.
    :ivar time: ns.
    :ivar payload: the whole body.
    :ivar carried: the value outside of the body that has the envelope; empty if the body has it.
    :ivar flags: ``Flag`` as the broker marked it.
    :ivar order: the group in which order is judged; empty if it is one for all messages.
    """

    def __init__(self, *, checksum: bool = False, envelope_place: EnvelopePlace = IN_BODY) -> None:
        self._checksum = checksum
        self._envelope_place = envelope_place
        self._tokens = body_tokens(envelope_place)
        self.place: list[int] = []
        self.time: list[int] = []
        self.payload: list[bytes] = []
        self.carried: list[bytes] = []
        self.flags: list[int] = []
        self.order: list[int] = []

    def add(self, place: int, time: int, payload: Sequence[bytes]) -> None:
        """Add messages that one consumer received at one instant.

        None of them is marked as redelivered.
        """
        self.place.extend([place] * len(payload))
        self.time.extend([time] * len(payload))
        self.payload.extend(payload)
        self.flags.extend([0] * len(payload))

    def take(self) -> Received | None:
        """Return the messages since the last call as columns, or None."""
        if not self.time:
            return None
        place = self.place
        time = self.time
        payload = self.payload
        carried = self.carried
        flag = self.flags
        groups = self.order
        self.place = []
        self.time = []
        self.payload = []
        self.carried = []
        self.flags = []
        self.order = []
        count = len(time)
        values = carried if self._envelope_place.outside else payload
        if self._tokens is not None:
            find = self._tokens.digits
            values = [find(data, 0, len(data)) for data in payload]
        flags = np.array(flag, np.int8)
        if self._checksum:
            flags[[i for i, data in enumerate(payload) if not payloads.body_ok(data)]] |= (
                Flag.CORRUPT
            )
        return Received(
            consumer=np.array(place, np.int32),
            heads=carried_heads(self._envelope_place.carrier, values),
            size=np.fromiter(map(len, payload), np.int32, count),
            time=np.array(time, np.int64),
            order=np.array(groups, np.int64) if groups else np.zeros(count, np.int64),
            flags=flags,
            bodies=payload.__getitem__,
        )


def choose_received(received: Received, mask: NDArray[np.bool_]) -> Received:
    """Return some of the messages."""
    columns = {name: column[mask] for name, column in _columns(received).items()}
    bodies = received.bodies
    if bodies is None:
        return Received(**columns)
    rows = np.flatnonzero(mask)
    return Received(**columns, bodies=lambda row: bodies(int(rows[row])))


def join_received(parts: Sequence[Received]) -> Received | None:
    """Concatenate arrivals; None if there are none. Of several parts no body is known."""
    if len(parts) < 2:
        return parts[0] if parts else None
    columns: dict[str, Any] = {}
    for name in _columns(parts[0]):
        columns[name] = np.concatenate([getattr(part, name) for part in parts])
    return Received(**columns)


def _columns(received: Received) -> dict[str, Any]:
    """Return the columns by name; a lag that is unknown for all is left out."""
    columns = {column.name: getattr(received, column.name) for column in fields(Received)}
    del columns["bodies"]
    if received.lag is None:
        del columns["lag"]
    return columns


def positions_without_room(
    stream: NDArray[np.integer], room: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the ascending positions of messages that exceed the room of their stream.

    All after its first ``room[stream]``.

    :param stream: stream of each message, as an index into ``room``.
    :param room: number of messages that each stream can take now.
    """
    # Fast path, taken by nearly every burst: even if all
    # messages were of one stream, they would fit.
    if not len(stream) or int(room.take(stream).min()) >= len(stream):
        return np.empty(0, np.int64)
    # The rank of a message among those of its stream, by a stable sort that brings them together.
    order = np.argsort(stream, kind="stable")
    ordered = stream[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    rank = np.arange(len(stream)) - np.repeat(starts, np.diff(starts, append=len(stream)))
    return np.sort(order[rank >= room[ordered]])
