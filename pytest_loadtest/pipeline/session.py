"""The one Spark session: started on first use, silent, and ended by ``stop``.

The rule: nothing of Spark outlives this process or writes to the terminal. A classic session's JVM
writes to a log file in the host's folder; its temporary files are there too. It reads a pipe from
this process and ends when the pipe does, so it also ends if this process is killed.

:mod:`pytest_loadtest.fleet` owns the host in the controller's process; several threads use it, one
of them to start the session while load runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.pipeline.java_process import STOP_SECONDS, JavaProcess
from pytest_loadtest.values.addresses import check_address, masked, masked_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The addresses of a local session; the executors of a cluster must reach the driver at another one.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def default_conf(folder: Path, cores: int) -> dict[str, str]:
    """Return the default settings of a session."""
    return {
        "spark.app.name": "pytest-loadtest",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark keeps the last 1000 of each for its UI also if that
        # is disabled: 14 KB for each load test.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Hive's Derby metastore locks its files, which two sessions in one folder cannot share.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        # The shuffled tables are small: few partitions, and no adaptive
        # planning, which costs more than it gains on them.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.adaptive.enabled": "false",
    }


class SparkHost:
    """The Spark session of a pytest session, started on first use.

    Safe to use from several threads.

    :param folder: for the JVM's log (``spark.log``) and temporary files.
    :param conf: Spark settings; they override the defaults.
    :param master: a Spark master URL, for a classic session;
        ``local[*]`` without master and remote.
    :param remote: a Spark Connect URL (``sc://host:port``); it overrides ``master``.
    """

    def __init__(
        self,
        folder: Path,
        conf: Mapping[str, str],
        master: str | None = None,
        remote: str | None = None,
    ) -> None:
        self._folder = folder
        self._conf = dict(conf)
        self._master = master
        self._remote = remote
        self._lock = threading.Lock()
        # Held while the Java process is created: `kill` ends it, or prevents it. Reentrant, because
        # a signal handler may kill in the thread that creates.
        self._creating = threading.RLock()
        self._session: SparkSession | None = None
        self._java: JavaProcess | None = None
        self._ours = False
        self._killed = False

    def session(self) -> SparkSession:
        """Return the session, started on the first call.

        A session that the process already has (spark-submit) is used unchanged.

        :raises UsageError: pyspark or Java is missing, or the server does not answer.
        """
        with self._lock:
            if self._session is None:
                self._session = self._connect() if self._remote else self._classic()
            return self._session

    def warm(self) -> None:
        """Start the session and aggregate nothing: the first aggregation need not wait for it."""
        session = self.session()
        from pytest_loadtest.pipeline.transforms import file_tables, for_workers

        with for_workers():
            file_tables(session.range(1), [[]], []).toArrow()

    def alive(self, wait: float = 0.0) -> bool:
        """Return whether the Java process runs; True for one started elsewhere.

        :param wait: for a process that is ending, s.
        """
        return self._java is None or self._java.alive(wait)

    def ended_by(self) -> str:
        """Return the reason for the end of the Java process, with the last error in its log."""
        assert self._java is not None
        return self._java.ended_by()

    def forget(self) -> None:
        """Drop a session whose Java process has ended.

        The next call of :meth:`session` starts both again.
        """
        with self._lock:
            if self._session is not None:
                _drop(self._session)
                self._session = None
            self._end_java(STOP_SECONDS)

    def kill(self) -> None:
        """End the Java process at once, also while it starts.

        Threads that wait for it get an error. Nothing starts after this.
        """
        with self._creating:
            self._killed = True
            java = self._java
        if java is not None:
            java.kill()
            self._remove_temporary_files()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the session and its JVM if they were started here.

        Safe to call twice, or if nothing was started.

        :param seconds: time for the JVM to end by itself.
        """
        # Another thread is starting the session, which is no longer needed.
        if not self._lock.acquire(blocking=False):
            self.kill()
            return
        try:
            session = self._session
            self._session = None
            if session is not None and self._ours:
                if self.alive():
                    session.stop()
                else:
                    _drop(session)
                self._end_java(seconds)
        finally:
            self._lock.release()

    def _connect(self) -> SparkSession:
        from pyspark.sql import SparkSession

        _quiet()
        try:
            builder = SparkSession.builder.remote(str(self._remote))
            for key, value in self._conf.items():
                builder = builder.config(key, value)
            # create(), not getOrCreate(): a session of its own can
            # be stopped without affecting others.
            session = builder.create()
        except Exception as error:
            remote = str(self._remote)
            cause = masked_text(_first_line(error), remote)
            if "PACKAGE_NOT_INSTALLED" in str(error):
                cause += ": pip install 'pytest-loadtest[connect]'"
            # From None: the error of the library may have the whole address, with its token.
            raise UsageError(
                f"the Spark Connect server {masked(remote)} cannot be used: {cause}"
            ) from None
        self._ours = True
        return session

    def _classic(self) -> SparkSession:
        # A process with a session has imported pyspark; to import it
        # only for this check would take time.
        pyspark = sys.modules.get("pyspark")
        if "PYSPARK_GATEWAY_PORT" in os.environ or (
            pyspark is not None and pyspark.SparkContext._active_spark_context is not None
        ):
            from pyspark.sql import SparkSession

            return SparkSession.builder.getOrCreate()  # the user's, or spark-submit's
        return self._launch()

    def _settings(self, master: str) -> dict[str, str]:
        settings = default_conf(self._folder.resolve(), os.cpu_count() or 1)
        if master.startswith("local"):
            settings |= LOOPBACK
        # These workers run on this Python, so they can import this package's daemon. Those of
        # local-cluster are a cluster's.
        if _has_our_python(master) and "spark.pyspark.python" not in self._conf:
            settings["spark.python.daemon.module"] = "pytest_loadtest.pipeline.python_daemon"
        return java_process.with_archive({**settings, **self._conf}) | {"spark.master": master}

    def _launch(self) -> SparkSession:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / "spark.log"
        master = self._master or self._conf.get("spark.master", "local[*]")
        check_address(master, "the Spark master")  # the log of Spark has it too
        settings = self._settings(master)
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            with self._creating:
                if not self._killed:
                    self._java = JavaProcess(settings, log, loopback=master.startswith("local"))
            java = self._java
            if java is None or self._killed:
                if java is not None:  # a signal handler of this thread could not end it yet
                    java.kill()
                raise UsageError("Spark is not started: the session ends")
            _import_all()
            from pyspark import SparkConf, SparkContext
            from pyspark.sql import SparkSession

            conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
            context = SparkContext(conf=conf, gateway=java.gateway())
            # pyspark does not read this setting if the context is made by hand.
            setting = context.getConf().get("spark.pyspark.python")
            context.pythonExec = setting or workers_python(master, context.pythonExec)
            server: Any = context._accumulatorServer
            server.handle_error = _say_nothing
            session = SparkSession(context)
        except UsageError:
            self._end_java(0)
            raise
        except Exception as error:
            # py4j asks the Java process for the text of its error, so
            # the process must not have ended yet.
            cause = _first_line(error)
            if self._java is not None:
                cause = self._java.last_cause() or cause
            self._end_java(0)
            raise UsageError(f"Spark could not start: {cause} (its output: {log})") from error
        finally:
            # A Spark context installs a handler that fails after it is stopped.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, interrupt)
        self._ours = True
        return session

    def _end_java(self, seconds: float) -> None:
        from pyspark import SparkContext

        java = self._java
        self._java = None
        if java is None:
            return
        gateway = SparkContext._gateway
        # Without these a later session would use the ended JVM instead of starting one.
        SparkContext._gateway = None
        SparkContext._jvm = None
        if gateway is not None:
            # py4j raises various errors if the process has ended.
            with contextlib.suppress(Exception):
                gateway.shutdown()
        java.end(seconds)
        self._remove_temporary_files()

    def _remove_temporary_files(self) -> None:
        """Remove what a killed process left: one that is not killed removes it itself."""
        shutil.rmtree(self._folder / "tmp", ignore_errors=True)


def _say_nothing(_request: object, _client: object) -> None:
    """Handle an error of pyspark's thread that reads from the JVM.

    If the JVM dies, no traceback is printed on the terminal.
    """


def _import_all() -> None:
    """Import the modules of a first session while Java starts.

    py4j imports pyspark.testing, which imports pandas if it is installed.
    """
    from pytest_loadtest.pipeline import transforms  # noqa: F401

    _quiet()
    with contextlib.suppress(ImportError):
        import pyspark.testing  # noqa: F401


def _drop(session: SparkSession) -> None:
    """Remove a session whose Java process has ended from pyspark.

    Its own ``stop`` calls that process, warns, and stops half-way.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def workers_python(master: str, own: str) -> str:
    """Return the Python of Spark's workers if no setting names one.

    On this machine it is the running one, because the PATH may lead to another. A cluster's
    machines have their Python in another place.

    :param own: Spark's own choice: PYSPARK_PYTHON, otherwise ``python3`` on the workers' PATH.
    """
    return sys.executable if _has_our_python(master) else own


def _has_our_python(master: str) -> bool:
    return master.partition("[")[0] == "local" and "PYSPARK_PYTHON" not in os.environ


def _quiet() -> None:
    """Silence pyspark and py4j; their exceptions contain the same information.

    pyspark writes JSON for each failed query, py4j a traceback of a call that its Java process did
    not answer.
    """
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)  # repeated calls add it once


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
