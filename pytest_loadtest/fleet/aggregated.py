"""What the samples of a run folder come to, before anybody judges them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.custom import measure
from pytest_loadtest.pipeline import arrivals
from pytest_loadtest.pipeline.aggregate import aggregate_with_stages
from pytest_loadtest.pipeline.samples import SampleFiles, kinds_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pytest_loadtest.fleet.custom import Custom
    from pytest_loadtest.metrics.measurements import Measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """What the samples of a run folder come to. :param run: its ``run.json``. :param stages: by name; windows of a backlog too.

    :param failure: what went wrong in users' own code, with its traceback; empty where nothing did.
    :param notes: what happened on the way that whoever reads the results must know.
    """

    folder: Path
    run: dict[str, Any]
    measurements: Measurements
    stages: tuple[tuple[str, Measurements], ...]
    failure: str = ""
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> SampleFiles:
        """The samples themselves."""
        return SampleFiles(self.folder, kinds_of(self.run), self.run["subscriptions"])


def aggregate(spark: SparkSession, folder: Path, custom: Custom | None = None) -> Aggregated:
    """Measure the samples in ``folder``.

    :param custom: what users measure themselves; whatever becomes of it, the run's own measurements stay.

    :raises NoData: samples are missing or do not agree with what the workers say they wrote.
    """
    run = read_run(folder)
    if kinds_of(run):
        measurements, stages = aggregate_with_stages(spark, folder)
    else:
        measurements, stages = arrivals.measure(folder), ()
    found = Aggregated(folder=folder, run=run, measurements=measurements, stages=stages)
    if custom is None or run.get("connects_only"):  # there is nothing that users could ask
        return found
    metrics, failure = measure(custom, spark, run, found.files)
    return replace(found, measurements=replace(measurements, custom=metrics), failure=failure)


def read_run(folder: Path) -> dict[str, Any]:
    """The run's own description.

    :raises NoData: there is none.
    """
    try:
        run: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NoData(f"{folder / 'run.json'} cannot be read: {error}") from error
    return run
