"""Documents of failures become as small as the failure allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulation.draw import draw
from simulation.shrink import half, shrink
from simulation.world import MS, SECOND, Fault, Host, Target, World


def world(*faults: Fault, workers: int = 4, **keys: Any) -> World:
    profile = {"testDuration": "8s", "producerRate": 400.0, "driver": {"name": "simulated"}, **keys}
    return World(
        seed=1,
        workers=("controller",) * (workers - 1) + ("h0",),
        hosts=(Host(name="h0", offset=5, drift=1e-5),),
        profile=profile,
        target=Target(store=7 * MS),
        faults=faults,
    )


STALL = Fault(kind="stall", at=2_345_678_901, duration=1_700 * MS)
PAUSE = Fault(kind="pause", at=SECOND, duration=500 * MS, values={"worker": 3})
LOSS = Fault(
    kind="lose-acknowledged", at=0, duration=None, values={"share": 0.013, "topics": [0, 2]}
)


def has(kind: str, subject: World) -> bool:
    return any(fault.kind == kind for fault in subject.faults)


def test_only_the_fault_that_matters_is_left() -> None:
    smallest = shrink(world(STALL, PAUSE, LOSS), lambda subject: has("stall", subject))
    assert [fault.kind for fault in smallest.faults] == ["stall"]
    assert smallest.workers == ("controller",)
    assert smallest.hosts == ()
    assert smallest.target == replace(Target(), spread=0.0)


def test_two_faults_that_are_needed_together_stay() -> None:
    both = shrink(
        world(STALL, PAUSE, LOSS),
        lambda subject: has("stall", subject) and has("lose-acknowledged", subject),
    )
    assert {fault.kind for fault in both.faults} == {"stall", "lose-acknowledged"}
    share = next(fault for fault in both.faults if fault.kind == "lose-acknowledged").values
    assert share == {"share": 1.0}


def test_a_time_is_halved_as_long_as_the_rule_is_violated() -> None:
    long = shrink(
        world(STALL),
        lambda subject: any((fault.duration or 0) >= 300 * MS for fault in subject.faults),
    )
    assert 300 * MS <= (long.faults[0].duration or 0) < 600 * MS


def test_objectives_that_do_not_matter_are_left_out() -> None:
    slo = {"endToEndLatency": {"p99": "5ms", "max": "1s"}, "loss": 0}
    smallest = shrink(
        world(slo=slo, checksum=True),
        lambda subject: "p99" in subject.profile.get("slo", {}).get("endToEndLatency", {}),
    )
    assert smallest.profile["slo"] == {"endToEndLatency": {"p99": "5ms"}}
    assert "checksum" not in smallest.profile


def test_stages_that_do_not_matter_become_a_duration() -> None:
    stages = [{"name": "a", "duration": "2s", "rate": 10}, {"name": "b", "duration": "4s"}]
    profile = {"stages": stages, "producerRate": 100.0, "driver": {"name": "simulated"}}
    smallest = shrink(replace(world(), profile=profile), lambda _: True)
    assert "stages" not in smallest.profile
    assert smallest.profile["testDuration"].endswith("s")


def test_of_several_workloads_one_is_left() -> None:
    entries = [
        {"name": "a", "producerRate": 10.0},
        {"name": "b", "producerRate": 20.0, "topics": 3},
    ]
    smallest = shrink(
        world(workloads=entries), lambda subject: subject.profile.get("topics", 0) > 1
    )
    assert "workloads" not in smallest.profile
    assert smallest.profile["topics"] == 3


def test_a_world_that_violates_nothing_smaller_stays() -> None:
    first = world(STALL, PAUSE)
    assert shrink(first, lambda subject: subject == first) == first


def test_the_number_of_plays_is_limited() -> None:
    played = []

    def violates(subject: World) -> bool:
        played.append(subject)
        return False

    shrink(draw(3), violates, plays=5)
    assert len(played) <= 5


def test_no_world_is_played_twice() -> None:
    played: list[str] = []

    def violates(subject: World) -> bool:
        played.append(subject.dump())
        return has("stall", subject)

    shrink(world(STALL, PAUSE, LOSS), violates)
    assert len(played) == len(set(played))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_000, 500),
        (1, 1),
        (0, 0),
        (9.0, 4.5),
        ("8s", "4s"),
        ("1500ms", "800ms"),
        ("900B/s", "450B/s"),
        ("host", "host"),
    ],
)
def test_half_of_a_value_keeps_its_unit(value: Any, expected: Any) -> None:
    assert half(value) == expected


def test_a_service_becomes_one_that_sends_one_output() -> None:
    route = {"input": "a", "output": ["b", "c"], "outputs": 3, "envelope": "properties"}
    smallest = shrink(world(route=route), lambda subject: "route" in subject.profile)
    assert smallest.profile["route"] == {"input": "a", "output": "b"}
