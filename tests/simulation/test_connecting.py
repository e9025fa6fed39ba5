"""Connect latencies and rates are compared with what the target accepted, and when connections began with the rate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.connecting import check_connecting, connected_in_time
from simulation.facts import all_facts
from simulation.oracle import check_truth
from simulation.player import play
from simulation.test_oracle import changed, rules, simple, with_finding
from simulation.world import CONTROLLER, SECOND, Host, World

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.facts import Facts
    from simulation.truth import Played

DRIVER = {"name": "simulated", "connects": True, "connectRate": 50}
SLO = {"connectLatency": {"max": "1s", "mean": "500ms"}, "connectRate": "20%"}


def connecting(*workers: str, hosts: tuple[Host, ...] = (), **driver: Any) -> World:
    """Return a world with four producers and four consumers that connect."""
    profile = simple(topics=4, producersPerTopic=1, driver={**DRIVER, **driver}, slo=SLO)
    return World(seed=5, workers=workers or (CONTROLLER, CONTROLLER), hosts=hosts, profile=profile)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(connecting(), tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def facts(played: Played) -> Facts:
    return all_facts(played)[0]


def test_a_true_result_violates_nothing(played: Played, facts: Facts) -> None:
    assert rules(check_truth(played)) == set()
    assert played.outcome == "met"
    assert [one.side for one in facts.connections].count("producers") == 4
    assert len(facts.connections) == 8


@pytest.mark.parametrize("key", ["minimum", "largest", "total", "samples"])
def test_another_latency_is_found(played: Played, key: str) -> None:
    assert played.results is not None
    section = played.results["measurements"]["latencies"]["connect"]
    wrong = changed(played, "measurements", "latencies", "connect", key, value=section[key] + 2)
    assert rules(check_truth(wrong)) == {f"connectLatency.{key}"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("connectLatency.max", {"maximum": 1_000}),
        ("connectLatency.mean", {"maximum": 1_000}),
        ("connectRate", {"minimum": 1.5}),
    ],
)
def test_an_objective_that_is_met_beyond_its_bound_is_found(
    played: Played, name: str, values: dict[str, Any]
) -> None:
    assert rules(check_truth(with_finding(played, name, **values))) == {"false pass"}


def test_a_connection_that_begins_late_is_found(facts: Facts) -> None:
    assert rules(list(check_connecting(facts))) == set()
    last = facts.connections[-1]
    late = replace(last, begun=last.begun + 1_000)
    wrong = replace(facts, connections=[*facts.connections[:-1], late])
    assert rules(list(check_connecting(wrong))) == {"connect"}


def test_a_connection_is_in_time_before_the_next_one_would_be_due_and_the_median(
    facts: Facts,
) -> None:
    first, *_ = (one for one in facts.connections if one.side == "consumers")
    span = round(2 * SECOND / 50)
    latency = first.accepted - first.begun
    pair = [first, replace(first, begun=first.begun + span // 2)]
    for delay, expected in ((latency, 2), (2 * span, 1)):
        pair[1].accepted = pair[1].begun + delay
        assert connected_in_time(replace(facts, connections=pair)) == (expected, expected, 2)


def test_connections_of_other_hosts_are_not_judged(tmp_path: Path) -> None:
    """They begin by clocks as they were known before the load."""
    host = Host(name="h", offset=5 * SECOND, drift=1e-5)
    other = play(connecting(CONTROLLER, "h", hosts=(host,)), tmp_path)
    assert other.results is not None
    section = other.results["measurements"]["latencies"]["connect"]
    wrong = changed(
        other, "measurements", "latencies", "connect", "largest", value=section["largest"] * 2
    )
    assert rules(check_truth(other)) == rules(check_truth(wrong)) == set()


def test_a_latency_without_a_rate_counts_from_the_first_packet(tmp_path: Path) -> None:
    profile = simple(
        driver={"name": "simulated", "connects": True}, slo={"connectLatency": {"max": "1s"}}
    )
    alone = play(World(seed=5, profile=profile), tmp_path)
    assert rules(check_truth(alone)) == set()
    facts = all_facts(alone)[0]
    assert connected_in_time(facts) is None
    assert len({one.begun for one in facts.connections}) == 2
