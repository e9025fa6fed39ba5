"""A session of many load tests keeps nothing of each but what pytest keeps: descriptors, threads and memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Project

MOST_OBJECTS = 16
"""Our objects that may stay of a load test. Three or four do: its verdict, and its place in the controller's bookkeeping; 48 with its results
document. The rest is for a run that is not yet released when the objects are counted, a sixth of it for each test between two counts."""
MOST_BYTES = 60_000
"""Memory that may stay of a load test: up to 42 kB were measured next to other processes, of which 14 kB are pytest's elements of JUnit's file
and 8 kB the properties in pytest's reports; 79 to 93 kB with its results document, and more for a longer run."""
CONFTEST = """\
import gc, json, os, threading, tracemalloc
import pytest

noted = []

def note(name):
    noted.append(name)
    if len(noted) == 2:
        tracemalloc.start()  # not earlier: imports are much slower while memory is traced
    gc.collect()
    figures = {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}
    figures["objects"] = sum(str(type(each).__module__).startswith("pytest_loadtest.") for each in gc.get_objects())
    figures["bytes"] = tracemalloc.get_traced_memory()[0]
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


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_session_does_not_grow_with_the_number_of_load_tests(
    project: Project, workers: str
) -> None:
    """In the controller and in each worker."""
    project.profile("short", rate=60)
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TEST)
    project.prefix = ["env"]  # a process as users start it: a forked one keeps objects frozen
    run = project.run(workers)
    assert run.outcomes == {"passed": 12}
    files = sorted(project.path.glob("*.figures"))
    assert len(files) == (2 if workers == "-n0" else 3)
    for file in files:
        figures = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(figures) == 12
        print(file.name, *figures, sep="\n")
        # A thread may still be ending when a test is over: what stays is in the least of several counts.
        early, late = (
            {name: min(each[name] for each in part) for name in figures[0]}
            for part in (figures[2:6], figures[8:])
        )
        growth = {name: (late[name] - early[name]) / 6 for name in late}
        assert growth["descriptors"] <= 0 and growth["threads"] <= 0, growth
        assert growth["objects"] <= MOST_OBJECTS and growth["bytes"] <= MOST_BYTES, growth
