"""A session of many load tests keeps nothing of each: descriptors and threads are no more after twelve tests than after three."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project

CONFTEST = """\
import json, os, threading
from pathlib import Path
import pytest

def note(name):
    figures = {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}
    with open(name + ".figures", "a") as file:
        file.write(json.dumps(figures) + "\\n")

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    result = yield
    note(getattr(item.config, "workerinput", {}).get("workerid", "main"))
    return result

def pytest_runtest_logfinish(nodeid):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        note("controller")
"""
TEST = """\
import pytest

@pytest.mark.parametrize("number", range(12))
@pytest.mark.load("short")
def test_it(load, number):
    load.assert_slo()
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_descriptors_and_threads_do_not_grow_with_the_number_of_load_tests(project: Project, workers: str) -> None:
    """In the controller and in each worker."""
    project.profile("short", rate=200, duration="300ms")
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TEST)
    run = project.run(workers)
    assert run.outcomes == {"passed": 12}
    files = sorted(project.path.glob("*.figures"))
    assert len(files) == (2 if workers == "-n0" else 3)
    for file in files:
        figures = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(figures) == 12
        for name in figures[0]:  # a thread may still be ending when a test is over: what stays is in the least of several counts
            early, late = (min(each[name] for each in part) for part in (figures[2:6], figures[8:]))
            assert late <= early, f"{file.name}: {name} {figures}"
