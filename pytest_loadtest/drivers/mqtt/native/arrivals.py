"""Messages that all consumers of a driver got, until they are taken as columns."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.samples import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.wire.mqtt.reading import Message

    Arrival = tuple[int, bytes, int]
    """A message: bytes of the payload, the first ones of them, flags."""

_NOWHERE: Final = -1  # instead of a place, as long as the consumer has none
_REDELIVERED, _CORRUPT = int(Flag.REDELIVERED), int(Flag.CORRUPT)


class ArrivalColumns:
    """Messages until they are taken; those of a consumer that has no place yet wait for it.

    :param checksum: bodies are verified.
    """

    def __init__(self, *, checksum: bool) -> None:
        self._checksum = checksum
        self._came: list[tuple[int, int, Arrival]] = []  # number of the connection, instant in ns
        self._places = np.full(0, _NOWHERE, np.int32)  # by number of the connection

    def settle(self, number: int, place: int) -> None:
        """The consumer with that connection has its place now."""
        self._know(number)
        self._places[number] = place

    def _know(self, number: int) -> None:
        if number >= len(self._places):
            self._places = np.append(self._places, np.full(2 * number + 64 - len(self._places), _NOWHERE, np.int32))

    def of(self, data: bytes, messages: Sequence[Message]) -> list[Arrival]:
        """These messages in ``data``, for as many consumers as get them."""
        found = []
        for _, dup, _, start, end in messages:
            flags = _REDELIVERED if dup else 0
            if self._checksum and not body_ok(data[start:end]):
                flags |= _CORRUPT
            found.append((end - start, data[start : min(start + HEAD, end)], flags))
        return found

    def add(self, number: int, time: int, arrivals: Sequence[Arrival]) -> None:
        """The connection with that number read them then."""
        for arrival in arrivals:
            self._came.append((number, time, arrival))

    def take(self) -> Received | None:
        """All that came to consumers with a place, or None."""
        if not self._came:
            return None
        came, self._came = self._came, []
        number, time, arrivals = zip(*came, strict=True)
        self._know(max(number))
        place = self._places.take(number)
        here = place != _NOWHERE
        if not here.all():
            self._came = list(compress(came, ~here))
            if not here.any():
                return None
            place = place[here]
            _, time, arrivals = zip(*compress(came, here), strict=True)
        size, heads, flags = zip(*arrivals, strict=True)
        padded = heads if min(size) >= HEAD else (head.ljust(HEAD, b"\0") for head in heads)
        return Received(
            consumer=place, heads=np.frombuffer(b"".join(padded), np.uint8).reshape(len(place), HEAD), size=np.array(size, np.int32),
            time=np.array(time, np.int64), order=np.zeros(len(place), np.int64), flags=np.array(flags, np.int8),
        )  # fmt: skip
