"""Spark's Java process, started as pyspark starts it, but accessible from the beginning.

The rule: a process that is starting can be ended. pyspark's own launcher returns the process when
it is ready, many seconds later; until then it could not be ended.
:mod:`pytest_loadtest.pipeline.session` calls it in the controller's process, from the thread that
needs the session first.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytest_loadtest.brokers.java import SPARK_JAVA, cache_root, find, from_archive, program
from pytest_loadtest.errors import UsageError

STOP_SECONDS = 10
# Time for Java to serve its first request; five to twenty seconds are usual, also with a cold disk.
START_SECONDS = 180
# Seconds between two checks of a starting process.
_POLL = 0.05


class JavaProcess:
    """One Java process that serves a Spark driver.

    It reads a pipe from this process and ends with it.

    :param settings: of Spark.
    :param log: for all its output.
    :param loopback: it does not need this host's own address.
    """

    def __init__(self, settings: Mapping[str, str], log: Path, *, loopback: bool) -> None:
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="loadtest-spark-")
        self._connection = Path(self._folder.name) / "connection"
        home = spark_home()
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        command = [f"{home}/bin/spark-submit", *options, *arguments]
        with log.open("ab") as output:
            # A process group of its own: Ctrl-C and a SIGTERM to pytest's group must not end it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                env=self._environment(loopback),
            )

    def _environment(self, loopback: bool) -> Mapping[str, str]:
        """Return the environment of the process."""
        environment = dict(os.environ)
        if loopback:
            # Spark fails if this host's name has no address. A local session
            # needs none, which only this variable can set.
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        environment["SPARK_CONNECT_MODE"] = "0"
        environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(self._connection)
        return environment

    def gateway(self) -> Any:
        """Wait until the process is ready; return pyspark's connection to it.

        :raises UsageError: it ended before, or is not ready after :data:`START_SECONDS`.
        """
        from pyspark import java_gateway, serializers

        deadline = time.monotonic() + START_SECONDS
        while not self._connection.exists():
            if time.monotonic() > deadline:
                output = "; ".join(self._lines()[-3:]) or "it printed nothing"
                raise UsageError(
                    f"Spark's Java process was not ready after {START_SECONDS:g} s: {output}"
                    f" (its output: {self._log})"
                )
            if self._process.poll() is not None:
                raise UsageError(
                    f"Spark could not start its Java process: {_wrong_java()}{self.ended_by()}"
                )
            time.sleep(_POLL)
        # pyspark's functions have no types.
        read_int: Any = serializers.read_int
        text: Any = serializers.UTF8Deserializer
        launch: Any = java_gateway.launch_gateway
        with self._connection.open("rb") as file:
            port = read_int(file)
            secret = text().loads(file)
        self._folder.cleanup()  # now, because nothing would remove it if this process is killed
        # With these variables launch_gateway connects to the
        # running process instead of starting one.
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            return launch()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def alive(self, wait: float = 0.0) -> bool:
        """Return whether the process runs.

        :param wait: for a process that is ending, s.
        """
        try:
            self._process.wait(wait)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _lines(self) -> list[str]:
        """Return the lines of its output that are not blank."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def last_cause(self) -> str:
        """Return the last exception in its log, or a line of a fatal error; empty without any."""
        cause = re.compile("Exception|Error|(^| )ERROR ")
        return next((line for line in reversed(self._lines()) if cause.search(line)), "")

    def ended_by(self) -> str:
        """Return the reason for its end as text."""
        status = self._process.returncode
        reason = f"exit status {status}"
        if status is not None and status < 0:
            reason = f"killed by signal {-status}"
        cause = self.last_cause()
        if cause:
            reason += f", {cause}"
        return f"{reason} (its output: {self._log})"

    def kill(self) -> None:
        """End it at once, also while it starts."""
        # A starting process is a script and the processes that the
        # script has called: they are one group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.end(STOP_SECONDS)

    def end(self, seconds: float) -> None:
        """Close its pipe so that it ends by itself; kill it after ``seconds``."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.alive(seconds):
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


# A class archive, made once for each Java and pyspark, reduces the start
# of Spark's Java process to a third of the time.
#
# See ``class_archive`` of the jars of brokers.

OPTIONS = "spark.driver.extraJavaOptions"
# The JVM passes samples to Python workers and computes little,
# so its second compiler never pays off.
QUICK = "-XX:TieredStopAtLevel=1"


def path() -> Path | None:
    """Return the path of the class archive for this machine's Java and pyspark.

    None without Java.
    """
    found = program()
    if found is None:
        return None
    java = Path(found).resolve()
    stat = java.stat()
    build = _digest(f"{java} {stat.st_size} {stat.st_mtime_ns}")
    return cache_root() / f"spark-{_digest(str(spark_home()))}-{version('pyspark')}-{build}.jsa"


def spark_home() -> Path:
    """Return the folder of Spark's scripts and jars.

    It does not import pyspark, which takes as long as the start of Java.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "it is among the requirements"
    assert spec.origin is not None
    return Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _wrong_java() -> str:
    """Return what Spark needs if it cannot run on this machine's Java; empty if it can."""
    java = find()
    if java is not None and java.runs_spark:
        return ""
    found = "there is none" if java is None else f"{java.path} is Java {java.version}"
    return f"it needs {SPARK_JAVA} on the PATH or at JAVA_HOME, and {found}; "


def with_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """Add Java options for a quick start to the settings.

    The user's own options are last, where they override these.
    """
    options = [QUICK, *from_archive(path()), conf.get(OPTIONS, "")]
    return {**conf, OPTIONS: " ".join(options).strip()}


def of_this_pyspark() -> str:
    """Return the pattern of the archives of all versions of Java for pyspark in this place."""
    return f"spark-{_digest(str(spark_home()))}-*.jsa"
