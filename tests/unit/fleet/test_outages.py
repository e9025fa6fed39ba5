"""The outages of a phase: a process that is killed and started again has one, and an impossible request leaves none."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.outages import Disturbance, Outages
from pytest_loadtest.fleet.wall_clock import WallClock


class Recorder:
    """A broker that records what it is requested to do; ``bookie 9`` does not exist."""

    facts = BrokerFacts(name="Pulsar", version="1", mode="process", url="pulsar://h")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def node(self, role: str, number: int) -> Recorder:
        if number == 9:
            raise UsageError("there is no bookie 9")
        self.calls.append(f"{role} {number}")
        return self

    def restart(self, *, kill: bool) -> None:
        self.calls.append(f"restart kill={kill}")

    def kill(self) -> None:
        self.calls.append("kill")

    def start(self) -> None:
        self.calls.append("start")


def make(outages: Outages, broker: Any, **disturbance: Any) -> tuple[int, int | None]:
    return outages.make(broker, Disturbance(**disturbance))


def test_a_kill_and_a_start_are_one_outage() -> None:
    outages, broker = Outages(0), Recorder()
    down, ready = make(outages, broker, action="kill", role="bookie", number=2)
    assert ready is None
    (entry,) = outages.document(WallClock(0))
    assert (entry["node"], entry["down"], entry["ready"], entry["readyAt"]) == (
        "bookie 2",
        down,
        None,
        None,
    )
    again, ready = make(outages, broker, action="start", role="bookie", number=2)
    assert again == down and ready is not None and ready >= down
    assert [(one["down"], one["ready"]) for one in outages.document(WallClock(0))] == [
        (down, ready)
    ]
    assert broker.calls == ["bookie 2", "kill", "bookie 2", "start"]


def test_two_processes_have_outages_of_their_own() -> None:
    outages, broker = Outages(0), Recorder()
    make(outages, broker, action="kill", role="bookie", number=1)
    make(outages, broker, action="restart", role="broker", number=1, kill=True)
    make(outages, broker, action="restart")
    assert [(one["node"], one["ready"] is None) for one in outages.document(WallClock(0))] == [
        ("bookie 1", True),
        ("broker 1", False),
        ("", False),
    ]
    assert broker.calls[-1] == "restart kill=False"


def test_an_impossible_request_leaves_no_outage() -> None:
    outages = Outages(0)
    with pytest.raises(UsageError, match="no bookie 9"):
        make(outages, Recorder(), action="kill", role="bookie", number=9)
    with pytest.raises(
        UsageError, match=r"name one process of a cluster, e\.g\. load\.kill_broker\(1\)"
    ):
        make(outages, Recorder(), action="kill")
    assert outages.document(WallClock(0)) == []
