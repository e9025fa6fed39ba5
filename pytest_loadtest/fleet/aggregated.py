"""The measurements of a run folder, with the metrics of users' hooks, before they are judged."""

from __future__ import annotations

import json
import math
import numbers
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.pipeline import read
from pytest_loadtest.pipeline.aggregate import aggregate_with_stages
from pytest_loadtest.pipeline.samples import SampledRun, SampleFiles, Samples, kinds_of
from pytest_loadtest.values.units import Duration, Rate
from pytest_loadtest.verdict.custom import HOOK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pytest_loadtest.metrics.measurements import CustomValue, Measurements


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
        measurements, stages = read.measure(folder), ()
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


# Users' own metrics of a run: their hook is called, and what it returns is looked at before anybody believes it.

Custom = Callable[["SparkSession", SampledRun, Samples], Mapping[Any, Any]]
"""What users' hooks return of a run, all of them together."""

OURS = str(Path(__file__).parents[1])


def measure(custom: Custom, spark: SparkSession, document: Mapping[str, Any], files: SampleFiles) -> tuple[dict[str, CustomValue], str]:
    """Users' metrics by name, and what went wrong: the traceback of their own code, empty where all is well.

    :param document: the run's ``run.json``.
    """
    try:
        found = custom(spark, SampledRun.of(document, files.folder), Samples(spark, files))
        return {_name(name): _value(name, value) for name, value in found.items()}, ""
    except Exception as error:
        return {}, _told(error)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{HOOK} returned {name!r} as a name: write a text")
    return name


def _value(name: str, value: object) -> CustomValue:
    """Also numbers as numpy and Spark have them."""
    if value is None or isinstance(value, Rate):
        return value
    if isinstance(value, Duration) and math.isfinite(value.ns):
        return Duration(float(value.ns), label=name)
    if not isinstance(value, bool) and isinstance(value, numbers.Real | Decimal) and math.isfinite(value):
        return float(value)
    hint = "return a duration, ms(…), a rate, Rate(…), a number, or None where there is nothing to tell"
    raise UsageError(f"{HOOK} returned {value!r} for {name!r}: {hint}")


def _told(error: Exception) -> str:
    """The error, and below it where in the user's code it happened."""
    if isinstance(error, UsageError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    between = ("pluggy", "_pytest")
    theirs = [not frame.filename.startswith(OURS) and not set(Path(frame.filename).parts) & set(between) for frame in frames]
    shown = frames[theirs.index(True) :] if True in theirs else frames
    lines = [*traceback.format_exception_only(error)[-1:], *traceback.format_list(shown)]
    return f"{HOOK} failed: " + "".join(lines).rstrip().replace("\n", "\n    ")
