"""Samples the workers of another host than the controller's, in a process of its own on that host.

One worker of the host starts it (:class:`HostSampler`) before load runs, and sends the samples to
the controller when a phase is over. A process of its own, because sampling would take the
interpreter lock from the engine of the worker. It has the same sources as the controller has for
workers on its host, and ends with its standard input, so it does not outlive the worker. It reads
one JSON object a line, ``{"begin": …}`` or ``{"end": …}``, and answers the latter with one line.
Sampling never ends a run: a failure is what it sends.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.observe.sampler import LONGEST, MARGIN, Sampler, TelemetrySource
from pytest_loadtest.observe.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.fleet.messages import HostSampling, StartPhase

STARTING: Final = 30.0
"""s for the process to start, on a busy host."""
ENDING: Final = LONGEST + 2 * MARGIN
"""s for its answer at the end of a phase."""
CODE: Final = f"import sys; sys.path += sys.argv[1:]; from {__name__} import main; main()"
"""The process finds this package as the worker does, after all others: pytest puts folders of tests
first, which may have any names.
"""
IDLE: Final = 20  # ms between two calls of ``alive``


def part_file(folder: Path, leader: str) -> Path:
    """Return the file with the samples that this worker sent, in the folder of the phase."""
    return folder / f"telemetry-{leader}.json"


def no_samples(order: HostSampling, reason: str, *, lost: bool) -> Telemetry:
    """Return the telemetry of a process that failed.

    :param lost: it had begun, so a conclusion without its samples is unknown.
    """
    text = f"sampling of {', '.join(order.workers)}: {reason}"
    without = {}
    if lost:
        without = {f"worker {worker}": text for worker in order.workers}
    return Telemetry.of_rows([], [], missing=(text,), lost=without)


class HostSampler:
    """The worker's end of the process.

    :param order: None: another process samples this worker, and nothing is done here.
    :param alive: called while the process is waited for: keeps connections alive, and raises the
        error that ends the run.
    """

    def __init__(self, order: HostSampling | None, alive: Callable[[], None]) -> None:
        self._order = order
        self._failure = ""
        self._is_ready = False
        self._alive = alive
        self._process: subprocess.Popen[bytes] | None = None
        self._begun: dict[str, Path] = {}
        if order is None:
            return
        command = [sys.executable, "-P", "-c", CODE, *filter(None, sys.path)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            self._failure = f"cannot start a process: {error.strerror}"

    def __enter__(self) -> HostSampler:
        return self

    def wait_until_ready(self) -> None:
        """Wait until the process runs: starting it takes CPU time that load would need."""
        if self._process is not None:
            self._is_ready = self._answer(STARTING) is not None

    def begin(self, workload: str, phase: StartPhase) -> None:
        """Sample a phase that is recorded."""
        if self._order is None or phase.folder is None:
            return
        assert phase.clock is not None, "the worker is on another host"
        self._begun[workload] = part_file(phase.folder, next(iter(self._order.workers)))
        self._send(
            {
                "begin": workload,
                "start": phase.start,
                "clock": asdict(phase.clock),
                "host": self._order.host,
                "workers": dict(self._order.workers),
                "addresses": self._order.addresses.get(workload, ()),
            }
        )

    def end(self, link: Link) -> None:
        """Send the samples of the phases that are over."""
        for workload, file in self._begun.items():
            self._send({"end": workload})
            answer = self._answer(ENDING) or self._no_samples()
            link.send_parts(io.BytesIO(answer), file)
        self._begun.clear()

    def _no_samples(self) -> bytes:
        assert self._order is not None
        telemetry = no_samples(self._order, self._failure, lost=self._is_ready)
        return json.dumps({"telemetry": telemetry.document(), "cores": None}).encode()

    def _send(self, command: dict[str, Any]) -> None:
        if self._process is None or self._failure:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._fail("ended")

    def _answer(self, seconds: float) -> bytes | None:
        """Return the next line of the process; None with the reason in ``_failure``."""
        if self._process is None or self._failure:
            return None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts = []
        end = time.monotonic() + seconds
        # select(2) takes no descriptor above 1023, and a worker may have thousands of connections.
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        while time.monotonic() < end:
            if not ready.poll(IDLE):
                self._alive()
                continue
            part = os.read(descriptor, 1 << 20)
            parts.append(part)
            if part.endswith(b"\n"):
                return b"".join(parts)
            if not part:
                self._fail("ended")
                return None
        self._fail(f"did not answer within {seconds:.0f} s")
        return None

    def _fail(self, failure: str) -> None:
        """Note why there are no samples.

        :param failure: used if the process did not say why.
        """
        assert self._process is not None
        self._process.kill()
        _, errors = self._process.communicate()
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        self._failure = f"its process {failure}"
        if last:
            self._failure += f": {last}"

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(OSError, ValueError):  # the pipes of a process that has ended
                self._process.communicate()


def main() -> None:
    """Carry out the commands on standard input until it ends."""
    import pytest_loadtest.observe.connections
    import pytest_loadtest.observe.processes  # noqa: F401

    samplers: dict[str, Sampler] = {}
    print("{}", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "begin" in command:
            samplers[command["begin"]] = _begin(command)
        else:
            telemetry = samplers.pop(command["end"]).stop()
            print(
                json.dumps(
                    {"telemetry": telemetry.document(), "cores": len(os.sched_getaffinity(0))}
                ),
                flush=True,
            )


def _begin(command: dict[str, Any]) -> Sampler:
    from pytest_loadtest.fleet.host_clocks import HostClock
    from pytest_loadtest.metrics.clocks import ClockLine
    from pytest_loadtest.observe.connections import ConnectionSource
    from pytest_loadtest.observe.processes import worker_sources
    from pytest_loadtest.observe.sampler import Sampler

    sources: dict[str, Callable[[], TelemetrySource]] = dict(worker_sources(command["workers"]))
    if command["addresses"]:
        addresses = [tuple(address) for address in command["addresses"]]
        sources["connections"] = partial(
            ConnectionSource, addresses, (), side=f"workers {command['host']}"
        )
    return Sampler(
        sources, command["start"], broker="", clock=HostClock(ClockLine(**command["clock"]))
    )
