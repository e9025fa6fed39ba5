"""Workers that die in mid-run, and Ctrl-C: the run says so, nothing hangs, nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project

DYING = """\
import os, signal, threading, time
from pathlib import Path
import pytest

def measuring(test):
    while not list(Path(".loadtest").glob(f"*/*{test}-*/1/*/measure/run.json")):
        time.sleep(0.01)

@pytest.fixture
def mortal(request, worker_id):
    dying = {"test_member_dies": "gw2", "test_lead_dies": "gw0"}.get(request.node.name)
    if dying == worker_id:
        threading.Thread(target=lambda: (measuring(request.node.name), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()

@pytest.mark.load("long")
def test_member_dies(mortal, load): ...

@pytest.mark.load("short")
def test_after_member(load): load.assert_slo()

@pytest.mark.load("long")
def test_lead_dies(mortal, load): ...

@pytest.mark.load("short")
def test_after_lead(load): load.assert_slo()

def test_ordinary(): ...
"""


def test_workers_die_in_mid_run(project: Project) -> None:
    """A dead member or lead is one error that names it; the load tests that follow run on four workers again."""
    project.profile("long", duration="5min")
    project.profile("short")
    project.write("test_it.py", DYING)
    run = project.run("-n4")
    assert run.outcomes == {"passed": 3, "error": 2}
    assert sorted(case.get("name") or "" for case in run.junit) == sorted(
        ["test_member_dies", "test_after_member", "test_lead_dies", "test_after_lead", "test_ordinary"]
    )
    assert "load worker gw2 went down" in run.out
    assert "worker 'gw0' crashed while running 'test_it.py::test_lead_dies'" in run.out
    for name in ("test_member_dies", "test_lead_dies"):
        assert run.case(name).find("error") is not None
        assert run.documents[name]["verdict"]["outcome"] == "no data"
        assert "went down" in run.documents[name]["verdict"]["reasons"][0]
    for name in ("test_after_member", "test_after_lead"):
        assert run.documents[name]["plan"]["workers"] == 4
        assert run.documents[name]["verdict"]["outcome"] == "met"


def wait_until(what: Callable[[], object], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(("workers", "whom"), [("-n0", "controller"), ("-n2", "controller"), ("-n2", "group")])
def test_ctrl_c(project: Project, workers: str, whom: str) -> None:
    """Ctrl-C in mid-run ends workers, broker and JVM within ten seconds, exits 2 and keeps the samples."""
    project.profile("long", duration="5min")
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("long")\ndef test_long(load): ...\n@pytest.mark.load("long")\ndef test_next(load): ...\n',
    )
    process = project.start(workers)
    try:
        assert wait_until(project.runs, 120)
        (folder,) = project.runs()
        assert wait_until(lambda: time.monotonic_ns() > started(folder) + 1_500_000_000, 10)  # of load
    finally:
        (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
    asked = time.monotonic()
    run = project.finish(process, timeout=60)
    took = time.monotonic() - asked
    assert wait_until(lambda: not project.survivors(), 10)
    assert run.ret == pytest.ExitCode.INTERRUPTED
    assert took < 10
    assert list((folder / "sent").glob("*.parquet"))
    assert list((folder / "received").glob("*.parquet"))
    assert not list(folder.glob("*.manifest.json"))
    assert project.runs() == [folder]
    assert "Traceback" not in run.out


def started(folder: Path) -> int:
    """When the measured phase began."""
    import json

    return int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["start"])
