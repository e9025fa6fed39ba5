"""The one Spark session of a pytest session: started in the background, restarted if its Java
process dies.

Used by the run controller, in the process that judges: started when load tests are collected,
awaited before the first load begins, and called from the threads that answer meetings. A dead Java
process never loses a run: the samples are on disk and are measured again.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.pipeline.session import SparkHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.fleet.measured_run import Custom, MeasuredRun
    from pytest_loadtest.fleet.options import Options


# After a failed call the Java process may be about to end: it gets this long, because its end would
# explain the failure.
ENDING_SECONDS = 1.0


class SparkService:
    """Measures run folders.

    :param folder: for Spark's log and temporary files.
    :param announce: shows a line to the user.
    :param custom: users' hook, if any.
    :param host: the session of Spark, if there is one already.
    """

    def __init__(
        self,
        folder: Path,
        options: Options,
        announce: Callable[[str], None],
        custom: Custom | None = None,
        host: SparkHost | None = None,
    ) -> None:
        self._host = host or SparkHost(
            folder, options.spark_conf, options.spark_master, options.spark_remote
        )
        self._announce = announce
        self._custom = custom
        self._lock = threading.Lock()
        self._starter: threading.Thread | None = None
        self._failure: Exception | None = None
        self._restarted = self._stopped = self._interrupted = False
        self._stopper = threading.Thread(target=self._end, name="loadtest-spark-stop")

    def start(self) -> None:
        """Start Spark in a thread, unless that has begun already; return at once."""
        with self._lock:
            if self._starter is None and not (self._stopped or self._interrupted):
                self._starter = threading.Thread(
                    target=self._warm, name="loadtest-spark", daemon=True
                )
                self._starter.start()

    def _warm(self) -> None:
        try:
            self._host.warm()
        except Exception as error:  # raised by wait_until_ready
            self._failure = error

    def wait_until_ready(self) -> None:
        """Wait until Spark has started, so that its start does not disturb the load.

        Called once a run, before its load.

        :raises UsageError: it cannot be started; the next run tries again.
        """
        self._restarted = False
        if (
            self._starter is not None
            and not self._starter.is_alive()
            and self._failure is None
            and not self._host.alive()
        ):
            self._host.forget()  # it died between two runs: nothing is lost
            self._starter = None
        self.start()
        starter = self._starter
        if starter is None:
            return
        if starter.is_alive():
            self._announce("waiting for Spark")
        starter.join()
        if self._failure is not None:
            failure = self._failure
            self._failure = None
            self._starter = None
            raise failure

    def measure(self, folder: Path) -> MeasuredRun:
        """Measure the samples in ``folder``.

        If Spark's Java process died, restart it, at most once a run, and add a note.

        :raises NoData: samples are missing, or differ from what the workers reported to have
            written; or Spark died twice.
        """
        try:
            return self._measure(folder)
        except Exception as error:
            if self._interrupted or self._host.alive(ENDING_SECONDS):
                raise
            cause = self._host.ended_by()
            if self._restarted:
                raise _died_again(folder, cause) from error
        self._restarted = True
        self._announce(f"Spark's Java process died ({cause}): restarting it")
        try:
            self._host.forget()
            measured = self._measure(folder)
        except UsageError as error:
            raise _died_again(folder, str(error)) from error
        except Exception as error:
            if self._interrupted or self._host.alive(ENDING_SECONDS):
                raise
            raise _died_again(folder, self._host.ended_by()) from error
        note = (
            f"Spark's Java process died ({cause}) and was restarted; the samples were on disk, "
            "nothing is missing"
        )
        return replace(measured, notes=(*measured.notes, note))

    def _measure(self, folder: Path) -> MeasuredRun:
        from pytest_loadtest.fleet.measured_run import (
            measure_run,
        )  # on use: it loads numpy and pyspark

        measured = measure_run(self._host.session(), folder, self._custom)
        if measured.failure and not self._host.alive(
            ENDING_SECONDS
        ):  # the user's code failed because Spark had died
            raise NoData(measured.failure)
        return measured

    def interrupt(self) -> None:
        """Kill the Java process: the session was interrupted."""
        self._interrupted = True
        self._host.kill()

    def begin_stop(self) -> None:
        """Begin to stop Spark: there will be no more runs."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._stopper.start()

    def _end(self) -> None:
        """End the session. A start that is not finished is given up."""
        starter = self._starter
        if starter is not None and starter.is_alive():
            self._host.kill()
        else:
            self._host.stop()

    def stop(self) -> None:
        """Stop Spark and wait for its end."""
        self.begin_stop()
        if self._stopper.is_alive():
            self._stopper.join()


def _died_again(folder: Path, cause: str) -> NoData:
    return NoData(
        f"Spark's Java process died, was restarted, and died again: {cause}\n"
        "the samples are on disk; judge them without new load: python -m pytest_loadtest "
        f"aggregate {folder}\n"
        "  with --spark-conf spark.driver.memory=8g if memory was short, or --spark-master for a "
        "machine that has more"
    )
