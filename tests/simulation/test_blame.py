"""The second judge: each rule finds the verdict that blames the wrong side, and accepts what a margin explains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.blame import check_blame, needs_counterfactual
from simulation.margins import EDGE, TICK
from simulation.player import play
from simulation.test_oracle import changed, rules, simple, with_finding
from simulation.world import CONTROLLER, MS, SECOND, US, Fault, Host, Target, World

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.truth import Played

PAUSE = Fault(kind="pause", at=3 * SECOND, duration=2 * SECOND, values={"worker": 1})
SLOW = Fault(kind="slow-read", at=0, duration=None, values={"worker": 0, "by": MS})
SLOW_TARGET = Target(up=220 * US, store=1_560 * US, down=330 * US)
MAXIMUM = "endToEndLatency.max"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Return a world whose generator is perfect."""
    profile = simple(slo={"endToEndLatency": {"max": "1s"}}, generator={"sendDelayP99": "2ms"})
    return play(World(seed=3, profile=profile), tmp_path_factory.mktemp("world"))


def limited(played: Played, reason: str, **generator: Any) -> Played:
    """Return the same world with a *generator-limited* verdict for a reason."""
    wrong = changed(played, "verdict", "outcome", value="generator-limited")
    wrong = changed(wrong, "verdict", "reasons", value=[reason])
    profile = {**played.world.profile, "generator": generator}
    world = replace(played.world, profile=profile)
    return replace(wrong, outcome="generator-limited", world=world)


def margins(played: Played, calm: Played | None) -> set[str]:
    return {violation.margin for violation in check_blame(played, calm)}


# A perfect generator.


@pytest.mark.parametrize(
    ("reason", "generator"),
    [
        ("own send delay p99 3 ms > 2 ms (generator.sendDelayP99)", {"sendDelayP99": "2ms"}),
        ("receive lag p99 2 ms > 1 ms (generator.receiveLagP99)", {"receiveLagP99": "1ms"}),
        ("worker w0 woke up late for 2 % (generator.stalled)", {"stalled": 0.01}),
        ("own send delay p99 2 s > 100 ms (generator.sendDelayP99)", {"receiveLagP99": "1ms"}),
        ("5 messages were dropped, late by the generator's own delay", {}),
    ],
)
def test_a_limit_that_a_perfect_generator_exceeds_is_found(
    played: Played, reason: str, generator: dict[str, Any]
) -> None:
    """Neither does a small limit of another measure excuse it."""
    assert "blame.generator" in rules(check_blame(limited(played, reason, **generator), None))


def test_a_send_delay_may_exceed_a_limit_of_a_tick(played: Played) -> None:
    reason = "own send delay p99 997 us > 900 us (generator.sendDelayP99)"
    found = check_blame(limited(played, reason, sendDelayP99="900us"), None)
    assert [violation.margin for violation in found] == [TICK]


def test_a_perfect_generator_that_hands_over_late_is_found(played: Played) -> None:
    late = [replace(sent, at=sent.at + 3 * MS * (sent.seq == 2)) for sent in played.truth.sent]
    assert rules(check_blame(played, None)) == set()
    wrong = replace(played, truth=replace(played.truth, sent=late))
    assert rules(check_blame(wrong, None)) == {"blame.late"}


def test_ticks_before_a_full_window_add_up(tmp_path: Path) -> None:
    """Each message of a window of one leaves up to a tick after the answer to the one before."""
    driver = {"name": "simulated", "maxPendingMessages": 1}
    profile = simple(topics=1, producerRate=714, driver=driver)
    cut = Fault(kind="restart", at=0, duration=349 * MS)
    played = play(World(seed=1, profile=profile, target=SLOW_TARGET, faults=(cut,)), tmp_path)
    assert played.outcome == "generator-limited"
    found = check_blame(played, None)
    assert [(violation.rule, violation.margin) for violation in found] == [
        ("blame.generator", TICK)
    ]


@pytest.mark.parametrize(("beyond", "is_found"), [(MS // 2, False), (2 * MS, True)])
def test_a_perfect_generator_excuses_a_miss_by_a_tick(
    played: Played, beyond: int, is_found: bool
) -> None:
    wrong = limited(played, f"{MAXIMUM} would be 3 ms without the generator's own part of 1 of 9")
    assert wrong.results is not None
    findings = wrong.results["verdict"]["findings"]
    observed = next(one["observed"] for one in findings if one["name"] == MAXIMUM)
    values = {"outcome": "generator-limited", "maximum": observed - beyond}
    found = rules(check_blame(with_finding(wrong, MAXIMUM, **values), None))
    assert found == ({"blame.generator"} if is_found else set())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (Host(name="h", offset=5, drift=1e-5, jitter=5), True),
        (Host(name="h", drift=1e-4), False),
        (Host(name="h", there=2 * MS), False),
        (Host(name="h", lossy=0.1), False),
        (Host(name="h", steps=((0, 5),)), False),
    ],
)
def test_an_ordinary_clock_is_no_fault_of_the_generator(host: Host, expected: bool) -> None:
    assert World(seed=1, profile={}, hosts=(host,)).has_perfect_generator is expected


# Limits.


def test_a_limit_that_was_not_exceeded_is_found(played: Played) -> None:
    reason = "own send delay p99 120 ms > 100 ms (generator.sendDelayP99)"
    wrong = limited(played, reason)
    slow = replace(wrong, world=replace(wrong.world, faults=(SLOW,)))
    assert rules(check_blame(slow, None)) == {"blame.limit"}


def test_a_stop_beyond_the_limit_is_found(tmp_path: Path) -> None:
    world = World(
        seed=1,
        workers=(CONTROLLER, CONTROLLER),
        profile=simple(testDuration="10s"),
        faults=(PAUSE,),
    )
    played = play(world, tmp_path)
    assert played.outcome == "generator-limited"
    assert check_blame(played, None) == []
    wrong = replace(changed(played, "verdict", "outcome", value="missed"), outcome="missed")
    assert "blame.limit" in rules(check_blame(wrong, None))


def test_a_stop_after_the_load_does_not_exceed_the_limit(tmp_path: Path) -> None:
    """What a stall takes beyond the end of the phase is no part of the run."""
    late = replace(PAUSE, at=1_900 * MS, duration=SECOND, values={"worker": 0})
    few = {"producerRate": 1, "slo": {"throughput": "20%"}}
    profile = simple(**few, generator={"sendDelayP99": "10s"})
    played = play(World(seed=1, profile=profile, faults=(late,)), tmp_path)
    assert played.outcome == "met"
    wrong = limited(played, "worker w0 woke up late for 50 % (generator.stalled)")
    assert rules(check_blame(wrong, None)) == {"blame.limit"}


# The same world with a perfect generator.


def test_a_miss_that_a_perfect_generator_does_not_have_is_found(played: Played) -> None:
    wrong, calm = replace(played, outcome="missed"), replace(played, outcome="met")
    assert rules(check_blame(wrong, calm)) == {"blame.target"}


def test_a_difference_of_a_tick_is_not_blamed(played: Played) -> None:
    assert played.results is not None
    findings = played.results["verdict"]["findings"]
    observed = next(one["observed"] for one in findings if one["name"] == MAXIMUM)
    missed = with_finding(played, MAXIMUM, outcome="missed", observed=observed + MS)
    assert margins(replace(missed, outcome="missed"), replace(played, outcome="met")) == {TICK}


@pytest.mark.parametrize(("beyond", "expected"), [(3 * MS, ""), (MS // 2, TICK)])
def test_an_excuse_that_changes_nothing_is_found(
    played: Played, beyond: int, expected: str
) -> None:
    """A perfect generator may miss a bound by a tick, which a generator with faults excuses with the rest."""
    assert played.results is not None
    findings = played.results["verdict"]["findings"]
    observed = next(one["observed"] for one in findings if one["name"] == MAXIMUM)
    reason = f"{MAXIMUM} would be 3 ms without the generator's own part of 1 of 9"
    values = {"maximum": observed - beyond}
    wrong = with_finding(limited(played, reason), MAXIMUM, outcome="generator-limited", **values)
    wrong = replace(wrong, world=replace(wrong.world, faults=(SLOW,)))
    calm = replace(with_finding(played, MAXIMUM, outcome="missed", **values), outcome="missed")
    found = check_blame(wrong, calm)
    assert [(violation.rule, violation.margin) for violation in found] == [
        ("blame.excused", expected)
    ]


@pytest.mark.parametrize(
    ("outcome", "minimum", "expected"),
    [
        ("missed", 1.5, [("blame.excused", "")]),
        ("missed", 1.001, [("blame.excused", EDGE)]),
        ("met", 1.5, []),
    ],
)
def test_an_excused_throughput_that_a_perfect_generator_misses_is_found(
    played: Played, outcome: str, minimum: float, expected: list[tuple[str, str]]
) -> None:
    """One or two messages at the edge of the phase are not blamed."""
    reason = "throughput would be 100 % without the generator's own part of each copy"
    wrong = with_finding(
        limited(played, reason), "throughput", outcome="generator-limited", minimum=minimum
    )
    wrong = replace(wrong, world=replace(wrong.world, faults=(SLOW,)))
    calm = with_finding(played, "throughput", outcome=outcome, minimum=minimum)
    found = check_blame(wrong, replace(calm, outcome="missed"))
    assert [(violation.rule, violation.margin) for violation in found] == expected


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        ("missed", "", True),
        ("met", "", False),
        ("no data", "", False),
        ("generator-limited", "endToEndLatency.max would be 1 ms", True),
        ("generator-limited", "worker w0 woke up late (generator.stalled)", False),
    ],
)
def test_a_world_is_played_again_if_that_can_change_the_answer(
    played: Played, outcome: str, reason: str, expected: bool
) -> None:
    subject = replace(limited(played, reason), outcome=outcome)
    assert not needs_counterfactual(subject)
    imperfect = replace(subject, world=replace(subject.world, faults=(SLOW,)))
    assert needs_counterfactual(imperfect) is expected
