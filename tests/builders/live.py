"""A fleet for live tests: no workers and no broker, only the calls of a handle."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from builders.measurements import Limits, made
from builders.objectives import parse_slo
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.messages import Command, Failed
from pytest_loadtest.results.load import Load
from pytest_loadtest.verdict.slo import evaluate

OnLink = Callable[[Link], None] | None


def result(p99: str) -> Load:
    """Return the result of a run with an end-to-end p99 of 20 ms, under this objective on it."""
    run = made()
    return Load(
        profile_name="smoke",
        observed=run,
        verdict=evaluate(parse_slo({"endToEndLatency": {"p99": p99}}), run, Limits()),
    )


class Assigned:
    """The part of an assignment that the body may use."""

    run, target = (
        "1a2b3c4d",
        TargetAddress(url="pulsar://127.0.0.1:6650", admin_url="http://127.0.0.1:8080"),
    )


class LiveFleet:
    """Runs a load that is measured from the first moment on; it ends when :meth:`finish` is called, or when the handle gives it up.

    :param ends: the result or the error of the run. :param answer: the controller's answer to each command.
    """

    def __init__(self, ends: Load | Exception, answer: Any = None) -> None:
        self.ends, self.answer = ends, answer
        self.over = threading.Event()
        self.sent: list[Any] = []

    def run(self, changes: Mapping[str, Any], on_link: OnLink) -> Load:
        if on_link is not None:
            self._link = link = Link(self._send, queue.SimpleQueue(), (0, 0))
            link.measured_since, link.assignments = 0, [Assigned()]  # type: ignore[list-item]
            on_link(link)
            if threading.current_thread().name == "loadtest-live":
                assert self.over.wait(10)
            link.before_cleanup()
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends

    def _send(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, Command):
            self._link.answers.put(self.answer)
            return
        assert isinstance(message, Failed)
        self.ends = message.error
        self.over.set()

    def finish(self) -> None:
        """Let the load come to its end, and wait for it."""
        self.over.set()
        for thread in threading.enumerate():
            if thread.name == "loadtest-live":
                thread.join(10)
