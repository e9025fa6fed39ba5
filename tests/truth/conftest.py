"""Whole runs in this process: the fleet of one, real targets, real samples, the real aggregation by Spark and the real rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.fleet.conductor import Conductor, Options
from pytest_loadtest.fleet.local import LocalFleet
from pytest_loadtest.fleet.orders import Request

if TYPE_CHECKING:
    import pyarrow as pa

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.measurements import Measurements
    from pytest_loadtest.plan import Plan
    from pytest_loadtest.result import Load
    from pytest_loadtest.slo import Verdict

# Where a test is not about the generator, a busy machine must not make it one.
PATIENT = "generator: {sendDelayP99: 5s, stalled: 0.9, cpu: 5}"

Act = Callable[["Progress"], None]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run that came to a verdict, and where it left its samples."""

    load: Load
    folder: Path

    @property
    def measurements(self) -> Measurements:
        return self.load.measurements

    @property
    def verdict(self) -> Verdict:
        return self.load.verdict

    def samples(self, kind: str) -> pa.Table:
        """All rows of ``sent`` or ``received``."""
        return pq.read_table(self.folder / kind)

    def lost(self) -> list[tuple[int, int]]:
        """Stream and sequence of every lost message, from the ranges of the measurements."""
        return sorted((lost.stream, seq) for lost in self.measurements.lost for seq in range(lost.first, lost.last + 1))


class Watcher:
    """Where a live line would be: lets a test act on the progress of the run."""

    act: Act | None = None

    def show(self, nodeid: str, plan: Plan, progress: Sequence[Progress]) -> None:
        if self.act is not None:
            self.act(progress[0])

    def say(self, text: str) -> None:
        pass


class Bench:
    """Runs profiles one after another, all in this process."""

    def __init__(self, results: Path, *, force: bool = False) -> None:
        self._watcher = Watcher()
        options = Options(
            results=results, scale=None, duration=None, force=force, broker="process", target=None, admin=None,
            spark_master="local[2]", spark_remote=None, spark_conf={"spark.driver.memory": "1g"},
        )  # fmt: skip
        self.conductor = Conductor(options, self._watcher)  # type: ignore[arg-type]
        self._fleet = LocalFleet(self.conductor)
        self._runs = 0

    def run(self, text: str, *, target: str | None = None, act: Act | None = None) -> Judged:
        """Drive one profile, judge it.

        :param target: URL of a running broker; without it the run has its own.
        :param act: called with every progress of the only worker.
        """
        profile = profiles.loads(text, "truth.yaml")
        self._runs += 1
        self._watcher.act = act
        try:
            outcome = self._fleet.run(Request(nodeid=f"run-{self._runs}", attempt=1, profile=profile, source="truth.yaml", target=target))
        finally:
            self._watcher.act = None
        return Judged(load=outcome.load, folder=Path(self.conductor.documents[-1]["results"]))

    def close(self) -> None:
        self._fleet.close()
        self.conductor.close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for the session: Spark and the targets are started once."""
    made = Bench(tmp_path_factory.mktemp("truth"))
    yield made
    made.close()
