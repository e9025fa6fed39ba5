"""What came is counted by class, and what never came is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.coverage import Coverage, classes, objectives
from simulation.world import SECOND, Fault, World

STALL = Fault(kind="stall", at=SECOND, duration=SECOND)
WORLD = World(
    seed=1,
    tag="stormy",
    profile={
        "topics": 2,
        "slo": {
            "endToEndLatency": {"p99": "5ms"},
            "whole": {"sendDelay": {"max": "1s"}},
            "window": "1s",
            "drift": {"publishLatency.mean": "5%"},
        },
        "stages": [{"duration": "2s", "rate": {"from": 1, "to": 2}, "slo": {"loss": 0}}],
    },
    faults=(STALL, STALL),
)


def test_a_world_belongs_to_classes() -> None:
    names = classes(WORLD)
    expected = {
        "tag: stormy", "fault: stall", "shape: stages", "shape: ramp", "shape: stage objectives", "shape: objectives in windows",
        "shape: whole", "shape: drift", "metric: endToEndLatency", "metric: sendDelay", "metric: publishLatency", "metric: loss",
        "statistic: p99", "statistic: max", "statistic: mean", "shape: one worker",
    }  # fmt: skip
    assert expected <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("fault", "lasts"),
    [
        (Fault(kind="stall", at=SECOND, duration=2 * SECOND), True),
        (Fault(kind="slow-delivery", at=SECOND, duration=0, values={"by": 2 * SECOND}), True),
        (Fault(kind="stall", at=0, duration=SECOND), False),
        (Fault(kind="stall", at=3 * SECOND, duration=SECOND), False),
        (Fault(kind="latency", at=0, duration=None, values={"by": 1}), False),
        (Fault(kind="reject", at=0, duration=3 * SECOND), False),
    ],
)
def test_a_fault_lasts_into_the_drain_if_it_ends_after_the_load(fault: Fault, lasts: bool) -> None:
    names = classes(replace(WORLD, faults=(fault,)))
    assert ("shape: fault into the drain" in names) is lasts


def test_second_copies_and_losses_are_faults_of_one_rule() -> None:
    double, loss = Fault(kind="double", at=0), Fault(kind="lose-copy", at=0)
    assert "shape: faults of one rule" in classes(replace(WORLD, faults=(double, loss)))
    assert "shape: faults of one rule" not in classes(replace(WORLD, faults=(double, double)))


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ({"testDuration": "12500ms"}, "shape: long load"),
        ({"search": {"hold": "6s"}}, "shape: long steps"),
    ],
)
def test_lengths_have_classes(profile: dict[str, str], name: str) -> None:
    assert name in classes(replace(WORLD, profile=profile))
    assert name not in classes(WORLD)


def test_objectives_of_several_workloads_are_all_counted() -> None:
    several = replace(WORLD, profile={"workloads": [{"slo": {"loss": 0}}, {"slo": {"failed": 0}}]})
    assert list(objectives(several)) == [("loss", ""), ("failed", "")]


def test_a_class_that_never_came_is_named() -> None:
    coverage = Coverage()
    coverage.add(WORLD, "met")
    missing = coverage.missing()
    assert "fault: hang" in missing
    assert "outcome: missed" in missing
    assert "fault: stall" not in missing
    assert "fault: hang" not in coverage.missing(without=["hang"])
    assert ("hang", "loss") in coverage.missing_pairs()
    assert ("stall", "loss") not in coverage.missing_pairs()


def test_a_kind_counts_once_in_a_world() -> None:
    coverage = Coverage()
    coverage.add(WORLD, "met")
    assert coverage.pairs["stall", "loss"] == 1


def test_the_table_has_outcomes_and_pairs() -> None:
    coverage = Coverage()
    coverage.add(WORLD, "missed")
    table = coverage.table()
    assert "1 worlds" in table
    assert "stormy" in table
    assert any(line.startswith("stall") for line in table.splitlines())
