"""Processes of this machine, sampled while they use CPU or disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting_for import wait_until

from pytest_loadtest.observe.processes import (
    DiskWaitSource,
    ProcessSource,
    memory_limit,
    process_start,
    with_children,
    worker_sources,
)

SPIN = "print(flush=True)\nwhile True: pass"
SLEEP = "import time\nprint(flush=True)\ntime.sleep(600)"


@contextmanager
def running(code: str) -> Iterator[int]:
    """Run this code in a Python process, wait until it has started, and yield its id."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def sampled(
    source: ProcessSource, enough: Callable[[Mapping[str, float]], bool]
) -> dict[str, float]:
    """Sample until ``enough`` returns True; returns that sample."""
    found: dict[str, float] = {}

    def look() -> bool:
        nonlocal found
        found = source.read(time.monotonic_ns())
        return enough(found)

    wait_until(look, "a matching sample", 60)
    return found


def test_this_process_started_in_the_past() -> None:
    assert 0 < time.time() - process_start() < 7 * 24 * 3600


def test_a_process_that_has_ended_has_no_children() -> None:
    assert with_children([2**22 + 1]) == []
    assert with_children([os.getpid()])[0] == os.getpid()


def test_a_thread_that_never_sleeps_needs_a_whole_core() -> None:
    """On a busy machine it may run less, and waits for the rest."""
    with running(SPIN) as pid:
        source = ProcessSource("worker gw0", lambda: (pid,))
        assert source.read(time.monotonic_ns()).keys() == {"worker gw0.memory"}
        found = sampled(source, lambda found: found["worker gw0.busiestWanted"] > 0.9)
    assert found["worker gw0.busiest"] <= found["worker gw0.busiestWanted"] <= 1
    assert found["worker gw0.memory"] > 2**20


def test_a_sleeping_process_needs_no_core_and_a_stopped_one_is_detected() -> None:
    with running(SLEEP) as pid:
        source = ProcessSource("broker", lambda: (pid,), broker=True)
        source.read(time.monotonic_ns())
        # On a busy machine it may not sleep yet.
        found = sampled(source, lambda found: found.get("broker.busiestWanted", 1) < 0.9)
        assert found["broker.stopped"] == 0
        os.kill(pid, signal.SIGSTOP)
        sampled(source, lambda found: found["broker.stopped"] == 1)


def test_a_brokers_children_count_with_it() -> None:
    spin = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {SPIN!r}])\nimport time\ntime.sleep(600)"
    with running(spin) as pid:  # the child says that it has begun
        source = ProcessSource("broker", lambda: (pid,), broker=True)
        source.read(time.monotonic_ns())
        try:
            sampled(source, lambda found: found["broker.busiestWanted"] > 0.9)
        finally:
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)


def test_children_that_end_cost_no_sample() -> None:
    """As those of a service that runs a command for each message."""
    commands = "import subprocess\nprint(flush=True)\nwhile True: subprocess.run(['sleep', '0.05'])"
    with running(commands) as pid:
        source = ProcessSource("service orders", lambda: (pid,), broker=True)
        source.read(time.monotonic_ns())
        for _ in range(12):  # the children are searched for once more
            time.sleep(0.1)
            assert "service orders.stopped" in source.read(time.monotonic_ns())


def test_what_children_that_ended_used_is_unknown() -> None:
    """The service's own use is no measure of them: it sleeps while they work."""
    work = "import time\nwhile time.thread_time() < 0.1: pass"
    commands = f"import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', {work!r}]); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", commands], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        source = ProcessSource("service orders", lambda: (process.pid,), broker=True)
        for _ in range(3):
            process.stdout.readline()  # one more has ended
            sample = source.read(time.monotonic_ns())
            assert sample["service orders.memory"] > 0
            assert "service orders.cpu" not in sample
        process.kill()


def test_a_worker_is_sampled_without_the_children_that_its_tests_run() -> None:
    """Their CPU does not make its own unknown: it says whether the generator was the limit."""
    work = "import time\nwhile time.thread_time() < 0.1: pass"
    commands = f"import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', {work!r}]); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", commands], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        source = ProcessSource("worker gw0", lambda: (process.pid,))
        source.read(time.monotonic_ns())
        process.stdout.readline()
        assert "worker gw0.busiestWanted" in source.read(time.monotonic_ns())
        process.kill()


def test_what_a_child_that_ended_had_written_does_not_hide_other_writes(tmp_path: Path) -> None:
    """The sum falls with it: the rate of this sample is unknown, not 0."""
    write = f"import os, time\nf = open({str(tmp_path / 'file')!r}, 'wb')\nf.write(bytes(1 << 22))\nos.fsync(f.fileno())\nprint(flush=True)\ntime.sleep(600)"
    parent = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {write!r}])\ntime.sleep(600)"
    with running(parent) as pid:  # the child says that it has written
        source = ProcessSource("broker", lambda: (pid,), broker=True)
        source.read(time.monotonic_ns())
        assert source.read(time.monotonic_ns())["broker.written"] == 0
        _, child = with_children([pid])
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: with_children([pid]) == [pid], "the end of the child", 60)
        assert "broker.written" not in source.read(time.monotonic_ns())
        assert source.read(time.monotonic_ns())["broker.written"] == 0


def test_writes_to_the_disk_are_counted(tmp_path: Path) -> None:
    write = f"import os\nprint(flush=True)\nwhile True:\n    f = open({str(tmp_path / 'file')!r}, 'wb')\n    f.write(bytes(1 << 20))\n    f.flush()\n    os.fsync(f.fileno())"
    with running(write) as pid:
        source = ProcessSource("broker", lambda: (pid,), broker=True)
        source.read(time.monotonic_ns())
        sampled(source, lambda found: found["broker.written"] > 0)


def test_a_restarted_process_has_rates_from_its_second_sample_on() -> None:
    with running(SPIN) as first:
        pid = first
        source = ProcessSource("broker", lambda: (pid,), broker=True)
        source.read(time.monotonic_ns())
        sampled(source, lambda found: "broker.cpu" in found)
    assert source.read(time.monotonic_ns()) == {}
    with running(SLEEP) as second:
        pid = second
        assert "broker.cpu" not in source.read(time.monotonic_ns())
        assert source.read(time.monotonic_ns())["broker.cpu"] >= 0
    none = ProcessSource("broker", lambda: (), broker=True)
    assert none.read(time.monotonic_ns()) == {}
    assert (source.missing, none.missing) == ([], [])


def test_a_process_that_was_never_seen_is_missing() -> None:
    """As on a host without /proc: no samples are no evidence of an idle worker."""
    with running(SLEEP) as pid:
        ended = pid
    source = worker_sources({"h1-1": ended})["worker h1-1"]()
    assert [source.read(time.monotonic_ns()) for _ in range(2)] == [{}, {}]
    assert source.missing == [
        f"worker h1-1: process {ended} is not in /proc, so its use is unknown"
    ]


@pytest.mark.parametrize(
    ("line", "file", "text", "limit"),
    [
        ("0::/broker", "broker/memory.max", "1048576", 1_048_576),
        ("0::/broker", "broker/memory.max", "max", None),
        ("4:memory:/broker", "memory/broker/memory.limit_in_bytes", "2097152", 2_097_152),
        ("4:memory:/broker", "memory/broker/memory.limit_in_bytes", "9223372036854771712", None),
        ("3:cpuset:/", "memory.max", "5", None),
        ("0::/elsewhere", "broker/memory.max", "5", None),
    ],
)
def test_the_limit_of_a_control_group(
    tmp_path: Path, line: str, file: str, text: str, limit: int | None
) -> None:
    """Both versions of control groups have one; without a file there is no limit."""
    for path, content in (
        (tmp_path / "proc/1/cgroup", f"7:pids:/\n{line}\n"),
        (tmp_path / "groups" / file, f"{text}\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    assert memory_limit(1, tmp_path / "proc", tmp_path / "groups") == limit
    assert memory_limit(2, tmp_path / "proc", tmp_path / "groups") is None


def test_other_sleep_is_no_wait_for_the_disk() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nimport time\ntime.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert DiskWaitSource(lambda: (process.pid,)).read(0) == {"broker.diskWait": 0}
    finally:
        process.kill()
        process.communicate()
    assert DiskWaitSource(lambda: (process.pid,)).read(0) == {}


def test_without_a_process_the_wait_for_the_disk_is_unknown() -> None:
    assert DiskWaitSource(lambda: ()).read(0) == {}
    assert 0 <= DiskWaitSource(lambda: (os.getpid(),)).read(0)["broker.diskWait"] <= 1


def test_the_memory_of_a_process_that_has_ended_is_unknown() -> None:
    """Its parent has not waited for it, so it is still in /proc, with a memory of 0."""
    with running(SLEEP) as pid:
        source = ProcessSource("broker 1", lambda: (pid,))
        assert source.read(time.monotonic_ns())["broker 1.memory"] > 0
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text(), "the end", 60)
        assert "broker 1.memory" not in source.read(time.monotonic_ns())
