"""Whole runs in this process: a fleet of one, real targets, real samples, the real rules.

The samples are measured by the numpy definitions (``stats.measure``) instead of Spark: ``tests/pipeline`` proves that both give the same
to the bit, and a JVM would add nothing here but time. Folder checks are the pipeline's own. ``tests/faults`` goes through
whole sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from numpy_aggregation import NumpyAggregation, measured, samples

from pytest_loadtest import brokers
from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.fleet.local import LocalFleet
from pytest_loadtest.fleet.messages import Part, Request, RunResult
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.fleet.run_controller import RunController
from pytest_loadtest.fleet.run_results import RunResults
from pytest_loadtest.pipeline.run_file import RunFile
from pytest_loadtest.results.load import Load
from pytest_loadtest.verdict import slo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.run_states import Run
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.plan.phases import Phase

Act = Callable[["Progress"], None]

ATTEMPTS = 4


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run with a verdict, and the folder of its samples."""

    load: Load
    folder: Path

    @property
    def measurements(self) -> Measurements:
        return self.load.measurements

    @property
    def outcome(self) -> slo.Outcome:
        return self.load.verdict.outcome

    def missed(self) -> dict[str, str]:
        """Return name and text of every objective that was missed."""
        return {
            finding.objective.name: finding.text
            for finding in self.load.verdict.having(slo.Outcome.MISSED)
        }

    def lost(self) -> list[tuple[int, int]]:
        """Return stream and sequence of every lost message, from the ranges of the measurements."""
        return sorted(
            (lost.stream, seq)
            for lost in self.measurements.lost
            for seq in range(lost.first, lost.last + 1)
        )

    def samples(self, kind: str) -> Mapping[str, NDArray[np.int64]]:
        return samples(self.folder, kind)

    @property
    def longest_stall(self) -> int:
        """Longest delay of a wake-up of the generator's loop, ns: caused by the machine, not by the target."""
        return max(worker.longest_stall for worker in self.measurements.workers)


class Watcher:
    """Takes the place of the live line, so that a test can act on the progress of a run."""

    act: Act | None = None

    def show(
        self, profile: str, phase: Phase, progress: Sequence[Progress], drain: str | None = None
    ) -> None:
        if self.act is not None:
            self.act(progress[0])

    def announce(self, text: str, *, quiet: bool = False) -> None:
        pass


class NumpyRunController(RunController):
    """A run controller with numpy instead of Spark."""

    def __init__(self, options: Options, live: Any) -> None:
        super().__init__(options, live)
        self.spark = NumpyAggregation(options.results, options, live.announce)  # type: ignore[assignment]
        self._results = RunResults(self.outputs, self.spark.measure)

    def _judge(self, run: Run) -> RunResult:
        folder = self._planned[run.key].workloads[0].folder
        profile, measurements = (
            profiles.from_document(RunFile.read(folder).profile),
            measured(folder)[0],
        )
        verdict = slo.evaluate(profile.objectives, measurements, profile.generator)
        load = Load(profile_name=profile.name, observed=measurements, verdict=verdict)
        return RunResult(load=load, properties=(("folder", str(folder)),))


class Bench:
    """Runs profiles one after another, all in this process."""

    def __init__(self, results: Path, *, force: bool = True) -> None:
        self._watcher = Watcher()
        options = Options(results=results, force=force)
        self._run_controller = NumpyRunController(options, self._watcher)  # type: ignore[arg-type]
        self._fleet = LocalFleet(self._run_controller)
        self._runs = 0

    def run(self, text: str, *, target: str | None = None, act: Act | None = None) -> Judged:
        """Drive one profile and judge it.

        :param target: URL of a running broker; without it the run starts its own.
        :param act: called with each progress of the only worker, in the thread that drives load.
        """
        profile = profiles.loads(text, "truth.yaml")
        self._runs += 1
        self._watcher.act = act
        try:
            outcome = self._fleet.run(
                Request(
                    nodeid=f"run-{self._runs}",
                    attempt=1,
                    profile=profile,
                    parts=(Part(profile=profile),),
                    source="truth.yaml",
                    target=target,
                )
            )
        finally:
            self._watcher.act = None
        return Judged(load=outcome.load, folder=Path(dict(outcome.properties)["folder"]))

    def quiet(
        self, drive: Callable[[], Judged], stall: int, report: Callable[[str, object], None]
    ) -> Judged:
        """Return a run in which the longest stall of the generator was at most ``stall`` ns, or the last attempt; each attempt is reported."""
        for attempt in range(1, ATTEMPTS + 1):
            judged = drive()
            report(
                f"attempt {attempt}: longest stall of the generator",
                f"{judged.longest_stall / 1e6:.0f} ms",
            )
            if judged.longest_stall <= stall:
                break
        return judged

    def close(self) -> None:
        self._fleet.close()
        self._run_controller.close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for the session: each relay is started once. With ``--load-force``, as the machine's calibration must not matter here."""
    made = Bench(tmp_path_factory.mktemp("truth"))
    yield made
    made.close()


@pytest.fixture
def gated_bench(tmp_path: Path) -> Iterator[Bench]:
    """Without ``--load-force``."""
    made = Bench(tmp_path, force=False)
    yield made
    made.close()


@pytest.fixture
def mosquitto_process(tmp_path: Path) -> Iterator[Broker]:
    """Return a mosquitto for this test alone."""
    if mosquitto.find_mosquitto() is None:
        pytest.skip("no mosquitto here: apt-get install mosquitto")
    broker = brokers.start(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=tmp_path / "mosquitto"),
        lambda _: None,
    )
    yield broker
    broker.stop()


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """Return a function that notes a figure of a run: shown with ``-rP`` and kept in JUnit."""

    def note(name: str, value: object) -> None:
        print(f"{name}: {value}")
        record_property(name, value)

    return note
