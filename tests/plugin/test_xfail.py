"""xfail expects a miss of the target: it never turns a run that cannot be judged into a success."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Finished, Project

HEAD = """\
import pytest
from pytest_loadtest import errors
"""
LIMITED = """\
@pytest.mark.xfail
@pytest.mark.load("huge")
def test_plain(load): ...

@pytest.mark.xfail(True, reason="known", strict=True)
@pytest.mark.load("huge")
def test_strict(load): ...

@pytest.mark.xfail(raises=Exception)
@pytest.mark.load("huge")
def test_any_exception(load): ...

@pytest.mark.xfail(raises=(ValueError, errors.NoData))
@pytest.mark.load("huge")
def test_another_broken_run(load): ...

@pytest.mark.xfail
@pytest.mark.load("huge", live=True)
def test_live(load):
    load.start()

@pytest.mark.load("huge", live=True)
def test_live_calls_xfail(load):
    try:
        load.start()
    except errors.BrokenRun:
        pytest.xfail("known")

@pytest.mark.xfail
@pytest.mark.load("huge", live=True)
def test_live_raises_another(load):
    try:
        load.start()
    except errors.BrokenRun:
        raise ValueError("of the body")

@pytest.mark.xfail
@pytest.mark.load("huge", live=True)
def test_live_never_started(load): ...

class TestCaught:
    @pytest.fixture
    def load(self, request):
        try:
            return request.getfixturevalue("load")
        except errors.BrokenRun:
            return None

    @pytest.mark.load("huge")
    def test_caught_by_a_fixture(self, load): ...

@pytest.mark.xfail(raises=errors.GeneratorLimited)
@pytest.mark.load("huge")
def test_named(load): ...

@pytest.mark.xfail(raises=(ValueError, errors.LoadtestError))
@pytest.mark.load("huge", live=True)
def test_named_by_a_base_class(load):
    load.start()

@pytest.mark.xfail(raises=pytest.RaisesExc(errors.BrokenRun, match="generator-limited"))
@pytest.mark.load("huge")
def test_named_with_its_text(load): ...

@pytest.mark.xfail(run=False)
@pytest.mark.load("huge")
def test_not_run(load): ...
"""
NAMED = {"test_named", "test_named_by_a_base_class", "test_named_with_its_text", "test_not_run"}
LIMITED_NAMES = {
    line.partition("(")[0].split()[-1] for line in LIMITED.splitlines() if "def test_" in line
}
THIN = """\
@pytest.mark.xfail
@pytest.mark.load("thin")
def test_too_few_samples(load): ...

@pytest.mark.xfail
@pytest.mark.load("missed")
def test_missed(load): ...
"""


def tags(run: Finished) -> dict[str | None, list[str]]:
    """Return the outcome of each test in JUnit."""
    return {
        case.get("name"): [
            child.tag for child in case if child.tag in ("failure", "error", "skipped")
        ]
        for case in run.junit
    }


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_generator_limited_run_is_an_error_under_xfail(project: Project, workers: str) -> None:
    """Unless the mark's `raises` names a class of this package for the error; terminal, JUnit and exit status agree."""
    project.profile("huge", rate=50_000_000)
    project.write("test_it.py", HEAD + LIMITED)
    run = project.run(workers, "-p", "no:cacheprovider")
    broken = LIMITED_NAMES - NAMED
    assert tags(run) == {
        name: ["skipped"] if name in NAMED else ["error"] for name in LIMITED_NAMES
    }
    assert (run.ret, run.outcomes) == (
        pytest.ExitCode.TESTS_FAILED,
        {"xfailed": len(NAMED), "error": len(broken)},
    )
    assert {
        name for name in broken if "generator-limited" not in "".join(run.case(name).itertext())
    } == {"test_live_never_started"}


def test_runxfail_changes_nothing_for_broken_runs(project: Project) -> None:
    """With --runxfail the marks are ignored, as for every test."""
    project.profile("huge", rate=50_000_000)
    project.write("test_it.py", HEAD + LIMITED)
    assert project.run("--runxfail", "-k", "test_plain or test_named").outcomes == {
        "error": 4,
        "deselected": 9,
    }


def test_no_data_is_an_error_under_xfail_and_a_miss_is_not(project: Project) -> None:
    """Too few samples for the percentile prove nothing about the target; xfail expects a missed objective."""
    project.profile("thin", slo="{endToEndLatency: {p99.99: 60s}, throughput: 1%, sent: 1%}")
    project.missed_profile()
    project.write("test_it.py", HEAD + THIN)
    run = project.run("-p", "no:cacheprovider")
    assert tags(run) == {"test_too_few_samples": ["error"], "test_missed": ["skipped"]}
    assert (run.ret, run.outcomes) == (pytest.ExitCode.TESTS_FAILED, {"xfailed": 1, "error": 1})
