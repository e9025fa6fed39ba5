"""Several workloads of one worker, driven by one loop."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from engine_rig import DrainControl, make_pool
from null_driver import NullDriver

from pytest_loadtest.drivers.base import DriverContext, Joined, TargetAddress
from pytest_loadtest.engine.run import Engine, drive
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


class Polled(NullDriver):
    """A driver that notes when it is polled, which keeps its connections alive."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._time, self.at = context.clock, [context.clock()]

    def poll(self, timeout_ns: int) -> None:
        self.at.append(self._time())
        assert self.at[-10:] != [self.at[-1]] * 10, "the loop turns while no time passes"
        super().poll(timeout_ns)


def begin(engine: Engine, clock: FakeClock, rate: float, duration: int) -> None:
    """Begin a phase of a number of messages per second."""
    phase = Phase(
        name="p", duration=duration, pacer=Pacer.of(rate, 1), before=StreamCounts(streams=1), recorded=False,
    )  # fmt: skip
    engine.begin(phase, clock(), DrainControl(clock, Drain("p", 1, 1, SECOND)), None)


def engine_on(clock: FakeClock) -> tuple[Engine, Polled]:
    """Return an engine, connected and ready, and its driver."""
    pool, topology = (
        make_pool(),
        Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1),
    )
    driver = Polled(
        DriverContext(
            target=TargetAddress(url="null://"),
            settings=None,
            clock=clock,
            run="r",
            nonce=7,
            worker="main",
            topology=topology,
            pool=pool,
        )
    )
    opened = Joined(np.zeros(1, np.int32), driver.open_consumers(range(1)))
    driver.open_producers(range(1))
    made = Setup(
        driver=driver, clock=clock, pool=pool, topology=topology, streams=range(1), opened=opened, nonce=7, seed=1, key_distributor="NO_KEY",
        max_send_delay=SECOND, ordered=True,
    )  # fmt: skip
    return Engine(made), driver


def test_connections_are_served_while_another_workload_has_a_phase() -> None:
    """Those of a workload without a phase, and of one whose phase has ended: a broker disconnects
    silent clients.
    """
    clock = FakeClock()
    (short, first), (long, second), (_, idle) = (engine_on(clock) for _ in range(3))
    begin(short, clock, 10, SECOND)
    begin(long, clock, 10, 90 * SECOND)
    drive([short, long], clock, [idle])
    assert clock() > 90 * SECOND
    for driver in (first, second, idle):
        assert max(later - at for at, later in pairwise([*driver.at, clock()])) <= 200 * MILLISECOND


def test_a_wait_that_two_drivers_share_ends_when_a_message_is_due() -> None:
    """The last message is due in the last tick of the phase, an odd number of ns later: two equal
    whole shares rounded down do not reach that instant.
    """
    clock = FakeClock()
    engines = [engine_on(clock)[0] for _ in range(2)]
    for engine in engines:
        begin(engine, clock, 999.9, 600 * MILLISECOND)
    drive(engines, clock)
    assert [engine.sender.counts.sent for engine in engines] == [600, 600]
