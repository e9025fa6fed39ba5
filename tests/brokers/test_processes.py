"""Real brokers as processes: started, described, killed, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from cached_jars import require_jars
from listening import listening
from waiting_for import gone, wait_until

from pytest_loadtest import brokers
from pytest_loadtest import profile as profiles
from pytest_loadtest.brokers import Broker, BrokerRequest
from pytest_loadtest.brokers.java import class_archive, require
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.fleet.messages import Part, Request
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.fleet.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 30.0  # s: limit of each wait, also on a slow machine

until = partial(wait_until, seconds=SECONDS)
needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="mosquitto is not installed"
)


def request(
    folder: Path, kind: str = "mqtt", mode: str = "process", **more: object
) -> BrokerRequest:
    return BrokerRequest(kind=kind, mode=mode, folder=folder, **more)  # type: ignore[arg-type]


def accepts(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), 2).close()
    except OSError:
        return False
    return True


KINDS = {
    "mosquitto": ("mqtt", "process"),
    "pulsar-lite": ("pulsar", "embedded"),
    "loopback": ("loopback", "process"),
}


@pytest.fixture(
    params=[pytest.param("mosquitto", marks=needs_mosquitto), "pulsar-lite", "loopback"]
)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """Each broker that starts in a second; its folder is ``tmp_path / "broker"``."""
    if request.param == "pulsar-lite":
        pytest.importorskip("pulsar_lite")
    kind, mode = KINDS[request.param]
    broker = brokers.start(
        BrokerRequest(kind=kind, mode=mode, folder=tmp_path / "broker"), lambda _: None
    )
    yield broker
    broker.stop()


def test_a_stopped_broker_leaves_nothing_behind(small: Broker, tmp_path: Path) -> None:
    """It accepts connections and has a process id; stopping it twice is no failure."""
    assert small.failure() is None
    assert accepts(small.facts.url)
    small.stop()
    small.stop()
    assert gone(small.facts.pid)
    assert not accepts(small.facts.url)
    assert small.failure() is None
    assert not (tmp_path / "broker").exists()


def test_all_ports_are_on_loopback(small: Broker) -> None:
    assert small.facts.pid is not None
    assert listening(small.facts.pid) == {"127.0.0.1"}


def test_a_killed_broker_keeps_its_log(small: Broker, tmp_path: Path) -> None:
    """The failure names the signal and the log, which stop() keeps; the data is removed."""
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
    """SIGTERM has no effect on a stopped process, so the watchdog sends SIGKILL."""
    assert small.facts.pid is not None
    os.kill(small.facts.pid, signal.SIGSTOP)
    assert small.failure() is None
    small.stop()
    assert gone(small.facts.pid)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_watchdog_is_a_failure_and_leaves_no_broker(small: Broker) -> None:
    """stop() ends the broker without it."""
    assert small.facts.pid is not None
    os.kill(parent(small.facts.pid), signal.SIGKILL)
    until(small.failure, "failure")
    assert small.failure() is not None and "watchdog" in (small.failure() or "")
    small.stop()
    until(lambda: gone(small.facts.pid), "end of the broker")


def test_a_terminated_watchdog_ends_its_broker(small: Broker) -> None:
    """A cleanup of processes leaves no orphans."""
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
while True:
    time.sleep(0.1)  # short sleeps: Python handles a signal that arrives just before a sleep only after it
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a controller in its own session that starts mosquitto and waits."""
    started: list[subprocess.Popen[str]] = []

    def launch(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CONTROLLER, str(tmp_path / "broker"), *words]
        path = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
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
def test_a_broker_ends_with_its_controller(
    controller: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    """The data folder is removed too, and the log stays, however the controller ends."""
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
def test_a_forked_child_of_the_controller_does_not_keep_the_broker(
    controller: Callable[..., subprocess.Popen[str]],
) -> None:
    """The child inherited the pipe and keeps it open."""
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
    """Broker and watchdog have their own sessions, so the terminal's signals go to the controller only."""
    process = controller()
    assert process.stdout
    pid = int(process.stdout.readline().split()[0])
    assert len({os.getsid(process.pid), os.getsid(parent(pid)), os.getsid(pid)}) == 3


@needs_mosquitto
def test_the_facts_of_mosquitto_have_its_version_and_settings(tmp_path: Path) -> None:
    broker = brokers.start(request(tmp_path, settings={"max_queued_messages": "7"}), lambda _: None)
    try:
        facts = broker.facts
        assert (facts.name, facts.mode, facts.local, facts.evidence) == (
            "mosquitto",
            "process",
            True,
            True,
        )
        assert facts.version[0].isdigit()
        assert facts.settings["max_queued_messages"] == "7"
        assert (tmp_path / "mosquitto.conf").read_text().endswith("max_queued_messages 7\n")
        assert accepts(facts.url)
    finally:
        broker.stop()


@needs_mosquitto
def test_the_error_for_an_unknown_setting_has_mosquittos_text(tmp_path: Path) -> None:
    """It comes at once, and the log is kept."""
    with pytest.raises(
        TargetError, match=r"did not start: exited with status \d+(?s:.*)no_such_option"
    ):
        brokers.start(request(tmp_path, settings={"no_such_option": "1"}), lambda _: None)
    assert (tmp_path / "broker.log").exists()
    assert (tmp_path / "mosquitto.conf").exists()


@needs_mosquitto
def test_two_brokers_have_different_ports_and_folders(tmp_path: Path) -> None:
    both = [brokers.start(request(tmp_path / name), lambda _: None) for name in ("a", "b")]
    try:
        assert len({broker.facts.url for broker in both}) == 2
        assert all(accepts(broker.facts.url) for broker in both)
    finally:
        for broker in both:
            broker.stop()


@needs_mosquitto
def test_each_replacement_of_a_dead_broker_has_its_own_folder(tmp_path: Path) -> None:
    """The logs of all dead ones are kept."""
    profile = profiles.loads(
        "name: p\nmessageSize: 64\nproducerRate: 1\ntestDuration: 1s\ndriver: {name: mqtt}\n",
        "p.yaml",
    )
    asked = Request(
        nodeid="t",
        attempt=1,
        profile=profile,
        parts=(Part(profile=profile),),
        source="p.yaml",
        broker="process",
    )
    options = Options(results=tmp_path)
    targets = Targets(options, tmp_path, lambda _, quiet=False: None)
    try:
        for _ in range(3):
            broker = targets.get(asked, profile)
            assert targets.get(asked, profile) is broker
            assert broker.facts.pid is not None
            os.kill(broker.facts.pid, signal.SIGKILL)
            until(broker.failure, "failure")
    finally:
        targets.close()
    assert len(list(tmp_path.glob("brokers/mqtt-*/broker.log"))) == 3


def test_the_error_for_a_missing_program_has_the_systems_text(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"could not run /no/such/broker: FileNotFoundError"):
        Child(["/no/such/broker"], folder=tmp_path)


def test_an_unknown_setting_of_loopback_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="loseEveryy"):
        brokers.start(
            request(tmp_path, kind="loopback", settings={"loseEveryy": "2"}), lambda _: None
        )


def test_pulsar_lite_is_never_evidence(tmp_path: Path) -> None:
    """Its facts name it, and the settings that it does not apply."""
    pytest.importorskip("pulsar_lite")
    broker = brokers.start(
        request(tmp_path, kind="pulsar", mode="embedded", settings={"journalSyncData": "true"}),
        lambda _: None,
    )
    try:
        assert (broker.facts.name, broker.facts.evidence, broker.facts.admin_url) == (
            "pulsar-lite",
            False,
            None,
        )
        assert broker.facts.settings["broker.settings not applied"] == "journalSyncData"
    finally:
        broker.stop()


@pytest.fixture
def real_pulsar(request: pytest.FixtureRequest) -> Broker:
    """A Pulsar for the whole module, with checks at its start and its end."""
    require_jars(pulsar_jars.PULSAR)
    broker: Broker = request.getfixturevalue("pulsar_process")
    return broker


@pytest.mark.pulsar
def test_version_and_settings_come_from_pulsar_itself(real_pulsar: Broker) -> None:
    facts = real_pulsar.facts
    assert (facts.name, facts.version, facts.mode, facts.evidence) == (
        "Pulsar",
        "4.2.4",
        "process",
        True,
    )
    assert (facts.settings["maxMessageSize"], facts.settings["journalSyncData"]) == (
        "1048576",
        "false",
    )
    assert facts.settings["managedLedgerDefaultEnsembleSize"] == "1"
    assert accepts(facts.url)
    assert real_pulsar.failure() is None


@pytest.mark.pulsar
def test_pulsar_has_its_classes_from_the_archive(real_pulsar: Broker) -> None:
    jars = pulsar_jars.PULSAR.resolve(pulsar_jars.PULSAR.version, print)
    archive = class_archive(jars, require("Pulsar"))
    if not archive.is_file():
        pytest.skip("python -m pytest_loadtest doctor --fix makes the archive")
    assert str(archive) in Path(f"/proc/{real_pulsar.facts.pid}/maps").read_text()


@pytest.mark.pulsar
def test_all_ports_of_pulsar_are_on_loopback(real_pulsar: Broker) -> None:
    """These are the broker's, the admin REST's and the bookie's."""
    assert real_pulsar.facts.pid is not None
    assert {address.removeprefix("::ffff:") for address in listening(real_pulsar.facts.pid)} == {
        "127.0.0.1"
    }


@pytest.mark.pulsar
def test_a_pulsar_at_a_url_is_described_by_its_admin_rest(
    real_pulsar: Broker, tmp_path: Path
) -> None:
    """It reports version and settings."""
    asked = request(
        tmp_path,
        kind="pulsar",
        mode="auto",
        url=real_pulsar.facts.url,
        admin_url=real_pulsar.facts.admin_url,
    )
    broker = brokers.start(asked, lambda _: None)
    assert (broker.facts.mode, broker.facts.version, broker.facts.local) == ("url", "4.2.4", True)
    assert broker.facts.settings["maxMessageSize"] == "1048576"
    broker.stop()
    assert real_pulsar.failure() is None
