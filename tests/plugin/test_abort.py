"""The section ``abort``: a lost run ends early, keeps its samples and is missed; any other run is not affected."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.values.quantities import SECOND

from .projects import ALONE_OR_TWO

if TYPE_CHECKING:
    from .projects import Finished, Project

MORE = "drainTimeout: 2s\nmaxSendDelay: 2s\nabort: {{endToEndLatency.p99: {bound}, for: 2s}}\n"
TEST = """\
import pytest

@pytest.mark.load("soak")
def test_soak(load): ...
"""
LIVE = """\
import pytest

@pytest.mark.load("soak", live=True)
def test_soak(load):
    load.begin()
    load.pause_consumers()
    load.wait("10min")
"""
PAUSE = 100  # s for what must come to pass


def wait_for_samples(project: Project) -> None:
    """Wait until samples of the measured phase are on disk."""
    deadline = time.monotonic() + PAUSE
    while not list(project.path.glob(".loadtest/**/measure/received/*")):
        assert time.monotonic() < deadline, "no sample was written"
        time.sleep(0.05)


def aborted(run: Finished, cause: str) -> None:
    """Check that the run was missed long before its ten minutes, with the reason everywhere, and with measurements until then."""
    assert run.ret == pytest.ExitCode.TESTS_FAILED, run.out
    document = run.documents["test_soak"]
    assert document["verdict"]["outcome"] == "missed"
    assert any(
        reason.startswith("aborted ") and cause in reason
        for reason in document["verdict"]["reasons"]
    )
    assert document["measurements"]["duration"] < 200 * SECOND
    assert document["measurements"]["counts"]["received"] > 0
    assert [child.tag for child in run.case("test_soak") if child.tag in ("failure", "error")] == [
        "failure"
    ]
    said = [
        one.get("value", "")
        for one in run.case("test_soak").iter("property")
        if one.get("name") == "load.reason"
    ]
    assert any(cause in reason for reason in said)
    assert cause in run.out[: run.out.index("= load tests =")]
    assert any(cause in change["text"] for change in document["timeline"]["changes"])


@pytest.mark.skipif(mosquitto.find_mosquitto() is None, reason="mosquitto is not installed")
def test_a_broker_that_hangs_ends_the_run(project: Project) -> None:
    """Although no late message arrives."""
    project.profile(
        "soak",
        rate=200,
        duration="10min",
        slo="{throughput: 1%, sent: 1%}",
        more=MORE.format(bound="1s"),
    )
    path = project.path / "profiles" / "soak.yaml"
    path.write_text(
        path.read_text().replace(
            "driver: {name: loopback}", "driver: {name: mqtt, qos: 1, keepAlive: 2s}"
        )
    )
    project.write("test_it.py", TEST)
    process = project.start("-n", "2", "--load-broker-mode", "process")
    wait_for_samples(project)
    (broker,) = [
        pid for pid, command in project.processes() if command.split()[0].endswith("mosquitto")
    ]
    os.kill(broker, signal.SIGSTOP)
    aborted(project.finish(process), "endToEndLatency.p99 > 1.00 s in each of the 2 s from second ")


def test_the_body_of_a_live_test_gets_the_abort(project: Project) -> None:
    """While it waits, or when it changes the load."""
    project.profile(
        "soak",
        rate=200,
        duration="10min",
        slo="{throughput: 1%, sent: 1%}",
        more=MORE.format(bound="1s"),
    )
    project.write("test_it.py", LIVE)
    aborted(project.run(), "endToEndLatency.p99 > 1.00 s in each of the 2 s from second ")


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_run_within_the_bounds_is_not_aborted(project: Project, workers: str) -> None:
    """All messages are received, and no output mentions an abort."""
    project.profile(
        "soak",
        rate=200,
        duration="4s",
        slo="{throughput: 1%, sent: 1%}",
        more=MORE.format(bound="1min") + "seed: 7\n",
    )
    project.write("test_it.py", TEST)
    run = project.run(workers)
    assert run.ret == 0, run.out
    assert run.documents["test_soak"]["measurements"]["counts"]["offered"] == 800
    assert "aborted" not in run.out


STAGED = """\
name: staged
messageSize: 64
producersPerTopic: 4
producerRate: 200
stages:
  - {name: calm, duration: 3s, rate: 200}
  - {name: lost, duration: 10min, rate: 300, slo: {endToEndLatency: {p99: 1s}}}
drainTimeout: 2s
maxSendDelay: 20s
abort: {endToEndLatency.p50: 1s, for: 2s}
driver: {name: loopback, maxPendingMessages: 5, stall: {at: 2s, duration: 5min}}
generator: {sendDelayP99: 5s, receiveLagP99: 5s, cpu: 5, stalled: 1}
slo: {throughput: 1%, sent: 1%}
"""


@pytest.mark.slow
def test_a_stage_without_arrivals_before_an_abort_is_missed(project: Project) -> None:
    """It is not *no data*, because the whole run has enough. With two workers, whose reports both count."""
    project.write("profiles/soak.yaml", STAGED)
    project.write("test_it.py", TEST)
    run = project.run("-n", "2")
    aborted(run, "endToEndLatency.p50 > 1.00 s in each of the 2 s from second ")
    assert [
        (stage["name"], stage["verdict"]["outcome"])
        for stage in run.documents["test_soak"]["stages"]
    ][-1] == ("lost", "missed")


def test_the_plan_shows_the_bounds_of_an_abort(project: Project) -> None:
    """Also the metrics that are unknown while load runs."""
    project.write("profiles/soak.yaml", STAGED)
    project.write("test_it.py", TEST)
    out = project.run("--load-plan").out
    assert "aborts at    endToEndLatency.p50 > 1.00 s in every second of 2 s" in out
    assert "loss cannot end a run: messages under way may arrive until the drain ends" in out


def test_dropped_messages_end_a_run_at_their_bound(project: Project) -> None:
    """As soon as there are more than the bound allows for the ten minutes of the plan."""
    more = "maxSendDelay: 5s\ndrainTimeout: 1s\nabort: {dropped: 20}\n"
    project.profile("soak", rate=500, duration="10min", slo="{throughput: 1%, sent: 1%}", more=more)
    path = project.path / "profiles" / "soak.yaml"
    path.write_text(
        path.read_text().replace(
            "{name: loopback}",
            "{name: loopback, maxPendingMessages: 5, stall: {at: 3s, duration: 5min}}",
        )
    )
    project.write("test_it.py", TEST)
    aborted(project.run(), " > 20")
