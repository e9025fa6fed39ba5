"""Shares of a service that chooses: judged only where the interval decides."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.chosen import wilson
from simulation.judge_world import judge
from simulation.oracle import check_truth
from simulation.player import play
from simulation.world import Fault, World

if TYPE_CHECKING:
    from pathlib import Path


def world(within: str, *faults: Fault) -> World:
    profile: dict[str, Any] = {
        "name": "Chosen", "topics": 2, "subscriptionsPerTopic": 2, "producerRate": 200, "testDuration": "2s", "drainTimeout": "1s",
        "messageSize": 100, "driver": {"name": "simulated"}, "slo": {"endToEndLatency": {"p50": "50ms"}},
        "route": {"input": "in/{topic}", "output": "out/{topic}", "outputs": {"share": "30%", "within": within}},
    }  # fmt: skip
    return World(seed=4, tag="unrestricted", profile=profile, faults=faults)


@pytest.mark.parametrize(
    ("share", "trials", "interval"),
    [(0.2, 100, (0.1172, 0.3202)), (0.0, 30, (0.0, 0.1811)), (1.0, 30, (0.8189, 1.0))],
)
def test_the_interval_is_that_of_wilson(
    share: float, trials: int, interval: tuple[float, float]
) -> None:
    assert wilson(share, trials) == pytest.approx(interval, abs=2e-4)


@pytest.mark.parametrize(
    ("within", "faults", "outcome"),
    [
        ("12%", (), "met"),
        ("3%", (), "no data"),
        ("12%", (Fault(kind="no-delivery", at=0, duration=None),), "no data"),
        (
            "12%",
            (Fault(kind="service-lose", at=0, duration=None, values={"share": 0.9}),),
            "missed",
        ),
    ],
)
def test_a_share_is_judged_by_its_interval(
    tmp_path: Path, within: str, faults: tuple[Fault, ...], outcome: str
) -> None:
    judged = judge(world(within, *faults), tmp_path)
    assert judged.violations == ()
    assert judged.outcome == outcome
    assert judged.played is not None
    assert judged.played.results is not None
    counts = judged.played.results["measurements"]["counts"]
    assert counts["lost"] is None
    assert counts["received"] < 2 * counts["acked"]


@pytest.mark.parametrize("reported", [None, 0, 3])
def test_a_silent_topic_is_counted_where_chance_does_not_explain_it(
    tmp_path: Path, reported: int | None
) -> None:
    lost = Fault(kind="lose-acknowledged", at=0, duration=None, values={"topics": [1]})
    played = play(world("20%", lost), tmp_path)
    results = deepcopy(played.results)
    assert results is not None
    silent = results["measurements"]["silent"]
    assert (silent["pairs"], silent["streams"]) == (2, 1)
    if reported is not None:
        silent["pairs"] = reported
    found = {violation.rule for violation in check_truth(replace(played, results=results))}
    assert ("silent" in found) is (reported is not None)


def test_a_share_that_is_met_without_proof_is_found(tmp_path: Path) -> None:
    played = play(world("3%"), tmp_path)
    results = deepcopy(played.results)
    assert results is not None
    for finding in results["verdict"]["findings"]:
        if finding["metric"] == "outputShare":
            finding["outcome"] = "met"
    wrong = check_truth(replace(played, results=results))
    assert "output share" in {violation.rule for violation in wrong}
