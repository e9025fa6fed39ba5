"""The measurements of a run folder, including the metrics of users' hooks, before they are judged.

Called by the controller in the thread that answers a meeting, through
:class:`~pytest_loadtest.fleet.spark_service.SparkService`, and by the command ``aggregate``. A
failure in users' code never costs the run its own measurements: it is kept as text.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline.aggregate import aggregate_with_stages
from pytest_loadtest.pipeline.run_file import RunFile
from pytest_loadtest.pipeline.samples import SampledRun, SampleFiles, Samples, kinds_of
from pytest_loadtest.pipeline.transforms import for_workers
from pytest_loadtest.values.records import record
from pytest_loadtest.values.units import Duration, Rate
from pytest_loadtest.verdict.custom import HOOK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pytest_loadtest.metrics.measurements import CustomValue, Measurements

Custom = Callable[["SparkSession", SampledRun, Samples], Mapping[Any, Any]]
"""Calls the implementations of users' hook for a run and merges what they return."""

PACKAGE = str(Path(__file__).parents[1])


@record
class MeasuredRun:
    """A run folder with its measurements.

    :param stages: the measurements of each stage by name; the windows of a backlog too.
    :param failure: the error in users' own code, with its traceback; empty if there was none.
    :param notes: incidents that readers of the results must know.
    """

    folder: Path
    run: RunFile
    measurements: Measurements
    stages: tuple[tuple[str, Measurements], ...]
    failure: str = ""
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> SampleFiles:
        """The sample files in the folder."""
        return SampleFiles(
            self.folder, kinds_of(self.run), self.run.subscriptions, self.run.samples
        )


def measure_run(spark: SparkSession, folder: Path, custom: Custom | None = None) -> MeasuredRun:
    """Measure the samples in ``folder``.

    :param custom: users' hook; its errors do not affect the run's own measurements.
    :raises NoData: samples are missing, or differ from what the workers reported to have written.
    """
    run = RunFile.read(folder)
    measurements, stages = (
        aggregate_with_stages(spark, folder)
        if kinds_of(run)
        else (read.measure_arrivals(folder), ())
    )
    measured = MeasuredRun(folder=folder, run=run, measurements=measurements, stages=stages)
    if custom is None or run.connects_only:  # without messages there are no samples to ask about
        return measured
    metrics, failure = custom_metrics(custom, spark, run, measured.files)
    return replace(measured, measurements=replace(measurements, custom=metrics), failure=failure)


def custom_metrics(
    custom: Custom, spark: SparkSession, run: RunFile, files: SampleFiles
) -> tuple[dict[str, CustomValue], str]:
    """Call users' hook; return its metrics by name, and the traceback of an error in it (empty
    without one).
    """
    try:
        # Frames of samples that are stored elsewhere are read by code of this package, which a
        # cluster does not have.
        with for_workers() if files.location is not None else nullcontext():
            returned = custom(spark, SampledRun.of(run, files.folder), Samples(spark, files))
        return {_name(name): _value(name, value) for name, value in returned.items()}, ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # pytest.skip() and sys.exit() raise no Exception
        return {}, _failure_text(error)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{HOOK} returned {name!r} as a name: write a text")
    return name


def _value(name: str, value: object) -> CustomValue:
    """Return the value as a plain one; numpy's and Spark's numbers are accepted too."""
    if value is None or (isinstance(value, Rate) and math.isfinite(value)):
        return value
    if isinstance(value, Duration) and math.isfinite(value.ns):
        return Duration(float(value.ns), label=name)
    if (
        not isinstance(value, bool)
        and isinstance(value, numbers.Real | Decimal)
        and math.isfinite(value)
    ):
        return float(value)
    hint = "return a duration, ms(…), a rate, Rate(…), a number, or None for an unknown value"
    raise UsageError(f"{HOOK} returned {value!r} for {name!r}: {hint}")


def _failure_text(error: BaseException) -> str:
    """Return the error, followed by its place in the user's code."""
    if isinstance(error, UsageError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    between = ("pluggy", "_pytest")
    theirs = [
        not frame.filename.startswith(PACKAGE)
        and not set(Path(frame.filename).parts) & set(between)
        for frame in frames
    ]
    shown = frames[theirs.index(True) :] if True in theirs else frames
    lines = [*traceback.format_exception_only(error)[-1:], *traceback.format_list(shown)]
    return f"{HOOK} failed: " + "".join(lines).rstrip().replace("\n", "\n    ")
