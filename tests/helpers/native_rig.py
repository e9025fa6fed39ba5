"""The native driver with fake brokers, and a clock that tests can advance."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, Received, TargetAddress
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.message import payloads
from pytest_loadtest.message.envelope import Heads, decode_heads
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fake_pulsar import FakeBroker, Peer

    from pytest_loadtest.message.route import Route

NONCE, ROW = 7, 1000
PATIENCE = 20  # s of real time that nothing here needs


class MovedClock:
    """The machine's clock, plus a day and the time that a test added.

    The day keeps the past of a test, such as an hour ago, above 0 on a machine that was started a minute ago.
    """

    def __init__(self) -> None:
        self.ahead = 24 * 3600 * SECOND

    def __call__(self) -> int:
        return time.monotonic_ns() + self.ahead

    def advance(self, ns: int) -> None:
        """Add time to the clock."""
        self.ahead += ns


def pool_of(size: int = 64) -> payloads.PayloadPool:
    return payloads.build_pool(
        buckets=None,
        message_size=size,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
    )


class Faulty:
    """A driver, and its acknowledgements and arrivals so far."""

    def __init__(
        self, url: str, clock: MovedClock, size: int = 64, name: str | None = None, count: int = 4, sources: tuple[str, ...] = (),
        route: Route | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        self.clock, self.pool = clock, pool_of(size)
        chosen = PulsarSettings(
            **{"operation_timeout": 600 * SECOND, "send_timeout": 0, "batching_enabled": False}
            | settings
        )
        topology = Topology(
            topics=1, partitions=1, producers=count, subscriptions=1, consumers=count, name=name
        )
        self.driver = NativePulsarDriver(
            DriverContext(
                target=TargetAddress(url=url), settings=chosen, clock=self.clock, run="r", nonce=NONCE, worker="gw0",
                topology=topology, pool=self.pool, sources=sources, route=route,
            )
        )  # fmt: skip
        self._next = 0
        self.acks: list[Acks] = []
        self.received: list[Received] = []

    def until(self, done: Callable[[], object], what: str, *, step: int = 0) -> None:
        """Poll until ``done`` returns something true; each turn adds ``step`` ns to the clock."""
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, f"not {what}: {self.driver.disconnected()}"
            self.clock.advance(step)
            self.turn()

    def turn(self) -> None:
        """Poll once, and keep the results."""
        self.driver.poll(MILLISECOND)
        if (acks := self.driver.acks()) is not None:
            self.acks.append(acks)
        if (received := self.driver.take()) is not None:
            self.received.append(received)

    def send(self, count: int, stream: int = 0, intended: int | None = None) -> list[int]:
        """Send more messages of a stream. :param intended: of all; None: some time in the past. :returns: positions of the rejected ones."""
        n = np.arange(self._next, self._next + count)
        self._next += count
        sent, idle = np.zeros((2, count), np.int64)
        refused = self.driver.send(
            Burst(
                row=n + ROW, stream=np.full(count, stream, np.int32), seq=n.copy(),
                intended=n + 1 if intended is None else np.full(count, intended), payload=np.zeros(count, np.uint16), sent=sent, idle=idle,
            )
        )  # fmt: skip
        return [] if refused is None else refused.tolist()

    def answers(self) -> list[tuple[int, int, int]]:
        """Return number, status and resends of each answered message, in order."""
        found = []
        for part in self.acks:
            resends = np.zeros(len(part.row), np.uint8) if part.resends is None else part.resends
            found += zip(
                (part.row - ROW).tolist(), part.status.tolist(), resends.tolist(), strict=True
            )
        return found

    @property
    def heads(self) -> Heads:
        """The heads of all arrivals."""
        heads, size = (
            np.concatenate([getattr(part, name) for part in self.received])
            for name in ("heads", "size")
        )
        return decode_heads(heads, size, NONCE)

    def column(self, name: str) -> list[int]:
        """Return a column of all arrivals."""
        return [value for part in self.received for value in getattr(part, name).tolist()]


@contextmanager
def faulty(
    broker: FakeBroker | str,
    *,
    streams: int = 0,
    consumers: int = 0,
    clock: MovedClock | None = None,
    **more: Any,
) -> Iterator[Faulty]:
    """Open a driver with this number of producers and consumers, and close it at the end."""
    made = Faulty(broker if isinstance(broker, str) else broker.url, clock or MovedClock(), **more)
    try:
        made.driver.open_consumers(range(consumers))
        made.driver.open_producers(range(streams))
        yield made
    finally:
        made.driver.close()


def entries(broker: FakeBroker, count: int, batch: int = 0, size: int = 64) -> list[bytes]:
    """Return entries of one producer, each of one message or of a ``batch``, as the broker would store them."""
    settings: dict[str, Any] = {
        "batching_enabled": batch > 0,
        "batching_max_messages": batch or 1000,
        "max_pending_messages": 10_000,
    }
    before = len(broker.seen)
    with faulty(broker, streams=1, size=size, **settings) as r:
        r.send(count * max(batch, 1))
        r.until(lambda: len(r.answers()) == count * max(batch, 1), "answered")
    return [seen.body for seen in broker.seen[before:] if seen.kind == "SEND"]


def asked(broker: FakeBroker) -> list[int]:
    """Return the permits of each request for messages."""
    return [flow.message_permits for flow in broker.of("FLOW")]


def peer_of(broker: FakeBroker, consumer: int = 0) -> Peer:
    """Return the connection on which this consumer subscribed last."""
    return [
        seen.peer
        for seen in broker.seen
        if seen.kind == "SUBSCRIBE" and seen.said.consumer_id == consumer
    ][-1]


def seqs(r: Faulty) -> list[int]:
    """Return the sequences received so far."""
    return r.heads.seq.tolist() if r.received else []


def acknowledged(broker: FakeBroker) -> list[int]:
    """Return the entries that consumers acknowledged."""
    return [where.entry_id for ack in broker.of("ACK") for where in ack.message_id]
