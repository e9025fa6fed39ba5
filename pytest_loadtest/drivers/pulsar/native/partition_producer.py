"""One producer at one partition: what it has sent and what is not answered, which it sends again after a loss."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers.pulsar.native.attachment import Attachment
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.entries import EntrySealer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster
    from pytest_loadtest.drivers.pulsar.native.packing import Buffer


class Unanswered:
    """An entry, or a message in chunks, that the broker has not answered.

    :param receipts: that it takes. :ivar sends: how often it was written to a connection. :ivar left: receipts still to come.
    """

    __slots__ = ("count", "frame", "left", "place", "receipts", "rows", "sends", "sequence", "since", "size")

    def __init__(
        self, place: int, sequence: int, rows: NDArray[np.int64], size: int, since: int, frame: tuple[Buffer, ...], receipts: int = 1
    ) -> None:
        self.place, self.sequence, self.rows, self.count, self.size, self.since = place, sequence, rows, len(rows), size, since
        self.frame, self.sends, self.receipts, self.left = frame, 0, receipts, receipts


class PartitionProducer(Attachment):
    """Its number is its place among the worker's.

    :ivar sequence: of its next message. :ivar unanswered: the oldest first; None: it has sent nothing yet.
    """

    __slots__ = ("_epoch", "_registered", "sealer", "sequence", "unanswered")
    kind = "producer"

    def __init__(self, cluster: Cluster, topic: str, number: int, name: str) -> None:
        super().__init__(cluster, topic, number, name)
        self.sealer: EntrySealer | None = None
        self.sequence, self._epoch, self._registered = 0, 0, ""
        self.unanswered: deque[Unanswered] | None = None

    def command(self, request: int) -> api.Command:
        """Under the name that the broker gave at first, so that it knows what it has of us already."""
        made = api.Producer(
            topic=self.topic, producer_id=self.number, request_id=request, epoch=self._epoch, user_provided_producer_name=False
        )
        if self._registered:
            made.producer_name = self._registered
        return api.Command(type=api.Command.PRODUCER, producer=made)

    def attached(self, answer: Any) -> None:
        """Send again what was not answered."""
        if self.sealer is None:
            self._registered = answer.producer_name
            self.sealer = EntrySealer.of(self.number, self._registered)
        self._epoch += 1
        assert self.link is not None
        for entry in self.unanswered or ():
            entry.sends += 1
            entry.left = entry.receipts
            self.link.connection.add(entry.frame)
        self._cluster.flush(self.link)

    def send(self, entry: Unanswered) -> bool:
        """It is to go. :returns: whether it goes now, on ``link``; otherwise as soon as there is one."""
        if self.unanswered is None:
            self.unanswered = deque()
        self.unanswered.append(entry)
        self.sequence += entry.count
        if self.link is None:
            return False
        entry.sends = 1
        self.link.connection.add(entry.frame)
        return True

    def answered(self, sequence: int) -> Unanswered | None:
        """The broker has answered the entry of this sequence, with all its chunks; None where it was answered or given up before, or where
        chunks are left.

        :raises ValueError: an older one was not answered yet.
        """
        unanswered = self.unanswered
        if not unanswered or sequence < unanswered[0].sequence:
            return None
        if sequence > unanswered[0].sequence:
            raise ValueError(f"entry {sequence} was answered before entry {unanswered[0].sequence}")
        unanswered[0].left -= 1
        return None if unanswered[0].left else unanswered.popleft()
