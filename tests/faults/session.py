"""One pytest session with a fault: a load test that the fault hits, and a healthy one that follows in the same session."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from plugin.projects import INI, SPARK_INI, Finished, Project
from waiting_for import wait_until

from .fault import Seen

if TYPE_CHECKING:
    import subprocess

    from .fault import Fault

PROFILE: Mapping[str, Any] = {
    "name": "fault", "topics": 2, "producersPerTopic": 2, "messageSize": 128, "producerRate": 1000, "testDuration": "1s", "maxSendDelay": "60s",
    "driver": {"name": "loopback"}, "generator": {"sendDelayP99": "30s", "stalled": 1, "cpu": 5, "receiveLagP99": "30s"},
    "slo": {"throughput": "1%", "sent": "1%"},
}  # fmt: skip
"""Limits on time are wide: another program's load must not change a verdict."""
HEALTHY = PROFILE | {"name": "healthy", "producerRate": 200, "testDuration": "200ms"}
TESTS = """\
import pytest

@pytest.mark.load("fault"{mark})
def test_fault(load):
    {body}

@pytest.mark.load("healthy")
def test_after(load):
    load.assert_slo()
"""
SECONDS = 200.0
"""Limit of each wait, s."""
KEPT = {f"pytest-of-{getpass.getuser()}", "spark.log"}
"""What pytest itself makes below TMPDIR, and Spark's log in the results."""
PATIENCE = 20.0
"""Time that workers and watchdogs have to end after the controller, s."""


@dataclass
class FaultySession:
    """A session in its own folder, with its own folder for temporary files."""

    project: Project
    fault: Fault
    profile: dict[str, Any] = field(default_factory=dict)
    """The profile under test: what prepares the fault may change it."""
    tools: dict[str, Any] = field(default_factory=dict)
    """What prepares the fault leaves here for its action."""
    process: subprocess.Popen[str] = field(init=False)

    @property
    def folder(self) -> Path:
        return self.project.path

    @property
    def temporary(self) -> Path:
        return self.project.path / "tmp"

    def note(self, name: str) -> Any:
        """Return what an instrument has noted; None if it has not yet."""
        path = self.project.path / "instruments" / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def pid(self, who: str) -> int:
        """Wait for a process of pytest, ``controller`` or ``gw0``; return its id."""
        self.until(lambda: self.note(f"{who}.pid"), who)
        return int(self.note(f"{who}.pid"))

    def find(self, words: str) -> list[int]:
        """Return the ids of the session's processes with these words in their command."""
        return [pid for pid, command in self.project.processes() if words in command]

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for a condition while pytest runs."""
        wait_until(lambda: holds() or self.process.poll() is not None, what, SECONDS)
        assert holds() or self.process.poll() is None, f"pytest ended before {what}"

    def until_phase(self, name: str, after: float = 0.3) -> None:
        """Wait until the run is in ``start``, ``warm-up``, ``load``, ``drain`` or ``aggregation``. :param after: seconds of the phase."""
        if name == "start":
            self.until(lambda: self.find("loopback.relay"), "the target")
            return
        profile = self.profile["name"]
        noted = {
            "warm-up": f"{profile}.warm-up.phase",
            "aggregation": "aggregation.phase",
        }.get(name, f"{profile}.measure.phase")
        self.until(lambda: self.note(noted), name)
        since = self.note(noted)[name == "drain"]
        self.until(lambda: time.monotonic_ns() > since + int(after * 1e9), name)

    def write(self) -> None:
        """Write the project of the fault."""
        fault, project = self.fault, self.project
        ini = INI.replace("addopts = ", "addopts = -p no:cacheprovider -p faults.instruments ")
        project.write(
            "pytest.ini", ini + (SPARK_INI if fault.spark else "    -p numpy_aggregation\n")
        )
        project.write("conftest.py", fault.conftest)
        project.write(
            "test_it.py", TESTS.format(mark=fault.mark and f", {fault.mark}", body=fault.body)
        )
        project.write("profiles/fault.yaml", yaml.safe_dump(self.profile))
        project.write("profiles/healthy.yaml", yaml.safe_dump(HEALTHY))

    def seen(self, finished: Finished, seconds: float, ending: float) -> Seen:
        """Return what the session showed and left behind."""
        folders = [self.temporary, *self.project.path.glob(".loadtest/*/spark")]
        left = [
            path.name for folder in folders for path in folder.iterdir() if path.name not in KEPT
        ]
        ends = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((self.project.path / "instruments").glob("*.end"))
        ]
        documents = finished.documents
        verdicts = {
            test: verdict.lower()
            for test, verdict in re.findall(
                r"::(\w+) · profile \w+ · ([A-Z-]+(?: [A-Z]+)?)", finished.out
            )
        }
        for test, document in documents.items():
            assert document["verdict"]["outcome"] == verdicts.get(test), (
                f"{test}: the terminal and results.json disagree"
            )
        after = "started" if any("test_after" in str(run) for run in self.project.runs()) else None
        kept = [
            str(path.relative_to(run))
            for run in self.project.runs()
            if "test_fault" in str(run)
            for path in run.rglob("*")
        ]
        measured = documents.get("test_fault", {}).get("measurements") or {}
        return Seen(
            status=finished.ret, verdict=verdicts.get("test_fault"), after=verdicts.get("test_after", after),
            workers=documents["test_after"]["plan"]["workers"] if "test_after" in documents else None, output=finished.out,
            counts=measured.get("counts", {}), left=sorted(left), processes=self.project.survivors(),
            open=[name for end in ends for name in end["open"]], memory=max((end["memory"] for end in ends), default=0), kept=kept,
            seconds=seconds, ending=ending,
        )  # fmt: skip


def environment_of(folder: Path) -> dict[str, str]:
    """Return the variables of a session in this folder."""
    tests = Path(__file__).parents[1]
    paths = [tests, tests / "helpers", tests.parent, os.environ.get("PYTHONPATH")]
    return {
        "LOADTEST_MARK": os.urandom(16).hex(), "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path),
    }  # fmt: skip


def run_fault(fault: Fault, folder: Path) -> Seen:
    """Run the session of a fault in an empty folder."""
    environment = environment_of(folder)
    session = FaultySession(Project(folder, environment), fault, {**PROFILE, **fault.profile})
    if fault.holds_aggregation:
        environment["FAULT_HOLDS_AGGREGATION"] = "1"
    session.temporary.mkdir()
    started = time.monotonic()
    with fault.prepare(session) if fault.prepare else nullcontext():
        session.write()
        session.process = session.project.start(*fault.arguments)
        try:
            if fault.act:
                fault.act(session)
            hit, slowness = time.monotonic(), slowdown()
            finished = session.project.finish(session.process)
            await_end(session)
            ending = (time.monotonic() - hit) / max(slowness, slowdown())
            if fault.afterwards:
                fault.afterwards(session, finished)
            seen = session.seen(finished, time.monotonic() - started, ending)
        finally:
            for pid, _ in session.project.processes():
                os.kill(pid, signal.SIGKILL)
    return seen


def await_end(session: FaultySession) -> None:
    """Give what a killed controller started the time to notice its end."""
    end = time.monotonic() + PATIENCE
    while session.project.survivors() and time.monotonic() < end:
        time.sleep(0.05)


def slowdown() -> float:
    """Return how many times longer a computation takes now than on an idle machine."""
    wall, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < 0.1:
        pass
    return (time.monotonic() - wall) / 0.1
