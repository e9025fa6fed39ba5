"""The first foreign and the first corrupt messages that a worker receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.message.route import Carrier
from pytest_loadtest.metrics.strays import BEGINNING, NAMED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Received
    from pytest_loadtest.message.route import EnvelopePlace
    from pytest_loadtest.metrics.strays import StrayKind


class KeptMessage(NamedTuple):
    """A message that cannot be read.

    :param time: ns, when it arrived.
    :param consumer: the place of its consumer; its index in the run as of ``Inbox.take_strays``.
    :param size: bytes of its body.
    :param beginning: the first bytes of its body; None: unknown.
    """

    kind: StrayKind
    time: int
    consumer: int
    size: int
    beginning: bytes | None


class KeptMessages:
    """Keeps the first messages of each kind. :param envelope: the place of their envelopes."""

    def __init__(self, envelope: EnvelopePlace) -> None:
        self._envelope = envelope
        self._kept: dict[StrayKind, list[KeptMessage]] = {"foreign": [], "corrupt": []}

    def note(self, kind: StrayKind, received: Received, rows: NDArray[np.intp]) -> None:
        """Keep those of these rows that are among the first of their kind, by time."""
        kept = self._kept[kind]
        times = received.time[rows]
        if len(kept) == NAMED:
            # What arrived earlier may be taken later, from another connection.
            earlier = times < kept[-1].time
            rows, times = rows[earlier], times[earlier]
        for row in rows[np.argsort(times, kind="stable")][:NAMED].tolist():
            time = int(received.time[row])
            consumer = int(received.consumer[row])
            size = int(received.size[row])
            kept.append(KeptMessage(kind, time, consumer, size, self._beginning(received, row)))
        kept.sort(key=lambda message: message.time)
        del kept[NAMED:]

    def _beginning(self, received: Received, row: int) -> bytes | None:
        size = min(int(received.size[row]), BEGINNING)
        body = b""
        if received.bodies is not None:
            body = received.bodies(row)[:BEGINNING]
        if not body and self._envelope.carrier is Carrier.BODY:
            body = received.heads[row].tobytes()[:size]
        return body if body or not size else None

    def take(self) -> list[KeptMessage]:
        """Return the messages since the last call."""
        taken = [message for kept in self._kept.values() for message in kept]
        self._kept = {"foreign": [], "corrupt": []}
        return taken
