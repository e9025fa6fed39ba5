"""Runs without messages: connections at a rate, held, judged by how they connected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.drivers.mqtt import mosquitto

from .test_aggregate_again import aggregate

if TYPE_CHECKING:
    from .projects import Project

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="mosquitto is not installed"
)

ONLY = """\
name: {name}
messages: 0
producersPerTopic: 60
subscriptionsPerTopic: 4
testDuration: 1s
driver: {{name: mqtt, client: {client}, connectRate: 100}}
generator: {{sendDelayP99: 5min, receiveLagP99: 5min, cpu: 5, stalled: 1}}
slo: {slo}
"""
TESTS = """\
import pytest
from pytest_loadtest import s

@pytest.mark.load("only")
def test_met(load):
    load.assert_slo()
    assert (load.connect.samples, load.subscribe.samples) == (64, 4)
    with pytest.raises(Exception, match="received"):
        load.end_to_end.p50

@pytest.mark.load("only", slo={"connectLatency": {"max": "1us"}})
def test_missed(load):
    load.assert_slo()

@pytest.mark.load("only", slo={"connectLatency": {"p99.9": "1min"}})
def test_too_few(load):
    load.assert_slo()

@pytest.mark.load("only", live=True, testDuration="5min")
def test_lost(load):
    load.begin()
    with pytest.raises(Exception, match="messages: 0 in the profile"):
        load.set_rate(5)
    load.restart_broker(kill=True)
    load.wait("8s")  # clients wait up to five seconds between two attempts
    result = load.stop()
    result.assert_slo()
    assert result.connect.samples == 64  # those that come again count from their first packet: among the others they would say too little
"""
FOUND = {"test_met": "met", "test_missed": "missed", "test_too_few": "no data", "test_lost": "met"}


@pytest.mark.parametrize(
    "how",
    [pytest.param(("-n0", "library"), marks=pytest.mark.slow), ("-n2", "native")],
    ids=" ".join,
)
def test_connections_are_opened_at_the_rate_of_the_profile(
    project: Project, how: tuple[str, str]
) -> None:
    """By any client; summary, results and JUnit show it, without zeros for messages."""
    workers, client = how
    project.write(
        "profiles/only.yaml",
        ONLY.format(
            name="only",
            client=client,
            slo="{connectLatency: {mean: 1min}, subscribeLatency: {max: 1min}, connectRate: 1%}",
        ),
    )
    project.write("test_it.py", TESTS)
    run = project.run(workers, "-p", "no:cacheprovider", "--load-broker-mode", "process")
    assert {name: run.documents[name]["verdict"]["outcome"] for name in FOUND} == FOUND
    assert run.outcomes == {"passed": 2, "failed": 1, "error": 1}
    opening, driver = (
        run.documents["test_met"]["measurements"]["opening"],
        run.documents["test_met"]["driver"],
    )
    assert (opening["alone"], opening["connections"], opening["rate"], driver["losses"]) == (
        True,
        64,
        100.0,
        0,
    )
    assert 0 < opening["achieved"] <= 101
    assert run.documents["test_met"]["measurements"]["counts"]["offered"] == 0
    assert "connected  64, 100 connections/s requested" in run.out
    assert ", held for 1.00 s, none lost after that" in run.out
    assert "offered 0" not in run.out
    properties = run.properties("test_met")
    assert (properties["load.connections"], properties["load.connections.lost"]) == ("64", "0")
    assert "load.connect.mean.ms" in properties
    assert not {"load.offered", "load.rate.msg_per_s"} & properties.keys()
    lost = int(run.properties("test_lost")["load.connections.lost"])
    assert lost >= 64, "a broker that was killed loses all of them"
    assert f"{lost} lost after that" in run.out


@pytest.mark.slow
def test_a_scale_reduces_the_number_of_connections(project: Project) -> None:
    """A workload of connections and one of messages run together; samples without any row are judged again."""
    text = ONLY.format(
        name="both", client="native", slo="{connectLatency: {mean: 1min}, connectRate: 1%}"
    ).replace("messages: 0\n", "")
    more = """\
workloads:
- {name: idle, messages: 0}
- {name: busy, topics: 1, producersPerTopic: 1, producerRate: 50, messageSize: 64, slo: {sent: 1%, throughput: 1%, connectRate: 1%, connectLatency: {mean: 1min}}}
"""  # what a busy machine makes late is not the question
    project.write("profiles/both.yaml", text + more)
    project.write(
        "test_it.py",
        'import pytest\n@pytest.mark.load("both")\ndef test_both(load):\n    load.assert_slo()\n',
    )
    run = project.run("-n2", "-p", "no:cacheprovider", "--load-broker-mode", "process")
    assert run.outcomes == {"passed": 1}
    assert "connected  64, 100 connections/s requested" in run.out
    assert "connected  5, 100 connections/s requested" in run.out
    idle = next(
        path
        for path in project.runs()
        if json.loads((path / "run.json").read_text())["connects_only"]
    )
    before = (idle / "results.json").read_text()
    assert aggregate(project, idle).returncode == 0
    assert (
        json.loads((idle / "results.json").read_text())["measurements"]
        == json.loads(before)["measurements"]
    )
    project.write(
        "profiles/both.yaml",
        ONLY.format(
            name="few", client="native", slo="{connectLatency: {mean: 1min}, connectRate: 1%}"
        ),
    )
    run = project.run(
        "-n0", "-p", "no:cacheprovider", "--load-broker-mode", "process", "--load-scale", "0.5"
    )
    assert run.documents["test_both"]["measurements"]["opening"]["connections"] == 32
    assert (
        "SCALED ×0.5 — says nothing about the full load (producers 60 → 30, subscriptions 4 → 2)"
        in run.out
    )


REFUSED = {
    "search: {start: 5}": "search: finds the highest rate of messages, but messages: 0 sends none",
    "producerRate: 10": "producerRate: 10 msg/s, but messages: 0 sends none",
    "stages: [{duration: 1s}]": "stages and messages exclude each other",
    "scaled: {slo: {throughput: 5%}}": "scaled.slo.throughput: the run has no messages",
}


def test_impossible_profiles_are_rejected_before_anything_is_started(project: Project) -> None:
    """All of them together, each with file, line and remedy."""
    for number, line in enumerate(REFUSED):
        text = ONLY.format(name="nothing", client="native", slo="{connectLatency: {mean: 1s}}")
        project.write(f"profiles/no{number}.yaml", f"{text}{line}\n")
    tests = "".join(
        f'@pytest.mark.load("no{number}")\ndef test_{number}(load): ...\n'
        for number in range(len(REFUSED))
    )
    project.write("test_it.py", f"import pytest\n{tests}")
    run = project.run("-n0", "-p", "no:cacheprovider")
    assert run.ret == 4
    for number, expected in enumerate(REFUSED.values()):
        assert f"profiles/no{number}.yaml:" in run.out
        assert expected in run.out
