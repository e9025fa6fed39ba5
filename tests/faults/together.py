"""Faults that leave a session as it was: load tests of one pytest session, in place of a session each."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import yaml
from plugin.projects import INI, Project

from .fault import Fault
from .session import HEALTHY, PROFILE, FaultySession, await_end, environment_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plugin.projects import Finished

    from .fault import Seen

PLAIN = Fault(name="", happens="", made="", verdict=None, status=1)
AS_PLAIN = ("arguments", "body", "mark", "conftest", "afterwards", "spark", "left", "kept")
HEAD = "import pytest\n"
TEST = """
@pytest.mark.load("{name}")
def test_{name}(load):
    load.assert_slo()
"""
STATUS = {"passed": 0, "failure": 1, "error": 1}
"""How a test ended → the exit status of a session with this test alone, whose next test passes."""


@dataclass
class SharedSession(FaultySession):
    """One of several faults of a session."""

    @property
    def folder(self) -> Path:
        return self.project.path / "prepared" / self.profile["name"]


def is_shared(fault: Fault) -> bool:
    """Return whether nothing but its profile and its own broker makes the fault, and the session goes on without anything left."""
    is_prepared = fault.prepare is not None or fault.act is not None
    return (
        fault.goes_on
        and (fault.shares or not is_prepared)
        and all(getattr(fault, name) == getattr(PLAIN, name) for name in AS_PLAIN)
    )


def run_together(faults: Sequence[Fault], folder: Path) -> dict[str, Seen]:
    """Run the load tests of these faults, and then a healthy one, in an empty folder.

    The counts of a fault would show what the one before it had left in the session.

    :returns: by name of the fault what its test showed, with what the session left behind.
    """
    project = Project(folder, environment_of(folder))
    (folder / "tmp").mkdir()
    sessions = [_session_of(fault, project) for fault in faults]
    started = time.monotonic()
    with ExitStack() as prepared:
        for session in sessions:
            if session.fault.prepare:
                prepared.enter_context(session.fault.prepare(session))
        _write(project, sessions)
        process = project.start(*PLAIN.arguments)
        try:
            for session in sessions:
                session.process = process
                if session.fault.act:
                    session.fault.act(session)
            finished = project.finish(process)
            whole = FaultySession(project, PLAIN)
            await_end(whole)
        finally:
            for pid, _ in project.processes():
                os.kill(pid, signal.SIGKILL)
    seen = whole.seen(finished, time.monotonic() - started, 0.0)
    assert "Traceback (most recent call last)" not in finished.out
    assert "INTERNALERROR" not in finished.out
    return {session.fault.name: _seen_of(session, seen, finished) for session in sessions}


def _session_of(fault: Fault, project: Project) -> SharedSession:
    name = f"fault_{fault.name.replace('-', '_')}"
    session = SharedSession(project, fault, {**PROFILE, **fault.profile, "name": name})
    session.folder.mkdir(parents=True)
    return session


def _write(project: Project, sessions: Sequence[SharedSession]) -> None:
    """Write the project with a load test for each fault."""
    ini = INI.replace("addopts = ", "addopts = -p no:cacheprovider -p faults.instruments ")
    project.write("pytest.ini", ini + "    -p numpy_aggregation\n")
    names = [session.profile["name"] for session in sessions]
    for session in sessions:
        project.write(f"profiles/{session.profile['name']}.yaml", yaml.safe_dump(session.profile))
    project.write("profiles/healthy.yaml", yaml.safe_dump(HEALTHY))
    tests = [TEST.format(name=name) for name in names]
    tests.append(TEST.format(name="healthy").replace("test_healthy", "test_after"))
    project.write("test_it.py", HEAD + "".join(tests))


def _seen_of(session: SharedSession, seen: Seen, finished: Finished) -> Seen:
    """Return what the test of a fault showed. :param seen: what the whole session showed."""
    test = f"test_{session.profile['name']}"
    document = finished.documents[test]
    return replace(
        seen,
        status=STATUS[finished.ending(test)],
        verdict=document["verdict"]["outcome"],
        counts=(document["measurements"] or {}).get("counts", {}),
        output=_summary_of(finished.out, test),
    )


def _summary_of(out: str, test: str) -> str:
    """Return the lines of a test in the summary of load tests."""
    summary = out[out.index("= load tests =") :]
    (own,) = re.findall(rf"^\S+::{test} · profile .*?(?=^\S)", summary, re.MULTILINE | re.DOTALL)
    return str(own)
