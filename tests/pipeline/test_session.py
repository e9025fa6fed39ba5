"""The session's life: lazy, quiet, and gone when told to stop or when its owner is killed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from waiting_for import gone, wait_until

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import java_process, session
from pytest_loadtest.pipeline.session import SparkHost, workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIFE = """
import os, signal, sys, time
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
host.session()
assert len(java()) == 1
started = time.monotonic()
assert all(host.alive() for _ in range(30))
assert time.monotonic() - started < 15  # they are looks: a second each, to let it end, would be thirty
assert signal.getsignal(signal.SIGINT) is interrupt
host.stop()
host.stop()
assert java() == []
host.session()
print(*java(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_session_starts_on_request_and_leaves_nothing(tmp_path: Path) -> None:
    """Nothing starts unasked, nothing is printed, nothing is left by stop() or by SIGKILL; a stopped host can start again."""
    script = subprocess.run(
        [sys.executable, "-c", LIFE, str(tmp_path / "spark")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert script.stderr == ""
    assert script.returncode == -signal.SIGKILL
    (pid,) = script.stdout.split()
    wait_until(lambda: gone(int(pid)), "the end of the Java process", 30)
    assert "log4j" in (tmp_path / "spark" / "spark.log").read_text()


def test_a_java_process_that_dies_before_it_answers_prints_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """py4j would log a traceback as the root logger's, which goes to the terminal: what asked gets the exception, and says what it means."""
    from py4j.java_gateway import GatewayParameters, JavaGateway
    from py4j.protocol import Py4JError

    with socket.create_server(("127.0.0.1", 0)) as server:

        def die() -> None:
            connection, _ = server.accept()
            connection.recv(1)
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # a reset, as of a process that is killed
            connection.close()

        logging.getLogger().removeFilter(session._not_of_py4j)
        for quiet in (False, True):
            if quiet:
                session._quiet()
            dying = threading.Thread(target=die)
            dying.start()
            with pytest.raises(Py4JError):
                JavaGateway(
                    gateway_parameters=GatewayParameters(port=server.getsockname()[1])
                ).jvm.System.currentTimeMillis()
            dying.join()
            assert bool(caplog.records) is not quiet
            caplog.clear()


def test_java_options_of_the_user_come_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's stand last, where Java lets them win; an archive is named only once it is made, and each Java has its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    user = {java_process.OPTIONS: "-XX:TieredStopAtLevel=4", "spark.x": "y"}
    assert java_process.with_archive(user) == {
        java_process.OPTIONS: "-XX:TieredStopAtLevel=1 -XX:TieredStopAtLevel=4",
        "spark.x": "y",
    }
    archive = java_process.path()
    assert archive is not None
    archive.parent.mkdir(parents=True)
    archive.touch()
    (with_it,) = java_process.with_archive({}).values()
    assert with_it.split() == [
        "-XX:TieredStopAtLevel=1",
        f"-XX:SharedArchiveFile={archive}",
        "-Xshare:auto",
    ]
    other = tmp_path / "java" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    of_other = java_process.path()
    assert of_other != archive
    assert of_other is not None
    assert archive.match(java_process.of_this_pyspark())
    assert of_other.match(java_process.of_this_pyspark())
    assert java_process.with_archive({}) == {java_process.OPTIONS: "-XX:TieredStopAtLevel=1"}
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_process.path() is None


def test_a_session_that_was_there_before_is_used_and_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark-submit makes such a session."""
    host = SparkHost(tmp_path / "spark", {})
    assert host.session() is spark
    host.warm()
    host.stop()
    assert spark.range(3).count() == 3


PYTHON = """
import os, sys
from pathlib import Path
import pyarrow as pa
from pytest_loadtest.pipeline.session import SparkHost

def look(batches):
    for _ in batches:
        yield pa.record_batch([pa.array([os.environ.get("CHOSEN_BY_THE_USER", "not the user's Python")])], names=["python"])

conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.driver.memory": "512m", "spark.pyspark.python": sys.argv[2]}
host = SparkHost(Path(sys.argv[1]), conf, master="local-cluster[1,1,1024]")
(row,) = host.session().range(1, numPartitions=1).mapInArrow(look, "python string").collect()
print(row.python)
host.stop()
"""


@pytest.mark.slow
def test_the_users_python_reaches_the_executors_of_a_cluster(tmp_path: Path) -> None:
    """Their path to it differs from the driver's; here executors have processes of their own."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nexport CHOSEN_BY_THE_USER="the user\'s Python"\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    command = [sys.executable, "-c", PYTHON, str(tmp_path / "spark"), str(python)]
    script = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert script.stdout == "the user's Python\n", script.stderr


@pytest.mark.parametrize(
    ("master", "ours"),
    [
        ("local[*]", True),
        ("local", True),
        ("local-cluster[1,1,512]", False),
        ("spark://a:7077", False),
    ],
)
def test_without_a_setting_a_cluster_has_its_own_python(
    monkeypatch: pytest.MonkeyPatch, master: str, ours: bool
) -> None:
    """The driver's path means nothing there; here it is the one Python that surely has numpy and pyarrow."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert workers_python(master, "python3") == (sys.executable if ours else "python3")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert workers_python(master, "/opt/python") == "/opt/python"


def test_no_java_is_a_usage_error(tmp_path: Path) -> None:
    """The message says what is needed and where."""
    code = "import sys; from pathlib import Path; from pytest_loadtest.pipeline.session import SparkHost; SparkHost(Path(sys.argv[1]), {}).warm()"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    script = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert (
        "UsageError: Spark could not start its Java process: it needs Java 17, 21, or 25 from 25.0.3"
        in script.stderr
    )
    assert "spark.log" in script.stderr


def test_a_driver_that_cannot_start_is_a_usage_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of the error comes from the Java process, which ends then.

    Java comes so far even with a class archive that it cannot use.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = java_process.path()
    assert archive is not None
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive")
    code = (
        "import sys; from pathlib import Path; from pytest_loadtest.pipeline.session import SparkHost;"
        "SparkHost(Path(sys.argv[1]), {'spark.driver.bindAddress': '192.0.2.1', 'spark.port.maxRetries': '0'}).session()"
    )
    script = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = script.stderr.strip().splitlines()[-1]
    assert "UsageError: Spark could not start: " in last
    assert "BindException" in last


@pytest.mark.usefixtures("spark")
def test_a_connect_server_that_does_not_answer_is_a_usage_error(tmp_path: Path) -> None:
    """Named by its URL."""
    with pytest.raises(UsageError, match="sc://127.0.0.1:9"):
        SparkHost(tmp_path, {}, remote="sc://127.0.0.1:9").session()


ENDED = """
import sys, threading
from pathlib import Path
from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import session

class Slow(session.JavaProcess):
    def __init__(self, *args, **named):
        creating.set()
        go_on.wait()
        super().__init__(*args, **named)

creating, go_on = threading.Event(), threading.Event()
session.JavaProcess = Slow
host = session.SparkHost(Path(sys.argv[1]), {})

def start():
    try:
        host.session()
    except UsageError as error:
        assert "is not started" in str(error) or "could not start" in str(error), error
    else:
        raise AssertionError("a session was started")

starter = threading.Thread(target=start, daemon=True)
starter.start()
creating.wait()
stopper = threading.Thread(target=host.stop)
stopper.start()
go_on.set()
stopper.join()
assert not host.alive(), "stop() has returned, and the process runs"
start()  # and later ones do not start it either
"""


def test_a_session_that_ends_while_java_is_created_leaves_no_java(tmp_path: Path) -> None:
    """The interpreter may exit at once, and the starting thread with it: nobody else would end Java."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED, str(tmp_path / "spark")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
