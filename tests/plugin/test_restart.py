"""Recovery as a user tests it: the body of a live test restarts the broker, and every message arrives all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cached_jars import require_jars

from pytest_loadtest.drivers.mqtt import artemis, mosquitto

from .projects import DISTURBED, fresh

if TYPE_CHECKING:
    from .projects import Finished, Project
    from .sessions import Session

needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="mosquitto is not installed"
)

MQTT = """\
driver: {name: mqtt, qos: 1, cleanStart: false, sessionExpiry: 1h}
broker: {settings: {persistence: true, max_queued_messages: 0}}"""
ARTEMIS = """\
driver: {name: mqtt, broker: artemis, qos: 1, cleanStart: false, sessionExpiry: 1h}
broker: {settings: {persistence-enabled: true}}"""
TWICE = """
@pytest.mark.load("exactly", slo={"loss": 0, "duplicates": 0, "throughput": "1%", "sent": "1%"})
def test_exactly_once(load):
    load.assert_slo()
"""
PULSAR = "driver: {name: pulsar, sendTimeout: 0}"

RECOVERY = """\
import pytest
from pytest_loadtest import s

@pytest.mark.load("durable", live=True, judge=False)  # what waits for the broker is late, and throughput says so
def test_recovery(load):
    load.begin()
    load.wait("1s")
    down, ready = load.restart_broker()
    assert s(1) <= down < ready
    load.wait("1s")
    result = load.stop()
    assert result.loss == 0
    counts = result.measurements.counts
    assert counts.sent == counts.acked == counts.offered
    assert counts.received == counts.offered
"""


def recovered(run: Finished) -> None:
    """Check that results and summary show both instants."""
    (restart,) = restarts(run, "test_recovery")
    assert 10**9 <= restart["down"] < restart["ready"]
    assert run.documents["test_recovery"]["started"] < restart["downAt"] < restart["readyAt"]
    told = [
        line
        for line in run.out.splitlines()
        if line.startswith("  broker     restarted ") and " later" in line
    ]
    assert len(told) == sum(
        one["ready"] is not None for test in run.documents for one in restarts(run, test)
    )


def restarts(run: Finished, test: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.documents[test]["broker"]["restarts"]
    return found


def write_on_pulsar(project: Project) -> list[str]:
    """Write the recovery on Pulsar."""
    write_recovery(project, PULSAR)
    return ["test_it.py"]


@pytest.mark.slow
@pytest.mark.pulsar
def test_every_message_survives_a_restart_of_pulsar(on_pulsar: Session) -> None:
    """Topics, subscriptions and messages are kept, and clients reconnect."""
    assert on_pulsar.ending("test_it.py::test_recovery") == set(), on_pulsar.finished.out
    recovered(on_pulsar.finished)


@pytest.mark.slow
@pytest.mark.artemis
def test_every_message_survives_a_restart_of_artemis(project: Project) -> None:
    """At QoS 1; the report names the broker and what it kept. Without a restart each message of QoS 2 arrives once."""
    require_jars(artemis.JARS)
    project.write(
        "profiles/exactly.yaml",
        DISTURBED.format(name="durable", slo="{loss: 0}", more=ARTEMIS)
        .replace("5min", "2s", 1)
        .replace("qos: 1", "qos: 2"),
    )
    run = recovery(project, ARTEMIS, TWICE, passed=2)
    recovered(run)
    counts = run.documents["test_exactly_once"]["measurements"]["counts"]
    assert counts["received"] == counts["acked"] == counts["offered"]
    assert f"target     Artemis {artemis.JARS.version} (process, mqtt://127.0.0.1:" in run.out
    assert run.documents["test_recovery"]["broker"]["settings"]["persistence-enabled"] == "true"


def recovery(project: Project, more: str, tests: str = "", passed: int = 1) -> Finished:
    """Run a recovery and other tests on two workers, and check that all passed."""
    write_recovery(project, more, tests)
    run = project.run("-n2", "-p", "no:cacheprovider", "--load-broker-mode", "process")
    assert run.outcomes == {"passed": passed}
    return run


def write_recovery(project: Project, more: str, tests: str = "") -> None:
    """Write a recovery with these lines in its profile, and other tests."""
    slo = "{loss: 0, throughput: 1%, sent: 1%}"
    project.write("profiles/durable.yaml", DISTURBED.format(name="durable", slo=slo, more=more))
    project.write("test_it.py", RECOVERY + tests)


OTHERWISE = """\
from pathlib import Path
import pytest_loadtest

@pytest.mark.load("plain", live=True, testDuration="20s")
def test_not_this_one(load):
    with pytest.raises(pytest_loadtest.UsageError, match=r"call load.begin\\(\\) first"):
        load.restart_broker()
    load.begin()
    with pytest.raises(pytest_loadtest.UsageError, match="loopback cannot be restarted: it keeps no data"):
        load.restart_broker()
    assert load.stop().lost == 0

@pytest.mark.load("durable", live=True, broker_mode="process")
def test_no_return(load):
    load.begin()
    (conf,) = Path(".loadtest").glob("*/brokers/mqtt-*/mosquitto.conf")
    with conf.open("a") as lines:
        lines.write("no_such_option 1\\n")
    load.restart_broker()

# what a killed broker had not saved is waited for, and lost
@pytest.mark.load("durable", live=True, judge=False, broker_mode="process", drainTimeout="5s")
def test_after_it(load):
    load.begin()
    before = connections(load)
    load.restart_broker(kill=True)
    # clients that are not back when the short drain ends break the run
    while connections(load) < before:
        load.wait("100ms")
    load.stop()

def connections(load):
    ends = ("%04X" % int(load.target.url.rpartition(":")[2]), "01")  # the broker's port, established
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return sum((row[2].rpartition(":")[2], row[3]) == ends for row in rows)
"""


@pytest.fixture(scope="module")
def on_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run one session with a recovery, and with restarts that fail."""
    with fresh(tmp_path_factory.mktemp("mosquitto")) as project:
        project.profile("plain", slo="{throughput: 1%, sent: 1%}")  # a busy machine may be late
        project.write(
            "profiles/durable.yaml", DISTURBED.format(name="durable", slo="{loss: 0}", more=MQTT)
        )
        project.write("test_it.py", RECOVERY + OTHERWISE)
        return project.run("-n2", "-p", "no:cacheprovider", "--load-broker-mode", "process")


@needs_mosquitto
def test_every_message_survives_a_restart_of_mosquitto(on_mosquitto: Finished) -> None:
    """QoS 1, sessions that outlive connections, and a broker that keeps them: no acknowledged message is lost."""
    assert [
        child.tag for child in on_mosquitto.case("test_recovery") if child.tag != "properties"
    ] == []
    document = on_mosquitto.documents["test_recovery"]
    driver, reconnect = document["driver"], document["measurements"]["latencies"]["reconnect"]
    lost = sum(
        driver["incidents"].get(text, 0)
        for text in ("connection lost", "connection reset by the broker")
    )
    assert driver["losses"] == lost == reconnect["samples"] == 2 * 2 + 2
    assert any(line.startswith("  incidents  ") for line in on_mosquitto.out.splitlines())
    recovered(on_mosquitto)


@needs_mosquitto
def test_a_restart_that_is_impossible_or_fails_is_reported(on_mosquitto: Finished) -> None:
    """A broker not started by the run is rejected and the load continues; a broker that does not restart breaks the run with its output,
    and the next test gets another one."""
    run = on_mosquitto
    assert run.outcomes == {"passed": 3, "error": 1}
    error = run.case("test_no_return").find("error")
    assert error is not None
    assert "no_such_option" in f"{error.get('message')}{error.text}"
    (broken,) = restarts(run, "test_no_return")
    assert (broken["ready"], broken["readyAt"]) == (None, None)
    assert not restarts(run, "test_not_this_one")
    (killed,) = restarts(run, "test_after_it")
    assert killed["down"] < killed["ready"]
    incidents = run.documents["test_after_it"]["driver"]["incidents"]
    assert (
        incidents["the broker had forgotten the session of a consumer, and what it held for it"]
        == 2
    )
