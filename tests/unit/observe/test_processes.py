"""Processes of this machine, sampled while they do something."""

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

from pytest_loadtest.observe.processes import DiskWaitSource, ProcessSource, memory_limit

SPIN = "print(flush=True)\nwhile True: pass"
SLEEP = "import time\nprint(flush=True)\ntime.sleep(600)"


@contextmanager
def running(code: str) -> Iterator[int]:
    """A Python that runs this, from the moment that it has begun to; its id."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def sampled(source: ProcessSource, enough: Callable[[Mapping[str, float]], bool]) -> dict[str, float]:
    """The first sample that is as it shall be."""
    found: dict[str, float] = {}

    def look() -> bool:
        nonlocal found
        found = source.read(time.monotonic_ns())
        return enough(found)

    wait_until(look, "such a sample", 60)
    return found


def test_a_thread_that_never_sleeps_wants_a_whole_core() -> None:
    """Whether it gets one or a busy machine gives it to others."""
    with running(SPIN) as pid:
        source = ProcessSource("worker gw0", lambda: pid)
        assert source.read(time.monotonic_ns()).keys() == {"worker gw0.memory"}
        found = sampled(source, lambda found: found["worker gw0.busiestWanted"] > 0.9)
    assert found["worker gw0.busiest"] <= found["worker gw0.busiestWanted"] <= 1
    assert found["worker gw0.memory"] > 2**20


def test_one_that_sleeps_wants_none_and_one_that_is_stopped_is_seen() -> None:
    with running(SLEEP) as pid:
        source = ProcessSource("broker", lambda: pid, broker=True)
        source.read(time.monotonic_ns())
        found = sampled(source, lambda found: "broker.cpu" in found)
        assert found["broker.busiestWanted"] < 0.9
        assert found["broker.stopped"] == 0
        os.kill(pid, signal.SIGSTOP)
        sampled(source, lambda found: found["broker.stopped"] == 1)


def test_a_brokers_children_count_with_it() -> None:
    spin = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {SPIN!r}])\nimport time\ntime.sleep(600)"
    with running(spin) as pid:  # the child says that it has begun
        source = ProcessSource("broker", lambda: pid, broker=True)
        source.read(time.monotonic_ns())
        try:
            sampled(source, lambda found: found["broker.busiestWanted"] > 0.9)
        finally:
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)


def test_what_is_written_to_the_disk_is_told(tmp_path: Path) -> None:
    write = f"import os\nprint(flush=True)\nwhile True:\n    f = open({str(tmp_path / 'file')!r}, 'wb')\n    f.write(bytes(1 << 20))\n    f.flush()\n    os.fsync(f.fileno())"
    with running(write) as pid:
        source = ProcessSource("broker", lambda: pid, broker=True)
        source.read(time.monotonic_ns())
        sampled(source, lambda found: found["broker.written"] > 0)


def test_a_process_that_ends_is_unknown_and_one_in_its_place_begins_anew() -> None:
    with running(SPIN) as first:
        pid = first
        source = ProcessSource("broker", lambda: pid, broker=True)
        source.read(time.monotonic_ns())
        sampled(source, lambda found: "broker.cpu" in found)
    assert source.read(time.monotonic_ns()) == {}
    with running(SLEEP) as second:
        pid = second
        assert "broker.cpu" not in source.read(time.monotonic_ns())
        assert source.read(time.monotonic_ns())["broker.cpu"] >= 0
    none = ProcessSource("broker", lambda: None, broker=True)
    assert none.read(time.monotonic_ns()) == {}


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
def test_the_limit_of_a_control_group(tmp_path: Path, line: str, file: str, text: str, limit: int | None) -> None:
    """Of either version; without one there is none."""
    for path, content in ((tmp_path / "proc/1/cgroup", f"7:pids:/\n{line}\n"), (tmp_path / "groups" / file, f"{text}\n")):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    assert memory_limit(1, tmp_path / "proc", tmp_path / "groups") == limit
    assert memory_limit(2, tmp_path / "proc", tmp_path / "groups") is None


def test_one_that_sleeps_for_something_else_does_not_wait_for_the_disk() -> None:
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nimport time\ntime.sleep(600)"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert DiskWaitSource(lambda: process.pid).read(0) == {"broker.diskWait": 0}
    finally:
        process.kill()
        process.communicate()
    assert DiskWaitSource(lambda: process.pid).read(0) == {}


def test_where_there_is_no_process_nothing_is_known() -> None:
    assert DiskWaitSource(lambda: None).read(0) == {}
    assert 0 <= DiskWaitSource(os.getpid).read(0)["broker.diskWait"] <= 1
