"""Sampling on another host: a real process that samples this one, and its failures."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from builders.plans import loopback, made
from waiting_for import wait_until

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import host_sampler
from pytest_loadtest.fleet.host_sampler import HostSampler, part_file
from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.messages import HostSampling, SamplePart, StartPhase
from pytest_loadtest.metrics.clocks import ClockLine
from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.values.quantities import SECOND

CONNECTIONS = "workers h1.connections"
BEHIND = 100_000 * SECOND
"""ns by which this host's clock is behind the controller's."""


class Sent:
    """A link that keeps what was sent."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self.targets: set[Path] = set()
        self.link = Link(self._send, queue.SimpleQueue(), (0, 0))

    def _send(self, message: Any) -> None:
        assert isinstance(message, SamplePart)
        self.targets.add(message.target)
        self._stream.write(message.part)

    def telemetry(self) -> Telemetry:
        return Telemetry.from_document(json.loads(self._stream.getvalue())["telemetry"])

    @property
    def cores(self) -> int | None:
        cores: int | None = json.loads(self._stream.getvalue())["cores"]
        return cores


def order(pid: int | None = None, addresses: tuple[tuple[str, int], ...] = ()) -> HostSampling:
    return HostSampling(
        host="h1",
        workers={"h1-1": pid or os.getpid()},
        addresses={"": addresses} if addresses else {},
    )


def phase(folder: Path | None, start: int = 0) -> StartPhase:
    line = ClockLine(at=time.monotonic_ns(), offset=-BEHIND)
    return StartPhase(phase=made(loopback()).measure, start=start, folder=folder, clock=line)


def idle() -> None: ...


def test_a_phase_is_sampled_in_the_controllers_clock(tmp_path: Path) -> None:
    """Processes and sockets of this host, at whole seconds after the start of the phase."""
    with (
        socket_pair() as port,
        HostSampler(order(addresses=(("127.0.0.1", port),)), idle) as sampler,
    ):
        sampler.wait_until_ready()
        for seconds in (1.2, 5, 20):
            sent, start = Sent(), time.monotonic_ns() + BEHIND
            sampler.begin("", phase(tmp_path, start))
            wait_until(
                lambda start=start, seconds=seconds: (
                    time.monotonic_ns() + BEHIND > start + seconds * SECOND
                ),
                "samples",
                60,
            )
            sampler.end(sent.link)
            took, telemetry = time.monotonic_ns() + BEHIND - start, sent.telemetry()
            # With 20 000 other sockets on this host, sockets are not read every second.
            if np.isfinite(telemetry.column(CONNECTIONS)).any():
                break
        following = Sent()
        sampler.begin("", phase(tmp_path / "step-02", start))
        sampler.end(following.link)
    assert sent.targets == {part_file(tmp_path, "h1-1")}
    assert len(telemetry) >= 1
    assert ((telemetry.time >= SECOND) & (telemetry.time <= took)).all()
    assert (telemetry.column("worker h1-1.memory") > 1e6).all()
    assert np.isfinite(telemetry.column("worker h1-1.busiestWanted")).any()
    connections = telemetry.column(CONNECTIONS)
    assert set(connections[~np.isnan(connections)]) == {1}
    assert (
        telemetry.missing,
        telemetry.lost,
        telemetry.columns.keys() & {"workers.connections"},
    ) == ((), {}, set())
    assert sent.cores == len(os.sched_getaffinity(0))
    assert (following.targets, following.telemetry().missing) == (
        {part_file(tmp_path / "step-02", "h1-1")},
        (),
    )


@contextlib.contextmanager
def socket_pair() -> Iterator[int]:
    """Open a connection of this process to a port of its own."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        yield server.getsockname()[1]


def test_a_phase_that_is_not_recorded_is_not_sampled() -> None:
    sent = Sent()
    with HostSampler(order(), idle) as sampler:
        sampler.begin("", phase(None))
        sampler.end(sent.link)
    assert sent.targets == set()


def test_a_worker_without_an_order_starts_no_process(tmp_path: Path) -> None:
    children, sent = psutil.Process().children(), Sent()
    with HostSampler(None, idle) as sampler:
        sampler.wait_until_ready()
        sampler.begin("", phase(tmp_path))
        sampler.end(sent.link)
        assert psutil.Process().children() == children
    assert sent.targets == set()


def test_a_process_that_is_killed_is_a_reason_and_no_error(tmp_path: Path) -> None:
    sent = Sent()
    with HostSampler(order(), idle) as sampler:
        sampler.wait_until_ready()
        sampler.begin("", phase(tmp_path))
        assert sampler._process is not None
        sampler._process.kill()
        sampler.end(sent.link)
    text = "sampling of h1-1: its process ended"
    assert sent.telemetry().missing == (text,)
    assert sent.telemetry().lost == {"worker h1-1": text}, "the conclusion is unknown"
    assert sent.cores is None


def test_the_error_of_a_process_that_cannot_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without the package that reads processes, or without /proc; connections are kept alive meanwhile."""
    tmp_path.joinpath("psutil.py").write_text("raise PermissionError('no /proc here')")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    sent, polls = Sent(), list[None]()
    with HostSampler(order(), lambda: polls.append(None)) as sampler:
        sampler.wait_until_ready()
        sampler.begin("", phase(tmp_path))
        sampler.end(sent.link)
    assert sent.telemetry().missing == (
        "sampling of h1-1: its process ended: PermissionError: no /proc here",
    )
    assert sent.telemetry().lost == {}, "it never was a source"
    assert polls


def test_a_test_module_with_the_name_of_another_one_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has its folder in front of all others, where pytest put it."""
    for name in ("psutil", "selectors", "numpy"):
        tmp_path.joinpath(f"{name}.py").write_text("raise RuntimeError('a test')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sent = Sent()
    with HostSampler(order(), idle) as sampler:
        sampler.wait_until_ready()
        sampler.begin("", phase(tmp_path))
        sampler.end(sent.link)
    assert sent.telemetry().missing == ()


def test_a_command_that_does_not_exist_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    sent = Sent()
    with HostSampler(order(), idle) as sampler:
        sampler.wait_until_ready()
        sampler.begin("", phase(tmp_path))
        sampler.end(sent.link)
    assert sent.telemetry().missing == (
        "sampling of h1-1: cannot start a process: No such file or directory",
    )


def test_a_process_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_sampler, "ENDING", 0.05)
    sent = Sent()
    with HostSampler(order(), idle) as sampler:
        sampler.wait_until_ready()
        sampler.begin("", phase(tmp_path))
        assert sampler._process is not None
        psutil.Process(sampler._process.pid).suspend()
        sampler.end(sent.link)
        assert sampler._process.returncode is not None
    assert sent.telemetry().missing == ("sampling of h1-1: its process did not answer within 0 s",)


def test_a_run_that_is_given_up_does_not_wait_for_the_process() -> None:
    """The error of the controller ends the wait, and the process with it."""

    def give_up() -> None:
        raise NoData("given up")

    with pytest.raises(NoData, match="given up"), HostSampler(order(), give_up) as sampler:
        assert sampler._process is not None
        psutil.Process(sampler._process.pid).suspend()
        sampler.wait_until_ready()
    assert sampler._process.returncode is not None


def test_the_process_ends_with_its_worker() -> None:
    """Also if the worker is killed: its standard input ends."""
    code = (
        "import sys, time\n"
        "from pytest_loadtest.fleet.host_sampler import HostSampler\n"
        "from pytest_loadtest.fleet.messages import HostSampling\n"
        "sampler = HostSampler(HostSampling(host='h1', workers={'h1-1': 1}, addresses={}), lambda: None)\n"
        "sampler.wait_until_ready()\n"
        "print(sampler._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    child = psutil.Process(int(worker.stdout.readline()))
    worker.kill()
    worker.communicate()
    wait_until(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        "the end of the process",
        60,
    )
