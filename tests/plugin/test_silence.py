"""Each reporter has one result of each load test, with pytest's outcome and the duration of the load.

All reporters watch the same sessions: Allure, pytest-html, pytest-json-report, JUnit, one that writes in hooks of its own, and one that
writes in ``pytest_runtest_makereport``. Every outcome, the class and the asynchronous fixture are tried alone and on two workers; three
workers try the outcomes that differed (a broken run, a miss), and a dead lead needs workers.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from .projects import ALONE_OR_TWO, INI, NO_REPORTERS

if TYPE_CHECKING:
    from .projects import Finished, Project

OPTIONS = [
    "--alluredir=allure",
    "--html=html/report.html",
    "--json-report",
    "--json-report-file=report.json",
    "-p",
    "no:cacheprovider",
]

REPORTER = """\
import os
import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

def note(name, hook, of):
    with open(f"{name}-{WORKER}.txt", "a") as file:
        file.write(f"{hook} {of}\\n")

class Reporter:
    '''Writes in hooks of its own, and says so.'''

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        result = yield
        note("own", "protocol", item.name)
        return result

    def pytest_runtest_setup(self, item):
        note("own", "setup", item.name)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        yield
        note("own", "call", item.name)

    def pytest_runtest_teardown(self, item, nextitem):
        note("own", "teardown", item.name)

    def pytest_fixture_setup(self, fixturedef):
        note("own", "begin", fixturedef.argname)

    def pytest_fixture_post_finalizer(self, fixturedef):
        if fixturedef.cached_result is not None:
            note("own", "end", fixturedef.argname)

    def pytest_loadtest_reporters(self):
        return self

class Other:
    '''Does something for fixtures: it is needed on every worker.'''

    def pytest_runtest_setup(self, item):
        note("other", "setup", item.name)

    def pytest_runtest_teardown(self, item, nextitem):
        note("other", "teardown", item.name)

def pytest_configure(config):
    config.pluginmanager.register(Reporter(), "own-reporter")
    config.pluginmanager.register(Other(), "other")

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    note("report", report.when, item.name)
    return report
"""

TESTS = """\
import os
import allure
import pytest
import pytest_asyncio

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

@pytest.fixture(scope="session")
def resource():
    yield

def test_ordinary(resource): ...

def test_other(resource): ...

@pytest.fixture
def attached():
    with allure.step("prepare"):
        allure.attach("settings", "settings")
    allure.dynamic.parameter("workers", "all")

@pytest_asyncio.fixture
async def served(request):
    open(f"served-{request.node.name}-{WORKER}", "x").close()
    yield
    open(f"ended-{request.node.name}-{WORKER}", "x").close()

@pytest.mark.load("met")
def test_met(attached, resource, load): ...

@pytest.mark.load("missed")
def test_missed(load): ...

@pytest.mark.load("missed", live=True)
def test_missed_live(load):
    load.start()

@pytest.mark.load("missed")
def test_skips(load):
    pytest.skip("not today")

@pytest.fixture
def skipping(load):
    pytest.skip("not today")

@pytest.mark.load("missed")
def test_is_skipped(skipping, load): ...

@pytest.mark.load("unknown")
def test_no_data(load): ...

@pytest.mark.load("huge")
def test_limited(load): ...

@pytest.mark.load("huge", live=True)
def test_limited_live(load):
    load.start()

class TestOfClass:
    @pytest.mark.load("met")
    def test_in_class(self, served, load): ...

    @pytest.mark.asyncio
    @pytest.mark.load("unknown")
    async def test_asynchronous(self, load): ...

@pytest.mark.load("met", live=True)
def test_dead(load):
    load.begin()
    load.wait("200ms")
    os._exit(1)
"""

STATUS = {
    "test_ordinary": "passed", "test_other": "passed", "test_met": "passed", "test_in_class": "passed",
    "test_missed": "failed", "test_missed_live": "failed", "test_skips": "failed", "test_is_skipped": "failed",
    "test_no_data": "error", "test_asynchronous": "error", "test_limited": "error", "test_limited_live": "error", "test_dead": "error",
}  # fmt: skip
ALLURE = {"passed": "passed", "failed": "failed", "error": "broken"}
LASTING = (
    "test_met",
    "test_in_class",
    "test_missed",
    "test_missed_live",
    "test_no_data",
    "test_asynchronous",
)
"""Tests whose load runs for half a second."""
SESSIONS = {
    "-n0": [name for name in STATUS if name != "test_dead"],
    "-n2": list(STATUS),
    "-n3": [
        "test_ordinary",
        "test_other",
        "test_missed",
        "test_no_data",
        "test_in_class",
        "test_dead",
    ],
}


def allure_results(project: Project) -> dict[str, list[dict[str, Any]]]:
    """Return Allure's results by test; several of one test are retries in its report."""
    results = defaultdict(list)
    for path in project.path.glob("allure/*-result.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        results[result["historyId"]].append(result)
    return {history[0]["name"]: history for history in results.values()}


def html_outcomes(project: Project) -> dict[str, list[str]]:
    """Return the rows of pytest-html by test."""
    page = (project.path / "html/report.html").read_text(encoding="utf-8")
    blob = re.search(r'data-jsonblob="(.*?)"', page)
    assert blob is not None
    tests = json.loads(unescape(blob.group(1)))["tests"]
    return {
        name.rpartition("::")[2]: [row["result"].lower() for row in rows]
        for name, rows in tests.items()
    }


def notes(project: Project, name: str) -> Counter[str]:
    """Return the lines that a reporter wrote on all workers."""
    return Counter(
        line
        for path in project.path.glob(f"{name}-*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
    )


def junit_outcomes(run: Finished) -> list[tuple[str, str]]:
    """Return the name and outcome of every case in JUnit."""
    words = {"failure": "failed", "error": "error"}
    return sorted(
        (
            str(case.get("name")),
            next((words[child.tag] for child in case if child.tag in words), "passed"),
        )
        for case in run.junit
    )


@pytest.fixture
def watched(project: Project) -> Project:
    """Return a project with all reporters, and a test for each outcome."""
    project.profile("met", duration="500ms")
    project.missed_profile(duration="500ms")
    project.profile("unknown", duration="500ms", slo="{endToEndLatency: {p99.999: 60s}}")
    project.profile("huge", rate=50_000_000)
    project.write("pytest.ini", INI.replace(NO_REPORTERS, "") + "    -p numpy_aggregation\n")
    project.write("conftest.py", REPORTER)
    project.write("test_it.py", TESTS)
    return project


@pytest.mark.parametrize("workers", [*ALONE_OR_TWO, pytest.param("-n3", marks=pytest.mark.slow)])
def test_every_reporter_has_one_result_of_each_load_test(watched: Project, workers: str) -> None:
    """With pytest's outcome, and in Allure with the duration of the load; fixtures work on every worker."""
    tests = SESSIONS[workers]
    classes = {"test_in_class": "TestOfClass::", "test_asynchronous": "TestOfClass::"}
    run = watched.run(
        workers, *OPTIONS, *(f"test_it.py::{classes.get(name, '')}{name}" for name in tests)
    )
    expected = {name: STATUS[name] for name in tests}
    assert junit_outcomes(run) == sorted(expected.items())
    assert html_outcomes(watched) == {name: [status] for name, status in expected.items()}
    report = json.loads((watched.path / "report.json").read_text(encoding="utf-8"))
    assert {
        test["nodeid"].rpartition("::")[2]: test["outcome"] for test in report["tests"]
    } == expected
    allure = allure_results(watched)
    statuses = {name: [result["status"] for result in results] for name, results in allure.items()}
    assert statuses == {name: [ALLURE[status]] for name, status in expected.items()}
    durations = {
        name: allure[name][0]["stop"] - allure[name][0]["start"]
        for name in tests
        if name in LASTING
    }
    assert {name: duration for name, duration in durations.items() if duration < 500} == {}
    check_notes(
        watched,
        [name for name in tests if name not in ("test_ordinary", "test_other", "test_dead")],
        int(workers[2:]) or 1,
    )


def check_notes(project: Project, load_tests: list[str], workers: int) -> None:
    """Check the lines of the reporters that write by themselves, and of the plugin that every worker needs."""
    own, reports, other = notes(project, "own"), notes(project, "report"), notes(project, "other")
    assert {
        own[f"{hook} {name}"] for name in load_tests for hook in ("protocol", "setup", "teardown")
    } == {1}
    assert {reports[f"teardown {name}"] for name in load_tests} == {1}
    as_another_phase = ("test_limited_live", "test_is_skipped")
    setups = {reports[f"setup {name}"] for name in load_tests if name not in as_another_phase}
    assert setups == {1}
    assert {other[f"{when} {name}"] for name in load_tests for when in ("setup", "teardown")} == {
        workers
    }
    served = [path.name.rpartition("-")[0] for path in project.path.glob("*-test_in_class-*")]
    assert Counter(served) == {"served-test_in_class": workers, "ended-test_in_class": workers}
    for path in project.path.glob("own-*.txt"):
        lines = Counter(path.read_text(encoding="utf-8").splitlines())
        if "call test_dead" in lines or "setup test_dead" not in lines:  # this worker did not die
            assert lines["begin resource"] == lines["end resource"]
