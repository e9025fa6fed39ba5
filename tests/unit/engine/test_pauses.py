"""A worker that is stopped at any time, on simulated sockets whose kernel merges the packets that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from engine_rig import make_pool
from hypothesis import given
from hypothesis import strategies as st
from null_driver import NullDriver

from pytest_loadtest.drivers.base import DriverContext, Joined, Received, TargetAddress
from pytest_loadtest.engine.receive import EXACT
from pytest_loadtest.engine.run import PAUSE, Engine, drive
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.engine.progress import Progress

COST = 20_000
"""ns, of a read, or of a look at the clock."""
POOL = make_pool()
CONSUMERS = 3


class Machine:
    """A clock, with times in which the process does not run. :param stops: begin and end of each, ns, ascending."""

    def __init__(self, stops: Sequence[tuple[int, int]]) -> None:
        self.now, self._stops = 0, stops

    def __call__(self) -> int:
        self.run(COST)
        return self.now

    def run(self, ns: int) -> None:
        """Let the process use this time of a core."""
        for begin, end in self._stops:
            if self.now < end and self.now + ns > begin:
                ns, self.now = ns - max(begin - self.now, 0), end
        self.now += ns

    def sleep(self, until: int) -> None:
        """Wake up at an instant, or when the process runs again."""
        self.now = max(self.now, until)
        self.run(0)
        for begin, end in self._stops:
            if begin <= self.now < end:
                self.now = end


class Packet(NamedTuple):
    arrived: int
    place: int
    merged: bool
    """It is merged with a packet of its connection that waits."""


class Sockets(NullDriver):
    """A driver that reads the packets of connections, one for each consumer, with the stamps that the kernel gives them."""

    def __init__(self, context: DriverContext, machine: Machine, packets: Sequence[Packet]) -> None:
        super().__init__(context)
        self._machine, self._coming = machine, list(enumerate(packets))
        self._waiting: list[list[tuple[int, Packet]]] = []
        self._read: list[tuple[int, int, int, int]] = []

    def poll(self, timeout_ns: int) -> None:
        """Read what has come, and wait for more, until the time is over."""
        machine = self._machine
        end = machine() + timeout_ns
        while True:
            self._arrive()
            if self._waiting:
                packets = self._waiting.pop(0)
                machine.run(COST)
                stamp = packets[-1][1].arrived
                self._read += [(number, packet.place, stamp, machine.now - stamp) for number, packet in packets]
            elif machine.now < end:
                machine.sleep(min(end, self._coming[0][1].arrived if self._coming else end))
            if machine.now >= end:
                return

    def _arrive(self) -> None:
        while self._coming and self._coming[0][1].arrived <= self._machine.now:
            number, packet = self._coming.pop(0)
            mine = [packets for packets in self._waiting if packets[0][1].place == packet.place]
            if packet.merged and mine:
                mine[-1].append((number, packet))
            else:
                self._waiting.append([(number, packet)])

    def take(self) -> Received | None:
        if not self._read:
            return None
        number, place, stamp, lag = np.array(self._read).T
        self._read = []
        n = len(number)
        heads = encode_heads(POOL, nonce=7, stream=np.zeros(n, np.int32), seq=number, intended=number * 0, payload=np.zeros(n, np.uint16))
        return Received(place.astype(np.int32), heads, np.full(n, 64, np.int32), stamp, np.zeros(n, np.int64), np.zeros(n, np.int8), lag)


class Rows:
    """A recorder of the received rows."""

    def __init__(self) -> None:
        self.columns: list[dict[str, NDArray[np.int64]]] = []

    def sent(self, block: object) -> None:
        """Keep nothing."""

    def received(self, columns: dict[str, NDArray[np.int64]]) -> None:
        self.columns.append(columns)

    def flush_if_due(self, now: int) -> None:
        """Do nothing."""


class Until:
    """Controls a phase that ends at an instant."""

    def __init__(self, machine: Machine, end: int) -> None:
        self._machine, self._end = machine, end

    def ended(self) -> bool:
        return self._machine.now >= self._end

    def changes(self) -> list[object]:
        return []

    def report(self, progress: Progress) -> None:
        """Do nothing."""


def received(stops: Sequence[tuple[int, int]], packets: Sequence[Packet], rate: int) -> tuple[NDArray[np.int64], ...]:
    """Return true arrival, stamp and lag of each packet. :param rate: of the messages that the worker itself sends."""
    machine, rows = Machine(stops), Rows()
    end = packets[-1].arrived + SECOND
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=CONSUMERS)
    context = DriverContext(
        target=TargetAddress(url="null://"), settings=None, clock=machine, run="r", nonce=7, worker="main", topology=topology, pool=POOL
    )
    driver = Sockets(context, machine, packets)
    opened = Joined(np.arange(CONSUMERS, dtype=np.int32), driver.open_consumers(range(CONSUMERS)))
    engine = Engine(Setup(
        driver=driver, clock=machine, pool=POOL, topology=topology, streams=range(1 if rate else 0), opened=opened, nonce=7, seed=1,
        key_distributor="NO_KEY", max_send_delay=10 * SECOND, ordered=False,
    ))  # fmt: skip
    phase = Phase(name="measure", duration=end, pacer=Pacer.of(rate or 1, 1), before=StreamCounts(streams=1), recorded=True)
    engine.begin(phase, 0, Until(machine, end), rows)  # type: ignore[arg-type]
    drive([engine], machine)
    seq, stamp, lag = (np.concatenate([columns[name] for columns in rows.columns]) for name in ("seq", "received", "lag"))
    assert sorted(seq) == list(range(len(packets)))
    return np.array([packet.arrived for packet in packets])[seq], stamp, lag.astype(np.int64) * MICROSECOND


@given(
    seed=st.integers(0, 2**32), rate=st.sampled_from([0, 10, 1000]), longest=st.sampled_from([5, 25, 100]), number=st.sampled_from([10, 300]),
    apart=st.sampled_from([20_000, MILLISECOND, 5 * MILLISECOND]), merged=st.sampled_from([0.2, 0.9, 1.0]),
)  # fmt: skip
def test_the_error_of_a_stamp_is_hardly_larger_than_its_lag(
    seed: int, rate: int, longest: int, number: int, apart: int, merged: float
) -> None:
    """However often and long the worker is stopped, and whatever it does else.

    :param rate: of the messages that it sends. :param longest: ms, of a stop. :param apart: ns between packets, half of it on average.
    """
    rng = np.random.default_rng(seed)
    gaps = np.column_stack([rng.integers(0, 40 * MILLISECOND, 5), rng.integers(0, longest * MILLISECOND, 5)])
    stops = np.cumsum(gaps.ravel()).reshape(-1, 2)
    arrived = np.cumsum(rng.integers(1, apart, number))
    columns = arrived.tolist(), rng.integers(0, CONSUMERS, number).tolist(), (rng.random(number) < merged).tolist()
    truth, stamp, lag = received(stops.tolist(), [Packet(*packet) for packet in zip(*columns, strict=True)], rate)
    assert (stamp >= truth).all()
    # The loop looks at its connections every PAUSE, and notices if it does so later by more than that.
    assert (stamp - truth <= np.maximum(lag, 2 * PAUSE) + EXACT).all()
    # A copy waits while the worker is stopped, and while others are read.
    assert (lag <= gaps[:, 1].sum() + 5 * 2 * PAUSE + 4 * number * COST).all()


def test_a_worker_that_is_never_stopped_has_no_late_stamp() -> None:
    packets = [Packet(at * MILLISECOND // 4, at % CONSUMERS, True) for at in range(1, 400)]
    truth, stamp, lag = received([], packets, 10)
    assert (stamp == truth).all()
    assert lag.max() < MILLISECOND
