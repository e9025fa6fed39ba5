"""Spark's Java process, started as pyspark starts it and held from its first moment on.

pyspark's own launcher hands the process out once it is ready, many seconds later; until then nobody could end it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytest_loadtest.brokers.java import cache_root
from pytest_loadtest.errors import UsageError

STOP_SECONDS = 10
START_SECONDS = 180
"""What Java gets to serve its first request; five to twenty seconds are usual, also with a cold disk."""
_POLL = 0.05  # s between two looks at a process that starts


class JavaProcess:
    """One Java process that serves a Spark driver; it ends with this process, whose pipe it reads.

    :param settings: of Spark. :param log: gets all that it prints. :param loopback: it need not have this host's own address.
    """

    def __init__(self, settings: Mapping[str, str], log: Path, *, loopback: bool) -> None:
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="loadtest-spark-")
        self._told = Path(self._folder.name) / "connection"
        home = spark_home()
        wanted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        command = [f"{home}/bin/spark-submit", *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")), *wanted]
        with log.open("ab") as output:
            # a group of its own: neither Ctrl-C nor a SIGTERM for the group of pytest is for it
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, process_group=0, env=self._environment(loopback)
            )

    def _environment(self, loopback: bool) -> Mapping[str, str]:
        """Spark ends where this host's own name has no address; a local session needs none, and only the environment tells it."""
        own = {"SPARK_LOCAL_IP": "127.0.0.1"} if loopback else {}
        return own | os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told)}

    def gateway(self) -> Any:
        """Return pyspark's connection to it, once it is there.

        :raises UsageError: it ended before that, or is not there after :data:`START_SECONDS`.
        """
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        deadline = time.monotonic() + START_SECONDS
        while not self._told.exists():
            if time.monotonic() > deadline:
                said = "; ".join(self._last_lines()) or "it printed nothing"
                raise UsageError(f"Spark's Java process was not ready after {START_SECONDS:g} s: {said} (its output: {self._log})")
            if self._process.poll() is not None:
                why = self.last_cause() or "it needs Java 17 on the PATH or at JAVA_HOME"
                raise UsageError(f"Spark could not start its Java process: {why} (its output: {self._log})")
            time.sleep(_POLL)
        with self._told.open("rb") as told:
            port, secret = read_int(told), UTF8Deserializer().loads(told)  # type: ignore[no-untyped-call]
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}  # so it starts none
        try:
            return launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def alive(self, wait: float = 0.0) -> bool:
        """Whether it runs. :param wait: s that a process which is just ending gets to be gone."""
        try:
            self._process.wait(wait)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _last_lines(self) -> list[str]:
        """The last three lines that it printed."""
        return [line.strip() for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()][-3:]

    def last_cause(self) -> str:
        """The last exception in its log, or a line of a fatal error; empty where there is none."""
        said = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(said) if "Exception" in line or "Error" in line), "")

    def ended_by(self) -> str:
        """How it ended, for people."""
        status = self._process.returncode
        how = f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        cause = self.last_cause()
        return f"{how}{f', {cause}' if cause else ''} (its output: {self._log})"

    def kill(self) -> None:
        """End it at once, also while it starts."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # while it starts it is a script, and what that called
        self.end(STOP_SECONDS)

    def end(self, seconds: float) -> None:
        """Let it end by itself; after ``seconds`` it has to."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.alive(seconds):
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


# What makes Spark's Java process start in a third of the time: a class archive, made once per Java and pyspark.
#
# Most of a start is Java loading and checking Spark's classes. ``-XX:SharedArchiveFile`` takes them as they were in memory when the
# archive was made. Java itself looks whether the archive fits, and loads classes the long way where it does not, so a stale one costs
# time only.

OPTIONS = "spark.driver.extraJavaOptions"
QUICK = "-XX:TieredStopAtLevel=1"  # the JVM hands samples to Python workers and computes little: its second compiler never pays


def path() -> Path | None:
    """Where the archive of the Java and the pyspark found here lies once it is made; None where there is no Java."""
    java = _java()
    if java is None:
        return None
    stat = java.stat()
    build = _digest(f"{java} {stat.st_size} {stat.st_mtime_ns}")
    return cache_root() / f"spark-{_digest(str(spark_home()))}-{version('pyspark')}-{build}.jsa"


def spark_home() -> Path:
    """Where Spark's scripts and jars are, found without importing pyspark, which takes as long as Java needs to begin."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "it is among the requirements"
    assert spec.origin is not None
    return Path(os.environ.get("SPARK_HOME") or Path(spec.origin).parent)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _java() -> Path | None:
    """The java that Spark's scripts take."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    return Path(found).resolve() if found else None


def with_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings with Java options for a quick start; the user's own options stand last, where Java lets them win."""
    archive = path()
    ours = [QUICK, *([f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive is not None and archive.is_file() else [])]
    return {**conf, OPTIONS: " ".join([*ours, conf.get(OPTIONS, "")]).strip()}


def replaced_by(archive: Path) -> list[Path]:
    """Those of other versions of Java, or of a pyspark that lay where this one does."""
    home = archive.name.split("-")[1]
    return [other for other in archive.parent.glob(f"spark-{home}-*.jsa") if other != archive]
