"""An engine over a null driver and a fake clock: runs with results that are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from null_driver import NullDriver
from numpy.typing import NDArray

from pytest_loadtest.drivers.base import DriverContext, Joined, TargetAddress
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import Engine
from pytest_loadtest.engine.run import drive as run_engines
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.message.payloads import build_pool
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.message.due import Delays
    from pytest_loadtest.schedule.changes import Change

Columns = dict[str, NDArray[Any]]


def make_pool(size: int = 64) -> Any:
    return build_pool(
        buckets=None, message_size=size, representative="midpoint", randomized=False, random_ratio=0.0, pool_size=1, file_content=None, seed=0,
        checksum=False, max_size=None,
    )  # fmt: skip


@dataclass
class DrainControl:
    """Controls a run of one worker, with the real rule for the end of a phase."""

    clock: FakeClock
    drain: Drain
    told: list[tuple[int, Change]] = field(default_factory=list)
    seen: list[Progress] = field(default_factory=list)
    phase_ended: bool = False

    def changes(self) -> list[Change]:
        """Return the changes that are due to be announced."""
        now = self.clock()
        due = [change for when, change in self.told if when <= now]
        self.told = [(when, change) for when, change in self.told if when > now]
        return due

    def ended(self) -> bool:
        return self.phase_ended

    def report(self, progress: Progress) -> None:
        self.seen.append(progress)
        self.phase_ended = self.drain.has_ended({"main": progress}, self.clock())


@dataclass
class Finished:
    """The results of a run."""

    sent: Columns
    received: Columns
    progress: list[Progress]
    engine: Engine


def drive(
    folder: Path, *, rate: float, seconds: float, latency: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None, window: int | None = None,
    streams: int = 2, max_send_delay: int = 10 * SECOND, deliver: bool = True, size: int = 64, keys: str = "NO_KEY", start: int = SECOND,
    drain_timeout: int = SECOND, warm_up: float = 0.0, change: Callable[[Phase], Phase] | None = None,
    told: Sequence[tuple[int, Change]] = (), pool: Any = None, delays: Delays | None = None, wall: int = 0,
) -> Finished:  # fmt: skip
    """Drive the phases with one worker, topic and subscription to their ends, and read the samples."""
    clock, pool = FakeClock(), pool or make_pool(size)
    topology = Topology(topics=1, partitions=1, producers=streams, subscriptions=1, consumers=1)
    context = DriverContext(
        target=TargetAddress(url="null://"), settings=None, clock=clock, run="r", nonce=7, worker="main", topology=topology, pool=pool,
    )  # fmt: skip
    driver = NullDriver(context, deliver=deliver, latency=latency, window=window)
    mine = range(streams)
    places = driver.open_consumers(range(1))
    driver.open_producers(mine)
    recorder = Recorder(folder, "main", pool, topology, mine)
    engine = Engine(Setup(
        driver=driver, clock=clock, pool=pool, topology=topology, streams=mine, opened=Joined(np.zeros(1, np.int32), places), nonce=7, seed=1,
        key_distributor=keys, max_send_delay=max_send_delay, ordered=True, delays=delays,
    ))  # fmt: skip
    before = StreamCounts(streams=streams)
    for name, length in (("warm-up", warm_up), ("measure", seconds)):
        if length:
            duration = int(length * SECOND)
            phase = Phase(
                name=name,
                duration=duration,
                pacer=Pacer.of(rate, streams),
                before=before,
                recorded=name == "measure",
            )
            if name == "measure" and change is not None:
                phase = change(phase)
            control = DrainControl(
                clock, Drain(name, 1, 1, drain_timeout), list(told if name == "measure" else ())
            )
            engine.begin(
                phase, clock() + start, control, recorder if phase.recorded else None, wall
            )
            run_engines([engine], clock)
            before = StreamCounts(streams=streams, counted=engine.sender.ends)
    recorder.close({"nonce": 7})
    return Finished(read(folder / "sent"), read(folder / "received"), control.seen, engine)


def read(folder: Path) -> Columns:
    """Return all rows of one kind, as columns."""
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    names = tables[0].column_names if tables else []
    return {name: np.concatenate([table[name].to_numpy() for table in tables]) for name in names}
