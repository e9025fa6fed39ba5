"""Whether a process sleeps for the disk."""

from __future__ import annotations

import os
import subprocess
import sys

from pytest_loadtest.observe.disk_wait import DiskWaitSource


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
