"""Spark as the controller has it: started in the background, ready before load runs, started anew where its Java process dies."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.pipeline.session import SparkHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.fleet.aggregated import Aggregated, Custom
    from pytest_loadtest.fleet.options import Options


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

        from pytest_loadtest.fleet.aggregated import aggregate  # on use: it loads numpy and pyspark

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
