"""Load tests and ordinary tests together, under every scheduler and with other plugins.

The load tests here need more than any machine can carry: the workers meet, the check of the plan breaks the run, and no Spark is needed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .projects import Finished, Project

HEAD = "import os, time, unittest, pytest\n"
GATE = '@pytest.mark.load("huge")\ndef test_{name}(load): load.assert_slo()\n'
ORDINARY = """\
@pytest.mark.parametrize("n", range(6))
def test_plain(n): ...

class TestGroup:
    @pytest.mark.xdist_group("g")
    def test_one(self): ...
    @pytest.mark.xdist_group("g")
    def test_two(self): ...
"""


@pytest.fixture
def huge(project: Project) -> Project:
    """Return a project with a profile that no machine can carry."""
    project.profile("huge", rate=50_000_000)
    return project


def once(run: Finished) -> bool:
    """Return whether every test was reported once."""
    return bool(run.junit) and set(
        Counter((case.get("classname"), case.get("name")) for case in run.junit).values()
    ) == {1}


MODES = {
    "load": ["--reruns=1", "-p", "pytest_rerunfailures"],
    "loadscope": ["-p", "randomly"],
    "loadfile": ["--timeout=60"],
    "loadgroup": [],
    "worksteal": ["-p", "pytest_cov", "--cov=.", "--cov-report="],
}


@pytest.mark.parametrize("mode", MODES)
def test_each_load_test_is_reported_once_under_every_scheduler(huge: Project, mode: str) -> None:
    """Ordinary tests keep the chosen scheduler; other plugins do not interfere."""
    for name in ("one", "two"):
        huge.write(f"test_{name}.py", HEAD + GATE.format(name=f"gate_{name}") + ORDINARY)
    run = huge.run("-n2", "--dist", mode, *MODES[mode])
    assert run.ret == pytest.ExitCode.TESTS_FAILED
    assert {key: run.outcomes[key] for key in ("passed", "error")} == {"passed": 16, "error": 2}
    assert "failed" not in run.outcomes
    assert run.outcomes.get("rerun", 0) == (2 if mode == "load" else 0)
    assert once(run) != (mode == "load")  # JUnit has a case for each attempt
    for name in ("gate_one", "gate_two"):
        case = [case for case in run.junit if (case.get("name") or "").startswith(f"test_{name}")][
            -1
        ]
        assert case.find("error") is not None
        assert case.find("failure") is None
        assert [
            p.get("value") for p in case.iter("property") if p.get("name") == "load.outcome"
        ] == ["generator-limited"]


def test_deselected_load_tests_do_not_run(huge: Project) -> None:
    """-k leaves some out; --lf runs only the broken one again."""
    huge.write("test_one.py", HEAD + GATE.format(name="gate") + ORDINARY)
    assert huge.run("-n2", "-k", "not gate").outcomes == {"passed": 8}
    assert huge.run("-n2").outcomes == {"passed": 8, "error": 1}
    assert huge.run("-n2", "--lf").outcomes == {"error": 1}
    assert huge.run("-p", "no:xdist", "--lf").outcomes == {"error": 1}


@pytest.mark.parametrize(("options", "errors"), [(["-x"], 1), (["--maxfail=2"], 2)])
def test_no_load_test_starts_after_the_session_stops(
    huge: Project, options: list[str], errors: int
) -> None:
    """After -x or --maxfail, on any worker."""
    huge.write("test_one.py", HEAD + "".join(GATE.format(name=f"gate{i}") for i in range(5)))
    run = huge.run("-n2", *options)
    assert run.outcomes == {"error": errors}
    assert len(run.documents) == errors


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_session_without_a_terminal_has_results(huge: Project, workers: str) -> None:
    """With -p no:terminal, which also leaves out the option -v."""
    huge.write("test_one.py", HEAD + GATE.format(name="gate"))
    huge.without_verbose()
    run = huge.run(workers, "-p", "no:terminal")
    assert (run.ret, run.out) == (pytest.ExitCode.TESTS_FAILED, "")
    assert run.properties("test_gate")["load.outcome"] == "generator-limited"


TROUBLED = """\
@pytest.fixture
def trouble(request, worker_id):
    name = request.node.name
    if name == "test_skipped_everywhere" or (name == "test_skipped_by_a_member" and worker_id == "gw1"):
        pytest.skip("not today")
    if name == "test_broken_on_a_member" and worker_id == "gw1":
        raise OSError("no such device")
    if name == "test_stuck_on_a_member" and worker_id == "gw1":
        time.sleep(1000)

@pytest.mark.load("huge")
def test_skipped_everywhere(trouble, load): ...

@pytest.mark.load("huge")
def test_skipped_by_a_member(trouble, load): ...

@pytest.mark.load("huge")
def test_broken_on_a_member(trouble, load): ...

@pytest.mark.timeout(2)
@pytest.mark.load("huge")
def test_stuck_on_a_member(trouble, load): ...

@pytest.mark.load("huge")
def test_timer_between_two_phases_of_a_member(load): ...

@pytest.mark.load("huge", live=True)
def test_never_started(load): ...

@pytest.mark.load("huge", live=True)
def test_live_and_broken(load): load.start()

@pytest.mark.load("huge")
def test_last(load): ...

def note(kind): open(f"{kind}-{os.environ['PYTEST_XDIST_WORKER']}", "x").close()

@pytest.mark.load("huge", live=True)
def test_function(load): note("function")

class TestOfUnittest(unittest.TestCase):
    def tearDown(self): note("method")

    @pytest.mark.load("huge", live=True)
    @pytest.mark.usefixtures("load")
    def test_method(self): ...
"""


# as pytest-timeout's alarm does when it goes off just after the setup, outside any hook
ALARM = """\
import os, pytest
original = pytest.CallInfo.from_call.__func__

@classmethod
def interrupted(cls, func, when, reraise=None):
    call = original(cls, func, when, reraise)
    current = os.environ["PYTEST_CURRENT_TEST"] if when == "setup" else ""
    if "test_timer_between_two_phases_of_a_member" in current and os.environ["PYTEST_XDIST_WORKER"] == "gw1":
        pytest.fail("Timeout")
    return call

pytest.CallInfo.from_call = interrupted
"""


def test_trouble_in_a_fixture_ends_only_its_own_load_test(huge: Project) -> None:
    """It is skipped, fails or hangs in another fixture, or never starts its load; later tests run.

    Only the lead runs a body, also that of a unittest.TestCase, which pytest does not call as a function.
    """
    huge.write("conftest.py", ALARM)
    huge.write("test_one.py", HEAD + TROUBLED)
    run = huge.run("-n2")
    assert run.outcomes == {"skipped": 1, "error": 9}
    assert once(run)
    assert "worker gw1: it took no part" in run.out
    assert "not today" in run.out
    assert "no such device" in run.out
    assert "Timeout" in run.out
    for name in ("test_live_and_broken", "test_never_started"):
        assert run.case(name).find("error") is not None
    for name in ("test_function", "test_method"):  # no load was started
        assert run.case(name).find("error") is not None
    assert sorted(path.name for path in huge.path.glob("*-gw?")) == ["function-gw0", "method-gw0"]


def test_a_load_test_that_is_collected_twice_runs_twice(huge: Project) -> None:
    huge.write("test_one.py", HEAD + GATE.format(name="gate"))
    assert huge.run("-n2", "--keep-duplicates", "test_one.py", "test_one.py").outcomes == {
        "error": 2
    }


def test_a_worker_that_crashed_in_an_ordinary_test_is_replaced(huge: Project) -> None:
    """Load tests run on as many workers as before."""
    huge.write(
        "test_one.py", HEAD + GATE.format(name="gate") + ORDINARY + "def test_dies(): os._exit(1)\n"
    )
    run = huge.run("-n2")
    assert run.outcomes == {"passed": 8, "failed": 1, "error": 1}
    assert run.documents["test_gate"]["plan"]["workers"] == 2
