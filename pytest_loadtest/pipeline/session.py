"""The one Spark session: started when first wanted, quiet, and gone when told to stop.

A classic session's JVM writes to a log file in the host's folder, never to the terminal; its temporary files live there too. It reads its
end from a pipe, so it also goes when this process is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_SECONDS = 10


LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""A local session's addresses; the executors of a cluster must reach the driver elsewhere."""


def default_conf(folder: Path, cores: int) -> dict[str, str]:
    """What a session is configured with unless told otherwise.

    Few shuffle partitions, because the shuffled tables are small; no adaptive planning, which costs more than it wins on them.
    """
    return {
        "spark.app.name": "pytest-loadtest",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.adaptive.enabled": "false",
    }


class SparkHost:
    """Holds the session of a pytest session; starts nothing before it is asked to. Safe to use from several threads.

    :param folder: for the JVM's log (``spark.log``) and temporary files.
    :param conf: Spark settings; they win over the defaults.
    :param master: a Spark master URL, for a classic session; ``local[*]`` when there is neither master nor remote.
    :param remote: a Spark Connect URL (``sc://host:port``); wins over ``master``.
    """

    def __init__(self, folder: Path, conf: Mapping[str, str], master: str | None = None, remote: str | None = None) -> None:
        self._folder, self._conf, self._master, self._remote = folder, dict(conf), master, remote
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._gateway: Any = None
        self._ours = False

    def session(self) -> SparkSession:
        """The session, started on first call; one that the process already has (spark-submit) is used as it is.

        :raises UsageError: pyspark or Java is missing, or the server does not answer.
        """
        with self._lock:
            if self._session is None:
                _quiet()
                self._session = self._connect() if self._remote else self._classic()
            return self._session

    def warm(self) -> None:
        """Start the session and aggregate nothing, so that the first aggregation does not pay for it."""
        session = self.session()
        from pytest_loadtest.pipeline.transforms import file_tables

        file_tables(session.range(1), [[]], []).toArrow()

    def stop(self) -> None:
        """End the session if it was made here, and its JVM with it. Safe to call twice, or when nothing was started."""
        if not self._lock.acquire(timeout=1):  # Ctrl-C while it starts, in another thread: its JVM ends with this process
            return
        try:
            session, self._session = self._session, None
            if session is not None and self._ours:
                self._stop(session)
        finally:
            self._lock.release()

    def _stop(self, session: SparkSession) -> None:
        try:
            session.stop()
        finally:
            self._end_jvm()

    def _connect(self) -> SparkSession:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(str(self._remote))
        for key, value in self._conf.items():
            builder = builder.config(key, value)
        try:
            session = builder.create()
        except Exception as error:
            raise UsageError(f"the Spark Connect server {self._remote} cannot be used: {_first_line(error)}") from error
        self._ours = True
        return session

    def _classic(self) -> SparkSession:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # somebody else's, or spark-submit's
            return SparkSession.builder.getOrCreate()
        return self._launch()

    def _launch(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / "spark.log"
        master = self._master or self._conf.get("spark.master", "local[*]")
        local = master.startswith("local")
        conf = SparkConf(loadDefaults=False)
        ours = default_conf(self._folder.resolve(), os.cpu_count() or 1) | (LOOPBACK if local else {})
        for key, value in {**ours, **self._conf}.items():
            conf.set(key, value)
        conf.setMaster(master)
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            with log.open("ab") as output, _at_loopback(local):
                self._gateway = launch_gateway(conf, {"stdout": output, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=self._gateway)
            context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)  # Spark's own choice is whatever python3 the PATH has
            session = SparkSession(context)
        except Exception as error:
            self._end_jvm()
            raise _not_started(error, log) from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, interrupt)  # a Spark context puts one there that fails once it is stopped
        self._ours = True
        return session

    def _end_jvm(self) -> None:
        from pyspark import SparkContext

        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return
        SparkContext._gateway = SparkContext._jvm = None  # so that a later session of this process starts a JVM of its own
        gateway.shutdown()
        process: subprocess.Popen[bytes] = gateway.proc
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _quiet() -> None:
    """Keep pyspark from printing every failed query to the terminal as JSON; the exception says it all."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _at_loopback(local: bool) -> Iterator[None]:
    """Spark looks up this host's own name and ends where it has no address; a local session needs none. Only the environment tells it."""
    missing = local and "SPARK_LOCAL_IP" not in os.environ
    if missing:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        yield
    finally:
        if missing:
            del os.environ["SPARK_LOCAL_IP"]


def _not_started(error: Exception, log: Path) -> UsageError:
    if "JAVA_GATEWAY_EXITED" in str(error):
        said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "Exception" in line]
        why = said[-1].strip() if said else "it needs Java 17 on the PATH or at JAVA_HOME"
        return UsageError(f"Spark could not start its Java process: {why} (its output: {log})")
    return UsageError(f"Spark could not start: {_first_line(error)} (its output: {log})")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
