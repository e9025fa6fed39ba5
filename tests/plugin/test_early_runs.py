"""A service under test is started once for all workers, and ends with its test, its run and its session."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from .projects import ALONE, ALONE_OR_TWO, Finished, Project, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SERVICE = """\
import os, signal, sys, time
mark = sys.argv[1]
with open(f"{mark}.started", "a") as file:
    file.write(f"{os.getpid()} {' '.join(sys.argv[2:])}\\n")
if mark == "silent":
    time.sleep(1000)
print("rea", end="", flush=True)
print("dy", os.environ.get("COLOUR", ""), flush=True)
if mark.startswith("dying"):
    time.sleep(1)
    print("out of orders", file=sys.stderr)
    sys.exit(3)
time.sleep(1000)
"""
HEAD = """\
import os, sys, time
import pytest

def command(*arguments):
    return [sys.executable, "service.py", *arguments]
"""
TWICE = (
    HEAD
    + """
@pytest.fixture
def service(load_service):
    return load_service(command("twice", "{url}", "{host}:{port}", "{other}"), ready="ready blue", env={"COLOUR": "blue"})

@pytest.fixture
def note(service, worker_id):
    with open(f"handle.{worker_id}", "w") as file:
        file.write(f"{service.pid} {service.log}")

@pytest.mark.load("small")
def test_orders(load, note, service, load_target):
    os.kill(service.pid, 0)
    assert service.log.read_text() == "ready blue\\n"
    assert load_target.url.startswith("loopback://")
    assert load_target.admin_url is None
    with pytest.raises(Exception, match="have no names"):
        load_target.topics

@pytest.mark.load("small", live=True)
def test_live(load, note):
    result = load.start()
    assert result.loss == 0
"""
)
WRONG = HEAD + "\n".join(
    f"""
@pytest.fixture
def {name}(load_service):
    return load_service({arguments})

@pytest.mark.load("small")
def test_{name}(load, {name}): ...
"""
    for name, arguments in {
        "silent": 'command("silent"), ready="ready", timeout="2s"',
        "absent": '["no-such-program"], ready="ready"',
        "gone": 'command("dying"), ready="never said"',
        "no_admin": 'command("steady", "{admin_url}"), ready="ready"',
        "no_topics": 'command("steady", "{input}"), ready="ready"',
        "no_ready": 'command("steady"), ready=""',
        "no_time": 'command("steady"), ready="ready", timeout="soon"',
    }.items()
)
REASONS = {
    "silent": "service service.py was not ready after 2 s: its output has no 'ready'; load_service(…, timeout=…)",
    "absent": "could not run no-such-program: FileNotFoundError",
    "gone": "service service.py did not start: exited with status 3, log ",
    "no_admin": "{admin_url}: the target loopback://",
    "no_topics": "topics of the driver loopback have no names",
    "no_ready": "ready='' is no text",
    "no_time": "timeout='soon'",
}
DYING = (
    HEAD
    + """
@pytest.fixture
def service(load_service):
    return load_service(command("dying-later"), ready="ready")

@pytest.mark.load("small", testDuration="3s")
def test_met(load, service): ...

@pytest.mark.load("missed", testDuration="3s")
def test_missed(load, service): ...

@pytest.mark.load("small", live=True)
def test_late(load, service):
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{service.pid}") and time.monotonic() < end:
        time.sleep(0.01)
    load.start()
"""
)
ODD = (
    HEAD
    + """
@pytest.fixture
def skipping(load_service):
    load_service(command("steady"), ready="ready")
    pytest.skip("not today")

@pytest.mark.load("small")
def test_skipped(load, skipping): ...

@pytest.fixture
def service(load_service, worker_id):
    return load_service(command("steady", worker_id), ready="ready")

@pytest.mark.load("small")
def test_different(load, service): ...

@pytest.fixture
def on_the_lead(request, worker_id):
    if worker_id == "gw0":
        request.getfixturevalue("load_service")(command("steady", "here"), ready="ready")

@pytest.mark.load("small")
def test_on_the_lead(load, load_target, on_the_lead): ...

@pytest.mark.load("small", live=True)
def test_in_the_body(load, load_service):
    load_service(command("steady"), ready="ready")

@pytest.mark.load("small", live=True)
def test_peak(load, load_target):
    load.find_peak()

@pytest.mark.load("small", live=True)
def test_never_started(load, load_target): ...

@pytest.fixture
def after(load, load_service): ...

@pytest.mark.load("small")
def test_other_order(load, after): ...
"""
)
MODULES = {
    "-n0": {"test_twice.py": TWICE, "test_wrong.py": WRONG, "test_dying.py": DYING},
    "-n2": {"test_wrong.py": WRONG, "test_dying.py": DYING, "test_odd.py": ODD},
    "-n3": {"test_twice.py": TWICE},
}
"""The tests of each session by its number of workers."""


class Session(NamedTuple):
    """A project whose only session has ended."""

    project: Project
    finished: Finished


def write_small(project: Project) -> None:
    """Write a service, and a profile of a short load."""
    project.profile("small", rate=100, duration="500ms")
    project.write("service.py", SERVICE)


@pytest.fixture
def small(project: Project) -> Project:
    """Return a project with a service, and a profile of a short load."""
    write_small(project)
    return project


def run_modules(folder: Path, workers: str) -> Session:
    """Run the session with a number of workers in a project of its own; no process is left."""
    with fresh(folder) as project:
        write_small(project)
        project.missed_profile(rate=100)
        for name, text in MODULES[workers].items():
            project.write(name, text)
        finished = project.run(workers)
        assert project.survivors() == []
    return Session(project, finished)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Session]:
    """Return the session with a number of workers; the first call runs it."""
    finished: dict[str, Session] = {}

    def session(workers: str) -> Session:
        if workers not in finished:
            finished[workers] = run_modules(tmp_path_factory.mktemp("session"), workers)
        return finished[workers]

    return session


def starts(project: Project, mark: str) -> list[str]:
    """Return the process ids of the services that were started."""
    text = (project.path / f"{mark}.started").read_text(encoding="utf-8")
    return [line.split()[0] for line in text.splitlines()]


def outcomes(finished: Finished, tests: Iterable[str]) -> Counter[str]:
    """Return how many of some tests passed, failed, were errors or were skipped."""
    return Counter(finished.ending(test) for test in tests)


def error(finished: Finished, test: str) -> str:
    """Return the text of a test's error."""
    found = finished.case(test).find("error")
    assert found is not None
    return f"{found.get('message')}{found.text}"


@pytest.mark.parametrize("workers", [ALONE, "-n3"])
def test_a_service_is_started_once_for_all_workers(
    sessions: Callable[[str], Session], workers: str
) -> None:
    """The same handle on each; a second test gets one of its own, and no process is left."""
    small, finished = sessions(workers)
    assert outcomes(finished, ["test_orders", "test_live"]) == {"passed": 2}
    processes = starts(small, "twice")
    assert len(processes) == len(set(processes)) == 2
    _, url, address, other = (
        (small.path / "twice.started").read_text(encoding="utf-8").splitlines()[0].split()
    )
    assert (url, other) == (f"loopback://{address}", "{other}")
    handles = {path.read_text(encoding="utf-8") for path in small.path.glob("handle.*")}
    assert len(list(small.path.glob("handle.*"))) == (1 if workers == "-n0" else 3)
    (handle,) = handles
    pid, log = handle.split(" ", 1)
    assert pid == processes[1]
    assert Path(log).read_text(encoding="utf-8") == "ready blue\n"
    assert small.survivors() == []


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_service_that_does_not_start_is_an_error_that_says_why(
    sessions: Callable[[str], Session], workers: str
) -> None:
    """With its log; no load runs, and nothing is left."""
    small, finished = sessions(workers)
    tests = {f"test_{name}" for name in REASONS}
    assert outcomes(finished, tests) == {"error": len(REASONS)}
    for name, reason in REASONS.items():
        assert reason in error(finished, f"test_{name}"), name
    assert "out of orders" in error(finished, "test_gone")  # its log
    assert len(starts(small, "silent")) == len(starts(small, "dying")) == 1
    broken = {name for name, document in finished.documents.items() if document}
    assert broken & tests == {"test_silent", "test_gone"}


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_service_that_ends_while_load_runs_is_in_the_results(
    sessions: Callable[[str], Session], workers: str
) -> None:
    """A note on a run that was met, a cause of one that missed; a load that would begin without it is an error."""
    _, finished = sessions(workers)
    assert outcomes(finished, ["test_met"]) == {"passed": 1}
    assert outcomes(finished, ["test_missed"]) == {"failure": 1}
    assert outcomes(finished, ["test_late"]) == {"error": 1}
    said = r"service service\.py exited with status 3, \d+ s after its start; its log ends with: ready \| out of orders"
    met = finished.documents["test_met"]
    assert met["verdict"] == {**met["verdict"], "outcome": "met", "reasons": []}
    assert [note for note in met["notes"] if re.fullmatch(said, note)]
    missed = finished.documents["test_missed"]
    assert missed["verdict"]["outcome"] == "missed"
    assert [reason for reason in missed["verdict"]["reasons"] if re.fullmatch(said, reason)]
    assert not [note for note in missed["notes"] if re.fullmatch(said, note)]
    assert re.search(f"before the load began, {said}", finished.out)


AGAIN = (
    HEAD
    + """
@pytest.fixture
def service(load_service):
    return load_service(command("steady"), ready="ready")

@pytest.fixture
def fragile(service, worker_id):
    with open(f"attempts.{worker_id}", "a") as file:
        file.write("x")
    if worker_id in ("master", "gw0") and os.path.getsize(f"attempts.{worker_id}") < 2:
        raise OSError("not yet")

@pytest.mark.load("small")
def test_fixture_again(load, fragile): ...

TIMES = []

@pytest.mark.load("small")
def test_body_again(load, service):
    TIMES.append(service.pid)
    assert len(TIMES) == 2
"""
)


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_rerun_starts_its_service_again(small: Project, workers: str) -> None:
    """After a fixture that failed before the load, and after a body that failed."""
    small.write("test_it.py", AGAIN)
    finished = small.run(workers, "--reruns=1", "-p", "pytest_rerunfailures")
    assert finished.outcomes == {"passed": 2, "rerun": 2}
    processes = starts(small, "steady")
    assert len(processes) == len(set(processes)) == 4


def test_fixtures_that_workers_or_tests_use_otherwise_are_errors(
    sessions: Callable[[str], Session],
) -> None:
    """And a test that is skipped before its load has no results."""
    _, finished = sessions("-n2")
    tests = set(re.findall(r"def (test_\w+)", ODD))
    assert outcomes(finished, tests) == {"skipped": 1, "error": 6}
    different = error(finished, "test_different")
    for worker in ("gw0", "gw1"):
        assert re.search(
            rf"worker {worker} would start the service `\S+ service.py steady {worker}`", different
        )
    alone = error(finished, "test_on_the_lead")
    assert "worker gw0 would start the service `" in alone
    assert "worker gw1 would begin its load" in alone
    assert "load_service was used after the fixture `load` was set up" in error(
        finished, "test_in_the_body"
    )
    assert "write search=True in the mark" in error(finished, "test_peak")
    assert "its load was never started" in error(finished, "test_never_started")
    assert "was used after the fixture `load` was set up" in error(finished, "test_other_order")
    assert set(finished.documents) & tests == {"test_other_order"}  # its load was driven


UNMARKED = """\
def test_unmarked({name}): ...
"""


@pytest.mark.parametrize("name", ["load_target", "load_service"])
def test_a_test_without_the_mark_is_a_usage_error(small: Project, name: str) -> None:
    small.write("test_it.py", UNMARKED.format(name=name))
    finished = small.run("-n0")
    assert finished.ret == pytest.ExitCode.USAGE_ERROR
    assert "test_unmarked uses the fixture `load_" in finished.out
    assert "but has no mark" in finished.out


KILLED = (
    HEAD
    + """
@pytest.fixture
def service(load_service):
    return load_service(command("steady"), ready="ready")

@pytest.mark.load("small", testDuration="5min")
def test_long(load, service): ...
"""
)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_session_that_is_killed_or_interrupted_leaves_no_service(
    small: Project, workers: str, number: signal.Signals
) -> None:
    """The fixture ``small`` checks that no process is left."""
    small.write("test_it.py", KILLED)
    process = small.start(workers)
    wait_for(lambda: (small.path / "steady.started").exists() and starts(small, "steady"))
    (service,) = (int(pid) for pid in starts(small, "steady"))
    assert Path(f"/proc/{service}").exists()
    process.send_signal(number)
    process.communicate(timeout=120)
    wait_for(lambda: not Path(f"/proc/{service}").exists())
