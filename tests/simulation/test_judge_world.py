"""A world is played with its counterfactuals; the oracle's findings and broken laws are collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulation import judge_world
from simulation.judge_world import judge
from simulation.margins import ROUNDED, TICK
from simulation.truth import Played, Truth
from simulation.violation import Violation
from simulation.world import SECOND, Fault, Host, World

PAUSE = Fault(kind="pause", at=SECOND, duration=SECOND, values={"worker": 0})
STALL = Fault(kind="stall", at=SECOND, duration=SECOND)


def world(*faults: Fault, seed: int = 1, hosts: tuple[Host, ...] = ()) -> World:
    return World(
        seed=seed, profile={"testDuration": "1s", "slo": {"loss": 4}}, faults=faults, hosts=hosts
    )


class Player:
    """Plays nothing: each play has the outcome and events that a test gives."""

    def __init__(self, *outcomes: str, events: str = "same", error: str | None = None) -> None:
        self.worlds: list[World] = []
        self._outcomes = outcomes or ("met",)
        self._events = events
        self._error = error

    def __call__(self, played: World, folder: Path) -> Played:
        number = len(self.worlds)
        self.worlds.append(played)
        return Played(
            world=played, truth=Truth(), outcome=self._outcomes[min(number, len(self._outcomes) - 1)], results=None, run=None, error=self._error,
            folder=folder, ended=0, events=self._events if self._events == "same" else str(number), cpu=0.1,
        )  # fmt: skip


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Player:
    return use(monkeypatch, Player())


def use(monkeypatch: pytest.MonkeyPatch, player: Player, **checks: Any) -> Player:
    monkeypatch.setattr(judge_world, "play", player)
    monkeypatch.setattr(judge_world, "check_truth", checks.get("check_truth", lambda played: []))
    monkeypatch.setattr(
        judge_world, "check_blame", checks.get("check_blame", lambda played, calm: [])
    )
    return player


def test_a_world_without_faults_of_the_generator_is_played_once(
    player: Player, tmp_path: Path
) -> None:
    judged = judge(world(STALL), tmp_path, lawful=False)
    assert player.worlds == [world(STALL)]
    assert judged.calm is None
    assert judged.violations == ()
    assert judged.outcome == "met"


def test_a_fault_of_the_generator_is_left_out_in_a_second_play(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    player = use(monkeypatch, Player("missed"))
    judged = judge(world(STALL, PAUSE), tmp_path, lawful=False)
    assert [played.faults for played in player.worlds] == [(STALL, PAUSE), (STALL,)]
    assert judged.calm is not None


def test_both_judges_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(
        monkeypatch,
        Player("missed"),
        check_truth=lambda played: [Violation(rule="count", text="1 lost")],
        check_blame=lambda played, calm: [Violation(rule="blame", text=f"without: {calm.outcome}")],
    )
    judged = judge(replace(world(PAUSE), tag="stormy"), tmp_path, lawful=False)
    assert [violation.rule for violation in judged.violations] == ["count", "blame"]


def test_a_margin_is_counted_and_no_violation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    excused = [Violation("blame", "1 ms", TICK), Violation("open", "1 %", ROUNDED)]
    use(monkeypatch, Player(), check_truth=lambda played: [*excused, excused[0]])
    judged = judge(world(), tmp_path, lawful=False)
    assert judged.violations == ()
    assert judged.margins == (TICK, ROUNDED)


def test_an_exception_is_a_violation_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def check(played: Played) -> list[Violation]:
        raise RuntimeError("broken")

    use(monkeypatch, Player(), check_truth=check)
    judged = judge(world(), tmp_path)
    assert judged.violations[0].rule == "crash"
    assert "RuntimeError: broken (check in " in judged.violations[0].text


def test_two_plays_that_differ_are_a_violation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, Player(events="others"))
    assert [
        violation.rule
        for violation in judge(world(), tmp_path, lawful=False, twice=True).violations
    ] == ["determinism"]
    assert judge(world(), tmp_path, lawful=False, twice=False).violations == ()


def test_every_hundredth_world_is_played_twice(player: Player, tmp_path: Path) -> None:
    judge(world(seed=300), tmp_path, lawful=False)
    assert len(player.worlds) == 2


def test_a_broken_law_is_a_violation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    every = tuple(replace(law, share=1.0) for law in judge_world.laws.LAWS)
    monkeypatch.setattr(judge_world.laws, "LAWS", every)
    use(monkeypatch, Player("missed", "met"))
    judged = judge(replace(world(STALL), tag="stormy"), tmp_path)
    rules = [violation.rule for violation in judged.violations]
    assert rules == ["law: a tighter bound", "law: later deliveries", "law: later reads"]
    assert judged.tried == ("a tighter bound", "later deliveries", "later reads")


@pytest.mark.parametrize(
    ("outcome", "error", "rule"),
    [
        ("missed", None, "calm"),
        ("wrong profile", "topics is not a number", "profile"),
        ("no data", "the run did not end within 600 s", "end"),
    ],
)
def test_each_outcome_and_error_violates_its_rule(
    outcome: str, error: str | None, rule: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, Player(outcome, error=error))
    judged = judge(world(), tmp_path, lawful=False)
    assert [violation.rule for violation in judged.violations] == [rule]


def test_a_world_with_faults_may_miss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, Player("missed"))
    assert judge(replace(world(STALL), tag="stormy"), tmp_path, lawful=False).violations == ()
