"""Real brokers as processes: started, described, killed, stopped, and never left behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pytest_loadtest import brokers
from pytest_loadtest.brokers import Broker, BrokerRequest, java, mosquitto, pulsar_jars
from pytest_loadtest.brokers._process import Child
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 30.0  # the longest that anything here may take on a slow machine

needs_mosquitto = pytest.mark.skipif(mosquitto.find() is None, reason="mosquitto is not installed")


def request(folder: Path, kind: str = "mqtt", mode: str = "process", **more: object) -> BrokerRequest:
    return BrokerRequest(kind=kind, mode=mode, folder=folder, **more)  # type: ignore[arg-type]


def until(holds: Callable[[], object], what: str) -> None:
    """Poll; a condition that never comes fails with its name."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)


def gone(pid: int | None) -> bool:
    """Whether no such process runs; a zombie that nobody has reaped does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def accepts(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), 2).close()
    except OSError:
        return False
    return True


KINDS = {"mosquitto": ("mqtt", "process"), "pulsar-lite": ("pulsar", "embedded"), "loopback": ("loopback", "process")}


@pytest.fixture(params=[pytest.param("mosquitto", marks=needs_mosquitto), "pulsar-lite", "loopback"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """Each broker that starts in a second; its folder is ``tmp_path / "broker"``."""
    if request.param == "pulsar-lite":
        pytest.importorskip("pulsar_lite")
    kind, mode = KINDS[request.param]
    broker = brokers.start(BrokerRequest(kind=kind, mode=mode, folder=tmp_path / "broker"), lambda _: None)
    yield broker
    broker.stop()


def test_starts_and_stops(small: Broker, tmp_path: Path) -> None:
    """It answers, has a process, and leaves nothing behind; stopping twice is harmless and no failure."""
    assert small.failure() is None
    assert accepts(small.facts.url)
    small.stop()
    small.stop()
    assert gone(small.facts.pid)
    assert not accepts(small.facts.url)
    assert small.failure() is None
    assert not (tmp_path / "broker").exists()


def test_death_is_reported_and_the_log_is_kept(small: Broker, tmp_path: Path) -> None:
    """A killed broker says by what, names its log, and keeps it through stop; its data is gone."""
    assert small.facts.pid is not None
    os.kill(small.facts.pid, signal.SIGKILL)
    until(small.failure, "failure")
    log = tmp_path / "broker" / "broker.log"
    assert small.failure() == f"ended by SIGKILL (status -9), log {log}"
    small.stop()
    assert log.exists()
    assert not (tmp_path / "broker" / "data").exists()
    assert "SIGKILL" in (small.failure() or "")


def test_a_frozen_broker_is_stopped_too(small: Broker) -> None:
    """SIGTERM waits for a stopped process; the watchdog does not."""
    assert small.facts.pid is not None
    os.kill(small.facts.pid, signal.SIGSTOP)
    assert small.failure() is None
    small.stop()
    assert gone(small.facts.pid)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_watchdog_is_a_failure_and_leaves_no_broker(small: Broker) -> None:
    """Even without its watchdog the broker is ended by stop."""
    assert small.facts.pid is not None
    os.kill(parent(small.facts.pid), signal.SIGKILL)
    until(small.failure, "failure")
    assert small.failure() is not None and "watchdog" in (small.failure() or "")
    small.stop()
    until(lambda: gone(small.facts.pid), "end of the broker")


def test_a_terminated_watchdog_ends_its_broker(small: Broker) -> None:
    """Somebody who tidies up processes does not make orphans."""
    assert small.facts.pid is not None
    os.kill(parent(small.facts.pid), signal.SIGTERM)
    until(lambda: gone(small.facts.pid), "end of the broker")
    until(small.failure, "failure")


CONTROLLER = """
import os, sys, time
from pathlib import Path
from pytest_loadtest import brokers
broker = brokers.start(brokers.BrokerRequest(kind="mqtt", mode="process", folder=Path(sys.argv[1])), lambda _: None)
child = os.fork() if "fork" in sys.argv else -1
if child:
    print(broker.facts.pid, broker.facts.url, child, flush=True)
time.sleep(600)
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a controller of its own, in a session of its own, that starts mosquitto and waits."""
    started: list[subprocess.Popen[str]] = []

    def launch(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CONTROLLER, str(tmp_path / "broker"), *words]
        path = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=os.environ | {"PYTHONPATH": path}
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@needs_mosquitto
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_controller_dies(controller: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals) -> None:
    """Whatever ends the controller, broker and data folder are gone soon; the log stays."""
    process = controller()
    assert process.stdout
    pid, url, _ = process.stdout.readline().split()
    assert accepts(url)
    assert (tmp_path / "broker" / "data").exists()
    process.send_signal(number)
    until(lambda: gone(int(pid)), "end of the broker")
    until(lambda: not (tmp_path / "broker" / "data").exists(), "end of the data folder")
    assert (tmp_path / "broker" / "broker.log").exists()


@needs_mosquitto
def test_the_controller_dies_and_a_forked_child_holds_the_pipe(controller: Callable[..., subprocess.Popen[str]]) -> None:
    """A child that inherited the pipe keeps it open; the broker ends all the same."""
    process = controller("fork")
    assert process.stdout
    pid, _, child = process.stdout.readline().split()
    try:
        process.kill()
        until(lambda: gone(int(pid)), "end of the broker")
        assert not gone(int(child))
    finally:
        os.kill(int(child), signal.SIGKILL)


@needs_mosquitto
def test_ctrl_c_does_not_reach_the_broker(controller: Callable[..., subprocess.Popen[str]]) -> None:
    """Broker and watchdog lead sessions of their own: the terminal's signals go to the controller alone."""
    process = controller()
    assert process.stdout
    pid = int(process.stdout.readline().split()[0])
    assert len({os.getsid(process.pid), os.getsid(parent(pid)), os.getsid(pid)}) == 3


@needs_mosquitto
def test_mosquitto_facts(tmp_path: Path) -> None:
    """The report gets the version that runs and the settings as they are."""
    broker = brokers.start(request(tmp_path, settings={"max_queued_messages": "7"}), lambda _: None)
    try:
        facts = broker.facts
        assert (facts.name, facts.mode, facts.local, facts.evidence) == ("mosquitto", "process", True, True)
        assert facts.version[0].isdigit()
        assert facts.settings["max_queued_messages"] == "7"
        assert (tmp_path / "mosquitto.conf").read_text().endswith("max_queued_messages 7\n")
        assert accepts(facts.url)
    finally:
        broker.stop()


@needs_mosquitto
def test_a_setting_that_the_broker_does_not_know(tmp_path: Path) -> None:
    """Mosquitto's own words, at once, and its log is kept."""
    with pytest.raises(TargetError, match=r"did not start: exited with status \d+(?s:.*)no_such_option"):
        brokers.start(request(tmp_path, settings={"no_such_option": "1"}), lambda _: None)
    assert (tmp_path / "broker.log").exists()
    assert (tmp_path / "mosquitto.conf").exists()


@needs_mosquitto
def test_brokers_run_side_by_side(tmp_path: Path) -> None:
    """Ports and folders are their own."""
    both = [brokers.start(request(tmp_path / name), lambda _: None) for name in ("a", "b")]
    try:
        assert len({broker.facts.url for broker in both}) == 2
        assert all(accepts(broker.facts.url) for broker in both)
    finally:
        for broker in both:
            broker.stop()


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    """The system's own words instead of a process id that never comes."""
    with pytest.raises(TargetError, match=r"could not run /no/such/broker: FileNotFoundError"):
        Child(["/no/such/broker"], folder=tmp_path)


def test_a_fault_that_the_relay_does_not_know(tmp_path: Path) -> None:
    """A wrong order for loopback is the profile's mistake."""
    with pytest.raises(UsageError, match="loseEveryy"):
        brokers.start(request(tmp_path, kind="loopback", settings={"loseEveryy": "2"}), lambda _: None)


def test_pulsar_lite_is_never_evidence(tmp_path: Path) -> None:
    """The stand-in says what it is and what it did not apply."""
    pytest.importorskip("pulsar_lite")
    broker = brokers.start(request(tmp_path, kind="pulsar", mode="embedded", settings={"journalSyncData": "true"}), lambda _: None)
    try:
        assert (broker.facts.name, broker.facts.evidence, broker.facts.admin_url) == ("pulsar-lite", False, None)
        assert broker.facts.settings["broker.settings not applied"] == "journalSyncData"
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def real_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One real Pulsar of the default version."""
    if java.find() is None or pulsar_jars.DEFAULT_VERSION not in pulsar_jars.cached_versions():
        pytest.skip("no Java, or Pulsar's jars are not cached: python -m pytest_loadtest doctor --fix")
    said: list[str] = []
    asked = request(tmp_path_factory.mktemp("pulsar") / "broker", kind="pulsar", settings={"maxMessageSize": "1048576"})
    broker = brokers.start(asked, said.append)
    assert any(line.startswith("Pulsar 4.2.4 ready in ") for line in said)
    yield broker
    broker.stop()
    assert gone(broker.facts.pid)
    assert not asked.folder.exists()


def admin(broker: Broker, path: str) -> object:
    parts = urlsplit(broker.facts.admin_url or "")
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return json.loads(body)


@pytest.mark.pulsar
@pytest.mark.slow
def test_pulsar_is_the_real_one(real_pulsar: Broker) -> None:
    """Version and settings are the broker's own words, and the namespace that clients use is there at once."""
    facts = real_pulsar.facts
    assert (facts.name, facts.version, facts.mode, facts.evidence) == ("Pulsar", "4.2.4", "process", True)
    assert (facts.settings["maxMessageSize"], facts.settings["journalSyncData"]) == ("1048576", "false")
    assert facts.settings["managedLedgerDefaultEnsembleSize"] == "1"
    assert accepts(facts.url)
    namespaces = admin(real_pulsar, "/admin/v2/namespaces/public")
    assert isinstance(namespaces, list) and "public/default" in namespaces
    assert real_pulsar.failure() is None


@pytest.mark.pulsar
@pytest.mark.slow
def test_pulsar_by_its_address(real_pulsar: Broker, tmp_path: Path) -> None:
    """The same broker as a target of its own: the admin tells version and settings."""
    asked = request(tmp_path, kind="pulsar", mode="auto", url=real_pulsar.facts.url, admin_url=real_pulsar.facts.admin_url)
    broker = brokers.start(asked, lambda _: None)
    assert (broker.facts.mode, broker.facts.version, broker.facts.local) == ("url", "4.2.4", True)
    assert broker.facts.settings["maxMessageSize"] == "1048576"
    broker.stop()
    assert real_pulsar.failure() is None
