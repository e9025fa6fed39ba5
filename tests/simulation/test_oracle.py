"""The oracle: a calm world has no violation, and each rule finds the result that it is about when it is changed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.oracle import check_blame, check_truth, decidable
from simulation.player import play
from simulation.world import CONTROLLER, MS, SECOND, Fault, World

if TYPE_CHECKING:
    from simulation.truth import Played

PROFILE: dict[str, Any] = {
    "name": "World",
    "topics": 2,
    "producersPerTopic": 1,
    "producerRate": 100,
    "testDuration": "2s",
    "warmupDuration": "1s",
    "messageSize": "100B",
    "driver": {"name": "simulated"},
    "slo": {"endToEndLatency": {"p50": "10ms", "max": "1s"}, "loss": 10},
}
LOSSES = Fault(kind="lose-acknowledged", at=SECOND, duration=2 * SECOND, values={"share": 0.02})
DOUBLES = Fault(kind="double", at=SECOND, duration=2 * SECOND, values={"share": 0.05, "after": MS})


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    world = World(
        seed=3, workers=(CONTROLLER, CONTROLLER), profile=PROFILE, faults=(LOSSES, DOUBLES)
    )
    return play(world, tmp_path_factory.mktemp("world"))


def changed(played: Played, *path: str | int, value: Any) -> Played:
    """Return the same world with other results."""
    results: Any = deepcopy(played.results)
    place = results
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return replace(played, results=results)


def test_a_true_result_violates_nothing(played: Played) -> None:
    assert decidable(played)
    assert check_truth(played) == []
    assert played.results is not None
    counts = played.results["measurements"]["counts"]
    assert counts["lost"] > 0
    assert counts["duplicates"] > 0


@pytest.mark.parametrize("count", ["sent", "acked", "failed", "received", "lost", "duplicates"])
def test_a_wrong_count_is_found(played: Played, count: str) -> None:
    wrong = changed(played, "measurements", "counts", count, value=7)
    assert f"counts.{count}" in [violation.rule for violation in check_truth(wrong)]


def test_a_load_that_was_not_offered_is_found(played: Played) -> None:
    wrong = changed(played, "measurements", "counts", "offered", value=150)
    assert "offered" in [violation.rule for violation in check_truth(wrong)]


def test_a_load_that_was_planned_too_short_is_found(played: Played) -> None:
    """The due messages come from the profile, and not from the duration that the product planned."""
    longer = replace(played.world, profile={**PROFILE, "testDuration": "4s"})
    wrong = replace(played, world=longer)
    assert [violation.rule for violation in check_truth(wrong)] == ["offered"]


@pytest.mark.parametrize("number", [199, 201])
def test_a_number_of_messages_is_offered_exactly(played: Played, number: int) -> None:
    profile = {key: value for key, value in PROFILE.items() if key != "testDuration"}
    counted = replace(played.world, profile={**profile, "messages": number})
    wrong = replace(played, world=counted)
    assert [violation.rule for violation in check_truth(wrong)] == ["offered"]


@pytest.mark.parametrize("name", ["samples", "minimum", "largest"])
def test_a_wrong_latency_is_found(played: Played, name: str) -> None:
    wrong = changed(played, "measurements", "latencies", "endToEnd", name, value=1)
    assert f"endToEndLatency.{name}" in [violation.rule for violation in check_truth(wrong)]


def test_a_false_pass_is_found(played: Played) -> None:
    assert played.results is not None
    findings = played.results["verdict"]["findings"]
    place = next(i for i, one in enumerate(findings) if one["statistic"] == "max")
    wrong = changed(played, "verdict", "findings", place, "maximum", value=1_000)
    assert "false pass" in [violation.rule for violation in check_truth(wrong)]


def test_a_bound_on_a_change_is_not_one_on_a_latency(played: Played) -> None:
    """The drift of a latency is a finding of that latency, with a ratio as its bound."""
    assert played.results is not None
    findings = played.results["verdict"]["findings"]
    place = next(i for i, one in enumerate(findings) if one["statistic"] == "max")
    drift = changed(played, "verdict", "findings", place, "maximum", value=3.33)
    drift = changed(drift, "verdict", "findings", place, "unit", value="ratio")
    assert check_truth(drift) == []


def test_a_limit_of_a_perfect_generator_is_found(played: Played) -> None:
    wrong = replace(played, outcome="generator-limited")
    assert [violation.rule for violation in check_blame(wrong, None)] == ["blame.generator"]


def test_a_miss_that_a_perfect_generator_does_not_have_is_found(played: Played) -> None:
    wrong, calm = replace(played, outcome="missed"), replace(played, outcome="met")
    assert [violation.rule for violation in check_blame(wrong, calm)] == ["blame.target"]
    assert [violation.rule for violation in check_blame(calm, wrong)] == ["blame.hidden"]
