"""Workers and Spark that die during a run, Ctrl-C and SIGTERM: the error names the cause, nothing hangs, no process is left."""

from __future__ import annotations

import os
import re
import signal
import threading
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


def test_a_worker_that_dies_during_a_run_is_one_error(project: Project) -> None:
    """It names the dead member or lead; the load tests that follow run on three workers again."""
    project.profile("long", duration="5min")
    project.profile("short")
    project.write("test_it.py", DYING)
    run = project.run("-n3")
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
        assert run.documents[name]["plan"]["workers"] == 3
        assert run.documents[name]["verdict"]["outcome"] == "met"


def wait_until(what: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition; return whether it became true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


KILLED = """\
import pytest

@pytest.mark.load("once")
def test_once(load): load.assert_slo()

@pytest.mark.load("twice")
def test_twice(load): load.assert_slo()

@pytest.mark.load("never")
def test_never(load): load.assert_slo()
"""


def test_killed_spark_is_restarted_once(spark_project: Project) -> None:
    """The verdict is that of the samples; if it is killed again, the error says how to continue."""
    project = spark_project
    for name in ("once", "twice", "never"):
        project.profile(name, duration="2s")
    project.write("test_it.py", KILLED)
    process = project.start("-n1")
    killer = threading.Thread(target=_kill_spark, args=(project,))
    killer.start()
    run = project.finish(process)
    killer.join()
    assert run.outcomes == {"passed": 2, "error": 1}
    (note,) = run.documents["test_once"]["notes"]
    assert "Spark's Java process died (killed by signal 9" in note
    assert f"  note       {note}" in run.out
    assert run.documents["test_never"]["notes"] == []
    (reason, remedy, _) = run.documents["test_twice"]["verdict"]["reasons"]
    assert "Spark's Java process died, was restarted, and died again" in reason
    (again,) = re.findall(r"python -m pytest_loadtest (aggregate \S+)", remedy)
    assert "Traceback" not in run.out
    assert project.command(*again.split()).returncode == 0


def _kill_spark(project: Project) -> None:
    """Kill Spark: once in the first test; in the second test every process of it, until there is a result."""
    measured = lambda test: wait_until(lambda: list(project.path.glob(f".loadtest/*/*{test}-*/1/*/measure/run.json")), 120)  # noqa: E731
    if measured("once"):
        assert wait_until(lambda: _kill_java(project), 10)
    if measured("twice"):
        results = lambda: (_kill_java(project), list(project.path.glob(".loadtest/*/*twice-*/1/*/measure/results.json")))[1]  # noqa: E731
        assert wait_until(results, 120)


def _kill_java(project: Project) -> bool:
    found = [pid for pid, command in project.processes() if "org.apache.spark.deploy.SparkSubmit" in command]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return bool(found)


INTERRUPTS = [  # with Spark, once in one process and once in a group of them
    (signal.SIGINT, "-n2", "group", "spark_project"),
    (signal.SIGTERM, "-n0", "controller", "spark_project"),
    (signal.SIGTERM, "-n2", "controller", "project"),
    (signal.SIGTERM, "-n2", "group", "project"),
]


@pytest.mark.parametrize(("number", "workers", "whom", "kind"), INTERRUPTS, ids=lambda value: getattr(value, "name", value))
def test_an_interrupt_ends_everything_within_ten_seconds(
    request: pytest.FixtureRequest, number: int, workers: str, whom: str, kind: str
) -> None:
    """Ctrl-C and SIGTERM end workers, broker and JVM; exit status 2, samples are kept."""
    project: Project = request.getfixturevalue(kind)
    project.profile("long", duration="5min")
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("long")\ndef test_long(load): ...\n@pytest.mark.load("long")\ndef test_next(load): ...\n',
    )
    process = project.start(workers)
    try:
        assert wait_until(project.runs, 240)
        (folder,) = project.runs()
        assert wait_until(lambda: time.monotonic_ns() > started(folder) + 1_500_000_000, 10)  # of load
        slowness = busy()
    finally:
        (os.killpg if whom == "group" else os.kill)(process.pid, number)
    asked = time.monotonic()
    assert wait_until(lambda: process.poll() is not None and not project.survivors(), 60)
    took = time.monotonic() - asked
    run = project.finish(process)
    assert run.ret == pytest.ExitCode.INTERRUPTED
    assert took < 10 * max(slowness, busy())
    assert list((folder / "sent").glob("*.parquet"))
    assert list((folder / "received").glob("*.parquet"))
    assert not list(folder.glob("*.manifest.json"))
    assert project.runs() == [folder]
    assert "Traceback" not in run.out
    assert not (folder.parents[3] / "spark" / "tmp").exists()


def busy() -> float:
    """Return how many times longer a computation takes now than on an idle machine."""
    wall, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < 0.2:
        pass
    return (time.monotonic() - wall) / 0.2


def started(folder: Path) -> int:
    """Return the instant at which the measured phase began."""
    import json

    return int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["start"])
