"""A job of Spark whose tasks hold slots for as long as its owner wants.

The rule: a worker of a load test in Spark's cluster needs a slot, and a slot is held by a task that
does not end. :mod:`pytest_loadtest.fleet` starts and cancels the job in the controller's process;
the job waits in a thread of its own, and its tasks (:mod:`pytest_loadtest.pipeline.slot_task`) run
in the processes of Spark's executors.
"""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pytest_loadtest.pipeline.slot_task import CountedSlot

CANCEL_SECONDS = 10
_NODE = re.compile(r"\(TID \d+\) \((\S+) executor ")
"""The node in Spark's message of a task that failed."""


class SlotJob:
    """A job with one task for each slot, in a thread; it starts at once.

    :param session: of its own: to cancel the job cancels all jobs of the session.
    :param barrier: all tasks start together or none does, the end of one by an error ends all, and
        Spark never starts them again: its scheduler aborts a barrier stage that computes a result
        at the first failure, whatever ``spark.task.maxFailures`` is.
    """

    def __init__(
        self, session: SparkSession, task: CountedSlot, slots: int, *, barrier: bool
    ) -> None:
        self._session = session
        self._task = task
        self._slots = slots
        self._barrier = barrier
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="loadtest-spark-slots", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from pytest_loadtest.pipeline.transforms import for_workers

        try:
            # The tasks' code travels with them: Spark's workers may lack this package.
            with for_workers():
                numbers = self._session.range(self._slots, numPartitions=self._slots)
                numbers.mapInArrow(self._task, "slot int", barrier=self._barrier).collect()
        except Exception as error:
            self._failure = error

    @property
    def ended(self) -> bool:
        """True if it has no tasks any more."""
        return not self._thread.is_alive()

    @property
    def cause(self) -> str:
        """The error with which it ended, in one line; empty without any."""
        return failure_cause(str(self._failure or ""))

    def join(self, seconds: float = CANCEL_SECONDS) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def cancel(self) -> None:
        """End its tasks, if it has any, and wait for that."""
        if not self.ended:
            with suppress(Exception):  # the session or its Java process may have ended
                # A tag would not do: in a classic session it cancels only
                # what the calling thread has started.
                self._session.interruptAll()
            self.join()


def failure_cause(message: str) -> str:
    """Return the error in Spark's message of a failed job in one line.

    It begins with the node if a Python of Spark's raised it.
    """
    lines = message.splitlines()
    # The traceback of the task's Python ends with the first line that is not indented: the error. A
    # Python that does not even start has printed lines, all indented by Spark, of which the last
    # one is its error.
    raised = []
    for number, line in enumerate(lines):
        if line.startswith("Error from python worker:"):
            printed = takewhile(lambda line: line.startswith(" "), lines[number + 1 :])
            raised = [line for line in printed if line.strip()][-1:]
            break
        if "Traceback (most recent call last)" in line:
            raised = [line for line in lines[number + 1 :] if not line.startswith(" ")]
    error = next((line.strip() for line in (*raised, *lines) if line.strip()), "")
    if "No module named" in error:
        error += ": install it for the Python of Spark's nodes (spark.pyspark.python)"
    node = _NODE.search(message)
    if node is not None and raised:
        return f"{node[1]}: {error}"
    return error


def driver_host(session: SparkSession, remote: str | None) -> tuple[str, str]:
    """Return the address at which Spark's workers reach this process, and the one to listen at.

    They reach the driver of a classic session, which is on this host, at
    ``spark.driver.host``. With Spark Connect the driver is elsewhere: the address is then
    the one that this host has on its way there.

    :param remote: URL of the Spark Connect server.
    """
    if remote is None:
        host = str(session.conf.get("spark.driver.host")).strip("[]")
        return host, str(session.conf.get("spark.driver.bindAddress", host))
    server = urlsplit(remote)
    family, kind, protocol, _, address = socket.getaddrinfo(
        server.hostname, server.port or 15002, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as way:
        # A datagram socket sends nothing here: the system only chooses the way.
        way.connect(address)
        host = way.getsockname()[0]
    return host, host
