"""Runs that say nothing about the target, as a user sees them: ``pytest -n 2``, Spark, JUnit, exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import LoadtestError

SESSION_SECONDS = 300

CONFTEST = '''
import json, os, pathlib
from pytest_loadtest.engine.recorder import Recorder

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        pathlib.Path(config.workerinput["workerid"] + ".pid").write_text(str(os.getpid()))

close = Recorder.close

def close_and_damage(self, facts):
    """A disk that does not keep what it was given."""
    close(self, facts)
    manifest = self._folder / (self._worker + ".manifest.json")
    said = json.loads(manifest.read_text())
    if said["received"]["files"] and "test_truncated" in str(self._folder):
        file = self._folder / "received" / said["received"]["files"][0]["name"]
        os.truncate(file, file.stat().st_size // 2)
    if said["received"]["files"] and "test_manifest" in str(self._folder):
        said["received"]["rows"] += 1
        said["received"]["files"][0]["rows"] += 1
        manifest.write_text(json.dumps(said))

Recorder.close = close_and_damage
'''

LOOPBACK_TESTS = """
import pytest

@pytest.mark.load(profile="ten-million")
def test_beyond_this_machine(load):
    assert False, "the body of a broken run is never reached"

@pytest.mark.load(profile="no-objectives")
def test_no_objectives(load):
    assert load.measurements.counts.received == 600
    load.assert_slo()

@pytest.mark.load(profile="tiny")
def test_truncated(load):
    assert False, "the body of a broken run is never reached"

@pytest.mark.load(profile="tiny")
def test_manifest(load):
    assert False, "the body of a broken run is never reached"

@pytest.mark.load(profile="tiny")
def test_member_killed(load):
    assert False, "the body of a broken run is never reached"

@pytest.mark.load(profile="tiny")
def test_lead_killed(load):
    assert False, "the body of a broken run is never reached"
"""

PULSAR_TEST = """
@pytest.mark.load(profile="pulsar", broker="process")
def test_pulsar_killed(load):
    assert False, "the body of a broken run is never reached"
"""

TINY = """
name: tiny
messageSize: 128
producerRate: 200
testDuration: 3s
maxSendDelay: 60s
driver: {name: loopback}
slo: {endToEndLatency: {p50: 30s}}
generator: {sendDelayP99: 5s, stalled: 1, cpu: 5}
"""
PROFILES = {
    "tiny": TINY,
    "no-objectives": TINY.replace("slo: {endToEndLatency: {p50: 30s}}\n", ""),
    "ten-million": TINY.replace("producerRate: 200", "producerRate: 10000000"),
    "pulsar": TINY.replace("testDuration: 3s", "testDuration: 20s").replace("driver: {name: loopback}", "driver: {name: pulsar}"),
}


@dataclass(frozen=True)
class Session:
    """A session of ``pytest -n 2``. ``results``: by test, ``failure`` or ``error`` with its text, or ``passed``."""

    status: int
    output: str
    results: Mapping[str, tuple[str, str]]


class Project:
    """A user's project on disk."""

    def __init__(self, folder: Path, tests: str) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text(
            "[pytest]\naddopts = -p no:randomly -p no:rerunfailures -p no:cov -p no:cacheprovider -p no:anyio\n"
        )
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_it.py").write_text(tests)
        (folder / "profiles").mkdir()
        for name, text in PROFILES.items():
            (folder / "profiles" / f"{name}.yaml").write_text(text)

    def pytest(self, saboteurs: Mapping[str, Callable[[dict[str, object]], None]]) -> Session:
        """Run it with two workers.

        :param saboteurs: by test, a function called half a second into its measured phase with the run's ``run.json``.
        """
        command = [sys.executable, "-m", "pytest", "-n", "2", "--junitxml", "junit.xml"]
        output = self.folder / "output.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT)
        try:
            self._sabotage(process, dict(saboteurs))
            status = process.wait(10)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(30)
        return Session(status, output.read_text(), self._results())

    def _sabotage(self, process: subprocess.Popen[bytes], saboteurs: dict[str, Callable[[dict[str, object]], None]]) -> None:
        end = time.monotonic() + SESSION_SECONDS
        while process.poll() is None and time.monotonic() < end:
            for name in list(saboteurs):
                for path in self.folder.glob(f".loadtest/*/*{name}*/1/*/measure/run.json"):
                    run = _whole(path)
                    if run is not None and time.monotonic_ns() > run["start"] + 500_000_000:
                        saboteurs.pop(name)(run)
            time.sleep(0.05)
        assert process.poll() is not None, "the session did not end"

    def _results(self) -> dict[str, tuple[str, str]]:
        results = {}
        for case in ElementTree.parse(self.folder / "junit.xml").iter("testcase"):
            ends = [
                (child.tag, (child.get("message") or "") + "\n" + (child.text or "")) for child in case if child.tag in ("error", "failure")
            ]
            results[str(case.get("name"))] = ends[0] if ends else ("passed", "")
        return results

    def kill_worker(self, place: int) -> Callable[[dict[str, object]], None]:
        """Kill the first or the last worker of the run."""

        def kill(run: dict[str, object]) -> None:
            workers = run["workers"]
            assert isinstance(workers, list)
            os.kill(int((self.folder / f"{workers[place]}.pid").read_text()), signal.SIGKILL)

        return kill

    def kill_pulsar(self, _run: dict[str, object]) -> None:
        """Kill the Pulsar whose data is in this project."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes()
            except OSError:
                continue
            ours = b"PulsarStandaloneStarter" in command and str(self.folder).encode() in command
            if ours and b"java" in command.split(b"\0")[0]:
                os.kill(int(path.parent.name), signal.SIGKILL)


def _whole(path: Path) -> dict[str, object] | None:
    try:
        document: dict[str, object] = json.loads(path.read_text())
    except ValueError:  # being written
        return None
    return document


@pytest.fixture(scope="module")
def with_pulsar(request: pytest.FixtureRequest) -> str:
    """Return why the session has no run on Pulsar; empty if it has one."""
    if not any(item.path == request.path and item.get_closest_marker("pulsar") for item in request.session.items):
        return "not to be run"
    try:
        java.require("Pulsar")
        pulsar_jars.PULSAR.resolve(pulsar_jars.PULSAR.version, lambda _: None)
    except LoadtestError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, with_pulsar: str) -> Session:
    """Return the session of all broken runs: they share its Spark, and one broken run must not break the next."""
    project = Project(tmp_path_factory.mktemp("broken"), LOOPBACK_TESTS if with_pulsar else LOOPBACK_TESTS + PULSAR_TEST)
    killed = {"test_member_killed": project.kill_worker(-1), "test_lead_killed": project.kill_worker(0)}
    return project.pytest(killed if with_pulsar else {**killed, "test_pulsar_killed": project.kill_pulsar})


def broken(session: Session, test: str) -> str:
    """Return the text of a run that pytest reports as an error, not as failed or passed."""
    kind, text = session.results.get(test, ("absent", session.output[-3000:]))
    assert kind == "error", text
    return text


def test_the_exit_status_is_that_of_failed_tests(session: Session, with_pulsar: str) -> None:
    """Every test is reported once."""
    many = 6 if with_pulsar else 7
    assert session.status == 1
    assert len(session.results) == many
    assert f"{many} errors" in session.output.splitlines()[-1]
    assert "failed" not in session.output.splitlines()[-1]


def test_10_million_a_second_are_generator_limited_before_any_load(session: Session) -> None:
    """With numbers and remedy."""
    text = broken(session, "test_beyond_this_machine")
    assert "generator-limited before any load" in text
    assert "cores" in text
    assert "--load-scale auto" in text
    assert "--load-force" in text


def test_a_profile_without_objectives_is_a_usage_error(session: Session) -> None:
    """It has the remedy."""
    text = broken(session, "test_no_objectives")
    assert "profile tiny has no objectives" in text
    assert "slo:" in text


def test_a_truncated_sample_file_is_no_data(session: Session) -> None:
    """The error names the file and its worker."""
    text = broken(session, "test_truncated")
    assert "received/gw1-000001.parquet (worker gw1) is cut off or damaged" in text


def test_a_manifest_that_disagrees_with_its_rows_is_no_data(session: Session) -> None:
    """The error names the file and both numbers."""
    text = broken(session, "test_manifest")
    found = re.search(r"received/gw1-000001.parquet \(worker gw1\) has (\d+) rows, its manifest says (\d+)", text)
    assert found, text
    assert int(found[2]) == int(found[1]) + 1


def test_a_killed_worker_is_no_data(session: Session) -> None:
    """The lead reports it by name."""
    text = broken(session, "test_member_killed")
    assert "load worker gw1 went down" in text


def test_a_killed_lead_is_no_data(session: Session) -> None:
    """xdist reports it as an error, by name."""
    text = broken(session, "test_lead_killed")
    assert "gw0" in text


@pytest.mark.pulsar
def test_a_killed_pulsar_is_no_data(session: Session, with_pulsar: str) -> None:
    """SIGKILL during the run, without a restart: the error names the target and how it ended."""
    if with_pulsar:
        pytest.skip(with_pulsar)
    text = broken(session, "test_pulsar_killed")
    assert "the target Pulsar 4." in text
    assert "pulsar://127.0.0.1:" in text
    assert "went away" in text
    assert "SIGKILL" in text
