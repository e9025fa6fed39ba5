"""The session's life: lazy, quiet, and gone when told to stop or when its owner is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline.session import SparkHost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIFE = """
import os, signal, sys
from pathlib import Path
from pytest_loadtest.pipeline.session import SparkHost

def java():
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == os.getpid()]

def parent(pid):
    try:
        return int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0

host = SparkHost(Path(sys.argv[1]), {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
host.stop()
assert java() == []
interrupt = signal.getsignal(signal.SIGINT)
host.warm()
assert len(java()) == 1
assert signal.getsignal(signal.SIGINT) is interrupt
host.stop()
host.stop()
assert java() == []
host.session()
print(*java(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":  # ended; in a container whose first process collects no orphans it stays so
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_the_life_of_a_session(tmp_path: Path) -> None:
    """Nothing starts unasked, nothing is printed, nothing is left by stop() or by SIGKILL; a stopped host can start again."""
    script = subprocess.run([sys.executable, "-c", LIFE, str(tmp_path / "spark")], capture_output=True, text=True, timeout=300, check=False)
    assert script.stderr == ""
    (pid,) = script.stdout.split()
    assert gone(int(pid))
    assert "log4j" in (tmp_path / "spark" / "spark.log").read_text()


def test_a_session_that_was_there_before_is_used_and_left(spark: SparkSession, tmp_path: Path) -> None:
    """As under spark-submit."""
    host = SparkHost(tmp_path / "spark", {})
    assert host.session() is spark
    host.stop()
    assert spark.range(3).count() == 3


def test_no_java_is_a_usage_error(tmp_path: Path) -> None:
    """With what is needed, and where to look."""
    code = "import sys; from pathlib import Path; from pytest_loadtest.pipeline.session import SparkHost; SparkHost(Path(sys.argv[1]), {}).warm()"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    script = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert "UsageError: Spark could not start its Java process: it needs Java 17" in script.stderr
    assert "spark.log" in script.stderr


@pytest.mark.usefixtures("spark")
def test_a_connect_server_that_does_not_answer_is_a_usage_error(tmp_path: Path) -> None:
    """Named by its URL."""
    with pytest.raises(UsageError, match="sc://127.0.0.1:9"):
        SparkHost(tmp_path, {}, remote="sc://127.0.0.1:9").session()
