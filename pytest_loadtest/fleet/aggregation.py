"""Spark as the controller has it: started in the background, ready before load runs, started anew where its Java process dies."""

from __future__ import annotations

import json
import math
import numbers
import threading
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
from pytest_loadtest.pipeline.session import SparkHost
from pytest_loadtest.values.units import Duration, Rate
from pytest_loadtest.verdict.custom import HOOK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.metrics.measurements import CustomValue, Measurements


ENDING_SECONDS = 1.0
"""What a Java process gets to be gone once a question to it failed: its end may be why."""


class Aggregation:
    """Measures run folders with the one Spark session of a pytest session.

    :param folder: for Spark's log and temporary files. :param announce: shows a line to the user.
    :param custom: what users measure themselves, where they do.
    """

    def __init__(self, folder: Path, options: Options, announce: Callable[[str], None], custom: Custom | None = None) -> None:
        self._host = SparkHost(folder, options.spark_conf, options.spark_master, options.spark_remote)
        self._announce, self._custom = announce, custom
        self._lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._failure: Exception | None = None
        self._renewed = self._stopped = self._interrupted = False
        self._ending = threading.Thread(target=self._host.stop, name="loadtest-spark-stop")

    def start(self) -> None:
        """Begin to start Spark, in a thread of its own; at once where it was begun before."""
        with self._lock:
            if self._warming is None and not (self._stopped or self._interrupted):
                self._warming = threading.Thread(target=self._warm, name="loadtest-spark", daemon=True)
                self._warming.start()

    def _warm(self) -> None:
        try:
            self._host.warm()
        except Exception as error:  # raised where somebody waits for Spark
            self._failure = error

    def ready(self) -> None:
        """Wait until Spark can aggregate, so that load runs on a quiet machine. Called once a run, before its load.

        :raises UsageError: it cannot be started; the next run tries again.
        """
        self._renewed = False
        if self._warming is not None and not self._warming.is_alive() and self._failure is None and not self._host.alive():
            self._host.forget()  # it died between two runs: nothing was lost by it
            self._warming = None
        self.start()
        warming = self._warming
        if warming is None:
            return
        if warming.is_alive():
            self._announce("waiting for Spark")
        warming.join()
        if self._failure is not None:
            failure, self._failure, self._warming = self._failure, None, None
            raise failure

    def aggregate(self, folder: Path) -> Aggregated:
        """Measure the samples in ``folder``. Where Spark's Java process died, start it anew, once a run, and note it.

        :raises NoData: samples are missing or do not agree with what the workers say they wrote, or Spark died twice.
        """
        try:
            return self._aggregate(folder)
        except Exception as error:
            if self._interrupted or self._host.alive(ENDING_SECONDS):
                raise
            how = self._host.ended_by()
            if self._renewed:
                raise _died(folder, how) from error
        self._renewed = True
        self._announce(f"Spark's Java process died ({how}): starting it anew")
        try:
            self._host.forget()
            samples = self._aggregate(folder)
        except UsageError as error:
            raise _died(folder, str(error)) from error
        except Exception as error:
            if self._interrupted or self._host.alive(ENDING_SECONDS):
                raise
            raise _died(folder, self._host.ended_by()) from error
        note = f"Spark's Java process died ({how}) and was started anew; samples were on disk, nothing is missing"
        return replace(samples, notes=(*samples.notes, note))

    def _aggregate(self, folder: Path) -> Aggregated:

        samples = aggregate(self._host.session(), folder, self._custom)
        if samples.failure and not self._host.alive(ENDING_SECONDS):  # not a mistake of users' own code
            raise NoData(samples.failure)
        return samples

    def interrupt(self) -> None:
        """The session is interrupted: end the Java process at once, it has nothing that anybody waits for."""
        self._interrupted = True
        self._host.kill()

    def finish(self) -> None:
        """No run comes any more: begin to end Spark."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._ending.start()

    def stop(self) -> None:
        """End Spark, if that was not begun before, and wait for its end."""
        self.finish()
        if self._ending.is_alive():
            self._ending.join()


def _died(folder: Path, how: str) -> NoData:
    return NoData(
        f"Spark's Java process died, was started anew, and died again: {how}\n"
        f"the samples are on disk; judge them without new load: python -m pytest_loadtest aggregate {folder}\n"
        "  with --spark-conf spark.driver.memory=8g where memory was short, or --spark-master where another machine has more"
    )


# What the samples of a run folder come to, before anybody judges them.


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
