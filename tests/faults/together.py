"""Faults that a profile alone makes: load tests of one pytest session, in place of a session each."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import yaml
from plugin.projects import INI, Project

from .fault import Fault
from .session import HEALTHY, PROFILE, FaultySession, await_end, environment_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .fault import Seen

PLAIN = Fault(name="", happens="", made="", verdict=None, status=1)
AS_PLAIN = ("status", "arguments", "body", "mark", "conftest", "prepare", "act", "afterwards", "spark", "left", "kept")  # fmt: skip
HEAD = "import pytest\n"
TEST = """
@pytest.mark.load("{name}")
def test_{name}(load):
    load.assert_slo()
"""


def by_profile(fault: Fault) -> bool:
    """Return whether nothing but its profile makes the fault, and the session goes on without anything left."""
    return all(getattr(fault, name) == getattr(PLAIN, name) for name in AS_PLAIN)


def run_together(faults: Sequence[Fault], folder: Path) -> dict[str, Seen]:
    """Run the load tests of these faults, and then a healthy one, in an empty folder.

    The counts of a fault would show what the one before it had left in the session.

    :returns: by name of the fault what its test showed, with what the session left behind.
    """
    project = Project(folder, environment_of(folder))
    (folder / "tmp").mkdir()
    ini = INI.replace("addopts = ", "addopts = -p no:cacheprovider -p faults.instruments ")
    project.write("pytest.ini", ini + "    -p numpy_aggregation\n")
    names = {fault.name: f"fault_{fault.name.replace('-', '_')}" for fault in faults}
    for fault in faults:
        profile = {**PROFILE, **fault.profile, "name": names[fault.name]}
        project.write(f"profiles/{names[fault.name]}.yaml", yaml.safe_dump(profile))
    project.write("profiles/healthy.yaml", yaml.safe_dump(HEALTHY))
    tests = [TEST.format(name=name) for name in names.values()]
    tests.append(TEST.format(name="healthy").replace("test_healthy", "test_after"))
    project.write("test_it.py", HEAD + "".join(tests))

    started = time.monotonic()
    finished = project.run(*PLAIN.arguments)
    session = FaultySession(project, PLAIN)
    await_end(session)
    seen = session.seen(finished, time.monotonic() - started, 0.0)
    assert "Traceback (most recent call last)" not in finished.out
    assert "INTERNALERROR" not in finished.out
    documents = {name: finished.documents[f"test_{test}"] for name, test in names.items()}
    return {
        name: replace(
            seen,
            verdict=document["verdict"]["outcome"],
            counts=(document["measurements"] or {}).get("counts", {}),
            output=_summary_of(finished.out, f"test_{names[name]}"),
        )
        for name, document in documents.items()
    }


def _summary_of(out: str, test: str) -> str:
    """Return the lines of a test in the summary of load tests."""
    summary = out[out.index("= load tests =") :]
    (own,) = re.findall(rf"^\S+::{test} · profile .*?(?=^\S)", summary, re.MULTILINE | re.DOTALL)
    return str(own)
