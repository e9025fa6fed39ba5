"""Laws apply to worlds in which nothing but the law can explain a difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_loadtest.profile import loads
from simulation.draw import draw
from simulation.laws import (
    LAWS,
    later,
    later_reads,
    other_hosts,
    other_workers,
    perfect,
    tighter,
    true_clocks,
)
from simulation.test_draw import on_loopback
from simulation.truth import Played, Truth
from simulation.world import CONTROLLER, SECOND, Fault, Host, World

STALL = Fault(kind="stall", at=SECOND, duration=SECOND)
PAUSE = Fault(kind="pause", at=SECOND, duration=SECOND, values={"worker": 0})


def world(*faults: Fault, **keys: Any) -> World:
    return World(
        seed=1, profile={"testDuration": "10s", "producerRate": 10.0, **keys}, faults=faults
    )


def played(subject: World, outcome: str = "missed", **counts: int) -> Played:
    return Played(
        world=subject, truth=Truth(), outcome=outcome, results={"measurements": {"counts": counts}, "verdict": {}}, run=None, error=None, folder=Path(), ended=0,
        events="", cpu=0.0,
    )  # fmt: skip


def test_a_tighter_bound_is_half_of_each_upper_bound() -> None:
    slo = {
        "endToEndLatency": {"p99": "5ms", "max": "1s"},
        "loss": "10%",
        "duplicates": 5,
        "throughput": "95%",
    }
    tight = tighter(world(slo=slo), played(world(slo=slo)))
    assert tight is not None
    assert tight.profile["slo"] == {
        "endToEndLatency": {"p99": "2500us", "max": "500ms"},
        "loss": "5%",
        "duplicates": 2,
        "throughput": "95%",
    } or tight.profile["slo"]["endToEndLatency"]["p99"] in ("2ms", "3ms")


def test_the_parser_accepts_tighter_worlds() -> None:
    for seed in range(1, 150):
        subject = draw(seed)
        tight = tighter(subject, played(subject))
        if tight is not None:
            loads(yaml.safe_dump(on_loopback(tight.profile), sort_keys=False), f"seed {seed}")


@pytest.mark.parametrize("outcome", ["met", "no data", "generator-limited"])
def test_only_a_missed_world_is_made_worse(outcome: str) -> None:
    subject = world(slo={"loss": 4})
    assert tighter(subject, played(subject, outcome)) is None
    assert later(subject, played(subject, outcome)) is None


def test_deliveries_are_later_where_that_cannot_help() -> None:
    subject = world(STALL, slo={"endToEndLatency": {"p99": "5ms"}})
    delayed = later(subject, played(subject))
    assert delayed is not None
    assert [fault.kind for fault in delayed.faults] == ["stall", "slow-delivery"]


@pytest.mark.parametrize(
    "slo",
    [
        {"earliness": {"max": "0s"}},
        {"deliveryGap": {"max": "1s"}},
        {"endToEndLatency": {"p50": {"min": "1ms", "max": "2ms"}}},
    ],
)
def test_deliveries_are_not_later_where_that_may_help(slo: dict[str, Any]) -> None:
    subject = world(STALL, slo=slo)
    assert later(subject, played(subject)) is None


def test_deliveries_are_not_later_where_only_a_throughput_is_missed() -> None:
    """It counts deliveries from the phase's start and their median latency on: early ones may be too early."""
    subject = world(STALL, slo={"loss": 0})
    missed = played(subject)
    assert missed.results is not None
    missed.results["verdict"]["findings"] = [{"metric": "throughput", "outcome": "missed"}]
    assert later(subject, missed) is None
    missed.results["verdict"]["findings"].append({"metric": "loss", "outcome": "missed"})
    assert later(subject, missed) is not None


def test_deliveries_are_not_later_where_none_may_be_early() -> None:
    """Delayed messages have an objective on earliness, whether the profile bounds it or not."""
    subject = world(STALL, deliverAfter="10ms")
    assert later(subject, played(subject)) is None


def test_other_workers_are_compared_without_faults_only() -> None:
    subject = world()
    other = other_workers(subject, played(subject, "met"))
    assert other is not None
    assert len(other.workers) == 3
    assert other_workers(world(STALL), played(world(STALL), "met")) is None


def test_counts_of_other_workers_are_the_same() -> None:
    law = next(law for law in LAWS if law.name == "other workers")
    subject = world()
    assert law.broken(played(subject, "met", sent=5), played(subject, "met", sent=5)) == ""
    assert (
        law.broken(played(subject, "met", sent=5), played(subject, "met", sent=4)) == "sent 5 and 4"
    )
    assert law.broken(played(subject, "met"), played(subject, "missed")) == "met turned into missed"


def test_workers_of_other_hosts_are_compared_with_the_controllers() -> None:
    host = Host(name="h", offset=5, drift=1e-5)
    subject = replace(world(), hosts=(host,), workers=(CONTROLLER, "h"))
    other = other_hosts(subject, played(subject, "met"))
    assert other is not None
    assert (other.hosts, other.workers) == ((), (CONTROLLER, CONTROLLER))
    wrong = replace(subject, hosts=(replace(host, lossy=0.1),))
    assert other_hosts(wrong, played(wrong, "met")) is None


def test_late_reads_are_those_of_each_worker() -> None:
    subject = replace(world(STALL, slo={"loss": 4}), workers=(CONTROLLER, CONTROLLER))
    delayed = later_reads(subject, played(subject))
    assert delayed is not None
    assert [fault.values.get("worker") for fault in delayed.faults] == [None, 0, 1]


def test_faults_of_the_generator_are_left_out_of_a_world_that_was_met() -> None:
    subject = replace(world(STALL, PAUSE), tag="stormy")
    other = perfect(subject, played(subject, "met"))
    assert other is not None
    assert other.faults == (STALL,)
    assert perfect(subject, played(subject, "missed")) is None
    law = next(law for law in LAWS if law.name == "a perfect generator")
    hidden = law.check(played(subject, "met"), played(other, "missed"))
    assert [(violation.rule, violation.margin) for violation in hidden] == [
        ("law: a perfect generator", "")
    ]


def test_a_law_names_a_world_that_differs() -> None:
    for seed in range(1, 60):
        subject = replace(draw(seed), tag="calm")
        for law in LAWS:
            changed = law.changed(subject, played(subject))
            assert changed is None or changed.dump() != subject.dump()


def test_true_clocks_are_those_of_worlds_with_ordinary_hosts() -> None:
    """A clock that drifts faster is a fault of the generator, which another law is about."""
    ordinary = Host(name="h", offset=5, drift=1e-5, jitter=5)
    subject = replace(world(STALL), hosts=(ordinary,), workers=("h",))
    changed = true_clocks(subject, played(subject))
    assert changed is not None
    assert (changed.hosts, changed.faults) == ((Host(name="h"),), (STALL,))
    fast = replace(subject, hosts=(Host(name="h", drift=1e-4),))
    assert true_clocks(fast, played(fast)) is None
    assert true_clocks(subject, played(subject, "no data")) is None
    law = next(law for law in LAWS if law.name == "true clocks")
    missed = played(subject, "missed")
    assert law.broken(missed, played(changed, "met"))
    assert not law.broken(missed, played(changed, "no data"))
    plain = replace(subject, faults=())
    other = replace(changed, faults=())
    assert law.broken(played(plain, sent=5), played(other, sent=4)) == "sent 5 and 4"
    assert not law.broken(played(subject, sent=5), played(changed, sent=4))
    assert true_clocks(other, played(other)) is None
