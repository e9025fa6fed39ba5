"""A tap: consumers that read the inputs of a service while the run's own ones read its outputs.

Nothing is judged by it. It is a driver of its own, so that its messages wait for no others, and
others do not wait for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.message.envelope import OURS, decode_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Driver, DriverContext
    from pytest_loadtest.message.route import EnvelopePlace
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.topology import Topology

    Columns = dict[str, NDArray[Any]]


def tap_context(context: DriverContext) -> DriverContext:
    """Return the arguments of a tap's driver: one subscription of one consumer for each topic."""
    route = context.route
    assert route is not None
    topology = replace(context.topology, subscriptions=1, consumers=1, outputs=1, tapped=False)
    return replace(
        context,
        run=f"{context.run}-tap",
        topology=topology,
        route=replace(route, output=(route.input,), received=route.sent),
        tap=True,
    )


def tapped_topics(topology: Topology, consumers: NDArray[np.int32]) -> list[int]:
    """Return the topics that a worker taps: each is a topic of its own consumers, and workers with
    consumers of the same topics have equal numbers of them.

    :param consumers: those of the worker.
    """
    topic, number = np.divmod(consumers, topology.consumers_of_topic)
    topics: list[int] = topic[number == topic % topology.consumers_of_topic].tolist()
    return topics


class Tap:
    """The tap of one worker.

    :param place: the place of the envelope in inputs.
    """

    def __init__(self, driver: Driver, place: EnvelopePlace, nonce: int) -> None:
        self.driver = driver
        self._place = place
        self._nonce = nonce

    def open(self, topics: Sequence[int]) -> None:
        """Subscribe to the inputs of these topics."""
        self.driver.open_consumers(topics)

    def begin(self, phase: Phase) -> None:
        """Begin a phase, whose messages have sequences from ``phase.first`` on."""
        self._first = phase.first

    def collect(self) -> Columns | None:
        """Take arrivals from the driver; return the rows of the current phase, or None."""
        received = self.driver.take()
        if received is None:
            return None
        sizes = None if self._place.outside else received.size
        heads = decode_heads(received.heads, sizes, self._nonce)
        # The envelope's stream number is unsigned.
        ours = (heads.kind == OURS) & (heads.stream.view(np.uint32) < len(self._first))
        stream = np.where(ours, heads.stream, 0)
        ours &= heads.seq >= self._first.take(stream)
        columns: Columns = {
            "stream": heads.stream,
            "seq": heads.seq,
            "intended": heads.intended,
            "received": received.time,
        }
        return {name: column[ours] for name, column in columns.items()}
