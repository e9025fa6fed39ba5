"""A standalone cluster of Spark on this machine: a master and workers in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.java import from_archive
from pytest_loadtest.pipeline import java_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECONDS = 120
FROM_ARCHIVE = " ".join(from_archive(java_process.path()))
"""Java's options for the quick start that a session's own Java process has."""


@contextmanager
def standalone(folder: Path, *workers: Sequence[str], cores: int) -> Iterator[str]:
    """Start a cluster; return the URL of its master. :param workers: prefix of each worker's command. :param cores: of each worker."""
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        master = stack.enter_context(
            _daemon(
                folder / "master.log", [f"{deploy}.master.Master", "-p", "0", "--webui-port", "0"]
            )
        )
        url = _wait_for(folder / "master.log", r"Starting Spark master at (spark://\S+)", master)
        for number, prefix in enumerate(workers):
            log = folder / f"worker-{number}.log"
            options = [
                "-c",
                str(cores),
                "-m",
                "2g",
                "-d",
                str(folder / f"work-{number}"),
                "--webui-port",
                "0",
                url,
            ]
            worker = stack.enter_context(
                _daemon(log, [f"{deploy}.worker.Worker", *options], prefix)
            )
            _wait_for(log, "Successfully registered with (master)", worker)
        yield url


@contextmanager
def _daemon(
    log: Path, arguments: Sequence[str], prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": FROM_ARCHIVE,
        "SPARK_LOG_LEVEL": "INFO",
    }
    command = [
        *prefix,
        f"{java_process.spark_home()}/bin/spark-class",
        *arguments,
        "-h",
        "127.0.0.1",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        process.kill()  # unshare ignores SIGTERM
        process.wait()


def _wait_for(log: Path, line: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + SECONDS
    while (match := re.search(line, log.read_text(errors="replace"))) is None:
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, (
            f"{line} did not come: {log.read_text(errors='replace')}"
        )
        time.sleep(0.05)
    return match[1]
