"""A cluster of processes, here of small programs: each is ended and started by itself, and errors name it."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from waiting_for import gone, wait_until

from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.brokers.cluster import ClusterNode, StartedCluster
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = "import time\nprint('here', flush=True)\ntime.sleep(600)"
until = partial(wait_until, seconds=30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StartedCluster]:
    nodes = []
    for name in ("ZooKeeper", "bookie 1", "bookie 2", "broker 1"):
        (tmp_path / name).mkdir()
        child = Child([sys.executable, "-c", PROGRAM], folder=tmp_path / name)
        nodes.append(
            ClusterNode(name, child, lambda child=child: "here" in child.tail(), 30, print)
        )  # type: ignore[misc]
    made = StartedCluster(nodes, tmp_path / "none")
    made.facts = BrokerFacts(name="Pulsar", version="1", mode="process", url="pulsar://h")
    until(made.ready, "readiness")
    yield made
    made.stop()
    assert not list(tmp_path.iterdir())


def test_a_killed_process_is_down_and_no_failure(cluster: StartedCluster) -> None:
    before = cluster.facts
    cluster.node("bookie", 2).kill()
    assert gone(before.nodes["bookie 2"])
    assert cluster.facts.nodes == {**before.nodes, "bookie 2": None}
    assert (
        cluster.facts.pids_of("bookie 2") == ()
        and before.nodes["bookie 2"] not in cluster.facts.pids
    )
    assert cluster.failure() is None
    cluster.node("bookie", 2).start()
    after = cluster.facts.nodes["bookie 2"]
    assert after not in (None, before.nodes["bookie 2"]) and not gone(after)


def test_a_restart_leaves_the_other_processes_alone(cluster: StartedCluster) -> None:
    before = cluster.facts.nodes
    cluster.node("broker", 1).restart(kill=True)
    after = cluster.facts.nodes
    assert {name for name in before if before[name] != after[name]} == {"broker 1"}
    assert cluster.facts.serving == (after["broker 1"],)


def test_a_process_that_ends_by_itself_is_named(cluster: StartedCluster) -> None:
    (pid,) = cluster.facts.pids_of("bookie 1")
    os.killpg(pid, signal.SIGKILL)
    until(cluster.failure, "failure")
    assert str(cluster.failure()).startswith("bookie 1: ended by SIGKILL (status -9), log ")
    assert cluster.tail() == "bookie 1:\nhere"
    with pytest.raises(TargetError, match="ended by SIGKILL"):
        cluster.node("bookie", 1).restart(kill=False)
    cluster.abandon()
    for log in cluster.node("bookie", 1)._child.folder.parent.glob(
        "*/broker.log"
    ):  # kept, so that the error can name it
        log.unlink()
        log.parent.rmdir()


def test_requests_for_what_does_not_exist_are_errors(cluster: StartedCluster) -> None:
    with pytest.raises(
        UsageError,
        match="^there is no bookie 3: the cluster has ZooKeeper, bookie 1, bookie 2, broker 1$",
    ):
        cluster.node("bookie", 3)
    with pytest.raises(UsageError, match=r"^broker 1 is running: end it first$"):
        cluster.node("broker", 1).start()
    with pytest.raises(UsageError, match=r"name one process, e\.g\. load\.restart_broker\(1\)"):
        cluster.restart()
    cluster.node("broker", 1).kill()
    with pytest.raises(UsageError, match="^broker 1 is already down: start it first$"):
        cluster.node("broker", 1).kill()
